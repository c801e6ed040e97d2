"""Pauses that end when something arrives, and that stay pauses where nothing rings."""

import os
import select
import time

import pytest

from fastlloyd.net.mpi.transport import Bell, epoll_descriptors

LONG_S = 0.000_5


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def least_pause(bell, longest_s=1.0, times=50):
    """Return the shortest of several pauses: the time of one when the core is free."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        bell.pause(longest_s)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def test_an_epoll_descriptor_is_found_and_rings_for_what_it_watches(pipe):
    before = epoll_descriptors()
    with select.epoll() as watching:
        watching.register(pipe[0], select.EPOLLIN)
        (found,) = set(epoll_descriptors()) - set(before)
        assert found == watching.fileno()
        assert select.select([found], (), (), 0)[0] == []
        os.write(pipe[1], b"x")
        assert select.select([found], (), (), 0)[0] == [found]
    assert epoll_descriptors() == before


def test_without_anything_to_listen_to_pauses_grow_and_start_anew():
    bell = Bell(())
    pauses = [least_pause(bell, times=1) for _ in range(30)]
    assert sum(pauses[-5:]) >= 5 * LONG_S
    bell.arrived(after_pause=True)
    assert least_pause(bell, longest_s=0.000_001) < LONG_S


def test_a_pause_is_never_longer_than_it_may_be(pipe):
    for bell in (Bell(()), Bell((pipe[0],))):
        for _ in range(30):
            bell.pause(LONG_S)
        assert least_pause(bell, longest_s=0.0) < LONG_S


def test_a_ring_in_vain_does_not_make_it_ask_all_the_time(pipe):
    os.write(pipe[1], b"x")
    bell = Bell((pipe[0],))
    for _ in range(40):
        bell.pause(1.0)
    start = time.perf_counter()
    for _ in range(20):
        bell.pause(1.0)
    # Every other pause is a plain one, of full length by now.
    assert time.perf_counter() - start >= 10 * LONG_S


def test_a_trusted_bell_pauses_as_long_as_can_be_at_once(pipe):
    bell = Bell((pipe[0],))
    os.write(pipe[1], b"x")
    bell.pause(1.0)
    bell.arrived(after_pause=True)
    os.read(pipe[0], 1)
    assert least_pause(bell, times=1) >= LONG_S
    bell.arrived(after_pause=True)  # this one came without a ring
    assert least_pause(bell, longest_s=1.0, times=1) > 0.0
    assert bell._trusted is False


def test_a_closed_descriptor_leaves_plain_pauses(pipe, monkeypatch):
    own = os.dup(pipe[0])
    bell = Bell((own,))
    os.close(own)
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    for _ in range(20):
        bell.pause(1.0)
    assert len(slept) == 20 and slept[-1] == LONG_S
