"""FedDP-KMeans' tables and figures.

================  ================================================================================
`fig1.py`         cost against epsilon, one record protected
`fig2.py`         the same for all records of a user
`kfed.py`         k-FED with two local steps
`fig3.py`         the server's data lack clusters
`fig7.py`         the curve whose elbow chooses k
`tables.py`       Tables 2 to 5: how the best runs divide the budget
`assumptions.py`  Table 1: what the theory asks of the data
`design.py`       what the cost figures measure; `cost.py` measures it, `cost_report.py` writes it
`data.py`         data sets
`run.py`          one clustering by one method; `central.py`, on pooled data
================  ================================================================================
"""
