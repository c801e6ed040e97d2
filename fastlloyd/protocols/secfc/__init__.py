"""SecFC: Lloyd's algorithm on Lagrange-coded shares; exact results, no differential privacy.

`settings.py` holds the paper's symbols, `plan.py` what all parties agree on, `membership.py` and `sharing.py` what the
clients do before round 0, `client.py` and `server.py` the rounds, `reveal.py` the centres at the end if asked,
`reference.py` the same on pooled data without messages.
"""
