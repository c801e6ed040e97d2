"""What happens after the last round: compare transcripts and results, sign the result, exchange the counters.

::

    client i                                   client j
      chains, result  as digests         --->    compare; all that took part, over their own links
                                         <---  chains, result
    or, with a common seed, through the server: `lifecycle/same_secret.py`

    client i                                   server
      Counters    own traffic, signature --->
                                         <---  Totals: everybody's traffic and signatures

No party writes a result before chains and results are compared. Counters and signatures come after: a bad one costs a
line of the report, never the result.

A party signs a commitment to its result (`crypto/commitment.py`). Only the parties with the result have its opening, so
a signature reveals nothing to a server without the result.

Source: docs/protocol.md, "Closing exchange".
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from fastlloyd.crypto.commitment import OPENING_BYTES
from fastlloyd.crypto.link.identity import SIGNATURE_BYTES
from fastlloyd.errors import PeerTimeout, Reason, SecurityError
from fastlloyd.lifecycle.same_secret import NotEqual, prove_equality
from fastlloyd.net.sockets import WireBytes
from fastlloyd.party.declaration import ACROSS, OfPlan, Seen
from fastlloyd.party.effects import Gather, Party, Receive, Send
from fastlloyd.party.message import NoPayload
from fastlloyd.party.transcript import DIGEST_BYTES, Transcript
from fastlloyd.randomness import domains
from fastlloyd.wire.decode import Within, decode, load_json, plain
from fastlloyd.wire.header import COMPARE_ROUND, FINAL_ROUND, SERVER, PartyId

_SIGNATURE = re.compile(f"[0-9a-f]{{{2 * SIGNATURE_BYTES}}}")
_ENTRY = struct.Struct(f"<I{DIGEST_BYTES}s")
_MOST_SPEAKERS = 4
_HELD = struct.Struct(f"<{DIGEST_BYTES}s{OPENING_BYTES}s")
_MOST_ENTRY_BYTES = 1024
_MOST_ACCOUNT_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class ResultDigest:
    """The digest of a party's result, and the opening of its commitment.

    Attributes
    ----------
    digest : bytes of length 32
        Of everything that the party signs.
    opening : bytes of length 32
        Random, or derived from a secret that only parties with the result have.
    """

    digest: bytes = field(repr=False)
    opening: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Chains(NoPayload):
    """Digests of what the sender received from each speaker.

    If the server has the result too, it sends and receives them as the clients do.

    Attributes
    ----------
    chains : mapping from PartyId to bytes of length 32
    held : ResultDigest or None
        The sender's result, for receivers that have the result themselves; None for others.
    """

    TYPE = 14
    MOST_BYTES = 1 + _HELD.size + _MOST_SPEAKERS * _ENTRY.size
    SEEN = Seen(
        ACROSS,
        "compare what all received, and the result",
        server="nothing",
        others="digests of what the sender received, and of the result, with what opens its signature",
    )
    chains: Mapping[PartyId, bytes]
    held: ResultDigest | None = None

    def body(self) -> bytes:
        """Return 1, digest and opening, or 0; then rank and chain of each speaker, in the order of ranks."""
        held = b"\0" if self.held is None else b"\1" + _HELD.pack(self.held.digest, self.held.opening)
        return held + b"".join(_ENTRY.pack(speaker.rank, chain) for speaker, chain in sorted(self.chains.items()))

    @classmethod
    def read(cls, body: bytes, format: Any) -> Self:
        """Decode.

        Raises
        ------
        ValueError
            Another length, or speakers out of order.
        """
        if body[:1] not in (b"\0", b"\1"):
            raise ValueError("expected 0 or 1 as the first byte")
        start = 1 + _HELD.size * body[0]
        entries_bytes = len(body) - start
        if entries_bytes <= 0 or entries_bytes % _ENTRY.size or len(body) > cls.MOST_BYTES:
            raise ValueError(
                f"expected 1 to {_MOST_SPEAKERS} entries of {_ENTRY.size} bytes after {start}, got {len(body)} bytes"
            )
        entries = [(PartyId(rank), chain) for rank, chain in _ENTRY.iter_unpack(body[start:])]
        if [speaker for speaker, _ in entries] != sorted({speaker for speaker, _ in entries}):
            raise ValueError("expected each speaker once, in the order of ranks")
        return cls(dict(entries), ResultDigest(*_HELD.unpack_from(body, 1)) if body[0] else None)


Count = Annotated[int, Within(0, 1 << 62)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Traffic that one party sent."""

    payload_bytes: Count
    link_bytes: Count
    messages: Count
    setup_bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What one party reports about itself at the end.

    Attributes
    ----------
    sent : Sent
    signature : str
        Over the agreed digest and its result, in hexadecimal digits; empty without a roster.
    covers : {'public', 'centroids', 'result'}
        What the signature covers: every part of the report that the party has.
    wire : WireBytes or None
        Bytes that it counted on the network.

    Raises
    ------
    ValueError
        The signature is malformed.
    """

    sent: Sent
    signature: Annotated[str, Within(0, 2 * SIGNATURE_BYTES)] = ""
    covers: Literal["public", "centroids", "result"] = "public"
    wire: WireBytes | None = None

    def __post_init__(self) -> None:
        if self.signature and not _SIGNATURE.fullmatch(self.signature):
            raise ValueError(f"expected a signature of {SIGNATURE_BYTES} bytes in hexadecimal digits, or none")


@dataclass(frozen=True, slots=True)
class Accounts(NoPayload):
    """Accounts of several parties, or the reason why the message could not be read, which must not cost the result.

    Attributes
    ----------
    by_party : mapping from PartyId to Account
    problem : str
        Empty if the message could be read.
    """

    by_party: Mapping[PartyId, Account] = field(default_factory=dict)
    problem: str = ""

    def body(self) -> bytes:
        """Return canonical JSON."""
        values = {str(party.rank): plain(account) for party, account in sorted(self.by_party.items())}
        return json.dumps({"accounts": values}, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def read(cls, body: bytes, format: tuple[PartyId, ...]) -> Self:
        """Decode the accounts of some of the parties in `format`; an error is kept in `problem`, not raised."""
        try:
            most = _MOST_ENTRY_BYTES * (1 + len(format))
            received = decode(_ByRank, load_json(body, most_bytes=most), "the final message").accounts
        except ValueError as error:
            return cls(problem=str(error))
        names = {str(party.rank): party for party in format}
        if not received.keys() <= names.keys():
            return cls(problem="accounts: expected parties of this run and no other")
        return cls({names[name]: account for name, account in received.items()})


@dataclass(frozen=True, slots=True)
class _ByRank:
    accounts: Mapping[str, Account]


class Counters(Accounts):
    """A client's own account; public."""

    __slots__ = ()
    TYPE = 10
    MOST_BYTES = _MOST_ACCOUNT_BYTES
    SEEN = Seen(
        "client, server",
        "who sent how much, and the signatures of all",
        server="traffic counts and signatures of all parties, which reveal nothing about a result that it lacks",
        others="the same",
    )


class Totals(Accounts):
    """The accounts of all parties; public."""

    __slots__ = ()
    TYPE = 11
    MOST_BYTES = OfPlan(lambda plan: _MOST_ACCOUNT_BYTES * (plan.clients + 1))
    SEEN = ()


def compare_directly(
    me: PartyId,
    everybody: tuple[PartyId, ...],
    took_part: tuple[PartyId, ...],
    transcript: Transcript,
    *,
    held: ResultDigest | None = None,
    holders: Collection[PartyId] = (),
) -> Party[dict[PartyId, bytes]]:
    """Compare what the speakers sent, and the results, with the other parties before anything is written.

    Parameters
    ----------
    me : PartyId
    everybody : tuple of PartyId
        All parties that receive the same broadcasts, `me` among them.
    took_part : tuple of PartyId
        Those that must answer: the last included set. A party that missed it is compared if it answers in time.
    transcript : Transcript
    held : ResultDigest or None
        This party's result; None if it has none.
    holders : collection of PartyId
        The parties that have the result.

    Returns
    -------
    dict from PartyId to bytes of length 32
        The openings that came from the other parties with the result.

    Raises
    ------
    SecurityError
        A speaker sent one of them something else, or they have different results; names the speaker, or who differs.
    PeerTimeout
        A party that took part sends nothing. A server between them could hold its message back, so there is no result.

    Notes
    -----
    Sees: each party learns that the others received the same; each with the result, that the others have the same
    result; the server, which at most relays, nothing.
    """
    others = tuple(party for party in everybody if party != me)
    required = frozenset(took_part) - {me}
    if not others:
        return {}
    shown = frozenset(holders if held is not None else ())
    with_result = tuple(party for party in others if party in shown)
    without = tuple(party for party in others if party not in shown)
    if with_result:
        yield Send(with_result, Chains(transcript.chains, held), COMPARE_ROUND)
    if without:
        yield Send(without, Chains(transcript.chains), COMPARE_ROUND)
    late = frozenset(others) - required
    received: dict[PartyId, Chains] = yield Gather(others, Chains, COMPARE_ROUND, len(required), None, late)
    for party, message in sorted(received.items()):
        _compare(me, transcript.chains, party, message.chains)
    missing = sorted(required - set(received))
    if missing:
        raise PeerTimeout(
            f"{missing[0]} took part but did not send its transcript, so {me} writes no result; check that party, and "
            "if it runs, the server between the two",
            rank=missing[0].rank,
        )
    if held is None:
        return {}
    theirs = {party: received[party].held for party in with_result if party in received}
    silent = next((party for party, other in sorted(theirs.items()) if other is None and party in required), None)
    if silent is not None:
        raise SecurityError(
            f"{silent} did not send the digest of its result, expected one; compare versions", rank=silent.rank
        )
    known = {party: other for party, other in theirs.items() if other is not None}
    _compare_results(me, {me: held.digest, **{party: other.digest for party, other in known.items()}})
    return {party: other.opening for party, other in known.items()}


def compare_through_server(
    me: PartyId,
    everybody: tuple[PartyId, ...],
    took_part: tuple[PartyId, ...],
    transcript: Transcript,
    *,
    secret: bytes,
    result: bytes,
) -> Party[None]:
    """Compare as `compare_directly` does, but through the server, with a secret that it does not know.

    Parameters
    ----------
    me, everybody, took_part, transcript
        As in `compare_directly`; the server is the only speaker.
    secret : bytes
        The clients' common seed.
    result : bytes
        Run id and digest of the result, which all these clients have.

    Raises
    ------
    SecurityError
        The server sent somebody something else, names it; or the clients have different results, names who differs.
    PeerTimeout
        A client that took part sends nothing.

    Notes
    -----
    Sees: each client learns that the others received, and have, the same; the server, which clients agree.
    """
    things = {domains.SAME_TRANSCRIPT: transcript.digest(), domains.SAME_RESULT: result}
    try:
        yield from prove_equality(me, everybody, took_part, secret=secret, things=things, round_=COMPARE_ROUND)
    except NotEqual as error:
        if error.purpose == domains.SAME_RESULT:
            said = ", as the server says" if not error.odd.is_server else ""
            raise _other_result(me, None if error.odd.is_server else error.odd, said) from error
        whom = "all clients the same" if error.odd.is_server else f"{error.odd} and the others the same"
        raise _equivocation(SERVER, whom, "a client" if error.odd.is_server else str(error.odd)) from error


def _compare_results(me: PartyId, digests: Mapping[PartyId, bytes]) -> None:
    """Refuse different results; name the first party that differs from the majority."""
    usual, votes = Counter(digests.values()).most_common(1)[0]
    if votes == len(digests):
        return
    clear = 2 * votes > len(digests)
    odd = next(party for party, digest in sorted(digests.items()) if digest != usual)
    raise _other_result(me, odd if clear else None)


def _other_result(me: PartyId, odd: PartyId | None, said: str = "") -> SecurityError:
    """Return the error that says that results differ; without a majority (`odd` is None) it blames no other party."""
    if odd is None:
        who = f"{me} and other parties have different results, and which of them is right is not known"
    elif odd == me:
        who = f"{me}, this party, has a different result than the others{said}"
    else:
        who = f"{odd} has a different result than the others{said}"
    return SecurityError(
        f"{who}: expected the same from all, so nobody writes one, and the releases stay in the ledgers; compare "
        "`fastlloyd --version` and the machines of the parties before you run or resume",
        rank=(me if odd is None else odd).rank,
        reason=Reason.RESULTS_DIFFER if odd is None else Reason.OTHER_RESULT,
    )


def _compare(me: PartyId, own: Mapping[PartyId, bytes], party: PartyId, theirs: Mapping[PartyId, bytes]) -> None:
    """Blame the first speaker whose chains differ."""
    for speaker in sorted({*own, *theirs}):
        if own.get(speaker) != theirs.get(speaker):
            whom = f"{party} what it recorded itself" if speaker == me else f"{me} and {party} the same"
            raise _equivocation(speaker, whom, str(party))


def _equivocation(speaker: PartyId, whom: str, liar: str) -> SecurityError:
    """Return the error that blames a speaker for different broadcasts, unless `liar` lies."""
    return SecurityError(
        f"{speaker} did not send {whom}: plan, replies or included clients differ, so no result is written (or {liar} "
        "misstates what it received); find out why before you run again",
        rank=speaker.rank,
        reason=Reason.EQUIVOCATION,
    )


def account_client(me: PartyId, everybody: tuple[PartyId, ...], own: Account) -> Party[Totals]:
    """Send this party's account and receive everybody's; run by each client."""
    yield Send((SERVER,), Counters({me: own}), FINAL_ROUND)
    totals: Totals = yield Receive(SERVER, Totals, FINAL_ROUND, (SERVER, *everybody))
    return totals


def collect_accounts(clients: tuple[PartyId, ...], late: frozenset[PartyId]) -> Party[dict[PartyId, Counters]]:
    """Collect the accounts of the clients that send one; run by the server."""
    received: dict[PartyId, Counters] = yield Gather(clients, Counters, FINAL_ROUND, 0, clients, late)
    return {
        party: message if message.problem or set(message.by_party) == {party} else Counters(problem="it is another's")
        for party, message in received.items()
    }


def send_totals(clients: tuple[PartyId, ...], accounts: Mapping[PartyId, Account]) -> Party[None]:
    """Send all accounts to everybody; run by the server."""
    yield Send(clients, Totals(accounts), FINAL_ROUND)
