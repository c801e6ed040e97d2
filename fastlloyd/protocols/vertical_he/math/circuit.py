r"""Parameters of the pairwise circuit: ring, chain of primes, scales, and their errors.

**Levels.** One for the linear difference of two distances, four and three for the two sign polynomials
(degrees 15 and 7), and ceil(log2(k - 1)) for the products of comparisons. Beside the primes of the levels there are the
last prime, in which the sums are opened, and one for relinearisation.

**The soft one-hot.** A comparison is h_ij = (1 + g_ij / G) / 2 with G >= max |g|, so h_ij + h_ji = 1 and both
lie in [0, 1]. Then p_i = prod over j of h_ij is the probability that i wins against all others when every pair tosses
its own coin. No two can win, so the p_i are not negative and sum to at most 1. One record's effect is bounded as for a
hard assignment, see `plan.movement`.

**Errors.** Every operation adds an error to every slot. Under the usual assumption that roundings are independent of
the data and of each other they have the deviations below; a record's own slot then moves the outputs by at most eight
of them (b), and the other records' errors have the same distribution for neighbours: they are part of X, as in
`scales`.
Unlike the linear scheme's, this b is not a worst-case bound.

Source: Vertical HE, §3.1 (special case k = 2) and §2.3; docs/vertical-he-privacy.md.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from fastlloyd.errors import RangeError
from fastlloyd.protocols.vertical_he.he.keyshare import relin_variance
from fastlloyd.protocols.vertical_he.he.lattice import ERROR_VARIANCE, MAX_PRIME_BITS, most_bits
from fastlloyd.protocols.vertical_he.math.coefficients import SLOPE
from fastlloyd.protocols.vertical_he.math.hints import SideNoise, too_little_noise
from fastlloyd.protocols.vertical_he.math.lwe import SWITCH_TAIL, switch_error
from fastlloyd.protocols.vertical_he.math.scales import MAX_ERROR, NOISE_TAIL, switched_record
from fastlloyd.protocols.vertical_he.parameters import Scales

SIGN_DEPTH = 7
RINGS = (16384, 32768)
_LEAST_SCALE, _MOST_SCALE = 27, 50
_LEAST_END, _MOST_END = 24, 40
_WEIGHTS = range(18, 31)
_SMALL_DEPTH = 10
"""Levels for which the smaller ring usually has room."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How columns are encrypted: how many parties share the key, and whether the encrypting party has all of it."""

    keys: int
    seeded: bool


def depth(k: int) -> int:
    """Count the levels for k clusters."""
    return 1 + SIGN_DEPTH + (math.ceil(math.log2(k - 1)) if k > 2 else 0)


def choose_circuit(noise: SideNoise, *, seeded: bool) -> Scales:
    """Choose the smallest ring with a small enough error, and the largest scale that fits it.

    Parameters
    ----------
    seeded : bool
        The encrypting party has the whole key.

    Raises
    ------
    RangeError
        No ring of the table has room for the levels, or none has an X that the noise hides.
    """
    n, k, wire_bits = noise.openings.n, noise.openings.k, 32 if noise.private else 40
    found: list[Scales] = []
    fitting = False
    for ring in RINGS:
        room = most_bits(ring) // (depth(k) + 1)
        for scale in range(min(room, _MOST_SCALE), _LEAST_SCALE - 1, -1):
            for end, weight in itertools.product(range(min(scale, _MOST_END), _LEAST_END - 1, -1), _WEIGHTS):
                fits = _fitting(noise, ring=ring, bits=(scale, end, weight), wire_bits=wire_bits, seeded=seeded)
                fitting = fitting or bool(fits)
                found += filter(noise.hides, fits)
        if found and noise.private:
            break
    if found:
        return min(found, key=lambda scales: (scales.flood, scales.error))
    if fitting:
        raise too_little_noise()
    raise RangeError(
        f"{n} records and {k} clusters need more levels or room than encryption with 128-bit security has here: lower "
        "--k, or give the key holder one column only (vertical-he.scheme = linear)"
    )


def _fitting(noise: SideNoise, *, ring: int, bits: tuple[int, int, int], wire_bits: int, seeded: bool) -> list[Scales]:
    """Try one ring and the scales of levels, end and weights; return nothing if it does not fit or errs too much."""
    (scale, end, weight), n, k = bits, noise.openings.n, noise.openings.k
    # unit = 2 / N * scale of the one-hot * scale of the weights
    unit_bits = end + weight + 1 - int(math.log2(ring))
    # The last prime is not yet known: the largest one bounds what the switch adds.
    switched = math.sqrt(k) * switched_record(MAX_PRIME_BITS, wire_bits, 2.0**unit_bits)
    kind = Kind(noise.openings.keys, seeded)
    error = own_error(k, ring, bits, kind) + switched
    if error > MAX_ERROR:
        return []
    flood = flood_bound(n, k, ring, bits, last=MAX_PRIME_BITS, wire_bits=wire_bits, kind=kind)
    largest = n * (1.0 + error) + NOISE_TAIL * noise.largest(error, flood) + flood
    # The sign's bit, and a prime of b bits may be as small as 2^(b - 1/2); the library also needs room for the scales.
    last = max(math.ceil(unit_bits + math.log2(largest) + 1.5), end + weight + 1)
    if last > MAX_PRIME_BITS or 2 * last + scale * depth(k) > most_bits(ring):
        return []
    scales = Scales(
        ring=ring,
        prime_bits=(last, *[scale] * depth(k), last),
        data_bits=scale,
        weight_bits=weight,
        end_bits=end,
        unit=2.0**unit_bits,
        wire_bits=wire_bits,
        error=error,
        flood=flood,
    )
    return [scales]


def _rounding_variance(ring: int, keys: int) -> float:
    """Return the variance that dropping a prime leaves in each coefficient: r_0 + r_1 s, with r within 1/2."""
    return (1.0 + 2.0 * keys * ring / 3.0) / 12.0


def _slot_deviation(ring: int, scale: int, keys: int) -> float:
    """Return the standard deviation of the error that one rescaling leaves in a slot.

    Each coefficient errs by r_0 + r_1 s with r uniform in [-1/2, 1/2] and s the sum of `keys` ternary secrets; a slot
    adds N of them. Relinearisation and a fresh encryption add less; they are counted by the factor 2. Of a fresh
    encryption with a public key the library drops a prime as well: half of what is counted. Relinearisation errs by
    (2 N / 3 times `relin_variance`)^(1/2), at most 3.1 N P for P keys, times the root of the number of digits, in a
    coefficient; rescaling divides that by a prime of more than 2^26: below a hundredth of the rounding for P up to 100.
    """
    return 2.0 * math.sqrt(ring * _rounding_variance(ring, keys)) / 2.0**scale


def _one_hot_deviation(k: int, ring: int, scale: int, end: int, *, keys: int) -> float:
    """Return the error of one cluster's weight: each comparison's, by the steepest slope, and the products' own.

    The scale falls from `scale` to `end` over the last levels, half of the bits at the last one.
    """
    early, late = _slot_deviation(ring, scale, keys), _slot_deviation(ring, end, keys)
    between = math.sqrt(early * late)
    return math.sqrt(max(1, k - 1)) * (0.5 * SLOPE * early + 8.0 * between) + 2.0 * late


def _encoding_deviation(ring: int, weight: int, kind: Kind) -> float:
    """Return the error of a value that is encrypted at the scale of the weights.

    With a public key the library encrypts with one more prime and drops it: that leaves a rounding, and less than a
    thousandth of it from the encryption's own errors.
    """
    variance = ERROR_VARIANCE if kind.seeded else 1.001 * _rounding_variance(ring, kind.keys)
    return math.sqrt(ring * variance) / 2.0**weight


def _relin_variance(ring: int, keys: int) -> float:
    """Bound the variance that relinearisation at the last level leaves in a coefficient.

    The ciphertext's residues c are uniform below q, and their product with the key's errors is divided by the special
    prime, which has as many bits: N / 3 times the errors' variance times (q / special)^2, at most 2 if a prime of b
    bits is above 2^(b - 1/2).
    """
    return 2.0 * ring / 3.0 * relin_variance(ring, keys)


def own_error(k: int, ring: int, bits: tuple[int, int, int], kind: Kind) -> float:
    """Return b: eight deviations of the error of one record's own weights and encoded values."""
    scale, end, weight = bits
    weights = _one_hot_deviation(k, ring, scale, end, keys=kind.keys)
    return SWITCH_TAIL * math.sqrt(k) * math.hypot(weights, _encoding_deviation(ring, weight, kind))


def flood_bound(
    n: int, k: int, ring: int, bits: tuple[int, int, int], *, last: int, wire_bits: int, kind: Kind
) -> float:
    """Bound X of one output, in counts: all slots' errors, the fresh encryption of zero, and the switch."""
    scale, end, weight = bits
    unit = 2.0 ** (end + weight + 1) / ring
    weights = math.sqrt(n) * _one_hot_deviation(k, ring, scale, end, keys=kind.keys)
    # Slots beyond the records hold encrypted zeros, with their errors.
    encoded = math.sqrt(n + ring // 2) * _encoding_deviation(ring, weight, kind)
    fresh = ERROR_VARIANCE * (1.0 + 2.0 * kind.keys**2 * ring)
    zero = math.sqrt(fresh + _relin_variance(ring, kind.keys)) / unit
    switched = kind.keys * switch_error(ring, 2.0**last, wire_bits) / unit
    return SWITCH_TAIL * math.hypot(weights, encoded, zero) + switched + 1.0 / unit


def products(k: int) -> list[tuple[int, int]]:
    """List the products with relinearisation of one block, as (primes left, how many)."""
    top = depth(k)  # after the linear level, with the last prime
    pairs = k * (k - 1) // 2
    plan = [(top, pairs), (top - 1, 2 * pairs), (top - 2, 2 * pairs), (top - 3, pairs)]
    plan += [(top - 4, pairs), (top - 5, 2 * pairs), (top - 6, pairs)]
    left, factors = top - 7, k - 1
    while factors > 1:
        plan.append((left, k * (factors // 2)))
        left, factors = left - 1, (factors + 1) // 2
    return plan


def likely_ring(k: int) -> int:
    """Return the ring degree that circuits of k clusters usually have; their noise decides between the two."""
    return RINGS[0] if depth(k) <= _SMALL_DEPTH else RINGS[1]
