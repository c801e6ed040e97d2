"""A server that lies: it signs any set, passes on any votes, forks replies, and starts clients again on old disks."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum
from fastlloyd.lifecycle.threshold.group import Group, wide
from fastlloyd.lifecycle.threshold.messages import (
    NOT_YET,
    GivenState,
    GivenStates,
    QuickAnswer,
    ReturnNonce,
    ReturnNonces,
    RoundSet,
    SetAnswer,
    SetVote,
    SetVotes,
)
from fastlloyd.lifecycle.threshold.returning import sign_state
from fastlloyd.party.effects import Send
from fastlloyd.wire.header import SERVER, SETUP_ROUND, Message, PartyId
from tests.adversary.threshold.judge import Judge
from tests.adversary.threshold.sites import Run, Site

Included = tuple[PartyId, ...]


@dataclass
class Liar:
    """The server with colluding clients, against fresh honest ones that are past the set-up.

    Attributes
    ----------
    sites : dict from PartyId to Site
        The honest clients.
    judge : Judge
    given : dict from (holder, type) to list of bytes
        All answers that came, for attacks that compute something.
    vectors : dict from (client, round) to bytes
        The last masked vector.
    """

    run: Run
    colluding: Collection[PartyId] = ()
    sites: dict[PartyId, Site] = field(init=False)
    judge: Judge = field(init=False)
    given: dict[tuple[PartyId, type[Message]], list[bytes]] = field(init=False)
    vectors: dict[tuple[PartyId, int], bytes] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.judge = Judge(self.run, self.colluding)
        self.given = defaultdict(list)
        self.group = self.run.group(SERVER)
        self._groups = {party: self.run.group(party) for party in self.colluding}
        self._returned: dict[PartyId, bytes] = {}
        self.votes: dict[tuple[int, bytes, Included, bytes], dict[PartyId, bytes]] = defaultdict(dict)
        self.stated: dict[PartyId, RoundSet] = {}
        self.pending: dict[PartyId, GivenStates] = {}
        self._last: dict[PartyId, Message] = {}
        honest = [party for party in self.run.everybody if party not in self.colluding]
        self.sites = {party: Site(self.run, party, self._watch) for party in honest}

    def _watch(self, site: Site, sent: Send) -> None:
        self.judge.watch(site, sent)
        message, me = sent.message, site.me
        self._last[me] = message
        if isinstance(message, MaskedUpdate):
            self.vectors[me, sent.round] = message.body()
        elif isinstance(message, SetVote):
            said = self.stated[me]
            self.votes[sent.round, said.history, said.included, self._returned.get(me, b"")][me] = message.signature
        elif isinstance(message, QuickAnswer | SetAnswer):
            self.given[me, type(message)].append(message.body())
            if sent.step == 2 and len(self.votes_for(sent.round, self.stated[me], me)) < self.run.numbers.threshold:
                self.judge.broken.append(f"{me} answered in round {sent.round} for a set without T votes")

    # Messages, signed as this server and its clients can.

    def set_of(self, t: int, history: bytes, included: Included, *, group: Group | None = None) -> RoundSet:
        """Return a signed statement of a set."""
        signature = (group or self.group).state_set(t, history, included)
        return RoundSet(wide(history), included, self.run.numbers.clients, signature)

    def state(self, party: PartyId, included: Included, t: int | None = None) -> None:
        """State a set to a client, for the round that it waits in."""
        site = self.sites[party]
        assert site.waiting is not None and site.waiting.type is RoundSet, site.waiting
        t = site.waiting.round if t is None else t
        said = self.set_of(t, site.history, included)
        self.stated[party] = said
        site.give(said, t)

    def votes_for(self, t: int, said: RoundSet, party: PartyId) -> dict[PartyId, bytes]:
        """Return all votes for a set that a client would take, those of colluding clients among them."""
        returned = self._returned.get(party, b"")
        bought = {
            other: replace(group, returned=returned).vote(t, said.history, said.included)
            for other, group in self._groups.items()
        }
        return {**self.votes[t, said.history, said.included, returned], **bought}

    def certify(self, party: PartyId, votes: Mapping[PartyId, bytes] | None = None) -> None:
        """Pass on the votes for the set that a client has voted for."""
        site = self.sites[party]
        assert site.waiting is not None and site.waiting.type is SetVotes, site.waiting
        t = site.waiting.round
        passed = self.votes_for(t, self.stated[party], party) if votes is None else dict(votes)
        site.give(SetVotes(passed, self.run.numbers.clients), t)

    def reply(self, party: PartyId, included: Included | None = None, content: int = 0) -> None:
        """Reply to a client, with any content."""
        site = self.sites[party]
        assert site.waiting is not None and site.waiting.type is NoisyMaskedSum, site.waiting
        among = self.run.everybody if included is None else included
        shape = self.run.shape
        data = content.to_bytes(1, "little") * (shape.elements * shape.ring.element_bytes)
        site.give(NoisyMaskedSum(data, among, self.run.numbers.clients), site.waiting.round)

    def bring_back(
        self,
        *,
        copies: Mapping[PartyId, int] | None = None,
        done: Mapping[PartyId, int] | None = None,
        lies: Mapping[PartyId, GivenState] | None = None,
        pass_on: bool = True,
    ) -> None:
        """Start all clients again, some on old copies of their disks, and pass on what they state.

        `lies` are the states of colluding clients; they have given nothing unless it is said. Without `pass_on` the
        states lie ready in `pending`.
        """
        count, copies, done = self.run.numbers.clients, copies or {}, done or {}
        for party, site in self.sites.items():
            site.restart(done.get(party, 0), copy=copies.get(party))
        nonces: dict[PartyId, ReturnNonce] = dict.fromkeys(self.colluding, ReturnNonce(bytes(32)))
        for party in self.sites:
            last = self._last[party]
            if not isinstance(last, ReturnNonce):
                return
            nonces[party] = last
        passed = ReturnNonces(tuple(nonces[party] for party in self.run.everybody))
        self._nonces = hashlib.sha256(passed.body()).digest()
        nothing = GivenState(NOT_YET, (), bytes(32), bytes(64), 0, count)
        states = {
            party: sign_state(group, (lies or {}).get(party, nothing), passed.body())
            for party, group in self._groups.items()
        }
        for party, site in self.sites.items():
            site.give(passed, SETUP_ROUND)
            last = self._last[party]
            if not isinstance(last, GivenState):
                return
            states[party] = last
        said = GivenStates(tuple(states[party] for party in self.run.everybody))
        self.pending = dict.fromkeys(self.sites, said)
        for party in list(self.sites) if pass_on else ():
            self.hand_states(party)

    def hand_states(self, party: PartyId) -> None:
        """Give a client the states that lie ready for it."""
        self._returned[party] = self._nonces
        self.sites[party].give(self.pending.pop(party), SETUP_ROUND)


@dataclass
class Schedule:
    """One random server.

    Attributes
    ----------
    liar : Liar
    set_back : set of PartyId
        At most rho.
    """

    run: Run
    rng: Random
    most_set_back: int
    liar: Liar = field(init=False)

    def __post_init__(self) -> None:
        rng, numbers = self.rng, self.run.numbers
        self.liar = Liar(self.run, rng.sample(self.run.everybody, numbers.lying))
        self.set_back: set[PartyId] = set()
        self._pool: list[Included] = [self.run.everybody]
        for _ in range(rng.randint(1, 2)):
            least = max(1, numbers.threshold - (rng.random() < 0.3))
            size = rng.randint(least, max(least, numbers.clients - (rng.random() < 0.8)))
            self._pool.append(tuple(sorted(rng.sample(self.run.everybody, size))))
        self._sides = {(p, t): rng.choice(self._pool) for p in self.liar.sites for t in range(self.run.rounds)}
        self._replays: list[RoundSet] = []
        self._impatience = 0.5 if rng.random() < 0.3 else 0.0

    def play(self) -> Judge:
        """Do what comes to mind; return the judge."""
        rng, honest = self.rng, list(self.liar.sites)
        if self.most_set_back and rng.random() < 0.5:
            self._set_some_back()
        for _ in range(15 * len(honest)):
            party, dice = rng.choice(honest), rng.random()
            if dice < 0.25 / len(honest) or all(self.liar.sites[p].waiting is None for p in honest):
                self._bring_back()
            elif dice > 0.97:
                self.liar.sites[party].crash_in = rng.randint(0, 4)
            elif dice > 0.95 and self._replays:
                self._replay(party)
            else:
                self._go_on(party)
        return self.liar.judge

    def _set_some_back(self) -> None:
        """Have some clients open a set, set some of those back, and give them and the others another set."""
        rng, liar = self.rng, self.liar
        early = rng.sample(list(liar.sites), rng.randint(1, self.run.numbers.threshold - self.run.numbers.lying))
        back = rng.sample(early, rng.randint(1, min(self.most_set_back, len(early))))
        one, other = rng.sample(self._pool, 2) if rng.random() < 0.5 else self._pool[:2]
        self._sides.update({(party, 0): one for party in early})
        for _ in range(4):
            for party in early:
                self._go_on(party)
        self.set_back |= set(back)
        self._sides.update({(party, 0): other for party in back})
        self._sides.update({(party, 0): rng.choice((one, other)) for party in liar.sites if party not in early})
        liar.bring_back(copies={party: rng.randrange(2) for party in back})

    def _bring_back(self) -> None:
        rng, liar = self.rng, self.liar
        copies = {}
        for party in rng.sample(list(liar.sites), len(liar.sites)):
            if rng.random() < 0.5 and len(self.set_back | {party}) <= self.most_set_back:
                self.set_back.add(party)
                copies[party] = rng.randrange(len(liar.sites[party].copies))
                for t in range(self.run.rounds):
                    self._sides[party, t] = rng.choice(self._pool)
        done = {
            party: rng.randint(0, self.run.rounds) if rng.random() < 0.2 else self._replies(site)
            for party, site in liar.sites.items()
        }
        lies = {}
        if rng.random() < 0.3:
            t, included = rng.randrange(self.run.rounds), rng.choice(self._pool)
            signed = liar.set_of(t, b"", included)
            lie = GivenState(t, included, bytes(32), signed.signature, 0, self.run.numbers.clients)
            lies = dict.fromkeys(liar.colluding, lie)
        liar.bring_back(copies=copies, done=done, lies=lies, pass_on=False)

    @staticmethod
    def _replies(site: Site) -> int:
        return sum(name.startswith("reply-") for name in site.disk)

    def _replay(self, party: PartyId) -> None:
        site, said = self.liar.sites[party], self.rng.choice(self._replays)
        if site.waiting is not None and site.waiting.type is RoundSet:
            self.liar.stated[party] = said
            site.give(said, site.waiting.round)

    def _go_on(self, party: PartyId) -> None:
        rng, liar, site = self.rng, self.liar, self.liar.sites[party]
        if site.waiting is None:
            return
        kind, t = site.waiting.type, site.waiting.round
        if kind is GivenStates:
            if party in liar.pending:
                liar.hand_states(party)
        elif kind is RoundSet:
            included = self._sides[party, t] if rng.random() < 0.85 else rng.choice(self._pool)
            if rng.random() < 0.03:
                included = tuple(sorted(rng.sample(self.run.everybody, rng.randint(1, len(self.run.everybody)))))
            liar.state(party, included)
            self._replays.append(liar.stated[party])
        elif kind is SetVotes:
            votes = liar.votes_for(t, liar.stated[party], party)
            if len(votes) >= self.run.numbers.threshold:
                liar.certify(party)
            elif rng.random() < self._impatience:
                others = {p: v for each in liar.votes.values() for p, v in each.items()}
                liar.certify(party, {**others, **votes} if rng.random() < 0.5 else votes)
        elif kind is NoisyMaskedSum:
            said = liar.stated.get(party)
            liar.reply(party, None if said is None else said.included, int(rng.random() < 0.15))


@dataclass
class Tally:
    """What came out of many schedules."""

    schedules: int = 0
    opened: int = 0
    faults: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    least: list[float] = field(default_factory=list)


def campaign(run: Run, count: int, seed: int, *, most_set_back: int | None = None, to_first: bool = False) -> Tally:
    """Play schedules, or as many as there are up to the first fault; return what the judge found."""
    tally = Tally()
    back = run.numbers.restored if most_set_back is None else most_set_back
    for number in range(count):
        found = Schedule(run, Random(f"{seed} {number}"), back).play().verdict()
        tally.schedules += 1
        tally.opened += found.opened > 0
        if found.faults:
            tally.faults.append((number, found.faults))
            if to_first:
                break
        if found.least is not None:
            tally.least.append(float(found.least))
    return tally
