"""A path that drops what is sent, without a word, is noticed and replaced; an end that does not read is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from fastlloyd.errors import PeerError
from fastlloyd.net.sockets import unconfirmed
from fastlloyd.net.tcp.address import Address
from fastlloyd.net.tcp.admission import Admission, Introduction
from fastlloyd.net.tcp.proxy import Proxy
from fastlloyd.net.tcp.spoke import TcpClient
from fastlloyd.run.config import RunConfig
from fastlloyd.wire.header import SERVER, PartyId
from tests.net import netns
from tests.net.connect_proxy import ConnectProxy
from tests.net.netns import Wires, namespace
from tests.net.support import receiving
from tests.net.test_reconnect import answer_to
from tests.net.test_tcp import LIMIT_S, Site, until

ONE = PartyId(1)
SILENCE_S = 0.6
OPTIONS = {"reconnect_s": LIMIT_S, "silence_s": SILENCE_S}


@pytest.fixture
def wires() -> Iterator[Wires]:
    yield from netns.wires()


def port_of(client: TcpClient) -> int:
    assert client._hub.stream is not None
    return int(client._hub.stream._socket.getsockname()[1])


def far(wires: Wires, **options: object) -> Site:
    """Return a server in the operator's namespace."""
    with namespace.within(wires.operator):
        return Site(1, keys=True, host=netns.OPERATOR, options=OPTIONS | options)


def receive_until(client: TcpClient, condition: Callable[[], object]) -> list:
    """Let the client receive, in this thread, until something is so."""
    found, end = [], time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        found.append(client.receive(1.0))
    return [item for item in found if item is not None]


@pytest.mark.parametrize(
    ("to_operator", "to_site"), [(True, True), (True, False), (False, True)], ids=["both", "up", "down"]
)
def test_a_flow_that_is_dropped_in_silence_is_replaced(wires: Wires, to_operator: bool, to_site: bool) -> None:
    with far(wires) as here, namespace.within(wires.site):
        with here.turning():
            client = here.join(1, **OPTIONS)
        wires.drop(port_of(client), to_operator=to_operator, to_site=to_site)
        started = time.monotonic()
        client.send(SERVER, b"up")
        here.server.send(ONE, b"down")
        with here.turning() as at_server:
            came = receive_until(client, lambda: here.server._by_rank[1].returns and at_server)
            assert time.monotonic() - started < LIMIT_S / 2
            came += receive_until(client, lambda: came)
            client.send(SERVER, b"after")
            receive_until(client, lambda: len(at_server) == 2)
        assert at_server == [(ONE, b"up"), (ONE, b"after")] and came == [(SERVER, b"down")]
        assert here.server._by_rank[1].returns == 1
        assert any("was cut (nothing has come from it for 0.6 s)" in line for line in here.said), here.said


def test_a_client_with_another_address_comes_back_from_there(wires: Wires) -> None:
    with far(wires) as here, namespace.within(wires.site):
        with here.turning() as at_server:
            client = here.join(1, **OPTIONS)
            wires.move()
            client.send(SERVER, b"from elsewhere")
            receive_until(client, lambda: at_server)
        assert at_server == [(ONE, b"from elsewhere")]
        assert any(line.startswith("client 1 is back") and netns.NEW_SITE in line for line in here.said), here.said


def test_a_tunnel_that_its_proxy_forgets_is_replaced() -> None:
    # The proxy's kernel confirms everything, so no end sees bytes that nobody confirms.
    with ConnectProxy() as proxy, Site(1, keys=True, options=OPTIONS) as here:
        with here.turning():
            client = here.join(1, proxy=Proxy(Address("127.0.0.1", proxy.port)), **OPTIONS)
        proxy.forget()
        client.send(SERVER, b"up")
        here.server.send(ONE, b"down")
        with here.turning() as at_server:
            came = receive_until(client, lambda: at_server)
            came += receive_until(client, lambda: came)
        assert at_server == [(ONE, b"up")] and came == [(SERVER, b"down")]
        assert here.server._by_rank[1].returns == 1 and len(proxy.asked) == 2


def test_a_server_that_computes_keeps_its_clients_on_their_connections() -> None:
    with Site(1, keys=True, options=OPTIONS) as here:
        with here.turning():
            client = here.join(1, **OPTIONS)
        first = client._hub.stream
        with receiving(client, 1.0) as at_client:  # a try is always under way, or soon
            time.sleep(6 * SILENCE_S)
            assert client._hub.stream is first
            here.server.send(ONE, b"computed")
            with here.turning():
                until(lambda: at_client)
                time.sleep(SILENCE_S / 2)
        assert at_client == [(SERVER, b"computed")] and here.server._by_rank[1].returns == 0
        assert client._hub.stream is first


def test_a_server_notices_alone_that_the_path_to_a_client_is_gone(wires: Wires) -> None:
    with far(wires) as here, namespace.within(wires.site):
        with here.turning() as at_server:
            client = here.join(1, **OPTIONS)
            client.send(SERVER, b"before")
            until(lambda: at_server)
            wires.silence(on=True)
            until(lambda: here.server._away)  # the client computes: nobody turns it
            with namespace.within(wires.operator):  # nobody else gets its place meanwhile, not even with its key
                assert answer_to(here, Introduction(1, bytes(15) + b"x"), rank=1) is Admission.NO_SUCH_SESSION
                assert answer_to(here, Introduction(1), rank=1) is Admission.TAKEN
                with pytest.raises(PeerError):
                    answer_to(here, Introduction(1, client._hub.delivery.id), rank=2)
            assert here.said[-1].startswith("the connection of client 1 was cut (nothing has come from it for 0.6 s)")
            wires.silence(on=False)
            client.send(SERVER, b"computed")
            receive_until(client, lambda: len(at_server) == 2)
        assert at_server[1:] == [(ONE, b"computed")] and here.server._by_rank[1].returns == 1


def test_the_kernel_notices_while_both_ends_compute(wires: Wires) -> None:
    with far(wires, silence_s=3.0) as here, namespace.within(wires.site):
        with here.turning():
            client = here.join(1, **OPTIONS | {"silence_s": 3.0})
            stream, place = client._hub.stream, here.server._by_rank[1].stream
            assert stream is not None and place is not None
            until(lambda: not unconfirmed(stream._socket) and not unconfirmed(place._socket))
        wires.drop(port_of(client))
        ends = [stream._socket, place._socket]
        until(lambda: all(end.getsockopt(netns.socket.IPPROTO_TCP, netns.socket.TCP_INFO, 8)[0] == 7 for end in ends))
        with here.turning() as at_server:
            client.send(SERVER, b"computed")
            receive_until(client, lambda: at_server)
        assert at_server == [(ONE, b"computed")]


def test_an_end_that_reads_nothing_keeps_its_connection() -> None:
    # Its kernel has no room, and confirms nothing more, but it answers: the process computes, or is stopped.
    with Site(1, keys=True, options=OPTIONS) as here:
        with here.turning():
            client = here.join(1, **OPTIONS)
        first = client._hub.stream
        for _ in range(16):
            client.send(SERVER, bytes(1 << 20))
        with receiving(client) as at_client:
            time.sleep(6 * SILENCE_S)
            assert client._hub.stream is first and client._hub.backlog and at_client == []
            with here.turning() as at_server:
                until(lambda: len(at_server) == 16)
        assert not any("cut" in line for line in here.said)


def test_an_end_that_has_computed_for_long_does_not_take_its_own_pause_for_silence() -> None:
    with Site(1, keys=True, options=OPTIONS) as here:
        with here.turning() as at_server:
            client = here.join(1, **OPTIONS)
            for _ in range(3):
                client.send(SERVER, b"a round")
                assert client.receive(0.0) is None
                threading.Event().wait(2 * SILENCE_S)
            until(lambda: len(at_server) == 3)
        assert not any("cut" in line for line in here.said)


def test_where_nobody_can_come_back_silence_ends_nothing(wires: Wires) -> None:
    with far(wires, reconnect_s=0.0) as here, namespace.within(wires.site):
        with here.turning() as at_server:
            client = here.join(1, **OPTIONS)  # it would, but the server does not take it back
            wires.silence(on=True)
            client.send(SERVER, b"late")
            end = time.monotonic() + 4 * SILENCE_S
            receive_until(client, lambda: time.monotonic() > end)
            wires.silence(on=False)
            receive_until(client, lambda: at_server)
        assert at_server == [(ONE, b"late")] and here.address == Address(netns.OPERATOR, here.address.port)
        assert not any("cut" in line for line in here.said)


@pytest.mark.parametrize("deadline", [8.0, 10.0, 60.0, 120.0, 3600.0])
def test_silence_is_noticed_within_half_a_deadline(deadline: float) -> None:
    silence_s = RunConfig(k=2, bounds="-1,1", n_total=10, deadline=deadline).silence_s
    # A beat until something is on its way, the silence, and a beat until somebody looks.
    assert 5 / 3 * silence_s <= deadline / 2
