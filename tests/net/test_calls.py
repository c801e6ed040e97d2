"""Frames as calls of a framework: the contract, calls that fail or arrive twice, peers that vanish, hostile bytes."""

from __future__ import annotations

import itertools
import struct
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.errors import Interrupted, PeerError, PeerGone
from fastlloyd.net import calls
from fastlloyd.net.calls import MOST_FRAMES, VERSION, decode_call, encode_call
from fastlloyd.net.link.secure import SecureLinks
from fastlloyd.net.meter import Meter
from fastlloyd.wire.header import SERVER, PartyId
from tests.contracts import transport as contract
from tests.net.calls import joined, unreliable
from tests.net.support import CONTEXT, LIMIT_S, at_once, identity

ONE, TWO = PartyId(1), PartyId(2)


@pytest.mark.parametrize("count", [2, 4])
def test_contract(count: int) -> None:
    with joined(count) as transports:
        ran = at_once([lambda one=one: contract.run(one) for one in transports])
    assert ran == [len(contract.CASES)] * count


def test_contract_where_calls_fail_and_answers_are_lost() -> None:
    """A call that was not made, and one whose answer was lost: each frame is still there once, in order."""
    cases = (contract.order_per_peer, contract.any_source, contract.large_frame, contract.buffer_reuse)
    with joined(3, unreliable(0.2)) as transports:
        ran = at_once([lambda one=one: contract.run(one, *cases) for one in transports])
    assert ran == [len(cases)] * 3


def test_too_long_frames_are_refused() -> None:
    with joined(3) as transports:
        found = at_once([lambda one=one: contract.too_long_refused(one) for one in transports])
    assert found == [None] * 3


def test_a_closed_transport_says_so() -> None:
    with joined(2) as transports:
        contract.closed_refuses(transports[1])


def test_links_come_up_over_calls() -> None:
    certificates = {PartyId(rank): identity(rank).certificate_der for rank in range(3)}
    with joined(3) as transports:
        links = [SecureLinks(each, identity(each.me.rank), certificates, Meter()) for each in transports]
        assert at_once([lambda one=one: one.connect(CONTEXT, deadline_s=LIMIT_S) for one in links]) == [None] * 3


def test_a_peer_that_is_not_reached_any_more_is_named_though_nobody_sends() -> None:
    dead = threading.Event()

    def fault(sender: PartyId, peer: PartyId, take: Callable[[], bool]) -> object:
        if dead.is_set() and TWO in (sender, peer):
            raise ConnectionError("no such cell")
        return take()

    with joined(3, fault, gone_s=0.2, beat_s=0.05) as transports:
        at_once([lambda one=one: contract.run(one, contract.any_source) for one in transports])
        dead.set()
        with pytest.raises(
            PeerGone, match=r"client 2 is gone: the framework did not reach it for 0\.2 s .*no such cell"
        ):
            transports[0].receive(LIMIT_S)
        with pytest.raises(PeerGone, match="the server is gone"):
            transports[2].receive(LIMIT_S)
        with pytest.raises(PeerGone, match="client 2"):
            transports[0].send(TWO, b"x")
        transports[0].send(ONE, b"y")
        assert transports[1].receive(LIMIT_S) == (SERVER, b"y")


def test_the_frames_before_a_loss_are_given_out_first() -> None:
    with joined(2) as (server, client):
        client.send(SERVER, b"last")
        while not server._inbox:
            time.sleep(0.01)
        server.lose(ONE, "its site has left")
        assert server.receive(LIMIT_S) == (ONE, b"last")
        with pytest.raises(PeerGone, match="client 1 is gone: its site has left"):
            server.receive(LIMIT_S)
        assert server.receive(0.0) is None


def test_who_has_never_called_is_absent() -> None:
    quiet = threading.Event()

    def fault(sender: PartyId, peer: PartyId, take: Callable[[], bool]) -> object:
        if not quiet.is_set():
            raise ConnectionError("not there yet")
        return take()

    with joined(2, fault, beat_s=0.01) as (server, client):
        assert server.absent == {ONE}
        assert client.absent == {SERVER}
        quiet.set()
        server.send(ONE, b"x")
        assert client.receive(LIMIT_S) == (SERVER, b"x")
        assert client.absent == frozenset()


def test_a_slow_reader_holds_its_sender_up_and_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "INBOX_BYTES", 1000)
    monkeypatch.setattr(calls, "BATCH_BYTES", 500)
    with joined(2, gone_s=0.05) as (server, client):
        for number in range(50):
            client.send(SERVER, struct.pack("<I", number) * 50)
        time.sleep(0.3)  # well beyond gone_s
        assert server._peers[ONE].unread_bytes <= 1000 + 500 + 200 + 4 * calls.FRAME_COST
        for number in range(50):
            assert server.receive(LIMIT_S) == (ONE, struct.pack("<I", number) * 50)


def test_who_takes_nothing_counts_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "WAITING_BYTES", 1000)
    with joined(2, lambda *_: False) as (server, _), pytest.raises(PeerGone, match="does not take its frames"):
        for _ in itertools.repeat(None, 1000):
            server.send(ONE, bytes(100))


def test_a_stop_of_the_framework_is_an_interruption_once() -> None:
    stopping = threading.Event()
    with joined(2, stopped=stopping.is_set) as (server, client):
        assert server.receive(0.0) is None
        stopping.set()
        with pytest.raises(Interrupted, match="stopped by the framework"):
            server.receive(LIMIT_S)
        client.send(SERVER, b"so end it")
        assert server.receive(LIMIT_S) == (ONE, b"so end it")


def test_a_client_that_is_stopped_lets_the_server_speak_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "STOP_S", 1.0)
    stopping = threading.Event()
    with joined(2, stopped=stopping.is_set) as (server, client):
        stopping.set()
        assert client.receive(0.0) is None
        server.send(ONE, b"it was client 2")
        assert client.receive(LIMIT_S) == (SERVER, b"it was client 2")
        with pytest.raises(Interrupted, match="stopped by the framework"):
            client.receive(LIMIT_S)


def test_who_was_out_of_reach_when_the_framework_ended_the_job_is_named() -> None:
    """The framework knows at once that a process has died; `gone_s` is not over then."""
    stopping, dead = threading.Event(), threading.Event()

    def fault(sender: PartyId, peer: PartyId, take: Callable[[], bool]) -> object:
        if stopping.is_set() or (dead.is_set() and peer == TWO):
            raise ConnectionError("no such cell")
        return take()

    with joined(3, fault, stopped=stopping.is_set, beat_s=0.02) as (server, _, _):
        while server.absent:
            time.sleep(0.01)
        dead.set()
        while not server._peers[TWO].failing:
            time.sleep(0.01)
        stopping.set()
        with pytest.raises(PeerGone, match="client 2 is gone: the framework did not reach it, and ended the job"):
            server.receive(LIMIT_S)
        assert not server._peers[ONE].gone


def test_the_last_frames_arrive_before_close_returns() -> None:
    with joined(2) as (server, client):
        for number in range(100):
            client.send(SERVER, bytes([number]) * 10_000)
        client.close()
        assert [server.receive(LIMIT_S) for _ in range(100)] == [(ONE, bytes([i]) * 10_000) for i in range(100)]
        server.send(ONE, b"too late")  # taken and dropped: nobody waits for it
        server.close()
        assert not server._peers[ONE].gone


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("text", "expected bytes, got str"),
        (b"", "expected at least 9 bytes, got 0"),
        (struct.pack("<BQ", VERSION + 1, 0), f"expected version {VERSION} of a call"),
        (encode_call(0, [b"abc"])[:-1], "a frame of 3 bytes was announced, and 2 came"),
        (encode_call(0, []) + b"\0\0", "expected whole frames"),
        (encode_call(0, [b""] * (MOST_FRAMES + 1)), f"at most {MOST_FRAMES}"),
    ],
)
def test_what_is_no_call_is_refused_and_named(content: object, words: str) -> None:
    with joined(3) as (server, _, _):
        with pytest.raises(ValueError, match=words):
            server.take(TWO, content)
        with pytest.raises(PeerError, match=f"client 2 sent an invalid frame: .*{words}"):
            server.receive(LIMIT_S)
        with pytest.raises(ValueError, match="is not expected here"):
            server.take(TWO, encode_call(0, []))


def test_strangers_and_calls_out_of_order_are_refused() -> None:
    with joined(2) as (server, _):
        for nobody in (PartyId(2), SERVER):
            with pytest.raises(ValueError, match="does not take part"):
                server.take(nobody, encode_call(0, [b"x"]))
        with pytest.raises(ValueError, match=r"call 5 of client 1 is not expected here, after \d were taken"):
            server.take(ONE, encode_call(5, [b"x"]))
        assert server.receive(0.0) is None


@given(st.integers(0, 2**64 - 1), st.lists(st.binary(max_size=50), max_size=20))
def test_a_call_is_read_back(number: int, frames: list[bytes]) -> None:
    assert decode_call(encode_call(number, frames)) == (number, frames)


@given(st.binary(max_size=100), st.booleans())
def test_any_bytes_are_read_strictly(content: bytes, versioned: bool) -> None:
    content = bytes([VERSION]) + content if versioned else content
    try:
        number, frames = decode_call(content)
    except ValueError:
        return
    assert encode_call(number, frames) == content
