"""Signatures of a party's roster key under statements about a run.

Each kind of statement has a label of its own, so that a signature under one never serves as one under another.

Source: docs/protocol.md, "Signed record" and "Approval".
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fastlloyd.crypto.link.identity import Identity, parse_certificate
from fastlloyd.randomness import domains


def sign(identity: Identity, statement: bytes, label: bytes = domains.SIGNED_RECORD) -> bytes:
    """Sign a statement; gives 64 bytes. `label` says what kind of statement it is."""
    # TLS 1.3 signs other bytes with the same key: 64 spaces come first there, a label here.
    return identity.key.sign(label + statement)


def verifies(certificate_der: bytes, statement: bytes, signature: bytes, label: bytes = domains.SIGNED_RECORD) -> bool:
    """Whether the signature is of the certificate's key, under this statement.

    Raises
    ------
    ConfigError
        These bytes are no certificate.
    """
    key = parse_certificate(certificate_der).public_key()
    if not isinstance(key, Ed25519PublicKey):
        return False
    try:
        key.verify(signature, label + statement)
    except InvalidSignature:
        return False
    return True
