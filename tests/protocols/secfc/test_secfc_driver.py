"""SecFC with deadlines: a thread and links of its own for each party; clients that are late, or whose process ends."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.net.link.control import Ending
from fastlloyd.party.effects import Party, Send
from fastlloyd.protocols.secfc.messages import CodedValues, Finished
from fastlloyd.protocols.secfc.reference import reference
from fastlloyd.report.announcer import Announcer
from fastlloyd.run.config import RunConfig
from fastlloyd.run.execute import execute
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.net.memory import MemoryNetwork
from tests.protocols.secfc.support import Watch
from tests.protocols.whole import LIMIT_S

SLACK = {"segments": 1, "threshold": 1, "reveal_centers": True, "start": "random", "starts": 1}
Change = Callable[[Party[Any]], Party[Any]]


class Died(BaseException):
    """The process of a client ended, and nobody agreed on it."""


def changed(party: Party[Any], change: Callable[[Send], list[Send]]) -> Party[Any]:
    """Drive a client, with other sends in the place of its own."""
    answer = None
    while True:
        try:
            effect = party.send(answer)
        except StopIteration as end:
            return end.value
        if isinstance(effect, Send):
            answer = None
            yield from change(effect)
        else:
            answer = yield effect


def dies(party: Party[Any]) -> Party[Any]:
    """Drive a client until it would answer in round 1."""

    def change(effect: Send) -> list[Send]:
        if isinstance(effect.message, CodedValues) and effect.round == 1:
            raise Died
        return [effect]

    return changed(party, change)


class Late:
    """Sends all its answers when the last round is over."""

    def __init__(self) -> None:
        self.held: list[Send] = []

    def __call__(self, party: Party[Any]) -> Party[Any]:
        return changed(party, self._change)

    def _change(self, effect: Send) -> list[Send]:
        if isinstance(effect.message, CodedValues):
            self.held.append(effect)
            return []
        return [*self.held, effect] if isinstance(effect.message, Finished) else [effect]


@dataclass
class Played:
    """How all parties ended, None for one that died, and what their roles came to."""

    endings: dict[PartyId, Ending | None]
    watch: Watch

    @property
    def expected(self) -> NDArray[np.int64]:
        """The labels of the reference, from all points as they were shared."""
        points = np.concatenate([self.watch.own[party] for party in self.watch.plan.everybody])
        return reference(points, self.watch.plan)[-1]


def play(folder: Path, n_clients: int, changes: dict[PartyId, Change], **settings: Any) -> Played:
    """Run all parties, each to its exit code."""
    network, everybody = MemoryNetwork(n_clients + 1), (SERVER, *clients(n_clients))

    class Changed(Watch):
        def client(self, me: PartyId, *given: Any, **named: Any) -> Party[Any]:
            party = super().client(me, *given, **named)
            return changes[me](party) if me in changes else party

    def one(me: PartyId) -> Ending | None:
        config = RunConfig(
            protocol="secfc",
            dataset="iris",
            bounds="0,10",
            k=3,
            settings={"secfc": settings},
            output=str(folder / str(me.rank)),
            deadline=LIMIT_S,
            setup_deadline=LIMIT_S,
        )
        try:
            with network.endpoint(me) as transport:
                return execute(config, transport, Announcer(me, quiet=True))
        except Died:
            return None

    with Changed() as watch, ThreadPoolExecutor(len(everybody)) as pool:
        return Played(dict(zip(everybody, pool.map(one, everybody), strict=True)), watch)


def test_the_server_goes_on_with_the_first_answers_and_drops_late_ones(tmp_path: Path) -> None:
    # Client 2's answers of all rounds come when the server has those of the last.
    late = Late()
    played = play(tmp_path, 5, {PartyId(2): late}, **SLACK)
    assert [ending.code for ending in played.endings.values()] == [0] * 6
    results = played.watch.results
    for party in clients(5):
        assert (results[party].labels == played.expected).all()
        assert np.isfinite(results[party].centers).all()
    # Two messages for each iteration with three clusters, and that there are no more.
    assert len(late.held) == 2 * len(results[SERVER].included) + 1 and results[SERVER].late == frozenset()
    assert not any(PartyId(2) in included for included in results[SERVER].included)


@pytest.mark.parametrize("dying", [1, 5])
def test_a_client_that_dies_after_sharing_costs_nothing_but_its_labels(tmp_path: Path, dying: int) -> None:
    played = play(tmp_path, 5, {PartyId(dying): dies}, **SLACK)
    results = played.watch.results
    assert PartyId(dying) not in results and results[SERVER].late == {PartyId(dying)}
    for party in clients(5):
        if party.rank != dying:
            assert played.endings[party].code == 0
            assert (results[party].labels == played.expected).all()
            assert np.isfinite(results[party].centers).all()
    assert played.endings[PartyId(dying)] is None


def test_a_client_that_dies_without_slack_is_named(tmp_path: Path) -> None:
    played = play(tmp_path, 3, {PartyId(3): dies})
    for party in (SERVER, *clients(2)):
        assert (played.endings[party].code, played.endings[party].rank) == (3, 3)
