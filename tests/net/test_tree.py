"""An aggregator between threads: hostile ones, hostile clients behind one, and who may be one."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from fastlloyd.crypto.link.tls import pinned_context
from fastlloyd.errors import (
    ConfigError,
    FastLloydError,
    PeerError,
    PeerGone,
    PeerTimeout,
    RangeError,
    Reason,
    SecurityError,
)
from fastlloyd.net.link.frame import MOST_CONFIRMATION_BYTES, FrameKind, confirm
from fastlloyd.net.link.secure import SecureLinks
from fastlloyd.net.link.sums import Adder, Order, encode_ranks
from fastlloyd.net.meter import Meter
from fastlloyd.net.tcp import hub
from fastlloyd.net.tcp.address import Address, listen
from fastlloyd.net.tcp.admission import Admission, Introduction, Keys, Welcome
from fastlloyd.net.tcp.aggregator import Aggregator, BranchTransport
from fastlloyd.net.tcp.delivery import CONTROL_RANK
from fastlloyd.net.tcp.hub import TcpServer
from fastlloyd.net.tcp.route import Route
from fastlloyd.net.tcp.spoke import join, reach
from fastlloyd.net.tcp.stream import Stream
from fastlloyd.net.tcp.tree import (
    TreeKind,
    decode_answer,
    decode_fault,
    decode_limit,
    encode_answer,
    encode_fault,
    encode_limit,
)
from fastlloyd.wire.header import SERVER, SETUP_ROUND, Header, PartyId
from tests.net.support import CONTEXT, LIMIT_S, at_once, identity
from tests.net.test_tcp import knock_with_another_version

ONE, TWO, THREE = (PartyId(rank) for rank in (1, 2, 3))
CLIENTS = 3
CERTIFICATES = {PartyId(rank): identity(rank).certificate_der for rank in range(CLIENTS + 1)}
RECORD = bytes([FrameKind.RECORD])


def keys_of(rank: int, *, listening: bool) -> Keys:
    trusted = {identity(0).certificate_der: SERVER}
    if listening:
        trusted |= {der: party for party, der in CERTIFICATES.items()}
    return Keys(pinned_context(identity(rank), trusted, server_side=listening), trusted)


@dataclass
class Root:
    """A server whose thread is the test's own, and aggregators and clients in threads of theirs."""

    adds_up: bool = True
    reconnect_s: float = 0.0
    offer: bytes = b""
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        listeners = listen(Address("127.0.0.1", 0))
        self.address = Address("127.0.0.1", listeners[0].getsockname()[1])
        self.server = TcpServer(
            listeners,
            CLIENTS,
            keys=keys_of(0, listening=True),
            note=self.said.append,
            warn=self.said.append,
            adds_up=self.adds_up,
            reconnect_s=self.reconnect_s,
            offer=self.offer,
        )

    def while_turning(self, work):
        """Turn the server until the work of another thread is done; gives its result or raises its error."""
        found: list = []

        def do() -> None:
            try:
                found.append(work())
            except FastLloydError as error:
                found.append(error)

        thread = threading.Thread(target=do)
        thread.start()
        while thread.is_alive():
            with contextlib.suppress(PeerGone):
                assert self.server.receive(0.01) is None
        thread.join()
        if isinstance(found[0], FastLloydError):
            raise found[0]
        return found[0]

    def aggregator(self, address: Address | None = None) -> Stream:
        """Connect as an aggregator does."""
        where = address or self.address
        stream, _ = self.while_turning(
            lambda: reach(Route(where, 0, keys_of(0, listening=False)), deadline_s=LIMIT_S, note=self.said.append)
        )
        return stream

    def bring(self, stream: Stream, *ranks: int) -> None:
        """Let clients come through an aggregator that the test plays."""
        for rank in ranks:
            stream.put_frame(rank, bytes([TreeKind.JOIN]))
        while self.server.joined < len(ranks):
            assert self.server.receive(0.01) is None


@pytest.fixture
def root() -> Iterator[Root]:
    made = Root()
    with made.server:
        yield made


def frames(root: Root, stream: Stream, count: int) -> list[tuple[int, bytes]]:
    """Return the next frames that the server sends down."""
    found: list[tuple[int, bytes]] = []
    while len(found) < count:
        assert root.server.receive(0.01) is None
        stream.fill()
        while (frame := stream.next_frame()) is not None:
            rank, _, content = frame
            if rank != CONTROL_RANK:
                found.append((rank, content))
        assert not stream.ended
    return found


def test_only_the_servers_own_key_makes_an_aggregator(root) -> None:
    client = root.while_turning(
        lambda: join(
            Route(root.address, 2, keys_of(2, listening=False)),
            deadline_s=LIMIT_S,
            close_deadline_s=0.5,  # nobody turns the root while it closes
            note=root.said.append,
        )
    )
    # The certificate alone says who it is: whoever comes as rank 0 with a client's key is that client.
    with client, pytest.raises(PeerError, match="the server takes this party for rank 3 of 4, expected rank 0"):
        root.while_turning(
            lambda: reach(
                Route(root.address, 0, keys_of(3, listening=False)), deadline_s=LIMIT_S, note=root.said.append
            )
        )


def test_without_certificates_nobody_is_an_aggregator() -> None:
    listeners = listen(Address("127.0.0.1", 0))
    address = Address("127.0.0.1", listeners[0].getsockname()[1])
    with TcpServer(listeners, 2, keys=None, note=list, warn=list, adds_up=True) as server:
        stream = Stream(socket.create_connection((address.host, address.port)), None, server_side=False)
        with stream_of(stream):
            stream.write(Introduction(0).encode())
            stream.flush()
            while (welcome := Welcome.take(stream)) is None:
                assert server.receive(0.01) is None
                stream.fill()
    assert welcome.answer is Admission.NO_SUCH_RANK and server._branches == []


def test_a_server_whose_run_has_no_sums_takes_none() -> None:
    root = Root(adds_up=False)
    with root.server, pytest.raises(ConfigError, match="--parent: no aggregator can join there"):
        root.aggregator()


def test_an_aggregator_without_a_parent_reads_of_its_own_flag() -> None:
    with listen(Address("127.0.0.1", 0))[0] as free:
        nobody = Address(*free.getsockname())
    with pytest.raises(PeerTimeout, match="no server let this aggregator in at .*: check --parent, that the operator"):
        reach(Route(nobody, 0, keys_of(0, listening=False)), deadline_s=0.01, note=[].append)


def test_frames_for_several_clients_alike_go_out_once_and_in_order(root) -> None:
    stream = root.aggregator()
    root.bring(stream, 1, 2, 3)
    assert root.server.joined == 3 and all(root.server.opens(party) for party in (ONE, TWO, THREE))
    for party in (THREE, ONE, TWO):
        root.server.send(party, RECORD + b"equal")
    root.server.send(TWO, RECORD + b"equal")
    root.server.send(ONE, RECORD + b"other")
    root.server.order(b"o")
    root.server.flush()
    welcomes = [(rank, encode_answer(Admission.WELCOME)) for rank in (1, 2, 3)]
    assert frames(root, stream, 8) == [
        (0, encode_limit(root.server.most_frame)),
        *welcomes,
        (0, bytes([TreeKind.CAST]) + encode_ranks((1, 2, 3)) + RECORD + b"equal"),
        (2, RECORD + b"equal"),
        (1, RECORD + b"other"),
        (0, bytes([TreeKind.ORDER]) + b"o"),
    ]
    stream.close()


def test_a_client_comes_in_once_here_or_there(root) -> None:
    stream = root.aggregator()
    other = root.aggregator()
    root.bring(stream, 2)
    other.put_frame(2, bytes([TreeKind.JOIN]))
    other.put_frame(9, bytes([TreeKind.JOIN]))
    assert frames(root, other, 3)[1:] == [
        (2, encode_answer(Admission.TAKEN)),
        (9, encode_answer(Admission.NO_SUCH_RANK)),
    ]
    stream.close()
    other.close()


HOSTILE = {
    "nothing": (1, b""),
    "a client that came otherwise": (3, RECORD + b"x"),
    "no client": (77, RECORD + b"x"),
    "a handshake": (1, bytes([FrameKind.HANDSHAKE]) + b"x"),
    "a certificate": (1, bytes([FrameKind.CERTIFICATE]) + b"x"),
    "a verdict": (1, bytes([FrameKind.VERDICT]) + bytes(31)),
    "an order": (0, bytes([TreeKind.ORDER])),
    "an own record": (0, RECORD + b"x"),
    "a sum under a client": (1, bytes([FrameKind.SUM]) + encode_ranks((1, 2)) + b"x"),
    "a sum of nobody": (0, bytes([FrameKind.SUM]) + encode_ranks(())),
    "a sum of others": (0, bytes([FrameKind.SUM]) + encode_ranks((1, 3)) + b"x"),
    "a sum of one twice": (0, bytes([FrameKind.SUM]) + b"\2\0\1\0\1\0"),
    "a cut sum": (0, bytes([FrameKind.SUM]) + b"\2\0\1\0"),
    "a join with more": (3, bytes([TreeKind.JOIN]) + b"x"),
    "a fault of nothing": (1, bytes([TreeKind.FAULT])),
    "a fault of no reason": (1, bytes([TreeKind.FAULT, 99]) + b"x"),
    "a fault that only a client can have": (1, bytes([TreeKind.FAULT, Reason.BUDGET]) + b"x"),
    "a fault of another": (3, bytes([TreeKind.FAULT, Reason.GONE]) + b"x"),
    "a long fault": (1, bytes([TreeKind.FAULT, Reason.GONE]) + b"x" * 3000),
    "an unknown kind": (1, b"\xc8"),
}


@pytest.mark.parametrize(("rank", "frame"), HOSTILE.values(), ids=HOSTILE.keys())
def test_what_an_aggregator_may_not_send_loses_it_and_its_clients_alone(root, rank, frame) -> None:
    other = root.aggregator()
    root.bring(other, 3)
    stream = root.aggregator()
    stream.put_frame(1, bytes([TreeKind.JOIN]))
    stream.put_frame(2, bytes([TreeKind.JOIN]))
    stream.put_frame(rank, frame)
    lost = set()
    for _ in range(2):
        with pytest.raises(PeerGone, match="is gone with its aggregator: the aggregator at 127.0.0.1:") as caught:
            while True:
                assert root.server.receive(LIMIT_S) is None
        lost.add(caught.value.rank)
    assert lost == {1, 2}
    other.put_frame(3, RECORD + b"still there")
    assert root.server.receive(LIMIT_S) == (THREE, RECORD + b"still there")
    for each in (stream, other):
        each.close()


def test_an_aggregator_whose_connection_is_cut_is_not_waited_for() -> None:
    root = Root(reconnect_s=10 * LIMIT_S)
    with root.server:
        stream = root.aggregator()
        root.bring(stream, 1)
        stream.close()
        with pytest.raises(PeerGone, match="client 1 is gone with its aggregator"):
            root.server.receive(LIMIT_S)


def test_too_long_a_frame_of_an_aggregator_loses_it_before_memory_is_set_aside(root) -> None:
    root.server.most_frame = 1 << 16
    stream = root.aggregator()
    root.bring(stream, 1)
    stream.write(struct.pack("<IHQ", 1 << 24, 1, 0))
    stream.flush()
    with pytest.raises(PeerGone, match="client 1 announced 16777216 bytes at once"):
        while True:
            assert root.server.receive(LIMIT_S) is None
    stream.close()


def test_faults_name_the_client_and_who_says_so(root) -> None:
    stream = root.aggregator()
    root.bring(stream, 1, 2)
    stream.put_frame(1, encode_fault(PeerError("client 1 lies\x1b[2J", rank=1)))
    stream.put_frame(2, encode_fault(PeerGone("client 2 is gone", rank=2)))
    with pytest.raises(PeerError, match=r"client 1 lies\\x1b\[2J \(behind the aggregator at ") as caught:
        root.server.receive(LIMIT_S)
    assert (caught.value.rank, caught.value.reason) == (1, Reason.PROTOCOL)
    with pytest.raises(PeerGone, match="client 2 is gone") as caught:
        root.server.receive(LIMIT_S)
    assert caught.value.rank == 2
    with pytest.raises(PeerGone):
        root.server.send(TWO, RECORD + b"x")
    stream.close()


def test_a_client_of_another_version_behind_an_aggregator_is_named_at_once(root, real) -> None:
    with socket.create_connection((real.address.host, real.address.port), LIMIT_S) as connection:
        knocking = threading.Thread(
            target=knock_with_another_version, args=(connection, keys_of(2, listening=False).context, 8)
        )
        knocking.start()
        with pytest.raises(
            PeerError, match="client 2 speaks version 8 of the messages, this server 9: .*aggregator at "
        ) as caught:
            root.server.receive(LIMIT_S)
        knocking.join(LIMIT_S)
    assert (caught.value.rank, caught.value.reason) == (2, Reason.OTHER_VERSION)


def test_an_aggregator_ends_no_session_of_another_road_by_a_version(root) -> None:
    here = root.while_turning(
        lambda: join(
            Route(root.address, 3, keys_of(3, listening=False)),
            deadline_s=LIMIT_S,
            close_deadline_s=0.5,  # nobody turns the root while it closes
            note=root.said.append,
        )
    )
    stream = root.aggregator()
    root.bring(stream, 1)
    other = PeerError("it speaks version 8", rank=3, reason=Reason.OTHER_VERSION)
    with here:
        for rank in (1, 3):
            stream.put_frame(rank, encode_fault(other))
        stream.put_frame(1, RECORD + b"behind them")
        assert root.server.receive(LIMIT_S) == (ONE, RECORD + b"behind them")
        for _ in range(2000):
            stream.put_frame(2, encode_fault(other))
        stream.put_frame(1, RECORD + b"behind them")
        with pytest.raises(PeerError, match="it speaks version 8"):
            root.server.receive(LIMIT_S)
        assert root.server.receive(LIMIT_S) == (ONE, RECORD + b"behind them")
    stream.close()


def test_faults_without_end_are_told_once(root) -> None:
    stream = root.aggregator()
    root.bring(stream, 1, 2)
    for _ in range(2000):
        stream.put_frame(1, encode_fault(PeerError("client 1 lies", rank=1)))
    stream.put_frame(2, RECORD + b"behind them")
    with pytest.raises(PeerError, match="client 1 lies"):
        root.server.receive(LIMIT_S)
    assert root.server.receive(LIMIT_S) == (TWO, RECORD + b"behind them")
    stream.put_frame(1, encode_fault(PeerGone("client 1 is gone", rank=1)))
    with pytest.raises(PeerGone, match="client 1 is gone"):
        root.server.receive(LIMIT_S)
    stream.close()


def test_an_aggregator_that_asks_and_does_not_read_fills_no_memory(root, monkeypatch) -> None:
    monkeypatch.setattr(hub, "RELAY_BYTES", 1 << 14)
    stream = root.aggregator()
    root.bring(stream, 1)
    branch = root.server._branches[0]
    monkeypatch.setattr(branch.stream, "flush", lambda: None)  # as where the network takes no more
    with stream_of(stream), pytest.raises(PeerGone, match="client 1 is gone with its aggregator: .* and does not read"):
        for _ in range(1000):
            stream.put_frame(2000, bytes([TreeKind.JOIN]))
        while True:
            assert root.server.receive(LIMIT_S) is None and branch.backlog < 1 << 15


def confirmed(root: Root, stream: Stream, **how) -> SecureLinks:
    """Return the server's links, confirmed by clients 1 and 2 behind an aggregator that the test plays."""
    root.bring(stream, 1, 2)
    links = SecureLinks(root.server, identity(0), CERTIFICATES, Meter(), **how)
    for rank in (1, 2):
        stream.put_frame(rank, RECORD + confirm(CONTEXT, b"", None).head)
    links.connect(CONTEXT, deadline_s=LIMIT_S, peers=(ONE, TWO))
    return links


def sum_of(order: Order, *values: int) -> bytes:
    return bytes([FrameKind.SUM]) + encode_ranks((1, 2)) + order.header + struct.pack(f"<{len(values)}I", *values)


ORDER = Order(type=32, round=3, ring_bits=32, elements=2, wait_ms=60_000)


@pytest.mark.parametrize(
    ("ordered", "handed_up"),
    [
        (None, sum_of(ORDER, 1, 2)),
        (ORDER, sum_of(replace(ORDER, round=4), 1, 2)),
        (ORDER, sum_of(replace(ORDER, type=33, round=2), 1, 2)),
        (ORDER, sum_of(ORDER, 1)),
        (ORDER, sum_of(ORDER, 1, 2, 3)),
        (ORDER, bytes([FrameKind.SUM]) + encode_ranks((1, 2))),
    ],
    ids=["no order at all", "a later round", "another message", "a short one", "a long one", "none"],
)
def test_a_sum_that_was_not_ordered_is_refused(root, ordered, handed_up) -> None:
    stream = root.aggregator()
    with stream_of(stream):
        links = confirmed(root, stream)
        if ordered is not None:
            links.add_up(ordered)
        stream.put_frame(0, handed_up)
        with pytest.raises(PeerError, match="the aggregator of client 1 sent a sum that .* has not ordered") as caught:
            links.receive(LIMIT_S)
        assert caught.value.rank == SERVER.rank


def test_a_sum_of_a_round_that_is_closed_is_dropped(root) -> None:
    stream = root.aggregator()
    with stream_of(stream):
        links = confirmed(root, stream)
        links.add_up(ORDER)
        stream.put_frame(0, sum_of(replace(ORDER, round=2), 1, 2))
        stream.put_frame(0, sum_of(ORDER, 7, 8))
        got = [links.receive(LIMIT_S) for _ in range(2)]
        assert got == [(ONE, ORDER.header + struct.pack("<II", 7, 8)), (TWO, ORDER.header + bytes(8))]


def test_a_message_that_an_aggregator_has_opened_is_no_longer_than_others(root) -> None:
    stream = root.aggregator()
    with stream_of(stream):
        links = confirmed(root, stream, max_message=64)
        stream.put_frame(1, RECORD + Header(7, SETUP_ROUND).encode().ljust(64))
        assert links.receive(LIMIT_S) == (ONE, Header(7, SETUP_ROUND).encode().ljust(64))
        stream.put_frame(2, RECORD + Header(7, SETUP_ROUND).encode().ljust(65))
        with pytest.raises(
            SecurityError, match="client 2 sent a message of 65 bytes: at most 64 are allowed"
        ) as caught:
            links.receive(LIMIT_S)
        assert caught.value.rank == 2
        links.send(ONE, bytes(64), payload_bytes=64, round=0)
        with pytest.raises(RangeError, match="at most 64 bytes, this one has 65"):
            links.send(ONE, bytes(65), payload_bytes=65, round=0)


def test_an_opened_confirmation_is_no_longer_than_others(root) -> None:
    stream = root.aggregator()
    with stream_of(stream):
        root.bring(stream, 1)
        links = SecureLinks(root.server, identity(0), CERTIFICATES, Meter())
        stream.put_frame(1, RECORD + bytes(MOST_CONFIRMATION_BYTES + 1))
        with pytest.raises(SecurityError, match=f"client 1 sent a message of {MOST_CONFIRMATION_BYTES + 1} bytes"):
            links.connect(CONTEXT, deadline_s=LIMIT_S, peers=(ONE,))


@contextlib.contextmanager
def stream_of(stream: Stream) -> Iterator[None]:
    """Close it in the end."""
    try:
        yield
    finally:
        stream.close()


def test_a_place_that_an_aggregator_has_taken_is_taken(root) -> None:
    # It can say that a client came to it that did not (docs/security.md): nobody else can be that client then.
    stream = root.aggregator()
    root.bring(stream, 3)
    with pytest.raises(ConfigError, match="client 3 has joined already"):
        root.while_turning(
            lambda: join(Route(root.address, 3, keys_of(3, listening=False)), deadline_s=LIMIT_S, note=root.said.append)
        )
    stream.close()


@pytest.mark.parametrize(
    ("decode", "body"),
    [
        (decode_answer, b""),
        (decode_answer, b"\x63"),
        (decode_limit, b"\0\0\0"),
        (lambda body: decode_fault(body, ONE, "x"), b"\5"),
    ],
)
def test_short_bodies_are_refused(decode, body) -> None:
    with pytest.raises(ValueError, match=r"has|valid Admission"):
        decode(body)


@dataclass
class Real:
    """A root with links, and a real aggregator in a thread."""

    root: Root
    adder: Adder = field(default_factory=Adder)
    ended: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        stream, welcome = self.root.while_turning(
            lambda: reach(
                Route(self.root.address, 0, keys_of(0, listening=False)), deadline_s=LIMIT_S, note=self.root.said.append
            )
        )
        listeners = listen(Address("127.0.0.1", 0))
        self.address = Address("127.0.0.1", listeners[0].getsockname()[1])
        self.transport = BranchTransport(
            listeners,
            stream,
            welcome.parties - 1,
            keys=keys_of(0, listening=True),
            note=self.root.said.append,
            warn=self.root.said.append,
            joined_here=self.adder.join,
            stall_s=LIMIT_S,
            offer=self.root.offer,
        )
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        with self.transport:
            try:
                Aggregator(self.transport, self.adder, identity(0), CERTIFICATES).run()
            except FastLloydError as error:
                self.ended.append(error)

    def join(self, rank: int):
        return self.root.while_turning(
            lambda: join(
                Route(self.address, rank, keys_of(rank, listening=False)),
                deadline_s=LIMIT_S,
                note=self.root.said.append,
            )
        )


@pytest.fixture
def real(root) -> Iterator[Real]:
    made = Real(root)
    yield made
    root.server.close(lost=True)
    made.thread.join(LIMIT_S)
    assert not made.thread.is_alive()


def test_links_through_an_aggregator_carry_messages_and_sums(root, real) -> None:
    transports = [real.join(1), real.join(2)]
    direct = root.while_turning(
        lambda: join(Route(root.address, 3, keys_of(3, listening=False)), deadline_s=LIMIT_S, note=root.said.append)
    )
    links = [SecureLinks(root.server, identity(0), CERTIFICATES, Meter())]
    for each in (*transports, direct):
        links.append(SecureLinks(each, identity(each.me.rank), CERTIFICATES, Meter(), linked=(SERVER,)))
    assert at_once([lambda each=each: each.connect(CONTEXT, deadline_s=LIMIT_S) for each in links]) == [None] * 4
    order = Order(type=32, round=0, ring_bits=32, elements=2, wait_ms=60_000)
    links[0].add_up(order)
    for link, low in zip(links[1:], (0xFFFF_FFFF, 3, 5), strict=True):
        link.send(SERVER, order.header + struct.pack("<II", low, 7), payload_bytes=8, round=0)
    got = dict(links[0].receive(LIMIT_S) for _ in range(3))
    assert got == {
        ONE: order.header + struct.pack("<II", 2, 14),
        TWO: order.header + bytes(8),
        THREE: order.header + struct.pack("<II", 5, 7),
    }
    for peer in (ONE, TWO, THREE):
        links[0].send(peer, Header(33, 0).encode() + b"reply", payload_bytes=5, round=0)
    links[0].flush()
    for link in links[1:]:
        assert link.receive(LIMIT_S) == (SERVER, Header(33, 0).encode() + b"reply")
    assert (real.adder.sums, real.adder.added) == (1, 2)
    for each in (*transports, direct):
        each.close(lost=True)


@pytest.mark.parametrize(
    "frame",
    [
        bytes([FrameKind.VERDICT]) + bytes(31),
        bytes([FrameKind.SUM]) + encode_ranks((1, 2)) + b"x",
        bytes([FrameKind.CERTIFICATE]) + identity(1).certificate_der,
        bytes([TreeKind.FAULT, Reason.GONE]) + b"x",
        bytes([FrameKind.START]) + bytes(1000),
        bytes([FrameKind.HANDSHAKE]) + b"no TLS at all, and long enough to be read as a record",
        RECORD + b"\x17\x03\x03\x00\x05abcde",
        b"",
        b"\xc8",
    ],
)
def test_a_hostile_client_behind_an_aggregator_is_named_and_nobody_else_is_touched(root, real, frame) -> None:
    good, bad = real.join(1), real.join(2)
    with good, bad:
        bad.send(SERVER, frame)
        with pytest.raises(PeerError, match="client 2 ") as caught:
            root.server.receive(LIMIT_S)
        assert caught.value.rank == 2 and caught.value.reason in (Reason.PROTOCOL, Reason.SECURITY)
        good.send(SERVER, bytes([FrameKind.START]) + bytes(10))
        assert root.server.receive(LIMIT_S) == (ONE, bytes([FrameKind.START]) + bytes(10))
        assert real.ended == []


def test_nothing_more_of_a_client_that_an_aggregator_refuses_is_passed_up_but_how_it_ends(root, real) -> None:
    with real.join(2) as bad:
        links = SecureLinks(bad, identity(2), CERTIFICATES, Meter(), linked=(SERVER,))
        above = SecureLinks(root.server, identity(0), CERTIFICATES, Meter())
        calls = [
            lambda: above.connect(CONTEXT, deadline_s=LIMIT_S, peers=(TWO,)),
            lambda: links.connect(CONTEXT, deadline_s=LIMIT_S),
        ]
        assert at_once(calls) == [None] * 2
        longer = Header(7, SETUP_ROUND).encode().ljust(MOST_CONFIRMATION_BYTES + 1)
        links.send(SERVER, longer, payload_bytes=0, round=0)
        assert above.receive(LIMIT_S) == (TWO, longer)
        bad.send(SERVER, bytes([FrameKind.VERDICT]) + bytes(31))
        links.send(SERVER, Header(7, SETUP_ROUND).encode(), payload_bytes=0, round=0)
        bad.send(SERVER, bytes([FrameKind.HANDSHAKE]) + b"no TLS at all, and long enough to be read as a record")
        bad.send(SERVER, bytes([FrameKind.ABORT_ACK]))
        with pytest.raises(PeerError, match="client 2 sent a frame that does not belong here") as caught:
            root.server.receive(LIMIT_S)
        assert caught.value.rank == 2
        assert root.server.receive(LIMIT_S) == (TWO, bytes([FrameKind.ABORT_ACK]))


def test_an_aggregator_learns_what_its_parent_offers_and_tells_its_clients() -> None:
    root = Root(offer=b"what run this is")
    with root.server:
        route = Route(root.address, 0, keys_of(0, listening=False))
        assert root.while_turning(route.ask) == root.offer and root.server._branches == []
        real = Real(root)
        assert root.while_turning(Route(real.address, 1, keys_of(1, listening=False)).ask) == root.offer
        assert root.server.joined == 0
        root.server.close(lost=True)
        real.thread.join(LIMIT_S)


def test_an_aggregator_below_an_aggregator_is_refused(root, real) -> None:
    with pytest.raises(ConfigError, match="not another aggregator"):
        root.aggregator(real.address)


def test_a_client_that_leaves_an_aggregator_is_gone_at_the_server(root, real) -> None:
    real.join(2).close(lost=True)
    with pytest.raises(PeerGone, match="client 2 is gone") as caught:
        root.server.receive(LIMIT_S)
    assert caught.value.rank == 2


@pytest.mark.parametrize("frame", [(0, b""), (1, b"\xc8"), (9, RECORD + b"x"), (0, bytes([TreeKind.CAST]) + b"\0\0")])
def test_a_hostile_parent_ends_the_aggregator(root, real, frame) -> None:
    branch = root.server._branches[0]
    root.server._put_down(branch, *frame)
    while real.thread.is_alive():
        with contextlib.suppress(PeerGone):
            root.server.receive(0.01)
    assert "the parent server sent an unexpected frame" in str(real.ended[0])
