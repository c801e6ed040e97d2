"""Threshold masks, which T of M clients open together, and noise in parts, which are taken off as far as they may be.

Arithmetic only: `numbers.py` (who may be lost, and who may collude), `parts.py` (the parts of the noise), `shamir.py`
(shares), `secrets.py` (what a client holds), `words.py` (what it publishes at set-up), `opening.py` (what the server
computes from answers). The messages and their order are in `lifecycle/`.

Source: Bonawitz et al., "Practical secure aggregation" (2017); docs/protocol.md, "Threshold masks".
"""
