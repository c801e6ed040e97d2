"""SecFC: Lloyd's algorithm on Lagrange-coded shares; exact results, no differential privacy.

=====================  ===========================================================================
`sharing.py`           Algorithm 1, phase 1 (lines 1 to 5): shares of all points to all clients
`membership.py`        with membership privacy, before it: the private union of records (§6)
`client.py`            phase 2 (lines 6 to 26), client j
`server.py`            phase 2, the server: lines 18 to 23
`reveal.py`            the final centres, opened by clients to clients (§7)
`messages.py`          all messages
`math/attempt.py`      one start: the first assignment (line 7, and the separated start of §5), the
                       iterations, and the choice of the start with the least inertia
`math/differences.py`  shares of the differences whose signs are asked for
`math/coded.py`        a client's computation on its shares: lines 11 to 13
`math/signs.py`        the values that the server decodes instead of distances
`math/memory.py`       settled comparisons, which are not sent again
`math/tournament.py`   the nearest centre from comparisons: lines 21 and 25
`math/masks.py`        the masks of a round's answers; a secret rotation of all records
`math/onion.py`        the layers of encryption of the union
`field/*.py`           the prime field, Lagrange codes, and wrong answers
`settings.py`          the settings, and what the parties agree on
`plan.py`              the plan of one run: code, field, limits (§4.1, App. A)
`reference.py`         Lloyd's algorithm in integers on pooled data, without codes or messages
`work.py`              what a run computes at most, for `plan`
`protocol.py`          the class for runs, data and reports; who sees what
=====================  ===========================================================================

Source: Li, Hou, Buyukates, Avestimehr, "Secure Federated Clustering"; docs/secfc.md.
"""
