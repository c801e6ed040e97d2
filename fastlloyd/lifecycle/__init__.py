"""What the life of every party is made of besides its rounds: hello, plan, seed, pairs, alignment, closing exchange.

================  =======================================================================
`hello.py`        before round 0: who is there, and the plan
`seed.py`         a common seed over the clients' own links
`sealed.py`       the same through the server, which cannot read it
`same_secret.py`  whether all clients have the same secret
`pairs.py`        a secret for each pair of clients
`rounds.py`       a round: masked vectors up, one reply down, ledger, resume
`masked_sums.py`  noisy masked sums, round after round (FastLloyd, Figure 1); `masked_messages.py`
`align/*.py`      the same records in the same order at parties with different columns
`closing.py`      after the last round: compare, sign, count
`messages.py`     the messages of all these, and how much a peer may send
================  =======================================================================
"""
