"""Every party of vertical-he has written a release down before anything of it can leave; see `Plan.charged`."""

from __future__ import annotations

import pytest

pytest.importorskip("tenseal")

from fastlloyd.protocols.vertical_he.math.workers import make_engine
from fastlloyd.protocols.vertical_he.messages import EncryptedBlock, NoisySamples, NoisySums, PartialOpenings
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.run.simulation import Simulation
from fastlloyd.wire.header import Header, PartyId
from tests.protocols.vertical_he.support import blobs, columns_of, make_parties, names, parameters

OPENING = (NoisySamples.TYPE, NoisySums.TYPE, PartialOpenings.TYPE)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("widths", "settings", "parties"),
    [
        pytest.param((1, 1), {"scheme": "linear"}, 2, id="two parties"),
        pytest.param((1, 1), {"scheme": "linear", "tolerance": 1e-9}, 2, id="a tolerance"),
        pytest.param((1, 1), {"mode": "server-aided"}, 3, id="server-aided", marks=pytest.mark.slow),
        pytest.param((1, 1, 1), {"mode": "threshold"}, 3, id="all open", marks=pytest.mark.slow),
        pytest.param(
            (1, 1, 1, 1), {"mode": "threshold", "threshold": 3}, 4, id="three of four open", marks=pytest.mark.slow
        ),
    ],
)
def test_what_leaves_is_in_its_senders_ledger(widths: tuple[int, ...], settings: dict, parties: int) -> None:
    plan = make_plan(parameters(60, 2, parties=parties, rounds=2, **settings), names(*widths))
    points, start = blobs(60, 2, sum(widths), seed=1)
    seen: set[int] = set()

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        own = {release.round for release in simulation.releases[sender]}
        if header.type == EncryptedBlock.TYPE:
            # Others open while an owner only waits, unless nobody opens without it.
            alone = bool(plan.openers) and plan.threshold == plan.parties
            waits = sender.rank not in (plan.computing, plan.holder) and not alone
            assert not waits or own == set(range(plan.rounds))
            seen.add(header.type)
        if header.type in OPENING and plan.columns(sender.rank):
            assert header.round in own and (plan.tolerance == 0.0 or own == set(range(plan.rounds)))
            seen.add(header.type)
        return body

    engine = make_engine(plan, columns_of(plan, points, plan.computing))
    simulation = Simulation(make_parties(plan, points, engine, start), tap)
    simulation.run()
    assert {EncryptedBlock.TYPE, NoisySums.TYPE} <= seen
    for rank in plan.owners:
        assert len(simulation.releases[PartyId(rank)]) == len(plan.all_releases())
