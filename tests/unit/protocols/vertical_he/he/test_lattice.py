from __future__ import annotations

import math

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.protocols.vertical_he.he.lattice import ERROR_VARIANCE, Parameters, most_bits
from fastlloyd.protocols.vertical_he.math.circuit import RINGS as CIRCUIT_RINGS
from fastlloyd.protocols.vertical_he.math.scales import RINGS

KEY_VARIANCE = 2.0 / 3.0


def root(block: int) -> float:
    """log2 of the root Hermite factor that reduction with blocks of this size reaches."""
    inner = block / (2 * math.pi * math.e) * (math.pi * block) ** (1 / block)
    return math.log2(inner) / (2 * (block - 1))


def security(ring: int, bits: float, share: float) -> float:
    """log2 of the cost of the embedding attack, with this share of the variances of errors and key left.

    The model of the standard's table: 2^(0.292 b + 16.4) in each of 8 d places (Albrecht et al., 2018), blocks by
    "2016 estimate" (Alkim et al.). It gives the 129.7, 128.2 and 128.1 bits of that table for 2048, 8192 and 16384.
    """
    error = 0.5 * math.log2(ERROR_VARIANCE * share)
    balance = error - 0.5 * math.log2(KEY_VARIANCE * share)
    for block in range(60, 2000):
        for samples in range(ring // 2, 3 * ring, ring // 64):
            d = samples + ring + 1
            volume = (samples * bits + ring * balance) / d
            if error + 0.5 * math.log2(block) <= (2 * block - d - 1) * root(block) + volume:
                return 0.292 * block + 16.4 + math.log2(8 * d)
    return math.inf


def test_the_estimate_is_that_of_the_standard() -> None:
    assert security(2048, 54, 1.0) == pytest.approx(129.7, abs=0.3)
    assert security(2048, 54, 1 / 3) < 126.0  # why that prime is not used


@pytest.mark.parametrize(("ring", "bits"), [*RINGS, *((ring, most_bits(ring)) for ring in CIRCUIT_RINGS)], ids=str)
def test_every_choice_keeps_128_bits_beside_the_hints(ring: int, bits: int) -> None:
    assert bits <= most_bits(ring)
    assert security(ring, bits, 1 / 3) >= 128.0


def test_a_modulus_without_room_for_the_hints_is_refused() -> None:
    Parameters(2048, (53,))
    with pytest.raises(ConfigError, match="expected at most 53 bits"):
        Parameters(2048, (54,))
