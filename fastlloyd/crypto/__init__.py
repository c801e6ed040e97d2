"""Cryptography from the `cryptography`, `ssl` and `tenseal` libraries only: links, homomorphic encryption, blinding."""
