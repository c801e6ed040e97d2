from __future__ import annotations

import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tenseal")

from fastlloyd.crypto import ckks
from fastlloyd.crypto.ckks import Context, KeyHolder, Refresher, encrypt_integers
from fastlloyd.crypto.keyshare import KeyShare
from fastlloyd.crypto.lattice import MAX_INTEGER, Parameters, check_integers
from fastlloyd.errors import ConfigError, RangeError
from fastlloyd.privacy.secret import SecretRandom

SMALL = Parameters(2048, (48,))


@cache
def keys() -> tuple[Context, KeyHolder]:
    context = Context(SMALL)
    return context, KeyHolder(context)


def opened(sample: ckks.Sample, secret: np.ndarray, modulus: int) -> list[int]:
    phases = [
        (int(constant) + int((vector.astype(object) * secret).sum())) % modulus
        for constant, vector in zip(sample.constants, sample.vectors, strict=True)
    ]
    return [phase - modulus if phase > modulus // 2 else phase for phase in phases]


@pytest.mark.parametrize(("degree", "bits"), [(2048, (55,)), (16384, (60,) * 7 + (20,)), (1024, (20,)), (2048, (61,))])
def test_insecure_parameters_are_refused(degree: int, bits: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        Parameters(degree, bits)


def test_seal_s_own_security_level_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastlloyd.crypto.lattice.MAX_MODULUS_BITS", {2048: 100})
    with pytest.raises(ConfigError, match="128-bit security"):
        Context(Parameters(2048, (57,)))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ckks._seal.cache_clear()
    monkeypatch.setitem(sys.modules, "tenseal", None)
    monkeypatch.setitem(sys.modules, "tenseal.sealapi", None)
    try:
        with pytest.raises(ConfigError, match="pip install"):
            Context(SMALL)
    finally:
        monkeypatch.undo()
        ckks._seal.cache_clear()


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 30))
def test_integers_are_encoded_exactly(seed: int, bits: int) -> None:
    context, _ = keys()
    rng = np.random.default_rng(seed)
    whole = rng.integers(-(2**bits), 2**bits + 1, 2048)
    whole[:2] = (2**bits, -(2**bits))
    plain = context.encode_integers(context.transform(whole.astype(np.float64)))
    folded = np.fft.fft(context.decode(plain), norm="forward") / np.exp(1j * np.pi / 2048 * np.arange(1024))
    np.testing.assert_array_equal(np.rint(np.concatenate((folded.real, folded.imag))), whole)


def test_too_large_integers_are_refused() -> None:
    check_integers(np.array([MAX_INTEGER]))
    with pytest.raises(RangeError, match="smaller scales"):
        check_integers(np.array([-MAX_INTEGER - 1]))


def test_the_secret_is_ternary_and_not_shown() -> None:
    _, holder = keys()
    assert set(np.unique(holder.coefficients())) == {-1, 0, 1}
    assert repr(holder) == "KeyHolder()"


def test_fresh_zeros_hide_nothing_and_differ() -> None:
    context, holder = keys()
    refresher = Refresher(context, context.load_public_key(holder.public_key()))
    zeros = refresher.zeros(2)
    assert max(map(abs, opened(zeros, holder.coefficients(), context.modulus))) < 2000
    assert (zeros.vectors[0] != zeros.vectors[1]).mean() > 0.99


def test_damaged_ciphertexts_are_refused() -> None:
    context, holder = keys()
    good = encrypt_integers(context, holder, np.ones((1, 2048), dtype=np.int64))[0]
    context.load_ciphertext(good)
    larger, wider = Context(Parameters(4096, (48,))), Context(Parameters(2048, (50,)))
    wrong = [
        b"",
        good[:-1],
        good + b"\0",
        b"\0" + good[1:],
        good[:8] + bytes(8) + good[16:],
        good[:16] + bytes(64) + good[80:],
        encrypt_integers(larger, KeyHolder(larger), np.ones((1, 4096), dtype=np.int64))[0],
        encrypt_integers(wider, KeyHolder(wider), np.ones((1, 2048), dtype=np.int64))[0],
        holder.public_key(),
    ]
    for content in wrong:
        with pytest.raises(ValueError, match="ciphertext"):
            context.load_ciphertext(content)
    with pytest.raises(ValueError, match="ciphertext or key"):
        context.load_public_key(holder.public_key()[:-1] + b"\0\0")


def test_another_scale_or_level_is_refused() -> None:
    context = Context(Parameters(8192, (50, 40, 50)))
    holder = KeyHolder(context)
    content = holder.encrypt(context.encode_slots(np.zeros(4096) + 0.5, 2.0**30, context.level(2)))
    context.load_ciphertext(content, scale=2.0**30)
    with pytest.raises(ValueError, match="level or scale"):
        context.load_ciphertext(content, scale=2.0**31)
    with pytest.raises(ValueError, match="level or scale"):
        context.load_ciphertext(content, scale=2.0**30, level=context.level(1))


@pytest.mark.parametrize("zero", [(1,), (0, 1)])
def test_a_ciphertext_or_key_without_its_uniform_half_is_refused(zero: tuple[int, ...]) -> None:
    context, _ = keys()
    halves = np.random.default_rng(0).integers(0, context.modulus, (2, 2048))
    halves[list(zero)] = 0
    content = context.save(context.assemble(*halves))
    for seeded in (True, False):
        with pytest.raises(ValueError, match="hides nothing"):
            context.load_ciphertext(content, seeded=seeded)
    with pytest.raises(ValueError, match="hides nothing"):
        context.load_public_key(content)
    with pytest.raises(ValueError, match="hides nothing"):
        KeyShare(context, SecretRandom()).join(content)


def test_a_ciphertext_is_refused_that_hides_nothing_modulo_one_of_its_primes() -> None:
    context = Context(Parameters(8192, (50, 40, 50)))
    holder = KeyHolder(context)
    cipher = context.load_ciphertext(holder.encrypt(context.encode_slots(0.5, 1.0, context.level(2))))
    context._check_hiding(cipher)

    class Zeroed:
        """The ciphertext with zeros in the last prime of its second half."""

        def coeff_modulus_size(self) -> int:
            return 2

        def dyn_array(self) -> Zeroed:
            return self

        def at(self, place: int) -> int:
            return 0 if place >= 3 * 8192 else int(cipher.dyn_array().at(place))

    with pytest.raises(ValueError, match="hides nothing"):
        context._check_hiding(Zeroed())
