"""What the clusters of a finished run are: one round of noisy masked sums over public columns.

================  ==========================================================================
`inputs.py`       a client's own records: clusters by the released centres, bins of the columns
`rounds.py`       what a client adds to the one vector
`plan_lines.py`   its run file from the finished run's folder, and what both spend together
`protocol.py`     the class that ties it to runs, data and reports
================  ==========================================================================

Source: docs/privacy.md, "Descriptions of clusters".
"""
