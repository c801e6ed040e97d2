"""What a run computes, in processor seconds, by operations that are counted from public shapes.

The times of operations were measured once, on the machine of the benchmarks. They decide which scheme a run takes, so
they are the same everywhere; `run/work.py` scales their sums to the machine that asks.

Compared with runs: papers/benchmarks/planned_work.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fastlloyd.protocols.vertical_he.math import circuit
from fastlloyd.protocols.vertical_he.parameters import LINEAR, PAIRWISE, RENEWED

LINEAR_RING = 2048
# The linear schemes, at N = 2^11: transforming a ciphertext's weights, with its products; reading a ciphertext;
# encrypting and receiving one; an output, from the fresh zero to its opening; all keys.
_PRODUCT_S = 2e-5
_READ_S = 3e-5
_CIPHERTEXT_S = 7.5e-4
_OUTPUT_S = 7e-4
_LINEAR_KEYS_S = 0.1
# The circuit at N = 2^14, by the primes l that are left: a product with relinearisation and rescaling, and one with a
# number; an encoding; an encryption with the key or with the public key, and reading it; parts of the
# relinearisation key; an output, from the fresh zero to its opening.
_PAIRWISE_OUTPUT_S = 6.3e-3
_KEY_PART_S = 3.6e-3


def _product(left: int) -> float:
    return 1.6e-3 * left + 1.4e-4 * left**2


def _by_number(left: int) -> float:
    return 4.5e-4 * left


def _encoding(left: int) -> float:
    return 5e-4 + 2.1e-4 * left


def _encryption(left: int, *, seeded: bool) -> float:
    return (0.6e-3 + 2.1e-3 * left) if seeded else (1.6e-3 + 4.5e-3 * left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the cost of a scheme depends on, all of it public.

    Attributes
    ----------
    scheme : str
    n, k : int
        Records, clusters.
    ring : int
        Degree N.
    corners : int
        Of the grid, or landmarks; 0 for the circuit.
    own, encrypted : int
        Columns of the computing party, and those that are encrypted.
    seeded : bool
        Whether the party that encrypts has the whole key.
    """

    scheme: str
    n: int
    k: int
    ring: int
    corners: int
    own: int
    encrypted: int
    seeded: bool

    @property
    def blocks(self) -> int:
        """Blocks of records, of each owner."""
        return math.ceil(self.n / (self.ring // 2 if self.scheme == PAIRWISE else self.ring))

    @property
    def outputs(self) -> int:
        """Sums and counts of a round."""
        return self.k * (1 + self.own + self.encrypted)

    @property
    def adding(self) -> float:
        """Processor seconds to add up all blocks in one round."""
        if self.scheme == PAIRWISE:
            return self.blocks * self._slower * self._circuit()
        weighed = 1 + self.own + (self.encrypted if self.scheme in RENEWED else 0)
        slower = self.ring / LINEAR_RING
        return self.blocks * self.corners * (_READ_S + self.k * weighed * _PRODUCT_S) * slower

    @property
    def encrypting(self) -> float:
        """Processor seconds to encrypt all columns and to read them, in the set-up or, for `RENEWED`, in each round."""
        if self.scheme == PAIRWISE:
            top = circuit.depth(self.k) + 1
            each = sum(_encoding(left) + _encryption(left, seeded=self.seeded) for left in (top, 1))
            return self.blocks * self.encrypted * self._slower * each
        ciphertexts = self.corners * (1 if self.scheme == LINEAR else 1 + self.encrypted)
        return self.blocks * ciphertexts * _CIPHERTEXT_S * self.ring / LINEAR_RING

    @property
    def opening(self) -> float:
        """Processor seconds from the sums of a round to their opening, at both sides."""
        if self.scheme == PAIRWISE:
            return self.outputs * self._slower * _PAIRWISE_OUTPUT_S
        return self.outputs * self.ring / LINEAR_RING * _OUTPUT_S

    @property
    def keys(self) -> float:
        """Processor seconds for all keys."""
        top = circuit.depth(self.k) + 1
        return self._slower * top * (top + 1) * _KEY_PART_S if self.scheme == PAIRWISE else _LINEAR_KEYS_S

    @property
    def round(self) -> float:
        """Processor seconds of one round."""
        return self.adding + self.opening + (self.encrypting if self.scheme in RENEWED else 0.0)

    @property
    def setup(self) -> float:
        """Processor seconds of keys and encryption before round 0."""
        return self.keys + (0.0 if self.scheme in RENEWED else self.encrypting)

    @property
    def _slower(self) -> float:
        """How much slower an operation is than at N = 2^14."""
        ring = circuit.RINGS[0]
        return self.ring * math.log2(self.ring) / (ring * math.log2(ring))

    def _circuit(self) -> float:
        """Processor seconds of one block of the circuit at N = 2^14."""
        top, pairs = circuit.depth(self.k) + 1, self.k * (self.k - 1) // 2
        signs = sum(count * _product(left) for left, count in circuit.products(self.k))
        quads = pairs * (3 * _by_number(top - 2) + _by_number(top - 5))
        first = pairs * (self.encrypted * _by_number(top) + _encoding(top))
        sums = self.k * ((1 + self.own) * _encoding(1) + self.encrypted * 2e-4)
        return signs + quads + first + sums
