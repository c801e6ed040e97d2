"""Wrong answers: noticed, named, and never blamed on another client."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlloyd.errors import InternalError
from fastlloyd.protocols.secfc.field.lagrange import Code, Unlocated, locate_wrong
from fastlloyd.protocols.secfc.field.prime import Elements, Field, choose_field
from fastlloyd.randomness.secret import SecretRandom

REAL = choose_field(3 * 500**2 * 8 << 32)
SHAPE = (7, 3)


def answers(code: Code) -> Elements:
    """Values of random polynomials of the degree of scores at all clients; shape (primes, n, 7, 3)."""
    secret = SecretRandom()
    field = code.field
    one = code.share(field.uniform((SHAPE[0], 4), secret), secret)
    two = code.share(field.uniform((SHAPE[1], 4), secret), secret)
    return field.matmul(one, two.swapaxes(2, 3))


@settings(deadline=None)
@given(st.sampled_from([(1, 1), (2, 1), (2, 2)]), st.integers(0, 6), st.data())
def test_up_to_half_the_slack_of_wrong_clients_are_named(
    sizes: tuple[int, int], slack: int, data: st.DataObject
) -> None:
    l, t = sizes  # noqa: E741
    code = Code(REAL, l, t, 2 * l + 2 * t - 1 + slack + 2)
    responders = data.draw(st.permutations(range(1, code.clients + 1)))[: code.recovery + slack]
    wrong = data.draw(st.permutations(responders))[: data.draw(st.integers(0, slack // 2))]
    sent = answers(code)
    for client in wrong:
        entries = data.draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), min_size=1, max_size=4))
        for entry in set(entries):
            error = np.zeros(len(REAL.primes))
            error[data.draw(st.integers(0, len(REAL.primes) - 1))] = data.draw(st.sampled_from([1, -1, 77, 30_000]))
            at = (slice(None), client - 1, *entry)
            sent[at] = REAL.add(sent[at], error)
    seen = sent[:, [j - 1 for j in responders]]
    assert locate_wrong(code, seen, responders) == tuple(sorted(wrong))


@pytest.mark.parametrize(("slack", "wrong"), [(1, [2]), (2, [2, 5]), (3, [1, 2]), (4, [1, 2, 3])])
def test_more_wrong_clients_are_noticed_and_nobody_is_blamed(slack: int, wrong: list[int]) -> None:
    # The errors are fixed, and the syndromes depend on nothing else: the same outcome in every run.
    code = Code(REAL, 2, 1, 5 + slack)
    sent = answers(code)
    for client in wrong:
        error = REAL.encode(np.array([[1000 * client**3 + 17, 5 * client + 1, 3]]))
        sent[:, client - 1, :1] = REAL.add(sent[:, client - 1, :1], error)
    with pytest.raises(Unlocated, match=f"with {slack} more answers than needed at most {slack // 2} wrong") as caught:
        locate_wrong(code, sent, range(1, code.clients + 1))
    assert caught.value.slack == slack


def test_clients_wrong_at_different_entries_are_all_named() -> None:
    code = Code(REAL, 2, 2, 13)
    sent = answers(code)
    for i, client in enumerate((4, 9, 13)):
        sent[:, client - 1, i] = REAL.uniform((3,), SecretRandom())
    assert locate_wrong(code, sent, range(1, 14)) == (4, 9, 13)
    kept = [j for j in range(1, 14) if j not in (4, 9, 13)]
    assert locate_wrong(code, sent[:, [j - 1 for j in kept]], kept) == ()


def test_more_than_half_the_slack_are_not_named_even_at_different_entries() -> None:
    code = Code(REAL, 2, 1, 8)
    sent = answers(code)
    for i, client in enumerate((3, 7)):
        sent[:, client - 1, i] = REAL.add(sent[:, client - 1, i], REAL.encode(np.array([1, 2, 3])))
    with pytest.raises(Unlocated, match="with 3 more answers"):
        locate_wrong(code, sent, range(1, 9))


def test_errors_that_cancel_in_the_first_check_are_found() -> None:
    # Two wrong clients whose first syndrome vanishes: the shortest recurrence starts late.
    code = Code(Field((65521,)), 1, 1, 8)
    sent = answers(code)
    p, points = 65521, code.alphas
    weight = []
    for j in (2, 5):
        product = 1
        for i, point in enumerate(points):
            if i != j:
                product = product * (points[j] - point) % p
        weight.append(product)
    for j, error in ((2, weight[0]), (5, -weight[1])):
        sent[:, j, 0, 0] = code.field.add(sent[:, j, 0, 0], code.field.reduce(np.array([float(error)])))
    assert locate_wrong(code, sent, range(1, 9)) == (3, 6)


def test_without_slack_nothing_can_be_noticed() -> None:
    code = Code(REAL, 2, 1, 5)
    noise = REAL.uniform((5, 4), SecretRandom())
    assert locate_wrong(code, noise, range(1, 6)) == ()


def test_every_single_wrong_client_is_named_in_a_tiny_field() -> None:
    code = Code(Field((13,)), 1, 1, 5)
    for client in range(1, 6):
        for error in range(1, 13):
            sent = answers(code)
            sent[0, client - 1, 0, 0] = code.field.add(sent[:, client - 1, 0, 0], np.array([float(error)]))[0]
            assert locate_wrong(code, sent, range(1, 6)) == (client,)


def test_a_wrong_set_of_clients_is_a_bug() -> None:
    code = Code(REAL, 1, 1, 4)
    for responders in ((1, 2), (1, 2, 2), (1, 2, 5)):
        with pytest.raises(InternalError, match="distinct clients of 1..4"):
            locate_wrong(code, REAL.zeros((len(responders), 2)), responders)
