"""Blinding of identifiers by secret exponents that commute, for private set intersection.

An identifier is hashed to a point of the curve P-256; blinding multiplies it by a secret number a. Only the
point's first coordinate is sent: x(aP) = x(-aP), so the next party gets x(abP) from either point with that coordinate,
and the order of the parties makes no difference. Unblinding multiplies by 1 / a
modulo the order of the group, which is prime, so that every point but zero generates all of it. OpenSSL does the
arithmetic; it refuses coordinates that are not on the curve.

Without a, blinded identifiers cannot be distinguished from random points (decisional Diffie-Hellman, with the hash as
a random oracle), even if the identifiers can be guessed.

The hash tries coordinates until one is on the curve, so its time depends on the identifier; only the owner
runs it, over many identifiers at a time.

Source: Meadows (1986); Agrawal, Evfimievski, Srikant, "Information sharing across private databases" (2003), §4;
docs/protocol.md, "Alignment".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NoReturn

from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDH,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    derive_private_key,
)

from fastlloyd.randomness import domains
from fastlloyd.randomness.secret import SecretRandom

POINT_BYTES = 32
_CURVE = SECP256R1()
_ORDER = 0xFFFFFFFF_00000000_FFFFFFFF_FFFFFFFF_BCE6FAAD_A7179E84_F3B9CAC2_FC632551
_EVEN = b"\x02"


class Blinding:
    """One party's secret number for one run.

    Parameters
    ----------
    secret : SecretRandom

    Sees
    ----
    Nobody but the caller; it cannot be displayed, copied or stored.
    """

    __slots__ = ("_inverse", "_key")

    def __init__(self, secret: SecretRandom) -> None:
        number = 0
        while not 1 <= number < _ORDER:
            number = int.from_bytes(secret.bytes(POINT_BYTES), "big")
        self._key = derive_private_key(number, _CURVE)
        self._inverse = derive_private_key(pow(number, -1, _ORDER), _CURVE)

    def __repr__(self) -> str:
        return "Blinding()"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a blinding key belongs to one party and one run: it cannot be copied or stored")

    def blind(self, points: Iterable[bytes]) -> list[bytes]:
        """Multiply points; input and output are coordinates of 32 bytes.

        Raises
        ------
        ValueError
            A coordinate is not on the curve: its sender is at fault.
        """
        return _multiply(self._key, points)

    def unblind(self, points: Iterable[bytes]) -> list[bytes]:
        """Undo `blind`, also for points that other parties have blinded."""
        return _multiply(self._inverse, points)


def hash_to_point(name: str, context: bytes) -> bytes:
    """Hash an identifier to a point of the curve; return its coordinate, 32 bytes.

    Parameters
    ----------
    name : str
    context : bytes
        The run's id: an identifier has another point in each run.
    """
    stem = hashlib.sha256(domains.ID_POINT + len(context).to_bytes(4, "little") + context + name.encode()).digest()
    attempt = 0
    while True:
        coordinate = hashlib.sha256(stem + attempt.to_bytes(4, "little")).digest()
        try:
            _lift(coordinate)
        except ValueError:
            attempt += 1
        else:
            return coordinate


def _multiply(key: EllipticCurvePrivateKey, points: Iterable[bytes]) -> list[bytes]:
    return [key.exchange(ECDH(), _lift(point)) for point in points]


def _lift(coordinate: bytes) -> EllipticCurvePublicKey:
    """Return the point with this coordinate whose other coordinate is even."""
    return EllipticCurvePublicKey.from_encoded_point(_CURVE, _EVEN + coordinate)
