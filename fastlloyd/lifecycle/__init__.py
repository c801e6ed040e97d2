"""What every party does: hello, plan, secrets, alignment, rounds, closing exchange.

===================  ====================================================================
`hello.py`           before round 0: who takes part, and the plan
`sealed.py`          a common seed through the server, which cannot read it
`shared_secrets.py`  a common seed, or a secret for each pair, over the clients' own links
`signed.py`          signatures on what the server passes on
`sealed_messages.py` messages that two clients seal for each other inside their link
`same_secret.py`     whether all clients have the same secret
`rounds.py`          a round: masked vectors up, one reply down, ledger, resume
`masked_sums.py`     noisy masked sums, round after round (FastLloyd, Figure 1)
`align/*.py`         the same records in the same order at parties with different columns
`closing.py`         after the last round: compare, sign, count
`messages.py`        the messages of all these, and how much a peer may send
===================  ====================================================================
"""
