"""FedDP-KMeans: a start from server data and noisy sums, then at most a few private Lloyd steps.

`settings.py` holds what may be chosen, `parameters.py` what the parties agree on, `plan.py` what follows for one run,
`messages.py` the exchange, `record.py` and `user.py` what a client computes from its records, `stage.py` what the
server makes of the noisy sums, `client.py` and `server.py` the two roles, `reference.py` the same without messages.
"""
