"""Clustering of columns at different parties: DP local centres and sketches to an untrusted server.

=====================  =============================================================================
`client.py`            Algorithm 1, lines 1, 2 and 3 (a): a party with columns
`server.py`            Algorithm 1, lines 3 and 4: the server; how far noise may have moved its result
`keys.py`              before it: secrets, alignment of records, hash keys (§4.3)
`messages.py`          one message from each party, one back
`math/local.py`        LocCluster (§3.5), our steps, the tree of noisy counts; `local_plan.py`: its noise and releases
`math/weights.py`      WeightEst: from sketches to weights, by the estimator and fit of the run
`math/estimate.py`     inclusion and exclusion of sketches (Algorithm 4)
`math/pair.py`         instead of that (ours): the likelihood of two parties' sketches
`math/fit.py`          from pairs of parties to the grid: maximum entropy, or Algorithm 5
`math/grid.py`         line 4: k-means on the weighted grid
`sketch/*.py`          MemEnc (Algorithms 2 and 3): Flajolet-Martin sketches with phantoms, and their cost
`settings.py`          the settings; `plan_lines.py`, what a run computes
`plan.py`              public parameters, the plan of one run, and how epsilon and delta are divided
`reference.py`         the algorithm on pooled columns, without messages; `reference_weights.py`
`protocol.py`          the class that ties it to runs, data and reports, who sees what, how much noise there is
=====================  =============================================================================

`vertical-plain` differs in its plan and in what a synopsis holds: labels in clear.

Source: Li, Wang, Li, "Differentially Private Vertical Federated Clustering" (PVLDB 16, 2023); docs/vertical-dp.md.
"""
