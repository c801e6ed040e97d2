"""Zero-sum masks: the sums stay, everything else goes."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from fastlloyd.protocols.secfc.field import zero_sum
from fastlloyd.protocols.secfc.field.lagrange import Code, completion_matrix
from fastlloyd.protocols.secfc.field.prime import Elements, Field, choose_field
from fastlloyd.protocols.secfc.field.zero_sum import constant_with_sum, zero_sum_mask
from fastlloyd.randomness.prg import KeyStream
from fastlloyd.randomness.secret import SecretRandom

REAL = choose_field(3 * 500**2 * 8 << 32)
KEY = bytes(range(32))


def masks(code: Code, shape: tuple[int, ...], iteration: int = 0, block: int = 0) -> Elements:
    """The masks of all clients, shape (primes, n, *shape)."""
    stream, numbers = KeyStream(KEY), range(1, code.clients + 1)
    each = [zero_sum_mask(code, j, shape, stream=stream, iteration=iteration, block=block) for j in numbers]
    # Sums with answers must stay exact.
    assert max(np.abs(mask).max() for mask in each) <= 2.0**51
    return code.field.reduce(np.stack(each, axis=1))


@pytest.mark.parametrize("sizes", [(1, 1, 3), (1, 1, 5), (2, 2, 8), (3, 2, 12), (5, 3, 16), (20, 15, 71)])
def test_any_enough_clients_masks_sum_to_zero_over_the_segments(sizes: tuple[int, int, int]) -> None:
    code = Code(REAL, *sizes)
    drawn = masks(code, (4, 3))
    rng = np.random.default_rng(1)
    for _ in range(6):
        chosen = rng.permutation(code.clients)[: code.recovery]
        assert not code.decode_sums(drawn[:, chosen], chosen + 1).any()
        parts = code.decode_segments(drawn[:, chosen], chosen + 1, degree=2 * code.degree)
        assert (parts.any(axis=(0, 2, 3))).all() == (code.segments > 1)


def test_masks_of_other_iterations_blocks_and_clients_differ() -> None:
    code = Code(REAL, 2, 1, 5)
    one = masks(code, (40,))
    for other in (masks(code, (40,), iteration=1), masks(code, (40,), block=1)):
        assert (one != other).mean() > 0.99
    assert (one[:, 0] != one[:, 1]).mean() > 0.99
    assert (one == masks(code, (40,))).all()


@pytest.mark.parametrize(("segments", "clients"), [(1, 3), (2, 5), (2, 6)])
def test_the_server_s_view_is_a_function_of_the_sum_in_every_case(segments: int, clients: int) -> None:
    # All masks, one after the other. Views of two polynomials with one sum are the same set, each view once;
    # of another sum, a disjoint one.
    p = 11
    code = Code(Field((p,)), segments, 1, clients)
    drawn = code.recovery - 1
    axes = np.meshgrid(*[np.arange(p) - p // 2] * drawn, indexing="ij")
    first = np.stack(axes).reshape(1, drawn, -1).astype(np.float64)
    every = np.concatenate([first, code.field.matmul(completion_matrix(code), first)], axis=1)

    def view(values: list[int]) -> Counter[tuple[float, ...]]:
        """All masked answers to a polynomial given at the first 2l + 2t - 1 clients."""
        given = np.array(values, dtype=np.float64)[None, :, None]
        betas = code.decode_segments(given, range(1, code.recovery + 1), degree=2 * code.degree)
        sums.append(int(code.decode_sums(given, range(1, code.recovery + 1))[0, 0]))
        segments_seen.append(tuple(betas[0, :, 0]))
        answers = code.field.add(every[:, : code.recovery], given)
        return Counter(map(tuple, answers[0].T.tolist()))

    sums: list[int] = []
    segments_seen: list[tuple[float, ...]] = []
    base = [1, 3, -2, 4, 5][: code.recovery]
    shifted = [
        int(v) for v in code.field.add(np.array([base], dtype=float), every[:, : code.recovery, 1234 % p**drawn])[0]
    ]
    other = [base[0] + 1, *base[1:]]
    views = [view(values) for values in (base, shifted, other)]
    assert sums[0] == sums[1] != sums[2]
    assert (segments_seen[0] != segments_seen[1]) == (segments > 1)
    assert views[0] == views[1]
    assert set(views[0].values()) == {1}
    assert len(views[0]) == p**drawn
    assert not views[0].keys() & views[2].keys()


def test_masked_answers_still_decode_and_show_no_segment() -> None:
    code = Code(REAL, 3, 2, 11)
    rng = np.random.default_rng(5)
    points = rng.integers(-(2**16), 2**16, (30, 6))
    shares = code.share(REAL.encode(points), SecretRandom())
    answers = REAL.squared_norms(shares)
    norms = (points**2).sum(axis=1)
    parts = np.stack([(points[:, 2 * u : 2 * u + 2] ** 2).sum(axis=1) for u in range(3)])
    masked = REAL.add(answers, masks(code, (30,)))
    for seen, hidden in ((answers, False), (masked, True)):
        for _ in range(5):
            chosen = rng.permutation(11)[: code.recovery]
            assert (REAL.decode(code.decode_sums(seen[:, chosen], chosen + 1)) == norms).all()
        opened = REAL.decode(code.decode_segments(seen, range(1, 12), degree=2 * code.degree))
        assert (opened == parts).any() == (not hidden)
        assert (opened == parts).all() == (not hidden)


@pytest.mark.parametrize("sizes", [(1, 1, 3), (3, 2, 12), (20, 15, 71)])
def test_a_prescribed_sum_is_added_exactly(sizes: tuple[int, int, int]) -> None:
    code = Code(REAL, *sizes)
    wanted = np.array([[0, 1, -1, 2**26], [-(2**26), 19, -21, 12345]])
    constants = constant_with_sum(code, code.field.encode(wanted))
    assert np.abs(constants).max() <= 2.0**47
    constants = code.field.reduce(constants)
    answers = code.field.add(masks(code, wanted.shape), constants[:, None])
    chosen = list(range(1, code.recovery + 1))
    assert (code.field.decode(code.decode_sums(answers[:, : code.recovery], chosen)) == wanted).all()


def test_masks_of_very_many_clients_stay_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    # More masks than fit a float64 sum, all at their largest where the weights have one sign: the worst to be drawn.
    code = Code(Field((16777213,)), 1, 201, 403)
    last, drawn = 403, code.recovery - 1
    row = completion_matrix(code)[0, last - drawn - 1]
    whole = 16777212

    def largest(self: Field, stream: KeyStream, nonce: bytes, shape: tuple[int, ...]) -> Elements:
        j = int.from_bytes(nonce[4:8], "little")
        return np.full((1, *shape), whole if row[j - 1] > 0 else 0, dtype=np.float64)

    monkeypatch.setattr(Field, "uniform_from", largest)
    total = sum(whole * int(weight) for weight in row if weight > 0)
    assert total > 2**53
    mask = zero_sum_mask(code, last, (1,), stream=KeyStream(KEY), iteration=0)
    assert abs(mask[0, 0]) <= 2.0**51
    assert (int(mask[0, 0]) - total) % 16777213 == 0


def test_sums_of_the_largest_products_are_reduced_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    # 400 odd products of one sign: their sum is beyond 2^53, where floats would lose its last digit.
    field, large, drawn = Field((16777213,)), 8388605, 400
    assert drawn * large * large > 2**53
    monkeypatch.setattr(Field, "uniform_from", lambda self, stream, nonce, shape: np.full((1, *shape), float(large)))
    rows = np.full((1, 2, drawn), float(large))
    code = SimpleNamespace(field=field, recovery=drawn + 1)
    monkeypatch.setattr(zero_sum, "completion_matrix", lambda code: rows)
    found = zero_sum_mask(code, drawn + 2, (3,), stream=KeyStream(bytes(32)), iteration=0)
    assert (found.astype(np.int64) % 16777213 == drawn * large * large % 16777213).all()
