"""A key that several parties share: what they make together, and what fewer than all can do with it."""

from __future__ import annotations

import functools

import numpy as np
import pytest

pytest.importorskip("tenseal")

from fastlloyd.protocols.vertical_he.he.ckks import Context, Refresher
from fastlloyd.protocols.vertical_he.he.keyshare import KeyShare, add_parts, join_relin_key, read_part, relin_variance
from fastlloyd.protocols.vertical_he.he.lattice import Parameters, Sample, multiply_residues
from fastlloyd.protocols.vertical_he.he.residues import pack_half, unpack_half
from fastlloyd.protocols.vertical_he.math import lwe
from fastlloyd.randomness.secret import SecretRandom

CHAIN = Parameters(8192, (50, 40, 40, 50))


class Joint:
    """All parties' steps one after the other."""

    def __init__(self, parameters: Parameters, parties: int) -> None:
        self.context = Context(parameters)
        self.shares = [KeyShare(self.context, SecretRandom()) for _ in range(parties)]
        digits, half = parameters.digits, parameters.key_half_bytes
        lead = self.shares[0].lead(1 + digits)
        first = (*(part[:half] for part in lead), *self.shares[0].contribute(lead, zeros=False))
        others = [share.contribute(lead) for share in self.shares[1:]]
        add = functools.partial(add_parts, self.context)
        sums = functools.reduce(add, others, first)
        self.public = sums[0] + lead[0][half:]
        zeros, gadgets = sums[1 : 1 + digits], sums[1 + digits :]
        closed = functools.reduce(add, [share.close(zeros, gadgets) for share in self.shares])
        self.relin = join_relin_key(self.context, closed, zeros)

    @property
    def key(self) -> np.ndarray:
        """The common secret, as keys are stored."""
        primes = np.array(self.context.key_primes)[:, None]
        return sum(self.context.key_residues(share.coefficients()) for share in self.shares) % primes

    def open(self, sample: Sample, shares: list[KeyShare]) -> np.ndarray:
        q = self.context.modulus
        for share in shares:
            sample = lwe.open_part(sample, share.coefficients(), q)
        return np.where(sample.constants > q // 2, sample.constants - q, sample.constants)


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_all_shares_together_open_what_the_common_key_encrypts_and_all_but_one_do_not(parties: int) -> None:
    joint = Joint(Parameters(2048, (53,)), parties)
    context = joint.context
    public = Refresher(context, context.load_public_key(joint.public))
    zeros = public.zeros(8)
    errors = lwe.errors_of(2048, parties)
    assert np.abs(joint.open(zeros, joint.shares)).max() < errors.bound
    for left_out in range(parties):
        fewer = joint.shares[:left_out] + joint.shares[left_out + 1 :]
        assert np.abs(joint.open(zeros, fewer)).max() > context.modulus / 64  # all 8: once in 2^40 for uniform numbers


def test_errors_under_a_common_key_have_the_variance_that_is_counted() -> None:
    joint = Joint(Parameters(2048, (53,)), 3)
    public = Refresher(joint.context, joint.context.load_public_key(joint.public))
    found = joint.open(public.zeros(400), joint.shares).astype(float)
    # The estimate's deviation is sqrt(2 / 400) of it, that of a key's and errors' lengths below 0.02: five of these.
    assert found.var() == pytest.approx(lwe.errors_of(2048, 3).variance, rel=0.4)


@pytest.mark.parametrize("parties", [2, 3])
def test_a_product_under_the_common_key_is_relinearised_with_the_errors_that_are_counted(parties: int) -> None:
    joint = Joint(CHAIN, parties)
    context = joint.context
    relin = context.load_relin_key(joint.relin, seeded=False)
    public = Refresher(context, context.load_public_key(joint.public))
    values, scale = np.random.default_rng(parties).uniform(-1, 1, CHAIN.degree // 2), 2.0**38
    plain = context.encode_slots(values, scale, context.level(3))
    cipher = context.load_ciphertext(public.encrypt(plain), scale=scale, seeded=False)
    context.evaluator.square_inplace(cipher)
    context.evaluator.relinearize_inplace(cipher, relin)
    context.evaluator.rescale_to_next_inplace(cipher)
    context.evaluator.mod_switch_to_next_inplace(cipher)
    scale = scale**2 / context.primes[2]
    # The constant coefficient is the mean over slots.
    (mean,) = joint.open(context.extract([cipher]), joint.shares) / scale
    assert mean == pytest.approx((values**2).mean(), abs=1e-5)

    each, primes = CHAIN.key_bytes(seeded=False), np.array(context.key_primes)[:, None]
    part = joint.relin[each : 2 * each]  # of digit 1, so its first row hides no square of the key
    halves = (part[: each // 2], part[each // 2 :])
    first, second = (unpack_half(half, context.key_primes, CHAIN.degree) for half in halves)
    error = (first + multiply_residues(second, joint.key, primes)) % primes
    q = context.modulus
    coefficients = context.coefficients(context.assemble(error[0], error[0]))[0]
    centred = np.where(coefficients > q // 2, coefficients - q, coefficients).astype(float)
    # 8,192 coefficients of one pair of polynomials: the estimate's deviation is below 3 %.
    assert centred.var() == pytest.approx(relin_variance(CHAIN.degree, parties), rel=0.15)


def test_contributions_that_do_not_fit_are_refused() -> None:
    context = Context(CHAIN)
    share = KeyShare(context, SecretRandom())
    lead = share.lead(1)
    (good,) = share.contribute(lead)
    assert read_part(context, good).shape == (4, 8192)
    bits = CHAIN.prime_bits
    constant = np.full((4, 8192), 3, dtype=np.int64)
    for wrong, reason in (
        (b"\xff" * len(good), "not below its prime"),
        (bytes(len(good)), "hides nothing"),
        (pack_half(constant, bits), "hides nothing"),
    ):
        with pytest.raises(ValueError, match=reason):
            add_parts(context, [good], [wrong])
        with pytest.raises(ValueError, match=reason):
            share.close([good], [wrong])
    with pytest.raises(ValueError, match="not below"):
        share.contribute([b"\xff" * len(lead[0])])
    half = CHAIN.key_half_bytes
    public, first, second = share.lead(3)
    for twice in (first, public):
        with pytest.raises(ValueError, match="expected a new seed"):
            share.contribute([public, first, second[:half] + twice[half:]])
    assert repr(share) == "KeyShare()"


def test_residues_are_multiplied_exactly() -> None:
    rng = np.random.default_rng(3)
    for prime in ((1 << 60) - 93, 1125899906826241, 1073643521, 65537):
        first, second = rng.integers(0, prime, 500), rng.integers(0, prime, 500)
        first[:3], second[:3] = prime - 1, [prime - 1, 0, 1]
        found = multiply_residues(first, second, np.array(prime))
        assert found.tolist() == [a * b % prime for a, b in zip(first.tolist(), second.tolist(), strict=True)]
