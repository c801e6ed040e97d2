"""Without matplotlib and jinja2, as where they are not installed: they take much of the time of a small run."""

import sys

import handover  # of tests/forks

sys.modules["matplotlib"] = None  # type: ignore[assignment]
sys.modules["jinja2"] = None  # type: ignore[assignment]

handover.hand_over()
