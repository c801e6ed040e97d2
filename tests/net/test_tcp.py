"""TCP between threads: the contract, relaying, strangers, slow and lost peers."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from fastlloyd.crypto.link.identity import make_identity
from fastlloyd.crypto.link.tls import pinned_context
from fastlloyd.errors import (
    ConfigError,
    DataError,
    InternalError,
    PeerError,
    PeerGone,
    PeerTimeout,
    Reason,
    SecurityError,
)
from fastlloyd.net.link import control
from fastlloyd.net.link.control import NotStarted, agree_start
from fastlloyd.net.link.secure import SecureLinks
from fastlloyd.net.meter import Meter
from fastlloyd.net.tcp import address as addresses
from fastlloyd.net.tcp import door, relay, spoke
from fastlloyd.net.tcp import transport as tcp
from fastlloyd.net.tcp.address import Address, listen, parse_address
from fastlloyd.net.tcp.admission import Introduction, Keys, StrangerLog
from fastlloyd.net.tcp.hub import TcpServer
from fastlloyd.net.tcp.route import Route
from fastlloyd.net.tcp.spoke import TcpClient, join
from fastlloyd.net.tcp.stream import Stream
from fastlloyd.net.transport import Transport
from fastlloyd.wire.header import SERVER, PartyId
from tests.contracts import transport as contract
from tests.net.support import CONTEXT, at_once, identity, receiving

ONE, TWO, THREE = (PartyId(rank) for rank in (1, 2, 3))
LIMIT_S = 20.0
HEADER = struct.Struct("<IHQ")
HELLO = Introduction(1).encode()


def server_keys(clients: int) -> Keys:
    certificates = {identity(rank).certificate_der: PartyId(rank) for rank in range(1, clients + 1)}
    return Keys(pinned_context(identity(0), certificates, server_side=True), certificates)


def client_keys(rank: int, *, who=None) -> Keys:
    der = identity(0).certificate_der
    return Keys(pinned_context(who or identity(rank), (der,), server_side=False), {der: SERVER})


@dataclass
class Site:
    """A server that a separate thread turns whenever a test needs it, and its messages."""

    clients: int
    keys: bool = False
    host: str = "127.0.0.1"
    options: dict = field(default_factory=dict)
    kind: type[TcpServer] = TcpServer
    said: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    joined: list[TcpClient] = field(default_factory=list)

    def __post_init__(self):
        listeners = listen(Address(self.host, 0))
        self.address = Address(self.host, listeners[0].getsockname()[1])
        self.server = self.kind(
            listeners,
            self.clients,
            keys=server_keys(self.clients) if self.keys else None,
            note=self.said.append,
            warn=self.warned.append,
            **self.options,
        )

    def join(self, rank: int, *, deadline_s: float = LIMIT_S, **options) -> TcpClient:
        keys = client_keys(rank) if self.keys else None
        route = Route(self.address, rank, options.pop("keys", keys), options.pop("proxy", None))
        client = join(route, deadline_s=deadline_s, note=self.said.append, **options)
        self.joined.append(client)
        return client

    def turning(self) -> contextlib.AbstractContextManager[list]:
        """Keep the server in `receive` in a thread; gives what it received or raised."""
        return receiving(self.server, 0.01)

    def all_in(self) -> list[TcpClient]:
        """Let all clients join."""
        with self.turning():
            return [self.join(rank) for rank in range(1, self.clients + 1)]

    def raw(self) -> socket.socket:
        """Connect as a stranger."""
        return socket.create_connection((self.address.host, self.address.port), LIMIT_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self.joined:
            if client._hub.stream is not None:
                client._hub.stream.close()
            client.close(lost=True)
        self.server.close(lost=True)


def end_of(connection: socket.socket) -> bytes:
    """Read until the other end hangs up."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(4096):
            got += chunk
    return got


def until(condition: Callable[[], object]) -> None:
    """Wait until something is so, which another thread brings about."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.002)


def run_parties(site: Site, party: Callable[[Transport], None]) -> None:
    def client(rank: int) -> None:
        with site.join(rank) as transport:
            party(transport)

    def server() -> None:
        with site.server as transport:
            party(transport)

    with ThreadPoolExecutor(site.clients + 1) as pool:
        jobs = [pool.submit(server), *(pool.submit(client, rank) for rank in range(1, site.clients + 1))]
        for job in jobs:
            job.result(timeout=110)


@pytest.mark.parametrize("case", contract.CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("clients", [1, 3])
def test_contract(case: contract.Case, clients: int) -> None:
    run_parties(Site(clients), lambda endpoint: contract.run(endpoint, case))


@pytest.mark.parametrize("keys", [False, True], ids=["plain", "tls"])
def test_a_frame_that_is_too_long_is_refused(keys: bool) -> None:
    run_parties(Site(3, keys=keys), contract.too_long_refused)


def test_contract_within_tls() -> None:
    run_parties(Site(3, keys=True), contract.run)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_contract_over_ipv6_and_by_name(host: str) -> None:
    run_parties(Site(2, host=host), lambda endpoint: contract.run(endpoint, contract.order_per_peer))


def test_a_frame_of_nobody_is_the_server_s_fault() -> None:
    with Site(1) as site:
        (client,) = site.all_in()
        site.server._by_rank[1].put(99, b"x")
        with site.turning(), pytest.raises(PeerError, match="it is said to come from rank 99") as caught:
            client.receive(LIMIT_S)
        assert caught.value.rank == SERVER.rank


def test_closed_transports_refuse() -> None:
    site = Site(1)
    with site.turning():
        client = site.join(1)
        contract.closed_refuses(client)
    contract.closed_refuses(site.server)


# Relaying


class Curious(TcpServer):
    """A server that keeps a copy of all it relays, and may change it."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.relayed = []
        self.flips = False

    def _relay(self, source, target, frame):
        self.relayed.append(frame)
        if self.flips:
            frame = frame[:-1] + bytes([frame[-1] ^ 1])
        super()._relay(source, target, frame)


def linked(site: Site) -> list[SecureLinks]:
    """Join all clients and bring all links up, the server's too."""
    transports = [site.server, *site.all_in()]
    certificates = {PartyId(rank): identity(rank).certificate_der for rank in range(site.clients + 1)}
    links = [SecureLinks(t, identity(t.me.rank), certificates, Meter()) for t in transports]
    missing = {link.me for link in links}

    def connect(link: SecureLinks) -> None:
        link.connect(CONTEXT, deadline_s=LIMIT_S)
        missing.remove(link.me)
        while link.me == SERVER and missing:
            assert link.receive(0.005) is None

    assert at_once([lambda link=link: connect(link) for link in links]) == [None] * len(links)
    return links


def test_what_clients_tell_each_other_is_not_readable_at_the_server() -> None:
    secret = b"the common seed of the clients: 0123456789"
    with Site(3, keys=True, kind=Curious) as site:
        links = linked(site)
        with site.turning():
            links[1].send(TWO, secret, payload_bytes=0, round=0)
            assert links[2].receive(LIMIT_S) == (ONE, secret)
            handshake = len(site.server.relayed)
            assert handshake > 6  # three pairs of clients, both directions
            assert not any(secret[i : i + 8] in b"".join(site.server.relayed) for i in range(len(secret) - 8))
            # The search finds what is not encrypted, and the server has only keys of its own links.
            links[1]._transport.send(TWO, secret)
            until(lambda: secret in b"".join(site.server.relayed))
        assert sorted(links[0]._links) == [ONE, TWO, THREE]
        assert all(link._identity is identity(0) for link in links[0]._links.values())


def test_a_server_that_changes_a_relayed_record_is_found_out() -> None:
    with Site(3, keys=True, kind=Curious) as site:
        links = linked(site)
        site.server.flips = True
        with site.turning():
            links[1].send(TWO, b"x" * 40, payload_bytes=0, round=0)
            with pytest.raises(SecurityError, match="client 1 was refused"):
                links[2].receive(LIMIT_S)


def test_the_server_says_whose_a_relayed_frame_is() -> None:
    with Site(3) as site:
        clients = site.all_in()
        with site.turning():
            clients[2].send(ONE, b"from three")
            assert clients[0].receive(LIMIT_S) == (THREE, b"from three")


@pytest.mark.parametrize("rank", [1, 4, 0xFFFE])
def test_a_frame_for_nobody_ends_the_connection_of_its_sender(rank: int) -> None:
    with Site(3) as site:
        clients = site.all_in()
        clients[0]._hub.stream.put_frame(rank, b"x")
        with site.turning() as found:
            until(lambda: found)
        assert isinstance(found[0], PeerError) and found[0].rank == 1
        assert f"addressed to rank {rank}" in str(found[0])
        with pytest.raises(PeerGone):
            site.server.send(ONE, b"x")


def test_a_frame_that_is_too_long_is_refused_by_its_header() -> None:
    with Site(1) as site:
        (client,) = site.all_in()
        client._hub.stream.write(HEADER.pack(0xFFFF_FFFF, 0, 0) + b"x")
        client._hub.stream.flush()
        with pytest.raises(PeerError, match="client 1 announced 4294967295 bytes at once"):
            site.server.receive(LIMIT_S)


def test_a_relayed_frame_that_is_too_long_is_refused_before_the_server_keeps_it() -> None:
    with Site(2) as site:
        one, _ = site.all_in()
        site.server.most_frame = 1000
        one.send(TWO, bytes(1001))
        with site.turning() as found:
            until(lambda: found)
        assert "client 1 announced 1001 bytes at once" in str(found[0])


def test_a_client_names_whom_the_header_names() -> None:
    with Site(2) as site:
        one, two = site.all_in()
        two.most_frame = 1000
        one.send(TWO, bytes(1001))
        with site.turning(), pytest.raises(PeerError, match="client 1 announced 1001 bytes") as caught:
            two.receive(LIMIT_S)
        assert caught.value.rank == 1


def test_frames_wait_for_whoever_has_not_joined_yet() -> None:
    with Site(2) as site:
        with site.turning():
            one = site.join(1)
            one.send(TWO, b"from one")
            site.server.send(TWO, b"from the server")
            until(lambda: len(site.server._by_rank[2].delivery._waiting) == 2)
            two = site.join(2)
        with site.turning():
            assert {two.receive(LIMIT_S), two.receive(LIMIT_S)} == {(ONE, b"from one"), (SERVER, b"from the server")}


# Slow and lost peers


def test_a_client_that_does_not_read_costs_bounded_memory_and_is_named() -> None:
    frame = bytes(1 << 20)
    with Site(3, options={"stall_s": 0.3}) as site:
        sender, *_ = site.all_in()
        for _ in range(60):  # far more than all buffers between the two
            sender.send(TWO, frame)
        kept = []
        with pytest.raises(PeerTimeout, match="client 2 has read nothing for 0.3 s and holds up client 1") as caught:
            while True:
                assert sender.receive(0.0) is None
                places = site.server._places()
                kept.append(sum(p.backlog + len(p.stream._input) + len(p.held[1] if p.held else b"") for p in places))
                assert site.server.receive(0.001) is None
        assert caught.value.rank == 2
        assert relay.RELAY_BYTES <= max(kept) <= relay.RELAY_BYTES + 4 * len(frame)


def test_a_receiver_that_reads_again_gets_all_that_was_held_up() -> None:
    frame = bytes(1 << 20)
    with Site(2) as site:
        one, two = site.all_in()
        with site.turning() as found:
            for _ in range(40):
                one.send(TWO, frame)
            one.send(SERVER, b"behind")

            def push():
                while not found:
                    one.receive(0.005)

            with ThreadPoolExecutor(1) as pool:
                pushing = pool.submit(push)
                until(lambda: site.server._holding)
                assert not found
                assert all(two.receive(LIMIT_S) == (ONE, frame) for _ in range(40))
                pushing.result(LIMIT_S)
        assert found == [(ONE, b"behind")]


def test_what_the_server_itself_sends_is_bounded_too(monkeypatch) -> None:
    monkeypatch.setattr(tcp, "WAITING_BYTES", 1 << 22)
    with Site(1) as site:
        (_client,) = site.all_in()
        with pytest.raises(PeerGone, match="client 1 counts as gone: it left .* bytes unread"):
            for _ in range(100):
                site.server.send(ONE, bytes(1 << 20))


def test_what_nobody_takes_stays_in_the_network(monkeypatch) -> None:
    with Site(1) as site:
        (client,) = site.all_in()
        place = site.server._by_rank[1]
        for _ in range(64):
            client.send(SERVER, bytes(1 << 18))
        monkeypatch.setattr(tcp, "INBOX_BYTES", 1 << 20)
        for _ in range(500):
            client.receive(0.0)
            site.server._pump(0.0)
        assert place.waiting_bytes <= (1 << 20) + (1 << 19)

        def push():
            while client._hub.backlog:
                client.receive(0.005)

        with ThreadPoolExecutor(1) as pool:
            pushing = pool.submit(push)
            assert all(site.server.receive(LIMIT_S) == (ONE, bytes(1 << 18)) for _ in range(64))
            pushing.result(LIMIT_S)


def test_a_lost_client_is_reported_once_after_its_frames() -> None:
    with Site(2) as site:
        one, two = site.all_in()
        one.send(SERVER, b"last words")
        one.close(lost=True)
        with pytest.raises(PeerGone, match="client 1 is gone"):
            assert site.server.receive(LIMIT_S) == (ONE, b"last words")
            site.server.receive(LIMIT_S)
        assert site.server.receive(0.0) is None
        with pytest.raises(PeerGone):
            site.server.send(ONE, b"x")
        site.server.send(TWO, b"still here")
        assert two.receive(LIMIT_S) == (SERVER, b"still here")
        two.send(ONE, b"vanishes")  # the server knows, this client need not
        two.send(SERVER, b"fine")
        assert site.server.receive(LIMIT_S) == (TWO, b"fine")


def test_a_lost_server_is_to_blame_for_all_that_it_relayed() -> None:
    site = Site(2)
    one, two = site.all_in()
    site.server.send(ONE, b"last words")
    closing = threading.Thread(target=site.server.close)
    closing.start()
    with pytest.raises(PeerGone, match="the server is gone") as caught:
        assert one.receive(LIMIT_S) == (SERVER, b"last words")
        one.receive(LIMIT_S)
    assert caught.value.rank == 0
    with pytest.raises(PeerGone, match="the server and relays to client 2 is gone") as caught:
        one.send(TWO, b"x")
    assert caught.value.rank == 0
    assert one.receive(0.0) is None
    one.close()
    two.close()
    closing.join()


def test_last_frames_arrive_although_the_closing_side_leaves_bytes_unread() -> None:
    site = Site(1)
    (client,) = site.all_in()
    client.send(SERVER, bytes(300_000))  # never taken; a plain close() would now reset the connection
    site.server.send(ONE, b"done")
    closing = threading.Thread(target=site.server.close)
    closing.start()
    assert client.receive(LIMIT_S) == (SERVER, b"done")
    client.close()
    closing.join()


def test_a_run_that_cannot_start_waits_no_longer_for_sites_that_have_not_come(monkeypatch) -> None:
    monkeypatch.setattr(control, "_ABSENT_GRACE_S", 0.1)
    with Site(2) as site:
        with site.turning():
            one = site.join(1)
        assert site.server.absent == {TWO} and one.absent == set()
        links = [SecureLinks(each, identity(each.me.rank), None, Meter()) for each in (site.server, one)]
        problem = DataError("row 3 of ward.csv")
        started = time.monotonic()
        at_server, at_client = at_once(
            [
                lambda: agree_start(links[0], None, deadline_s=LIMIT_S),
                lambda: agree_start(links[1], problem, deadline_s=LIMIT_S),
            ]
        )
        assert time.monotonic() - started < LIMIT_S / 2
        assert isinstance(at_server, NotStarted) and (at_server.rank, at_server.reason) == (1, Reason.BAD_INPUT)
        assert at_client is problem


# Who is let in


def test_the_certificate_says_the_rank_and_not_the_client() -> None:
    refused = pytest.raises(PeerError, match="takes this party for rank 1 of 3, expected rank 2")
    with Site(2, keys=True) as site, site.turning(), refused:
        site.join(2, keys=client_keys(1))


def test_a_rank_is_given_once() -> None:
    with Site(2, keys=True) as site, site.turning():
        site.join(1)
        with pytest.raises(ConfigError, match="client 1 has joined already"):
            site.join(1)
        site.join(2)
        assert site.server.joined == 2
    assert [line.split(" from ")[0] for line in site.said] == ["client 1 joined", "client 2 joined"]


@pytest.mark.parametrize("rank", [3, 0xFFFE])
def test_a_rank_that_is_not_in_the_run_is_refused(rank: int) -> None:
    with Site(2) as site, site.turning(), pytest.raises(ConfigError, match=f"from 1 to 2, .* got {rank}"):
        site.join(rank)


def test_another_version_is_refused_in_words() -> None:
    with Site(1) as site, site.turning(), site.raw() as other:
        other.sendall(HELLO[:4] + b"\x63" + HELLO[5:])
        answer = end_of(other)
    assert answer[:4] == HELLO[:4] and answer[5] == 3
    assert "a client speaks version 99 of the messages, this server 9: install the same" in site.warned[0]


def knock_with_another_version(connection: socket.socket, context: ssl.SSLContext, version: int) -> None:
    """Show the key of a client, and speak another version of the messages."""
    stream = Stream(connection, context, server_side=False)
    while not stream.ended:
        if stream.ready and version:
            stream.write(HELLO[:4] + bytes([version]) + HELLO[5:])
            version = 0
        stream.flush()
        threading.Event().wait(0.002)
        stream.fill()
    stream.close()


def test_a_party_of_another_version_is_named_and_ends_the_run_at_once(monkeypatch) -> None:
    monkeypatch.setattr(control, "_ABSENT_GRACE_S", 0.1)
    with Site(2, keys=True) as site:
        with site.turning():
            one = site.join(1)
        links = [SecureLinks(each, identity(each.me.rank), None, Meter()) for each in (site.server, one)]
        started = time.monotonic()
        at_server, at_client, _ = at_once(
            [
                *(lambda each=each: agree_start(each, None, deadline_s=LIMIT_S) for each in links),
                lambda: knock_with_another_version(site.raw(), client_keys(2).context, 8),
            ]
        )
        assert time.monotonic() - started < LIMIT_S / 2
    assert "client 2 speaks version 8 of the messages, this server 9: install the same fastlloyd" in str(at_server)
    assert (at_server.rank, at_server.reason, at_server.exit_code) == (2, Reason.OTHER_VERSION, 3)
    assert isinstance(at_client, NotStarted)
    assert "client 2 speaks another version of the messages: install" in str(at_client)


def test_a_second_process_of_another_version_ends_no_run() -> None:
    with Site(1, keys=True, options={"reconnect_s": LIMIT_S}) as site, site.turning() as at_server:
        one = site.join(1, reconnect_s=LIMIT_S)
        knock_with_another_version(site.raw(), client_keys(1).context, 8)
        one.send(SERVER, b"still here")
        with receiving(one):
            until(lambda: at_server)
    assert at_server == [(ONE, b"still here")]


def test_without_a_roster_the_sentence_about_a_silent_client_has_the_version_that_was_refused() -> None:
    with Site(1) as site:
        with site.turning(), site.raw() as other:
            other.sendall(HELLO[:4] + bytes([8]) + HELLO[5:])
            end_of(other)
        said = "client 1 did not report within .* s: a client speaks version 8 of the messages, this server 9: install"
        with pytest.raises(PeerTimeout, match=said):
            agree_start(SecureLinks(site.server, identity(0), None, Meter()), None, deadline_s=0.05)


def test_a_certificate_that_is_not_on_the_roster_is_refused() -> None:
    stranger = make_identity("site 1", 1)
    with Site(1, keys=True) as site, site.turning():
        with pytest.raises(SecurityError, match="the server refused this party's certificate"):
            site.join(1, keys=client_keys(1, who=stranger))
        site.join(1)
    assert "its certificate was refused" in site.warned[0]


def test_another_server_is_refused() -> None:
    der = make_identity("the server", 0).certificate_der
    keys = Keys(pinned_context(identity(1), (der,), server_side=False), {der: SERVER})
    refused = pytest.raises(SecurityError, match="the certificate that came for the server's was refused")
    with Site(1, keys=True) as site, site.turning(), refused:
        site.join(1, keys=keys)


def test_another_clients_certificate_does_not_make_a_server() -> None:
    certificates = {identity(1).certificate_der: PartyId(1)}
    fake = Keys(pinned_context(identity(2), certificates, server_side=True), certificates)
    site = Site(1)
    site.server._keys = fake
    with site, site.turning(), pytest.raises(SecurityError):
        site.join(1, keys=client_keys(1))


def test_a_roster_on_one_side_only_is_said_in_words() -> None:
    with Site(1, keys=True) as site, site.turning(), pytest.raises(SecurityError, match="the server asks for TLS"):
        site.join(1, keys=None)
    with Site(1) as site, site.turning(), pytest.raises(SecurityError, match="it runs without a roster"):
        site.join(1, keys=client_keys(1))
    assert "it speaks TLS, so it has a roster" in site.warned[0]


def test_something_else_that_listens_there_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:

        def greet():
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"220 mail.example.org ESMTP\r\n")
                end_of(connection)

        pool.submit(greet)
        with pytest.raises(PeerError, match="not a fastlloyd server"):
            join(Route(Address(*other.getsockname()), 1, None), deadline_s=LIMIT_S, note=str)


STRANGERS = {
    "garbage": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 50,
    "half a hello": HELLO[:5],
    "nothing": b"",
    "the beginning of TLS": bytes.fromhex("160301020001"),
    "a hello without TLS": HELLO,
}


def test_strangers_are_dropped_and_disturb_nobody() -> None:
    with Site(2, keys=True, options={"admission_s": 0.3}) as site, site.turning() as found:
        strangers = [site.raw() for _ in STRANGERS]
        for stranger, words in zip(strangers, STRANGERS.values(), strict=True):
            stranger.sendall(words)
        one = site.join(1)
        one.send(SERVER, b"one")
        until(lambda: found == [(ONE, b"one")])
        started = time.monotonic()
        for stranger in strangers:
            end_of(stranger)
            stranger.close()
        assert time.monotonic() - started < LIMIT_S / 2
        until(lambda: not any(site.server._queues))
        assert site.server.joined == 1
        two = site.join(2)
        one.send(TWO, b"relayed")
        assert two.receive(LIMIT_S) == (ONE, b"relayed")
    assert len(site.warned) == 1  # the others within its ten seconds are only counted


def test_tls_without_a_certificate_is_a_stranger() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=identity(0).certificate_der)
    with Site(1, keys=True) as site, site.turning():
        with site.raw() as plain, context.wrap_socket(plain) as stranger, pytest.raises(ssl.SSLError):
            stranger.sendall(HELLO)
            assert stranger.recv(100)
        site.join(1)
    assert "peer did not return a certificate" in site.warned[0]


def test_a_crowd_of_strangers_leaves_room_for_a_client() -> None:
    with Site(1, keys=True, options={"admission_s": LIMIT_S}) as site, site.turning():
        crowd = [site.raw() for _ in range(door.MAX_GUESTS + 30)]
        site.join(1)
        # Everybody has come: the port is closed, and whoever waited there is gone.
        for stranger in crowd:
            end_of(stranger)
            stranger.close()
        with pytest.raises(OSError):
            site.raw()


def knocking(site: Site, source: str, first: bytes = b"") -> socket.socket:
    """Connect from an address of this machine, and say so much."""
    made = socket.create_connection((site.address.host, site.address.port), LIMIT_S, (source, 0))
    made.sendall(first)
    return made


@pytest.mark.parametrize("first", [b"", HELLO[:3]], ids=["silent", "began"])
def test_a_flood_from_one_address_pushes_out_its_own(first: bytes, monkeypatch) -> None:
    dropped: list[str] = []
    monkeypatch.setattr(door, "MAX_GUESTS", 8)
    monkeypatch.setattr(StrangerLog, "dropped", lambda _, name, why: dropped.append(f"{name}: {why}"))
    with Site(1) as site, contextlib.ExitStack() as stack, site.turning():
        early = stack.enter_context(knocking(site, "127.0.0.3", first))
        until(lambda: len(site.server._silent) + len(site.server._showing) == 1)
        for _ in range(40):
            stack.enter_context(knocking(site, "127.0.0.2", first))
        # All of the flood but seven are out, and the one that came before them all is not.
        until(lambda: len(dropped) == 33)
        assert all(line.startswith("127.0.0.2:") and "8 others wait" in line for line in dropped)
        early.sendall(HELLO[len(first) :])
        assert early.recv(10)[:4] == b"FLsj"


def test_a_silent_flood_from_a_clients_own_address_does_not_meet_the_client(monkeypatch) -> None:
    dropped: list[str] = []
    monkeypatch.setattr(door, "MAX_GUESTS", 8)
    monkeypatch.setattr(StrangerLog, "dropped", lambda _, name, why: dropped.append(f"{name}: {why}"))
    with Site(1) as site, contextlib.ExitStack() as stack, site.turning():
        early = stack.enter_context(knocking(site, "127.0.0.2", HELLO[:3]))
        until(lambda: len(site.server._showing) == 1)
        for _ in range(40):
            stack.enter_context(knocking(site, "127.0.0.2"))
        until(lambda: len(dropped) == 32)
        early.sendall(HELLO[3:])
        assert early.recv(10)[:4] == b"FLsj"


def test_strangers_cannot_fill_a_log() -> None:
    said, now = [], [0.0]
    log = StrangerLog(said.append, 10.0, lambda: now[0])
    for now[0] in (0.0, 1.0, 9.9, 10.0, 11.0):
        log.dropped("192.0.2.7:99", "why")
    assert said == [
        "dropped a connection from 192.0.2.7:99: why",
        "dropped a connection from 192.0.2.7:99: why (and 2 more before it)",
    ]


# Addresses and coming late


def test_a_client_may_come_before_its_server() -> None:
    free = listen(Address("127.0.0.1", 0))[0]
    address = Address(*free.getsockname())
    free.close()
    waiting = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(join, Route(address, 1, None), deadline_s=LIMIT_S, note=lambda text: waiting.set())
        assert waiting.wait(LIMIT_S)
        with TcpServer(listen(address), 1, keys=None, note=str, warn=str) as server:
            while not job.done():
                server.receive(0.01)
            client = job.result()
            client.send(SERVER, b"here")
            assert server.receive(LIMIT_S) == (ONE, b"here")
            client.close(lost=True)


def test_no_server_within_the_deadline() -> None:
    free = listen(Address("127.0.0.1", 0))[0]
    address = Address(*free.getsockname())
    free.close()
    with pytest.raises(PeerTimeout, match=rf"at {address} within 0.3 s \(connection refused\)") as caught:
        join(Route(address, 1, None), deadline_s=0.3, note=str)
    assert caught.value.rank == 0


def hang_up(address: Address, times: int) -> None:
    """Be there for some connections, and gone afterwards."""
    with listen(address)[0] as door:
        door.setblocking(True)
        for _ in range(times):
            door.accept()[0].close()


def test_a_server_that_was_there_and_has_ended_is_not_waited_for(monkeypatch) -> None:
    monkeypatch.setattr(spoke, "GONE_S", 0.3)
    free = listen(Address("127.0.0.1", 0))[0]
    address = Address(*free.getsockname())
    free.close()
    said: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(hang_up, address, 1)
        with pytest.raises(PeerGone, match="has ended before it let this client in: for 0.3 s nobody has listened"):
            join(Route(address, 1, None), deadline_s=LIMIT_S, note=said.append)
    assert len(said) == 1 and "; trying again for" in said[0]


def test_a_server_that_comes_back_in_time_lets_clients_in(monkeypatch) -> None:
    monkeypatch.setattr(spoke, "GONE_S", LIMIT_S)
    free = listen(Address("127.0.0.1", 0))[0]
    address = Address(*free.getsockname())
    free.close()
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(join, Route(address, 1, None), deadline_s=LIMIT_S, note=str)
        hang_up(address, 1)
        with TcpServer(listen(address), 1, keys=None, note=str, warn=str) as server:
            while not job.done():
                server.receive(0.01)
            job.result().close(lost=True)


def test_a_server_that_has_not_started_is_waited_for_until_the_deadline(monkeypatch) -> None:
    monkeypatch.setattr(spoke, "GONE_S", 0.01)
    free = listen(Address("127.0.0.1", 0))[0]
    address = Address(*free.getsockname())
    free.close()
    said: list[str] = []
    with pytest.raises(PeerTimeout, match="within 0.6 s"):
        join(Route(address, 1, None), deadline_s=0.6, note=said.append)
    assert said == [
        f"waiting for the server at {address} (connection refused: it has not started, or its run has ended); "
        "trying again for 0.6 s"
    ]


@pytest.mark.parametrize("error", [TimeoutError(), OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))])
def test_a_machine_that_does_not_answer_is_no_server_that_has_not_started(monkeypatch, error) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(addresses, "_first_of", fails)
    monkeypatch.setattr(spoke, "_REMIND_S", 0.0)
    said: list[str] = []
    with pytest.raises(PeerTimeout, match="firewalls"):
        join(Route(Address("192.0.2.1", 4400), 1, None), deadline_s=0.6, note=said.append)
    assert len(said) >= 2 and not any("has not started" in text or "will be started" in text for text in said)
    assert all("a firewall on the way" in text for text in said)
    assert "check --server, and the firewalls" in said[1]


def test_of_two_addresses_the_second_is_tried_while_there_is_time_though_the_first_is_silent(monkeypatch) -> None:
    with contextlib.ExitStack() as stack:
        silent, answers = (stack.enter_context(socket.socket()) for _ in range(2))
        silent.bind(("127.0.0.2", 0))
        silent.listen(0)
        for _ in range(3):  # its queue is full: the kernel drops whoever comes
            waits = stack.enter_context(socket.socket())
            waits.setblocking(False)
            waits.connect_ex(silent.getsockname())
        answers.bind(("127.0.0.3", silent.getsockname()[1]))
        answers.listen()
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", one.getsockname()) for one in (silent, answers)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        begin = time.monotonic()
        connection = addresses.connect(Address("operator.example.org", answers.getsockname()[1]), 0.6)
        assert stack.enter_context(connection).getpeername() == answers.getsockname()
        assert time.monotonic() - begin < 0.55


def test_a_resolver_that_does_not_answer_is_named_in_place_of_the_operator(monkeypatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    said: list[str] = []
    with pytest.raises(PeerTimeout, match="name service does not answer.*getent hosts") as caught:
        join(Route(Address("operator.example.org", 4400), 1, None), deadline_s=0.3, note=said.append)
    sentences = [str(caught.value), *said]
    assert len(said) == 1 and not any("has not started" in text or "firewall" in text for text in sentences)


def test_who_waits_long_is_reminded_after_ever_longer_times(monkeypatch) -> None:
    monkeypatch.setattr(spoke, "_REMIND_S", 0.2)
    monkeypatch.setattr(spoke, "_LONGEST_PAUSE_S", 0.15)
    free = listen(Address("127.0.0.1", 0))[0]
    address = Address(*free.getsockname())
    free.close()
    said: list[str] = []
    with pytest.raises(PeerTimeout, match="within 2 s"):
        join(Route(address, 1, None), deadline_s=2.0, note=said.append)
    # After 0.2, 0.6 and 1.4 s; fewer where the machine is busy.
    assert 2 <= len(said) <= 4 and said[0].endswith("; trying again for 2 s")
    assert all(text.startswith(f"still waiting for the server at {address} (connection refused") for text in said[1:])
    assert all(text.endswith("Ctrl-C ends this wait") for text in said[1:])


def test_a_listener_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(PeerTimeout, match="does not answer"):
        join(Route(Address(*mute.getsockname()), 1, None), deadline_s=0.3, note=str)


def test_port_in_use_and_foreign_addresses() -> None:
    with Site(1) as site, pytest.raises(ConfigError, match="the port is in use"):
        listen(site.address)
    with pytest.raises(ConfigError, match="this machine has no such address"):
        listen(Address("192.0.2.1", 0))


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("server.example.org:4400", "server.example.org", 4400),
        ("10.0.0.1:1", "10.0.0.1", 1),
        ("[2001:db8::1]:65535", "2001:db8::1", 65535),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    address = parse_address(text, "--server")
    assert (address.host, address.port) == (host, port)
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["host", "host:", "host:0", "host:65536", "host:x", ":4400", "::1:4400", "a b:1", "h:-1", ""]
)
def test_addresses_that_lead_nowhere(text: str) -> None:
    with pytest.raises(ConfigError, match="--server: expected"):
        parse_address(text, "--server")


@pytest.mark.parametrize("text", [":4400", "*:4400"])
def test_every_address_may_be_listened_at(text: str) -> None:
    assert parse_address(text, "--listen", listening=True) == Address("", 4400)
    listeners = listen(Address("", 0))
    port = listeners[0].getsockname()[1]
    socket.create_connection(("127.0.0.1", port), LIMIT_S).close()
    for listener in listeners:
        listener.close()


def test_a_number_of_clients_that_cannot_be() -> None:
    for count in (0, 0xFFFF):
        with pytest.raises(ConfigError, match="--clients: expected 1 to"):
            TcpServer([], count, keys=None, note=str, warn=str)


def test_nobody_is_sent_to_but_clients() -> None:
    with Site(1) as site, pytest.raises(InternalError, match="its peers are client 1"):
        site.server.send(PartyId(0), b"x")


@pytest.mark.parametrize(("hard", "clients", "said"), [(3000, 1000, "2088"), (1100, 1000, "1100"), (1000, 1000, "")])
def test_a_server_asks_for_as_many_files_as_it_needs(hard: int, clients: int, said: str) -> None:
    code = (
        f"import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (500, {hard}))\n"
        f"from fastlloyd.net.tcp.door import allow_files; allow_files({clients})\n"
        "print(r.getrlimit(r.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == said
    sentence = "1000 clients need at least 1068 open files, and this process may open 1000: raise the limit first"
    assert (sentence in done.stderr) == (not said)
