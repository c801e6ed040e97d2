"""The noise of all released numbers is independent: coordinates, clusters, tensors, rounds, clients and lives.

`joint.py` says how, and with which rate of false alarms; `noise_of_runs.py` where the noise comes from. It comes from
fixed keys, so each test gives the same result each time; with fresh ones it would alarm with probability `ALARM`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tenseal")

from fastlloyd.party.effects import Receive, Send
from fastlloyd.protocols.secfc.messages import ArrayFormat, DataShares
from fastlloyd.protocols.vertical_dp.messages import Synopsis, synopsis_format
from fastlloyd.protocols.vertical_dp.sketch.sketch import GRID_PHANTOMS, PAPER_PHANTOMS, SketchShape, make_sketch
from fastlloyd.protocols.vertical_he import protocol as vertical_he_protocol
from fastlloyd.protocols.vertical_he.he.ckks import Context
from fastlloyd.protocols.vertical_he.he.keyshare import KeyShare, draw_error
from fastlloyd.protocols.vertical_he.he.lattice import ERROR_VARIANCE
from fastlloyd.protocols.vertical_he.messages import KeyMaterial, KeyPiece
from fastlloyd.protocols.vertical_he.owner import owner
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.rounds import draw_noise
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.config import RunConfig
from fastlloyd.run.simulation import run_together
from fastlloyd.wire.header import Header, PartyId
from tests.privacy.he_noise import Opened, Pieces
from tests.privacy.joint import Scores, columns, dependent, uniform_scores
from tests.privacy.noise_of_runs import (
    PartyEnd,
    client_noise,
    feddp_noise,
    masked_statistics,
    masked_vectors,
    noting,
    server_noise,
)
from tests.privacy.stage_noise import has_unit_variance
from tests.privacy.vertical_dp_noise import Drawn
from tests.protocols.secfc import support as secfc
from tests.protocols.vertical_dp import support as vertical_dp
from tests.protocols.vertical_he import support as vertical_he

LLOYDS = ["fastlloyd", "glloyd", "sulloyd", "fastlloyd-plus"]
FEDDP_LIVES = 88
"""More than the numbers of all its steps together: 76."""


def shared_plan(rounds: int) -> Plan:
    """A key that four parties share and three open with."""
    public = vertical_he.parameters(60, 4, parties=4, rounds=rounds, mode="threshold", threshold=3)
    return vertical_he.make_plan(public, vertical_he.names(1, 1, 1, 1))


def _keep_first(bodies: list[bytes], sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
    """Keep the first party's synopsis."""
    if header.type == Synopsis.TYPE and sender == PartyId(1):
        bodies.append(body)
    return body


def _keep_shares(
    bodies: dict[tuple[int, int], bytes], sender: PartyId, receiver: PartyId, header: Header, body: bytes
) -> bytes:
    """Keep the shares of records."""
    if header.type == DataShares.TYPE:
        bodies.setdefault((sender.rank, receiver.rank), body)
    return body


def lives_of(
    look: Callable[[RunConfig, int, np.random.Generator], PartyEnd], count: int, *, clients: int = 2, **config: Any
) -> Scores:
    """Let all parties live so often; give each number's noise."""
    chosen = RunConfig(dataset="iris", bounds="0,10", epsilon=1.0, **config)
    coins = np.random.default_rng(0)
    lives = [look(chosen, clients, coins) for _ in range(count)]
    return {
        name: column
        for tensor in lives[0]
        for name, column in columns(tensor, np.stack([life[tensor] for life in lives])).items()
    }


@pytest.mark.parametrize("method", ["box-tree", "lloyd", "shortened"])
def test_what_the_parties_of_vertical_dp_draw_is_independent_everywhere(method: str) -> None:
    table = vertical_dp.split(vertical_dp.correlated(200, 2), 2)
    plan = vertical_dp.plan_for(table, 3, settings={"rows": 4, "local_clusters": 2, "local": method})
    lives, coins = [], np.random.default_rng(0)
    for _ in range(40):
        body: list[bytes] = []
        with Drawn(coins) as drawn:
            vertical_dp.run(table, plan, tap=partial(_keep_first, body))
        lives.append(drawn.calls)
        # The first party draws the noise on the number of users last: it is what its message says less their number.
        form = synopsis_format(plan, 0)
        assert Synopsis.read(body[0], form).noisy_total(form) == 200 + drawn.last[0] / 256
    # How many boxes are open follows from the noise: what all lives have.
    common = [name for name in lives[0] if all(name in life for life in lives)]
    sizes = {name: min(min(life[name].size for life in lives), 2) for name in common[:15]}
    scores = {
        name: column
        for call, size in sizes.items()
        for name, column in columns(call, np.stack([life[call][:size] for life in lives])).items()
    }
    assert len(scores) > 10
    assert dependent(scores) == set()
    assert has_unit_variance(np.stack(list(scores.values())))


@pytest.mark.parametrize("masking", ["common", "pairwise"])
def test_what_the_server_of_fastlloyd_receives_is_uniform_and_independent(masking: str) -> None:
    scores = lives_of(masked_vectors, 72, clients=3, protocol="fastlloyd", masking=masking, k=2, rounds=2)
    # With pairwise masks the vectors of all clients add up to what is released; those of all but one tell nothing.
    assert len(scores) == (3 if masking == "common" else 2) * 2 * 10
    assert dependent(scores) == set()
    assert has_unit_variance(np.stack(list(scores.values())))


def test_what_the_server_of_feddp_receives_is_uniform_and_independent() -> None:
    scores = lives_of(masked_statistics, FEDDP_LIVES, clients=3, protocol="feddp", k=2, rounds=1)
    assert len(scores) >= 30
    assert dependent(scores) == set()
    assert has_unit_variance(np.stack(list(scores.values())))


def test_the_shares_that_two_colluding_clients_of_secfc_receive_are_uniform_and_independent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # They open what is sealed for them.
    monkeypatch.setattr("fastlloyd.protocols.secfc.protocol.seal_between", lambda party, *_, **__: party)
    lives = []
    points = secfc.mixture(5, 2, 4)
    for _ in range(48):
        bodies: dict[tuple[int, int], bytes] = {}
        ended = secfc.run(points, 2, clients=5, rounds=1, tap=partial(_keep_shares, bodies), settings={"threshold": 2})
        plan = ended.plan
        received = [
            DataShares.read(bodies[1, rank], ArrayFormat(plan.field, (1, plan.width))).elements[..., :2]
            for rank in (2, 3)
        ]
        primes = np.array(plan.primes, dtype=float)[:, None, None]
        coins = np.random.default_rng(len(lives)).random((2, *received[0].shape))
        lives.append(uniform_scores(((np.array(received) % primes) + coins) / primes).ravel())
    assert dependent(columns("receiver, prime, record and part", np.stack(lives))) == set()


@pytest.mark.parametrize("scheme", [GRID_PHANTOMS, PAPER_PHANTOMS])
def test_the_phantoms_of_a_sketch_are_independent_in_clusters_rows_and_keys(scheme: str) -> None:
    shape = SketchShape(rows=8, clusters=3, parties=2, phantoms=4, scheme=scheme)
    secret, coins = SecretRandom(), np.random.default_rng(0)
    # The highest of so many phantoms: of all cells with this coordinate, or of the paper's one cell.
    count = 4 * (shape.clusters if scheme == GRID_PHANTOMS else 1)
    below = (np.array(shape.user_levels.totals, dtype=float) / 2.0**32) ** count
    lives = []
    for _ in range(60):
        levels = make_sketch(np.zeros(0, dtype=np.int64), 0, secret.bytes(32), shape, secret)
        first = np.where(levels == shape.floor, 0.0, below[levels - 1])
        lives.append(uniform_scores(first + coins.random(levels.shape) * (below[levels] - first)).ravel())
    assert dependent(columns("row and cluster", np.stack(lives))) == set()


def test_both_sides_noise_in_vertical_he_is_independent_everywhere() -> None:
    points, start = vertical_he.blobs(40, 2, 2, seed=1)
    plan = vertical_he.linear_plan(40, 2, degree=8)
    lives = []
    for _ in range(40):
        seen = Opened()
        with seen.watch():
            released, _ = vertical_he.simulate(plan, points, start, seen.tap)
        lives.append(seen.noise(points, released[PartyId(0)].path, plan))
    scores = {
        name: column
        for side in lives[0]
        for name, column in columns(side, np.stack([life[side].ravel() for life in lives])).items()
    }
    assert len(scores) == 2 * 2 * 6
    assert dependent(scores) == set()
    assert has_unit_variance(np.stack(list(scores.values())))


@pytest.mark.parametrize("rounds", [2, 6])
def test_no_round_of_a_whole_life_of_vertical_he_has_noise_of_another(rounds: int) -> None:
    seen = Opened()
    config = RunConfig(protocol="vertical-he", dataset="iris", bounds="0,10", epsilon=1.0, k=8, rounds=rounds)
    with noting(vertical_he_protocol, "play") as roles, seen.watch():
        run_together(config, 1, tap=seen.tap)
    roles.sort(key=lambda role: role.given[0])
    plan, points = roles[0].given[1], np.concatenate([role.given[2] for role in roles]).T
    noise = seen.noise(points, roles[0].result.path, plan)
    assert len(noise) == 2 * rounds
    assert bool(plan.stepping) == (rounds == 6)
    assert dependent({name: side.ravel() for name, side in noise.items()}) == set()
    rows = np.concatenate([side.reshape(plan.k, -1) for side in noise.values()])
    assert dependent(columns("count and columns", rows)) == set()
    assert has_unit_variance(np.stack(list(noise.values())))


def test_an_owner_deals_pieces_of_a_key_with_noise_of_their_own_for_each_round() -> None:
    plan = shared_plan(rounds=6)
    context, scale = Context(plan.encryption), np.full((4, 5), plan.sum_scale)
    scale[:, 0] = plan.count_scale
    bits, secret = plan.scales.wire_bits, SecretRandom()
    party = owner(PartyId(1), plan, np.zeros((1, 60)), lambda t, grid: draw_noise(plan, secret, grid))
    assert isinstance(next(party), Receive)
    effect = party.send(KeyMaterial(KeyShare(context, secret).lead(1 + plan.digits)))
    dealt = []
    while isinstance(effect, Send) and isinstance(effect.message, KeyPiece):
        dealt.append(effect.message.noise * (context.modulus / 2.0**bits) / scale.ravel())
        effect = next(party)
    party.close()
    assert np.shape(dealt) == (2, 6, 20)
    scores = {f"piece {i}, round {t}": dealt[i][t] for i in range(2) for t in range(6)}
    assert dependent(scores) == set()
    assert has_unit_variance(np.ravel(dealt))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_part_of_an_opening_has_noise_of_its_own_in_each_round() -> None:
    plan = shared_plan(rounds=2)
    points, start = vertical_he.blobs(60, 4, 4, seed=1)
    seen = Pieces(plan)
    vertical_he.simulate(plan, points, start, seen.tap)
    noise = seen.noise(Context(plan.encryption).modulus)
    assert len(noise) == 3 * 2
    assert dependent(noise) == set()
    assert has_unit_variance(np.concatenate(list(noise.values())))


@pytest.mark.parametrize("protocol", LLOYDS)
def test_the_servers_noise_is_independent_everywhere(protocol: str) -> None:
    scores = lives_of(server_noise, 48, protocol=protocol, k=2, rounds=3)
    assert len(scores) >= 30
    assert dependent(scores) == set()
    assert has_unit_variance(np.stack(list(scores.values())))


@pytest.mark.parametrize("protocol", LLOYDS)
def test_the_clients_shares_are_independent_everywhere(protocol: str) -> None:
    scores = lives_of(client_noise, 56, protocol=protocol, masking="pairwise", k=2, rounds=2)
    assert len(scores) >= 30
    assert dependent(scores) == set()
    assert has_unit_variance(np.stack(list(scores.values())))


def test_the_shares_of_feddp_are_independent_everywhere() -> None:
    scores = lives_of(feddp_noise, FEDDP_LIVES, protocol="feddp", k=2, rounds=1)
    assert len(scores) >= 30
    assert dependent(scores) == set()
    assert has_unit_variance(np.stack(list(scores.values())))


def test_the_errors_of_a_shared_key_are_independent() -> None:
    secret = SecretRandom()
    drawn = np.stack([draw_error(30, secret) for _ in range(60)])
    assert dependent(columns("error", drawn / math.sqrt(ERROR_VARIANCE))) == set()
