"""FastLloyd's tables and figures, and what goes beyond the paper.

====================  =======================================================================
`fig2.py`             NICV against epsilon on ten real sets
`fig3.py`, `fig4.py`  area under NICV on generated sets
`fig5.py`             what alpha, clipping and folding do
`fig6_8.py`           silhouette, Davies-Bouldin and centroid error
`table3.py`           time and bytes of a round; `table3_design.py`, `table3_report.py`
`scaling.py`          the same by records, clusters, features and clients
`plus.py`             fastlloyd-plus on the real sets; `plus_generated.py`, on generated ones
====================  =======================================================================
"""
