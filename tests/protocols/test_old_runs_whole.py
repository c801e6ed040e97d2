"""A server that gives the id of an earlier run to a new one is refused by every client, whatever the protocol.

The ledger tells releases apart by run, round and name: those of such a run would not be counted again.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fastlloyd.errors import PeerError
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.registry import PROTOCOLS
from fastlloyd.run import simulation as in_memory
from fastlloyd.run.session import Session
from tests.contracts.whole_run import CLIENTS, config

BEFORE = Release(
    round=0, name="sums", mechanism="gaussian", sensitivity=1.0, norm="l2", noise_scale=10.0, unit="1", seen_by="all"
)


COUNTS = {protocol: 1 if protocol == "vertical-he" else CLIENTS.get(protocol, 2) for protocol in PROTOCOLS}
"""Clients of each protocol's run."""


@pytest.mark.parametrize(
    ("protocol", "victim"), [(protocol, rank) for protocol, count in COUNTS.items() for rank in (1, count)]
)
def test_the_id_of_an_earlier_run_is_refused(protocol: str, victim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_a_past(**given: Any) -> Session:
        session = Session(**given)
        if session.me.rank == victim:
            session.ledger.record([dataclasses.replace(BEFORE, run=session.run_id.hex())])
        return session

    monkeypatch.setattr(in_memory, "Session", with_a_past)
    with pytest.raises(PeerError, match="id of an earlier run") as caught:
        in_memory.run_together(config(protocol), COUNTS[protocol])
    assert caught.value.rank == 0
