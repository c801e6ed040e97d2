"""Clients with a common secret find out whether all have the same, through a server that could lie.

::

    client i                                   server
      tag_i, own_i             ------------->    who has another tag?  digest of own_1 | .. | own_M
      compare the digest       <-------------  proof

Tag and own bytes are pieces of one stream, whose key comes from the secret and from what is to be alike. All clients
have the same tag. The own bytes of a client come from that client alone, and every client can compute those of all. So
only a server to which all clients sent bytes of the same stream can make the digest: it cannot say that all are alike
when they are not. It can say that they are not when they are, which ends the run. Each client sends and gets one
message, whatever their number, and however many things they compare at once: each has a stream.

Source: docs/protocol.md, "Comparison through the server".
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

from fastlloyd.errors import PeerTimeout, SecurityError
from fastlloyd.party.declaration import OfPlan, Seen, common
from fastlloyd.party.effects import Gather, Party, Receive, Send
from fastlloyd.party.message import NoPayload
from fastlloyd.randomness.prg import KEY_BYTES, NONCE_BYTES, derive, keystream
from fastlloyd.wire.header import SERVER, PartyId, decode_included, encode_included

THINGS = 2
"""How many things the clients compare at the end: what they heard, and the result."""
TAG_BYTES = 2 * KEY_BYTES
_PROOF = struct.Struct(f"<I{KEY_BYTES}s")


def proof_bytes(clients: int, things: int = 1) -> int:
    """Return the length of a proof, for a number of clients and of things that they compare."""
    return (clients + 7) // 8 + things * _PROOF.size


@dataclass(frozen=True, slots=True)
class AlikeTag(NoPayload):
    """Pieces of streams that the clients alone can make, two of each.

    Attributes
    ----------
    tags : tuple of bytes of length 32
        For each thing that is compared: the same at all clients that have the same.
    owns : tuple of bytes of length 32
        Likewise, this client's own.
    """

    TYPE = 23
    MOST_BYTES = TAG_BYTES * THINGS
    SEEN = Seen(
        "client, server",
        "find out that all clients have the same seed, and in the end that all were told, and have, the same",
        server="random numbers: whether the clients have the same seed, were told the same, and have the same result",
        others="that all have the same, or who differs as the server says",
        when=common,
    )
    tags: tuple[bytes, ...] = field(repr=False)
    owns: tuple[bytes, ...] = field(repr=False)

    def body(self) -> bytes:
        """Return both pieces of each stream."""
        return b"".join(tag + own for tag, own in zip(self.tags, self.owns, strict=True))

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check the length; `format` is how many things are compared."""
        if len(body) != TAG_BYTES * format:
            raise ValueError(f"expected {TAG_BYTES * format} bytes, got {len(body)}")
        pieces = [body[start : start + KEY_BYTES] for start in range(0, len(body), KEY_BYTES)]
        return cls(tuple(pieces[::2]), tuple(pieces[1::2]))


@dataclass(frozen=True, slots=True)
class AlikeProof(NoPayload):
    """Whether all have the same: one answer for all; who differs is the server's word.

    Attributes
    ----------
    included : tuple of PartyId
        Whose bytes are in the digests.
    clients : int
        How many clients there are.
    odds : tuple of int
        For each thing that is compared: rank of the first client whose tag differs from the tag that more than half of
        the required clients have; 0 for nobody.
    digests : tuple of bytes of length 32
        Likewise, SHA-256 of the pieces (`AlikeTag.owns`) of the included clients, in the order of ranks.
    """

    TYPE = 24
    MOST_BYTES = OfPlan(lambda plan: proof_bytes(plan.clients, THINGS))
    SEEN = ()
    included: tuple[PartyId, ...]
    clients: int
    odds: tuple[int, ...]
    digests: tuple[bytes, ...] = field(repr=False)

    def body(self) -> bytes:
        """Return the bitmap of those included, then the odd one's rank and the digest for each thing."""
        answers = [_PROOF.pack(odd, digest) for odd, digest in zip(self.odds, self.digests, strict=True)]
        return encode_included(self.included, self.clients) + b"".join(answers)

    @classmethod
    def read(cls, body: bytes, format: tuple[int, int]) -> Self:
        """Decode what the server says; `format` is the number of clients and of things that they compare.

        Raises
        ------
        ValueError
            Another length, or clients that there are not.
        """
        clients, things = format
        if len(body) != proof_bytes(clients, things):
            raise ValueError(f"expected {proof_bytes(clients, things)} bytes, got {len(body)}")
        answers = things * _PROOF.size
        odds, digests = zip(*_PROOF.iter_unpack(body[-answers:]), strict=True)
        if max(odds) > clients:
            raise ValueError(f"expected the rank of one of {clients} clients or 0, got {max(odds)}")
        return cls(decode_included(body[:-answers], clients), clients, odds, digests)


class NotAlike(SecurityError):
    """The clients do not all have the same.

    Attributes
    ----------
    odd : PartyId
        Who has something else than most, as the server says; the server itself where it names nobody.
    purpose : bytes
        Of the thing in which they differ.
    """

    def __init__(self, text: str, odd: PartyId, purpose: bytes) -> None:
        super().__init__(text, rank=odd.rank)
        self.odd = odd
        self.purpose = purpose


def prove_alike(
    me: PartyId,
    clients: tuple[PartyId, ...],
    required: Collection[PartyId],
    *,
    secret: bytes,
    things: Mapping[bytes, bytes],
    round_: int,
) -> Party[None]:
    """Show that this client has the same as the others, and check that they have the same as it; run by each client.

    Parameters
    ----------
    me : PartyId
    clients : tuple of PartyId
        All clients, in the order of ranks, `me` among them.
    required : collection of PartyId
        Who must be in the proof.
    secret : bytes
        Which the server cannot know.
    things : mapping from bytes to bytes
        What is compared: a stream's purpose, and what the clients should all have.
    round_ : int
        Of the two messages.

    Raises
    ------
    NotAlike
        The proof does not fit; names the first thing of which it does not.
    SecurityError
        It lacks somebody required: an honest server makes none without.

    Notes
    -----
    Sees: each client, that the others have the same secret and things; the server, whether they have.
    """
    if len(clients) < 2:
        return
    length = KEY_BYTES * (1 + len(clients))
    streams = {
        purpose: keystream(derive(secret, purpose, content), bytes(NONCE_BYTES), length)
        for purpose, content in things.items()
    }
    tags = tuple(stream[:KEY_BYTES] for stream in streams.values())
    yield Send((SERVER,), AlikeTag(tags, tuple(_piece(stream, me) for stream in streams.values())), round_)
    proof: AlikeProof = yield Receive(SERVER, AlikeProof, round_, (len(clients), len(things)))
    for (purpose, stream), odd, digest in zip(streams.items(), proof.odds, proof.digests, strict=True):
        expected = hashlib.sha256(b"".join(_piece(stream, party) for party in proof.included)).digest()
        if not hmac.compare_digest(digest, expected):
            raise NotAlike("the clients do not all have the same", PartyId(odd), purpose)
    missing = sorted(set(required) - set(proof.included))
    if missing:
        raise SecurityError(
            f"the server's proof that all clients are alike lacks {missing[0]}, who took part: it left out what that "
            "client said, or made a proof without it",
            rank=SERVER.rank,
        )


def collect_tags(
    clients: tuple[PartyId, ...], required: Collection[PartyId], late: Collection[PartyId], round_: int, things: int = 1
) -> Party[None]:
    """Collect the clients' tags and send the proof to all; run by the server.

    Parameters
    ----------
    clients : tuple of PartyId
        All, in the order of ranks.
    required : collection of PartyId
        Clients that must send tags. If another client's tags differ from theirs, it is left out, so it cannot cost
        them the result.
    late : collection of PartyId
        Of the others, who is not waited for.
    round_ : int
    things : int
        How many they compare.

    Raises
    ------
    PeerTimeout, PeerGone
        Somebody required is silent.
    """
    if len(clients) < 2:
        return
    told: dict[PartyId, AlikeTag] = yield Gather(clients, AlikeTag, round_, len(required), things, frozenset(late))
    missing = sorted(set(required) - set(told))
    if missing:
        raise PeerTimeout(
            f"{missing[0]} took part but did not say whether it is like the others, so nobody goes on; look at it",
            rank=missing[0].rank,
        )
    counted = [Counter(told[party].tags[thing] for party in required).most_common(1)[0] for thing in range(things)]
    usual = tuple(tag for tag, _ in counted)
    there = tuple(sorted(party for party in told if party in required or told[party].tags == usual))
    odds, digests = [], []
    for thing, (tag, votes) in enumerate(counted):
        clear = 2 * votes > len(required)  # of two that differ nobody can say which is the odd one
        odds.append(next((party.rank for party in there if clear and told[party].tags[thing] != tag), 0))
        digests.append(hashlib.sha256(b"".join(told[party].owns[thing] for party in there)).digest())
    yield Send(clients, AlikeProof(there, len(clients), tuple(odds), tuple(digests)), round_)


def _piece(stream: bytes, party: PartyId) -> bytes:
    """Return one client's own bytes; the tag is before them all."""
    return stream[KEY_BYTES * party.rank : KEY_BYTES * (party.rank + 1)]
