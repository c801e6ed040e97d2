from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

pytest.importorskip("tenseal")

from fastlloyd.protocols.vertical_he.math import coefficients
from fastlloyd.protocols.vertical_he.math.coefficients import CHAIN, LARGEST
from fastlloyd.protocols.vertical_he.math.pairwise import MARGIN, normalise
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.wire.header import Header, PartyId
from tests.protocols.vertical_he.support import blobs, circuit_weights, names, parameters, sign, simulate


def test_the_coefficients_are_those_of_the_script() -> None:
    path = Path(__file__).parents[3] / "scripts" / "he_coefficients.py"
    spec = importlib.util.spec_from_file_location("he_coefficients", path)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    found = script.build()
    assert found["largest"] == pytest.approx(LARGEST, rel=1e-6)
    assert found["error"] == pytest.approx(coefficients.ERROR, rel=1e-4)
    x = np.linspace(-1, 1, 1001)
    np.testing.assert_allclose(script.evaluate(script.minimax(15, 0.04, 1.0)[0], x), _first(x), atol=1e-6)


def _first(x: np.ndarray) -> np.ndarray:
    kappa, lead, gamma, pairs = CHAIN[0]
    u = kappa * x
    return lead * u * (u**2 + gamma) * np.prod([u**4 + a * u**2 + b for a, b in pairs], axis=0)


def test_the_sign_is_bounded_odd_and_good_outside_its_gap() -> None:
    x = np.linspace(-1, 1, 400_001)
    value = sign(x)
    assert np.abs(value).max() <= LARGEST
    assert np.abs(np.diff(value)).max() / np.diff(x).min() <= 1.001 * coefficients.SLOPE
    far = np.abs(x) >= coefficients.DELTA
    assert np.abs(value[far] - np.sign(x[far])).max() <= 1.001 * coefficients.ERROR


@settings(max_examples=100, deadline=None)
@given(arrays(np.float64, 6, elements=st.floats(-10, 10)), arrays(np.float64, 2, elements=st.floats(-4, 4)))
def test_normalised_differences_keep_their_sign(known: np.ndarray, weights: np.ndarray) -> None:
    part, scaled = normalise(known, weights)
    for corner in ((1, 1), (1, -1), (-1, 1), (-1, -1), (0, 0)):
        value = part + scaled @ np.array(corner)
        assert (np.abs(value) <= 1 + 1e-12).all()
        exact = known + weights @ np.array(corner)
        decided = np.abs(exact) > 1e-6
        assert (np.sign(value[decided]) == np.sign(exact[decided])).all()
    spread = np.abs(weights).sum()
    if spread > 1e-6:  # what is decided by the known part alone is outside the gap of the polynomials
        far = np.abs(known) > (1 + MARGIN) * spread
        assert (np.abs(part[far]) - np.abs(scaled).sum() > coefficients.DELTA).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.integers(0, 2**32 - 1), st.booleans())
def test_the_soft_one_hot_is_a_part_of_one(k: int, seed: int, coarse: bool) -> None:
    rng = np.random.default_rng(seed)
    centers, points = rng.uniform(-1, 1, (k, 3)), rng.uniform(-1, 1, (50, 3))
    if coarse:
        centers, points = np.rint(2 * centers) / 2, np.rint(points)
    weights = circuit_weights(points, centers, known=[0])
    assert weights.min() >= -1e-12
    assert weights.sum(axis=1).max() <= 1 + 1e-9


@pytest.mark.parametrize("k", [2, 3])
def test_an_encrypted_round_is_the_circuit_in_clear(k: int) -> None:
    points, start = blobs(300, k, 3, seed=k)
    plan = make_plan(parameters(300, k, rounds=1, scheme="pairwise", computing=0), names(1, 2))
    seen: list[np.ndarray] = []

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type == 123:
            seen.append(np.frombuffer(body, "<i8") / plan.unit)
        return body

    results, _ = simulate(plan, points, start, tap, quiet=True)
    weights = circuit_weights(points, start, known=[0])
    expected = np.column_stack((weights.sum(axis=0), weights.T @ points)).reshape(-1)
    assert np.abs(seen[0] - expected).max() < plan.scales.flood < 0.1
    np.testing.assert_array_equal(results[PartyId(0)].centers, results[PartyId(1)].centers)


def test_values_that_round_to_zero_add_nothing() -> None:
    points, start = blobs(300, 2, 2, seed=3)
    points[:, 0] = 1e-16
    plan = make_plan(parameters(300, 2, rounds=1, scheme="pairwise", computing=0, noise="flooding"), names(1, 1))
    seen: list[np.ndarray] = []

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type == 123:
            seen.append(np.frombuffer(body, "<i8").reshape(2, 3) / plan.unit)
        return body

    simulate(plan, points, start, tap, quiet=True)
    assert np.abs(seen[0][:, 1]).max() < plan.scales.flood
    assert abs(seen[0][:, 0].sum() - 300) < 3


def test_a_server_without_data_computes_for_three_owners() -> None:
    points, start = blobs(200, 2, 3, seed=5)
    plan = make_plan(parameters(200, 2, parties=4, rounds=1, shrink=False), names(1, 1, 1))
    results, simulation = simulate(plan, points, start, quiet=True)
    weights = circuit_weights(points, start, known=[])
    expected = (weights.T @ points) / weights.sum(axis=0)[:, None]
    for rank in range(4):
        np.testing.assert_array_equal(results[PartyId(rank)].centers, results[PartyId(0)].centers)
    kept = results[PartyId(3)].state.counts >= np.sqrt(2.0) * plan.count_scale / plan.unit
    assert kept.any()
    assert np.abs(results[PartyId(3)].centers - expected)[kept].max() < 2.0 * plan.scales.flood / 10.0
    assert not simulation.releases[PartyId(0)]
    assert all(len(simulation.releases[PartyId(rank)]) == 2 for rank in (1, 2, 3))
