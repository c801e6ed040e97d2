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

# No test fails because its examples are drawn slowly, or because this run draws an example that no other run has drawn:
# `make test` draws the same ones each time, and `make test-all` fresh ones.
_calm = settings(settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fresh", parent=_calm, derandomize=False)
settings.register_profile("same", parent=_calm, derandomize=True, database=None)
settings.load_profile("same")
