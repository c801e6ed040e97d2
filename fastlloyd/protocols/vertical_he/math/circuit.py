r"""Parameters of the pairwise circuit: ring, chain of primes, scales, and what they say about errors.

**Levels.** One for the linear difference of two distances, four and three for the two sign polynomials
(degrees 15 and 7), and ceil(log2(k - 1)) for the products of comparisons. Beside the primes of the levels there are the
last prime, in which the sums are opened, and one for relinearisation.

**The soft one-hot.** A comparison is h_ij = (1 + g_ij / G) / 2 with G >= max |g|, so h_ij + h_ji = 1 and both
lie in [0, 1]. Then p_i = prod over j of h_ij is the probability that i wins against all others when every pair tosses
its own coin; no two can, so the p_i are not negative and sum to at most 1. What one record moves is bounded as for a
hard assignment, see `plan.Plan.movement`.

**Errors.** Every operation adds an error to every slot. Under the usual assumption that roundings are independent of
the data and of each other they have the deviations below; a record's own slot then moves the outputs by at most eight
of them (b), and the other records' errors are distributed alike for neighbours: they are part of X, as in `scales`.
Unlike the linear scheme's, this b is not a worst-case bound.

Source: Vertical HE, §3.1 (special case k = 2) and §2.3; docs/vertical-he-privacy.md.
"""

from __future__ import annotations

import itertools
import math

from fastlloyd.crypto.he.lattice import ERROR_VARIANCE, MAX_PRIME_BITS, most_bits
from fastlloyd.errors import RangeError
from fastlloyd.protocols.vertical_he.math.coefficients import SLOPE
from fastlloyd.protocols.vertical_he.math.hints import Noise, too_little_noise
from fastlloyd.protocols.vertical_he.math.lwe import SWITCH_TAIL, switch_error
from fastlloyd.protocols.vertical_he.math.scales import MAX_ERROR, NOISE_TAIL, switched_record
from fastlloyd.protocols.vertical_he.parameters import Scales

SIGN_DEPTH = 7
RINGS = (16384, 32768)
_LEAST_SCALE, _MOST_SCALE = 27, 50
_LEAST_END, _MOST_END = 24, 40
_WEIGHTS = range(18, 31)
# Measured: seconds of one product with relinearisation and rescaling at N = 2^14, for each prime that is left.
_PRODUCT_S = 0.0036


def depth(k: int) -> int:
    """Count the levels for k clusters."""
    return 1 + SIGN_DEPTH + (math.ceil(math.log2(k - 1)) if k > 2 else 0)


def choose_circuit(n: int, k: int, noise: Noise, *, flooding: bool) -> Scales:
    """Choose the smallest ring with a small enough error, and the largest scale that fits it.

    Raises
    ------
    RangeError
        No ring of the table has room for so many levels, or none has an X that the noise hides; names the mend.
    """
    wire_bits = 40 if flooding else 32
    found: list[Scales] = []
    fitting = False
    for ring in RINGS:
        room = most_bits(ring) // (depth(k) + 1)
        for scale in range(min(room, _MOST_SCALE), _LEAST_SCALE - 1, -1):
            for end, weight in itertools.product(range(min(scale, _MOST_END), _LEAST_END - 1, -1), _WEIGHTS):
                fits = _fitting(n, k, noise, ring=ring, bits=(scale, end, weight), wire_bits=wire_bits)
                fitting = fitting or bool(fits)
                found += filter(noise.hides, fits)
        if found and not flooding:
            break
    if found:
        return min(found, key=lambda scales: (scales.flood, scales.error))
    if fitting:
        raise too_little_noise()
    raise RangeError(
        f"{n} records and {k} clusters need more levels or room than encryption with 128-bit security has here: lower "
        "--k, or give the key holder one column only (vertical-he.scheme = linear)"
    )


def _fitting(
    n: int,
    k: int,
    noise: Noise,
    *,
    ring: int,
    bits: tuple[int, int, int],
    wire_bits: int,
) -> list[Scales]:
    """Try one ring and the scales of levels, end and weights; nothing if it does not fit or errs too much."""
    scale, end, weight = bits
    # unit = 2 / N * scale of the one-hot * scale of the weights
    unit_bits = end + weight + 1 - int(math.log2(ring))
    # The last prime is not yet known: the largest one bounds what the switch adds.
    switched = math.sqrt(k) * switched_record(MAX_PRIME_BITS, wire_bits, 2.0**unit_bits)
    error = own_error(k, ring, bits) + switched
    if error > MAX_ERROR:
        return []
    flood = flood_bound(n, k, ring, bits, last=MAX_PRIME_BITS, wire_bits=wire_bits)
    largest = n * (1.0 + error) + NOISE_TAIL * noise.largest(error, flood) + flood
    # The sign's bit, and a prime of b bits may be as small as 2^(b - 1/2); the library wants room for scales as well.
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


def _slot_deviation(ring: int, scale: int) -> float:
    """Return the standard deviation of the error that one rescaling leaves in a slot.

    Notes
    -----
    Each coefficient errs by r_0 + r_1 s with r uniform in [-1/2, 1/2] and ternary s: variance (1 + 2 N / 3) / 12; a
    slot adds N of them. Relinearisation and a fresh encryption add less; they are counted by the factor 2.
    """
    return 2.0 * math.sqrt(ring * (1.0 + 2.0 * ring / 3.0) / 12.0) / 2.0**scale


def _one_hot_deviation(k: int, ring: int, scale: int, end: int) -> float:
    """Return the error of one cluster's weight: each comparison's, by the steepest slope, and the products' own.

    Notes
    -----
    The scale falls from `scale` to `end` over the last levels, half of the bits at the last one.
    """
    early, late = _slot_deviation(ring, scale), _slot_deviation(ring, end)
    between = math.sqrt(early * late)
    return math.sqrt(max(1, k - 1)) * (0.5 * SLOPE * early + 8.0 * between) + 2.0 * late


def _encoding_deviation(ring: int, weight: int) -> float:
    """Return the error of a value that is encrypted at the scale of the weights."""
    return math.sqrt(ring * ERROR_VARIANCE) / 2.0**weight


def own_error(k: int, ring: int, bits: tuple[int, int, int]) -> float:
    """Return b: eight deviations of the error of one record's own weights and encoded values."""
    scale, end, weight = bits
    both = math.hypot(_one_hot_deviation(k, ring, scale, end), _encoding_deviation(ring, weight))
    return SWITCH_TAIL * math.sqrt(k) * both


def flood_bound(n: int, k: int, ring: int, bits: tuple[int, int, int], *, last: int, wire_bits: int) -> float:
    """Bound X of one output, in counts: all slots' errors, the fresh encryption of zero, and the switch."""
    scale, end, weight = bits
    unit = 2.0 ** (end + weight + 1) / ring
    weights = math.sqrt(n) * _one_hot_deviation(k, ring, scale, end)
    # Slots beyond the records hold encrypted zeros, with their errors.
    encoded = math.sqrt(n + ring // 2) * _encoding_deviation(ring, weight)
    zero = math.sqrt(ERROR_VARIANCE * (1.0 + 2.0 * ring)) / unit
    switched = switch_error(ring, 2.0**last, wire_bits) / unit
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


def seconds(n: int, k: int, ring: int = RINGS[0]) -> float:
    """Estimate the processor seconds of one round."""
    blocks = math.ceil(n / (ring // 2))
    return blocks * (ring / RINGS[0]) * sum(limbs * count * _PRODUCT_S for limbs, count in products(k))
