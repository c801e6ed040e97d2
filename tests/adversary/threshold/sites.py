"""Clients of a run with threshold masks, driven in memory step by step; whoever drives them is the server.

Each client is the product's coroutine: `MaskAgreement.opening` (set-up, or the way back) and `ClientRounds`. Its disk
keeps what was saved, in order, with a copy after each write. A client may be stopped before any effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.link.identity import Credentials, Identity, make_identity
from fastlloyd.errors import FastLloydError
from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum, VectorFormat
from fastlloyd.lifecycle.rounds import Ahead, ClientRounds, MessageFormat, StoredRounds
from fastlloyd.lifecycle.threshold.client import ThresholdMasks
from fastlloyd.lifecycle.threshold.group import Group
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.secrets import ClientSecrets
from fastlloyd.masking.threshold.words import Words
from fastlloyd.party.effects import Attest, Effect, Gather, Keep, Load, Party, Recall, Receive, Record, Save, Send
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run import horizontal
from fastlloyd.run.horizontal import MaskAgreement
from fastlloyd.run.inbox import Inbox
from fastlloyd.run.simulation import Simulation
from fastlloyd.wire.header import SERVER, Header, Message, PartyId, clients

RING = Ring(64)
ELEMENTS = 2
Watch = Callable[["Site", Send], None]


@dataclass(frozen=True)
class Plan:
    """What the agreement reads of a plan."""

    numbers: Numbers
    rounds: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {"numbers": self.numbers.to_bytes().hex(), "rounds": len(self.rounds)}


@dataclass(frozen=True)
class Run:
    """One run after a real set-up: what each client had on its disk when it was ready."""

    numbers: Numbers
    rounds: int
    identities: Mapping[PartyId, Identity] = field(repr=False)
    run_id: bytes = b"run 1".ljust(16)

    @property
    def everybody(self) -> tuple[PartyId, ...]:
        return clients(self.numbers.clients)

    @property
    def plan(self) -> Plan:
        return Plan(self.numbers, tuple(range(self.rounds)))

    @property
    def shape(self) -> VectorFormat:
        return VectorFormat(RING, ELEMENTS, self.numbers.clients)

    def credentials(self, party: PartyId) -> Credentials:
        return Credentials(self.identities[party], {p: one.certificate_der for p, one in self.identities.items()})

    def session(self, me: PartyId, *, resumed: bool = False) -> Any:
        """Return what the agreement reads of a session."""
        return SimpleNamespace(
            me=me, resumed=resumed, run_id=self.run_id, digest=self.run_id.ljust(32), credentials=self.credentials(me)
        )

    @cached_property
    def _set_up(self) -> tuple[dict[PartyId, dict[str, bytes]], dict[PartyId, Words]]:
        """Play the set-up, through the product's own relay."""

        def client(me: PartyId) -> Party[None]:
            agreement = MaskAgreement(session=self.session(me), context=bytes(32), to_keep={})
            yield from agreement.opening(self.plan, draw_parts, StoredRounds())

        parties: dict[PartyId, Party[Any]] = {me: client(me) for me in self.everybody}
        parties[SERVER] = horizontal.threshold_setup(self.session(SERVER), self.plan).relay()
        played = Simulation(parties)
        _, words = played.run()[SERVER]
        disks: dict[PartyId, dict[str, bytes]] = {me: {} for me in self.everybody}
        for (party, name), content in played.saved.items():
            disks[party][name] = content
        return disks, words

    @property
    def ready(self) -> dict[PartyId, dict[str, bytes]]:
        """Each client's disk after the set-up."""
        return self._set_up[0]

    @property
    def words(self) -> dict[PartyId, Words]:
        """What each client published at the set-up."""
        return self._set_up[1]

    def group(self, party: PartyId) -> Group:
        """Return the group as one party signs in it."""
        return horizontal.threshold_setup(self.session(party), self.plan).group(self.ready[PartyId(1)]["group"])

    def secrets(self, me: PartyId) -> ClientSecrets:
        """Return a client's secrets of all rounds."""
        return ClientSecrets.from_bytes(self.numbers, me, self.ready[me]["threshold"])

    def vector(self, me: PartyId, t: int) -> NDArray[np.int64]:
        """Return what a client's vector of a round is without masks and noise."""
        return np.arange(ELEMENTS, dtype=np.int64) + 1000 * me.rank + 10 * t


def make_run(numbers: Numbers, rounds: int = 1, run_id: bytes = b"run 1".ljust(16)) -> Run:
    """Make keys for everybody, and a run."""
    everybody = (SERVER, *clients(numbers.clients))
    return Run(numbers, rounds, {party: _identity(party) for party in everybody}, run_id)


_identities: dict[PartyId, Identity] = {}


def _identity(party: PartyId) -> Identity:
    if party not in _identities:
        _identities[party] = make_identity(f"party {party.rank}")
    return _identities[party]


def draw_parts(t: int, elements: int, shares: Sequence[Fraction], secrets: Sequence[SecretRandom]) -> NDArray[np.int64]:
    """Draw parts of noise: here it only matters that no two are equal."""
    return np.stack([secret.uint64(elements).astype(np.int64) >> 20 for secret in secrets])


class Site:
    """One client on its machine.

    Attributes
    ----------
    disk : dict from name to bytes
    copies : list of dict
        The disk after the set-up and after each write.
    waiting : Receive or None
        What it waits for; None if it has stopped or ended.
    error : FastLloydError or None
        With which it ended.
    crash_in : int or None
        It stops before so many effects more.
    restored : bool
        Whether its disk was ever set back.
    """

    def __init__(self, run: Run, me: PartyId, watch: Watch) -> None:
        self.run, self.me, self._watch = run, me, watch
        self.disk = dict(run.ready[me])
        self.copies = [dict(self.disk)]
        self.waiting: Receive | None = None
        self.error: FastLloydError | None = None
        self.crash_in: int | None = None
        self.restored = False
        self.log: list[str] = []
        self._inbox = Inbox()
        self._rounds: ClientRounds | None = None
        self._party: Party[Any] = self._begin()
        self._go(None)

    @property
    def history(self) -> bytes:
        """Digest of the replies that it has accepted."""
        return b"" if self._rounds is None else self._rounds.history

    def _begin(self) -> Party[None]:
        """Go on from the set-up, in the same process."""
        secrets = ClientSecrets.from_bytes(self.run.numbers, self.me, self.disk["threshold"])
        opening = horizontal.ClientOpening(self.run.group(self.me), self.me, secrets, draw_parts)
        yield from self._play(opening, StoredRounds())

    def _return(self, server_done: int) -> Party[None]:
        """Go on from the disk."""
        uplinks, replies = (yield Recall("uplink")), (yield Recall("reply"))
        stored = StoredRounds(uplinks, replies, server_done, sets=(yield Recall("set")))
        session = self.run.session(self.me, resumed=True)
        agreement = MaskAgreement(session=session, context=bytes(32), to_keep={})
        opening = yield from agreement.opening(self.run.plan, draw_parts, stored)
        yield from self._play(opening, stored)

    def _play(self, opening: Any, stored: StoredRounds) -> Party[None]:
        ahead = Ahead(self.run.rounds, lambda t: ())
        self._rounds = rounds = ClientRounds(self.me, ahead, stored, ThresholdMasks(None, opening))
        up, down = MessageFormat(MaskedUpdate, self.run.shape), MessageFormat(NoisyMaskedSum, self.run.shape)
        for t in range(self.run.rounds):
            yield from rounds.masked(t, up, lambda t=t: self.run.vector(self.me, t), down)

    def stop(self) -> None:
        """Kill the process; the disk stays."""
        self._party.close()
        self.waiting = None

    def restart(self, server_done: int = 0, *, copy: int | None = None) -> None:
        """Start a new process with --resume, on the disk or on an older copy of it."""
        self.stop()
        if copy is not None:
            self.disk, self.restored = dict(self.copies[copy]), True
        self.error, self.crash_in, self._inbox, self._rounds = None, None, Inbox(), None
        self._party = self._return(server_done)
        self._go(None)

    def give(self, message: Message, t: int, step: int = 0) -> None:
        """Hand over a message of the server, and let the client go on until it waits again."""
        body = message.body()
        self._inbox.put(SERVER, Header(message.TYPE, t, step), body)
        self._serve()

    def _serve(self) -> None:
        while self.waiting is not None:
            try:
                message = self._inbox.take(SERVER, self.waiting)
            except FastLloydError as error:
                self._end(error)
                return
            if message is None:
                return
            self._go(message)

    def _go(self, answer: Any) -> None:
        self.waiting = None
        try:
            while True:
                effect = self._party.send(answer)
                if self.crash_in is not None:
                    self.crash_in -= 1
                    if self.crash_in < 0:
                        self.stop()
                        return
                if isinstance(effect, Receive):
                    self.waiting = effect
                    break
                answer = self._perform(effect)
        except StopIteration:
            return
        except FastLloydError as error:
            self._end(error)

    def _end(self, error: FastLloydError) -> None:
        self.error = error
        self.stop()

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Save):
            self.disk[effect.name] = effect.content
            self.copies.append(dict(self.disk))
            self.log.append(f"save {effect.name}")
        elif isinstance(effect, Send):
            self.log.append(f"send {type(effect.message).__name__}")
            self._watch(self, effect)
        elif isinstance(effect, Load):
            return self.disk.get(effect.name)
        elif isinstance(effect, Recall):
            names = (name.rpartition("-") for name in self.disk)
            return {int(t): self.disk[f"{kind}-{t}"] for kind, _, t in names if kind == effect.kind}
        else:
            assert isinstance(effect, Attest | Record | Keep) and not isinstance(effect, Gather), effect
        return None
