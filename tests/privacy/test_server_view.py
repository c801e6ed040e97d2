"""What the server receives does not depend on records, but for the vectors that a protocol masks, encrypts or noises.

Each protocol runs twice, whole runs with a roster, on tables that differ in one record, with the same secrets and the
same noise of all parties. Everything that reaches the server is compared, byte by byte and in its order.

Two things are replaced in both runs, so that what stays different is a leak and nothing else:

- Keyed hashes of the result and of what was heard. The server does not know their keys, or has the result; each key is
  for one content (checked). So to it they are random numbers, and here numbers that do not depend on the content.
- The digest of what the server itself has told all: it follows from its own replies, and it has the same (checked).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from fastlloyd.crypto import hybrid
from fastlloyd.crypto.link.identity import make_identity
from fastlloyd.crypto.link.roster import Roster, RosterEntry
from fastlloyd.data.records import OwnRecords
from fastlloyd.errors import ConfigError
from fastlloyd.lifecycle.closing import Counters
from fastlloyd.party.transcript import Transcript
from fastlloyd.protocols.registry import PROTOCOLS
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import derive
from fastlloyd.run import simulation as in_memory
from fastlloyd.run.closing import conclude
from fastlloyd.run.config import RunConfig
from fastlloyd.run.session import Session, find_protocol
from fastlloyd.run.simulation import run_together
from fastlloyd.run.vertical import OwnColumns
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.contracts import whole_run
from tests.test_tables import messages
from tests.vectors import mlkem768

NAMES = {kind.TYPE: kind.__name__ for kind in messages()}
CHANGED = PartyId(1)
IDENTITIES = {PartyId(rank): make_identity(f"site {rank}", rank) for rank in range(6)}
encapsulate = functools.lru_cache(maxsize=1 << 10)(mlkem768.encapsulate)  # two runs with the same bits do the same
ENDS = (domains.SAME_TRANSCRIPT, domains.SAME_RESULT, domains.RESULT_COMMITMENT)
AGREED = bytes(range(32))


@dataclass(frozen=True, kw_only=True)
class Case:
    """One protocol in one mode: which messages that reach the server may depend on records, and why."""

    protocol: str
    may: Mapping[str, str]
    masking: str = "common"
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    n: int = 3
    result_is_clients: bool = False
    """The server must learn nothing of it."""
    sizes_are_public: bool = False
    """Each party tells how many records it has, or all have the same."""

    @property
    def config(self) -> RunConfig:
        settings = {self.protocol: dict(self.settings)}
        return replace(whole_run.config(self.protocol), masking=self.masking, settings=settings, **self.options)


MASKED = {"MaskedUpdate": "a vector under masks that only the clients have"}
NOISED = {"MaskedUpdate": "masked; the sum has the clients' own noise, which is kept the same here"}
HAS_IT = {"Chains": "the server has the result, and refuses what differs from its own"}
CASES: dict[str, Case] = {
    **{
        name: Case(protocol=name, may=MASKED, result_is_clients=True)
        for name in ("fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "lloyd")
    },
    **{
        f"{name}, pairwise": Case(protocol=name, may=NOISED, masking="pairwise")
        for name in ("fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "lloyd")
    },
    **{
        f"{name}, threshold": Case(protocol=name, may=MASKED, masking="threshold", result_is_clients=True)
        for name in ("fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "lloyd")
    },
    "feddp, threshold": Case(
        protocol="feddp", may={"MaskedStatistic": NOISED["MaskedUpdate"], **HAS_IT}, masking="threshold"
    ),
    "feddp": Case(protocol="feddp", may={"MaskedStatistic": NOISED["MaskedUpdate"], **HAS_IT}),
    "kfed": Case(protocol="kfed", may={"LocalCenters": "not private: means of a client's records", **HAS_IT}),
    "secfc": Case(
        protocol="secfc",
        may={"CodedValues": "comparisons under masks of the clients; docs/secfc.md says what they tell the server"},
        n=5,
        result_is_clients=True,
        sizes_are_public=True,
    ),
    "vertical-dp": Case(
        protocol="vertical-dp", may={"Synopsis": "a release with noise of its sender"}, sizes_are_public=True
    ),
    "vertical-dp, shared": Case(
        protocol="vertical-dp",
        may={"Synopsis": "a release with noise of its sender", **HAS_IT},
        settings={"share_result": True},
        sizes_are_public=True,
    ),
    "vertical-plain": Case(
        protocol="vertical-plain", may={"Synopsis": "not private: every person's cluster"}, sizes_are_public=True
    ),
    "vertical-plain, shared": Case(
        protocol="vertical-plain",
        may={"Synopsis": "not private: every person's cluster", **HAS_IT},
        settings={"share_result": True},
        sizes_are_public=True,
    ),
    "vertical-he": Case(
        protocol="vertical-he",
        may={
            "KeyMaterial": "a public key, drawn by another library",
            "EncryptedBlock": "ciphertexts",
            "NoisySums": "released sums, with noise of both sides",
            **HAS_IT,
        },
        n=1,
        settings={"scheme": "linear"},
        sizes_are_public=True,
    ),
    "vertical-he, aided": Case(
        protocol="vertical-he",
        may={
            "KeyMaterial": "public keys, drawn by another library",
            "EncryptedBlock": "ciphertexts",
            "NoisySums": "released sums, with noise of both sides",
            **HAS_IT,
        },
        n=2,
        settings={"mode": "server-aided"},
        sizes_are_public=True,
    ),
    "vertical-he, threshold": Case(
        protocol="vertical-he",
        may={
            "KeyContribution": "shares of public keys",
            "EncryptedBlock": "ciphertexts",
            "PartialOpenings": "each owner's part of the opening of noisy sums",
            **HAS_IT,
        },
        n=2,
        settings={"mode": "threshold"},
        sizes_are_public=True,
    ),
    "secfc, membership": Case(
        protocol="secfc",
        may={"CodedValues": "as without it"},
        n=5,
        settings={"membership": True},
        result_is_clients=True,
        sizes_are_public=True,  # of all clients together
    ),
    "fastlloyd-plus, choose k": Case(
        protocol="fastlloyd-plus",
        may=MASKED,
        result_is_clients=True,
        options={"k": 6, "choose_k": True, "rounds": 4, "epsilon": 20.0},
    ),
}


@dataclass
class View:
    """What reached the server, and what the test must know to judge it."""

    received: list[tuple[int, str, int, bytes]] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    keys: dict[tuple[bytes, bytes], bytes] = field(default_factory=dict)
    """(secret, purpose) of each keyed hash at the end, and its only content."""
    files: list[Mapping[str, str]] = field(default_factory=list)

    def differences(self, other: View, may: Mapping[str, str]) -> list[str]:
        """Name each message that differs, where it may not, or in length where its content may."""
        mine = [(sender, name, round_, len(body)) for sender, name, round_, body in self.received]
        theirs = [(sender, name, round_, len(body)) for sender, name, round_, body in other.received]
        if mine != theirs:
            return [str(entry) for entry in sorted(set(mine) ^ set(theirs))] or ["the order of messages"]
        pairs = zip(self.received, other.received, strict=True)
        return [f"{a[1]} of client {a[0]}" for a, b in pairs if a[3] != b[3] and a[1] not in may]


@contextmanager
def same_bits(label: str) -> Iterator[None]:
    """Let all secrets of all parties be the same in each run with this label."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", random.Random(label).randbytes)
        # The library draws an encapsulation's bytes itself.
        patch.setattr(hybrid, "_encapsulate", lambda public: encapsulate(public, os.urandom(32)))
        yield


def watch(
    case: Case, own: Mapping[PartyId, Any], patch: pytest.MonkeyPatch, label: str = "all bits", viewer: PartyId = SERVER
) -> View:
    """Run a session and keep what the server, or another viewer, received."""
    view = View()
    protocol = find_protocol(case.protocol)
    config, common = protocol.gather(case.config, case.n)
    entries = [
        RosterEntry(one.name, "client" if party.rank else "server", party.rank, one.certificate_pem)
        for party, one in IDENTITIES.items()
    ]
    roster = Roster(tuple(entries[: case.n + 1]))

    def with_roster(**given: Any) -> Session:
        return Session(**{**given, "identity": IDENTITIES[given["me"]], "roster": roster})

    def ideal(secret: bytes, purpose: bytes, content: bytes = b"", salt: bytes | None = None) -> bytes:
        if purpose not in ENDS:
            return derive(secret, purpose, content, salt)
        first = view.keys.setdefault((secret, purpose), content)
        assert first == content, "hashes of two contents under one key tell whether these differ"
        return hashlib.sha256(purpose + bytes([list(view.keys).index((secret, purpose))])).digest()

    def tap(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes:
        if receiver == viewer:
            view.received.append((sender.rank, NAMES[header.type], header.round, body))
        if sender == SERVER:
            view.sent.append(body)
        return body

    digests = set()

    def agreed(self: Transcript) -> bytes:
        digests.add(hashlib.sha256(repr(self.chains).encode()).digest())
        return AGREED

    patch.setattr(in_memory, "Session", with_roster)
    patch.setattr("fastlloyd.crypto.commitment.derive", ideal)
    patch.setattr("fastlloyd.lifecycle.same_secret.derive", ideal)
    patch.setattr(Transcript, "digest", agreed)
    with same_bits(label):
        ended = run_together(config, case.n, inputs=common, owned=own, tap=tap)
    assert len(digests) == 1, "the server has told, and knows, what all have heard"
    for outcome in ended.outcomes.values():
        if outcome.result is not None:
            view.files.append({**outcome.result.files, "sizes": str(outcome.result.noisy_sizes)})
    return view


def loaded(case: Case) -> dict[PartyId, Any]:
    """What the parties have of iris."""
    protocol = find_protocol(case.protocol)
    config, common = protocol.gather(case.config, case.n)
    return {me: protocol.load(config, common, me) for me in (SERVER, *clients(case.n))}


def neighbour(own: Any, *, remove: bool) -> Any:
    """The records of a party with one of them changed, or left out."""
    if isinstance(own, OwnColumns):
        values = own.table.raw_values.copy()
        values[0] = own.features.bounds.hi  # within the bounds, and far from where it was
        return replace(own, table=dataclasses.replace(own.table, raw_values=values))
    assert isinstance(own, OwnRecords)
    points = own.raw_points[1:].copy() if remove else own.raw_points.copy()
    if not remove:
        points[0] += 0.25 * np.where(points[0] > 0, -1.0, 1.0)
    return replace(own, raw_points=points)


def two_views(
    case: Case, remove: bool, patch: pytest.MonkeyPatch, viewer: PartyId = SERVER, label: str = "all bits"
) -> tuple[View, View]:
    """What a party sees of two neighbouring tables; their results must differ, else nothing is shown."""
    own = loaded(case)
    other = {**own, CHANGED: neighbour(own[CHANGED], remove=remove)}
    views = [watch(case, each, patch, label, viewer) for each in (own, other)]
    assert views[0].files and views[0].files[0] != views[1].files[0]
    return views[0], views[1]


KINDS = [
    (name, remove) for name, case in CASES.items() for remove in (False, True) if not (remove and case.sizes_are_public)
]


SLOW = ("vertical-he, aided", "vertical-he, threshold")
PARAMETERS = [
    pytest.param(
        name,
        remove,
        id=f"{name}, {'removed' if remove else 'changed'}",
        marks=[pytest.mark.slow] * (name in SLOW),
    )
    for name, remove in KINDS
]


@pytest.mark.parametrize(("name", "remove"), PARAMETERS)
def test_the_server_receives_the_same(name: str, remove: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    one, two = two_views(case, remove, monkeypatch)
    assert not one.differences(two, case.may)
    seen = {entry[1] for entry in one.received}
    assert set(case.may) <= seen, "a message is named that the server never gets"
    if case.result_is_clients:
        # The keys of what it does get are none that it can know, and others in every run.
        known = b"".join(body for *_, body in one.received) + b"".join(one.sent)
        assert one.keys and not any(secret in known or secret.hex().encode() in known for secret, _ in one.keys)


@pytest.mark.parametrize("name", ["vertical-dp", "vertical-plain"])
def test_a_result_that_the_server_keeps_reaches_no_other_party(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The server signs it, and its signature goes to all.
    one, two = two_views(CASES[name], False, monkeypatch, PartyId(2))
    assert not one.differences(two, {})
    assert "Totals" in {entry[1] for entry in one.received}
    sign_the_digest(monkeypatch)
    one, two = two_views(CASES[name], False, monkeypatch, PartyId(2))
    assert one.differences(two, {}) == ["Totals of client 0"]  # what the server's signature gave away


def test_every_protocol_and_every_masking_is_tried() -> None:
    tried = {(case.protocol, masks(case.protocol, case.masking)) for case in CASES.values()}
    asked = ("common", "pairwise", "threshold")
    assert tried == {(protocol, masks(protocol, each)) for protocol in PROTOCOLS for each in asked}


@functools.cache
def masks(protocol: str, asked: str) -> str | None:
    """How a run masks that is asked to mask so; None where nothing is masked by it."""
    foresee = find_protocol(protocol).foresee
    try:
        config = replace(whole_run.config(protocol), masking=asked, dataset=None, n_total=150)
    except ConfigError as error:
        assert f"--masking means nothing in {protocol}" in str(error)
        return None
    seen = None if foresee is None else foresee(config, whole_run.CLIENTS.get(protocol, 3), 4)
    return None if seen is None else seen.masking


def test_other_secrets_give_other_signatures_and_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else the keys of the first test would be constants.
    case = CASES["fastlloyd"]
    own = loaded(case)
    one, two = (watch(case, own, monkeypatch, label) for label in ("bits", "other bits"))
    assert not {secret for secret, _ in one.keys} & {secret for secret, _ in two.keys}


def sign_the_digest(patch: pytest.MonkeyPatch) -> None:
    """Sign the digest of the result itself, as protocol version 7 did."""
    patch.setattr("fastlloyd.report.signed.commit", lambda digest, opening: digest)


def lengthen_by_records(patch: pytest.MonkeyPatch) -> None:
    """Let the length of a message depend on the labels of a client's records."""
    body, counts = Counters.body, {}

    def count(session: Any, made: Any, *, raw_labels: Any, **more: Any) -> Any:
        counts[session.me] = int(raw_labels.sum())
        return conclude(session, made, raw_labels=raw_labels, **more)

    patch.setattr("fastlloyd.protocol.horizontal.conclude", count)
    patch.setattr(Counters, "body", lambda self: body(self) + b" " * max(counts[party] for party in self.by_party))


def count_in_the_open(patch: pytest.MonkeyPatch) -> None:
    """Say in the final message what is kept at home."""

    def tell(session: Any, made: Any, **more: Any) -> Any:
        public = {**made.common, "parameters": {**made.common["parameters"], "first": made.centroids[0, 0]}}
        return conclude(session, replace(made, common=public), **more)

    patch.setattr("fastlloyd.protocol.horizontal.conclude", tell)


@pytest.mark.parametrize(
    ("name", "plant", "shown"),
    [
        ("fastlloyd", sign_the_digest, "Counters of client 1"),
        ("secfc", sign_the_digest, "Counters of client 1"),
        ("fastlloyd", lengthen_by_records, "Counters"),
        ("fastlloyd-plus", count_in_the_open, "Counters of client 1"),
    ],
)
def test_a_planted_leak_is_seen(
    name: str, plant: Callable[[pytest.MonkeyPatch], None], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    # With these bits the changed record changes a label, and so what is planted.
    one, two = two_views(CASES[name], False, monkeypatch, label="bits")
    assert any(shown in difference for difference in one.differences(two, CASES[name].may))
