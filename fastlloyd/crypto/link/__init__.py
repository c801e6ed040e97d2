"""Who a party is and how its links are protected: keys, roster, TLS, signatures.

=============  =======================================================
`identity.py`  the key of a party, its certificate, and its signatures
`roster.py`    the certificates of all parties, pinned
`tls.py`       TLS 1.3 between two parties, over frames
`own_key.py`   whether roster and key exist and belong together
=============  =======================================================
"""
