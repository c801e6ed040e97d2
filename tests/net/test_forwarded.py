"""Behind a load balancer: whose connection it is, believed from named addresses only."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import shutil
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.errors import ConfigError, SecurityError
from fastlloyd.net.tcp import door
from fastlloyd.net.tcp.address import Address
from fastlloyd.net.tcp.admission import Introduction, StrangerLog
from fastlloyd.net.tcp.forwarded import decode, missing, parse_networks
from fastlloyd.net.tcp.route import Route
from fastlloyd.net.tcp.spoke import join
from fastlloyd.wire.header import SERVER, PartyId
from tests.net.connect_proxy import Balancer
from tests.net.test_proxy import free_port, started
from tests.net.test_tcp import LIMIT_S, Site, client_keys, end_of, knocking, until

ONE = PartyId(1)
V1 = b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 4400\r\n"
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
FAMILIES = {4: 0x11, 6: 0x21}


def v2(source: str, port: int, *, command: int = 0x21, tlvs: bytes = b"", family: int | None = None) -> bytes:
    number = ipaddress.ip_address(source)
    block = number.packed + number.packed + struct.pack(">HH", port, 4400) + tlvs
    kind = FAMILIES[number.version] if family is None else family
    return SIGNATURE + struct.pack(">BBH", command, kind, len(block)) + block


def read(stream: bytes) -> tuple[Address | None, bytes]:
    """Read a header as the door does, byte counts and all; give what follows it too."""
    head = bytearray()
    while need := missing(head):
        chunk = stream[len(head) : len(head) + need]
        if not chunk:
            raise EOFError
        head += chunk
    return decode(head), stream[len(head) :]


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (V1, "203.0.113.7:56324"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 1 65535\r\n", "[2001:db8::7]:1"),
        (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255:65535"),
        (b"PROXY UNKNOWN\r\n", "None"),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "None"),
        (v2("203.0.113.7", 56324), "203.0.113.7:56324"),
        (v2("2001:db8::7", 1), "[2001:db8::7]:1"),
        (v2("203.0.113.7", 1, tlvs=b"\x04\x00\x03abc" + b"\xea\x00\x00"), "203.0.113.7:1"),
        (v2("203.0.113.7", 1, tlvs=b"\x04\x07\xd0" + bytes(2000)), "203.0.113.7:1"),
        (v2("203.0.113.7", 1, command=0x20), "None"),
        (v2("203.0.113.7", 1, family=0x00), "None"),
        (SIGNATURE + b"\x20\x00\x00\x00", "None"),
    ],
)
@pytest.mark.parametrize("behind", [b"", b"\x16\x03\x01", b"\r\n"])
def test_headers_and_not_a_byte_behind_them(header: bytes, client: str, behind: bytes) -> None:
    found, rest = read(header + behind)
    assert str(found) == client and rest == behind


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 203.0.113.7 192.0.2.1 56324\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 4400 1\r\n",
        b"PROXY  TCP4 203.0.113.7 192.0.2.1 56324 4400\r\n",
        b"PROXY TCP4 203.0.113.7  192.0.2.1 56324 4400\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 056324 4400\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 65536 4400\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 1 65536\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 -1 4400\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 +1 4400\r\n",
        "PROXY TCP4 203.0.113.7 192.0.2.1 \u00b2 4400\r\n".encode("latin-1"),
        b"PROXY TCP4 203.0.113.07 192.0.2.1 1 4400\r\n",
        b"PROXY TCP4 203.0.113.256 192.0.2.1 1 4400\r\n",
        b"PROXY TCP4 2001:db8::7 2001:db8::1 1 4400\r\n",
        b"PROXY TCP6 203.0.113.7 192.0.2.1 1 4400\r\n",
        b"PROXY TCP6 fe80::1%eth0 2001:db8::1 1 4400\r\n",
        b"PROXY TCP6 fe80::1\x1b[31m 2001:db8::1 1 4400\r\n",
        b"PROXY UDP4 203.0.113.7 192.0.2.1 1 4400\r\n",
        b"PROXY tcp4 203.0.113.7 192.0.2.1 1 4400\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 1 4400" + b" " * 100 + b"\r\n",
        b"PROXY " + b"x" * 1000,
        b"PROXY\tTCP4 203.0.113.7 192.0.2.1 1 4400\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        Introduction(1).encode(),
        v2("203.0.113.7", 1, command=0x22),
        v2("203.0.113.7", 1, command=0x11),
        v2("203.0.113.7", 1, family=0x12),
        v2("203.0.113.7", 1, family=0x31),
        v2("203.0.113.7", 1, family=0x21),
        v2("203.0.113.7", 1, tlvs=b"\x04"),
        v2("203.0.113.7", 1, tlvs=b"\x04\x00\x03ab"),
        SIGNATURE + b"\x21\x11\xff\xff" + bytes(100),
        SIGNATURE + b"\x21\x11\x08\x01" + bytes(2049),
        SIGNATURE + b"\x21\x11\x00\x00",
        SIGNATURE + b"\x21\x11\x00\x0b" + bytes(11),
    ],
)
def test_headers_that_are_not_as_the_protocol_has_them(header: bytes) -> None:
    with pytest.raises(ValueError):
        read(header)


@given(
    st.binary(max_size=300), st.sampled_from([b"", V1, V1[:11], SIGNATURE, v2("203.0.113.7", 1)]), st.integers(0, 60)
)
def test_hostile_headers_end_in_an_error_or_an_address(noise: bytes, front: bytes, at: int) -> None:
    stream = front[:at] + noise + front[at:]
    with contextlib.suppress(ValueError, EOFError):
        client, rest = read(stream)
        assert len(stream) - len(rest) <= 16 + 2048
        assert client is None or (client.host.isprintable() and 0 <= client.port <= 65_535)


def test_networks() -> None:
    found = parse_networks("10.0.0.7, 10.1.0.0/24,2001:db8::/32", "--proxy-protocol")
    assert [str(network) for network in found] == ["10.0.0.7/32", "10.1.0.0/24", "2001:db8::/32"]


@pytest.mark.parametrize("text", ["", "balancer.example", "10.0.0.7,", "10.0.0.1/24", "10.0.0.7:4400", "on"])
def test_networks_that_cannot_be(text: str) -> None:
    with pytest.raises(ConfigError, match="--proxy-protocol: expected the load balancers' addresses"):
        parse_networks(text, "--proxy-protocol")


# At the door

BALANCER = parse_networks("127.0.0.2", "--proxy-protocol")


def behind(clients: int, *, keys: bool = True, **options: object) -> Site:
    return Site(clients, keys=keys, options={"balancers": BALANCER, **options})


@pytest.mark.parametrize("version", [1, 2])
def test_clients_behind_a_load_balancer_are_shown_with_their_own_address(version: int) -> None:
    with behind(2, reconnect_s=LIMIT_S) as site:
        with Balancer(
            site.address.port, source="127.0.0.2", header=V1 if version == 1 else v2("203.0.113.7", 56324)
        ) as b:
            site.address, own = Address("127.0.0.1", b.port), site.address
            with site.turning() as found:
                one = site.join(1, reconnect_s=LIMIT_S)
                one.send(SERVER, b"in")
                until(lambda: found == [(ONE, b"in")])
                site.address = own
                site.join(2)  # past it: not named, so its own address counts
        assert site.said[0] == "client 1 joined from 203.0.113.7:56324: 1 of 2"
        assert site.said[1].startswith("client 2 joined from 127.0.0.1:")


@pytest.mark.parametrize("first", [V1, v2("203.0.113.7", 1)], ids=["v1", "v2"])
def test_a_header_from_an_address_that_is_not_named_is_a_strangers(first: bytes) -> None:
    with (
        behind(1, keys=False) as site,
        site.turning(),
        knocking(site, "127.0.0.3", first + Introduction(1).encode()) as liar,
    ):
        assert end_of(liar) == b""
        (line,) = site.warned
        assert re.fullmatch("dropped a connection from 127.0.0.3:[0-9]+: it begins with a PROXY header .*", line)
        assert site.server.joined == 0


@pytest.mark.parametrize("first", [V1, v2("203.0.113.7", 1)], ids=["v1", "v2"])
def test_a_header_is_not_believed_where_nobody_asked_for_it(first: bytes) -> None:
    with Site(1) as site, site.turning(), knocking(site, "127.0.0.2", first + Introduction(1).encode()) as liar:
        assert end_of(liar) == b"" and "start the server with --proxy-protocol" in site.warned[0]
        assert site.server.joined == 0


@pytest.mark.parametrize("first", [V1, v2("203.0.113.7", 1)], ids=["v1", "v2"])
def test_a_load_balancer_that_nobody_announced_is_named_where_links_are_tls(first: bytes) -> None:
    with (
        Site(1, keys=True) as site,
        site.turning(),
        Balancer(site.address.port, source="127.0.0.2", header=first) as balancer,
        pytest.raises(SecurityError, match="serve --proxy-protocol ADDRESS"),
    ):
        join(Route(Address("127.0.0.1", balancer.port), 1, client_keys(1)), deadline_s=LIMIT_S, note=str)
    assert "it begins with a PROXY header of a load balancer that was not announced" in site.warned[0]


def test_a_named_address_that_sends_no_header_is_dropped() -> None:
    with behind(1, keys=False) as site, site.turning(), knocking(site, "127.0.0.2", Introduction(1).encode()) as other:
        assert end_of(other) == b""
        assert "begins without a PROXY header" in site.warned[0] and site.server.joined == 0


def test_a_header_may_come_byte_by_byte_and_must_come_in_time() -> None:
    with behind(1, keys=False, admission_s=1.0) as site, site.turning():
        with knocking(site, "127.0.0.2", V1[:-1]) as never:
            assert end_of(never) == b""
        with knocking(site, "127.0.0.2") as slow:
            for byte in V1 + Introduction(1).encode():
                slow.sendall(bytes([byte]))
            assert slow.recv(4) == b"FLsj"
    assert "did not show who it is in 1 s" in site.warned[0]


def test_a_load_balancer_that_looks_whether_we_are_there_fills_no_log() -> None:
    with behind(1) as site, site.turning():
        for words in (b"", SIGNATURE + b"\x20\x00\x00\x00", b"PROXY UNKNOWN\r\n"):
            with knocking(site, "127.0.0.2", words) as check:
                check.shutdown(socket.SHUT_WR)
                assert end_of(check) == b""
        until(lambda: not any(site.server._queues))
        assert site.warned == []
        with knocking(site, "127.0.0.2", V1) as client:
            client.shutdown(socket.SHUT_WR)
            end_of(client)
        assert site.warned[0].startswith("dropped a connection from 203.0.113.7:56324: it hung up")


@pytest.mark.parametrize("words", [b"", Introduction(1).encode()[:3]], ids=["silent", "began"])
def test_a_flood_through_the_load_balancer_pushes_out_its_own(words: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[str] = []
    monkeypatch.setattr(door, "MAX_GUESTS", 8)
    monkeypatch.setattr(StrangerLog, "dropped", lambda _, name, why: dropped.append(f"{name}: {why}"))
    hello = Introduction(1).encode()
    with behind(1, keys=False) as site, contextlib.ExitStack() as stack, site.turning():
        early = stack.enter_context(knocking(site, "127.0.0.2", v2("198.51.100.1", 1) + hello[: len(words)]))
        queue = site.server._showing if words else site.server._silent
        until(lambda: [guest.source for guest in queue] == ["198.51.100.1"])
        for port in range(40):
            stack.enter_context(knocking(site, "127.0.0.2", v2("203.0.113.7", port) + words))
        until(lambda: len(dropped) == 33)
        # Under the balancer's own address those whose header has not been read yet.
        own = ("203.0.113.7:", "127.0.0.2:")
        assert all(line.startswith(own) and "8 others wait" in line for line in dropped)
        early.sendall(hello[len(words) :])
        assert early.recv(10)[:4] == b"FLsj"


@contextlib.contextmanager
def haproxy(folder: Path, server: int, send: str) -> Iterator[int]:
    """Run a real load balancer in front of a port."""
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if program is None:
        pytest.skip("haproxy is not installed (Debian: apt install haproxy)")
    port = free_port()
    (folder / "haproxy.cfg").write_text(
        "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 50s\n  timeout server 50s\n"
        f"listen fastlloyd\n  bind 127.0.0.1:{port}\n  source 127.0.0.2\n"
        f"  server operator 127.0.0.1:{server} {send}\n"
    )
    with started([program, "-db", "-f", str(folder / "haproxy.cfg")], port, folder / "log"):
        yield port


@pytest.mark.parametrize("send", ["", "send-proxy", "send-proxy-v2", "send-proxy-v2 check inter 100"])
def test_a_real_load_balancer(send: str, tmp_path: Path) -> None:
    made = behind(2, reconnect_s=LIMIT_S) if send else Site(2, keys=True, options={"reconnect_s": LIMIT_S})
    with made as site, site.turning() as found, haproxy(tmp_path, site.address.port, send) as port:
        site.address = Address("127.0.0.1", port)
        one, two = (site.join(rank, reconnect_s=LIMIT_S) for rank in (1, 2))
        one.send(PartyId(2), b"relayed" * 100_000)
        assert two.receive(LIMIT_S) == (ONE, b"relayed" * 100_000)
        assert found == []
    where = "127.0.0.1" if send else "127.0.0.2"
    joined = [line.partition(" joined from ")[2] for line in site.said if " joined from " in line]
    assert [address.partition(":")[0] for address in joined] == [where] * 2
