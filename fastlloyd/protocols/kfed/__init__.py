"""k-FED: one round, not private; a baseline of FedDP-KMeans and of SecFC.

===============  ==========================================================================
`client.py`      Algorithm 2 on a device: its own records clustered as Awasthi and Sheffet do
`server.py`      Algorithm 2 on the central node: farthest first, then one round of Lloyd
`messages.py`    centres up, merged centres down
`plan.py`        what may be chosen, what the parties agree on, and what follows for one run
`reference.py`   the algorithm without messages
`work.py`        what a run computes at most, for `plan`
`protocol.py`    the class that ties it to runs, data and reports
===============  ==========================================================================

Source: Dennis, Li, Smith, "Heterogeneity for the Win: One-Shot Federated Clustering" (2021), Algorithm 2.
"""
