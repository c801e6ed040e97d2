"""Who a party is and how its links are protected: keys, roster, TLS, signatures.

==============  ====================================================================================
`identity.py`   the key of a party, and its certificate
`roster.py`     the certificates of all parties, pinned
`tls.py`        TLS 1.3 between two parties, over frames
`signature.py`  statements that a party signs; `own_key.py`, whether roster and key are here and fit
==============  ====================================================================================
"""
