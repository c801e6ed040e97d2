"""Identities, links, masks: cryptography from the `cryptography` and `ssl` libraries only."""
