"""Releases and their cost: calibration, accountant, ledger.

==================  ==================================================================================
`release.py`        one noisy release
`ledger.py`         every release, written down before it leaves; `chain.py`, the digests of its lines
`accountant.py`     the epsilon that releases spend together
`calibration.py`    how much noise a stated epsilon and delta need, and its split between sums and counts;
                    the default delta, and when a stated one is too large
`limits.py`         limits of public numbers
`shares.py`         noise in shares of the clients
`record_digest.py`  digests of records for their owner's ledger
`noise/*.py`        exact samplers
==================  ==================================================================================
"""
