"""Without matplotlib and jinja2, as where they are not installed: they take much of the time of a small run."""

import sys

sys.modules["matplotlib"] = None  # type: ignore[assignment]
sys.modules["jinja2"] = None  # type: ignore[assignment]
