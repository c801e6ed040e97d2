"""Runs of real processes over TCP or MPI, one of them a liar, and what each left behind.

TCP parties are forked from this process, which has imported everything: a run costs a fraction of a second. They run
`fastlloyd serve` and `fastlloyd join` as typed. MPI ranks are started by mpirun with `tests.adversary.rank`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.adversary.lie import Lie, install, install_recorder
from tests.adversary.play import Play
from tests.forked import Forked

ROOT = Path(__file__).parents[2]
LISTENING = re.compile(r"listening at 127\.0\.0\.1:(\d+)")
RESULTS = ("centroids.csv", "report.json", "labels_*.csv")
_TICK_S = 0.005
# How long the others may run on when one party, after its own end, still has children.
_AFTER_S = 3.0
_START_S = 60.0


@dataclass(frozen=True)
class Ended:
    """What a run left.

    Attributes
    ----------
    codes : tuple of (int or None)
        Each rank's exit code; negative for a signal, None for one that had to be killed.
    out, said : tuple of str
        What each rank wrote to standard output, and to standard error.
    results : tuple of tuple of str
        Names of the result files that each rank wrote.
    centers : tuple of (str or None)
        The text of each rank's centroids.csv.
    told : tuple of int
        To whom the liar told it, message by message; empty for whoever lies on the way.
    left : int
        Processes that still ran after their party's end.
    """

    codes: tuple[int | None, ...]
    out: tuple[str, ...]
    said: tuple[str, ...]
    results: tuple[tuple[str, ...], ...]
    centers: tuple[str | None, ...]
    told: tuple[int, ...]
    left: int
    seconds: float


class _Party(Forked):
    """One forked party."""

    def __init__(self, rank: int, words: Sequence[str], log: Path, prepare: Callable[[], None] | None = None) -> None:
        self.rank = rank
        self.log = log
        super().__init__(words, log, log.with_suffix(".err"), prepare=prepare)

    @property
    def ended(self) -> bool:
        return self.poll() is not None

    def end_all(self) -> bool:
        """End it and all it has started; whether there was anything left to end."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
            return True
        return False


@dataclass
class TcpRun:
    """One run over TCP; `between` may put a relay between server and clients.

    Parameters
    ----------
    play : Play
    stage : Path
        From `play.build`.
    folder : Path
        Emptied first.
    lie : Lie, optional
    prepare : mapping from rank to callable
        Further changes inside single parties.
    extra : mapping from rank to words
    roster : Path, optional
        Folder with `roster.toml` and `party_R.key`.
    between : callable, optional
        Gets the server's port and gives the one that clients are told.
    record : bool
        Write down what everybody sends.
    """

    play: Play
    stage: Path
    folder: Path
    lie: Lie | None = None
    prepare: Mapping[int, Callable[[], None]] = field(default_factory=dict)
    extra: Mapping[int, Sequence[str]] = field(default_factory=dict)
    roster: Path | None = None
    between: Callable[[int], int] | None = None
    record: bool = False

    def run(self) -> Ended:
        """Run to the end, or to the play's limit."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        started = time.monotonic()
        end = started + self.play.limit_s
        server = self._start(0, ["serve", "--listen", "127.0.0.1:0", *self._count()])
        parties = [server]
        try:
            port = self._port(server, min(end, started + _START_S))
            if port is not None:
                port = port if self.between is None else self.between(port)
                where = ["join", "--server", f"127.0.0.1:{port}"]
                for rank in range(1, self.play.clients + 1):
                    own = [] if self.roster is not None else ["--rank", str(rank)]
                    parties.append(self._start(rank, [*where, *own]))
            while time.monotonic() < end and not all(party.ended for party in parties):
                time.sleep(_TICK_S)
        finally:
            left = sweep(parties)
        return read_ended(parties, self.folder, left, time.monotonic() - started)

    def _count(self) -> list[str]:
        return [] if self.roster is not None else ["--clients", str(self.play.clients)]

    def _start(self, rank: int, words: list[str]) -> _Party:
        words = [*words, *self.play.words(rank, self.stage, self.folder / f"out-{rank}"), *self.extra.get(rank, ())]
        if self.roster is not None:
            words += ["--roster", str(self.roster / "roster.toml"), "--key", str(self.roster / f"party_{rank}.key")]
        return _Party(rank, words, self.folder / f"{rank}.log", self._prepared(rank))

    def _prepared(self, rank: int) -> Callable[[], None]:
        """Return what prepares a rank's process, without what only this one has."""
        return functools.partial(replace(self, between=None)._prepare, rank)

    def _prepare(self, rank: int) -> None:
        if self.record:
            install_recorder(self.folder / "sent.jsonl")
        if rank in self.prepare:
            self.prepare[rank]()
        if self.lie is not None and rank == self.lie.rank:
            install(self.lie, self.folder / "told.jsonl")

    def _port(self, server: _Party, end: float) -> int | None:
        """Read which port the server got; None if it ended before."""
        while time.monotonic() < end:
            if server.log.exists() and (found := LISTENING.search(server.log.read_text(errors="replace"))):
                return int(found[1])
            if server.ended:
                return None
            time.sleep(_TICK_S)
        return None


def sweep(parties: Sequence[_Party]) -> int:
    """Kill whoever still runs; count the processes that outlived a party that had ended."""
    end = time.monotonic() + _AFTER_S
    hung = [party for party in parties if not party.ended]
    for party in hung:
        party.end_all()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(party.pid, 0)
    quiet = [party for party in parties if party not in hung]
    while time.monotonic() < end and any(_alive(party.pid) for party in quiet):
        time.sleep(_TICK_S)
    return sum(party.end_all() for party in quiet)


def _alive(group: int) -> bool:
    """Whether any process of a group still runs."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def read_ended(parties: Sequence[_Party], folder: Path, left: int, seconds: float) -> Ended:
    """Gather what the parties of a run left in its folder."""
    outputs = [folder / f"out-{party.rank}" for party in parties]
    return Ended(
        codes=tuple(party.returncode for party in parties),
        out=tuple(_text(party.log) or "" for party in parties),
        said=tuple(_text(party.log.with_suffix(".err")) or "" for party in parties),
        results=tuple(written(output) for output in outputs),
        centers=tuple(_text(output / "centroids.csv") for output in outputs),
        told=read_told(folder),
        left=left,
        seconds=seconds,
    )


def read_told(folder: Path) -> tuple[int, ...]:
    """Return the receivers of what the liar changed."""
    path = folder / "told.jsonl"
    return tuple(json.loads(text)["to"] for text in path.read_text().splitlines()) if path.exists() else ()


def written(output: Path) -> tuple[str, ...]:
    """Name the result files in a party's folder."""
    return tuple(sorted(path.name for pattern in RESULTS for path in output.glob(pattern)))


def _text(path: Path) -> str | None:
    return path.read_text(errors="replace") if path.exists() else None


def record(play: Play, stage: Path, folder: Path) -> list[dict[str, Any]]:
    """Run honestly and give all messages in the order in which they were written down: rank, to, frame."""
    ended = TcpRun(play, stage, folder, record=True).run()
    if set(ended.codes) != {0}:
        raise RuntimeError(f"an honest run of {play.name} failed: {ended.codes}\n" + "\n".join(ended.said))
    lines = (folder / "sent.jsonl").read_text().splitlines()
    return [line | {"frame": bytes.fromhex(line["frame"])} for line in map(json.loads, lines)]
