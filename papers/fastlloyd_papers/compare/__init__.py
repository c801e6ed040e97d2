"""Protocols and other methods side by side on one's own tables.

`command.py`  `fastlloyd compare`
`table.py`    tables: public sets by name, files, a folder of files
`method.py`   what is compared: protocols, baselines, own estimators
`study.py`    measures, as a benchmark does: in parallel, resumable; `compare(X, ...)`
`report.py`   page, tidy CSV and curve
"""

from fastlloyd_papers.compare.study import Comparison, compare

__all__ = ["Comparison", "compare"]
