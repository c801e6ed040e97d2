"""Bounds of columns that nobody knows: one noisy masked sum of counts in bins that double in width.

=================  =====================================================================
`rounds.py`        the one round: bins, what a client adds, and the rule that finds bounds in counts
`plan_lines.py`    which epsilon, or how many records, do for a number of columns
`inputs.py`        one run split in two: the one that finds the bounds, and the one that clusters with them
`protocol.py`      the class that ties it to runs, data and reports
=================  =====================================================================

Source: docs/privacy.md, "Bounds that nobody knows".
"""
