"""Cryptography from the `cryptography` and `ssl` libraries only: links, commitments, blinding."""
