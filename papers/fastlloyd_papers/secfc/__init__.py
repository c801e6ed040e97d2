"""SecFC's tables and figures, and what attacks recover.

===========================  =========================================================================
`table1.py`, `table2.py`     accuracy on mixtures; `table3.py`, on digits
`design.py`                  what the tables measure; `accuracy.py` measures it, `report.py` writes it
`fig1.py`                    time of an iteration; `fig1_design.py`, `fig1_report.py`
`memory.py`                  all parties in one thread, timed
`attacks.py`                 what attacks recover from `view.py`, what a server decodes
`lattice.py`, `geometry.py`  two attacks
`data.py`                    data sets; `separation.py`, how far apart their clusters lie
`lloyd.py`                   assignments from pooled records
===========================  =========================================================================
"""
