"""FedDP-KMeans: a start from server data and noisy sums, then at most a few private Lloyd steps.

====================  ==============================================================================
`client.py`           Algorithms 1 and 2, client j, with its shares of noise
`server.py`           Algorithms 1 and 2, the server
`messages.py`         the exchange, step by step
`math/record.py`      a client's statistics: Alg. 1 lines 4, 12, 20 and 21; Alg. 2 lines 6 and 7
`math/user.py`        the same at client level, cut to bounds (App. G.4)
`math/stage.py`       what the server computes from noisy sums: lines 7, 17 and 24; Alg. 2 line 11;
                      the elbow (App. H.3), the baselines' starts (§5), our packed spheres, and points in
                      place of the server's, if it has none
`math/projection.py`  Pi, and points seen through it; the grids on which that is exact
`settings.py`         what may be chosen, and how epsilon is divided (App. H.1)
`plan.py`             what the parties agree on, and what follows for one run; `proposal.py` makes and checks it
`reference.py`        the algorithms on pooled data, record by record, without messages
`protocol.py`         the class that ties it to runs, data and reports; `inputs.py`, `plan_lines.py`, `work.py`
====================  ==============================================================================

Source: Scott, Lampert, Saulpic, "Differentially Private Federated k-Means Clustering with Server-Side Data".
"""
