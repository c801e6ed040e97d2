"""Clients with a common secret find out whether all have the same, through a server that could lie.

::

    client i                                   server
      tag_i, own_i             ------------->    who has another tag?  digest of own_1 | .. | own_M
      compare the digest       <-------------  proof

Tag and own bytes are pieces of one stream, whose key comes from the secret and from what is to be alike. All clients
have the same tag. The own bytes of a client come from that client alone, and every client can compute those of all. So
only a server to which all clients sent bytes of the same stream can make the digest: it cannot say that all are alike
when they are not. It can say that they are not when they are, which ends the run. Each client sends and gets one
message, whatever their number.

Source: docs/protocol.md, "All alike".
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from fastlloyd.errors import PeerTimeout, SecurityError
from fastlloyd.party.effects import Gather, Party, Receive, Send
from fastlloyd.party.message import NoPayload
from fastlloyd.randomness.prg import KEY_BYTES, NONCE_BYTES, derive, keystream
from fastlloyd.wire import numbers
from fastlloyd.wire.header import SERVER, PartyId, decode_included, encode_included

TAG_BYTES = 2 * KEY_BYTES
_PROOF = struct.Struct(f"<I{KEY_BYTES}s")


def proof_bytes(clients: int) -> int:
    """Return the length of a proof."""
    return (clients + 7) // 8 + _PROOF.size


@dataclass(frozen=True, slots=True)
class AlikeTag(NoPayload):
    """Sender: each client. Receiver: the server. Pieces of a stream that the clients alone can make.

    Attributes
    ----------
    tag : bytes of length 32
        The same at all clients that are alike.
    own : bytes of length 32
        This client's own.
    """

    TYPE: ClassVar[int] = numbers.ALIKE_TAG
    tag: bytes = field(repr=False)
    own: bytes = field(repr=False)

    def body(self) -> bytes:
        """Return both pieces."""
        return self.tag + self.own

    @classmethod
    def read(cls, body: bytes, format: Any) -> Self:
        """Check the length."""
        if len(body) != TAG_BYTES:
            raise ValueError(f"expected {TAG_BYTES} bytes, got {len(body)}")
        return cls(body[:KEY_BYTES], body[KEY_BYTES:])


@dataclass(frozen=True, slots=True)
class AlikeProof(NoPayload):
    """Sender: the server. Receiver: every client. The same for all; what it says of who differs is the server's word.

    Attributes
    ----------
    included : tuple of PartyId
        Whose bytes are in the digest.
    clients : int
        How many clients there are.
    odd : int
        Rank of the first client whose tag differs from the tag that more than half of the required clients have; 0 for
        nobody.
    digest : bytes of length 32
        SHA-256 of the pieces (`AlikeTag.own`) of the included clients, in the order of ranks.
    """

    TYPE: ClassVar[int] = numbers.ALIKE_PROOF
    included: tuple[PartyId, ...]
    clients: int
    odd: int
    digest: bytes = field(repr=False)

    def body(self) -> bytes:
        """Return the bitmap of those included, the odd one's rank and the digest."""
        return encode_included(self.included, self.clients) + _PROOF.pack(self.odd, self.digest)

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Decode what the server says of `format` clients.

        Raises
        ------
        ValueError
            Another length, or clients that there are not.
        """
        if len(body) != proof_bytes(format):
            raise ValueError(f"expected {proof_bytes(format)} bytes, got {len(body)}")
        odd, digest = _PROOF.unpack(body[-_PROOF.size :])
        if odd > format:
            raise ValueError(f"expected the rank of one of {format} clients or 0, got {odd}")
        return cls(decode_included(body[: -_PROOF.size], format), format, odd, digest)


class NotAlike(SecurityError):
    """The clients are not all alike.

    Attributes
    ----------
    odd : PartyId
        Who has something else than most, as the server says; the server itself where it names nobody.
    """

    def __init__(self, text: str, odd: PartyId) -> None:
        super().__init__(text, rank=odd.rank)
        self.odd = odd


def prove_alike(
    me: PartyId,
    clients: tuple[PartyId, ...],
    required: Collection[PartyId],
    *,
    secret: bytes,
    purpose: bytes,
    context: bytes,
    round_: int,
) -> Party[None]:
    """Show that this client is like the others, and check that they are like it; run by each client.

    Parameters
    ----------
    me : PartyId
    clients : tuple of PartyId
        All clients, in the order of ranks, `me` among them.
    required : collection of PartyId
        Who must be in the proof.
    secret : bytes
        Which the server cannot know.
    purpose, context : bytes
        The stream's, and what is to be alike.
    round_ : int
        Of the two messages.

    Raises
    ------
    NotAlike
        The proof does not fit.
    SecurityError
        It lacks somebody required: an honest server makes none without.

    Notes
    -----
    Sees: each client, that the others have the same secret and context; the server, whether they have.
    """
    if len(clients) < 2:
        return
    stream = keystream(derive(secret, purpose, context), bytes(NONCE_BYTES), KEY_BYTES * (1 + len(clients)))
    yield Send((SERVER,), AlikeTag(stream[:KEY_BYTES], _piece(stream, me)), round_)
    proof: AlikeProof = yield Receive(SERVER, AlikeProof, round_, len(clients))
    expected = hashlib.sha256(b"".join(_piece(stream, party) for party in proof.included)).digest()
    if not hmac.compare_digest(proof.digest, expected):
        raise NotAlike("the clients do not all have the same", PartyId(proof.odd))
    missing = sorted(set(required) - set(proof.included))
    if missing:
        raise SecurityError(
            f"the server's proof that all clients are alike lacks {missing[0]}, who took part: it left out what that "
            "client said, or made a proof without it",
            rank=SERVER.rank,
        )


def collect_tags(
    clients: tuple[PartyId, ...], required: Collection[PartyId], late: Collection[PartyId], round_: int
) -> Party[None]:
    """Collect the clients' tags and send the proof to all; run by the server.

    Parameters
    ----------
    clients : tuple of PartyId
        All, in the order of ranks.
    required : collection of PartyId
        Clients that must send a tag. If another client's tag differs from theirs, it is left out, so it cannot cost
        them the result.
    late : collection of PartyId
        Of the others, who is not waited for.
    round_ : int

    Raises
    ------
    PeerTimeout, PeerGone
        Somebody required is silent.
    """
    if len(clients) < 2:
        return
    told: dict[PartyId, AlikeTag] = yield Gather(clients, AlikeTag, round_, len(required), None, frozenset(late))
    missing = sorted(set(required) - set(told))
    if missing:
        raise PeerTimeout(
            f"{missing[0]} took part but did not say whether it is like the others, so nobody goes on; look at it",
            rank=missing[0].rank,
        )
    usual, votes = Counter(told[party].tag for party in required).most_common(1)[0]
    there = tuple(sorted(party for party in told if party in required or told[party].tag == usual))
    clear = 2 * votes > len(required)  # of two that differ nobody can say which is the odd one
    odd = next((party.rank for party in there if clear and told[party].tag != usual), 0)
    digest = hashlib.sha256(b"".join(told[party].own for party in there)).digest()
    yield Send(clients, AlikeProof(there, len(clients), odd, digest), round_)


def _piece(stream: bytes, party: PartyId) -> bytes:
    """Return one client's own bytes; the tag is before them all."""
    return stream[KEY_BYTES * party.rank : KEY_BYTES * (party.rank + 1)]
