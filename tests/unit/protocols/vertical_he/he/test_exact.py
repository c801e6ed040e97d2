from __future__ import annotations

import math
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("tenseal")

from fastlloyd.errors import InternalError
from fastlloyd.protocols.vertical_he.he import exact
from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder, encrypt_integers
from fastlloyd.protocols.vertical_he.he.exact import Products
from fastlloyd.protocols.vertical_he.he.lattice import ERROR_BOUND, Parameters, Sample, twist
from tests.unit.protocols.vertical_he.he.test_ckks import opened

FORMS = [(2048, 40, 10), (2048, 48, 16), (2048, 53, 17), (4096, 60, 19)]


EVERYTHING = slice(0, None)
NONE = np.zeros((0, 0))


@cache
def keys(degree: int = 2048, bits: int = 48) -> tuple[Context, KeyHolder]:
    context = Context(Parameters(degree, (bits,)))
    return context, KeyHolder(context)


def by_the_library(context: Context, ciphers: list[Any], weights: NDArray[np.float64]) -> Sample:
    total = None
    for cipher, row in zip(ciphers, context.transform(weights).conj(), strict=True):
        product = context.cipher()
        context.evaluator.multiply_plain(cipher, context.encode_integers(row), product)
        if total is None:
            total = product
        else:
            context.evaluator.add_inplace(total, product)
    return context.extract([total])


@pytest.mark.parametrize(("degree", "bits", "weight_bits"), FORMS)
@pytest.mark.parametrize("kind", ["random", "largest"])
def test_the_numbers_are_the_library_s(degree: int, bits: int, weight_bits: int, kind: str) -> None:
    context, holder = keys(degree, bits)
    rng = np.random.default_rng(bits)
    parts = encrypt_integers(context, holder, rng.integers(-(2**20), 2**20, (6, degree)))
    whole = lambda *shape: rng.integers(-(2**weight_bits), 2**weight_bits + 1, shape).astype(np.float64)  # noqa: E731
    mask, factors, values = rng.random((5, degree)) < 0.5, whole(2, 5), whole(3, degree)
    if kind == "largest":
        mask[:] = True
        factors, values = (np.copysign(2.0**weight_bits, some) for some in (factors, values))
    products = Products(context, 5, 2.0**weight_bits)
    prepared = products.prepare([context.load_ciphertext(part) for part in parts])
    sums = products.zeros(5)
    products.add(sums, products.transform(prepared, slice(1, 3)), mask[:2], factors[:, :2], values)
    products.add(sums, products.transform(prepared, slice(3, 6)), mask[2:], factors[:, 2:], values)
    found = products.finish(sums)
    weights = [*(mask * factor[:, None] for factor in factors), *(mask * value for value in values)]
    assert found.constants.shape == (5,) and found.vectors.shape == (5, degree)
    for output, some in enumerate(weights):
        expected = by_the_library(context, [context.load_ciphertext(part) for part in parts[1:]], some)
        assert found.constants[output] == expected.constants[0]
        np.testing.assert_array_equal(found.vectors[output], expected.vectors[0])


def test_inner_products_are_exact_but_for_the_encryption_error() -> None:
    context, holder = keys()
    rng = np.random.default_rng(1)
    data, values = rng.integers(-(2**20), 2**20, (5, 2048)), rng.integers(-(2**9), 2**9, (1, 1500))
    mask = rng.random((5, 1500)) < 0.5
    products = Products(context, 5, 2.0**9)
    parts = encrypt_integers(context, holder, data)
    prepared = products.prepare([context.load_ciphertext(part) for part in parts])
    # Fewer weights than records: the rest counts as zero.
    sums = products.zeros(1)
    products.add(sums, products.transform(prepared, EVERYTHING), mask, np.zeros((0, 5)), values.astype(np.float64))
    (value,) = opened(products.finish(sums), holder.coefficients(), context.modulus)
    error = value - int((data[:, :1500] * mask * values).sum())
    assert abs(error) <= ERROR_BOUND * np.abs(mask * values).sum()


def test_the_error_of_every_coefficient_is_within_the_bound() -> None:
    context, holder = keys()
    products = Products(context, 1, 1.0)
    part = encrypt_integers(context, holder, np.full((1, 2048), 7))[0]
    ciphers = products.transform(products.prepare([context.load_ciphertext(part)]), EVERYTHING)
    errors = []
    for place in range(0, 2048, 16):
        sums = products.zeros(1)
        products.add(sums, ciphers, np.arange(2048)[None] == place, np.ones((1, 1)), NONE)
        errors.append(opened(products.finish(sums), holder.coefficients(), context.modulus)[0] - 7)
    assert max(map(abs, errors)) <= ERROR_BOUND
    assert 1.0 < np.std(errors) < 7.0  # sqrt(10.5) = 3.2; 128 values


class Numbers:
    """Stands for a context whose ciphertexts are their numbers."""

    def __init__(self, degree: int, modulus: int) -> None:
        self.degree, self.modulus = degree, modulus

    def coefficients(self, cipher: NDArray[np.int64]) -> NDArray[np.int64]:
        return cipher


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("degree", "bits", "weight_bits"), FORMS)
def test_the_largest_numbers_there_are_leave_no_doubt_when_rounded(
    degree: int, bits: int, weight_bits: int, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    modulus, count, weight = 2**bits - 1, 64, 2**weight_bits
    products = Products(Numbers(degree, modulus), count, float(weight))  # type: ignore[arg-type]
    doubts: list[float] = []
    original = exact._join

    def looking(limbs: NDArray[np.float64], q: int, b: int) -> NDArray[np.int64]:
        doubts.append(float(np.abs(limbs - np.rint(limbs)).max()))
        return original(limbs, q, b)

    monkeypatch.setattr(exact, "_join", looking)
    number = sum(1 << (products._vector_bits * limb + products._vector_bits - 1) for limb in range(9)) % (modulus // 2)
    cipher = np.full((2, degree), sign * number % modulus)
    ciphers = products.transform(products.prepare([cipher] * count), EVERYTHING)
    full = np.full((1, count), float(weight)), np.full((1, degree), float(weight))
    sums, times = products.zeros(2), products.most // count
    for _ in range(times):
        products.add(sums, ciphers, np.ones((count, degree), dtype=np.bool_), *full)
    found, count = products.finish(sums), times * count
    # W(X) c(1 / X) for constant W and c: coefficient j has N - j products of the one sign and j of the other.
    expected = [count * weight * sign * number * (degree - 2 * j) % modulus for j in range(degree)]
    for output in range(2):
        assert int(found.constants[output]) == count * degree * weight * sign * number % modulus
        assert found.vectors[output].tolist() == expected
    assert max(doubts) < 0.05


@pytest.mark.parametrize("degree", [2048, 4096])
def test_roots_are_as_exact_as_the_proof_takes_them_to_be(degree: int) -> None:
    half, unit = degree // 2, 2.0**-53
    with mpmath.workprec(120):
        roots = [mpmath.expjpi(mpmath.mpf(j) / degree) for j in range(half)]
        whole = np.array([complex(root) for root in roots])
        rest = np.array([complex(root - mpmath.mpc(near)) for root, near in zip(roots, whole, strict=True)])
    assert np.abs((twist(degree) - whole) - rest).max() <= 2.7 * unit  # and sqrt(5) for the product: below 5
    # A single 1 goes through all levels by products alone: the additions' u a level is left for them.
    levels, places = math.log2(half), np.arange(half)
    circle = [np.concatenate([turn * part[::4] for turn in (1.0, 1.0j, -1.0, -1.0j)]) for part in (whole, rest)]
    for place in range(half):
        single = np.zeros(half, dtype=np.complex128)
        single[place] = 1.0
        order = place * places % half
        for found, sign in ((np.fft.ifft(single, norm="forward"), 1), (np.fft.fft(single), -1)):
            near, left = (values[order] if sign == 1 else values[order].conj() for values in circle)
            assert np.abs((found - near) - left).max() <= 4.0 * levels * unit


@settings(max_examples=50, deadline=None)
@given(st.integers(2**39, 2**60), st.integers(2, 24), st.data())
def test_limbs_are_small_and_stand_for_the_number(modulus: int, bits: int, data: st.DataObject) -> None:
    edges = st.sampled_from([0, 1, modulus // 2, modulus // 2 + 1, modulus - 1])
    numbers = np.array(data.draw(st.lists(st.one_of(edges, st.integers(0, modulus - 1)), min_size=1)), dtype=np.int64)
    limbs = exact._split(numbers, modulus, bits)
    assert np.abs(limbs).max() <= 2.0 ** (bits - 1)
    np.testing.assert_array_equal(exact._join(limbs, modulus, bits), numbers)
    factor = data.draw(st.integers(-(2**20), 2**20))
    expected = [int(number) * factor % modulus for number in numbers]
    assert exact._join(limbs * factor, modulus, bits).tolist() == expected


def test_weights_beyond_all_limbs_are_refused() -> None:
    context, _ = keys()
    with pytest.raises(InternalError, match="smaller scales"):
        Products(context, 64, 2.0**34)
