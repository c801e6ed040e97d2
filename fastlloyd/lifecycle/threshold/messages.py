"""The messages of threshold masks: three of each client in the set-up, one to three in a round, two on the way back.

Source: docs/protocol.md, "Threshold masks".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from fastlloyd.crypto.hybrid import CIPHERTEXT_BYTES, PUBLIC_BYTES
from fastlloyd.crypto.link.identity import SIGNATURE_BYTES
from fastlloyd.masking.threshold.shamir import ELEMENT_BYTES
from fastlloyd.masking.threshold.words import Words
from fastlloyd.party.declaration import DOWN, UP, Messages, OfPlan, Seen, threshold
from fastlloyd.party.message import FixedBytes, NoPayload, check_size
from fastlloyd.randomness.prg import KEY_BYTES
from fastlloyd.wire.header import PartyId, decode_included, encode_included

NOT_YET = 0xFFFF_FFFF
"""The round of a client that has not given anything for any set."""


def bitmap_bytes(clients: int) -> int:
    """Return the length of a set of clients."""
    return (clients + 7) // 8


def _of_clients(each: int, more: int = 0) -> OfPlan:
    return OfPlan(lambda plan: each * plan.clients + more)


_seen = partial(Seen, when=threshold, variant="threshold")
_OPENS = "open a round for one set of clients: statements about the set, and shares that open its masks"


@dataclass(frozen=True, slots=True)
class RunKey(FixedBytes):
    """A client's key of this run: X25519 and ML-KEM-768, signed with its roster key.

    Attributes
    ----------
    public : bytes of length 1216
    signature : bytes of length 64
        Zeros without a roster.
    """

    TYPE = 25
    SIZES = (PUBLIC_BYTES, SIGNATURE_BYTES)
    SEEN = _seen(
        UP,
        "agree on the masks of each pair, and share each client's secrets among all: keys, ciphertexts, hidden shares",
        server="public keys, ciphertexts and uniform random numbers",
        others="- (they come back in RunKeys and RunCiphers)",
    )
    public: bytes = field(repr=False)
    signature: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SignedCipher(FixedBytes):
    """What makes the secret of one pair, from the lower rank to the higher: a piece of a message."""

    SIZES = (CIPHERTEXT_BYTES, SIGNATURE_BYTES)
    ciphertext: bytes = field(repr=False)
    signature: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Several(NoPayload):
    """Pieces of one kind, one after the other."""

    PIECE = RunKey
    pieces: tuple[Any, ...] = field(repr=False)

    def body(self) -> bytes:
        """Return one after the other."""
        return b"".join(piece.body() for piece in self.pieces)

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Decode `format` pieces."""
        return cls(cls.PIECE.read_all(body, format))


class RunKeys(_Several):
    """The keys of all clients, in the order of ranks."""

    __slots__ = ()
    TYPE = 26
    MOST_BYTES = _of_clients(RunKey.MOST_BYTES)
    SEEN = _seen(
        DOWN,
        "the same, passed on to the clients that they are for",
        server="public keys and ciphertexts",
        others="a public key of each, and a ciphertext of its pair, hence the pair's secret and no other pair's",
    )


class DealtCiphers(_Several):
    """The ciphertexts of one client for all clients of higher rank, in the order of ranks."""

    __slots__ = ()
    TYPE = 27
    PIECE = SignedCipher  # type: ignore[assignment]
    MOST_BYTES = _of_clients(SignedCipher.MOST_BYTES)
    SEEN = ()


class RunCiphers(_Several):
    """The ciphertexts of all clients of lower rank for one client, in the order of ranks."""

    __slots__ = ()
    TYPE = 28
    PIECE = SignedCipher  # type: ignore[assignment]
    MOST_BYTES = _of_clients(SignedCipher.MOST_BYTES)
    SEEN = ()


@dataclass(frozen=True, slots=True)
class DealtWords(NoPayload):
    """A client's words, tables and checks of all rounds, and its signature on their digest.

    Attributes
    ----------
    signature : bytes of length 64
    words : bytes
    """

    TYPE = 29
    MOST_BYTES = OfPlan(lambda plan: Words.size(plan.numbers, len(plan.rounds)) + SIGNATURE_BYTES)
    SEEN = ()
    signature: bytes = field(repr=False)
    words: bytes = field(repr=False)

    def body(self) -> bytes:
        """Return signature and words."""
        return self.signature + self.words

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check the length: `format` bytes of words."""
        check_size(body, SIGNATURE_BYTES + format)
        return cls(body[:SIGNATURE_BYTES], body[SIGNATURE_BYTES:])


@dataclass(frozen=True, slots=True)
class RoundSet(NoPayload):
    """The server's statement of who is in a round's sum: everybody, or a set.

    Attributes
    ----------
    history : bytes of length 32
        Digest of all replies before the round; zeros before the first.
    included : tuple of PartyId
    clients : int
    signature : bytes of length 64
        The server's; zeros without a roster.
    """

    TYPE = 34
    MOST_BYTES = OfPlan(lambda plan: KEY_BYTES + bitmap_bytes(plan.clients) + SIGNATURE_BYTES)
    SEEN = _seen(DOWN, _OPENS, server="who is included", others="who is included, and who has voted")
    history: bytes = field(repr=False)
    included: tuple[PartyId, ...]
    clients: int
    signature: bytes = field(repr=False)

    def body(self) -> bytes:
        """Return history, bitmap and signature."""
        return self.history + encode_included(self.included, self.clients) + self.signature

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check lengths and bitmap; `format` is the number of clients."""
        check_size(body, KEY_BYTES + bitmap_bytes(format) + SIGNATURE_BYTES)
        return cls(
            body[:KEY_BYTES],
            decode_included(body[KEY_BYTES:-SIGNATURE_BYTES], format),
            format,
            body[-SIGNATURE_BYTES:],
        )


@dataclass(frozen=True, slots=True)
class QuickAnswer(NoPayload):
    """What opens a round whose set is everybody: shares of each client's own mask and of its box's, 64 M bytes."""

    TYPE = 35
    MOST_BYTES = _of_clients(2 * ELEMENT_BYTES)
    SEEN = _seen(
        UP,
        _OPENS,
        server="who is included; with T answers the sum over the set, still under the common mask where there is one",
        others="never sent to them",
    )

    shares: bytes = field(repr=False)

    def body(self) -> bytes:
        """Return the shares."""
        return self.shares

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check the length; `format` is the number of clients."""
        check_size(body, 2 * ELEMENT_BYTES * format)
        return cls(body)


@dataclass(frozen=True, slots=True)
class SetVote(FixedBytes):
    """A client's signature on the one set that it will ever open in this round."""

    TYPE = 36
    SIZES = (SIGNATURE_BYTES,)
    SEEN = ()
    signature: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SetVotes(NoPayload):
    """The votes of T clients or more.

    Attributes
    ----------
    votes : mapping from PartyId to bytes of length 64
    clients : int
    """

    TYPE = 37
    MOST_BYTES = OfPlan(lambda plan: bitmap_bytes(plan.clients) + SIGNATURE_BYTES * plan.clients)
    SEEN = ()
    votes: dict[PartyId, bytes] = field(repr=False)
    clients: int

    def body(self) -> bytes:
        """Return the bitmap of the voters, then their signatures in the order of ranks."""
        voters = tuple(sorted(self.votes))
        return encode_included(voters, self.clients) + b"".join(self.votes[party] for party in voters)

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check bitmap and length; `format` is the number of clients."""
        width = bitmap_bytes(format)
        voters = decode_included(body[:width], format)
        check_size(body, width + SIGNATURE_BYTES * len(voters))
        at = range(width, len(body), SIGNATURE_BYTES)
        signatures = (body[start : start + SIGNATURE_BYTES] for start in at)
        return cls(dict(zip(voters, signatures, strict=True)), format)


@dataclass(frozen=True, slots=True)
class SetAnswer(NoPayload):
    """What opens a round for the set that T clients voted for, and this client's excess of noise if it opens one.

    Attributes
    ----------
    shares : bytes
        32 M: of the own masks of those in the set, of the pair keys of the others.
    excess : bytes
        Ring elements; empty where nothing is taken off.
    """

    TYPE = 38
    MOST_BYTES = OfPlan(lambda plan: ELEMENT_BYTES * plan.clients + _longest_vector(plan))
    SEEN = ()
    shares: bytes = field(repr=False)
    excess: bytes = field(repr=False)

    @property
    def payload_bytes(self) -> int:
        """The excess."""
        return len(self.excess)

    def body(self) -> bytes:
        """Return shares and excess."""
        return self.shares + self.excess

    @classmethod
    def read(cls, body: bytes, format: tuple[int, int]) -> Self:
        """Check the length; `format` is the number of clients and the bytes of an excess, which may be missing."""
        clients, excess = format
        start = ELEMENT_BYTES * clients
        if len(body) not in (start, start + excess):
            raise ValueError(f"expected {start} bytes, or {start + excess}, got {len(body)}")
        return cls(body[:start], body[start:])


def _longest_vector(plan: Any) -> int:
    return int(max(plan.elements(t) * plan.ring_of(t) // 8 for t in range(len(plan.rounds))))


@dataclass(frozen=True, slots=True)
class ReturnNonce(FixedBytes):
    """Fresh random bytes of a client in a resumed run: nobody can have answered them before."""

    TYPE = 30
    SIZES = (KEY_BYTES,)
    SEEN = _seen(
        UP,
        "in a resumed run: compare what each client has already opened",
        server="the last set that each client has opened, which it stated",
        others="- (they come back in ReturnNonces and GivenStates)",
    )
    nonce: bytes = field(repr=False)


class ReturnNonces(_Several):
    """The nonces of all clients, in the order of ranks."""

    __slots__ = ()
    TYPE = 31
    PIECE = ReturnNonce  # type: ignore[assignment]
    MOST_BYTES = _of_clients(KEY_BYTES)
    SEEN = _seen(
        DOWN,
        "the same, passed on to all",
        server="the last set that each client has opened, which it stated",
        others="the same",
    )


@dataclass(frozen=True, slots=True)
class GivenState(NoPayload):
    """The last set for which a client gave a vote or an answer, signed over all nonces.

    Attributes
    ----------
    round : int
        `NOT_YET` if there is none; the other fields are zeros then.
    included : tuple of PartyId
    history : bytes of length 32
        Of that round.
    stated : bytes of length 64
        The server's signature on the set.
    replies : int
        How many replies the client has accepted.
    signature : bytes of length 64
        The client's.
    clients : int
    """

    TYPE = 39
    MOST_BYTES = OfPlan(lambda plan: given_bytes(plan.clients))
    SEEN = ()
    round: int
    included: tuple[PartyId, ...]
    history: bytes = field(repr=False)
    stated: bytes = field(repr=False)
    replies: int
    clients: int
    signature: bytes = field(default=bytes(SIGNATURE_BYTES), repr=False)

    @property
    def statement(self) -> bytes:
        """All but the signature."""
        numbers = self.round.to_bytes(4, "little") + self.replies.to_bytes(4, "little")
        return numbers + self.history + self.stated + encode_included(self.included, self.clients)

    def body(self) -> bytes:
        """Return statement and signature."""
        return self.statement + self.signature

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check length and bitmap; `format` is the number of clients."""
        check_size(body, given_bytes(format))
        history_end = 8 + KEY_BYTES
        stated_end = history_end + SIGNATURE_BYTES
        return cls(
            round=int.from_bytes(body[:4], "little"),
            replies=int.from_bytes(body[4:8], "little"),
            history=body[8:history_end],
            stated=body[history_end:stated_end],
            included=decode_included(body[stated_end:-SIGNATURE_BYTES], format),
            signature=body[-SIGNATURE_BYTES:],
            clients=format,
        )


def given_bytes(clients: int) -> int:
    """Return the length of a state."""
    return 8 + KEY_BYTES + 2 * SIGNATURE_BYTES + bitmap_bytes(clients)


@dataclass(frozen=True, slots=True)
class GivenStates(NoPayload):
    """The states of all clients, in the order of ranks."""

    TYPE = 40
    MOST_BYTES = OfPlan(lambda plan: plan.clients * given_bytes(plan.clients))
    SEEN = ()
    states: tuple[GivenState, ...]

    def body(self) -> bytes:
        """Return one after the other."""
        return b"".join(state.body() for state in self.states)

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Decode `format` states."""
        size = given_bytes(format)
        check_size(body, format * size)
        return cls(tuple(GivenState.read(body[at : at + size], format) for at in range(0, len(body), size)))


THRESHOLD: Messages = (
    RunKey,
    DealtCiphers,
    DealtWords,
    RunKeys,
    RunCiphers,
    ReturnNonce,
    GivenState,
    ReturnNonces,
    GivenStates,
)
"""The set-up of threshold masks, and of a resumed run."""
OPENING_OF_ROUNDS: Messages = (RoundSet, SetVotes, QuickAnswer, SetVote, SetAnswer)
"""What opens a round."""
