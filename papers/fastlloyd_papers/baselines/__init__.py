"""Other people's k-means on pooled records, private and not: what the protocols are compared with. `table.py` lists it.

All of it runs on one machine with noise from numpy's generator: for measurements only.
"""
