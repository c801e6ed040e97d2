"""What the kernel says of a connection is what went over it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from fastlloyd.net.sockets import SocketCount, count, count_both_ends, own_sockets, seen_headers, socket_names

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family) as listener, socket.socket(family) as active:
        try:
            listener.bind((request.param, 0))
        except OSError:
            pytest.skip("this host has no IPv6")
        listener.listen()
        active.connect(listener.getsockname())
        with listener.accept()[0] as passive:
            yield active, passive


def exchange(active: socket.socket, passive: socket.socket) -> None:
    for _ in range(10):
        active.sendall(bytes(1000))
        passive.recv(1000, socket.MSG_WAITALL)
        passive.sendall(bytes(10))
        active.recv(10, socket.MSG_WAITALL)


def test_both_ends_count_the_same_bytes(pair: Pair) -> None:
    exchange(*pair)
    active, passive = (count(each) for each in pair)
    assert active is not None and passive is not None
    assert (active.sent, active.received) == (10_000, 100) == (passive.received, passive.sent)
    assert active.port == pair[1].getsockname()[1]
    header = 52 if pair[0].family == socket.AF_INET else 72
    assert active.header == header
    # Twenty messages and the three segments that open a connection, as few acknowledgements as the kernel likes.
    headers = active.headers_sent + passive.headers_sent
    assert 23 * header <= headers <= 45 * header
    assert active.headers_sent + active.headers_received == pytest.approx(headers, abs=2 * header)


def test_the_other_end_is_asked_too(pair: Pair) -> None:
    exchange(*pair)
    own, both = count(pair[0]), count_both_ends(pair[0])
    other = count(pair[1])
    assert own is not None and both is not None and other is not None
    assert (both.sent, both.headers_sent) == (own.sent, own.headers_sent)
    assert (both.received, both.headers_received) == (other.sent, other.headers_sent)


def test_an_interface_may_see_fewer_headers_and_others_bytes() -> None:
    # Fewer, as it says; more, for others use it as well; hardly any, for it is another interface.
    assert [seen_headers(1000, 600, 5000, moved) for moved in (5700, 9000, 0)] == [700, 1000, 400]


def test_what_is_no_connection_counts_nothing() -> None:
    left, right = socket.socketpair()
    with left, right, socket.socket() as unconnected, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        assert [count(each) for each in (left, unconnected, datagrams)] == [None] * 3
        assert count_both_ends(unconnected) is None


def test_own_sockets_are_found_and_stay_open() -> None:
    before = socket_names()
    with socket.socket() as listener, socket.socket() as active:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        active.connect(listener.getsockname())
        with listener.accept()[0] as passive:
            found = {each.getsockname() for each in own_sockets(but=before)}
            assert {active.getsockname(), passive.getsockname()} <= found
            exchange(active, passive)


def test_counts_add_up() -> None:
    assert SocketCount(1, 2, 3, 4, 52, 7) + SocketCount(10, 20, 30, 40, 66, 8) == SocketCount(11, 22, 33, 44, 66, 0)
