"""Assignment and update kernels, starts and metrics: no privacy, no messages, no files.

==============  ===================================================================================
`grid.py`       points on the integer grid; `stored.py`, of a file
`assign.py`     labels, sums and counts in exact integers; `fused.py`, the same in one compiled pass
`passes.py`     in threads, and compiled once that pays
`initial.py`    where centres start: sphere packing
`update.py`     new centres from noisy sums and counts, and how far they moved
`swap.py`       merge two clusters and split another
`merging.py`    how many clusters noisy centres show
`weighted.py`   k-means of weighted points
`spectral.py`   k-means of a party's own records from a spectral start
`reference.py`  the same in plain slow code, for comparison in tests
`metrics.py`    how good a clustering is
==============  ===================================================================================
"""
