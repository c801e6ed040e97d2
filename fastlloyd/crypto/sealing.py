"""A short secret, encrypted and authenticated under a key that is used once.

The key is derived from a secret that sender and receiver share, and from everything that the seal is bound to; so the
nonce is zero. A seal under other values does not open.

Source: RFC 8439 (ChaCha20-Poly1305); docs/protocol.md, "Seed".
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fastlloyd.randomness.prg import NONCE_BYTES, derive

TAG_BYTES = 16
_NONCE = bytes(NONCE_BYTES)


def seal(plain: bytes, shared: bytes, purpose: bytes, context: bytes) -> bytes:
    """Encrypt `plain`.

    Parameters
    ----------
    plain : bytes
    shared : bytes of length 32
        The secret of sender and receiver.
    purpose, context : bytes
        Values that the seal is bound to. Never use the same twice under one secret.

    Returns
    -------
    bytes
        16 longer than `plain`.
    """
    return ChaCha20Poly1305(derive(shared, purpose, context)).encrypt(_NONCE, plain, None)


def unseal(sealed: bytes, shared: bytes, purpose: bytes, context: bytes) -> bytes:
    """Decrypt the output of `seal`.

    Raises
    ------
    ValueError
        It was changed, or sealed under another secret, purpose or context.
    """
    try:
        return ChaCha20Poly1305(derive(shared, purpose, context)).decrypt(_NONCE, sealed, None)
    except InvalidTag as error:
        raise ValueError("the seal does not open") from error
