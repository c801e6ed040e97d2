"""Error against epsilon: data, measures and reports shared by FastLloyd's utility figures.

===========  ======================================================
`design.py`  what a benchmark measures; `measure.py` measures it
`data.py`    data sets; `cluster_generation.py`, generated clusters
`run.py`     the clients' arithmetic on pooled records
`metric.py`  metrics of App. D
`report.py`  tables and charts
`league.py`  every private k-means at hand; `league_report.py`
===========  ======================================================
"""
