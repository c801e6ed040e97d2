"""For all tests: no test fails because the machine is busy."""

import os
import sys

from hypothesis import HealthCheck, settings

# Hundreds of processes start here; without this, each compiles the package anew where the environment says so.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A worker per core runs tests: further BLAS threads would spin on the others' cores (a sixth of the processor time of
# the numerical tests). Before NumPy is imported, else it is too late.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

# An example may take long where others use the cores, or because it is the first that fills a cache.
# Where Hypothesis knows that it runs in CI, its own profile stays the base: examples are the same each time.
# Nor is a test wrong because drawing its examples took long: `too_slow` measures seconds.
settings.register_profile(
    "no clock", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("no clock")
