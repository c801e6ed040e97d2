"""LWE samples, which are sent instead of ciphertexts, and how the key holder opens them.

A sample (constant, vector) modulo q hides the integer constant + <vector, s>, up to a small error. Only these N + 1
numbers are sent for one output; no other coefficient of the ciphertext leaves. Before, they are switched from q to
2^w, w = `wire_bits`: every number x becomes round(x 2^w / q), which adds an error of at most (1 + |s|_1) / 2 units.

Source: Vertical HE, §3 (decryption of sums); Micciancio and Walter's "extract" of FHEW-like schemes; docs/protocol.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_he.he.lattice import ERROR_BOUND, ERROR_VARIANCE, Sample

SWITCH_TAIL = 8.0
"""Standard deviations allowed for errors that are sums of many independent small ones: exceeded once in 2^45."""


@dataclass(frozen=True, slots=True)
class Errors:
    """The encryption's errors: a bound on one, their variance, and the key's largest coefficient."""

    bound: float
    variance: float
    key: float


ONE_KEY = Errors(ERROR_BOUND, ERROR_VARIANCE, 1.0)


def errors_of(ring: int, keys: int) -> Errors:
    """Return the errors under one party's key, or e_0 + u e + e_1 s under the common public key of `keys` parties.

    u and the P parts of s are uniform on -1, 0, 1 and e is the sum of P errors: N coefficients each of variance
    10.5 (2 / 3 of P, and 2 P / 3). The bound is eight standard deviations, not a worst case.
    """
    if keys == 1:
        return ONE_KEY
    variance = ERROR_VARIANCE * (1.0 + ring * 4.0 * keys / 3.0)
    return Errors(SWITCH_TAIL * math.sqrt(variance), variance, float(keys))


def add(first: Sample, second: Sample, modulus: int) -> Sample:
    """Add samples modulo q, one by one."""
    return Sample((first.constants + second.constants) % modulus, (first.vectors + second.vectors) % modulus)


def switch(sample: Sample, modulus: int, wire_bits: int) -> Sample:
    """Switch to modulus 2^w, w at most 48."""
    factor = 2.0**wire_bits / modulus
    mask = (1 << wire_bits) - 1
    return Sample(
        np.rint(sample.constants * factor).astype(np.int64) & mask,
        np.rint(sample.vectors * factor).astype(np.int64) & mask,
    )


def switch_error(degree: int, modulus: float, wire_bits: int) -> float:
    """Bound the error of switching, in units of the integer before: `SWITCH_TAIL` deviations of N + 1 roundings.

    Each rounding is at most 1/2, times a coefficient of s that is -1, 0 or 1; callers multiply by `Errors.key`.
    """
    return SWITCH_TAIL * math.sqrt((degree + 1) / 4.0) * modulus / 2.0**wire_bits


def open_samples(sample: Sample, secret: NDArray[np.int64], modulus: int, wire_bits: int) -> NDArray[np.int64]:
    """Return the hidden integers, with their errors, shape (m,).

    Sees: the key holder sees sums with the other side's noise.
    """
    return centre(sample.constants + sample.vectors @ secret, modulus, wire_bits)


def centre(phases: NDArray[np.int64], modulus: int, wire_bits: int) -> NDArray[np.int64]:
    """Bring opened numbers modulo 2^w back to integers around zero."""
    phases = phases & ((1 << wire_bits) - 1)
    centred = phases - ((phases >> (wire_bits - 1)) << wire_bits)
    return np.rint(centred * (modulus / 2.0**wire_bits)).astype(np.int64)


def open_part(sample: Sample, share: NDArray[np.int64], modulus: int) -> Sample:
    """Open a sample under a common key with one party's share; the result is under the other's.

    The caller adds its noise to the constants before they leave: it floods the encryption's errors.
    """
    high, low = (sample.vectors >> 30) @ share, (sample.vectors & ((1 << 30) - 1)) @ share
    inner = [(int(h) << 30) + int(part) for h, part in zip(high, low, strict=True)]
    constants = [(int(c) + i) % modulus for c, i in zip(sample.constants, inner, strict=True)]
    return Sample(np.array(constants, dtype=np.int64), sample.vectors)


def open_switched(vectors: NDArray[np.int64], share: NDArray[np.int64], wire_bits: int) -> NDArray[np.int64]:
    """Return one party's part of an opening after the switch, modulo 2^w, shape (m,), without its noise.

    Numbers below 2^48 times -1, 0 or 1, at most 2^15 of them: the sum fits 64 bits.
    """
    found: NDArray[np.int64] = (vectors @ share) & ((1 << wire_bits) - 1)
    return found


def sample_bytes(degree: int, wire_bits: int) -> int:
    """Count the bytes of one sample on the wire."""
    return (degree + 1) * (wire_bits // 8)


def encode(numbers: NDArray[np.int64], wire_bits: int) -> bytes:
    """Write numbers modulo 2^w one after the other, in w / 8 bytes each, little endian."""
    rows = np.ascontiguousarray(numbers & ((1 << wire_bits) - 1), dtype="<u8").view(np.uint8).reshape(-1, 8)
    return rows[:, : wire_bits // 8].tobytes()


def decode(data: bytes, wire_bits: int) -> NDArray[np.int64]:
    """Undo `encode`, shape (numbers,); the message class has checked the length."""
    rows = np.zeros((len(data) // (wire_bits // 8), 8), dtype=np.uint8)
    rows[:, : wire_bits // 8] = np.frombuffer(data, dtype=np.uint8).reshape(len(rows), -1)
    return rows.reshape(-1).view("<u8").astype(np.int64)


def encode_samples(sample: Sample, wire_bits: int) -> bytes:
    """Write samples one after the other, the constant of each first."""
    return encode(np.column_stack((sample.constants, sample.vectors)), wire_bits)


def decode_samples(data: bytes, degree: int, wire_bits: int) -> Sample:
    """Undo `encode_samples`."""
    numbers = decode(data, wire_bits).reshape(-1, degree + 1)
    return Sample(numbers[:, 0], numbers[:, 1:])
