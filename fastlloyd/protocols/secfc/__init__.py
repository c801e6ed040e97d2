"""SecFC: Lloyd's algorithm on Lagrange-coded shares; exact results, no differential privacy.

====================  ==============================================================================
`sharing.py`          Algorithm 1, phase 1 (lines 1 to 5): shares of all points to all clients
`membership.py`       with membership privacy, before it: the private union of records (§6)
`client.py`           phase 2 (lines 6 to 26), client j
`server.py`           phase 2, the server: lines 18 to 23
`reveal.py`           the centres at the end, opened by clients to clients (§7)
`messages.py`         all messages
`math/attempt.py`     one start: its first assignment and its iterations
`math/start.py`       the first assignment: line 7, and the separated start of §5
`math/totals.py`      which of several starts has the least inertia
`math/differences.py` the differences whose signs are asked for, on shares
`math/coded.py`       what a client computes on its shares: lines 11 to 13
`math/signs.py`       the values that the server decodes in place of distances
`math/memory.py`      comparisons that are settled already, and are not sent again
`math/tournament.py`  the nearest centre from comparisons: lines 21 and 25
`math/clusters.py`    the clusters that have points
`math/masks.py`       what hides a round's answers; `math/rotation.py`: the secret rotation of all records
`math/onion.py`       the layers of encryption of the union
`field/*.py`          the prime field, Lagrange codes, and finding wrong answers
`settings.py`         what may be chosen; `parameters.py`, what the parties agree on
`plan.py`             what follows for one run: code, field, limits (§4.1, App. A)
`reference.py`        Lloyd's algorithm in integers on pooled data, without codes or messages
`protocol.py`         the class that ties it to runs, data and reports; `words.py`, who sees what
====================  ==============================================================================

Source: Li, Hou, Buyukates, Avestimehr, "Secure Federated Clustering"; docs/secfc.md.
"""
