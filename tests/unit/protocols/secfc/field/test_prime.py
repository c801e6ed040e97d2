"""The field against Python's integers, and its choice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from fastlloyd.errors import RangeError
from fastlloyd.protocols.secfc.field.prime import Elements, Field, choose_field
from fastlloyd.randomness.secret import SecretRandom

REAL = Field((16777213, 16777199, 65521))
WIDE = Field((16777213, 16777199, 16777183, 16777153))
FIELDS = [Field((7,)), Field((13, 251)), Field((65521,)), REAL, WIDE]
ALARM = 1e-7


def centred(value: int, modulus: int) -> int:
    rest = value % modulus
    return rest - modulus if rest > modulus // 2 else rest


def elements(field: Field, integers: NDArray[np.object_]) -> Elements:
    """Residues of any Python integers, computed by Python."""
    rows = [[centred(int(v), p) for v in integers.reshape(-1)] for p in field.primes]
    return np.array(rows, dtype=np.float64).reshape(len(field.primes), *integers.shape)


@pytest.mark.parametrize("field", FIELDS, ids=str)
@given(data=st.data())
def test_encoding_and_decoding_are_inverse(field: Field, data: st.DataObject) -> None:
    bound = min(field.largest, 2**63 - 1)
    values = data.draw(st.lists(st.integers(-bound, bound), min_size=1, max_size=9))
    values += [-bound, 0, bound]
    array = np.array(values, dtype=np.int64)
    encoded = field.encode(array)
    assert (encoded == elements(field, array.astype(object))).all()
    assert field.decode(encoded).tolist() == values
    assert field.decode(field.encode(array[0])) == array[0]


@given(st.lists(st.integers(-WIDE.largest, WIDE.largest), min_size=1, max_size=9))
def test_integers_wider_than_64_bits_decode(values: list[int]) -> None:
    values += [-WIDE.largest, WIDE.largest]
    assert WIDE.decode(elements(WIDE, np.array(values, dtype=object))).tolist() == values


@pytest.mark.parametrize("field", FIELDS, ids=str)
@given(data=st.data())
def test_arithmetic_is_that_of_the_integers(field: Field, data: st.DataObject) -> None:
    number = st.integers(-field.largest, field.largest)
    pairs = np.array(data.draw(st.lists(st.tuples(number, number), min_size=1, max_size=6)), dtype=object)
    a, b = pairs[:, 0], pairs[:, 1]
    left, right = elements(field, a), elements(field, b)
    for result, exact in (
        (field.add(left, right), a + b),
        (field.subtract(left, right), a - b),
        (field.multiply(left, right), a * b),
    ):
        assert (result == elements(field, exact)).all()


@pytest.mark.parametrize("field", FIELDS, ids=str)
@pytest.mark.parametrize("inner", [1, 3, 63, 64, 65, 300])
def test_matrix_products_are_those_of_the_integers(field: Field, inner: int) -> None:
    rng = np.random.default_rng(inner)
    a = rng.integers(-(2**62), 2**62, (3, inner)).astype(object)
    b = rng.integers(-(2**62), 2**62, (inner, 4)).astype(object)
    left, right = elements(field, a), elements(field, b)
    assert (field.matmul(left, right) == elements(field, a @ b)).all()
    transposed = np.ascontiguousarray(right.swapaxes(1, 2)).swapaxes(1, 2)
    assert (field.matmul(left, transposed) == elements(field, a @ b)).all()
    assert (field.squared_norms(left) == elements(field, (a * a).sum(axis=1))).all()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("inner", [64, 1000])
def test_the_largest_residues_multiply_exactly(sign: int, inner: int) -> None:
    half = np.array([(p - 1) // 2 for p in WIDE.primes], dtype=np.float64)[:, None, None]
    left = np.broadcast_to(half, (4, 2, inner))
    right = np.broadcast_to(sign * half, (4, inner, 2))
    exact = [[centred(sign * inner * ((p - 1) // 2) ** 2, p)] * 4 for p in WIDE.primes]
    assert WIDE.matmul(left, right).reshape(4, 4).tolist() == exact
    assert WIDE.inner_limit >= 64


def test_results_do_not_depend_on_the_order_of_memory() -> None:
    rng = np.random.default_rng(3)
    a = REAL.encode(rng.integers(-(2**50), 2**50, (5, 6)))
    b = REAL.encode(rng.integers(-(2**50), 2**50, (5, 6)))
    turned = [np.asfortranarray(x) for x in (a, b)]
    for operation in (REAL.add, REAL.subtract, REAL.multiply):
        assert (operation(*turned) == operation(a, b)).all()
    assert (REAL.reduce(turned[0] * 3) == REAL.add(a, REAL.add(a, a))).all()
    assert (REAL.decode(turned[0]) == REAL.decode(a)).all()
    assert REAL.to_bytes(turned[0]) == REAL.to_bytes(a)


def test_float32_stores_elements_without_loss() -> None:
    a = WIDE.uniform((40, 50), SecretRandom())
    stored = a.astype(np.float32)
    assert (stored == a).all()
    for result in (WIDE.matmul(stored, stored.swapaxes(1, 2)), WIDE.multiply(stored, stored)):
        assert result.dtype == np.float64
    assert (WIDE.matmul(stored, stored.swapaxes(1, 2)) == WIDE.matmul(a, a.swapaxes(1, 2))).all()
    labels = np.arange(40) % 3
    assert (WIDE.group_sums(stored, labels, 3) == WIDE.group_sums(a, labels, 3)).all()
    assert (WIDE.squared_norms(stored) == WIDE.squared_norms(a)).all()


@pytest.mark.parametrize(("n", "k"), [(1, 1), (50, 4), (70_000, 3)])
def test_group_sums_leave_out_rows_without_a_group(n: int, k: int) -> None:
    rng = np.random.default_rng(n)
    values = rng.integers(-(2**40), 2**40, (n, 2))
    labels = rng.integers(-1, k + 1, n)
    exact = np.stack([values[labels == h].sum(axis=0) for h in range(k)])
    assert (REAL.decode(REAL.group_sums(REAL.encode(values), labels, k)) == exact).all()


@pytest.mark.parametrize("field", FIELDS, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 2)])
def test_bytes_go_there_and_back(field: Field, shape: tuple[int, ...]) -> None:
    original = field.uniform(shape, SecretRandom())
    data = field.to_bytes(original)
    assert len(data) == math.prod(shape) * field.element_bytes
    assert (field.from_bytes(data, shape) == original).all()
    with pytest.raises(ValueError, match="payload bytes"):
        field.from_bytes(data + b"\0", shape)


def test_bytes_are_residues_from_0_element_after_element() -> None:
    assert REAL.element_bytes == 8
    data = REAL.to_bytes(REAL.encode(np.array([1, -1])))
    assert data == bytes.fromhex("010000 010000 0100 fcffff eeffff f0ff")
    with pytest.raises(ValueError, match="below 16777213, got 16777213"):
        REAL.from_bytes(bytes.fromhex("000000 000000 0000 fdffff 000000 0000"), (2,))
    with pytest.raises(ValueError, match="below 65521, got 65535"):
        REAL.from_bytes(bytes.fromhex("000000 000000 0000 000000 000000 ffff"), (2,))


def chi_square(cells: NDArray[np.int64]) -> float:
    expected = cells.sum() / cells.size
    return float(((cells - expected) ** 2 / expected).sum())


def test_secret_elements_are_uniform() -> None:
    # Four tests at 1e-7 each: a false alarm once in 2.5 million runs.
    secret = SecretRandom()
    small = Field((13,)).uniform((60_000,), secret)[0].astype(np.int64) + 6
    assert chi_square(np.bincount(small, minlength=13)) < chi2.isf(ALARM, 12)
    for i, p in enumerate(REAL.primes[:2]):
        residues = REAL.uniform((60_000,), secret)[i].astype(np.int64) % p
        assert chi_square(np.bincount(residues & 255, minlength=256)) < chi2.isf(ALARM, 255)
        if i == 0:
            assert chi_square(np.bincount(residues >> 16, minlength=256)) < chi2.isf(ALARM, 255)


def test_secret_elements_take_every_value_of_a_small_field() -> None:
    drawn = Field((7, 13)).uniform((4000,), SecretRandom())
    assert sorted(set(drawn[0])) == list(range(-3, 4))
    assert sorted(set(drawn[1])) == list(range(-6, 7))


@pytest.mark.parametrize("field", FIELDS, ids=str)
@given(data=st.data())
def test_signs_are_those_of_the_integers(field: Field, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(-field.largest, field.largest), min_size=1, max_size=9))
    values += [-field.largest, -1, 0, 1, field.largest]
    array = elements(field, np.array(values, dtype=object))
    assert field.positive(array).tolist() == [value > 0 for value in values]


@given(st.integers(1, 1 << 180))
def test_the_chosen_field_holds_the_largest_integer(worst: int) -> None:
    field = choose_field(worst)
    assert field.largest >= worst
    # No smaller number of primes would do, nor fewer bytes with as many primes.
    assert worst * 2 >= (1 << 24) ** (len(field.primes) - 1) * 0.999
    assert field.element_bytes <= 3 * len(field.primes)


def test_bytes_of_an_element_follow_the_need() -> None:
    assert choose_field(1 << 68).element_bytes == 9
    assert choose_field(1 << 62).element_bytes == 8
    assert choose_field(1 << 20).element_bytes == 3
    exact = Field((16777213,)).largest
    assert choose_field(exact).element_bytes == 3
    assert choose_field(exact + 1).element_bytes == 4


def test_too_much_is_refused_with_the_mend_and_never_wraps() -> None:
    with pytest.raises(RangeError, match="fewer fraction bits or lower n_total"):
        choose_field(1 << 576)
    with pytest.raises(RangeError, match="does not fit a field"):
        Field((7, 13)).encode(np.array([46]))
    assert Field((7, 13)).decode(Field((7, 13)).encode(np.array([45, -45]))).tolist() == [45, -45]


@pytest.mark.parametrize("primes", [(), (2,), (9,), (7, 7), (16777259,), (-7,)])
def test_other_moduli_are_refused(primes: tuple[int, ...]) -> None:
    with pytest.raises(RangeError, match="distinct odd primes"):
        Field(primes)


def test_integers_between_half_a_prime_and_the_prime_are_centred() -> None:
    small = Field((101, 103))
    integers = np.array([50, 51, 52, 100, -50, -51, -52])
    assert small.encode(integers).tolist() == [[50, -50, -49, -1, -50, 50, 49], [50, 51, -51, -3, -50, -51, 51]]


@pytest.mark.parametrize("inner", [32, 33, 64, 65, 200])
def test_products_with_residues_that_are_not_centred_stay_exact(inner: int) -> None:
    # The largest residues of one sign: beyond 2^53 their sums would lose digits.
    p = 16777213
    field, half = Field((p,)), float(p // 2)
    found = field.matmul(np.full((1, 1, inner), half), np.full((1, inner, 1), p - 1.0), centred=False)
    assert (int(found[0, 0, 0]) - inner * (p // 2) * (p - 1)) % p == 0
    assert abs(found[0, 0, 0]) <= half
