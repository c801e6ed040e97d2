"""What a run leaves behind: report, tables, plots, pages, progress. Released and public values only.

==============  ===============================================================================================
`document.py`   `report.json` and `server.json`; `signed.py` is their signed record
`earlier.py`    files of an earlier run in an output folder; `files.py` writes result files atomically
`quality.py`    how much of a result is signal; `ranges.py`, what noise leaves of a value
`outlook.py`    what noise to expect of a plan, and which settings give less
`claim.py`      what a run promises, and the claim in one sentence; `citation.py`, what to cite
`sight.py`      who sees what in a run, in words, and what leaves a site in which message
`table.py`      the result as text for a terminal
`labelling.py`  labels for new records by the released centroids
`names.py`      names that people chose for clusters; `label.py`, short labels for names of columns
`plot.py`       a photograph in the colours of its clusters; `figure/*.py`, figures as SVG, PNG and PDF
`page/*.py`     pages as single HTML files
`announcer.py`  what a rank reports to people and the supervisor; `view.py`, what monitoring may see
`progress.py`   a line a round, or a bar; `lines.py`, the log as JSON
`display.py`    safe text for spreadsheets, colour for terminals; `unit.py`, bytes, seconds and counts
`stream.py`     standard output and error, whose loss ends nothing
==============  ===============================================================================================
"""
