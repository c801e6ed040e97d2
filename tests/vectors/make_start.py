"""Makes start.json: the default start of FastLloyd. From docs/protocol.md ("Public randomness", "Start") alone.

It imports nothing of the package. `python -m tests.vectors.make_start > tests/vectors/start.json` writes the file anew.
"""

from __future__ import annotations

import hashlib
import json
import struct

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

CASES = ((1, 1, 0, 16), (3, 4, 0, 16), (4, 3, 5, 14), (15, 2, 2024, 16), (6, 13, 18446744073709551615, 8))
"""k, d, public seed, fraction bits."""
UNIT = 1 << 20


class Stream:
    """Public randomness: ChaCha20 under SHA-256(`fastlloyd public` | 0 | purpose | 0 | decimal seed)."""

    def __init__(self, seed: int, purpose: str) -> None:
        key = hashlib.sha256(b"fastlloyd public" + b"\x00" + purpose.encode() + b"\x00" + str(seed).encode()).digest()
        self._cipher = Cipher(ChaCha20(key, b"\x00" * 16), mode=None).encryptor()

    def integers(self, low: int, high: int, count: int) -> list[int]:
        """lo + (u (hi - lo + 1) >> 32) of the next 32-bit numbers u."""
        words = struct.unpack(f"<{count}I", self._cipher.update(b"\x00" * (4 * count)))
        return [low + (u * (high - low + 1) >> 32) for u in words]


def pack(k: int, d: int, a: int, stream: Stream) -> list[list[int]] | None:
    """Packing with radius a, or None where it fails."""
    placed: list[list[int]] = []
    for _ in range(k):
        flat = stream.integers(a - UNIT, UNIT - a, 100 * d)
        for candidate in (flat[d * i : d * (i + 1)] for i in range(100)):
            if all(sum((x - y) ** 2 for x, y in zip(candidate, other)) >= 4 * a * a for other in placed):
                placed.append(candidate)
                break
        else:
            return None
    return placed


def sphere_packing(k: int, d: int, seed: int) -> list[list[int]]:
    """First a = 0, then 12 steps of bisection, all from one stream; the last packing that succeeded."""
    stream = Stream(seed, "sphere packing")
    best = pack(k, d, 0, stream)
    low, high = 0, UNIT
    for _ in range(12):
        a = (low + high) // 2
        found = pack(k, d, a, stream)
        if found is None:
            high = a
        else:
            low, best = a, found
    assert best is not None
    return best


def to_grid(centers: list[list[int]], q: int) -> list[list[int]]:
    """From the grid of 2^-20 to that of 2^-q."""
    return [[(c + 2 ** (19 - q)) >> (20 - q) for c in row] for row in centers]


def vectors() -> list[dict[str, object]]:
    """Return the content of start.json."""
    return [
        {"k": k, "d": d, "seed": seed, "fraction_bits": q, "centers": to_grid(sphere_packing(k, d, seed), q)}
        for k, d, seed, q in CASES
    ]


if __name__ == "__main__":
    print(json.dumps(vectors()))
