"""Make threshold.json: a whole run with threshold masks, five clients of which three open a round, by docs/protocol.md.

Shares, words, tables, checks, masks, boxes, answers and the noise in parts; what opens for the set of everybody and for
a set of four. The noise is drawn with decimal logarithms of 60 digits in place of float64 and intervals.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import math
import struct
from decimal import Decimal, localcontext
from fractions import Fraction

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

PRECISION = 60
P = 2**255 - 19
M, T, C, KNOWN, RHO = 5, 3, 0, 1, 1
ROUNDS, ELEMENTS, VARIANCE = 2, 5, 40_000
OWN, PAIRS, BOX = range(3)
CLIENTS = range(1, M + 1)
SET = (1, 2, 4, 5)
SILENT = 4
HISTORIES = [bytes(4), hashlib.blake2b(bytes(4) + b"test vector: reply", digest_size=32).digest()]


def hkdf(secret: bytes, purpose: bytes, context: bytes = b"") -> bytes:
    """HKDF-SHA256 without salt, one block of output; info = u32 length of purpose | purpose | context."""
    pseudorandom = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    info = struct.pack("<I", len(purpose)) + purpose + context
    return hmac.new(pseudorandom, info + b"\x01", hashlib.sha256).digest()


def chacha(key: bytes, length: int, nonce: bytes = bytes(12)) -> bytes:
    """The first bytes of a key stream."""
    return Cipher(ChaCha20(key, bytes(4) + nonce), mode=None).encryptor().update(bytes(length))


def ring(key: bytes, purpose: bytes, r: int, bits: int) -> list[int]:
    """Ring elements of a mask: as all masks of the product, key and nonce from one secret."""
    nonce_key = hkdf(key, purpose + b" nonce")
    nonce = hashlib.blake2b(struct.pack("<II", r, 0) + HISTORIES[r], key=nonce_key, digest_size=12).digest()
    content = chacha(hkdf(key, purpose), ELEMENTS * bits // 8, nonce)
    return list(struct.unpack(f"<{ELEMENTS}{'I' if bits == 32 else 'Q'}", content))


def encode(element: int) -> bytes:
    """32 bytes of an element."""
    return element.to_bytes(32, "little")


def wide(content: bytes) -> int:
    """64 bytes modulo p."""
    return int.from_bytes(content, "little") % P


PAIR = {(i, j): hashlib.sha256(b"test vector: pair %d %d" % (i, j)).digest() for i in CLIENTS for j in range(i + 1, 6)}
# What each client draws from the system: its root, then by round and kind 64 bytes for each coefficient but the secret.
DRAWN = {
    i: chacha(hashlib.sha256(b"test vector: client %d" % i).digest(), 32 + ROUNDS * 3 * (T - 1) * 64) for i in CLIENTS
}


def root(i: int, r: int) -> bytes:
    """The root of a client in a round."""
    found = DRAWN[i][:32]
    for _ in range(r):
        found = hkdf(found, b"fastlloyd threshold next")
    return found


def pair(i: int, j: int, r: int) -> bytes:
    """The secret of a pair in a round."""
    found = hkdf(PAIR[min(i, j), max(i, j)], b"fastlloyd threshold round")
    for _ in range(r):
        found = hkdf(found, b"fastlloyd threshold next")
    return found


def pair_key(i: int, j: int, r: int) -> bytes:
    """The key of the pair's mask."""
    return hkdf(pair(i, j, r), b"fastlloyd threshold mask")


def secret(i: int, r: int, kind: int) -> int:
    """A client's secret of one kind."""
    return wide(chacha(hkdf(root(i, r), b"fastlloyd threshold secret", bytes([kind])), 64))


def share(i: int, r: int, kind: int, j: int) -> int:
    """The polynomial of a secret at j; the first coefficient that was drawn is that of the highest power."""
    start = 32 + (3 * r + kind) * (T - 1) * 64
    drawn = [wide(DRAWN[i][at : at + 64]) for at in range(start, start + (T - 1) * 64, 64)]
    coefficients = [secret(i, r, kind), *reversed(drawn)]
    return sum(coefficient * j**power for power, coefficient in enumerate(coefficients)) % P


def pad(dealer: int, holder: int, r: int, kind: int) -> int:
    """What hides the share of a holder."""
    context = struct.pack("<IIB", dealer, holder, kind)
    return wide(chacha(hkdf(pair(dealer, holder, r), b"fastlloyd threshold pad", context), 64))


def words(i: int) -> bytes:
    """What a client publishes."""
    content = b""
    for r in range(ROUNDS):
        for kind in (OWN, PAIRS, BOX):
            for j in CLIENTS:
                content += encode((share(i, r, kind, j) - pad(i, j, r, kind)) % P) if j != i else b""
        hidden = chacha(hkdf(encode(secret(i, r, PAIRS)), b"fastlloyd threshold table"), 32 * M)
        for j in CLIENTS:
            if j != i:
                content += bytes(a ^ b for a, b in zip(pair_key(i, j, r), hidden[32 * j - 32 : 32 * j], strict=True))
        for kind in (OWN, PAIRS, BOX):
            place = struct.pack("<IIB", i, r, kind)
            content += hashlib.sha256(b"fastlloyd threshold check 1" + place + encode(secret(i, r, kind))).digest()
    return content


def answer(j: int, r: int, kinds: list[int]) -> bytes:
    """A holder's pads of each client's secret of the kind, or its share of the secret that it dealt."""
    return b"".join(
        encode(share(j, r, kind, j) if i == j else pad(i, j, r, kind)) for i, kind in zip(CLIENTS, kinds, strict=True)
    )


def own(i: int, r: int, bits: int) -> list[int]:
    """A client's own mask."""
    return ring(encode(secret(i, r, OWN)), b"fastlloyd threshold own mask", r, bits)


def between(i: int, j: int, r: int, bits: int) -> list[int]:
    """What a client adds for a pair: the lower rank with a plus."""
    stream = ring(pair_key(i, j, r), b"fastlloyd threshold pair mask", r, bits)
    return stream if i < j else [-element for element in stream]


def box(i: int, r: int, bits: int) -> list[int]:
    """What covers the excess in a client's box."""
    return ring(encode(secret(i, r, BOX)), b"fastlloyd threshold box mask", r, bits)


def add(*vectors: list[int], bits: int) -> list[int]:
    """Add modulo 2^bits."""
    return [sum(column) % 2**bits for column in zip(*vectors, strict=True)]


def variances() -> list[Fraction]:
    """The variances of the parts of a client."""
    parts = [Fraction(1, (M - j + 1 - KNOWN) * (M - j - KNOWN)) for j in range(1, M - T + 1)]
    return [VARIANCE * shape for shape in [Fraction(1, M - KNOWN), *parts]]


def level(word: int) -> tuple[Decimal, Decimal]:
    """-ln u for the two ends of what a uniform that begins with these 64 bits may be."""
    return tuple(-(Decimal(end) / Decimal(2**64)).ln() for end in (word + 1, word))


def gaussian(variance: Fraction, key: bytes) -> list[int]:
    """Discrete Gaussians by rejection from a discrete Laplace variable, in blocks, as docs/privacy.md has them."""
    content = chacha(key, 8 * 3 * 1000)
    stream = iter(struct.unpack("<3000Q", content))
    scale, noise = math.isqrt(math.floor(variance)) + 1, []
    exact = Decimal(variance.numerator) / Decimal(variance.denominator)
    while len(noise) < ELEMENTS:
        trials = 2 * (ELEMENTS - len(noise)) + 16
        sides = []
        for _ in range(2):
            drawn = [[math.floor(scale * end) for end in level(next(stream))] for _ in range(trials)]
            assert all(low == high for low, high in drawn)
            sides.append([low for low, _ in drawn])
        for up, down in zip(*sides, strict=True):
            need = (abs(Decimal(up - down)) - exact / scale) ** 2 / (2 * exact)
            low, high = level(next(stream))
            assert (low > need) == (high > need)
            noise += [up - down] if low > need else []
    return noise[:ELEMENTS]


@functools.cache
def parts(i: int, r: int) -> list[list[int]]:
    """The parts of a client's noise in a round."""
    keys = [
        hkdf(root(i, r), b"fastlloyd threshold part", struct.pack("<II", j, r) + HISTORIES[r])
        for j in range(len(variances()))
    ]
    return [gaussian(variance, key) for variance, key in zip(variances(), keys, strict=True)]


def of_round(r: int) -> dict[str, object]:
    """All of one round."""
    found: dict[str, object] = {
        "history": HISTORIES[r].hex(),
        "parts": {str(i): parts(i, r) for i in CLIENTS},
        "quick": {str(i): (answer(i, r, [OWN] * M) + answer(i, r, [BOX] * M)).hex() for i in CLIENTS},
        "answers": {str(i): answer(i, r, [OWN if j in SET else PAIRS for j in CLIENTS]).hex() for i in CLIENTS},
    }
    for bits in (32, 64):
        masks = {
            i: add(own(i, r, bits), *(between(i, j, r, bits) for j in CLIENTS if j != i), bits=bits) for i in CLIENTS
        }
        # In the set of four part 2 goes; client 4 leaves it in.
        kept = [parts(i, r)[j] for i in SET for j in range(3) if j < 2 or i == SILENT]
        found[str(bits)] = {
            "vector_masks": {str(i): mask for i, mask in masks.items()},
            "box_masks": {str(i): box(i, r, bits) for i in CLIENTS},
            "excess_of_all": {str(i): add(*parts(i, r)[1:], bits=bits) for i in CLIENTS},
            "excess_of_set": {str(i): add(parts(i, r)[2], bits=bits) for i in SET},
            "sum_of_masks": add(*masks.values(), bits=bits),
            "sum_of_masks_of_set": add(*(masks[i] for i in SET), bits=bits),
            "noise_left": add(*kept, bits=bits),
        }
    return found


def binary(clients: int, threshold: int, known: int) -> dict[str, object]:
    """Shapes of binary parts, and which are taken off for each number in the set."""
    whole = Fraction(1, threshold - known) - Fraction(1, clients - known)
    doublings = 0
    while 2**doublings < clients - threshold:
        doublings += 1
    unit = whole / 2**doublings
    shapes = [Fraction(1, clients - known), unit, *(unit * 2**j for j in range(doublings))]
    taken = {}
    for u in range(threshold, clients + 1):
        q = (Fraction(1, threshold - known) - Fraction(1, u - known)) // unit
        taken[str(u)] = [1, *(j + 2 for j in range(doublings) if (q - 1) >> j & 1)] if q else []
    return {"numbers": [clients, threshold, known], "shapes": list(map(str, shapes)), "taken_off": taken}


def vectors() -> dict[str, object]:
    """Return the content of threshold.json."""
    with localcontext(prec=PRECISION):
        return {
            "numbers": struct.pack("<5I", M, T, C, KNOWN, RHO).hex(),
            "rounds": ROUNDS,
            "elements": ELEMENTS,
            "variance": VARIANCE,
            "set": SET,
            "silent": SILENT,
            "pairs": {f"{i} {j}": secret.hex() for (i, j), secret in PAIR.items()},
            "drawn": {str(i): drawn.hex() for i, drawn in DRAWN.items()},
            "words": {str(i): words(i).hex() for i in CLIENTS},
            "digests": {
                str(i): hashlib.sha256(b"fastlloyd threshold words 1" + struct.pack("<I", i) + words(i)).hexdigest()
                for i in CLIENTS
            },
            "variances": list(map(str, variances())),
            "in_rounds": [of_round(r) for r in range(ROUNDS)],
            "binary": [binary(33, 17, 1), binary(50, 26, 1), binary(60, 58, 2)],
        }


if __name__ == "__main__":
    print(json.dumps(vectors()))
