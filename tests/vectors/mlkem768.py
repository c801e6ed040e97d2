"""ML-KEM-768 from FIPS 203 alone, so that known answers can hold ciphertexts. Not for secrets: its time shows them.

It imports nothing of the package, and no other implementation: libraries do not let a caller choose an encapsulation's
random bytes.
"""

from __future__ import annotations

import functools
import hashlib

Q, N, K, ETA, DU, DV = 3329, 256, 3, 2, 10, 4
Poly = list[int]


def _reversed(i: int) -> int:
    """The 7 bits of a number, in reverse."""
    return int(f"{i:07b}"[::-1], 2)


ZETAS = [pow(17, _reversed(i), Q) for i in range(128)]
GAMMAS = [pow(17, 2 * _reversed(i) + 1, Q) for i in range(128)]


def ntt(f: Poly) -> Poly:
    """Algorithm 9."""
    f, i, length = list(f), 1, 128
    while length >= 2:
        for start in range(0, N, 2 * length):
            for j in range(start, start + length):
                t = ZETAS[i] * f[j + length] % Q
                f[j], f[j + length] = (f[j] + t) % Q, (f[j] - t) % Q
            i += 1
        length //= 2
    return f


def inverse_ntt(f: Poly) -> Poly:
    """Algorithm 10."""
    f, i, length = list(f), 127, 2
    while length <= 128:
        for start in range(0, N, 2 * length):
            for j in range(start, start + length):
                t = f[j]
                f[j], f[j + length] = (t + f[j + length]) % Q, ZETAS[i] * (f[j + length] - t) % Q
            i -= 1
        length *= 2
    return [x * 3303 % Q for x in f]


def multiply(f: Poly, g: Poly) -> Poly:
    """Algorithms 11 and 12."""
    h = [0] * N
    for i in range(128):
        a0, a1, b0, b1 = f[2 * i], f[2 * i + 1], g[2 * i], g[2 * i + 1]
        h[2 * i], h[2 * i + 1] = (a0 * b0 + a1 * b1 * GAMMAS[i]) % Q, (a0 * b1 + a1 * b0) % Q
    return h


def add(*polys: Poly) -> Poly:
    return [sum(column) % Q for column in zip(*polys, strict=True)]


def encode(f: Poly, bits: int) -> bytes:
    """Algorithm 5."""
    return sum(x << bits * i for i, x in enumerate(f)).to_bytes(32 * bits, "little")


def decode(content: bytes, bits: int) -> Poly:
    """Algorithm 6."""
    number = int.from_bytes(content, "little")
    return [(number >> bits * i) % (1 << bits) for i in range(N)]


def compress(f: Poly, bits: int) -> Poly:
    return [((x << bits) + Q // 2) // Q % (1 << bits) for x in f]


def decompress(f: Poly, bits: int) -> Poly:
    return [(x * Q + (1 << bits - 1)) >> bits for x in f]


@functools.lru_cache(maxsize=1 << 8)  # a key's matrix, for each encapsulation
def sample_uniform(seed: bytes, row: int, column: int) -> Poly:
    """Algorithm 7: the entry of a matrix."""
    stream, found = hashlib.shake_128(seed + bytes([column, row])).digest(2048), []
    for a, b, c in zip(stream[::3], stream[1::3], stream[2::3]):
        found += [x for x in (a + 256 * (b % 16), b // 16 + 16 * c) if x < Q]
    return found[:N]


def sample_small(seed: bytes, number: int) -> Poly:
    """Algorithm 8: eta is 2."""
    stream = int.from_bytes(hashlib.shake_256(seed + bytes([number])).digest(64 * ETA), "little")
    bits = [stream >> i & 1 for i in range(4 * N)]
    return [(bits[4 * i] + bits[4 * i + 1] - bits[4 * i + 2] - bits[4 * i + 3]) % Q for i in range(N)]


def public_key(seed: bytes) -> bytes:
    """Algorithm 13: the encapsulation key of a seed d | z."""
    expanded = hashlib.sha3_512(seed[:32] + bytes([K])).digest()
    rho, sigma = expanded[:32], expanded[32:]
    s = [ntt(sample_small(sigma, i)) for i in range(K)]
    e = [ntt(sample_small(sigma, K + i)) for i in range(K)]
    t = [add(e[i], *(multiply(sample_uniform(rho, i, j), s[j]) for j in range(K))) for i in range(K)]
    return b"".join(encode(each, 12) for each in t) + rho


def encapsulate(key: bytes, message: bytes) -> tuple[bytes, bytes]:
    """Algorithms 14 and 17: the secret and the ciphertext for a key, from 32 random bytes."""
    expanded = hashlib.sha3_512(message + hashlib.sha3_256(key).digest()).digest()
    secret, r = expanded[:32], expanded[32:]
    t, rho = [decode(key[384 * i : 384 * i + 384], 12) for i in range(K)], key[384 * K :]
    y = [ntt(sample_small(r, i)) for i in range(K)]
    u = [
        add(inverse_ntt(add(*(multiply(sample_uniform(rho, j, i), y[j]) for j in range(K)))), sample_small(r, K + i))
        for i in range(K)
    ]
    v = add(
        inverse_ntt(add(*(multiply(t[i], y[i]) for i in range(K)))),
        sample_small(r, 2 * K),
        decompress(decode(message, 1), 1),
    )
    return secret, b"".join(encode(compress(each, DU), DU) for each in u) + encode(compress(v, DV), DV)
