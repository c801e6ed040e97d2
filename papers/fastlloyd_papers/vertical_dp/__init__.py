"""The vertical DP paper's tables and figures.

==========================  ====================================================================
`fig3.py`                   loss, V-score and error of the weights against epsilon
`fig5.py`                   against the columns of each party
`fig6.py`                   against the number of parties
`fig8.py`                   which part costs how much
`fig9.py`                   against the number of local clusters
`table1.py`                 bytes and time
`lemma5.py`, `theorem7.py`  what the paper claims, measured
`sketch.py`                 how exact sketches are
`design.py`                 what figures measure; `figure.py` measures it, `report.py` writes it
`data.py`                   data sets
`run.py`                    one clustering by one method; `baselines.py`, the others
`ideal.py`                  sketches without hashing; `phantoms.py`, the fewest phantoms
==========================  ====================================================================
"""
