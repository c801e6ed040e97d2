"""The end of a run over real links: compare, sign, count. Nothing is written before the parties have compared.

What is compared is all that a party would sign. What it signs of a result is a commitment, whose opening only the
parties with the result have: derived from the clients' common seed, or sent with the comparison over their own links.

Source: docs/protocol.md, "Closing exchange" and "Signed record".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.commitment import OPENING_BYTES, derive_opening
from fastlloyd.crypto.link.identity import sign, verifies
from fastlloyd.errors import PeerError
from fastlloyd.lifecycle.closing import (
    Account,
    Accounts,
    Counters,
    ResultDigest,
    Sent,
    Totals,
    account_client,
    collect_accounts,
    compare_directly,
    compare_through_server,
    send_totals,
)
from fastlloyd.lifecycle.same_secret import THINGS, collect_tags
from fastlloyd.net.sockets import WireBytes
from fastlloyd.party.effects import Elect, Heard, Party
from fastlloyd.party.transcript import Transcript
from fastlloyd.privacy.release import Release
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.document import WIRE_PARTS
from fastlloyd.report.signed import COVERS, SIGNED_ELSE, SignedRecord, file_digests
from fastlloyd.run.outcome import Outcome, Result
from fastlloyd.run.session import Session
from fastlloyd.wire.header import COMPARE_ROUND, SERVER, PartyId

# Around a message's body in a frame: kind, TLS record, length, header (docs/protocol.md, "Frames").
_AROUND_BYTES = 1 + 22 + 4 + 8
# The frame that says that a party's files are written.
_DONE_BYTES = 1


def conclude(
    session: Session,
    made: Result | SignedRecord | Callable[[], Result | SignedRecord],
    *,
    took_part: Sequence[PartyId],
    writers: Sequence[PartyId],
    heard: tuple[PartyId, ...] | None = None,
    holders: tuple[PartyId, ...] | None = None,
    late: frozenset[PartyId] = frozenset(),
    raw_labels: NDArray[np.int64] | None = None,
    relabel: Callable[[Result], NDArray[np.int64] | None] | None = None,
    raw_files: Mapping[str, str] | None = None,
    seed: bytes | None = None,
) -> Party[Outcome]:
    """Compare with the others, and only then sign the result; exchange counters.

    Parameters
    ----------
    session : Session
    made : Result or SignedRecord
        The result; of a party without it, what it signs instead. Faces of other packages may still give a function that
        makes it: by now their budget is spent, so nothing is refused.
    took_part : sequence of PartyId
        Who must report what it received.
    writers : sequence of PartyId
        Who may write the shared files: the parties with the result that took part to the end.
    heard : tuple of PartyId, optional
        Who received the same messages; all clients by default. They compare these.
    holders : tuple of PartyId, optional
        Who has the whole result: they compare it, and sign it. By default `writers` and, if clients are among
        these, all that received the same.
    late : frozenset of PartyId
        At the server: who is not waited for.
    raw_labels : int64 array, shape (n,), optional
        Of this party's records.
    relabel : callable, optional
        Labels this party's records by a result without the clusters that `--min-size` leaves out; without it, or where
        it gives None, a record of one of these counts to the nearest cluster that stays.
    raw_files : mapping from file name to text, optional
        This party's alone.
    seed : bytes, optional
        The clients' common seed, to compare through the server; without, over the clients' own links.

    Raises
    ------
    SecurityError
        They received different messages, or have different results: names the sender, or whose result differs.
    PeerTimeout, PeerGone
        One that took part is silent.
    """
    if callable(made):
        made = made()
    if isinstance(made, Result) and session.config.min_size and made.left_out is None:
        made, numbers = made.without_small(session.config.min_size)
        if raw_labels is not None:
            again = None if numbers is None or relabel is None else relabel(made)
            raw_labels = None if numbers is None else numbers[raw_labels] if again is None else again
    me, group = session.me, session.everybody if heard is None else heard
    if holders is None:
        # Where clients may write it, those that missed the last round have it too.
        holders = tuple(writers) if all(one.is_server for one in writers) else tuple(sorted({*writers, *group}))
    result = made if isinstance(made, Result) else None
    record = made.record() if isinstance(made, Result) else made
    if me not in holders:
        record = replace(record, covers="public")
    transcript: Transcript = yield Heard()
    run_id = session.run_id
    if seed is not None:
        yield from compare_through_server(
            me, group, tuple(took_part), transcript, secret=seed, result=run_id + record.digest()
        )
        openings = {party: derive_opening(seed, run_id, party) for party in group}
    else:
        held = None
        if result is not None and me in holders:
            held = ResultDigest(record.digest(), SecretRandom().bytes(OPENING_BYTES))
        compared = frozenset(holders if len(holders) > 1 else ())
        parties = tuple(sorted({*group, *compared}))
        openings = {}
        if me in parties:
            required = tuple(sorted({*took_part, *(compared & set(writers))} & set(parties)))
            openings = yield from compare_directly(me, parties, required, transcript, held=held, holders=compared)
        if held is not None:
            openings[me] = held.opening
    yield Elect(tuple(writers))
    outcome = yield from exchange_accounts(session, record, late, openings)
    return replace(
        outcome, result=result, raw_labels=raw_labels, raw_rows=session.raw_rows, raw_files=dict(raw_files or {})
    )


def conclude_without_result(
    session: Session,
    common: Mapping[str, Any],
    releases: Sequence[Release],
    late: frozenset[PartyId],
    *,
    took_part: Sequence[PartyId] | None = None,
) -> Party[Outcome]:
    """Close as a server that learns no result: who was included, and traffic.

    Parameters
    ----------
    session : Session
    common : mapping
        What `Session.shared_entries` gave.
    releases : sequence of Release
        Of the plan; noted as this run's.
    late : frozenset of PartyId
    took_part : sequence of PartyId, optional
        Who must report what it received, where the clients compare through the server (`conclude` with a seed).

    Raises
    ------
    PeerTimeout, PeerGone
        One that took part is silent.
    """
    if took_part is not None:
        yield from collect_tags(session.everybody, took_part, late, COMPARE_ROUND, THINGS)
    run = session.run_id.hex()
    record = SignedRecord(
        common=common, releases=[replace(release, run=run).to_dict() for release in releases], covers="public"
    )
    outcome = yield from exchange_accounts(session, record, late)
    return replace(outcome, record=record)


def exchange_accounts(
    session: Session,
    record: SignedRecord,
    late: frozenset[PartyId] = frozenset(),
    openings: Mapping[PartyId, bytes] | None = None,
) -> Party[Outcome]:
    """Sign, and exchange counters and signatures; what is wrong with them is noted, for the result is there already.

    Parameters
    ----------
    record : SignedRecord
        What this party signs.
    late : frozenset of PartyId
        At the server: who is not waited for.
    openings : mapping from PartyId to bytes of length 32, optional
        What opens the parties' commitments to the result, this party's own included; none for a party without it.
    """
    transcript: Transcript = yield Heard()
    agreed = transcript.digest()
    openings = openings or {}
    own = _account(session, record, agreed, openings.get(session.me))
    if not session.me.is_server:
        own = replace(own, wire=session.meter.wire((_frame_bytes(Counters({session.me: own})), _DONE_BYTES)))
    accounts: dict[PartyId, Account] = {session.me: own}
    problems: dict[PartyId, str] = {}
    fault: PeerError | None = None
    try:
        if session.me.is_server:
            received = yield from collect_accounts(session.everybody, late)
            for party, message in received.items():
                accounts.update(message.by_party)
                if message.problem:
                    problems[party] = message.problem
        else:
            totals = yield from account_client(session.me, session.everybody, own)
            accounts = {**totals.by_party, session.me: own}
            if totals.problem:
                problems[SERVER] = totals.problem
                fault = PeerError(totals.problem, rank=SERVER.rank)
    except PeerError as error:
        problems[PartyId(error.rank)] = str(error)
        fault = error
    if session.me.is_server:
        each = (_frame_bytes(Totals(accounts)), _DONE_BYTES)
        accounts[session.me] = replace(own, wire=session.meter.wire(each * len(session.everybody)))
        yield from send_totals(session.everybody, accounts)
    missing = [party for party in (SERVER, *session.everybody) if party not in accounts]
    return Outcome(
        traffic=traffic_entry(accounts, record.common["rounds"], _incomplete(missing, problems)),
        signatures=_signatures(session, record, agreed, accounts, openings),
        fault=fault,
        late=late,
    )


def _frame_bytes(message: Accounts) -> int:
    """Return how long the frame of a message will be, about: the sender's count of the network is not in it yet."""
    return _AROUND_BYTES + len(message.body())


def _account(session: Session, record: SignedRecord, agreed: bytes, opening: bytes | None) -> Account:
    """Return this party's own account, signed where its key is known to the others."""
    total, setup = session.meter.total_sent(), session.meter.setup_sent()
    sent = Sent(
        # Of the rounds alone: divided by their number it is that of a round, in every protocol.
        payload_bytes=total.payload_bytes - setup.payload_bytes,
        link_bytes=total.link_bytes,
        messages=total.messages,
        setup_bytes=setup.link_bytes,
    )
    if session.roster is None:
        return Account(sent=sent, covers=record.covers)
    statement = record.statement(session.roster.digest(), agreed, record.covers, opening)
    return Account(sent=sent, signature=sign(session.identity, statement).hex(), covers=record.covers)


def traffic_entry(
    accounts: Mapping[PartyId, Account], rounds: Sequence[Mapping[str, Any]], incomplete: str | None = None
) -> dict[str, Any]:
    """Return the report's entry: the sums over what all parties have sent.

    Parameters
    ----------
    accounts : mapping from PartyId to Account
    rounds : sequence of mapping
        The report's entry.
    incomplete : str or None
        Whose counters are missing, and why.
    """
    sent = [account.sent for account in accounts.values()]
    link_bytes, payload_bytes = (sum(getattr(own, name) for own in sent) for name in ("link_bytes", "payload_bytes"))
    wire = None if incomplete else _add_wire([account.wire for account in accounts.values()], link_bytes)
    # What was sent before a resume is not among the bytes.
    counted = sum(each["sent_bytes"] is not None for each in rounds) or len(rounds)
    per_round = payload_bytes / counted if counted else 0.0
    return {
        "payload_bytes": payload_bytes,
        "link_bytes": link_bytes,
        "messages": sum(own.messages for own in sent),
        "payload_bytes_per_round": int(per_round) if per_round.is_integer() else per_round,
        "setup_bytes": sum(own.setup_bytes for own in sent),
        "wire_bytes": None if wire is None else link_bytes + sum(wire.values()),
        "wire": None if wire is None else {"counted": "sockets", **wire},
        "incomplete": incomplete,
    }


def _add_wire(counts: Sequence[WireBytes | None], link_bytes: int) -> dict[str, int] | None:
    """Add up what was counted on the network; None where somebody's part is not known."""
    known = [own for own in counts if own is not None]
    whole = [own for own in known if own.whole]
    if not whole and len(known) < len(counts):
        return None
    counted = whole[:1] or known
    tls = sum(own.outer_tls_bytes for own in counted)
    framing = sum(own.stream_bytes for own in counted) - tls - link_bytes
    if framing < 0:  # not all of it went over the connections that were counted
        return None
    headers, launcher = (sum(getattr(own, name) for own in counted) for name in WIRE_PARTS[2:])
    return dict(zip(WIRE_PARTS, (framing, tls, headers, launcher), strict=True))


def _incomplete(missing: Sequence[PartyId], problems: Mapping[PartyId, str]) -> str | None:
    """Say whose counters are missing, and whose fault that is."""
    if not missing and not problems:
        return None
    why = "; ".join(f"{party}: {problem}" for party, problem in sorted(problems.items()))
    whose = ", ".join(str(party) for party in missing) or "nobody"
    return f"the sums lack the counters of {whose}" + (f" ({why})" if why else "")


def _signatures(
    session: Session,
    record: SignedRecord,
    agreed: bytes,
    accounts: Mapping[PartyId, Account],
    openings: Mapping[PartyId, bytes],
) -> dict[str, Any] | None:
    """Return the report's entry: who signed what this party saw."""
    roster = session.roster
    if roster is None:
        return None
    digest, certificates = roster.digest(), roster.certificates()
    known = COVERS[: COVERS.index(record.covers) + 1]
    entries = []
    for party in (SERVER, *session.everybody):
        account, opening = accounts.get(party), None
        signature, problem = None, None
        if account is not None and account.covers != "public":
            opening = openings.get(party)
        if account is None or not account.signature:
            problem = "sent no signature"
        elif account.covers not in known:
            problem = "signed a result that this party does not have"
        elif account.covers != "public" and opening is None:
            problem = "did not say how what it signed opens"
        elif verifies(
            certificates[party],
            record.statement(digest, agreed, account.covers, opening),
            bytes.fromhex(account.signature),
        ):
            signature = account.signature
        else:
            problem = SIGNED_ELSE
        entries.append(
            {
                "rank": party.rank,
                "name": roster.name(party),
                "covers": "public" if account is None else account.covers,
                "opening": None if opening is None else opening.hex(),
                "signature": signature,
                "problem": problem,
            }
        )
    return {
        "roster": digest.hex(),
        "agreed": agreed.hex(),
        "files": file_digests(record.files),
        "parties": entries,
        "writer": {"rank": session.me.rank, "signature": None},
    }
