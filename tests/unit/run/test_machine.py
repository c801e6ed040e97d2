from __future__ import annotations

from fastlloyd.net.meter import Meter
from fastlloyd.report.announcer import Announcer
from fastlloyd.run.config import RunConfig
from fastlloyd.run.machine import CostKeeper
from fastlloyd.run.outcome import Cost, Facts
from fastlloyd.wire.header import SERVER, SETUP_ROUND, PartyId, clients


def progress(resumed: bool) -> tuple[CostKeeper, Facts, Meter]:
    """Return what notes the rounds of client 1 of two."""
    config, me, meter = RunConfig(), PartyId(1), Meter()
    facts = Facts(
        config=config, common=None, run_id=b"", authenticated=False, started=0.0, me=me, resumed=resumed, carrier="x"
    )
    meter.sent[SERVER, SETUP_ROUND].add(3, 0, 4711)
    return CostKeeper(facts, meter, Announcer(me, quiet=True), clients(2)), facts, meter


def test_a_round_of_several_messages_costs_all_of_them() -> None:
    told, facts, meter = progress(resumed=False)
    for round_, messages in enumerate([(0, 1, 2), (3,), (4, 5)]):
        for message in messages:
            meter.sent[SERVER, message].add(1, 8, 10)
            meter.received[SERVER, message].add(1, 0, 1)
        meter.received[PartyId(2), messages[-1]].add(1, 0, 100)
        told.publish("round", {"round": round_, "seconds": 0.5})
    assert facts.round_costs == [Cost(0.5, 30, 103), Cost(0.5, 10, 101), Cost(0.5, 20, 102)]


def test_a_round_that_an_earlier_life_has_done_has_no_cost_in_this_one() -> None:
    for resumed, first in ((True, Cost(None, None, None)), (False, Cost(0.25, 0, 0))):
        told, facts, meter = progress(resumed)
        told.publish("round", {"round": 0, "seconds": 0.25})
        meter.received[SERVER, 1].add(1, 0, 96)
        told.publish("round", {"round": 1, "seconds": 0.5})
        assert facts.round_costs == [first, Cost(0.5, 0, 96)]
