"""What two ends remember of their connection: each frame once and in order, whatever is cut."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.net.tcp import delivery as module
from fastlloyd.net.tcp.delivery import Delivery


class End:
    """A session with what it has put, what the other end will find, and what it took."""

    def __init__(self) -> None:
        self.delivery = Delivery()
        self.put: list[bytes] = []
        self.took: list[bytes] = []
        self.wire: deque[tuple[int, bytes]] = deque()

    def send(self) -> None:
        if found := self.delivery.next():
            self.wire.append((self.delivery.confirmation(), found[1]))

    def deliver(self, other: End) -> None:
        if self.wire:
            taken, frame = self.wire.popleft()
            other.delivery.confirm(taken)
            other.delivery.take(len(frame))
            other.took.append(frame)


def cut(one: End, two: End) -> None:
    """Lose what is under way, and go on."""
    one.wire.clear()
    two.wire.clear()
    one.delivery.rewind(two.delivery.confirmation())
    two.delivery.rewind(one.delivery.confirmation())


@given(st.lists(st.tuples(st.sampled_from(["put", "send", "send", "deliver", "deliver", "cut"]), st.booleans())))
def test_each_frame_is_taken_once_and_in_order(steps: list[tuple[str, bool]]) -> None:
    ends = (End(), End())
    for step, swapped in steps:
        one, two = ends[::-1] if swapped else ends
        if step == "put":
            one.put.append(bytes([len(one.put) % 256, swapped]))
            one.delivery.put(0, one.put[-1])
        elif step == "send":
            one.send()
        elif step == "deliver":
            one.deliver(two)
        else:
            cut(one, two)
        assert two.took == one.put[: len(two.took)] and one.took == two.put[: len(one.took)]
    cut(*ends)
    for one, two in (ends, ends[::-1]):
        for _ in one.put:
            one.send()
            one.deliver(two)
        assert two.took == one.put and two.delivery.taken == len(one.put)
        assert one.delivery.waiting_bytes == 0


def sent(count: int) -> Delivery:
    delivery = Delivery()
    for i in range(count):
        delivery.put(0, bytes([i]))
        assert delivery.next() == (0, bytes([i]))
    return delivery


@pytest.mark.parametrize("count", [6, 1 << 63])
def test_more_than_was_sent_cannot_be_confirmed(count: int) -> None:
    for step in (Delivery.confirm, Delivery.rewind):
        with pytest.raises(ValueError, match=f"it confirms {count} frames, expected 0 to 5"):
            step(sent(5), count)


def test_what_was_put_but_not_sent_cannot_be_confirmed() -> None:
    delivery = sent(2)
    delivery.put(0, b"waits")
    with pytest.raises(ValueError, match="confirms 3 frames, expected 0 to 2"):
        delivery.confirm(3)


def test_a_confirmation_is_not_taken_back() -> None:
    delivery = sent(5)
    delivery.confirm(3)
    with pytest.raises(ValueError, match="confirms 2 frames, expected 3 to 5"):
        delivery.rewind(2)
    delivery.rewind(3)
    assert [delivery.next(), delivery.next(), delivery.next()] == [(0, b"\x03"), (0, b"\x04"), None]


def test_whoever_never_confirms_costs_bounded_memory_and_cannot_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 10 * (1000 + module.FRAME_COST))
    delivery = Delivery()
    for _ in range(100):
        delivery.put(0, bytes(1000))
        delivery.next()
        assert len(delivery._sent) <= 10
    delivery.confirm(40)  # of those that are kept no more
    with pytest.raises(ValueError, match="it lacks 50 frames that are not kept any more"):
        delivery.rewind(40)
    delivery.rewind(90)
    assert sum(delivery.next() is not None for _ in range(20)) == 10


def test_one_frame_is_kept_however_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 100)
    delivery = Delivery()
    delivery.put(0, bytes(5000))
    delivery.next()
    delivery.rewind(0)
    assert delivery.waiting_bytes == 5000 + module.FRAME_COST and delivery.next() == (0, bytes(5000))


def test_many_connections_share_what_is_kept_and_one_that_cannot_come_back_keeps_nothing() -> None:
    assert module.most_kept(1, 30.0) is module.most_kept(4, 30.0) is None
    for clients in (5, 1000):
        share = module.most_kept(clients, 30.0)
        assert share is not None and clients * share <= module.ALL_KEPT_BYTES
    assert module.most_kept(1, 0.0) == module.most_kept(1000, 0.0) == 0
    for most, kept in ((0, 0), (2000, 1), (100, 0)):
        delivery = Delivery(most)
        for _ in range(3):
            delivery.put(0, bytes(1000))
            delivery.next()
        assert len(delivery._sent) == kept
        delivery.confirm(3)
        delivery.rewind(3)
        assert delivery.next() is None


def test_a_confirmation_is_due_after_a_number_of_bytes() -> None:
    delivery = Delivery()
    while not delivery.due:
        delivery.take(1000)
    assert 60 < delivery.taken < 70
    assert delivery.confirmation() == delivery.taken and not delivery.due
