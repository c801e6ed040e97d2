"""Assignment and update kernels, starts and metrics: no privacy, no messages, no files.

==============  ===================================================================================
`grid.py`       points on the integer grid; `stored.py`, of a file
`assign.py`     labels, sums and counts in exact integers; `fused.py`, the same in one compiled pass
`passes.py`     in threads, and compiled once that pays
`layout.py`     sums and counts as one vector
`initial.py`    where centres start: sphere packing
`update.py`     new centres from noisy sums and counts; `movement.py`, how far they moved
`swap.py`       merge two clusters and split another
`merging.py`    how many clusters noisy centres show
`local.py`      k-means of a party's own records
`weighted.py`   k-means of weighted points
`spectral.py`   the exact outer product, and the subspace of its largest eigenvalues
`ordered.py`    a sum that is the same, bit by bit, on every machine
`reference.py`  the same plainly and slowly, for what the tests compare with
`matching.py`   clusters matched with true classes; `metrics.py`, how good a clustering is
==============  ===================================================================================
"""
