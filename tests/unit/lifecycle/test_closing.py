"""Counters and signatures at the end: a bad one is noted and never ends a run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.lifecycle.closing import Account, Counters, Sent, Totals, account_client, collect_accounts, send_totals
from fastlloyd.run.simulation import Simulation
from fastlloyd.wire.header import SERVER, PartyId, clients

EVERYBODY = clients(2)
ONE, TWO = EVERYBODY
SENT = Sent(payload_bytes=1, link_bytes=2, messages=3, setup_bytes=4)
GOOD = json.loads(Counters({ONE: Account(sent=SENT)}).body())


def changed(**changes: Any) -> bytes:
    entry = {**GOOD["accounts"]["1"], **changes}
    return json.dumps({"accounts": {"1": entry}}).encode()


BAD = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b'{"accounts": {}, "accounts": {}}',
    b'{"accounts": []}',
    b"\xff",
    b"[" * 100_000,
    changed(sent={}),
    changed(sent="much"),
    changed(sent={**GOOD["accounts"]["1"]["sent"], "messages": -1}),
    changed(sent={**GOOD["accounts"]["1"]["sent"], "messages": True}),
    changed(sent={**GOOD["accounts"]["1"]["sent"], "messages": 1.0}),
    changed(sent={**GOOD["accounts"]["1"]["sent"], "messages": 10**30}),
    changed(sent={**GOOD["accounts"]["1"]["sent"], "more": 1}),
    changed(signature="xy"),
    changed(signature=5),
    changed(covers="everything"),
    b'{"accounts": {"7": ' + json.dumps(GOOD["accounts"]["1"]).encode() + b"}}",
    changed() + b" " * 10_000,
]


def test_accounts_read_back() -> None:
    accounts = {SERVER: Account(sent=SENT), TWO: Account(sent=SENT, signature="ab" * 64, covers="result")}
    read = Totals.read(Totals(accounts).body(), (SERVER, *EVERYBODY))
    assert read.by_party == accounts and not read.problem


@pytest.mark.parametrize("body", BAD)
def test_what_cannot_be_read_is_noted(body: bytes) -> None:
    read = Counters.read(body, EVERYBODY)
    assert read.problem and not read.by_party


@given(st.binary(max_size=200))
def test_no_bytes_raise(body: bytes) -> None:
    Totals.read(body, EVERYBODY)


@pytest.mark.parametrize("body", [*BAD, None, Counters({ONE: Account(sent=SENT)}).body()])
def test_a_client_s_nonsense_costs_its_line_only(body: bytes | None) -> None:
    def serve():
        told = yield from collect_accounts(EVERYBODY, frozenset())
        accounts = {SERVER: Account(sent=SENT)}
        for message in told.values():
            accounts.update(message.by_party)
        yield from send_totals(EVERYBODY, accounts)
        return told

    def tap(sender: PartyId, receiver: PartyId, header: Any, sent: bytes) -> bytes | None:
        return body if sender == TWO else sent

    parties = {me: account_client(me, EVERYBODY, Account(sent=SENT)) for me in EVERYBODY}
    results = Simulation({SERVER: serve(), **parties}, tap).run()
    assert set(results[ONE].by_party) == {SERVER, ONE} == set(results[TWO].by_party)
    if body is not None:
        assert results[SERVER][TWO].problem and not results[SERVER][TWO].by_party
