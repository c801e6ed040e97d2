"""The secret of two parties, by X25519 and ML-KEM-768 together: who breaks one of the two does not have it.

::

    K = X25519 key (32 bytes) | ML-KEM-768 key (1184 bytes), made for one run

    one party, with the other's K             the other
      ct, m = encapsulate(its ML-KEM key)
                            ct  ------->      m = decapsulate(ct)
      x = X25519                              the same
      s_ij = HKDF(m | x, salt = run id, purpose, context = u32 i | u32 j | K_i | K_j | ct),  i < j

Somebody who records the messages and has a quantum computer one day computes x, but not m. If ML-KEM turns out to be
weak, there is still x. The context binds the secret to both keys and to the ciphertext, so it does not matter that
ML-KEM by itself binds it to neither. Who encapsulates is the protocol's choice, the same at both: the party with the
lower rank (`lifecycle/shared_secrets.py`), or the sender of what is sealed (`lifecycle/sealed.py`).

A changed ciphertext is not refused here: ML-KEM answers it with another secret (implicit rejection), so a seal does not
open, or tags differ. The 32 random bytes of an encapsulation are OpenSSL's, whose generator the system seeds.

Source: FIPS 203 (ML-KEM); RFC 7748 (X25519); RFC 8439 (ChaCha20-Poly1305); Bindel et al., "Hybrid key encapsulation
mechanisms and authenticated key exchange" (2019); docs/protocol.md, "Secrets of two clients".
"""

from __future__ import annotations

import struct
from typing import Any, NoReturn

import cryptography
from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fastlloyd.errors import ConfigError, SecurityError
from fastlloyd.randomness.prg import KEY_BYTES, NONCE_BYTES, derive
from fastlloyd.wire.header import PartyId

try:
    from cryptography.hazmat.primitives.asymmetric import mlkem as _mlkem
except ImportError:  # before 47
    _mlkem: Any = None  # type: ignore[no-redef]

PUBLIC_BYTES = KEY_BYTES + 1184
CIPHERTEXT_BYTES = 1088
RAW_BYTES = KEY_BYTES + 64
"""Of the secret bytes that a key is made from: X25519 key | ML-KEM seed, d | z."""
TAG_BYTES = 16
"""By how much a seal is longer than what it holds."""
_NONCE = bytes(NONCE_BYTES)


class HybridKey:
    """One party's key for one run and one purpose.

    Parameters
    ----------
    raw_key : bytes of length 96
        Fresh secret bytes; never shown.
    me : PartyId
        The party.
    purpose : bytes
        Label of what the secrets are for (`randomness/domains.py`).
    run_id : bytes

    Attributes
    ----------
    public : bytes of length 1216
        What the other parties receive.

    Raises
    ------
    ConfigError
        This build of the package cryptography has no ML-KEM.
    """

    __slots__ = ("_me", "_mlkem", "_purpose", "_run_id", "_x25519", "public")

    def __init__(self, raw_key: bytes, me: PartyId, *, purpose: bytes, run_id: bytes) -> None:
        if len(raw_key) != RAW_BYTES:
            raise ValueError(f"expected {RAW_BYTES} bytes, got {len(raw_key)}")
        self._me, self._purpose, self._run_id = me, purpose, run_id
        self._x25519 = X25519PrivateKey.from_private_bytes(raw_key[:KEY_BYTES])
        self._mlkem = _from_seed(raw_key[KEY_BYTES:])
        self.public = self._x25519.public_key().public_bytes_raw() + self._mlkem.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return f"HybridKey({self._me})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a hybrid key belongs to one party and one run: it cannot be copied or stored")

    def encapsulate(self, other: PartyId, public: bytes) -> tuple[bytes, bytes]:
        """Make a secret with another party, and what that party needs to have it too.

        Parameters
        ----------
        other : PartyId
        public : bytes of length 1216
            Received from `other`.

        Returns
        -------
        ciphertext : bytes of length 1088
            For `other`; anybody may read it.
        secret : bytes of length 32

        Raises
        ------
        SecurityError
            The key is not one that an honest party makes; names `other`.
        """
        try:
            secret, ciphertext = _encapsulate(public[KEY_BYTES:])
        except ValueError as error:
            raise _unusable(other, "key") from error
        return ciphertext, self._combine(other, public, ciphertext, secret)

    def decapsulate(self, other: PartyId, public: bytes, ciphertext: bytes) -> bytes:
        """Return the secret that another party made with `encapsulate`; a changed ciphertext gives another secret.

        Parameters
        ----------
        other : PartyId
        public : bytes of length 1216
            Received from `other`.
        ciphertext : bytes of length 1088
            The same.

        Returns
        -------
        bytes of length 32

        Raises
        ------
        SecurityError
            Key or ciphertext is not one that an honest party makes; names `other`.
        """
        try:
            secret = self._mlkem.decapsulate(ciphertext)
        except ValueError as error:
            raise _unusable(other, "ciphertext") from error
        return self._combine(other, public, ciphertext, secret)

    def _combine(self, other: PartyId, public: bytes, ciphertext: bytes, secret: bytes) -> bytes:
        """Combine ML-KEM's secret with that of X25519, bound to everything that they were made from."""
        try:
            _mlkem.MLKEM768PublicKey.from_public_bytes(public[KEY_BYTES:])
            # OpenSSL refuses a result of zeros.
            shared = self._x25519.exchange(X25519PublicKey.from_public_bytes(public[:KEY_BYTES]))
        except ValueError as error:
            raise _unusable(other, "key") from error
        keys = {self._me: self.public, other: public}
        first, second = sorted(keys)
        context = struct.pack("<II", first.rank, second.rank) + keys[first] + keys[second] + ciphertext
        return derive(secret + shared, self._purpose, context, salt=self._run_id)


def seal(plain: bytes, shared: bytes, purpose: bytes, context: bytes) -> bytes:
    """Encrypt and authenticate a short secret for the party that shares a secret with this one.

    The key is derived from the secret and from everything that the seal is bound to, and is used once; so the nonce is
    zero. A seal under other values does not open.

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


def require_hybrid() -> None:
    """Make a key with ML-KEM-768, to find out at the start of a run whether this build can.

    Raises
    ------
    ConfigError
        It cannot.
    """
    _from_seed(bytes(RAW_BYTES - KEY_BYTES))


def _from_seed(seed: bytes) -> Any:
    """Return the ML-KEM key of 64 secret bytes."""
    try:
        if _mlkem is None:
            raise UnsupportedAlgorithm("no module for ML-KEM")
        return _mlkem.MLKEM768PrivateKey.from_seed_bytes(seed)
    except UnsupportedAlgorithm as error:
        raise ConfigError(
            "the keys of a run need ML-KEM-768, which this installation of the package cryptography "
            f"({cryptography.__version__}) does not have, expected version 48 or later with OpenSSL 3.5 or later; "
            "install its wheel: pip install 'cryptography>=48' --only-binary cryptography"
        ) from error


def _encapsulate(public: bytes) -> tuple[bytes, bytes]:
    """Return a fresh secret and its ciphertext for an ML-KEM key."""
    secret, ciphertext = _mlkem.MLKEM768PublicKey.from_public_bytes(public).encapsulate()
    return secret, ciphertext


def _unusable(party: PartyId, what: str) -> SecurityError:
    return SecurityError(
        f"{party} sent a {what} that yields no secret, expected one of X25519 and ML-KEM-768; check its version",
        rank=party.rank,
    )
