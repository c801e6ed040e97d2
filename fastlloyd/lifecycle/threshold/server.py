"""How the server opens rounds: it states who is in a round's sum, once for ever, and takes off what is opened.

Source: docs/protocol.md, "Threshold masks: a round"; Bonawitz et al. (2017), Figure 4, rounds 2 to 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastlloyd.errors import ConfigError, PeerError, Reason
from fastlloyd.lifecycle.threshold.group import Group, wide
from fastlloyd.lifecycle.threshold.messages import QuickAnswer, RoundSet, SetAnswer, SetVote, SetVotes, bitmap_bytes
from fastlloyd.masking.fixed import RingArray
from fastlloyd.masking.threshold.opening import Board
from fastlloyd.masking.threshold.words import Words
from fastlloyd.party.effects import Gather, Party, Save, Send
from fastlloyd.party.message import RingFormat
from fastlloyd.randomness.prg import KEY_BYTES
from fastlloyd.wire.header import PartyId, decode_included, encode_included

PATIENCE_S = 1.0
"""So long the server waits for more excesses once T clients have answered."""


@dataclass(frozen=True, slots=True)
class StatedSet:
    """The set of a round and the sum of its vectors, as they are stored before the set is stated.

    Attributes
    ----------
    included : tuple of PartyId
    history : bytes of length 32
    total : bytes
        The sum of vectors, and of boxes where there are any: ring elements.
    """

    included: tuple[PartyId, ...]
    history: bytes
    total: bytes

    def to_bytes(self, clients: int) -> bytes:
        """Encode the set for the state folder."""
        return encode_included(self.included, clients) + self.history + self.total

    @classmethod
    def from_bytes(cls, content: bytes, clients: int) -> StatedSet:
        """Decode the output of `to_bytes`.

        Raises
        ------
        ConfigError
            It is damaged: this server's own state is at fault.
        """
        start = bitmap_bytes(clients)
        try:
            included = decode_included(content[:start], clients)
            if len(content) <= start + KEY_BYTES:
                raise ValueError(f"{len(content)} bytes are too few")
        except ValueError as error:
            raise ConfigError(
                f"--resume: the stored set of a round is damaged ({error}); start anew without --resume",
                reason=Reason.RESUME,
            ) from error
        return cls(included, content[start : start + KEY_BYTES], content[start + KEY_BYTES :])


class ServerOpening:
    """The server's part in the opening of rounds.

    Parameters
    ----------
    group : Group
    words : mapping from PartyId to Words
        Of all clients.
    stored : mapping from round to bytes, optional
        Of an interrupted run: `set-t` of each round. None for a new run.

    Attributes
    ----------
    silent : dict from round to tuple of PartyId
        The clients in the set that did not open their excess of noise: it stays in the sum.
    """

    def __init__(self, group: Group, words: Mapping[PartyId, Words], stored: Mapping[int, bytes] | None = None) -> None:
        self._group = group
        self._words = words
        self._board = Board(group.numbers, words)
        self._kept = stored is not None
        self._stored = dict(stored or {})
        self._signed: tuple[int, bytes, bytes] = (-1, b"", b"")
        self.silent: dict[int, tuple[PartyId, ...]] = {}

    def keep(self) -> Party[None]:
        """Store what a resumed run opens rounds with, before the clients send anything of a round."""
        if not self._kept:
            ordered = (self._words[party].to_bytes() for party in self._group.everybody)
            yield Save("words", self._group.kept + b"".join(ordered))

    def covered(self, shape: RingFormat) -> RingFormat:
        """Return the shape of what is sent for a vector of this shape."""
        return self._group.covered(shape)

    def stated(self, t: int, history: bytes, shape: RingFormat) -> StatedSet | None:
        """Return the set of round t that was stated before an interruption; no vector is taken for it again.

        Raises
        ------
        ConfigError
            It is damaged, or belongs to other replies.
        """
        if t not in self._stored:
            return None
        found = StatedSet.from_bytes(self._stored[t], self._group.numbers.clients)
        expected = self._group.covered(shape).elements * shape.ring.element_bytes
        if found.history != wide(history) or len(found.total) != expected:
            raise ConfigError(
                "--resume: the stored set of a round does not belong to the stored replies; start anew without "
                "--resume",
                reason=Reason.RESUME,
            )
        return found

    def prepare(self, t: int, history: bytes) -> None:
        """Do ahead what opens round t if nobody is lost, as far as it needs no vector; it leaves with `open` only."""
        everybody = self._group.everybody
        self._signed = (t, history, self._group.state_set(t, history, everybody))
        self._board.prepare(t)

    def _signature(self, t: int, history: bytes, included: tuple[PartyId, ...]) -> bytes:
        if included == self._group.everybody and self._signed[:2] == (t, history):
            return self._signed[2]
        return self._group.state_set(t, history, included)

    def open(
        self,
        t: int,
        history: bytes,
        shape: RingFormat,
        total: RingArray,
        included: tuple[PartyId, ...],
    ) -> Party[RingArray]:
        """State the set of round t, gather what opens it, and return the sum without what was opened.

        Parameters
        ----------
        t : int
        history : bytes
        shape : RingFormat
            Of one vector.
        total : array, shape (shape.elements,) or with boxes (2 shape.elements,)
            The sum of what the clients in the set sent.
        included : tuple of PartyId
            T of them or more.

        Raises
        ------
        PeerError
            Fewer than T clients answered, or their answers do not open the set.

        Notes
        -----
        Sees: the sum over the set with the planned noise, under the common mask where there is one; the excesses,
        which are independent of the noise that stays.
        """
        count = self._group.numbers.clients
        if t not in self._stored:
            yield Save(f"set-{t}", StatedSet(included, wide(history), total.tobytes()).to_bytes(count))
        signature = self._signature(t, history, included)
        yield Send(self._group.everybody, RoundSet(wide(history), included, count, signature), t)
        vector = total[: shape.elements]
        at_once = self._group.opens_at_once(included)
        if not at_once:
            yield from self._pass_votes(t, history, included)
        if included == self._group.everybody:
            return (yield from self._open_all(t, history, shape, total, step=1 if at_once else 2))
        return (yield from self._open_set(t, history, shape, vector, included))

    def _pass_votes(self, t: int, history: bytes, included: tuple[PartyId, ...]) -> Party[None]:
        """Collect the votes for the set, and pass them on to all clients."""
        numbers, everybody = self._group.numbers, self._group.everybody
        votes: Mapping[PartyId, SetVote] = yield Gather(
            everybody, SetVote, t, numbers.threshold, None, step=1, patience_s=0.0
        )
        for party, vote in votes.items():
            if not self._group.has_voted(party, t, history, included, vote.signature):
                raise PeerError(
                    f"{party} sent a vote in round {t} that is not its signature on the stated set; compare its "
                    "version and roster",
                    rank=party.rank,
                )
        given = {party: vote.signature for party, vote in votes.items()}
        yield Send(everybody, SetVotes(given, numbers.clients), t)

    def _open_all(
        self,
        t: int,
        history: bytes,
        shape: RingFormat,
        total: RingArray,
        *,
        step: int,
    ) -> Party[RingArray]:
        """Open a round in which everybody is in the sum."""
        numbers, vector, box = self._group.numbers, total[: shape.elements], total[shape.elements :]
        answers: Mapping[PartyId, QuickAnswer] = yield Gather(
            self._group.everybody, QuickAnswer, t, numbers.threshold, numbers.clients, step=step, patience_s=0.0
        )
        given = {party: answer.shares for party, answer in answers.items()}
        masks, boxes = self._board.quick_masks(t, given, history, ring=shape.ring, elements=shape.elements)
        self.silent[t] = ()
        opened: RingArray = vector - masks
        return opened - (box - boxes.sum(axis=0, dtype=shape.ring.dtype)) if len(box) else opened

    def _open_set(
        self,
        t: int,
        history: bytes,
        shape: RingFormat,
        vector: RingArray,
        included: tuple[PartyId, ...],
    ) -> Party[RingArray]:
        """Open a round in which some are not in the sum."""
        numbers, everybody = self._group.numbers, self._group.everybody
        size = shape.elements * shape.ring.element_bytes
        answers: Mapping[PartyId, SetAnswer] = yield Gather(
            everybody,
            SetAnswer,
            t,
            numbers.threshold,
            (numbers.clients, size),
            frozenset(everybody) - frozenset(included),  # they have no excess: any T answers will do
            step=2,
            patience_s=PATIENCE_S,
        )
        shares = {party: answer.shares for party, answer in answers.items()}
        masks = self._board.masks(t, included, shares, history, ring=shape.ring, elements=shape.elements)
        opened: RingArray = vector - masks
        silent = []
        for party in included if self._group.parts.taken_off(len(included)) else ():
            excess = answers[party].excess if party in answers else b""
            if excess:
                opened = opened - shape.ring.from_bytes(excess, shape.elements)
            else:
                silent.append(party)
        self.silent[t] = tuple(silent)
        return opened
