"""Clustering of columns at different parties: DP local centres and sketches to an untrusted server, in one round.

`settings.py` holds the paper's symbols, `budget.py` how epsilon is divided, `plan.py` what follows for one run,
`local.py` the parties' own clustering (`local_plan.py`: what it releases), `keys.py` their common keys, `messages.py`
the exchange, `client.py` and `server.py` the two roles. At the server, `estimate.py` and `pair.py` make tables of
sketches, `fit.py` grid weights of tables, `grid.py` the final centres; `weights.py` joins them. `reference.py` is the
same without messages, `baselines.py` what the paper compares with. The sketches are in
`privacy/sketch/`.
"""
