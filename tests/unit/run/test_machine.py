from __future__ import annotations

from fastlloyd.crypto.link.identity import make_identity
from fastlloyd.report.announcer import Announcer
from fastlloyd.run.config import RunConfig
from fastlloyd.run.machine import CostKeeper
from fastlloyd.run.outcome import Cost
from fastlloyd.run.session import Session
from fastlloyd.wire.header import SERVER, SETUP_ROUND, PartyId, clients


def progress(resumed: bool) -> tuple[CostKeeper, Session]:
    """Return what notes the rounds of client 1 of two."""
    me = PartyId(1)
    session = Session(
        me=me,
        everybody=clients(2),
        config=RunConfig(),
        inputs=None,
        identity=make_identity(str(me), me.rank),
        stored={"run_id": "00"} if resumed else {},
    )
    session.meter.sent[SERVER, SETUP_ROUND].add(3, 0, 4711)
    return CostKeeper(session, Announcer(me, quiet=True)), session


def test_a_round_of_several_messages_costs_all_of_them() -> None:
    told, session = progress(resumed=False)
    meter = session.meter
    for round_, messages in enumerate([(0, 1, 2), (3,), (4, 5)]):
        for message in messages:
            meter.sent[SERVER, message].add(1, 8, 10)
            meter.received[SERVER, message].add(1, 0, 1)
        meter.received[PartyId(2), messages[-1]].add(1, 0, 100)
        told.publish("round", {"round": round_, "seconds": 0.5})
    assert session.round_costs == [Cost(0.5, 30, 103), Cost(0.5, 10, 101), Cost(0.5, 20, 102)]


def test_a_round_that_an_earlier_life_has_done_has_no_cost_in_this_one() -> None:
    for resumed, first in ((True, Cost(None, None, None)), (False, Cost(0.25, 0, 0))):
        told, session = progress(resumed)
        meter = session.meter
        told.publish("round", {"round": 0, "seconds": 0.25})
        meter.received[SERVER, 1].add(1, 0, 96)
        told.publish("round", {"round": 1, "seconds": 0.5})
        assert session.round_costs == [first, Cost(0.5, 0, 96)]
