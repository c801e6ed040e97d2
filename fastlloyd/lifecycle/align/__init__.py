"""What parties with different columns of the same records do first: describe columns, and align records.

`columns.py` tells the server each party's public columns; `ids.py` makes sure that all parties hold the same ids, or
finds the ids that all of them hold.
"""
