"""Frames over MPI: raw bytes, non-blocking and point to point, on a separate communicator; all ranks exit together.

The only module that imports mpi4py, and only when a transport is made. A peer's bytes are never
unpickled. Every wait has a deadline: frames are matched with Improbe and received without blocking, so that even a peer
that stops in the middle of a large frame cannot block this rank. A watchdog thread covers the calls of MPI without a
deadline (MPI_Init, MPI_Comm_dup, MPI_Finalize).

Between two looks a rank sleeps instead of polling all the time: MPI's libraries wait for their sockets through epoll
descriptors, a process can wait for these, and it wakes when bytes arrive. This is only an optimisation: every sleep has
a limit, and without descriptors it is a plain pause.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn, Self

from fastlloyd.errors import EXIT_PEER, ConfigError, InternalError, PeerError, PeerGone, PeerTimeout
from fastlloyd.net.cores import cores
from fastlloyd.net.mpi.launcher import (
    HOW_TO_INSTALL,
    TransportName,
    check_library,
    check_world,
    detect,
    launcher_ports,
    local_transport_env,
)
from fastlloyd.net.sockets import (
    SocketCount,
    WireBytes,
    count,
    count_both_ends,
    interface_bytes,
    own_sockets,
    seen_headers,
    socket_names,
)
from fastlloyd.net.transport import Transport
from fastlloyd.wire.header import PartyId

if TYPE_CHECKING:
    from mpi4py import MPI
import contextlib
import select
from pathlib import Path

_TAG = 0
# How long to poll before sleeping: with a core for each rank, and with shared cores.
_EAGER_S = 0.000_2
_EAGER_SHARED_S = 0.000_05
# The next poll finds a frame that arrives during one.
_POLLS = 2
# With more than this in progress, no further frames of a rank are matched.
_ARRIVING_BYTES = 1 << 22
_FLUSH_PAUSE_S = 0.000_5
# Bytes that MPI adds to a frame, measured: 38 by Open MPI, 60 by MPICH.
_FRAME_HEADER_BYTES = 50
_MOST_LEFT = 0.75
# Segments of one end of a connection when it closes.
_LAST_SEGMENTS = 2

_SET_TIMER_SLACK = 29
_TIMER_SLACK_NS = 1000
_EPOLL = "anon_inode:[eventpoll]"
# The limit of select().
_MOST_DESCRIPTORS = 1024
_FIRST_PAUSE_S = 0.000_02
_LONGEST_PAUSE_S = 0.000_5
_PAUSE_GROWTH = 1.25


class Bell:
    """Pauses for one thread, of increasing length, that end early when a descriptor becomes readable (the bell rings).

    Parameters
    ----------
    descriptors : iterable of int
        Become readable when something arrives; may be empty.

    Notes
    -----
    A descriptor may be readable without a message for this rank, or stay silent although there is one (shared memory
    rings no bell). So after a ring without a message the next pause is a plain one. Sleep for the longest pause only if
    the bell rang for the last message; otherwise poll more often.
    """

    def __init__(self, descriptors: tuple[int, ...]) -> None:
        self._descriptors = list(descriptors)
        self._pause_s = _FIRST_PAUSE_S
        self._rang = False
        self._trusted = False
        sharpen_timer()

    def pause(self, longest_s: float) -> None:
        """Sleep until the bell rings, for the current pause and `longest_s` at most."""
        rang_in_vain = self._rang
        self._rang = False
        if self._descriptors and not rang_in_vain:
            length = _LONGEST_PAUSE_S if self._trusted else self._pause_s
            try:
                self._rang = bool(select.select(self._descriptors, (), (), min(length, longest_s))[0])
            except (OSError, ValueError):  # one of them was closed
                self._descriptors = []
                time.sleep(min(self._pause_s, longest_s))
        else:
            time.sleep(min(self._pause_s, longest_s))
        self._pause_s = min(self._pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)

    def arrived(self, *, after_pause: bool) -> None:
        """Note that a message came, and whether after a pause: pauses are short again."""
        if after_pause:
            self._trusted = self._rang
        self._rang = False
        self._pause_s = _FIRST_PAUSE_S


def epoll_descriptors() -> tuple[int, ...]:
    """Find this process's epoll descriptors; none without /proc."""
    found = []
    with contextlib.suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if int(entry.name) < _MOST_DESCRIPTORS and str(entry.readlink()) == _EPOLL:
                    found.append(int(entry.name))
    return tuple(sorted(found))


def sharpen_timer() -> None:
    """Make this thread's sleeps end on time, not up to 50 us later as is the default of Linux."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, ctypes.c_ulong(_TIMER_SLACK_NS), 0, 0, 0)


class MpiTransport(Transport):
    """The place of one rank in an MPI world: rank 0 is the server, ranks 1.. are the clients.

    One per process: MPI starts once. Only one thread may use it.

    Parameters
    ----------
    transport : {'shm', 'tcp'}
        'tcp' asks MPI for real TCP even on one host (see `launcher.local_transport_env`), 'shm' leaves the choice to
        MPI; `carrier` reports the outcome.
    init_deadline_s : float
        For MPI_Init and MPI_Comm_dup together; after it the process ends with exit code 3.
    close_deadline_s : float
        For the last frames in `close`, and again for MPI_Finalize.

    Raises
    ------
    ConfigError
        No MPI library, a foreign launcher, or a world of one process.
    """

    def __init__(
        self, *, transport: TransportName = "tcp", init_deadline_s: float = 60.0, close_deadline_s: float = 10.0
    ) -> None:
        launch = detect()
        if launch.vendor is None:
            check_world(launch, 1)
        os.environ.update(local_transport_env(transport, launch=launch))
        self._one_host = launch.on_one_host
        self._others = socket_names()
        self._moved_before = interface_bytes()[0]
        self._moved_bytes = 0
        self._mpi = mpi = _load()
        self._close_deadline_s = close_deadline_s
        self._closed = False
        check_library(launch, mpi.get_vendor()[0])
        where = "a rank" if launch.rank is None else f"rank {launch.rank}"
        with _Watchdog(f"{where}: MPI did not start within", init_deadline_s):
            _call_unlocked(mpi, "MPI_Init_thread", mpi.THREAD_FUNNELED)
            mpi.COMM_WORLD.Set_errhandler(mpi.ERRORS_RETURN)
            size, rank = mpi.COMM_WORLD.Get_size(), mpi.COMM_WORLD.Get_rank()
            if size == 1:
                _call_unlocked(mpi, "MPI_Finalize")
                check_world(launch, size)
            self._comm = mpi.COMM_WORLD.Dup()
            self._comm.Set_errhandler(mpi.ERRORS_RETURN)
        self._bell = Bell(epoll_descriptors())
        self._eager_s = _EAGER_S if _has_cores(launch.local_size) else _EAGER_SHARED_S
        self._status = mpi.Status()
        self.me = PartyId(rank)
        self.peers = tuple(PartyId(other) for other in range(size) if other != rank)
        self._sending: dict[int, deque[tuple[MPI.Request, bytes]]] = {p.rank: deque() for p in self.peers}
        self._arriving: dict[int, deque[tuple[MPI.Request, bytearray]]] = {p.rank: deque() for p in self.peers}
        self._arriving_bytes: dict[int, int] = dict.fromkeys(self._arriving, 0)
        self._full: set[int] = set()
        self._gone: set[int] = set()
        self._to_report: deque[int] = deque()
        self._abandoned: list[tuple[MPI.Request, bytes | bytearray]] = []

    @property
    def library(self) -> str:
        """Name and version of the MPI library."""
        name, version = self._mpi.get_vendor()
        return f"{name} {'.'.join(str(part) for part in version)}"

    def send(self, peer: PartyId, frame: bytes | bytearray | memoryview) -> None:
        """Start sending a private copy of the frame; it is kept until MPI is done with it."""
        self._require_open()
        copy = bytes(frame)
        self.check_send(peer, len(copy))
        if peer.rank in self._gone:
            raise PeerGone(f"{peer} is gone: MPI reported the end of its process", rank=peer.rank)
        try:
            request = self._comm.Isend([copy, len(copy), self._mpi.BYTE], dest=peer.rank, tag=_TAG)
            done = request.Test()
        except self._mpi.Exception as error:
            self._note_failure(error, peer.rank)
            raise PeerGone(f"{peer} is gone: MPI could not send to it", rank=peer.rank) from error
        self._moved_bytes += len(copy)
        if not done:
            self._sending[peer.rank].append((request, copy))

    def receive(self, timeout_s: float) -> tuple[PartyId, bytes] | None:
        """Return the next frame of any peer, or None after `timeout_s` seconds.

        Raises
        ------
        PeerGone
            MPI reported that a peer's process ended; once per peer.
        PeerError
            A peer sent a frame above `most_frame`.
        """
        self._require_open()
        started = time.monotonic()
        polls = 0
        paused = False
        while True:
            self._reap()
            found = self._poll()
            if found is not None:
                self._bell.arrived(after_pause=paused)
                return found
            if self._to_report:
                rank = self._to_report.popleft()
                raise PeerGone(f"{PartyId(rank)} is gone: MPI reported the end of its process", rank=rank)
            waited_s = time.monotonic() - started
            if waited_s >= timeout_s:
                return None
            polls += 1
            if waited_s < self._eager_s:
                # Yields the core to a rank that shares it.
                os.sched_yield()
            elif polls >= _POLLS:
                self._bell.pause(timeout_s - waited_s)
                polls, paused = 0, True

    def close(self, *, lost: bool = False) -> None:
        """Flush the last frames and finalise MPI; with `lost` do neither (the caller ends the process).

        Raises
        ------
        PeerTimeout
            A peer did not take its last frames in time; MPI is then not finalised, because that would hang.
        """
        if self._closed:
            return
        self._closed = True
        if lost or self._gone:
            return
        self._flush()
        with _Watchdog(f"{self.me}: MPI did not finalise within", self._close_deadline_s):
            # Over TCP, MPICH's MPI_Finalize does not wait, and a rank that sends to one that has left hangs.
            together = self._comm.Ibarrier()
            while not together.Test():
                time.sleep(_FLUSH_PAUSE_S)
            _call_unlocked(self._mpi, "MPI_Finalize")

    @property
    def carrier(self) -> str:
        """What carries the frames: 'tcp' if TCP connections of MPI have carried them, whatever was requested.

        Otherwise 'shm' if all ranks are on this host, and 'mpi' (perhaps a fabric) if not.
        """
        between, _ = self._connections()
        # The last frames may still be queued.
        if self._moved_bytes and between.sent + between.received >= _MOST_LEFT * self._moved_bytes:
            return "tcp"
        return "shm" if self._one_host else "mpi"

    def wire(self, ahead: Sequence[int] = ()) -> WireBytes | None:
        """Count the bytes that this rank has sent, and both directions of its traffic with MPI's launcher.

        Returns
        -------
        WireBytes or None
            None unless TCP carries the frames.
        """
        if self.carrier != "tcp":
            return None
        between, launcher = self._connections()
        headers = between.headers_sent
        if not between.local:
            moved = interface_bytes()[0] - self._moved_before
            headers = seen_headers(headers, between.spared_sent, between.sent, moved)
        # Each frame takes one segment of this rank: its own, or an acknowledgement. The barrier in `close` takes one
        # message of each rank for each doubling of their number.
        doublings = len(self.peers).bit_length()
        segments = 2 * len(ahead) + doublings + _LAST_SEGMENTS * len(self.peers)
        return WireBytes(
            stream_bytes=between.sent + sum(ahead) + _FRAME_HEADER_BYTES * (len(ahead) + doublings),
            tcp_ip_bytes=headers + between.header * segments,
            launcher_bytes=launcher.sent + launcher.received + launcher.headers_sent + launcher.headers_received,
        )

    def _connections(self) -> tuple[SocketCount, SocketCount]:
        """Count MPI's connections to other ranks, and those to its launcher."""
        between, launcher = SocketCount(), SocketCount()
        ports = launcher_ports()
        for connection in own_sockets(but=self._others):
            counted = count(connection)
            if counted is not None and counted.port in ports:
                launcher += count_both_ends(connection) or counted
            elif counted is not None:
                between += counted
        return between, launcher

    def abort(self, code: int) -> NoReturn:
        """Ask the launcher to kill every rank, including stopped ones: the last resort."""
        try:
            self._mpi.COMM_WORLD.Abort(code)
        finally:
            os._exit(code)

    def _poll(self) -> tuple[PartyId, bytes] | None:
        """Match all arrived frames; return the first complete one, in order per peer."""
        for rank, queue in self._arriving.items():
            if queue and (frame := self._finish(rank)) is not None:
                return PartyId(rank), frame
        while True:
            try:
                message = self._match()
            except self._mpi.Exception as error:
                self._note_failure(error)
                return None
            if message is None:
                return None
            rank = self._status.Get_source()
            self._accept(message, rank, self._status.Get_count(self._mpi.BYTE))
            if len(self._arriving[rank]) == 1 and (frame := self._finish(rank)) is not None:
                return PartyId(rank), frame

    def _match(self) -> MPI.Message | None:
        """Match the next announced frame, except of ranks that have much in progress already."""
        sources = [self._mpi.ANY_SOURCE] if not self._full else [r for r in self._arriving if r not in self._full]
        message: MPI.Message | None = None
        for source in sources:
            message = self._comm.Improbe(source, _TAG, self._status)
            if message is not None:
                break
        return message

    def _accept(self, message: MPI.Message, rank: int, size: int) -> None:
        """Start receiving a matched frame into a buffer of its size."""
        if size > self.most_frame:
            raise self.too_long(PartyId(rank), size)
        buffer = bytearray(size)
        try:
            request = message.Irecv([buffer, size, self._mpi.BYTE])
        except self._mpi.Exception as error:
            self._note_failure(error, rank)
            return
        self._arriving[rank].append((request, buffer))
        self._count(rank, size)

    def _count(self, rank: int, size: int) -> None:
        """Add to or subtract from the bytes of a rank that are in progress."""
        self._arriving_bytes[rank] += size
        if self._arriving_bytes[rank] > _ARRIVING_BYTES:
            self._full.add(rank)
        else:
            self._full.discard(rank)

    def _finish(self, rank: int) -> bytes | None:
        """Return a peer's oldest frame if it is complete."""
        request, buffer = self._arriving[rank][0]
        try:
            if not request.Test():
                return None
        except self._mpi.Exception as error:
            self._note_failure(error, rank)
            return None
        self._arriving[rank].popleft()
        self._count(rank, -len(buffer))
        self._moved_bytes += len(buffer)
        return bytes(buffer)

    def _reap(self) -> None:
        """Release the frames that have been sent."""
        for rank, queue in self._sending.items():
            try:
                while queue and queue[0][0].Test():
                    queue.popleft()
            except self._mpi.Exception as error:
                self._note_failure(error, rank)

    def _flush(self) -> None:
        """Wait for the frames in progress, in both directions, within the deadline."""
        deadline = time.monotonic() + self._close_deadline_s
        while True:
            self._reap()
            for rank, queue in self._arriving.items():
                while queue and self._finish(rank) is not None:
                    pass
            busy = [r for r in self._sending if self._sending[r] or self._arriving[r]]
            if not busy:
                return
            if time.monotonic() > deadline:
                raise PeerTimeout(
                    f"{PartyId(busy[0])} did not take its last frames within {self._close_deadline_s:g} s: "
                    "it hangs, or it ended before the others",
                    rank=busy[0],
                )
            time.sleep(_FLUSH_PAUSE_S)

    def _note_failure(self, error: Exception, suspect: int | None = None) -> None:
        """Find the ranks whose process ended; `receive` reports each once."""
        failed = self._failed_ranks()
        if suspect is not None:
            failed.add(suspect)
        new = sorted(failed - self._gone)
        if not new and suspect is None:
            raise InternalError(f"MPI failed without naming a peer: {error}") from error
        for rank in new:
            self._gone.add(rank)
            self._to_report.append(rank)
        for rank in failed:
            # Kept alive, not freed: MPI may still write into the buffers of a failed request.
            self._abandoned += [*self._sending[rank], *self._arriving[rank]]
            self._sending[rank].clear()
            self._arriving[rank].clear()
            self._count(rank, -self._arriving_bytes[rank])

    def _failed_ranks(self) -> set[int]:
        """Ask MPI which ranks have failed; only Open MPI under `--with-ft ulfm` and a few others know."""
        try:
            self._comm.Ack_failed()
            group = self._comm.Get_failed()
            places = list(range(group.Get_size()))
            ranks = group.Translate_ranks(places, self._comm.Get_group())
        except (self._mpi.Exception, NotImplementedError):
            return set()
        return {rank for rank in ranks if rank in self._sending}

    def _require_open(self) -> None:
        if self._closed:
            raise InternalError("the MPI transport was closed; MPI starts once per process")


class _Watchdog:
    """Ends the process with one sentence if a call of MPI takes too long; nothing else can interrupt it."""

    def __init__(self, what: str, deadline_s: float) -> None:
        self._sentence = (
            f"fastlloyd: {what} {deadline_s:g} s: a rank or host did not start, hangs or is gone; see what "
            "the other ranks print, and try `fastlloyd doctor`\n"
        )
        self._deadline_s = deadline_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="mpi-watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        if not self._done.wait(self._deadline_s):
            os.write(2, self._sentence.encode())
            os._exit(EXIT_PEER)


def _has_cores(ranks: int | None) -> bool:
    """Whether each of the `ranks` on this host has its own core."""
    return ranks is not None and cores() >= ranks


def _load() -> ModuleType:
    """Import mpi4py without letting it start or end MPI."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ConfigError(f"no MPI library could be loaded ({str(error).splitlines()[0]}): {HOW_TO_INSTALL}") from error
    if MPI.Is_initialized() or MPI.Is_finalized():
        raise InternalError("MPI was started before: there is one MPI transport per process")
    return MPI


def _call_unlocked(mpi: ModuleType, name: str, level: int | None = None) -> None:
    """Call MPI_Init_thread or MPI_Finalize with the interpreter's lock released.

    mpi4py holds that lock in these two, which would block the watchdog; ctypes releases it.
    """
    library = ctypes.CDLL(mpi.__file__)
    if level is None:
        code = getattr(library, name)()
    else:
        code = getattr(library, name)(None, None, ctypes.c_int(level), ctypes.byref(ctypes.c_int()))
    if code != 0:
        raise PeerError(f"{name} failed with MPI error {code}: see what the other ranks print", rank=0)
