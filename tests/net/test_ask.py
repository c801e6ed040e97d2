"""A client asks the server what run it serves, before anybody has agreed to anything."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from fastlloyd.errors import ConfigError, PeerError, PeerTimeout, SecurityError
from fastlloyd.net.tcp.address import Address
from fastlloyd.net.tcp.admission import Admission, Introduction, Welcome
from fastlloyd.net.tcp.delivery import ASKS
from fastlloyd.net.tcp.proxy import Proxy
from fastlloyd.net.tcp.route import MOST_OFFER_BYTES, Route
from fastlloyd.wire.header import SERVER, PartyId
from tests.net.connect_proxy import ConnectProxy
from tests.net.support import identity
from tests.net.test_tcp import LIMIT_S, Site, client_keys, end_of, until

ONE = PartyId(1)
# More than a connection takes at once.
OFFER = os.urandom(MOST_OFFER_BYTES)


@pytest.mark.parametrize("keys", [False, True], ids=["plain", "tls"])
def test_whoever_asks_is_told_and_may_join_later(keys: bool) -> None:
    with Site(2, keys=keys, options={"offer": OFFER, "reconnect_s": LIMIT_S}) as site, site.turning() as found:
        routes = [Route(site.address, rank, client_keys(rank) if keys else None) for rank in (1, 2)]
        for route in routes * 3:
            assert route.ask() == OFFER
        assert site.server.joined == 0 and site.said == []
        one = site.join(1)
        assert [route.ask() for route in routes] == [OFFER] * 2  # also of who is in already: a service started anew
        site.join(2)
        assert routes[0].ask() == OFFER
        one.send(SERVER, b"in")
        until(lambda: found == [(ONE, b"in")])
        assert site.warned == []


def test_through_a_proxy() -> None:
    with Site(1, keys=True, options={"offer": OFFER}) as site, ConnectProxy() as proxy, site.turning():
        assert Route(site.address, 1, client_keys(1), Proxy(Address("127.0.0.1", proxy.port))).ask() == OFFER


def test_a_server_without_an_offer_tells_nothing() -> None:
    with Site(1, keys=True) as site, site.turning():
        assert Route(site.address, 1, client_keys(1)).ask() == b""
        assert site.warned == []


def test_strangers_are_told_nothing() -> None:
    with Site(1, keys=True, options={"offer": OFFER}) as site, site.turning():
        with pytest.raises((SecurityError, PeerTimeout)):
            Route(site.address, 1, client_keys(1, who=identity(7))).ask()
        with site.raw() as stranger:
            stranger.sendall(Introduction(1, ASKS).encode())
            assert OFFER[:100] not in end_of(stranger)
    refused = pytest.raises(ConfigError, match="expected a client from 1 to 1")
    with Site(1, options={"offer": OFFER}) as site, site.turning(), refused:
        Route(site.address, 9, None).ask()


def test_whoever_asks_and_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastlloyd.net.tcp.door._LEAVING_S", 0.5)
    with Site(1, options={"offer": OFFER * 40, "admission_s": 0.5}) as site, site.turning():
        with site.raw() as silent:
            silent.sendall(Introduction(1, ASKS).encode())
            until(lambda: len(site.server._leaving) == 1)
            until(lambda: len(site.server._leaving) == 0)
        assert site.warned == []
        site.join(1)


@contextlib.contextmanager
def answering(words: bytes, *, hangs_up: bool = True) -> Iterator[Route]:
    """Listen as something that says these words to whoever asks."""
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:

        def serve() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(words)
                if hangs_up:
                    connection.shutdown(socket.SHUT_WR)
                end_of(connection)

        pool.submit(serve)
        yield Route(Address(*other.getsockname()), 1, None)


@pytest.mark.parametrize(
    ("answer", "length", "sentence"),
    [
        (Admission.OFFER, MOST_OFFER_BYTES + 1, "gave an unexpected answer"),
        (Admission.OFFER, 2**64 - 1, "gave an unexpected answer"),
        (Admission.OFFER, 4, "hung up before it had answered"),
        (Admission.WELCOME, 0, "gave an unexpected answer"),
        (Admission.OTHER_VERSION, 0, "does not speak version"),
    ],
)
def test_a_server_that_lies_is_refused(answer: Admission, length: int, sentence: str) -> None:
    with answering(Welcome(answer, 1, 2, ASKS, length).encode() + b"abc") as route, pytest.raises(PeerError) as caught:
        route.ask()
    assert sentence in str(caught.value)


def test_a_server_that_drips_is_not_said_to_hang_up() -> None:
    word = Welcome(Admission.OFFER, 1, 2, ASKS, 4).encode() + b"abc"
    with answering(word, hangs_up=False) as route, pytest.raises(PeerTimeout, match="did not send all of its offer in"):
        route.ask(0.2)


def test_an_older_server_offers_nothing() -> None:
    with answering(Welcome(Admission.NO_SUCH_SESSION, 1, 2).encode()) as route:
        assert route.ask() == b""


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address(*taken.getsockname())
    with pytest.raises(PeerTimeout, match=r"no answer from 127.0.0.1:\d+ \(connection refused\)"):
        Route(address, 1, None).ask()
