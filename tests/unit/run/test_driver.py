"""The driver: early and late messages, deadlines, gone peers, the ledger before the message."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.crypto.link.identity import make_identity
from fastlloyd.errors import ConfigError, InternalError, Interrupted, PeerError, PeerGone, PeerTimeout
from fastlloyd.lifecycle.hello import Hello, Ready
from fastlloyd.net.link.sums import Order
from fastlloyd.net.meter import Meter
from fastlloyd.party.effects import Gather, Identify, Publish, Receive, Record, Save, Send
from fastlloyd.privacy.ledger import Ledger, Release
from fastlloyd.run.config import RunConfig
from fastlloyd.run.driver import Deadlines, Driver
from fastlloyd.run.inbox import Inbox
from fastlloyd.run.inputs import PublicInputs
from fastlloyd.run.machine import Host, _Disk
from fastlloyd.run.session import Session
from fastlloyd.run.simulation import Simulation
from fastlloyd.wire.header import SERVER, SETUP_ROUND, Header, PartyId, clients

ONE, TWO, THREE = clients(3)


@dataclass
class FakeLinks:
    """Gives out prepared messages; then silence, at once."""

    arriving: deque[Any] = field(default_factory=deque)
    sent: list[tuple[PartyId, bytes, int]] = field(default_factory=list)
    refuses: set[PartyId] = field(default_factory=set)
    orders: list[Order] = field(default_factory=list)
    finished: set[PartyId] = field(default_factory=set)

    def send(self, peer: PartyId, message: bytes, *, payload_bytes: int, round: int) -> None:
        if peer in self.refuses:
            raise PeerGone(f"{peer} is gone", rank=peer.rank)
        self.sent.append((peer, message, payload_bytes))

    def flush(self) -> None:
        pass

    def add_up(self, order: Order) -> None:
        self.orders.append(order)

    def receive(self, timeout_s: float) -> tuple[PartyId, bytes] | None:
        if not self.arriving:
            return None
        item = self.arriving.popleft()
        if isinstance(item, Exception):
            raise item
        return item


def message(sender: PartyId, round_: int, kind: int = Ready.TYPE, body: bytes = b"{}") -> tuple[PartyId, bytes]:
    return sender, Header(kind, round_).encode() + body


@dataclass
class Saving:
    save: Callable[[str, bytes], None]


def driver(links: FakeLinks, me: PartyId = SERVER, ledger: Ledger | None = None, **more: Any) -> Driver:
    deadlines = Deadlines(setup_s=0.0, round_s=0.0)
    return Driver(me, links, Meter(), deadlines, Host(session(me, ledger or Ledger(None)), **more))


def session(me: PartyId, ledger: Ledger) -> Session:
    inputs = PublicInputs(public=None, bounds=None, caps=(), dataset=None, splits=None)
    identity = make_identity(str(me), me.rank)
    config = RunConfig()
    return Session(
        me=me, everybody=clients(3), config=config, inputs=inputs, identity=identity, run_id=bytes(16), ledger=ledger
    )


def receive(sender: PartyId, round_: int):
    return (yield Receive(sender, Ready, round_))


def gather(at_least: int, round_: int = 5, late: frozenset[PartyId] = frozenset()):
    return (yield Gather(clients(3), Ready, round_, at_least, late=late))


def test_messages_that_came_early_are_kept_and_closed_rounds_dropped() -> None:
    links = FakeLinks(deque([message(ONE, 7), message(TWO, 3), message(TWO, 6), message(ONE, 8)]))
    one = driver(links)
    one.drive(receive(TWO, 6))
    one.drive(receive(ONE, 7))
    one.drive(receive(ONE, 8))


def test_a_message_of_round_0_that_came_during_the_set_up_is_kept() -> None:
    links = FakeLinks(deque([message(ONE, 0), message(TWO, SETUP_ROUND)]))
    one = driver(links)
    one.drive(receive(TWO, SETUP_ROUND))
    one.drive(receive(ONE, 0))


@pytest.mark.parametrize(
    "wrong,text",
    [
        (message(ONE, 6), "of round 6, expected Ready of round 5"),
        (message(ONE, 5, Hello.TYPE), "message type 8"),
        (message(ONE, 5, body=b"{"), "malformed Ready"),
        ((ONE, b"abc"), "malformed message"),
        ((ONE, b"\x0c\x0a" + bytes(6)), "version 9, got 10"),
    ],
)
def test_what_does_not_belong_here_is_the_senders_fault(wrong: tuple[PartyId, bytes], text: str) -> None:
    with pytest.raises(PeerError, match=text) as caught:
        driver(FakeLinks(deque([wrong]))).drive(receive(ONE, 5))
    assert caught.value.rank == 1
    assert caught.value.exit_code == 3


def test_silence_names_the_silent_one_and_the_flag_that_helps() -> None:
    with pytest.raises(PeerTimeout, match="client 2 sent no Ready within 0 s.*--deadline") as caught:
        driver(FakeLinks()).drive(receive(TWO, 1))
    assert caught.value.rank == 2


def test_a_late_client_blames_no_server_that_ended_the_run_without_it() -> None:
    gone = PeerGone("the server is gone: its connection ended", rank=0)
    with pytest.raises(PeerGone, match="the server is gone") as caught:
        driver(FakeLinks(deque([gone])), ONE).drive(receive(SERVER, 5))
    assert caught.value.rank == 0
    late = "client 1 was late, and the others have ended the run without it"
    with pytest.raises(PeerGone, match=late) as caught:
        driver(FakeLinks(deque([gone]), finished={SERVER}), ONE).drive(receive(SERVER, 5))
    assert caught.value.rank == 1

    class Unread(FakeLinks):
        def receive(self, timeout_s: float) -> tuple[PartyId, bytes] | None:
            self.finished.add(SERVER)
            return super().receive(timeout_s)

    with pytest.raises(PeerGone, match=late):
        driver(Unread(refuses={SERVER}), ONE).drive(part for part in [Send((SERVER,), Ready(), 5)])


@pytest.mark.parametrize("waits", [receive(ONE, SETUP_ROUND), gather(3, SETUP_ROUND)])
def test_silence_before_round_0_names_the_deadline_of_the_set_up(waits: Any) -> None:
    with pytest.raises(PeerTimeout, match=r"\(--setup-deadline") as caught:
        driver(FakeLinks()).drive(waits)
    assert "--deadline" not in str(caught.value) and "--min-clients" not in str(caught.value)


def test_a_gather_goes_on_without_the_slow_one() -> None:
    links = FakeLinks(deque([message(ONE, 5), message(THREE, 5)]))
    assert set(driver(links).drive(gather(2))) == {ONE, THREE}


def test_a_gather_below_the_minimum_names_the_first_missing_one() -> None:
    links = FakeLinks(deque([message(ONE, 5), message(THREE, 5)]))
    with pytest.raises(PeerTimeout, match="client 2 sent no Ready.*2 of 3.*at least 3") as caught:
        driver(links).drive(gather(3))
    assert caught.value.rank == 2


def test_a_late_client_is_not_waited_for_but_taken_in_when_there() -> None:
    links = FakeLinks(deque([message(TWO, 4), message(ONE, 5), message(THREE, 5), message(TWO, 5)]))
    one = driver(links)
    assert set(one.drive(gather(2, late=frozenset({TWO})))) == {ONE, THREE}
    links = FakeLinks(deque([message(TWO, 5), message(ONE, 5), message(THREE, 5)]))
    assert set(driver(links).drive(gather(2, late=frozenset({TWO})))) == {ONE, TWO, THREE}


def test_a_gone_client_is_left_out_if_enough_remain_and_named_if_not() -> None:
    gone = PeerGone("client 2 is gone", rank=2)
    links = FakeLinks(deque([gone, message(ONE, 5), message(THREE, 5)]))
    assert set(driver(links).drive(gather(2))) == {ONE, THREE}
    with pytest.raises(PeerGone) as caught:
        driver(FakeLinks(deque([gone]))).drive(gather(3))
    assert caught.value.rank == 2


def test_a_client_fails_when_the_server_is_gone() -> None:
    links = FakeLinks(deque([PeerGone("the server is gone", rank=0)]))
    with pytest.raises(PeerGone, match="server"):
        driver(links, ONE).drive(receive(SERVER, 1))


def test_the_server_sends_to_the_others_when_one_is_gone() -> None:
    links = FakeLinks(refuses={TWO})

    def party():
        yield Send(clients(3), Ready(), 1)
        yield Send(clients(3), Ready(), 2)

    driver(links).drive(party())
    assert [peer for peer, _, _ in links.sent] == [ONE, THREE, ONE, THREE]


def test_releases_are_recorded_with_run_and_data_before_what_follows() -> None:
    ledger = Ledger(None)
    release = Release(
        round=0, name="counts", mechanism="gaussian", sensitivity=1.0, norm="l2", noise_scale=2.0, unit="1"
    )
    links = FakeLinks()
    seen: list[int] = []

    def party():
        yield Identify("d")
        yield Record((release,))
        seen.append(len(ledger.releases))
        yield Record((release,))  # as on resume
        yield Send((ONE,), Ready(), 0)

    driver(links, ledger=ledger).drive(party())
    assert seen == [1]
    assert [(r.run, r.data) for r in ledger.releases] == [("00" * 16, "d")]


def release(round_: int) -> Release:
    return Release(round=round_, name="counts", mechanism="gaussian", sensitivity=1.0, norm="l2", noise_scale=2.0)


def test_no_message_leaves_before_the_disk_has_the_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    asked = threading.Event()
    settle = Ledger.settle

    def slowly(ledger: Ledger) -> None:
        # The party goes on meanwhile, up to its message.
        assert asked.wait(10)
        settle(ledger)
        happened.append(f"disk, {len(links.sent)} sent")

    monkeypatch.setattr(Ledger, "settle", slowly)
    links = FakeLinks()

    def party():
        for t in range(3):
            asked.clear()
            yield Record((release(t),))
            happened.append("went on")
            asked.set()
            yield Send((ONE,), Ready(), t)
        yield Record((release(3),))  # the end waits for it as well

    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        driver(links, ledger=ledger).drive(party())
        assert len(ledger.releases) == 4
    assert happened == [
        *(word for t in range(3) for word in ("went on", f"disk, {t} sent")),
        "disk, 3 sent",
    ]
    assert not [thread for thread in threading.enumerate() if thread.name == "ledger"]


def test_a_disk_that_refuses_keeps_the_message_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(ledger: Ledger) -> None:
        raise ConfigError("cannot write the ledger")

    monkeypatch.setattr(Ledger, "settle", refuse)
    links = FakeLinks()

    def party():
        yield Record((release(0),))
        yield Send((ONE,), Ready(), 0)

    with Ledger(tmp_path / "ledger.jsonl") as ledger, pytest.raises(ConfigError, match="cannot write the ledger"):
        driver(links, ledger=ledger).drive(party())
    assert links.sent == []


def test_nothing_is_saved_for_a_resume_that_the_ledger_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    saved: list[str] = []

    def party():
        yield Record((release(0),))
        yield Save("reply-0", b"noisy sums")
        yield Send((ONE,), Ready(), 0)

    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        monkeypatch.setattr("os.fsync", refuse)
        with pytest.raises(ConfigError, match="the ledger"):
            driver(FakeLinks(), ledger=ledger, state=Saving(lambda name, _: saved.append(name))).drive(party())
        assert saved == [] and len(ledger.releases) == 0


def test_a_signal_while_waiting_for_the_disk_hangs_nobody(tmp_path: Path) -> None:
    """The exception strikes after the ring was taken: what was done must not be forgotten."""

    class Swallowing:
        def __init__(self) -> None:
            self.struck = 0

        def acquire(self, timeout: float) -> None:
            rings.acquire(timeout=timeout)
            self.struck += 1
            raise Interrupted("told to stop by SIGTERM")

        def locked(self) -> bool:
            return rings.locked()

        def release(self) -> None:
            rings.release()

    def party():
        yield Record((release(0),))
        yield Send((ONE,), Ready(), 0)

    links = FakeLinks()
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        one = driver(links, ledger=ledger)
        rings, one._host._disk._rings = one._host._disk._rings, Swallowing()
        with pytest.raises(Interrupted):
            one.drive(party())
        assert one._host._disk._rings.struck >= 1
        assert links.sent == [] and len(ledger.releases) == 1 and ledger.settled


def test_saving_and_publishing() -> None:
    saved: list[tuple[str, bytes]] = []
    published: list[tuple[str, dict[str, Any]]] = []

    def party():
        yield Save("a", b"1")
        yield Publish("round", {"round": 0})

    one = driver(
        FakeLinks(),
        state=Saving(lambda name, content: saved.append((name, content))),
        publish=lambda event, facts: published.append((event, facts)),
    )
    one.drive(party())
    driver(FakeLinks()).drive(party())  # without a state directory nothing is kept
    assert saved == [("a", b"1")]
    assert published[0][0] == "round"
    assert published[0][1]["seconds"] >= 0


def test_a_flood_of_early_messages_is_refused() -> None:
    links = FakeLinks(deque(message(ONE, 9) for _ in range(5000)))
    with pytest.raises(PeerError, match="ahead of time"):
        driver(links).drive(receive(TWO, 5))


def test_an_unknown_effect_is_a_bug() -> None:
    def party():
        yield "nonsense"

    with pytest.raises(InternalError, match="no effect"):
        driver(FakeLinks()).drive(party())


def test_a_client_that_loses_the_server_waits_for_no_other_client():
    lost = PeerGone("the server is gone", rank=0)
    with pytest.raises(PeerGone, match="the server is gone"):
        driver(FakeLinks(deque([lost])), me=ONE).drive(receive(TWO, 5))


def test_a_client_cannot_send_to_a_server_that_is_gone() -> None:
    def party():
        yield Send((SERVER,), Ready(), 1)

    with pytest.raises(PeerGone, match="the server is gone"):
        driver(FakeLinks(refuses={SERVER}), ONE).drive(party())


def test_a_message_of_a_client_that_is_gone_is_not_waited_for() -> None:
    links = FakeLinks(deque([PeerGone("client 2 is gone", rank=2), message(ONE, 1)]))
    with pytest.raises(PeerGone, match="client 2 is gone") as caught:
        driver(links).drive(receive(TWO, 1))
    assert caught.value.rank == 2
    assert list(links.arriving) == [message(ONE, 1)]


def test_what_a_client_sent_before_it_was_lost_counts() -> None:
    links = FakeLinks(deque([message(ONE, 5), message(TWO, 5), message(THREE, 5)]), refuses={TWO})
    one = driver(links)

    def send_and_gather():
        yield Send((TWO,), Ready(), 4)
        return (yield from gather(2))

    assert set(one.drive(send_and_gather())) == {ONE, TWO, THREE}


def test_a_gather_looks_at_each_message_once_however_many_senders_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    take = Inbox.take
    monkeypatch.setattr(
        Inbox, "take", lambda self, sender, effect: (looks.append(sender), take(self, sender, effect))[1]
    )
    everybody = clients(300)

    def gather_all():
        return (yield Gather(everybody, Ready, 5, len(everybody)))

    links = FakeLinks(deque(message(sender, 5) for sender in everybody))
    assert list(driver(links).drive(gather_all())) == list(everybody)
    assert len(looks) == 2 * len(everybody)


def test_a_wait_uses_the_time_that_is_left() -> None:
    asked: list[float] = []

    class Patient(FakeLinks):
        def receive(self, timeout_s: float) -> tuple[PartyId, bytes] | None:
            asked.append(timeout_s)
            return super().receive(timeout_s)

    links = Patient(deque([message(ONE, 1), message(TWO, 1)]))
    host = Host(session(SERVER, Ledger(None)))
    one = Driver(SERVER, links, Meter(), Deadlines(setup_s=0.0, round_s=1e6), host)
    one.drive(receive(TWO, 1))
    assert len(asked) == 2 and all(9e5 < seconds <= 1e6 for seconds in asked)

    def receive_after_two_waits():
        return (yield Receive(TWO, Ready, 2, waits=2))

    links.arriving.append(message(TWO, 2))
    one.drive(receive_after_two_waits())
    assert 1.9e6 < asked[-1] <= 2e6


def test_the_thread_that_waits_for_the_disk_has_ended_once_it_is_closed() -> None:
    joined: list[str] = []

    class Recording(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            super().join(timeout)
            joined.append(self.name)

    worked: list[int] = []
    disk = _Disk(lambda: worked.append(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "Thread", Recording)
        disk.start()
    disk.close()
    assert (worked, joined) == ([1], ["ledger"])
    disk.close()


def test_a_party_that_loses_a_peer_cleans_up_before_the_driver_goes_on() -> None:
    done: list[str] = []

    def party():
        try:
            yield Receive(TWO, Ready, 1)
        finally:
            done.append("erased")

    with pytest.raises(PeerTimeout):
        driver(FakeLinks()).drive(party())
    assert done == ["erased"]


def test_a_party_may_do_without_an_answer() -> None:
    def party():
        try:
            yield Receive(TWO, Ready, 1)
        except PeerTimeout as error:
            yield Send((ONE,), Ready(), 2)
            return error.rank

    links = FakeLinks()
    assert driver(links).drive(party()) == 2
    assert [peer for peer, _, _ in links.sent] == [ONE]


def test_nobody_is_left_suspended_when_one_party_of_a_simulation_fails() -> None:
    closed: list[str] = []

    def waits():
        try:
            yield Receive(SERVER, Ready, 1)
        finally:
            closed.append("closed")

    def fails():
        yield Publish("round")
        raise ConfigError("no")

    with pytest.raises(ConfigError):
        Simulation({ONE: waits(), TWO: fails()}).run()
    assert closed == ["closed"]


def test_a_signal_that_lasts_longer_than_a_wait_for_the_disk_hangs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    # The wait of Python 3.11's SimpleQueue has no end where a signal lasts until its timeout is over.
    monkeypatch.setattr("fastlloyd.run.machine._LOST_RING_S", 0.01)
    disk = _Disk(lambda: None)
    disk._ordered = 1  # whose ring a signal has swallowed
    signals: list[int] = []

    def handler(number: int, _: object) -> None:
        signals.append(number)
        if len(signals) > 1:
            raise TimeoutError("the wait did not end")
        signal.setitimer(signal.ITIMER_REAL, 2.0)
        time.sleep(0.02)
        disk._done = 1

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        disk.wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert signals == [signal.SIGALRM]
