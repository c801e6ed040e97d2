"""`fastlloyd run`: starts mpirun, owns the terminal, reports a failure in one sentence, leaves no process behind.

The launcher runs in a separate session, so that a signal from the terminal reaches only this process, which passes it
on. The output of launcher and ranks goes through `supervise/output.py`. Processes are watched to find a killed rank,
because no launcher names it reliably.

Source: docs/operations.md, "How a run ends".
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TextIO

from fastlloyd.errors import ConfigError
from fastlloyd.net.mpi.launcher import Mpirun, TransportName, find_mpirun, mpirun_command, without_scheduler
from fastlloyd.report import announcer
from fastlloyd.run.rank import stop_signals
from fastlloyd.supervise.lifeline import HostLines, Lifelines
from fastlloyd.supervise.output import LauncherOutput
from fastlloyd.supervise.process import Process, adopting_orphans, collect, kill_marked
from fastlloyd.supervise.verdict import RankEnd, describe_outlived, in_order, judge, name_rank

CLIENT_PROGRAM = ("-m", "fastlloyd.client", "--events")
_TICK_S = 0.05
_FINALISE_S = 15.0
# How much later than mpirun this process may notice the loss of a host.
_LOST_S = 3.0
_READ_BYTES = 1 << 16


def supervise(
    n: int,
    client_argv: Sequence[str],
    *,
    transport: TransportName = "shm",
    quiet: bool = False,
    debug: bool = False,
    program: Sequence[str] = CLIENT_PROGRAM,
    mpirun: Mpirun | None = None,
    out: TextIO | None = None,
    err: TextIO | None = None,
    grace_s: float = 2.0,
    place: Callable[[Mpirun, int, Sequence[str]], tuple[list[str], dict[str, str]]] | None = None,
    json_lines: bool = False,
    hosts: Sequence[str] = (),
    start_s: float = math.inf,
) -> int:
    """Run `n` ranks under mpirun and wait until all have ended.

    Parameters
    ----------
    n : int
        Ranks: one server and n - 1 clients.
    client_argv : sequence of str
        Flags of `python -m fastlloyd.client`.
    transport : {'shm', 'tcp'}
    quiet : bool
        No progress.
    debug : bool
        Show the launcher's own messages.
    program : sequence of str
        The program of each rank, for this interpreter.
    mpirun : Mpirun, optional
        By default the one of this environment.
    out, err : text stream, optional
        By default standard output and error.
    grace_s : float
        How long a rank may outlive a failed run before it is killed.
    place : callable, optional
        Returns command and environment for launcher, ranks and program; by default they run on this host.
    json_lines : bool
        Write messages as lines of JSON.
    hosts : sequence of str
        Names for ssh, one for each rank, this host first; by default all ranks are on this host, also in a scheduler's
        job.
    start_s : float
        End a launcher that has started no rank by then.

    Returns
    -------
    int
        The code that the ranks agreed on; 3 when a rank was killed or the run was interrupted; 2 when no
        rank ever started.

    Raises
    ------
    ConfigError
        There is no usable mpirun, `n` is below 2, a host cannot be reached, or this is not Linux.
    """
    if not sys.platform.startswith("linux"):
        raise ConfigError(
            f"`fastlloyd run` watches its processes by means of Linux, and this is {platform.system()}: start the "
            "parties with `fastlloyd serve` and `fastlloyd join`, or run them in one process with the estimator "
            "(docs/estimator.md)"
        )
    launcher = find_mpirun() if mpirun is None else mpirun
    words = [sys.executable, *program, *client_argv]
    if place is not None:
        command, env = place(launcher, n, words)
    else:
        command, env = mpirun_command(launcher, n, words, transport=transport, hosts=hosts)
    output = LauncherOutput(out or sys.stdout, err or sys.stderr, quiet=quiet, debug=debug, json_lines=json_lines)
    shared = transport == "shm" and not hosts
    run = _Run(n, output, grace_s, quiet=quiet, hosts=hosts, start_s=start_s, shared=shared)
    base = dict(os.environ) if hosts or place is not None else without_scheduler(os.environ)
    if (out or sys.stdout).isatty():  # which the ranks cannot ask
        base["COLUMNS"] = str(shutil.get_terminal_size().columns)
    try:
        with adopting_orphans(), _forwarding(run.interrupt):
            return run.watch(command, {**base, **env})
    finally:
        output.close()


@contextlib.contextmanager
def _forwarding(handler: Callable[[int], None]) -> Iterator[None]:
    """Pass signals to `handler` within the context; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda number, _: handler(number)) for number in stop_signals()}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class _Run:
    """One launcher with its ranks, from start to verdict."""

    def __init__(
        self,
        n: int,
        output: LauncherOutput,
        grace_s: float,
        *,
        quiet: bool = False,
        hosts: Sequence[str] = (),
        start_s: float = math.inf,
        shared: bool = False,
    ) -> None:
        self._ends = {rank: RankEnd() for rank in range(n)}
        self._processes: dict[int, Process] = {}
        self._output = output
        self._grace_s = grace_s
        self._start_s = start_s
        self._shared = shared
        self._mark = secrets.token_hex(8)
        self._poll = select.epoll()
        self._pipes: dict[int, int] = {}
        self._watched: dict[int, int] = {}
        self._lifelines: Lifelines
        self._hosts = hosts
        # Names that launchers may use for the ranks' hosts.
        self._names = {host.rpartition("@")[2]: rank for rank, host in enumerate(hosts)}
        self._lines: HostLines
        self._signals: list[int] = []
        self._since: dict[str, float] = {}
        self._explained = False
        self._over = False
        self._patient = not quiet
        self._launcher: subprocess.Popen[bytes]

    def interrupt(self, number: int) -> None:
        """Note a signal; the main loop passes it on."""
        self._signals.append(number)

    def watch(self, command: Sequence[str], env: Mapping[str, str]) -> int:
        """Start the launcher, follow it to its end, and return the exit code."""
        with Lifelines(len(self._ends)) as self._lifelines, HostLines(self._hosts) as self._lines:
            try:
                self._launcher = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**env, **self._lifelines.environment, "FASTLLOYD_RUN": self._mark},
                    start_new_session=True,
                )
            except OSError as error:
                raise ConfigError(
                    f"cannot start {command[0]}: {error.strerror}; `fastlloyd doctor` tests it"
                ) from error
            try:
                self._follow()
                self._await_break()
            finally:
                self._end_all()
                code = self._launcher.wait()
                self._release()
        verdict = judge(
            self._known_ends(),
            code,
            launcher_signal=self._output.signal,
            interrupted=bool(self._signals),
            elsewhere=self._elsewhere(),
        )
        if verdict.sentence is not None and not self._explained:
            if not any(end.started for end in self._ends.values()):
                self._output.show_hidden()
            self._output.say(verdict.sentence + self._cause())
        return verdict.code

    def _follow(self) -> None:
        """Read output and ends until the launcher has ended and all its output is read."""
        for index, pipe in enumerate((self._launcher.stdout, self._launcher.stderr)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._pipes[pipe.fileno()] = index
                self._poll.register(pipe.fileno(), select.EPOLLIN)
        for descriptor in (*self._lifelines, *self._lines):
            self._poll.register(descriptor, select.EPOLLIN)
        passed = 0
        while self._launcher.poll() is None:
            self._serve(_TICK_S)
            self._output.idle()
            if passed < len(self._signals):
                self._pass_on(self._signals[passed], again=passed > 0)
                passed += 1
            self._enforce()
            self._name_late()
        self._serve(0.0)
        # Orphans may still hold the pipes: end them before reading the rest.
        self._over = True
        self._end_all()
        for descriptor in self._pipes:
            self._read(descriptor)
        for event in self._output.finish():
            self._note(event)

    def _serve(self, timeout_s: float) -> None:
        """Wait a little for output and ends of processes; the ends arrive in order."""
        for descriptor, _ in self._poll.poll(timeout_s):
            if descriptor in self._pipes:
                self._read(descriptor)
                continue
            self._poll.unregister(descriptor)
            if descriptor in self._lifelines:
                self._lifelines.broke(descriptor)
            elif descriptor in self._lines:
                if not self._signals:  # after a signal, hosts end because of it
                    self._lines.broke(descriptor)
            else:
                self._note_end(self._watched.pop(descriptor))

    def _read(self, descriptor: int) -> None:
        """Read all available output."""
        while True:
            try:
                chunk = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                with contextlib.suppress(OSError):
                    self._poll.unregister(descriptor)
                return
            for event in self._output.feed(self._pipes[descriptor], chunk):
                self._note(event)

    def _note(self, event: Mapping[str, Any]) -> None:
        """Note an event that a rank reports about itself."""
        rank = event.get("rank")
        if rank not in self._ends:
            return
        if event["event"] == "done":
            self._ends[rank] = replace(self._ends[rank], code=event["code"])
        elif event["event"] == "started" and not self._ends[rank].started:
            self._ends[rank] = replace(self._ends[rank], started=True)
            self._names.setdefault(str(event["host"]), rank)
            # One whose word comes once all are ended is no cause.
            if event["host"] == socket.gethostname() and not self._over:
                self._watch_rank(rank, Process(event["pid"]))

    def _watch_rank(self, rank: int, process: Process) -> None:
        """Start to watch a rank of this host."""
        self._processes[rank] = process
        self._ends[rank] = replace(self._ends[rank], watched=True)
        if process.descriptor is not None:
            self._watched[process.descriptor] = rank
            self._poll.register(process.descriptor, select.EPOLLIN)
        elif process.ended:
            self._note_end(rank)

    def _note_end(self, rank: int) -> None:
        """Note that a rank's process has ended, and in which place."""
        place = sum(end.place is not None for end in self._ends.values())
        status = self._processes[rank].wait_status()
        self._ends[rank] = replace(self._ends[rank], place=place, status=status)

    def _await_break(self) -> None:
        """Wait a moment for a broken connection: the launcher may have been faster and killed other ranks."""
        end = time.monotonic() + _LOST_S
        while self._hosts and not self._lines.fallen and not self._signals and time.monotonic() < end:
            if all(rank.code is not None for rank in self._ends.values()):
                return
            self._serve(_TICK_S)

    def _cause(self) -> str:
        """Return what shared memory has to do with a rank that died before it could report anything."""
        if not self._shared or any(end.code is not None for end in self._ends.values()):
            return ""
        from fastlloyd.supervise.environment import little_shared_memory

        little = little_shared_memory(len(self._ends))
        return little and f"; {little}"

    def _elsewhere(self) -> tuple[int, str] | None:
        """Return the first lost rank of several hosts, and how it was lost."""
        if not self._hosts:
            return None
        if self._lines.fallen:
            lost = self._lines.fallen[0]
            return lost, f"is gone: the connection to its host {self._hosts[lost]} broke"
        rank = self._names.get(self._output.host or "")
        if rank is None or self._signals:
            return None
        return rank, f"was killed on its host {self._hosts[rank]}"

    def _known_ends(self) -> dict[int, RankEnd]:
        """Order the ends of the ranks; with several hosts the order is unknown."""
        if self._hosts:
            return {rank: replace(end, place=None, status=None) for rank, end in self._ends.items()}
        return in_order(self._ends, self._lifelines.fallen)

    def _pass_on(self, number: int, *, again: bool) -> None:
        """Pass a signal on to the ranks; at the second one kill them."""
        if again:
            self._end_all()
            return
        self._output.say(f"{signal.Signals(number).name} passed on to the ranks; once more kills them")
        for process in self._processes.values():
            process.signal(number)
        # Open MPI's launcher kills ranks before they can report: signal it only if a rank cannot be reached.
        if any(rank not in self._processes and not end.finished for rank, end in self._ends.items()):
            self._signal_launcher(number)

    def _enforce(self) -> None:
        """Kill what outlives the run: a stopped rank, survivors of a dead one, a launcher that does not end."""
        ends = self._ends
        left = [rank for rank, end in ends.items() if not end.finished]
        failed = any(end.failed for end in ends.values())
        # After a successful run the last client may write files for long, unless it is stopped.
        stopped = 0 < len(left) < len(ends) and all(self._stopped(rank) for rank in left)
        over = bool(left) and (stopped or (failed and (0 not in left or left == [0])))
        died = any(end.failed and end.code is None for end in ends.values())
        if self._held("over", over, self._grace_s):
            if not died:  # the verdict names the rank that died, not the ones it left behind
                self._explained = True
                self._output.say(describe_outlived(left[0], ends, stopped=self._stopped(left[0])))
            self._end_all()
        elif self._held("finalise", not left, _FINALISE_S):
            self._output.say("all ranks are done but mpirun does not end: killed")
            self._end_all()
        elif self._held("none started", not any(end.started for end in ends.values()), self._start_s):
            self._output.say(f"mpirun has started no rank within {self._start_s:g} s (--setup-deadline): killed")
            self._end_all()
        elif self._held("died", died, 2 * self._grace_s) or self._held(
            "interrupted", len(self._signals) > 0, self._grace_s + 1.0
        ):
            self._end_all()

    def _name_late(self) -> None:
        """Report once which ranks the launcher has not started yet."""
        late = [rank for rank, end in self._ends.items() if not end.started]
        if self._patient and self._held("late", bool(late), announcer.FIRST_S):
            self._patient = False
            names = ", ".join(map(name_rank, late))
            self._output.say(f"set-up: {announcer.FIRST_S:g} s so far; waiting for {names} to start under mpirun")

    def _held(self, name: str, condition: bool, seconds: float) -> bool:
        """Whether a condition has held for `seconds` without a break."""
        if not condition:
            self._since.pop(name, None)
            return False
        return time.monotonic() - self._since.setdefault(name, time.monotonic()) >= seconds

    def _stopped(self, rank: int) -> bool:
        return rank in self._processes and self._processes[rank].state == "T"

    def _signal_launcher(self, number: int) -> None:
        if self._launcher.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._launcher.pid, number)

    def _end_all(self) -> None:
        """Kill every rank, the launcher's group, and every remaining descendant."""
        for process in self._processes.values():
            process.signal(signal.SIGKILL)
        self._signal_launcher(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # its status is lost where `kill_marked` reaps it
            self._launcher.wait(_FINALISE_S)
        kill_marked(f"FASTLLOYD_RUN={self._mark}")
        collect(process.pid for process in self._processes.values())

    def _release(self) -> None:
        """Close all descriptors."""
        for process in self._processes.values():
            process.close()
        for pipe in (self._launcher.stdout, self._launcher.stderr):
            if pipe is not None:
                pipe.close()
        self._poll.close()
