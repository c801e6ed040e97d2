"""Tables of records: reading, bounds, splits, vertical parts."""
