"""A client's part in the opening of rounds: what it masks, for which one set it gives shares, and what it refuses.

::

    client                                            server
      vector | box                          ------>
      check, Save set-t   <------  RoundSet of everybody, signed      all vectors are there
      QuickAnswer                           ------>                   not in a resumed run
    or
      check, Save set-t   <------  RoundSet, signed                   some are not, at the deadline
      SetVote                               ------>
      check, Save set-t   <------  SetVotes of T clients or more
      SetAnswer                             ------>                   QuickAnswer, if everybody is in the set

For each round a client votes or answers for one set, once and for ever: what it decides is on its disk before a message
leaves, and a second set is refused in any message. After the reply of a round all secrets of the round are deleted.

Source: Bonawitz et al. (2017), Figure 4, rounds 2 to 4; docs/protocol.md, "Threshold masks: a round"; docs/privacy.md,
"Threshold masks".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.link.identity import SIGNATURE_BYTES
from fastlloyd.errors import ConfigError, Reason, SecurityError, name_some
from fastlloyd.lifecycle.threshold.group import Group, wide
from fastlloyd.lifecycle.threshold.messages import (
    QuickAnswer,
    RoundSet,
    SetAnswer,
    SetVote,
    SetVotes,
    bitmap_bytes,
)
from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.masking.mask import Masks
from fastlloyd.masking.threshold.secrets import ClientSecrets
from fastlloyd.party.effects import Party, Receive, Save, Send
from fastlloyd.party.message import RingFormat
from fastlloyd.randomness.prg import KEY_BYTES
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SERVER, Message, PartyId, decode_included, encode_included

DrawParts = Callable[[int, int, Sequence[Fraction], Sequence[SecretRandom]], NDArray[np.int64]]
"""From a round, the length of its vector, each part's share of the planned variance, and its source, to the parts.

They are an int64 array, shape (parts, length), in grid units.
"""

_NOTHING: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class GivenSet:
    """The one set of a round for which a client gives shares, as it is stored.

    Attributes
    ----------
    included : tuple of PartyId
    answered : bool
        Whether shares may have left; otherwise a vote may have.
    stated : bytes of length 64
        The server's signature on the set.
    history : bytes of length 32
    """

    included: tuple[PartyId, ...]
    answered: bool
    stated: bytes = field(repr=False)
    history: bytes = field(repr=False)

    def to_bytes(self, clients: int) -> bytes:
        """Encode the decision for the state folder."""
        return bytes([self.answered]) + self.history + self.stated + encode_included(self.included, clients)

    @classmethod
    def from_bytes(cls, content: bytes, clients: int) -> Self:
        """Decode the output of `to_bytes`.

        Raises
        ------
        ValueError
            It is malformed.
        """
        end = 1 + KEY_BYTES + SIGNATURE_BYTES
        if len(content) != end + bitmap_bytes(clients) or content[0] > 1:
            raise ValueError(f"expected a set of a round in {end + bitmap_bytes(clients)} bytes, got {len(content)}")
        return cls(
            decode_included(content[end:], clients),
            bool(content[0]),
            content[1 + KEY_BYTES : end],
            content[1 : 1 + KEY_BYTES],
        )


def read_decisions(stored: Mapping[int, bytes], clients: int) -> dict[int, GivenSet]:
    """Decode the decisions of an interrupted run.

    Raises
    ------
    ConfigError
        One is damaged: this party's own state is at fault.
    """
    try:
        return {t: GivenSet.from_bytes(content, clients) for t, content in stored.items()}
    except ValueError as error:
        raise ConfigError(
            f"--resume: the stored sets are damaged ({error}); start anew without --resume", reason=Reason.RESUME
        ) from error


class ClientOpening:
    """One client's threshold masks.

    Parameters
    ----------
    group : Group
    me : PartyId
    secrets : ClientSecrets
    draw : callable
        Draws the parts of a round's noise.
    decisions : mapping from round to GivenSet, optional
        Of an interrupted run.
    known : mapping from round to bytes of length 32, optional
        Of a resumed run: the histories of the rounds that clients have opened. Rounds before the last one are over.
    """

    def __init__(
        self,
        group: Group,
        me: PartyId,
        secrets: ClientSecrets,
        draw: DrawParts,
        *,
        decisions: Mapping[int, GivenSet] | None = None,
        known: Mapping[int, bytes] | None = None,
    ) -> None:
        self._group = group
        self._me = me
        self._secrets = secrets
        self._draw = draw
        self._decisions = dict(decisions or {})
        self._known = dict(known or {})
        self._over = max([0, *self._known, *self._decisions])
        self._sent: set[int] = set()
        self._drawn: tuple[int, bytes, NDArray[np.int64]] = (-1, b"", _NOTHING)

    def check_history(self, t: int, history: bytes) -> None:
        """Refuse replies other than those after which another client opened round t."""
        if self._known.get(t, wide(history)) != wide(history):
            raise self._lie(t, "sent this client other replies than it sent others")

    def may_send(self, t: int) -> bool:
        """Whether this client still sends its vector of round t.

        Not after it gave anything for a set of the round, or received one: what it sends would be under masks of which
        others have given shares.

        Raises
        ------
        SecurityError
            The round is over: another client has opened a later one, so the server has its reply.
        """
        if t < self._over:
            raise self._lie(t, f"goes on with a round before round {self._over}, for which clients have given shares")
        if t in self._decisions:
            return False
        self._sent.add(t)
        return True

    def covered(self, shape: RingFormat) -> RingFormat:
        """Return the shape of what is sent for a vector of this shape."""
        return self._group.covered(shape)

    def cover(self, t: int, history: bytes, vector: RingArray, shape: RingFormat) -> RingArray:
        """Return the vector with all parts of this client's noise under its masks, and the box if there is one.

        Parameters
        ----------
        t : int
        history : bytes
        vector : array, shape (shape.elements,)
        shape : RingFormat

        Returns
        -------
        array, shape (covered(shape).elements,)
        """
        ring, length = shape.ring, shape.elements
        parts = self._draw_parts(t, history, length)
        noise = ring.reduce(parts.sum(axis=0, dtype=np.int64))
        covered: RingArray = vector + noise + self._secrets.vector_mask(t, history, ring=ring, elements=length)
        if not self._group.numbers.lost:
            return covered
        box = self._excess(t, history, shape, self._group.numbers.clients)
        return np.concatenate([covered, box + self._secrets.box_mask(t, history, ring=ring, elements=length)])

    def _draw_parts(self, t: int, history: bytes, elements: int) -> NDArray[np.int64]:
        """Draw all parts of a round's noise: the same numbers each time, so they need not be stored."""
        if self._drawn[:2] != (t, history):
            shapes = self._group.parts.shapes
            sources = [self._secrets.part_random(t, history, j) for j in range(len(shapes))]
            self._drawn = (t, history, self._draw(t, elements, shapes, sources))
        return self._drawn[2]

    def _excess(self, t: int, history: bytes, shape: RingFormat, included: int) -> RingArray:
        """Return the sum of the parts that are taken off with this number of clients in the set."""
        parts = self._draw_parts(t, history, shape.elements)
        return shape.ring.reduce(parts[list(self._group.parts.taken_off(included))].sum(axis=0, dtype=np.int64))

    def open(self, t: int, history: bytes, shape: RingFormat) -> Party[tuple[PartyId, ...]]:
        """Take part in the opening of round t, after the vector left; return the set.

        Raises
        ------
        SecurityError
            The server asks for what this client must not give; names the server.
        """
        count = self._group.numbers.clients
        self._secrets.quick(t)  # made while the others compute; what leaves is decided below
        said: RoundSet = yield Receive(SERVER, RoundSet, t, count)
        self._check(t, history, said)
        at_once = self._group.opens_at_once(said.included)
        yield from self._decide(t, GivenSet(said.included, at_once, said.signature, wide(history)))
        if at_once:
            yield Send((SERVER,), QuickAnswer(self._secrets.quick(t)), t, step=1)
            return self._wait_for_reply(t, said)
        vote = SetVote(self._group.vote(t, history, said.included))
        yield Send((SERVER,), vote, t, step=1)
        votes: SetVotes = yield Receive(SERVER, SetVotes, t, count)
        self._check_votes(t, history, said.included, votes)
        yield from self._decide(t, GivenSet(said.included, True, said.signature, wide(history)))
        if said.included == self._group.everybody:
            yield Send((SERVER,), QuickAnswer(self._secrets.quick(t)), t, step=2)
        else:
            yield Send((SERVER,), self._answer(t, history, said.included, shape), t, step=2)
        return self._wait_for_reply(t, said)

    def _wait_for_reply(self, t: int, said: RoundSet) -> tuple[PartyId, ...]:
        """Make the next round's masks ready while the server opens the sum; return the set."""
        self._secrets.prepare_masks(t + 1)
        return said.included

    def _decide(self, t: int, decision: GivenSet) -> Party[None]:
        """Store a decision; the first one of a round stays."""
        before = self._decisions.get(t)
        if before is not None and before.answered:
            return
        self._decisions[t] = decision
        self._over = max(self._over, t)
        yield Save(f"set-{t}", decision.to_bytes(self._group.numbers.clients))

    def _answer(self, t: int, history: bytes, included: tuple[PartyId, ...], shape: RingFormat) -> SetAnswer:
        excess = b""
        if self._me in included and self._group.parts.taken_off(len(included)):
            excess = self._excess(t, history, shape, len(included)).tobytes()
        return SetAnswer(self._secrets.answer(t, included), excess)

    def _check(self, t: int, history: bytes, said: RoundSet) -> None:
        """Refuse a set that this client must not open."""
        numbers = self._group.numbers
        if said.history != wide(history):
            raise self._lie(t, "states a set after other replies than this client received")
        if len(said.included) < numbers.threshold:
            raise self._lie(t, f"states a set of {len(said.included)} clients, expected at least {numbers.threshold}")
        if t < self._over:
            raise self._lie(t, f"states a set after clients have given shares for round {self._over}")
        if not self._group.is_stated(t, history, said.included, said.signature):
            raise self._lie(t, "states a set without its signature for this run, round and history")
        before = self._decisions.get(t)
        if before is not None and before.included != said.included:
            raise self._lie(
                t,
                f"states two sets, both signed: {name_some(before.included)}, and {name_some(said.included)}; it could "
                "open single vectors with them",
            )
        if before is None and self._me in said.included and t not in self._sent:
            raise self._lie(t, f"states a set with {self._me}, which has not sent its vector")

    def _check_votes(self, t: int, history: bytes, included: tuple[PartyId, ...], votes: SetVotes) -> None:
        """Refuse votes that do not show that T clients have chosen this set."""
        for party, signature in votes.votes.items():
            if not self._group.has_voted(party, t, history, included, signature):
                raise self._lie(t, f"passes on a vote that {party} did not give for this set")
        if len(votes.votes) < self._group.numbers.threshold:
            raise self._lie(t, f"passes on {len(votes.votes)} votes, expected at least {self._group.numbers.threshold}")

    def check_reply(self, t: int, reply: Message) -> None:
        """Refuse a reply about another set than this client gave shares for."""
        decision, included = self._decisions.get(t), getattr(reply, "included", None)
        if decision is not None and included is not None and decision.included != included:
            raise self._lie(
                t, f"replies with the sum over {name_some(included)}, expected {name_some(decision.included)}"
            )

    def forget(self, t: int) -> Party[None]:
        """Delete the secrets of round t, whose reply is stored: what was not given can never be given."""
        self._drawn = (-1, b"", _NOTHING)
        if self._secrets.first <= t:
            self._secrets.forget_before(t + 1)
            yield Save("threshold", self._secrets.to_bytes())

    def _lie(self, t: int, what: str) -> SecurityError:
        return SecurityError(
            f"the server {what} (round {t}); this client gives no shares: stop, and ask the operator",
            rank=SERVER.rank,
        )


class ThresholdMasks:
    """A client's masks: those common to all clients where the sums stay hidden from the server, and what is opened.

    Parameters
    ----------
    common : Masks or None
        None where the server works on the noisy sums.
    opening : ClientOpening
    """

    __slots__ = ("_common", "_zeros", "opening")

    def __init__(self, common: Masks | None, opening: ClientOpening) -> None:
        self._common = common
        self._zeros: RingArray = np.zeros(0, np.uint32)
        self.opening = opening

    def shaped(self, ring: Ring, elements: int) -> Self:
        """Return the same masks for vectors of another ring or length."""
        if self._zeros.dtype == ring.dtype and self._zeros.size == elements:
            return self
        other = copy(self)
        other._zeros = np.zeros(elements, ring.dtype)
        other._common = None if self._common is None else self._common.shaped(ring, elements)
        return other

    def mask(self, round_: int, client: PartyId, history: bytes) -> RingArray:
        """Return the common mask of one client; zeros where there is none."""
        return self._zeros if self._common is None else self._common.mask(round_, client, history)

    def total(self, round_: int, included: Iterable[PartyId], history: bytes) -> RingArray:
        """Return what remains in the opened sum over these clients: their common masks."""
        return self._zeros if self._common is None else self._common.total(round_, included, history)
