r"""What the server compares in place of scores: the order of a point's clusters, and little else.

Lloyd's iteration needs one thing about a point x: which centre c_h has the least sigma_h = |c_h|^2 - 2 c_h.x, the
lowest index among equals. Exact scores tell far more: they are integers, and lattice reduction makes records of them.
So the clients compute, for one reference cluster r and each other cluster h in use,

    v_h = f T_h^2 (sigma_h - sigma_r) + e_h,

f a secret positive factor, fresh for each point and iteration, and e_h secret noise that cannot change the order. No
sum, norm or score of its own is in them. The server compares v_g / T_g^2 of all clusters, 0 for r.

**Public scale.** Let S_h be the sizes, T the largest lcm(S_g, S_h) of two clusters, r one of two that have it, and T_h
the largest multiple of lcm(S_h, S_r) up to T; T_h > T / 2. With mu the sums, A_h = T_h / S_h and B_h = T_h / S_r,

    T_h^2 (sigma_h - sigma_r) = a.(b - 2 T_h x),  a = A_h mu_h - B_h mu_r,  b = A_h mu_h + B_h mu_r,

an integer of degree 2 in shared values, as a score is. As T_h = S_r B_h, comparing v_h / B_h^2 is the same.

**Factor and noise.** With c clusters in use, f = (8 c) 2^j (1 + m), j uniform in 0..16 and m uniform in [0, 1): spread
evenly over 17 octaves, 8 c <= f < 2^20 c. Let G = f // c. Cluster number a of those in use gets a slot of its own,
y_a = a G + (uniform in 0..G - 5); with u_h = y_h - y_r the noise is e_h = floor(u_h T_h^2 / T^2).

*Claim.* The least v_h / T_h^2 is that of the least sigma_h, the one with the lowest index among equals. *Proof.* Later
slots are higher by 5 at least, and all differ by at most c G - 5 <= f - 5. Rounding (floor and one float64 product of
numbers below 2^53) changes e_h by less than 1 + 2^-15, so e_h / T_h^2 by less than 4.01 / T^2, and never that of r,
which is 0. For two clusters g after h let z = (e_g / T_g^2 - e_h / T_h^2) T^2; so 0 < 5 - 4.01 < z < f - 5 + 4.01 < f.
If sigma_h = sigma_g, then v_g / T_g^2 - v_h / T_h^2 = z / T^2 > 0: h, with the lower index, wins. Otherwise sigma_h
and sigma_g, an integer over S_h^2 and one over S_g^2, differ by 1 / lcm(S_h, S_g)^2 >= 1 / T^2 at least: times f this
is more than z / T^2, and the order is that of the sigmas.

**Size.** Two clusters have at most N records together, so T <= N^2 / 4; sigma_h - sigma_r is a difference of two
squared distances of at most 4 rho^2, rho the largest norm of a record. So abs(v_h) <= f (N^4 rho^2 / 4 + 1), which is
below 2^20 k (N^4 rho^2 / 4 + 1): against scores of at most 3 N^2 rho^2 the field grows by log2(N^2 / 12) + 20 + log2(k)
bits, which for k <= 24 is at most log2(2 N^2) + 20.

**What is left.** For each point the ratios of v_h to each other, that is of the differences sigma_h - sigma_r, blurred
at about the size of one unit of the exact integers; docs/secfc.md says what can be made of them.

Source: none in the paper, whose server learns distances; docs/secfc.md, "What the server learns".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.prg import keystream
from fastlloyd.protocols.secfc.clusters import Clusters

_LEAST_SLOT = 8
_OCTAVES = 17
_MANTISSA_BITS = 24
_GAP = 5
_WORD_BYTES = 4


def largest_value(*, n_total: int, k: int, squared_norm: int) -> int:
    """Return a bound on what the server decodes, in size: the "Size" of this module.

    Parameters
    ----------
    n_total : int
        Public bound N on all records.
    k : int
        Clusters.
    squared_norm : int
        Largest squared norm of a record on the grid, rho^2.
    """
    return (k << 20) * (n_total**4 * squared_norm // 4 + 1)


@dataclass(frozen=True, slots=True)
class Scale:
    """How the clusters of one assignment are compared; public.

    Attributes
    ----------
    reference : int
        Place of the reference cluster r among those in use.
    places : int64 array, shape (c - 1,)
        Places of the others, ascending.
    own, other, whole : int64 array, shape (c - 1,)
        A_h, B_h and T_h of the others.
    ratios : float64 array, shape (c - 1,)
        T_h^2 / T^2, in (1/4, 1].
    """

    reference: int
    places: NDArray[np.int64]
    own: NDArray[np.int64]
    other: NDArray[np.int64]
    whole: NDArray[np.int64]
    ratios: NDArray[np.float64]

    @classmethod
    def of(cls, clusters: Clusters) -> Scale:
        """Choose the reference and the scale from the sizes; the same on all parties."""
        sizes = clusters.sizes
        different = np.unique(sizes)
        multiples = np.lcm.outer(different, different)
        largest = int(multiples.max())
        size = int(different[np.argwhere(multiples == largest)[0, 1]])
        reference = int(np.flatnonzero(sizes == size)[0])
        places = np.delete(np.arange(len(sizes)), reference)
        multiple = np.lcm(sizes[places], size)
        whole = largest // multiple * multiple
        ratios = [int(value) ** 2 / largest**2 for value in whole]
        return cls(reference, places, whole // sizes[places], whole // size, whole, np.array(ratios, dtype=np.float64))

    @property
    def weights(self) -> NDArray[np.int64]:
        """B_h^2 of all clusters in use, shape (c,); 1 for r, whose value is 0."""
        return np.insert(self.other**2, self.reference, 1)


@dataclass(frozen=True, slots=True)
class OrderMasks:
    """Secret factors and noise of one block of points.

    Attributes
    ----------
    factors : int64 array, shape (points,)
        f of each point.
    noise : int64 array, shape (c - 1, points)
        e_h of each cluster but the reference.
    """

    factors: NDArray[np.int64] = field(repr=False)
    noise: NDArray[np.int64] = field(repr=False)


def order_masks(scale: Scale, points: int, *, key: bytes, iteration: int, block: int) -> OrderMasks:
    """Draw factors and noise for one block.

    Parameters
    ----------
    scale : Scale
    points : int
        Of the block.
    key : bytes of length 32
        Common to the clients, unknown to the server, for this purpose alone.
    iteration, block : int
        Together never twice with one key.

    Notes
    -----
    Sees: every client can compute them for all points. A slot's numbers are uniform up to 2^-32 each.
    """
    count = len(scale.places) + 1
    stream = keystream(key, struct.pack("<III", iteration, 0, block), _WORD_BYTES * points * (count + 2))
    words = np.frombuffer(stream, dtype="<u4").astype(np.int64).reshape(count + 2, points)
    octaves = np.int64(_LEAST_SLOT * count) << (words[0] * _OCTAVES >> 32)
    factors = octaves + ((words[1] >> (32 - _MANTISSA_BITS)) * octaves >> _MANTISSA_BITS)
    slot = factors // count
    heights = (words[2:] * (slot - _GAP + 1) >> 32) + np.arange(count)[:, None] * slot
    above = heights[scale.places] - heights[scale.reference]
    noise = np.floor(above * scale.ratios[:, None]).astype(np.int64)
    return OrderMasks(factors, noise)
