"""A client whose connection was cut comes back: nothing lost, nothing twice, nobody else in its place."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time

import pytest

from fastlloyd.errors import ConfigError, PeerError, PeerGone
from fastlloyd.net.tcp import delivery, door, relay
from fastlloyd.net.tcp.address import Address
from fastlloyd.net.tcp.admission import Admission, Introduction, StrangerLog, Welcome
from fastlloyd.net.tcp.delivery import NO_ID
from fastlloyd.net.tcp.proxy import Proxy
from fastlloyd.net.tcp.route import Route
from fastlloyd.net.tcp.spoke import TcpClient
from fastlloyd.net.tcp.stream import Stream
from fastlloyd.wire.header import SERVER, PartyId
from tests.contracts import transport as contract
from tests.net.connect_proxy import ConnectProxy
from tests.net.support import at_once, receiving
from tests.net.test_tcp import LIMIT_S, Site, client_keys, end_of, knocking, linked, until

ONE, TWO = PartyId(1), PartyId(2)


def site(clients: int, *, keys: bool = True, reconnect_s: float = LIMIT_S, **options: object) -> Site:
    return Site(clients, keys=keys, options={"reconnect_s": reconnect_s, **options})


def at(proxy: ConnectProxy) -> Proxy:
    return Proxy(Address("127.0.0.1", proxy.port))


def cut(client: TcpClient) -> None:
    """Cut a client's connection in the middle of whatever it says."""
    assert client._hub.stream is not None
    client._hub.stream._socket.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("keys", [False, True], ids=["plain", "tls"])
def test_what_was_under_way_arrives_once_and_in_order(keys: bool) -> None:
    with site(2, keys=keys) as here:
        one, two = at_ease(here)
        with here.turning() as at_server:
            for i in range(50):
                one.send(SERVER, b"up %d" % i)
                two.send(ONE, b"across %d" % i)
            cut(one)
            for i in range(50, 100):
                one.send(SERVER, b"up %d" % i)
            with receiving(one) as at_one, receiving(two):
                until(lambda: len(at_server) == 100 and len(at_one) == 50)
        assert at_server == [(ONE, b"up %d" % i) for i in range(100)]
        assert at_one == [(TWO, b"across %d" % i) for i in range(50)]
    assert any(text.startswith("back at the server after") for text in here.said)
    assert any(text.startswith("client 1 is back") for text in here.said)


def at_ease(here: Site) -> list[TcpClient]:
    """Let all clients join; they will come back."""
    with here.turning():
        return [here.join(rank, reconnect_s=LIMIT_S) for rank in range(1, here.clients + 1)]


CASES = (contract.order_per_peer, contract.large_frames_both_directions, contract.many_small_both_directions)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_contract_holds_although_a_proxy_cuts_again_and_again(case: contract.Case) -> None:
    here = site(2)
    ends = 0
    with ConnectProxy() as proxy:

        def client(rank: int) -> None:
            with here.join(rank, proxy=at(proxy), reconnect_s=LIMIT_S) as end:
                contract.run(end, *[case] * 3)

        def server() -> None:
            with here.server as end:
                contract.run(end, *[case] * 3)

        def cutter() -> None:
            nonlocal ends
            for _ in range(8):
                time.sleep(0.05)
                if here.server.joined == 2:
                    ends += proxy.cut()

        jobs = [server, cutter, *(lambda rank=rank: client(rank) for rank in (1, 2))]
        assert at_once(jobs) == [None] * 4
    assert ends or here.server.joined == 2


def test_links_go_on_as_if_nothing_had_happened() -> None:
    with site(2) as here:
        joined = at_ease(here)
        here.all_in = lambda: joined  # type: ignore[method-assign]
        links = linked(here)
        with here.turning():
            links[1].send(TWO, b"first", payload_bytes=0, round=0)
            assert links[2].receive(LIMIT_S) == (ONE, b"first")
            cut(joined[0])
            links[1].send(TWO, b"second", payload_bytes=0, round=0)
            with receiving(joined[0]):
                assert links[2].receive(LIMIT_S) == (ONE, b"second")


def test_a_client_comes_back_although_the_server_has_not_noticed() -> None:
    with site(1) as here:
        (client,) = at_ease(here)
        stream = client._hub.stream
        assert stream is not None
        held = os.dup(stream.fileno())  # no word of the end reaches the server, as where a firewall forgets
        try:
            with here.turning() as at_server:
                client._miss(client._hub, stream)
                client.send(SERVER, b"again")
                with receiving(client):
                    until(lambda: at_server)
                assert at_server == [(ONE, b"again")] and here.server._by_rank[1].returns == 1
        finally:
            os.close(held)


def test_whoever_does_not_come_back_is_named_when_its_time_is_up() -> None:
    with site(2, reconnect_s=0.5) as here:
        one, two = at_ease(here)
        with here.turning() as at_server:
            started = time.monotonic()
            cut(one)
            until(lambda: at_server)
            assert time.monotonic() - started >= 0.45
            two.send(SERVER, b"still here")
            until(lambda: at_server[1:])
        assert isinstance(at_server[0], PeerGone) and at_server[0].rank == 1
        assert "its connection was cut, and it did not come back in 0.5 s" in str(at_server[0])
        assert at_server[1] == (TWO, b"still here")
        # Too late: it is refused at once, and stops trying.
        with here.turning(), pytest.raises(PeerGone, match="does not take this client back"):
            one.receive(LIMIT_S)


def test_whoever_is_away_holds_up_nobody_by_not_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "RELAY_BYTES", 100)
    with site(2, stall_s=0.2) as here:
        one, two = at_ease(here)
        with here.turning() as at_server:
            cut(two)
            until(lambda: here.server._away)
            for i in range(5):
                one.send(TWO, b"%d" % i * 80)
            until(lambda: here.server._holding)
            time.sleep(0.5)  # more than twice as long as somebody who is there may leave them unread
            with receiving(two) as at_two:
                until(lambda: len(at_two) == 5)
        assert at_two == [(ONE, b"%d" % i * 80) for i in range(5)] and at_server == []


def test_a_server_that_does_not_come_back_is_named_when_its_time_is_up() -> None:
    here = site(1)
    with here.turning():
        client = here.join(1, reconnect_s=0.5)
    for listener in here.server._listeners:
        listener.close()
    stream = here.server._by_rank[1].stream
    assert stream is not None
    stream.close()
    with pytest.raises(PeerGone, match=r"there was no other in 0.5 s \(connection refused\)"):
        client.receive(LIMIT_S)
    client.close(lost=True)


def test_whoever_leaves_with_a_word_is_not_waited_for() -> None:
    with site(2) as here:
        one, two = at_ease(here)
        with here.turning() as at_server:
            started = time.monotonic()
            one.close(lost=True)
            until(lambda: at_server)
            assert isinstance(at_server[0], PeerGone) and time.monotonic() - started < LIMIT_S / 2
        closing = threading.Thread(target=here.server.close)
        closing.start()
        with pytest.raises(PeerGone, match="the server is gone: its connection ended"):
            two.receive(LIMIT_S)
        closing.join()


def test_deadlines_go_on_while_a_connection_is_away() -> None:
    with site(1) as here:
        (client,) = at_ease(here)
        cut(client)  # and nobody turns the server: nobody answers
        for timeout_s in (0.0, 0.01, 0.3, 1.0):
            started = time.monotonic()
            assert client.receive(timeout_s) is None
            assert timeout_s <= time.monotonic() - started < timeout_s + LIMIT_S / 4


def test_without_reconnect_a_cut_is_the_end_at_once() -> None:
    with site(1, reconnect_s=0.0) as here:
        with here.turning():
            client = here.join(1)
        cut(client)
        with pytest.raises(PeerGone, match="its connection ended"):
            client.receive(LIMIT_S)
        with pytest.raises(PeerGone, match="its connection ended"):
            here.server.receive(LIMIT_S)
        with pytest.raises(OSError):
            here.raw()


# Who may come back


def test_nobody_comes_back_where_nobody_may() -> None:
    with site(2, reconnect_s=0.0) as here, here.turning():
        client = here.join(1, reconnect_s=LIMIT_S)
        secret = here.server._by_rank[1].delivery.id
        assert client._hub.delivery.id == NO_ID != secret
        assert answer_to(here, Introduction(1, secret), rank=1) is Admission.NO_SUCH_SESSION
        assert here.server._by_rank[1].returns == 0
        cut(client)  # it would come back, but knows that it cannot
        with pytest.raises(PeerGone, match="the server is gone: its connection ended"):
            client.receive(LIMIT_S)


def answer_to(here: Site, hello: Introduction, *, rank: int | None) -> Admission:
    """Knock with these words and the keys of a rank; give the answer."""
    keys = None if rank is None else client_keys(rank)
    route = Route(here.address, hello.rank, keys)
    found, why, _ = route.attempt(time.monotonic() + LIMIT_S, hello.session, hello.taken)
    assert found is not None, why
    found[0].close()
    return found[1].answer


def test_another_identity_cannot_take_a_session_over() -> None:
    with site(2) as here:
        one, two = at_ease(here)
        secret = one._hub.delivery.id
        assert secret == here.server._by_rank[1].delivery.id != two._hub.delivery.id
        with here.turning() as at_server:
            # Client 2 has learned it, and says that it is client 1: the certificate says otherwise.
            assert answer_to(here, Introduction(1, secret), rank=2) is Admission.NO_SUCH_SESSION
            # Nor does the session of another, nor none, nor one that differs in a bit.
            assert answer_to(here, Introduction(1, two._hub.delivery.id), rank=1) is Admission.NO_SUCH_SESSION
            assert answer_to(here, Introduction(1, NO_ID), rank=1) is Admission.TAKEN
            other = bytes([secret[0] ^ 1]) + secret[1:]
            assert answer_to(here, Introduction(1, other), rank=1) is Admission.NO_SUCH_SESSION
            one.send(SERVER, b"undisturbed")
            two.send(SERVER, b"undisturbed")
            until(lambda: len(at_server) == 2)
        assert not any(isinstance(item, PeerError) for item in at_server)


def test_without_a_roster_the_session_is_what_a_stranger_lacks() -> None:
    with site(1, keys=False) as here:
        (client,) = at_ease(here)
        with here.turning() as at_server:
            cut(client)
            until(lambda: here.server._away)
            assert answer_to(here, Introduction(1, bytes(15) + b"x"), rank=None) is Admission.NO_SUCH_SESSION
            client.send(SERVER, b"mine")
            with receiving(client):
                until(lambda: at_server)
        assert at_server == [(ONE, b"mine")]


def test_a_client_that_was_started_again_is_another_one() -> None:
    with site(1) as here:
        (client,) = at_ease(here)
        with here.turning() as at_server:
            client.send(SERVER, b"said before")
            until(lambda: at_server)
            cut(client)
            until(lambda: here.server._away)
            with pytest.raises(ConfigError, match="client 1 has joined already"):
                here.join(1)


def test_a_welcome_that_was_cut_off_does_not_cost_the_place() -> None:
    with site(1, keys=False) as here:
        here.server.send(ONE, b"early")
        with here.turning():
            with here.raw() as first:
                first.sendall(Introduction(1).encode())
                until(lambda: here.server.joined)
            until(lambda: here.server._away)
            client = here.join(1, reconnect_s=LIMIT_S)
            assert client.receive(LIMIT_S) == (SERVER, b"early")


def test_a_server_that_welcomes_to_another_session_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with site(1) as here:
        (client,) = at_ease(here)

        def attempt(self: Route, end: float, session_id: bytes = NO_ID, taken: int = 0) -> tuple[object, str, bool]:
            stream = Stream(here.raw(), None, server_side=False)
            return (stream, Welcome(Admission.WELCOME, 1, 2, bytes(15) + b"x")), "", True

        monkeypatch.setattr(Route, "attempt", attempt)
        with here.turning():
            cut(client)
            with pytest.raises(PeerGone, match="does not take this client back"):
                client.receive(LIMIT_S)


def test_a_server_that_asks_again_and_again_gets_the_same_bytes() -> None:
    # Two payloads under one mask would show it their difference: what was sealed once is all that there is.
    header = struct.Struct("<IHQ")
    wire: list[bytes] = []
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as liar:

        def serve() -> None:
            for _ in range(4):
                connection, _ = liar.accept()
                with connection, connection.makefile("rb") as end:
                    end.read(len(Introduction(1).encode()))
                    connection.sendall(Welcome(Admission.WELCOME, 1, 2, bytes(range(16)), taken=0).encode())
                    for _ in range(3):  # it has never taken anything, it says, and hangs up
                        size, _, _ = header.unpack(end.read(header.size))
                        wire.append(end.read(size))

        thread = threading.Thread(target=serve)
        thread.start()
        route = Route(Address(*liar.getsockname()), 1, None)
        found, why, _ = route.attempt(time.monotonic() + LIMIT_S)
        assert found is not None, why
        client = TcpClient(found, route, note=said.append, reconnect_s=LIMIT_S)
        for i in range(3):
            client.send(SERVER, b"%d" % i + os.urandom(1000))
        with receiving(client):
            thread.join(LIMIT_S)
        assert not thread.is_alive()
        client.close(lost=True)
    assert len(wire) == 12 and wire == wire[:3] * 4 and len(set(wire)) == 3


@pytest.mark.parametrize("taken", [1, 1 << 63])
def test_a_client_that_has_taken_more_than_was_sent_is_named(taken: int) -> None:
    with site(1) as here:
        (client,) = at_ease(here)
        with here.turning() as at_server:
            client._hub.delivery.taken = taken
            cut(client)
            with receiving(client):
                until(lambda: at_server)
        assert isinstance(at_server[0], PeerError) and at_server[0].rank == 1
        assert f"client 1 cannot come back: it confirms {taken} frames, expected 0 to 0" in str(at_server[0])


def test_a_client_that_lacks_what_is_not_kept_any_more_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "KEPT_BYTES", 2000)
    with site(1) as here:
        (client,) = at_ease(here)
        for _ in range(5):
            here.server.send(ONE, bytes(1000))
        assert client._hub.stream is not None
        client._miss(client._hub, client._hub.stream)  # before it has read any of it
        with here.turning() as at_server, receiving(client):
            until(lambda: at_server)
        assert "client 1 cannot come back: it lacks" in str(at_server[0])


def test_a_client_comes_back_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_MOST_RETURNS", 3)
    with site(1) as here:
        (client,) = at_ease(here)
        with here.turning(), receiving(client) as at_client:
            for count in range(1, 4):
                cut(client)
                until(lambda count=count: here.server._by_rank[1].returns == count and client._hub.stream is not None)
            cut(client)
            until(lambda: at_client)
        assert "does not take this client back" in str(at_client[0])


def test_a_client_that_joins_and_hangs_up_again_and_again_does_not_fill_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_MOST_RETURNS", 3)
    with site(2) as here, here.turning():
        answers = []
        for _ in range(6):
            answers.append(answer_to(here, Introduction(1), rank=1))
            until(lambda: here.server._by_rank[1] in here.server._away)
        assert answers == [Admission.WELCOME] * 4 + [Admission.TAKEN] * 2
        assert len(here.said) == 2 * 4


@pytest.mark.parametrize("word", [b"", b"\x02", b"\x00\x00", b"\x01x"])
def test_a_control_frame_that_says_nothing_known_is_refused(word: bytes) -> None:
    with site(1) as here:
        (client,) = at_ease(here)
        assert client._hub.stream is not None
        client._hub.stream.put_frame(delivery.CONTROL_RANK, word)
        with pytest.raises(PeerError, match="an unknown control frame"):
            here.server.receive(LIMIT_S)


def test_a_false_confirmation_is_refused() -> None:
    with site(1) as here:
        (client,) = at_ease(here)
        assert client._hub.stream is not None
        client._hub.stream.put_frame(0, b"x", 5)
        with pytest.raises(PeerError, match="it confirms 5 frames, expected 0 to 0"):
            here.server.receive(LIMIT_S)


def test_connections_are_not_silent_for_long() -> None:
    with site(1, silence_s=0.15) as here:
        with here.turning():
            client = here.join(1, reconnect_s=LIMIT_S, silence_s=0.15)
        stream, place = client._hub.stream, here.server._by_rank[1]
        assert stream is not None and place.stream is not None
        before = stream.moved_bytes, place.stream.moved_bytes
        with here.turning() as at_server:
            assert client.receive(0.5) is None
        assert stream.moved_bytes > before[0] and place.stream.moved_bytes > before[1]
        assert at_server == [] and place.delivery.taken == client._hub.delivery.taken == 0


# The door stays as narrow


@pytest.mark.parametrize("first", [b"", Introduction(1).encode()[:3]], ids=["silent", "began"])
def test_a_flood_does_not_keep_a_client_from_coming_back(first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[str] = []
    monkeypatch.setattr(door, "MAX_GUESTS", 8)
    monkeypatch.setattr(StrangerLog, "dropped", lambda _, name, why: dropped.append(f"{name}: {why}"))
    with site(1, admission_s=LIMIT_S) as here, contextlib.ExitStack() as stack:
        (client,) = at_ease(here)
        with here.turning() as at_server:
            for _ in range(40):
                stack.enter_context(knocking(here, "127.0.0.2", first))
            until(lambda: len(dropped) == 32)
            assert all(len(queue) <= 8 for queue in here.server._queues)
            cut(client)
            client.send(SERVER, b"back")
            with receiving(client):
                until(lambda: at_server)
            assert at_server == [(ONE, b"back")]
            assert all(len(queue) <= 8 for queue in here.server._queues)


def test_strangers_do_not_get_in_while_a_client_is_away() -> None:
    with site(1, admission_s=0.3) as here:
        (client,) = at_ease(here)
        with here.turning() as at_server:
            cut(client)
            until(lambda: here.server._away)
            with here.raw() as stranger:
                stranger.sendall(Introduction(1).encode())  # in clear, where there are certificates
                end_of(stranger)
            with here.raw() as stranger:
                end_of(stranger)  # says nothing, and is dropped
            assert here.server._by_rank[1].returns == 0 and at_server == []


# Older ends


def test_an_older_client_hears_that_it_is_older() -> None:
    with site(1, keys=False) as here, here.turning(), here.raw() as older:
        older.sendall(b"FLsj" + bytes([6]) + b"\x01\x00")
        said = end_of(older)
    assert said[:4] == b"FLsj" and said[5] == Admission.OTHER_VERSION
    assert "a client speaks version 6 of the messages, this server 9: install the same" in here.warned[0]


def test_an_older_server_is_known_by_its_short_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as older:

        def serve() -> None:
            connection, _ = older.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"FLsj" + bytes([6, 3]) + bytes(4))
                end_of(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(PeerError, match="the server does not speak version 9"):
            Route(Address(*older.getsockname()), 1, None).attempt(time.monotonic() + LIMIT_S)
        thread.join()


def test_the_session_is_shown_nowhere() -> None:
    secret = bytes(range(16))
    shown = repr(Introduction(1, secret)) + repr(Welcome(Admission.WELCOME, 1, 2, secret))
    assert repr(secret)[2:-1] not in shown and secret.hex() not in shown
