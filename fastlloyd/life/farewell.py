"""What happens after the last round: compare what was heard, sign the result, exchange the counters.

::

    client i                                   client j
      chains      what each speaker said --->    compare; all who took part, over their own links
                                         <---  chains
    or, with a common seed, through the server: `life/same_secret.py`

    client i                                   server
      Counters    own traffic, signature --->
                                         <---  Totals: everybody's traffic and signatures

Nobody writes a result before the chains were compared. The counters and signatures come after: a bad one costs a line
of the report, never the result.

Source: docs/protocol.md, "Farewell".
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from fastlloyd.crypto.link.signature import SIGNATURE_BYTES
from fastlloyd.errors import PeerTimeout, Reason, SecurityError
from fastlloyd.life.same_secret import NotAlike, prove_alike
from fastlloyd.party.effects import Gather, Party, Receive, Send
from fastlloyd.party.message import NoPayload
from fastlloyd.party.transcript import DIGEST_BYTES, Transcript
from fastlloyd.randomness import domains
from fastlloyd.wire import numbers
from fastlloyd.wire.decode import Within, decode, load_json
from fastlloyd.wire.header import COMPARE_ROUND, FINAL_ROUND, SERVER, PartyId

_SIGNATURE = re.compile(f"[0-9a-f]{{{2 * SIGNATURE_BYTES}}}")
_ENTRY = struct.Struct(f"<I{DIGEST_BYTES}s")
_MOST_SPEAKERS = 4
MOST_CHAINS_BYTES = _MOST_SPEAKERS * _ENTRY.size
_MOST_ENTRY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Chains(NoPayload):
    """Sender: each client. Receiver: each other client. What each speaker has told the sender, as digests.

    Attributes
    ----------
    chains : mapping from PartyId to bytes of length 32
    """

    TYPE: ClassVar[int] = numbers.CHAINS
    chains: Mapping[PartyId, bytes]

    def body(self) -> bytes:
        """Write rank and chain of each speaker, in the order of ranks."""
        return b"".join(_ENTRY.pack(speaker.rank, chain) for speaker, chain in sorted(self.chains.items()))

    @classmethod
    def read(cls, body: bytes, format: Any) -> Self:
        """Decode.

        Raises
        ------
        ValueError
            Another length, or speakers out of order.
        """
        if len(body) % _ENTRY.size or not body or len(body) > MOST_CHAINS_BYTES:
            raise ValueError(f"expected 1 to {_MOST_SPEAKERS} entries of {_ENTRY.size} bytes, got {len(body)} bytes")
        entries = [(PartyId(rank), chain) for rank, chain in _ENTRY.iter_unpack(body)]
        if [speaker for speaker, _ in entries] != sorted({speaker for speaker, _ in entries}):
            raise ValueError("expected each speaker once, in the order of ranks")
        return cls(dict(entries))


Count = Annotated[int, Within(0, 1 << 62)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What one party has sent."""

    payload_bytes: Count
    link_bytes: Count
    messages: Count
    setup_bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What one party says of itself at the end.

    Attributes
    ----------
    sent : Sent
    signature : str
        Over the agreed digest and its result, in hexadecimal digits; empty without a roster.
    covers : {'public', 'centroids', 'result'}
        What the signature covers: all that the party has of the report.

    Raises
    ------
    ValueError
        The signature is none.
    """

    sent: Sent
    signature: Annotated[str, Within(0, 2 * SIGNATURE_BYTES)] = ""
    covers: Literal["public", "centroids", "result"] = "public"

    def __post_init__(self) -> None:
        if self.signature and not _SIGNATURE.fullmatch(self.signature):
            raise ValueError(f"expected a signature of {SIGNATURE_BYTES} bytes in hexadecimal digits, or none")


@dataclass(frozen=True, slots=True)
class Accounts(NoPayload):
    """Accounts of several parties, or what was wrong with the message: it must not cost the result.

    Attributes
    ----------
    by_party : mapping from PartyId to Account
    problem : str
        Empty, or why the message could not be read.
    """

    TYPE: ClassVar[int]
    by_party: Mapping[PartyId, Account] = field(default_factory=dict)
    problem: str = ""

    def body(self) -> bytes:
        """Return canonical JSON."""
        values = {str(party.rank): asdict(account) for party, account in sorted(self.by_party.items())}
        return json.dumps({"accounts": values}, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def read(cls, body: bytes, format: tuple[PartyId, ...]) -> Self:
        """Decode the accounts of some of the parties in `format`; what cannot be read is noted, not raised."""
        try:
            return cls(_read_accounts(body, format))
        except ValueError as error:
            return cls(problem=str(error))


@dataclass(frozen=True, slots=True)
class _Told:
    accounts: Mapping[str, Account]


def _read_accounts(body: bytes, expected: tuple[PartyId, ...]) -> dict[PartyId, Account]:
    most = _MOST_ENTRY_BYTES * (1 + len(expected))
    told = decode(_Told, load_json(body, most_bytes=most), "the final message").accounts
    names = {str(party.rank): party for party in expected}
    if not told.keys() <= names.keys():
        raise ValueError("accounts: expected parties of this run and no other")
    return {names[name]: account for name, account in told.items()}


class Counters(Accounts):
    """Sender: each client. Receiver: the server. Its own account; public."""

    __slots__ = ()
    TYPE: ClassVar[int] = numbers.COUNTERS


class Totals(Accounts):
    """Sender: the server. Receiver: every client. The accounts of all parties; public."""

    __slots__ = ()
    TYPE: ClassVar[int] = numbers.TOTALS


def compare_transcripts(
    me: PartyId, everybody: tuple[PartyId, ...], took_part: tuple[PartyId, ...], transcript: Transcript
) -> Party[None]:
    """Compare with the other parties what the speakers have told; run by each client before it writes anything.

    Parameters
    ----------
    me : PartyId
    everybody : tuple of PartyId
        All that hear the same, `me` among them.
    took_part : tuple of PartyId
        Of these, who must answer: those of the last included set. Whoever missed it is heard if it is there.
    transcript : Transcript

    Raises
    ------
    SecurityError
        A speaker told one of them something else; names the speaker.
    PeerTimeout
        One that took part says nothing: a server between them could keep it silent, so there is no result.

    Notes
    -----
    Sees: each client, that the others heard the same; the server, which relays at most, nothing.
    """
    others = tuple(party for party in everybody if party != me)
    required = frozenset(took_part) - {me}
    if not others:
        return
    yield Send(others, Chains(transcript.chains), FINAL_ROUND)
    late = frozenset(others) - required
    told = yield Gather(others, Chains, FINAL_ROUND, len(required), None, late)
    for party, message in sorted(told.items()):
        _compare(me, transcript.chains, party, message.chains)
    missing = sorted(required - set(told))
    if missing:
        raise PeerTimeout(
            f"{missing[0]} took part but did not say what it was told, so {me} writes no result; look at it, and if "
            "it is well, at the server between the two",
            rank=missing[0].rank,
        )


def prove_told(
    me: PartyId, everybody: tuple[PartyId, ...], took_part: tuple[PartyId, ...], transcript: Transcript, secret: bytes
) -> Party[None]:
    """Do the same as `compare_transcripts` through the server, with a secret that it does not know.

    Parameters
    ----------
    me, everybody, took_part, transcript
        As in `compare_transcripts`; the server is the only speaker.
    secret : bytes
        The clients' common seed.

    Raises
    ------
    SecurityError
        The server told somebody something else; names it.
    PeerTimeout
        One that took part says nothing.

    Notes
    -----
    Sees: each client, that the others heard the same; the server, who it told the same.
    """
    try:
        yield from prove_alike(
            me,
            everybody,
            took_part,
            secret=secret,
            purpose=domains.TOLD_ALIKE,
            context=transcript.digest(),
            round_=COMPARE_ROUND,
        )
    except NotAlike as error:
        whom = "all clients the same" if error.odd.is_server else f"{error.odd} and the others the same"
        liar = "a client" if error.odd.is_server else str(error.odd)
        raise SecurityError(
            f"{SERVER} did not tell {whom}: plan, replies or included clients differ, so no result is written (or "
            f"{liar} misstates what it heard); find out why before you run again",
            rank=SERVER.rank,
            reason=Reason.EQUIVOCATION,
        ) from error


def _compare(me: PartyId, own: Mapping[PartyId, bytes], party: PartyId, theirs: Mapping[PartyId, bytes]) -> None:
    """Blame the first speaker whose chains differ."""
    for speaker in sorted({*own, *theirs}):
        if own.get(speaker) != theirs.get(speaker):
            raise SecurityError(
                f"{speaker} did not tell {me} and {party} the same: plan, replies or included clients differ, so no "
                f"result is written (or {party} misstates what it heard); find out why before you run again",
                rank=speaker.rank,
                reason=Reason.EQUIVOCATION,
            )


def account_client(me: PartyId, everybody: tuple[PartyId, ...], own: Account) -> Party[Totals]:
    """Send this party's account and receive everybody's; run by each client."""
    yield Send((SERVER,), Counters({me: own}), FINAL_ROUND)
    totals: Totals = yield Receive(SERVER, Totals, FINAL_ROUND, (SERVER, *everybody))
    return totals


def collect_accounts(clients: tuple[PartyId, ...], late: frozenset[PartyId]) -> Party[dict[PartyId, Counters]]:
    """Collect the clients' accounts, as many as come; run by the server."""
    told: dict[PartyId, Counters] = yield Gather(clients, Counters, FINAL_ROUND, 0, clients, late)
    return {
        party: message if message.problem or set(message.by_party) == {party} else Counters(problem="it is another's")
        for party, message in told.items()
    }


def tell_totals(clients: tuple[PartyId, ...], accounts: Mapping[PartyId, Account]) -> Party[None]:
    """Send all accounts to everybody; run by the server."""
    yield Send(clients, Totals(accounts), FINAL_ROUND)
