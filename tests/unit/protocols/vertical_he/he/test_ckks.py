from __future__ import annotations

import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tenseal")

from fastlloyd.errors import ConfigError, RangeError
from fastlloyd.protocols.vertical_he.he import ckks, seal
from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder, Refresher, encrypt_integers
from fastlloyd.protocols.vertical_he.he.lattice import MAX_INTEGER, Parameters, check_integers

SMALL = Parameters(2048, (48,))
CHAIN = Parameters(8192, (50, 40, 50))


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


@pytest.mark.parametrize(("degree", "bits"), [(2048, (54,)), (16384, (60,) * 7 + (18,)), (1024, (20,)), (2048, (61,))])
def test_insecure_parameters_are_refused(degree: int, bits: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        Parameters(degree, bits)


def test_seal_s_own_security_level_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastlloyd.protocols.vertical_he.he.lattice.MAX_MODULUS_BITS", {2048: 100})
    with pytest.raises(ConfigError, match="128-bit security"):
        Context(Parameters(2048, (57,)))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    seal.library.cache_clear()
    monkeypatch.setitem(sys.modules, "tenseal", None)
    monkeypatch.setitem(sys.modules, "tenseal.sealapi", None)
    try:
        with pytest.raises(ConfigError, match="pip install"):
            Context(SMALL)
    finally:
        monkeypatch.undo()
        seal.library.cache_clear()


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
        b"\xff" * 6 + good[6:],
        context.save(context.load_ciphertext(good)),
        encrypt_integers(larger, KeyHolder(larger), np.ones((1, 4096), dtype=np.int64))[0],
        encrypt_integers(wider, KeyHolder(wider), np.ones((1, 2048), dtype=np.int64))[0],
    ]
    for content in wrong:
        with pytest.raises(ValueError, match="ciphertext or key"):
            context.load_ciphertext(content)
    for content in (holder.public_key()[:-1], b"\xff" * 6 + holder.public_key()[6:]):
        with pytest.raises(ValueError, match="ciphertext or key"):
            context.load_public_key(content)


def test_damaged_relinearisation_keys_are_refused() -> None:
    context = Context(CHAIN)
    good = KeyHolder(context).relin_key()
    each = len(good) // 2
    context.load_relin_key(good)
    for content in (good[:each], good + good[:each], good[:-1], good + b"\0", b""):
        with pytest.raises(ValueError, match="relinearisation key of"):
            context.load_relin_key(content)
    with pytest.raises(ValueError, match="not below its prime"):
        context.load_relin_key(good[:each] + b"\xff" * 8 + good[each + 8 :])


def test_the_library_s_keys_arrive_whole() -> None:
    context = Context(CHAIN)
    holder = KeyHolder(context)
    relin, public = context.load_relin_key(holder.relin_key()), context.load_public_key(holder.public_key())
    values = np.linspace(-1.0, 1.0, 4096)
    scale = 2.0**30
    plain = context.encode_slots(values, scale, context.level(2))
    ciphers = [
        context.load_ciphertext(holder.encrypt(plain), scale=scale),
        context.load_ciphertext(Refresher(context, public).encrypt(plain), scale=scale, seeded=False),
    ]
    square = context.cipher()
    context.evaluator.multiply(*ciphers, square)
    context.evaluator.relinearize_inplace(square, relin)
    context.evaluator.rescale_to_next_inplace(square)
    total = float((values**2).sum() * square.scale / 4096)
    sample = context.extract([square])
    # The noise of the ciphertexts has a standard deviation of 21 here (1,446 draws): this is eight of them.
    assert opened(sample, holder.coefficients(), context.modulus)[0] == pytest.approx(total, rel=5e-4)


def test_the_same_numbers_come_back() -> None:
    context, _ = keys()
    halves = np.random.default_rng(0).integers(0, context.modulus, (2, 2048))
    halves[:, 0] = (0, context.modulus - 1)
    np.testing.assert_array_equal(context.numbers(context.assemble(*halves))[:, 0], halves)


def test_a_ciphertext_has_the_scale_and_level_that_are_agreed() -> None:
    context = Context(CHAIN)
    holder = KeyHolder(context)
    content = holder.encrypt(context.encode_slots(np.zeros(4096) + 0.5, 2.0**30, context.level(2)))
    cipher = context.load_ciphertext(content, scale=2.0**31)
    assert (cipher.scale, cipher.coeff_modulus_size(), cipher.size()) == (2.0**31, 2, 2)
    with pytest.raises(ValueError, match="expected a ciphertext or key of"):
        context.load_ciphertext(content, limbs=1)


def test_an_unknown_version_of_the_library_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    context, holder = keys()
    for broken in (b"\0" * 16, b"\0" * 40):
        monkeypatch.setattr(seal.os, "pread", lambda *_, broken=broken: broken)
        with pytest.raises(ConfigError, match=r"tenseal 0\.3\.15"):
            holder.public_key()
    monkeypatch.undo()
    cipher = context.assemble(np.ones(2048, dtype=np.int64), np.ones(2048, dtype=np.int64))
    with pytest.raises(ConfigError, match="not supported"):
        context._read(cipher, context._form(1, scale=3.0), seeded=False)
    with pytest.raises(ConfigError, match="not supported"):
        context._exchange.load(context.cipher(), context.seal, b"\0" * 100)
    with pytest.raises(ConfigError, match="not supported"):
        context._exchange.save(cipher, 100)
    monkeypatch.delitem(sys.modules, "_sealapi_cpp")
    seal._decompress.cache_clear()
    with pytest.raises(ConfigError, match="not supported"):
        context.save(cipher)


@pytest.mark.parametrize("zero", [(1,), (0, 1)])
def test_a_ciphertext_without_its_uniform_half_is_refused(zero: tuple[int, ...]) -> None:
    context, _ = keys()
    halves = np.random.default_rng(0).integers(0, context.modulus, (2, 2048))
    context.load_ciphertext(context.save(context.assemble(*halves)), seeded=False)
    halves[list(zero)] = 0
    with pytest.raises(ValueError, match="hides nothing"):
        context.load_ciphertext(context.save(context.assemble(*halves)), seeded=False)


@pytest.mark.parametrize("value", [0, 1, 12345])
def test_a_ciphertext_is_refused_that_hides_nothing_modulo_one_of_its_primes(value: int) -> None:
    context = Context(CHAIN)
    fresh = Refresher(context, context.load_public_key(KeyHolder(context).public_key()))
    content = fresh.encrypt(context.encode_slots(0.5, 2.0**20, context.level(2)))
    context.load_ciphertext(content, scale=2.0**20, seeded=False)
    last = 8192 * 5  # a prime of 40 bits
    crafted = content[:-last] + value.to_bytes(5, "little") * 8192
    with pytest.raises(ValueError, match="hides nothing"):
        context.load_ciphertext(crafted, scale=2.0**20, seeded=False)
