"""Rounds whose vectors differ in length: one of them is a histogram, of as many counts as it has cells."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fastlloyd.party.plain_plan as plan_module
import fastlloyd.protocol.horizontal as horizontal
from fastlloyd.errors import ConfigError, PeerError
from fastlloyd.lifecycle.masked_sums import GlobalMsa, MaskedUpdate, NoisyMaskedSum, bounds, server
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import NO_HISTORY, MaskGenerator, Masks
from fastlloyd.masking.pairwise import PairSecrets
from fastlloyd.party.effects import Party
from fastlloyd.privacy.accountant import spent
from fastlloyd.protocol.masked import payload_line
from fastlloyd.protocols.fastlloyd.plan import MOST_CELLS, Outline, Plan, check_plan, make_plan
from fastlloyd.protocols.fastlloyd.protocol import round_lines
from fastlloyd.protocols.fastlloyd.rounds import draw_noise, draw_share
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.config import RunConfig
from fastlloyd.run.session import find_protocol
from fastlloyd.run.simulation import Simulation, Tap, run_together
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.protocols.support import RUN_ID, blobs, common_masks, pairwise_masks, parameters, plan_for

ONE, TWO, THREE = clients(3)
CELLS = 50
LENGTHS = (CELLS, 9, 9)
Vectors = Mapping[tuple[PartyId, int], NDArray[np.int64]]


def planned(cells: int = CELLS, *, at: int = 0, **changes: Any) -> Plan:
    """A plan of three rounds for three clients, three clusters and two features, one round of which is a histogram."""
    plan = plan_for(blobs(90, 3, 2), 3, **{"rounds": 3, "clients": 3, **changes})
    rounds = list(plan.rounds)
    rounds[at] = dataclasses.replace(rounds[at], radius=None, sum_scale=0.0, cells=cells)
    return dataclasses.replace(plan, rounds=tuple(rounds))


def fixed_masks(plan: Plan) -> Mapping[PartyId, Masks]:
    """The masks of each client, as a state directory would keep them; made of no round's length."""
    if plan.masking == "common":
        return common_masks(plan.clients, b"s" * 32)
    everybody = clients(plan.clients)
    return pairwise_masks(
        {
            me: PairSecrets(me, {other: bytes([me.rank ^ other.rank]) * 32 for other in everybody if other != me})
            for me in everybody
        }
    )


def add_up(
    me: PartyId, plan: Plan, own: Vectors, shares: Vectors, stored: StoredRounds
) -> Party[list[tuple[list[int], tuple[PartyId, ...]]]]:
    """One client that has a vector for each round; gives the noisy sums and whose vectors are in them."""
    share = (lambda t: shares[me, t]) if plan.masking == "pairwise" else None
    msa = GlobalMsa(me, plan, fixed_masks(plan)[me], share=share, stored=stored)
    found = []
    for t in range(len(plan.rounds)):
        noisy, among = yield from msa.add_up(t, functools.partial(own.__getitem__, (me, t)))
        found.append((noisy.tolist(), among))
    return found


def vectors(plan: Plan, seed: int) -> Vectors:
    """A vector for each party and round, the server's included, of that round's length."""
    rng = np.random.default_rng(seed)
    return {
        (party, t): rng.integers(-(1 << 20), 1 << 20, plan.elements(t))
        for party in (SERVER, *clients(plan.clients))
        for t in range(len(plan.rounds))
    }


def play(
    plan: Plan,
    own: Vectors,
    noise: Vectors,
    *,
    tap: Tap | None = None,
    replies: Mapping[int, bytes] | None = None,
    stored: Mapping[PartyId, StoredRounds] | None = None,
) -> tuple[dict[PartyId, Any], Simulation]:
    """Run server and clients; the server's noise is zero where the clients add it."""
    kept = dict(stored or {})
    add = 1 if plan.masking == "common" else 0
    done = {party: len(each.replies) for party, each in kept.items()}
    fixed = StoredRounds(replies=replies or {}, clients_done=done)
    simulation = Simulation(
        {
            SERVER: server(plan, lambda t: add * noise[SERVER, t], stored=fixed),
            **{me: add_up(me, plan, own, noise, kept.get(me, StoredRounds())) for me in clients(plan.clients)},
        },
        tap,
    )
    return simulation.run(), simulation


def expected(plan: Plan, own: Vectors, noise: Vectors, among: list[tuple[PartyId, ...]]) -> list[Any]:
    """Sums without masks."""
    found = []
    for t, present in enumerate(among):
        adding = (SERVER,) if plan.masking == "common" else present
        parts = [own[party, t] for party in present] + [noise[party, t] for party in adding]
        found.append((sum(parts[1:], parts[0]).tolist(), present))
    return found


@pytest.mark.parametrize("masking", ["common", "pairwise"])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(("at", "cells"), [(0, CELLS), (0, 1), (1, 700), (2, 8)])
def test_masks_of_every_length_come_off(masking: str, bits: int, at: int, cells: int) -> None:
    plan = planned(cells, at=at, masking=masking, ring_bits=bits)
    assert [plan.elements(t) for t in range(3)] == [cells if t == at else 9 for t in range(3)]
    own, noise = vectors(plan, 1), vectors(plan, 2)
    sent = dict.fromkeys(range(3), 0)

    def tap(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes:
        if header.type == MaskedUpdate.TYPE:
            sent[header.round] += len(body)
            assert body != own[sender, header.round].astype(Ring(bits).dtype).tobytes()
        return body

    results, simulation = play(plan, own, noise, tap=tap)
    for me in clients(3):
        assert results[me] == expected(plan, own, noise, [clients(3)] * 3)
        assert tuple(simulation.releases[me]) == plan.all_releases()
    assert sent == {t: 3 * plan.elements(t) * bits // 8 for t in range(3)}


@pytest.mark.parametrize("missed", [0, 1])
def test_a_client_that_misses_a_round_costs_its_vector_only(missed: int) -> None:
    plan = planned(min_clients=2)
    own, noise = vectors(plan, 3), vectors(plan, 4)

    def tap(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes | None:
        return None if sender == TWO and (header.type, header.round) == (MaskedUpdate.TYPE, missed) else body

    among = [(ONE, THREE) if t == missed else clients(3) for t in range(3)]
    results, _ = play(plan, own, noise, tap=tap)
    assert all(results[me] == expected(plan, own, noise, among) for me in clients(3))


@pytest.mark.parametrize("masking", ["common", "pairwise"])
@pytest.mark.parametrize("fixed", [1, 2], ids=["after the histogram", "a round later"])
@pytest.mark.parametrize("behind", [0, 1], ids=["together", "one client is behind"])
def test_a_resume_between_rounds_gives_the_same_sums(masking: str, fixed: int, behind: int) -> None:
    plan = planned(masking=masking)
    own, noise = vectors(plan, 5), vectors(plan, 6)
    before, whole = play(plan, own, noise)
    stored = {
        me: StoredRounds(
            uplinks={t: whole.saved[me, f"uplink-{t}"] for t in range(fixed)},
            replies={t: whole.saved[me, f"reply-{t}"] for t in range(fixed - behind * (me == TWO))},
            server_done=fixed,
        )
        for me in clients(3)
    }
    replies = {t: whole.saved[SERVER, f"reply-{t}"] for t in range(fixed)}
    # What was sent is not made again: there are no vectors of the rounds that are fixed, and other noise would show.
    rest = {key: vector for key, vector in own.items() if key[1] >= fixed}
    other = {key: vector + (key[1] < fixed) * 10**6 for key, vector in noise.items()}
    again, resumed = play(plan, rest, other, replies=replies, stored=stored)
    assert again == before
    assert resumed.saved[ONE, "uplink-2"] == whole.saved[ONE, "uplink-2"]


@pytest.mark.parametrize("masking", ["common", "pairwise"])
@pytest.mark.parametrize("t", [0, 1, 2])
@pytest.mark.parametrize(
    ("kind", "sender", "width"), [(MaskedUpdate, TWO, 0), (NoisyMaskedSum, SERVER, 1)], ids=["update", "reply"]
)
def test_the_length_of_another_round_is_the_senders_fault(
    masking: str, t: int, kind: type[Any], sender: PartyId, width: int
) -> None:
    plan = planned(masking=masking)
    other = 9 if t == 0 else CELLS

    def tap(party: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes:
        lies = (party, header.type, header.round) == (sender, kind.TYPE, t)
        return body[:width] + bytes(4 * other) if lies else body

    said = f"{sender} sent a malformed {kind.__name__}: expected {4 * LENGTHS[t]} payload bytes, got {4 * other}"
    with pytest.raises(PeerError, match=said) as caught:
        play(plan, vectors(plan, 7), vectors(plan, 8), tap=tap)
    assert caught.value.rank == sender.rank


@pytest.mark.parametrize("name", ["uplink", "reply"])
def test_a_stored_vector_of_another_length_is_refused(name: str) -> None:
    plan = planned()
    own, noise = vectors(plan, 9), vectors(plan, 10)
    _, whole = play(plan, own, noise)
    wrong = {0: whole.saved[ONE, f"{name}-1"]}
    stored = StoredRounds(uplinks=wrong) if name == "uplink" else StoredRounds(replies=wrong, server_done=1)
    with pytest.raises(ConfigError, match=f"the stored {name}-0 is damaged .expected 200 payload bytes, got 36"):
        play(plan, own, noise, stored={ONE: stored})


def test_common_masks_of_one_round_are_independent_and_another_shape_is_another_cut() -> None:
    masks = MaskGenerator(b"s" * 32, Ring(32), 9, RUN_ID)
    wide = masks.shaped(Ring(32), 700)
    assert [wide.mask(0, me, NO_HISTORY).shape for me in clients(3)] == [(700,)] * 3
    assert masks.mask(0, ONE, NO_HISTORY).shape == (9,), "shaping leaves the masks as they were"
    direct = MaskGenerator(b"s" * 32, Ring(32), 700, RUN_ID)
    for me in clients(3):
        assert (wide.mask(0, me, NO_HISTORY) == direct.mask(0, me, NO_HISTORY)).all()
    total = sum(wide.mask(0, me, NO_HISTORY) for me in (ONE, THREE))
    assert (wide.total(0, (ONE, THREE), NO_HISTORY) == total).all()


# -- noise --


@pytest.mark.parametrize("changes", [{}, {"protocol": "sulloyd"}, {"masking": "pairwise"}], ids=str)
def test_a_histogram_has_the_noise_of_its_counts_on_each_cell(changes: dict[str, Any]) -> None:
    plan, secret = planned(4000, ring_bits=64, **changes), SecretRandom()

    def shared(plan: Plan, t: int, secret: SecretRandom) -> NDArray[np.int64]:
        return draw_share(plan, t, plan.share, secret)

    draw, other, more = (draw_noise, shared, 1.0) if "masking" not in changes else (shared, draw_noise, 2**-0.5)
    laplace = 2**0.5 if changes.get("protocol") else 1.0
    drawn = [draw(plan, t, secret) for t in range(3)]
    assert [each.shape for each in drawn] == [(4000,), (9,), (9,)]
    # Eight deviations of what 4,000 draws may show.
    assert drawn[0].std() == pytest.approx(plan.rounds[0].count_scale * more * laplace, rel=0.15)
    assert [other(plan, t, secret).any() for t in range(3)] == [False] * 3
    assert [other(plan, t, secret).size for t in range(3)] == [4000, 9, 9]
    sums, counts = plan.noise_deviations(0)
    assert sums == 0.0 < counts


@pytest.mark.parametrize(
    ("ready", "rounds"),
    [(1, [1, 1, 1]), (CELLS + 8, [1, 2, 1]), (CELLS + 9, [2, 2, 1]), (CELLS + 18, [3, 2, 1])],
)
def test_what_is_made_ahead_fits_the_memory_set_aside(
    monkeypatch: pytest.MonkeyPatch, ready: int, rounds: list[int]
) -> None:
    monkeypatch.setattr(plan_module, "_READY_ELEMENTS", ready)
    plan = planned()
    assert [plan.rounds_ahead(t) for t in range(4)] == [
        *(range(t, t + count) for t, count in enumerate(rounds)),
        range(3, 3),
    ]


# -- the plan --


@pytest.mark.parametrize("changes", [{}, {"protocol": "sulloyd"}, {"masking": "pairwise"}], ids=str)
def test_a_histogram_is_one_release(changes: dict[str, Any]) -> None:
    plan = planned(**changes)
    (release,) = plan.releases(0)
    counts = plan.releases(1)[1]
    same = dataclasses.replace(counts, name="histogram", round=0)
    assert release == same and release.sensitivity == 1 << plan.fraction_bits
    assert len(plan.all_releases()) == 5
    assert plan.noise_price >= 1.0
    assert spent(plan.all_releases(), plan.delta) < plan.epsilon, "one release less, of the same noise"


def test_bounds_are_those_of_the_longest_round() -> None:
    plan = planned(at=1)
    assert bounds(plan).sizes[MaskedUpdate.TYPE] == 4 * CELLS
    assert bounds(plan).sizes[NoisyMaskedSum.TYPE] == 4 * CELLS + 1
    assert bounds(planned(2)).sizes[MaskedUpdate.TYPE] == 4 * 9


@pytest.mark.parametrize(("cells", "fine"), [(0, True), (MOST_CELLS, True), (MOST_CELLS + 1, False), (-1, False)])
def test_cells_are_read_strictly(cells: int, fine: bool) -> None:
    plan = planned(cells)
    if fine:
        assert Plan.from_json(plan.to_json()) == plan
        return
    with pytest.raises(ValueError, match=r"plan.rounds\[0\].cells: expected a whole number from 0 to 1048576, got"):
        Plan.from_json(plan.to_json())


@pytest.mark.parametrize("cells", [True, 3.0, "3", None])
def test_cells_are_an_integer(cells: Any) -> None:
    values = plan_for(blobs(90, 3, 2), 3, rounds=3).to_json()
    values["rounds"][1]["cells"] = cells
    with pytest.raises(ValueError, match=r"rounds\[1\].cells: expected a whole number"):
        Plan.from_json(values)


def test_a_plan_without_cells_is_refused() -> None:
    values = plan_for(blobs(90, 3, 2), 3, rounds=3).to_json()
    del values["rounds"][2]["cells"]
    with pytest.raises(ValueError, match=r"rounds\[2\]: expected the fields .*cells"):
        Plan.from_json(values)


@pytest.mark.parametrize("protocol", ["fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "lloyd"])
def test_a_client_refuses_cells_that_its_configuration_does_not_give(protocol: str) -> None:
    public = parameters(90, 3, protocol=protocol, rounds=4)
    plan = make_plan(public, d=2, names=("x1", "x2"))
    check_plan(plan, public, d=2, names=plan.names)
    rounds = (*plan.rounds[:2], dataclasses.replace(plan.rounds[2], cells=16), plan.rounds[3])
    with pytest.raises(ValueError, match="the plan has 16 cells in round 2, expected 0"):
        check_plan(dataclasses.replace(plan, rounds=rounds), public, d=2, names=plan.names)


@pytest.mark.parametrize("protocol", ["fastlloyd", "glloyd", "sulloyd"])
def test_a_configuration_that_asks_for_a_histogram(monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    monkeypatch.setattr(Outline, "cells", lambda outline, t: 16 if t == 1 else 0)
    public = parameters(90, 3, protocol=protocol, rounds=3)
    plan = make_plan(public, d=2, names=("x1", "x2"))
    first, second, third = plan.rounds
    assert (second.radius, second.sum_scale) == (None, 0.0)
    assert [planned.cells for planned in plan.rounds] == [0, 16, 0]
    assert first.count_scale == second.count_scale == third.count_scale > 0.0
    assert 0.99 < check_plan(plan, public, d=2, names=plan.names) <= 1.0
    for change, text in (
        ({"cells": 0}, "the plan has 0 cells in round 1, expected 16"),
        ({"cells": 17}, "the plan has 17 cells in round 1, expected 16"),
        ({"sum_scale": 1.0}, "the plan has noise on sums in round 1, expected none"),
        ({"radius": 5}, "the plan has the radius 5 in round 1, expected none"),
        ({"count_scale": 0.9 * second.count_scale}, "spends epsilon"),
    ):
        other = dataclasses.replace(plan, rounds=(first, dataclasses.replace(second, **change), third))
        with pytest.raises(ValueError, match=text):
            check_plan(other, public, d=2, names=plan.names)


def test_what_a_plan_says_of_a_histogram() -> None:
    plan = planned(1234, at=1)
    assert str(payload_line(plan)) == "payload: 216 bytes a round, 29,616 in round 2, all parties together"
    count = plan.rounds[1].count_scale / (1 << plan.fraction_bits)
    lines = round_lines(plan)
    assert str(lines[1]) == f"  round 2: histogram of 1,234 cells, noise on a count {count:.3g}"
    shared = planned(1234, at=1, masking="pairwise")  # three shares, of which two count
    count = shared.rounds[1].count_scale / (1 << shared.fraction_bits)
    assert round_lines(shared)[1].text == f"histogram of 1,234 cells, noise on a count {1.5**0.5 * count:.3g}"
    assert [line.name for line in lines] == ["  round 1", "  round 2", "  round 3"]
    plain = plan_for(blobs(90, 3, 2), 3, rounds=3)
    assert str(payload_line(plain)) == "payload: 144 bytes a round, all parties together"
    survey = plan_for(blobs(90, 3, 2), 3, rounds=3, protocol="fastlloyd-plus", settings={"start": "survey"})
    noise = 100 * survey.rounds[0].sum_scale / (1 << survey.fraction_bits) / survey.n_total / 2
    said = f"on a coordinate of their middle {noise:.2f} % of the feature's range"
    assert round_lines(survey)[0].text.endswith(said)
    first, others = round_lines(plain)
    assert (first.name, others.name) == ("  round 1", "  rounds 2 to 3, each")
    assert first.text.startswith("radius ") and others.text.startswith("radius ")


@pytest.mark.parametrize("protocol", ["fastlloyd", "fastlloyd-plus", "lloyd", "describe"])
def test_a_run_whose_message_no_link_can_carry_is_refused_by_its_plan(protocol: str) -> None:
    """The largest number of clusters that the refusal names goes, one more does not."""
    described = {
        "columns": json.dumps([{"name": f"c{at}", "lo": 0, "hi": 1, "bins": 100} for at in range(200)]),
        "run": "00",
    }
    own = {"settings": {"describe": described}} if protocol == "describe" else {}
    config = RunConfig(
        protocol=protocol,
        bounds="0,1",
        n_total=10**6,
        ring_bits=64,
        epsilon=90.0,
        rounds=None,
        masking="threshold",
        **own,
    )
    d = 2 if protocol == "describe" else 20_000
    planned = find_protocol(protocol).planned
    with pytest.raises(
        ConfigError, match=r"10,000 clusters make a message of [\d,]+ bytes .* at most [\d,]+ clusters"
    ) as refused:
        planned(dataclasses.replace(config, k=10_000), 4, d)
    most = int(re.findall(r"at most ([\d,]+) clusters", str(refused.value))[0].replace(",", ""))
    assert planned(dataclasses.replace(config, k=most), 4, d).k == most
    with pytest.raises(ConfigError, match="at most"):
        planned(dataclasses.replace(config, k=most + 1), 4, d)


def test_the_server_refuses_such_a_run_before_it_sends_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horizontal, "MOST_MESSAGE_BYTES", 100)
    config = RunConfig(dataset="iris", bounds="0,8", k=12)
    with pytest.raises(ConfigError, match="12 clusters make a message of"):
        run_together(config, 3)
