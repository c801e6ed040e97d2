"""Links between several parties: handshakes in any order, and records that are tampered with."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from fastlloyd.crypto.link.identity import make_identity
from fastlloyd.errors import (
    Aborted,
    ConfigError,
    FastLloydError,
    InternalError,
    PeerError,
    PeerGone,
    PeerTimeout,
    Reason,
    SecurityError,
)
from fastlloyd.net.link.control import abort
from fastlloyd.net.link.frame import Confirmation, FrameKind, Notice, confirm
from fastlloyd.net.link.secure import SecureLinks
from fastlloyd.net.meter import Meter
from fastlloyd.wire.header import SERVER, SETUP_ROUND, Header, PartyId
from tests.net.memory import MemoryNetwork
from tests.net.support import CONTEXT, LIMIT_S, SHORT_S, at_once, connect_all, connected, identity, make_links

ONE, TWO = PartyId(1), PartyId(2)


def message(round_: int, body: bytes = b"") -> bytes:
    return Header(7, round_).encode() + body


class Tap:
    """Passes everything on until `change` is set; then applies it to records from client 1."""

    def __init__(self):
        self.frames: list[bytes] = []
        self.change = None

    def __call__(self, sender, receiver, frame):
        self.frames.append(frame)
        if self.change is not None and sender == ONE and frame[0] == FrameKind.RECORD:
            return self.change(frame)
        return frame


@pytest.mark.parametrize("roster", [True, False])
def test_five_parties_connect_and_exchange_in_threads(roster):
    links = make_links(5, roster=roster)

    def party(each: SecureLinks):
        each.connect(CONTEXT, deadline_s=LIMIT_S)
        for number in range(3):
            for peer in each.peers:
                each.send(peer, message(number, bytes([each.me.rank, number])), payload_bytes=2, round=number)
        got: dict[PartyId, list[bytes]] = {peer: [] for peer in each.peers}
        while any(len(items) < 3 for items in got.values()):
            peer, content = each.receive(LIMIT_S)
            got[peer].append(content)
        return got

    results = at_once([lambda each=each: party(each) for each in links])
    for got in results:
        for peer, items in got.items():
            assert items == [message(number, bytes([peer.rank, number])) for number in range(3)]
    assert {each.authenticated for each in links} == {roster}
    assert links[0].receive(0.0) is None


@pytest.mark.parametrize("seed", range(3))
def test_handshakes_finish_in_any_order_of_start(seed):
    links = make_links(4, roster=bool(seed % 2))
    order = random.Random(seed).sample(range(4), 4)
    assert connect_all([links[rank] for rank in order]) == [None] * 4


def test_chosen_peers_only():
    links = make_links(3)
    peers = {0: [ONE, TWO], 1: [SERVER], 2: [SERVER]}
    assert (
        at_once(
            [lambda each=each: each.connect(CONTEXT, deadline_s=LIMIT_S, peers=peers[each.me.rank]) for each in links]
        )
        == [None] * 3
    )
    with pytest.raises(InternalError, match="link to client 2 is not up"):
        links[1].send(TWO, b"x", payload_bytes=0, round=0)


@pytest.mark.parametrize("roster", [True, False])
def test_clients_without_links_to_each_other_pass_over_what_one_begins(roster):
    # Client 2 runs with other flags and asks for a link to client 1; the server names what differs.
    links = make_links(3, roster=roster, change=lambda me: {"linked": (SERVER,)} if me == ONE else {})

    def other():
        with pytest.raises(PeerTimeout, match="client 1 did not finish the handshake"):
            links[2].connect(CONTEXT, deadline_s=SHORT_S)

    calls = [
        lambda: links[0].connect(CONTEXT, deadline_s=LIMIT_S),
        lambda: links[1].connect(CONTEXT, deadline_s=LIMIT_S),
    ]
    assert at_once([*calls, other]) == [None] * 3
    links[0].send(ONE, message(0, b"hello"), payload_bytes=0, round=0)
    assert links[1].receive(LIMIT_S) == (SERVER, message(0, b"hello"))
    with pytest.raises(InternalError, match="link to client 2 is not up"):
        links[1].send(TWO, b"x", payload_bytes=0, round=0)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [(FrameKind.RECORD, [1]), (FrameKind.HANDSHAKE, [60_000, 60_000]), (FrameKind.CERTIFICATE, [8_000] * 9)],
)
def test_more_than_a_handshake_from_a_client_without_a_link_ends_the_run(kind, sizes):
    links = make_links(3, change=lambda me: {"linked": (SERVER,)} if me == ONE else {})
    for size in sizes:
        links[2].post(ONE, kind, bytes(size), SETUP_ROUND)
    with pytest.raises(PeerError, match="client 2 sends over a link that this run does not have") as caught:
        links[1].connect(CONTEXT, deadline_s=SHORT_S)
    assert caught.value.rank == 2


def test_peer_that_comes_late_finds_everything_kept():
    """Frames of a handshake and a first message arrive while this party is still busy elsewhere."""
    links = make_links(2)

    def client():
        links[1].connect(CONTEXT, deadline_s=LIMIT_S)
        links[1].send(SERVER, message(0, b"early"), payload_bytes=5, round=0)

    def server():
        assert links[0].step(LIMIT_S)  # the ClientHello, before connect
        links[0].connect(CONTEXT, deadline_s=LIMIT_S)
        return links[0].receive(LIMIT_S)

    assert at_once([server, client])[0] == (ONE, message(0, b"early"))


def test_both_meters_agree_and_small_messages_cost_27_bytes_more():
    links = connected(3)
    for round_, size in ((0, 48), (0, 48), (1, 100_000)):
        links[1].send(SERVER, message(round_, bytes(size)), payload_bytes=size, round=round_)
        assert links[0].receive(LIMIT_S) == (ONE, message(round_, bytes(size)))
    sent, received = links[1]._meter.sent, links[0]._meter.received
    assert (sent[SERVER, 0].messages, sent[SERVER, 0].payload_bytes) == (2, 96)
    assert sent[SERVER, 0].link_bytes == 2 * (48 + 8 + 27) == received[ONE, 0].link_bytes
    assert sent[SERVER, 1].link_bytes == received[ONE, 1].link_bytes > 100_000
    assert received[ONE, 0].messages == 2 and received[ONE, 0].payload_bytes == 0
    assert sent[SERVER, SETUP_ROUND].link_bytes == received[ONE, SETUP_ROUND].link_bytes > 500
    for setup in (sent[SERVER, SETUP_ROUND], received[ONE, SETUP_ROUND]):
        assert setup.messages == setup.payload_bytes == 0


def test_nothing_travels_in_clear():
    tap = Tap()
    links = connected(3, tap=tap)
    secret = os.urandom(32)
    links[1].send(SERVER, message(0, secret), payload_bytes=32, round=0)
    assert links[0].receive(LIMIT_S) == (ONE, message(0, secret))
    assert not any(secret in frame or CONTEXT in frame for frame in tap.frames)


def test_impostor_is_refused_and_learns_it():
    links = make_links(2, change=lambda party: {"identity": make_identity("x", 1)} if party == ONE else {})
    errors = connect_all(links, deadline_s=LIMIT_S)
    assert [type(error) for error in errors] == [SecurityError, SecurityError]
    assert [error.rank for error in errors] == [1, 0]
    assert "confirms a new fingerprint by telephone" in str(errors[0]) and "roster add" in str(errors[0])
    assert "refused this party's certificate" in str(errors[1])


def test_impostor_is_refused_by_clients_too():
    links = make_links(3, change=lambda party: {"identity": make_identity("x", 2)} if party == TWO else {})
    errors = at_once(
        [
            lambda each=each: each.connect(CONTEXT, deadline_s=LIMIT_S, peers=[TWO if each.me == ONE else ONE])
            for each in links[1:]
        ]
    )
    assert [(type(error), error.rank) for error in errors] == [(SecurityError, 2), (SecurityError, 1)]


def test_roster_without_a_peer_is_refused_at_once():
    network = MemoryNetwork(3)
    with pytest.raises(ConfigError, match="lacks client 2"):
        SecureLinks(network.endpoint(SERVER), identity(0), {ONE: identity(1).certificate_der}, Meter())


def test_party_without_roster_among_parties_with_one_is_named():
    links = make_links(2, change=lambda party: {"certificates": None} if party == ONE else {})
    errors = connect_all(links, deadline_s=SHORT_S)
    assert isinstance(errors[0], SecurityError) and errors[0].rank == 1 and "--roster" in str(errors[0])


def test_second_certificate_is_refused():
    links = make_links(2, roster=False)
    links[1].post(SERVER, FrameKind.CERTIFICATE, identity(1).certificate_der, SETUP_ROUND)
    links[1].post(SERVER, FrameKind.CERTIFICATE, identity(2).certificate_der, SETUP_ROUND)
    assert links[0].step(0.0)
    with pytest.raises(PeerError, match="client 1") as caught:
        links[0].step(0.0)
    assert caught.value.reason is Reason.PROTOCOL


def test_other_configuration_names_the_peer():
    links = make_links(2)
    errors = at_once(
        [lambda each=each: each.connect(bytes(31) + bytes([each.me.rank]), deadline_s=LIMIT_S) for each in links]
    )
    assert all(type(error) is PeerError and error.reason is Reason.CONFIG_MISMATCH for error in errors)
    assert [error.rank for error in errors] == [1, 0]
    assert "its digest is another one; compare flags" in str(errors[0])


def test_client_and_server_tell_each_other_their_values_and_clients_do_not():
    network = MemoryNetwork(3)
    certificates = {PartyId(rank): identity(rank).certificate_der for rank in range(3)}
    links = [SecureLinks(network.endpoint(PartyId(rank)), identity(rank), certificates, Meter()) for rank in range(3)]
    seen = {each.me: {} for each in links}
    for each in links:
        deliver = each._deliver

        def keep(peer, message, link_bytes, each=each, deliver=deliver):
            seen[each.me][peer] = message[33:]
            deliver(peer, message, link_bytes)

        each._deliver = keep
    values = [b"server's", b"one's", b"two's"]
    connect = [
        lambda each=each: each.connect(CONTEXT, deadline_s=LIMIT_S, values=values[each.me.rank], explain=bytes.decode)
        for each in links
    ]
    assert at_once(connect) == [None] * 3
    assert seen == {
        SERVER: {ONE: values[1], TWO: values[2]},
        ONE: {SERVER: values[0], TWO: b""},
        TWO: {SERVER: values[0], ONE: b""},
    }


def test_what_differs_is_explained_by_the_values_of_the_other_one():
    links = make_links(2)
    values = [b"the server has 1", b"the client has 2"]
    errors = at_once(
        [
            lambda each=each: each.connect(
                bytes(31) + bytes([each.me.rank]), deadline_s=LIMIT_S, values=values[each.me.rank], explain=bytes.decode
            )
            for each in links
        ]
    )
    assert str(errors[0]) == ("client 1 runs with another public configuration: the client has 2")
    assert "the server runs with another public configuration: the server has 1" in str(errors[1])


@pytest.mark.parametrize("odd", [0, 2])
def test_a_server_that_differs_from_all_clients_names_itself(odd, monkeypatch):
    from fastlloyd.net.link import secure

    monkeypatch.setattr(secure, "_OTHERS_FIRST_S", LIMIT_S)
    links = make_links(4)

    def party(each):
        context = bytes(31) + bytes([each.me.rank == odd])
        value = b"epsilon 2" if each.me.rank == odd else b"epsilon 1"
        try:
            each.connect(context, deadline_s=LIMIT_S, values=value, explain=bytes.decode)
        except FastLloydError as error:
            return error, abort(each, error)
        return None, each.receive(LIMIT_S)

    outcomes = at_once([lambda each=each: party(each) for each in links])
    assert {(ending.code, ending.rank, ending.reason) for _, ending in outcomes} == {(3, odd, Reason.CONFIG_MISMATCH)}
    if odd == 0:
        assert str(outcomes[0][0]) == (
            "this server runs with another public configuration than its clients, which agree with each other: "
            "epsilon 1"
        )
        sentence = "the server runs with another public configuration: epsilon 2"
        assert all(str(error) == sentence or isinstance(error, Aborted) for error, _ in outcomes[1:])
    else:
        assert str(outcomes[0][0]) == "client 2 runs with another public configuration: epsilon 2"


def test_a_confirmation_with_too_many_values_is_refused_when_its_length_is_read():
    class Talker(SecureLinks):
        def _advance(self, peer):
            self._confirmation = replace(self._confirmation, values=bytes((1 << 20) + 1))
            self._link(peer).max_message = 1 << 30
            super()._advance(peer)

    network = MemoryNetwork(2)
    certificates = {PartyId(rank): identity(rank).certificate_der for rank in range(2)}
    links = [
        cls(network.endpoint(PartyId(rank)), identity(rank), certificates, Meter())
        for rank, cls in enumerate((SecureLinks, Talker))
    ]
    errors = connect_all(links)
    assert isinstance(errors[0], SecurityError) and "declared a message of 1048610 bytes" in str(errors[0])
    with pytest.raises(InternalError, match="at most 1048576 bytes of values"):
        make_links(2)[0].connect(CONTEXT, deadline_s=LIMIT_S, values=bytes((1 << 20) + 1))


def test_client_that_differs_from_the_server_does_not_accuse_another_client_first():
    links = make_links(3)
    links[1]._expected, links[1]._confirmation = (SERVER, TWO), Confirmation(b"mine")
    links[1]._received[TWO] = b"other"
    links[1]._unjudged = {TWO}
    links[1]._compare()  # client 2 differs, but the server has not been heard
    links[1]._received[SERVER] = b"other"
    links[1]._unjudged = {SERVER, TWO}
    with pytest.raises(PeerError, match="the server"):
        links[1]._compare()


def test_a_client_that_is_not_to_blame_leaves_it_to_the_server_and_is_told_so(monkeypatch):
    from fastlloyd.net.link import secure

    def differing() -> list[SecureLinks]:
        links = make_links(3)
        links[2]._expected, links[2]._confirmation = (SERVER, ONE), confirm(CONTEXT, b"", None)
        head = links[2]._confirmation.head
        links[2]._received |= {SERVER: head, ONE: head[:-1] + b"?"}
        links[2]._unjudged = {SERVER, ONE}
        return links

    links = differing()
    links[0].post(TWO, FrameKind.ABORT, Notice(1, Reason.CONFIG_MISMATCH, 3).encode(), SETUP_ROUND)
    with pytest.raises(Aborted, match=r"^client 1 runs with another .* \(the server's own standard error says"):
        links[2]._compare()
    monkeypatch.setattr(secure, "_SERVER_FIRST_S", 0.01)
    with pytest.raises(PeerError, match="than the server and this party, .* nothing is to be changed here"):
        differing()[2]._compare()


def test_other_protocol_version_is_named():
    class Old(SecureLinks):
        def _advance(self, peer):
            self._confirmation = replace(self._confirmation, head=b"\0" + self._confirmation.head[1:])
            super()._advance(peer)

    network = MemoryNetwork(2)
    certificates = {PartyId(rank): identity(rank).certificate_der for rank in range(2)}
    links = [
        cls(network.endpoint(PartyId(rank)), identity(rank), certificates, Meter())
        for rank, cls in enumerate((SecureLinks, Old))
    ]
    errors = connect_all(links)
    assert errors[0].reason is Reason.CONFIG_MISMATCH and "protocol version" in str(errors[0])


def test_silent_peer_is_named():
    links = make_links(3)
    errors = connect_all(links[:2], deadline_s=SHORT_S)
    assert [type(error) for error in errors] == [PeerTimeout, PeerTimeout]
    assert [error.rank for error in errors] == [2, 2]
    with pytest.raises(PeerTimeout, match="the server"):
        make_links(2)[1].connect(CONTEXT, deadline_s=0.01)


def refused(change, *, sends: int = 2, **options) -> SecurityError:
    """Send two records from client 1 through `change`; give the server's refusal."""
    tap = Tap()
    links = connected(3, tap=tap, **options)
    tap.change = change
    secret = os.urandom(16)
    for _ in range(sends):
        links[1].send(SERVER, message(0, secret), payload_bytes=16, round=0)
    with pytest.raises(SecurityError, match="client 1") as caught:
        while links[0].receive(0.0) is not None:
            pass
    assert caught.value.rank == 1
    assert secret.hex() not in str(caught.value) and repr(secret) not in str(caught.value)
    return caught.value


def flip(frame: bytes) -> bytes:
    return frame[:-1] + bytes([frame[-1] ^ 1])


def test_changed_record_is_refused():
    refused(flip, sends=1)


@pytest.mark.parametrize("keep", [1, 3, 10, -1])
def test_truncated_record_is_refused_at_once(keep):
    assert "truncated" in str(refused(lambda frame: frame[:keep], sends=1))


def test_lengthened_record_is_refused():
    refused(lambda frame: frame + b"\0")


def test_repeated_record_is_refused():
    refused(lambda frame: [frame, frame], sends=1)


def test_joined_records_are_refused():
    held = []

    def join(frame):
        held.append(frame)
        return None if len(held) == 1 else held[0] + held[1][1:]

    assert "joined" in str(refused(join))


def test_reordered_records_are_refused():
    held = []

    def swap(frame):
        held.append(frame)
        return None if len(held) == 1 else [held[1], held[0]]

    refused(swap)


def test_oversized_message_is_refused():
    links = connected(2, change=lambda party: {"max_message": 64} if party == SERVER else {})
    links[1].send(SERVER, message(0, bytes(56)), payload_bytes=56, round=0)
    assert links[0].receive(LIMIT_S) is not None
    links[1].send(SERVER, message(0, bytes(57)), payload_bytes=57, round=0)
    with pytest.raises(SecurityError, match="65 bytes: at most 64") as caught:
        links[0].receive(LIMIT_S)
    assert caught.value.rank == 1


def test_record_before_its_handshake_is_refused():
    links = make_links(2)
    links[1].post(SERVER, FrameKind.RECORD, b"\x17\x03\x03\x00\x01x", SETUP_ROUND)
    with pytest.raises(SecurityError, match="client 1"):
        links[0].step(0.0)
    links = make_links(2, roster=False)
    links[1].post(SERVER, FrameKind.RECORD, b"", SETUP_ROUND)
    with pytest.raises(SecurityError, match="--roster"):
        links[0].step(0.0)


@pytest.mark.parametrize(
    "frame", [b"", b"\0", b"\x63rubbish", b"\x04short", bytes([FrameKind.VERDICT]), bytes([FrameKind.ABORT])]
)
def test_frames_that_do_not_belong_name_their_sender(frame):
    links = make_links(2)
    links[1]._transport.send(SERVER, frame)
    with pytest.raises(PeerError, match="client 1 sent a frame that does not belong here") as caught:
        links[0].receive(0.0)
    assert caught.value.rank == 1 and caught.value.reason is Reason.PROTOCOL


def test_frames_that_are_no_message_do_not_prolong_a_wait():
    links = make_links(2)
    for _ in range(5):
        links[1].post(SERVER, FrameKind.ABORT_ACK, b"", SETUP_ROUND)
    assert links[0].receive(0.0) is None
    assert [links[0].step(0.0) for _ in range(5)] == [True] * 4 + [False]


def test_lost_peer_is_gone_for_receive_and_send():
    links = connected(3)
    links[1].send(SERVER, message(0), payload_bytes=0, round=0)
    links[1].close(lost=True)
    assert links[0].receive(LIMIT_S) == (ONE, message(0))
    with pytest.raises(PeerGone) as caught:
        links[0].receive(LIMIT_S)
    assert caught.value.rank == 1 and links[0].gone == {ONE}
    with pytest.raises(PeerGone):
        links[0].send(ONE, message(0), payload_bytes=0, round=0)


def test_party_that_finishes_first_alarms_nobody():
    links = connected(3)
    links[1].close()
    links[0].send(TWO, message(9), payload_bytes=0, round=9)
    assert links[2].receive(LIMIT_S) == (SERVER, message(9))
    assert links[2].receive(0.0) is None


def test_abort_notice_is_acknowledged_and_raised():
    links = connected(3)
    links[0].post(ONE, FrameKind.ABORT, Notice(2, Reason.BAD_INPUT, 2, by=2).encode(), 0)
    with pytest.raises(Aborted, match="client 2 did not start: bad input") as caught:
        links[1].receive(LIMIT_S)
    assert (caught.value.rank, caught.value.exit_code) == (2, 2)
    assert links[0].receive(0.0) is None and links[0].acknowledged == {ONE}


def test_client_that_differs_from_the_server_is_the_one_at_fault():
    links = make_links(3)
    links[1].post(SERVER, FrameKind.ABORT, Notice(0, Reason.CONFIG_MISMATCH, 3).encode(), 0)
    with pytest.raises(Aborted, match="client 1 runs with another") as caught:
        links[0].receive(0.0)
    assert caught.value.rank == 1


def test_repr_shows_no_secret():
    links = connected(2)
    assert repr(links[0]) == "SecureLinks(the server, 1 of 1 links up)"


def test_context_of_another_length_is_our_own_bug():
    with pytest.raises(InternalError, match="32 bytes"):
        make_links(2)[0].connect(b"short", deadline_s=1.0)


def test_what_comes_ahead_of_time_is_bounded_even_while_nobody_receives():
    one, other = connected(2)
    one.bound(message_bytes=1 << 10, ahead_bytes=1 << 14)
    for number in range(100):
        other.send(one.me, message(number), payload_bytes=0, round=number)
    with pytest.raises(PeerError, match="client 1 sent more than 16384 bytes ahead of time") as caught:
        while one.step(LIMIT_S):
            pass
    assert caught.value.rank == 1


def test_what_was_received_counts_no_longer():
    one, other = connected(2)
    one.bound(message_bytes=1 << 10, ahead_bytes=1 << 10)
    for number in range(20):
        other.send(one.me, message(number, bytes(400)), payload_bytes=0, round=number)
        assert one.receive(LIMIT_S)[0] == ONE


def test_a_message_of_the_bound_fits_and_a_longer_one_does_not():
    for size in (1 << 16, (1 << 18) + 5):
        one, other = connected(2)
        one.bound(message_bytes=size, ahead_bytes=1 << 20)
        other.send(one.me, message(0, bytes(size - 8)), payload_bytes=0, round=0)
        assert len(one.receive(LIMIT_S)[1]) == size
        other.send(one.me, message(0, bytes(size - 7)), payload_bytes=0, round=0)
        with pytest.raises(PeerError, match="client 1 announced"):
            one.receive(LIMIT_S)
