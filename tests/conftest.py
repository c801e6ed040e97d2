"""For all tests: no test fails because the machine is busy."""

import os
import sys

from hypothesis import settings

# Hundreds of processes start here; without this, each compiles the package anew where the environment says so.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# An example may take long where others use the cores, or because it is the first that fills a cache.
# Where Hypothesis knows that it runs in CI, its own profile stays the base: examples are the same each time.
settings.register_profile("no deadline", parent=settings.default, deadline=None)
settings.load_profile("no deadline")
