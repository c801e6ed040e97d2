"""Which guest is dropped when a queue at the open port is full, and whose turn it is."""

from __future__ import annotations

import pytest

from fastlloyd.net.tcp.address import source_of
from fastlloyd.net.tcp.door import GuestQueue


def filled(most: int, guests: str) -> GuestQueue[str]:
    """Return a queue with guests that are called after their addresses, as in "a1 b1 a2"."""
    queue: GuestQueue[str] = GuestQueue(most)
    for guest in guests.split():
        assert queue.add(guest, guest[0]) is None
    return queue


def test_the_fullest_address_loses_its_oldest_guest() -> None:
    queue = filled(4, "b1 a1 a2 a3")
    assert queue.add("a4", "a") == "a1"
    assert queue.add("b2", "b") == "a2"
    assert list(queue) == ["b1", "a3", "a4", "b2"]
    assert (len(queue), "a1" in queue, "b2" in queue) == (4, False, True)


def test_of_addresses_with_one_guest_each_the_oldest_goes() -> None:
    assert filled(3, "a1 b1 c1").add("d1", "d") == "a1"


def test_a_flood_leaves_others_alone_however_long_it_lasts() -> None:
    queue = filled(8, "b1 c1 c2")
    for number in range(1000):
        queue.add(f"a{number}", "a")
    assert [guest for guest in queue if guest[0] != "a"] == ["b1", "c1", "c2"]


def test_addresses_take_turns_and_the_newest_of_each_is_first() -> None:
    queue = filled(8, "a1 a2 a3 b1 c1 c2")
    assert [queue.take() for _ in range(6)] == ["a3", "b1", "c2", "a2", "c1", "a1"]
    assert len(queue) == 0


def test_who_has_gone_counts_no_longer() -> None:
    queue = filled(3, "a1 a2 b1")
    queue.remove("a1")
    queue.add("b2", "b")
    assert queue.add("b3", "b") == "b1"


@pytest.mark.parametrize(
    "host,source",
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_ipv6_network_is_one_address(host: str, source: str) -> None:
    assert source_of(host) == source
