"""Threshold masks between the parties: the set-up through the server, the opening of a round, and the way back.

`group.py` (what all signatures are about), `messages.py`, `setup.py` (keys, ciphertexts, words), `client.py` (what a
client decides and refuses), `server.py` (how the server opens a round), `returning.py` (what a client hears before it
takes part again). The arithmetic is in `masking/threshold/`.

Source: Bonawitz et al., "Practical secure aggregation" (2017); docs/protocol.md, "Threshold masks".
"""
