"""Layers of encryption around tags of one length, one layer for each client, and the shuffle between two layers.

::

    layer_j(content) = epk (32 bytes) | ChaCha20-Poly1305(content; key_j)
    key_j = HKDF(X25519(esk, pk_j); epk, pk_j, run, j)        esk, epk: fresh for each tag and layer

Without client j's key nobody can link a content to its layer, so a list that j has opened and shuffled hides the
previous places of its entries. Each key encrypts once, hence the constant nonce.

Source: Chaum, "Untraceable electronic mail" (1981); RFC 7748, RFC 5869, RFC 8439; docs/secfc.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import KEY_BYTES, derive
from fastlloyd.randomness.secret import SecretRandom

TAG_BYTES = 16
CONTENT_BYTES = TAG_BYTES + 1
"""A tag, and whether it belongs to a record (1) or is padding (0)."""
LAYER_BYTES = 32 + 16
_NONCE = bytes(12)


def sealed_bytes(layers: int) -> int:
    """Return the length of a tag under `layers` layers."""
    return CONTENT_BYTES + layers * LAYER_BYTES


class LayerKey:
    """One client's key for one run."""

    __slots__ = ("_private", "public")

    def __init__(self, secret: SecretRandom) -> None:
        self._private = X25519PrivateKey.from_private_bytes(secret.bytes(KEY_BYTES))
        self.public = self._private.public_key().public_bytes_raw()

    def open(self, sealed: bytes, *, layer: int, run_id: bytes) -> bytes:
        """Remove this party's layer.

        Raises
        ------
        ValueError
            The content was not sealed for this key, layer and run.
        """
        ephemeral = sealed[:32]
        shared = self._private.exchange(X25519PublicKey.from_public_bytes(ephemeral))
        try:
            return _cipher(shared, ephemeral, self.public, layer, run_id).decrypt(_NONCE, sealed[32:], None)
        except InvalidTag as error:
            raise ValueError("a sealed tag that does not open") from error


def seal(content: bytes, keys: Sequence[bytes], *, run_id: bytes, secret: SecretRandom) -> bytes:
    """Put layers around content, that of the first key outermost.

    Parameters
    ----------
    content : bytes
    keys : sequence of bytes of length 32
        The public keys of the clients, in the order in which they open.
    run_id : bytes
    secret : SecretRandom

    Raises
    ------
    ValueError
        A key is not one of an honest client.
    """
    for layer in range(len(keys) - 1, -1, -1):
        private = X25519PrivateKey.from_private_bytes(secret.bytes(KEY_BYTES))
        ephemeral = private.public_key().public_bytes_raw()
        shared = private.exchange(X25519PublicKey.from_public_bytes(keys[layer]))
        content = ephemeral + _cipher(shared, ephemeral, keys[layer], layer, run_id).encrypt(_NONCE, content, None)
    return content


def shuffle(entries: Sequence[bytes], secret: SecretRandom) -> list[bytes]:
    """Return the entries in a secret random order.

    Sorted by 128-bit random numbers: except for two equal ones, of probability below n^2 2^-129, the order is uniform.
    """
    numbers = secret.uint64(2 * len(entries)).reshape(2, len(entries))
    return [entries[int(i)] for i in np.lexsort(numbers)]


def _cipher(shared: bytes, ephemeral: bytes, public: bytes, layer: int, run_id: bytes) -> ChaCha20Poly1305:
    """Return the cipher of one layer."""
    context = struct.pack("<I", layer) + ephemeral + public
    return ChaCha20Poly1305(derive(shared, domains.SECFC_LAYER, context, salt=run_id))
