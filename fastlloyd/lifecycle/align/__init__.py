"""What parties with different columns do first: describe columns (`columns.py`) and align records (`ids.py`)."""
