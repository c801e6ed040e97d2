"""Rounds of masked sums that crash anywhere and resume: one vector per mask, one reply per round, releases first.

Parties run in any order and stop after any of their steps. What one has saved or recorded by then is what it has in its
next life. Deterministic: each schedule comes from its number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from fastlloyd.kmeans.grid import quantise
from fastlloyd.lifecycle.masked_sums import server as fastlloyd_server
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.lifecycle.threshold.client import ClientOpening, ThresholdMasks, read_decisions
from fastlloyd.lifecycle.threshold.messages import SetVotes
from fastlloyd.lifecycle.threshold.returning import Returned, come_back, relay_states
from fastlloyd.lifecycle.threshold.server import ServerOpening
from fastlloyd.masking.threshold.secrets import ClientSecrets
from fastlloyd.party.effects import Gather, Party, Receive, Record, Save, Send
from fastlloyd.party.message import recall
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.fastlloyd.client import client as fastlloyd_client
from fastlloyd.protocols.fastlloyd.rounds import draw_noise, draw_share
from fastlloyd.protocols.feddp.client import client as feddp_client
from fastlloyd.protocols.feddp.client import draw_share as draw_feddp_share
from fastlloyd.protocols.feddp.server import server as feddp_server
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.checks import _mismatch, refuse_behind, refuse_forgetful_server
from fastlloyd.wire.header import SERVER, SETUP_ROUND, PartyId, clients
from tests.dealt import deal, fixed
from tests.protocols import support
from tests.protocols.feddp import support as feddp

M = 3
MakeParty = Callable[[PartyId, StoredRounds, dict[str, bytes]], Party[Any]]


class Lives:
    """All lives of a run's parties, with their disks and their ledgers."""

    def __init__(self, make: MakeParty, plan: Any, number: int, *, ahead: bool) -> None:
        self._make, self._plan, self._releases, self._ahead = make, plan, plan.releases, ahead
        self._rng = np.random.default_rng(number)
        self.disks: dict[PartyId, dict[str, bytes]] = {party: {} for party in (SERVER, *clients(M))}
        self._ledgers: dict[PartyId, set[Release]] = {party: set() for party in self.disks}
        self._copies: dict[PartyId, list[tuple[dict[str, bytes], set[Release]]]] = {party: [] for party in clients(M)}
        self.sent: dict[tuple[PartyId, type, int], set[bytes]] = {}

    def _stored(self, party: PartyId, kind: str) -> dict[int, bytes]:
        names = {name: name.partition("-") for name in self.disks[party]}
        return {int(t): self.disks[party][name] for name, (word, _, t) in names.items() if word == kind}

    def _check(self, done: Mapping[PartyId, int]) -> None:
        """Check that what crashes have left is what a resume accepts."""
        planned: set[Release] = set(self._plan.all_releases())
        for party, ledger in self._ledgers.items():
            uplinks, replies = self._stored(party, "uplink"), self._stored(party, "reply")
            problem = _mismatch(
                released={release.round for release in planned},
                written={release.round for release in ledger},
                whole={r.round for r in planned} - {r.round for r in planned - ledger},
                uplinks=uplinks,
                replies=replies,
                sets=self._stored(party, "set"),
                ahead=self._ahead and not party.is_server,
            )
            assert not problem, (party, problem)
            refuse_forgetful_server(done[party], done[SERVER])
        # Who was in a round of the server's has all replies before it.
        among = lambda t, body: [one for one in clients(M) if t in self._stored(one, "uplink")]  # noqa: E731
        restored = self._plan.numbers.restored if self._plan.masking == "threshold" else 0
        refuse_behind(self._stored(SERVER, "reply"), done, among, harmless=restored)

    def set_back(self) -> bool:
        """Put an older copy in the place of one client's disk and ledger; whether there was one."""
        party = PartyId(int(self._rng.integers(1, M + 1)))
        if not self._copies[party]:
            return False
        disk, ledger = self._copies[party][self._rng.integers(len(self._copies[party]))]
        self.disks[party], self._ledgers[party] = dict(disk), set(ledger)
        return True

    def live(self, steps: int | None) -> dict[PartyId, Any]:
        """Run all parties for so many steps, or to the end; return the results of those that came there."""
        done = {party: len(self._stored(party, "reply")) for party in self.disks}
        self._check(done)
        running = {
            party: self._make(
                party,
                StoredRounds(
                    self._stored(party, "uplink"),
                    self._stored(party, "reply"),
                    done[SERVER],
                    done,
                    self._stored(party, "set"),
                ),
                self.disks[party],
            )
            for party in self.disks
        }
        waits: dict[PartyId, Receive | Gather] = {}
        answers: dict[PartyId, Any] = dict.fromkeys(running)
        self._post: dict[tuple[PartyId, PartyId, type, int], bytes] = {}
        results: dict[PartyId, Any] = {}
        while running and (steps is None or steps > 0):
            ready = [party for party in running if party not in waits or self._full(party, waits[party])]
            slow = [party for party in running if party not in ready and self._enough(party, waits[party])]
            if slow and (not ready or self._rng.random() < 0.05):
                ready = slow
            assert ready, f"nothing goes on: {waits}"
            party = ready[self._rng.integers(len(ready))]
            if party in waits:
                answers[party] = self._answer(party, waits.pop(party))
            try:
                effect = running[party].send(answers[party])
            except StopIteration as end:
                results[party] = end.value
                del running[party]
                continue
            answers[party] = None
            if isinstance(effect, Receive | Gather):
                waits[party] = effect
            else:
                self._perform(party, effect)
            steps = None if steps is None else steps - 1
        return results

    def _perform(self, party: PartyId, effect: Any) -> None:
        if isinstance(effect, Save):
            if party in self._copies and self._rng.random() < 0.2:
                self._copies[party].append((dict(self.disks[party]), set(self._ledgers[party])))
            before = self.disks[party].get(effect.name)
            if effect.name.startswith("set-") and not party.is_server and before is not None:
                # First voted, then answered, for the same set.
                assert before[1:] == effect.content[1:] and before[0] <= effect.content[0]
            elif effect.name != "threshold":
                assert before in (None, effect.content)
            self.disks[party][effect.name] = effect.content
        elif isinstance(effect, Record):
            self._ledgers[party].update(effect.releases)
        elif isinstance(effect, Send):
            kind, body = type(effect.message), effect.message.body()
            if effect.round != SETUP_ROUND:
                assert set(self._releases(effect.round)) <= self._ledgers[party]
                # The votes that the server passes on are those of whoever was fastest.
                if kind is not SetVotes:
                    self.sent.setdefault((party, kind, effect.round), set()).add(body)
            for receiver in effect.to:
                self._post[receiver, party, kind, effect.round] = body

    def _there(self, party: PartyId, effect: Receive | Gather) -> list[PartyId]:
        senders = (effect.sender,) if isinstance(effect, Receive) else effect.senders
        return [sender for sender in senders if (party, sender, effect.type, effect.round) in self._post]

    def _full(self, party: PartyId, effect: Receive | Gather) -> bool:
        needed = {effect.sender} if isinstance(effect, Receive) else {*effect.senders} - effect.late
        return needed <= set(self._there(party, effect)) and self._enough(party, effect)

    def _enough(self, party: PartyId, effect: Receive | Gather) -> bool:
        return len(self._there(party, effect)) >= (1 if isinstance(effect, Receive) else effect.at_least)

    def _answer(self, party: PartyId, effect: Receive | Gather) -> Any:
        read = {}
        for sender in self._there(party, effect):
            body = self._post[party, sender, effect.type, effect.round]
            read[sender] = recall(effect.type, body, effect.format, "post")
        return read if isinstance(effect, Gather) else read[effect.sender]


def fastlloyd(masking: str, protocol: str) -> tuple[MakeParty, Any]:
    points = support.blobs(60, 3, 2)
    least = 2 if masking == "common" else M
    plan = support.plan_for(points, 3, clients=M, masking=masking, rounds=3, protocol=protocol, min_clients=least)
    masks: Any = support.common_masks(M) if masking == "common" else support.pairwise_masks(support.fresh_pairs(M))
    parts = np.array_split(points, M)

    def make(party: PartyId, stored: StoredRounds, disk: dict[str, bytes]) -> Party[Any]:
        secret = SecretRandom()
        if party.is_server:
            return fastlloyd_server(plan, lambda t: draw_noise(plan, t, secret), stored=stored)
        own = quantise(parts[party.rank - 1], plan.fraction_bits)
        share = (lambda t: draw_share(plan, t, plan.share, secret)) if masking == "pairwise" else None
        return fastlloyd_client(party, own, plan, masks[party], share=share, stored=stored)

    return make, plan


def threshold(protocol: str) -> tuple[MakeParty, Any]:
    points = support.blobs(60, 3, 2)
    plan = support.plan_for(points, 3, clients=M, masking="threshold", rounds=3, protocol=protocol, min_clients=2)
    assert plan.numbers.restored == 1
    dealt, group, seed = deal(plan.numbers, 3, protocol), support.group_of(plan), fixed("seed")
    first = {me: own.to_bytes() for me, own in dealt.secrets.items()}
    parts = np.array_split(points, M)
    common = support.common_masks(M, seed)

    made: list[PartyId] = []

    def serve(stored: StoredRounds, *, resumed: bool) -> Party[Any]:
        returned = (yield from relay_states(group, stored.sets, len(stored.replies))) if resumed else group
        opening = ServerOpening(returned, dealt.words, stored.sets or None)
        return (yield from fastlloyd_server(plan, None, stored=stored, opening=opening))

    def take_part(me: PartyId, stored: StoredRounds, disk: dict[str, bytes], *, resumed: bool) -> Party[Any]:
        secrets = ClientSecrets.from_bytes(plan.numbers, me, disk.get("threshold", first[me]))
        # After a reply no secret of its round is left on the disk.
        assert secrets.first in (len(stored.replies), max(0, len(stored.replies) - 1))
        back = Returned({}, {}, group)
        if resumed:
            decisions = read_decisions(stored.sets, M)
            back = yield from come_back(group, me, decisions, len(stored.replies), SecretRandom())
        draw = support.of_length(partial(draw_share, plan))
        opening = ClientOpening(back.group, me, secrets, draw, decisions=back.decisions, known=back.known)
        own = quantise(parts[me.rank - 1], plan.fraction_bits)
        return (yield from fastlloyd_client(me, own, plan, ThresholdMasks(common[me], opening), stored=stored))

    def make(party: PartyId, stored: StoredRounds, disk: dict[str, bytes]) -> Party[Any]:
        resumed = len(made) > M
        made.append(party)
        return serve(stored, resumed=resumed) if party.is_server else take_part(party, stored, disk, resumed=resumed)

    return make, plan


def feddp_rounds(start: str) -> tuple[MakeParty, Any]:
    data = feddp.mixture(60, 3, 4)
    plan = feddp.plan_for(data, 3, rounds=2, settings={"start": start})
    masks = support.pairwise_masks(support.fresh_pairs(M))
    parts = np.array_split(data.points, M)

    def make(party: PartyId, stored: StoredRounds, disk: dict[str, bytes]) -> Party[Any]:
        if party.is_server:
            return feddp_server(plan, data.server_points, restarts=2, stored=stored)
        own = quantise(parts[party.rank - 1], plan.fraction_bits)
        share = partial(draw_feddp_share, plan, secret=SecretRandom())
        return feddp_client(party, own, plan, masks[party], share=share, stored=stored)

    return make, plan


CASES = {
    "fastlloyd": partial(fastlloyd, "common", "fastlloyd"),
    "fastlloyd in shares": partial(fastlloyd, "pairwise", "fastlloyd"),
    "fastlloyd-plus": partial(fastlloyd, "common", "fastlloyd-plus"),
    "fastlloyd with threshold masks": partial(threshold, "fastlloyd"),
    "fastlloyd-plus with threshold masks": partial(threshold, "fastlloyd-plus"),
    "feddp": partial(feddp_rounds, "private"),
    "feddp, a round that asks nobody": partial(feddp_rounds, "server-kmeans++"),
}


@pytest.mark.parametrize("case", CASES)
def test_wherever_parties_crash_a_mask_covers_one_vector_and_no_release_leaves_unrecorded(case: str) -> None:
    crashes, late, restored = 0, 0, 0
    for number in range(25):
        make, plan = CASES[case]()
        lives = Lives(make, plan, number, ahead=not case.startswith("feddp"))
        for steps in np.random.default_rng(number).integers(1, 90, 6).tolist():
            crashes += len(lives.live(steps)) < M + 1
            if plan.masking == "threshold" and steps % 2:
                restored += lives.set_back()
        results = lives.live(None)
        assert set(results) == {SERVER, *clients(M)}
        centers = [results[party].centers.exact.tobytes() for party in clients(M)]
        assert len(set(centers)) == 1
        assert {len(bodies) for bodies in lives.sent.values()} == {1}
        late += any(len(among) < M for among in results[SERVER].included)
    assert crashes > 30 and bool(late) == (plan.min_clients < M)
    assert bool(restored) == (plan.masking == "threshold")
