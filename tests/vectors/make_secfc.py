"""Makes secfc.json: what SecFC's clients mask comparisons with. From docs/secfc.md ("Field", "Sign masks") alone.

It imports nothing of the package. `python -m tests.vectors.make_secfc > tests/vectors/secfc.json` writes the file anew.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

CASES = ((64, 0, 5), (97, 3, 4), (118, 12, 4), (146, 1 << 20, 3))
"""w, number of the message, values."""
KEY = bytes(range(32))
DIFFERENCES = (-(10**20), -1, 0, 1, 10**20)


def stream(first: int, second: int, length: int) -> bytes:
    """The key stream of nonce (first, second, 0), from block 0."""
    nonce = struct.pack("<IIII", 0, first, second, 0)
    return Cipher(ChaCha20(KEY, nonce), mode=None).encryptor().update(bytes(length))


def secrets(w: int, message: int, count: int) -> list[dict[str, Any]]:
    """F, e and s of each value, and what is decoded of some D."""
    taken: list[tuple[int, int]] = []
    for x, y, first, second in struct.iter_unpack("<QQQQ", stream(message, 0, 32 * 50 * count)):
        x |= 1 << 63
        if y < x and first * x < 1 << 127 and second * x < 1 << 127:
            taken.append((x, y))
    words = -(-(w - 64) // 32)
    width = 4 * (3 + 2 * words)
    found = []
    for i, ((x, y), at) in enumerate(zip(taken, range(0, width * count, width))):
        row = stream(message, 1, width * count)[at : at + width]
        g, c = int.from_bytes(row[:4], "little"), int.from_bytes(row[4:12], "little")
        a, b = (
            int.from_bytes(part, "little") % (1 << w - 64) for part in (row[12 : 12 + 4 * words], row[12 + 4 * words :])
        )
        j = 1 + g % 64
        factor = (x * 2 ** (w - 64) + a) * 2**j
        noise = (y * 2 ** (w - 64) + b) * 2**j + c % 2**j
        plain = [factor * (2 * difference + 1) - factor // 2 + noise for difference in DIFFERENCES]
        tails = g // 64 % 2 == 1
        values = [-1 - value if tails else value for value in plain]
        found.append({"value": i, "tails": tails, "z": g >> 7, "decoded": [str(value) for value in values]})
    return found


def vectors() -> list[dict[str, Any]]:
    """All cases."""
    return [
        {"key": KEY.hex(), "w": w, "message": message, "differences": [str(d) for d in DIFFERENCES]}
        | {"values": secrets(w, message, count)}
        for w, message, count in CASES
    ]


if __name__ == "__main__":
    print(json.dumps(vectors(), indent=1))
