"""SecFC over the driver with its deadlines: a thread for each party, messages through a transport in memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from fastlloyd.errors import PeerError
from fastlloyd.life.seed import agree_seed
from fastlloyd.net.meter import Meter
from fastlloyd.party.effects import Party, Send
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.protocols.secfc.client import client
from fastlloyd.protocols.secfc.math.turn import draw_rotation, rotate
from fastlloyd.protocols.secfc.messages import CodedValues
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.protocols.secfc.reference import reference
from fastlloyd.protocols.secfc.server import server
from fastlloyd.protocols.secfc.sharing import await_shared, share_points
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.driver import Deadlines, Driver
from fastlloyd.run.host import Host
from fastlloyd.wire.header import SERVER, Header, PartyId
from tests.net.memory import MemoryNetwork
from tests.protocols.secfc.support import RUN_ID, mixture, plan_for

POINTS = mixture(60, 3, 4, seed=11)


class Plain:
    """Links without encryption."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def send(self, peer: PartyId, message: bytes, *, payload_bytes: int, round: int) -> None:
        self._transport.send(peer, message)

    def receive(self, timeout_s: float) -> tuple[PartyId, bytes] | None:
        return self._transport.receive(timeout_s)


class Died(Exception):
    """The process of a client ended."""


def dies(party: Party[Any], round_: int) -> Party[Any]:
    """Drive a client until it would answer in a round."""
    answer = None
    while True:
        try:
            effect = party.send(answer)
        except StopIteration as end:
            return end.value
        if isinstance(effect, Send) and isinstance(effect.message, CodedValues) and effect.round == round_:
            raise Died
        answer = yield effect


def play(
    plan: Plan, network: MemoryNetwork, dying: PartyId | None = None, deadline_s: float = 20.0
) -> tuple[dict[PartyId, Any], np.ndarray]:
    """Run all parties; gives results, or the exception of each, and all points as shared."""
    parts = np.array_split(np.arange(len(POINTS)), plan.clients)
    shared: dict[PartyId, np.ndarray] = {}

    def one(me: PartyId):
        seed = yield from agree_seed(me, plan.everybody, run_id=RUN_ID, context=b"", secret=SecretRandom())
        rotation = draw_rotation(plan.d, seed=seed, run_id=RUN_ID)
        points = rotate(POINTS[parts[me.rank - 1]], rotation, plan.fraction_bits)
        shared[me] = points.raw_coordinates.T
        shares = yield from share_points(me, points, plan, run_id=RUN_ID, secret=SecretRandom())
        return (yield from client(me, shares, points, plan, rotation=rotation, seed=seed, run_id=RUN_ID))

    def serve():
        records = yield from await_shared(plan)
        return (yield from server(plan, records))

    def run(me: PartyId) -> Any:
        party = serve() if me == SERVER else dies(one(me), 1) if me == dying else one(me)
        endpoint = network.endpoint(me)
        deadlines = Deadlines(setup_s=20.0, round_s=deadline_s)
        driver = Driver(me, Plain(endpoint), Meter(), deadlines, Host(Ledger(None), run_id=RUN_ID))
        try:
            result = driver.drive(party)
        except (Died, PeerError) as error:
            endpoint.close(lost=True)
            return error
        return result

    everybody = (SERVER, *plan.everybody)
    with ThreadPoolExecutor(max_workers=len(everybody)) as pool:
        results = dict(zip(everybody, pool.map(run, everybody), strict=True))
    return results, np.concatenate([shared[party] for party in plan.everybody])


def test_the_server_goes_on_with_the_first_answers_and_drops_late_ones() -> None:
    # Client 2's answer of each round comes when the server already has those of the next.
    held: list[bytes] = []

    def tap(sender, receiver, frame):
        if sender == PartyId(2) and receiver == SERVER and Header.decode(frame).type == CodedValues.TYPE:
            held.append(frame)
            return None
        if sender == PartyId(2) and receiver == SERVER and held:
            return [*held, frame]
        return frame

    plan = plan_for(60, 4, 3, clients=5, settings={"segments": 1, "threshold": 1, "reveal_centers": True})
    results, points = play(plan, MemoryNetwork(6, tap=tap))
    expected = reference(points, plan)[-1]
    for party in plan.everybody:
        assert (results[party].labels == expected).all()
        assert np.isfinite(results[party].centers).all()
    # Two messages for each iteration with three clusters, and that there are no more.
    assert len(held) == 2 * len(results[SERVER].included) + 1 and results[SERVER].late == frozenset()
    assert not any(PartyId(2) in included for included in results[SERVER].included)


@pytest.mark.parametrize("dying", [1, 5])
def test_a_client_that_dies_after_sharing_costs_nothing_but_its_labels(dying: int) -> None:
    plan = plan_for(60, 4, 3, clients=5, settings={"segments": 1, "threshold": 1, "reveal_centers": True})
    results, points = play(plan, MemoryNetwork(6), PartyId(dying))
    assert isinstance(results[PartyId(dying)], Died)
    assert results[SERVER].late == {PartyId(dying)}
    expected = reference(points, plan)[-1]
    for party in plan.everybody:
        if party.rank != dying:
            assert (results[party].labels == expected).all()
            assert np.isfinite(results[party].centers).all()


def test_a_client_that_dies_without_slack_is_named() -> None:
    plan = plan_for(60, 4, 3, clients=3)
    results, _ = play(plan, MemoryNetwork(4), PartyId(3))
    assert isinstance(results[SERVER], PeerError) and results[SERVER].rank == 3
