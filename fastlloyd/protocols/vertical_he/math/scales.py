r"""Choose the linear schemes' parameters from a table: ring, prime, scales, and their proven errors.

The key holder's integers are M_v(i) = round(s_d s_v(b_i)), one for each of F corners. The computing party's W_v(i), for
each output, are s_w times the corner's place (for a count 1), or round(s_w a_i), where the corner belongs to the
output's cluster, else 0. The opened number of one output is, in units of 1 / (s_w s_d) of a count,

    sum over i, v of W_v(i) (M_v(i) + e_v(i))  +  noise  +  X,      |e| <= 21 (SEAL's encryption error).

**One record's effect.** Its part is sum over v of W_v(i) (M_v(i) + e_v(i)): integers of this record alone. With
|W - s_w w| <= 1/2, |w| <= 1, |M + e - s_d s| <= 21.5 and shares that sum to at most 1, it differs from s_w s_d p_j(i)
(times a coordinate of at most 1 for a sum) by at most

    r s_w s_d,    r = (1 + 21.5 F / s_d) / (2 s_w) + 21.5 F / s_d,

in each output: by sqrt(k) r in L2 for the k counts, relative to their sensitivity 1, and by sqrt(k d) r for the k d
sums, relative to sqrt(d). So b = sqrt(k) r for both. The arithmetic is exact, so this holds in the worst case. The
switch to w bits rounds the constant, which includes the record's part: that moves it by another q / 2^w, and by 1 when
it is opened. A projection's numbers are shares times one of the holder's coordinates: at most as large, so the same
holds.

**X**, the part of the error that is the same for neighbours: sums of W e, the fresh encryption of zero, the switch to
fewer bits. It is flooded: see docs/vertical-he-privacy.md. `flood` bounds it by eight standard deviations.

**Room.** |sums| <= n s_w s_d (1 + b), noise of 12 standard deviations and X must stay below q / 2.

Source: docs/vertical-he-privacy.md.
"""

from __future__ import annotations

import dataclasses
import math
from operator import attrgetter

from fastlloyd.errors import RangeError
from fastlloyd.protocols.vertical_he.he.lattice import ERROR_VARIANCE
from fastlloyd.protocols.vertical_he.math.hints import SideNoise, too_little_noise
from fastlloyd.protocols.vertical_he.math.lwe import ONE_KEY, SWITCH_TAIL, Errors, errors_of, switch_error
from fastlloyd.protocols.vertical_he.parameters import Scales

RINGS = ((2048, 40), (2048, 48), (2048, 50), (2048, 52), (2048, 53), (4096, 60))
"""Ring degree and bits of the one prime, in the order in which they are tried: fewest bytes first."""
WANTED_ERROR = 0.005
MAX_ERROR = 0.01
NOISE_TAIL = 12.0
_LEAST_BITS, _MOST_DATA_BITS, _MOST_WEIGHT_BITS = 8, 30, 12


def record_error(
    k: int, corners: int, data_bits: int, weight_bits: int, *, prime_bits: int, wire_bits: int, errors: Errors = ONE_KEY
) -> float:
    """Return b: the relative part that rounding and encryption error add to the sensitivity."""
    data, weight = 2.0**data_bits, 2.0**weight_bits
    wrong = (errors.bound + 0.5) * corners / data
    each = 0.5 * (1.0 + wrong) / weight + wrong
    return math.sqrt(k) * (each + switched_record(prime_bits, wire_bits, 2.0 ** (data_bits + weight_bits)))


def switched_record(prime_bits: int, wire_bits: int, unit: float) -> float:
    """Bound how far rounding in the switch and in the opening moves one output, in counts."""
    return (2.0 ** (prime_bits - wire_bits) + 1.0) / unit


def flood_bound(n: int, corners: int, scales: Scales, errors: Errors = ONE_KEY) -> float:
    """Bound X of one output, in counts.

    Sum of W e: the weights of one record are at most s_w at each of the corners.
    Encryption of zero: e_0 + u e + e_1 s with ternary u and s has variance at most 10.5 (1 + 2 N) under one key.
    """
    sums = math.sqrt(corners * n * errors.variance) * 2.0**scales.weight_bits
    zero = math.sqrt(ERROR_VARIANCE * (1.0 + 2.0 * errors.key**2 * scales.ring))
    switched = errors.key * switch_error(scales.ring, 2.0 ** scales.prime_bits[0], scales.wire_bits)
    return (SWITCH_TAIL * math.hypot(sums, zero) + switched + 1.0) / scales.unit


def choose_scales(noise: SideNoise) -> Scales:
    """Choose the smallest ring and prime with a small enough error.

    Parameters
    ----------
    noise : SideNoise
        It must fit, and it must hide X. If it only floods X, the most exact parameters win, not the smallest.

    Raises
    ------
    RangeError
        No parameters of the table have b <= 1 %, room for n records, and an X that the noise hides.
    """
    n, k, corners, flooding = noise.openings.n, noise.openings.k, noise.openings.corners, not noise.private
    fitting: list[Scales] = []
    room, worth = False, attrgetter("flood", "error") if flooding else attrgetter("error", "flood")
    for ring, prime_bits in RINGS:
        errors = errors_of(ring, noise.openings.keys)
        for wire_bits in (40,) if flooding else (32, 40):
            tried = [
                dataclasses.replace(scales, flood=flood_bound(n, corners, scales, errors))
                for scales in _splits(k, corners, ring, prime_bits, wire_bits=wire_bits, errors=errors)
            ]
            roomy = [scales for scales in tried if _has_room(n, scales, noise)]
            hidden = [scales for scales in roomy if noise.hides(scales)]
            fitting += [min(hidden, key=worth)] if hidden else []
            room = room or bool(roomy)
    small = [scales for scales in fitting if scales.ring == fitting[0].ring]
    if small:
        enough = [scales for scales in small if scales.error <= WANTED_ERROR]
        return enough[0] if enough and not flooding else min(small, key=worth)
    if room:
        raise too_little_noise()
    raise RangeError(
        f"{n} records and {k} clusters leave no room for sums that one record's rounding moves by at most "
        f"{MAX_ERROR:.0%}: lower --k or vertical-he.degree, or split the records into several runs"
    )


def _has_room(n: int, scales: Scales, noise: SideNoise) -> bool:
    """Return whether sums, noise and X fit; a prime of b bits is above 2^(b - 1/2), and the last bit is the sign's."""
    largest = n * (1.0 + scales.error) + NOISE_TAIL * noise.largest(scales.error, scales.flood) + scales.flood
    return largest * scales.unit < float(2.0 ** (scales.prime_bits[0] - 1.5))


def _splits(k: int, corners: int, ring: int, prime_bits: int, *, wire_bits: int, errors: Errors) -> list[Scales]:
    """Split bits between data and weights, in all ways with a small enough error; X is not yet known."""
    found: list[Scales] = []
    for weight_bits in range(_LEAST_BITS, _MOST_WEIGHT_BITS + 1):
        for data_bits in range(_MOST_DATA_BITS, _LEAST_BITS - 1, -1):
            error = record_error(
                k, corners, data_bits, weight_bits, prime_bits=prime_bits, wire_bits=wire_bits, errors=errors
            )
            if error > MAX_ERROR:
                break
            if data_bits + weight_bits < prime_bits:
                unit = 2.0 ** (data_bits + weight_bits)
                found.append(
                    Scales(
                        ring=ring,
                        prime_bits=(prime_bits,),
                        data_bits=data_bits,
                        weight_bits=weight_bits,
                        unit=unit,
                        wire_bits=wire_bits,
                        error=error,
                        flood=0.0,
                    )
                )
    return found
