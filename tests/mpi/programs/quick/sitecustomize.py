"""Without matplotlib, as where it is not installed: plots take a third of the processor time of a small run."""

import sys

sys.modules["matplotlib"] = None  # type: ignore[assignment]
