"""One exit code and at most one sentence from the ends of all ranks: no processes, no I/O.

Source: docs/operations.md, "How a run ends".
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fastlloyd.errors import EXIT_BUDGET, EXIT_BUG, EXIT_INPUT, EXIT_OK, EXIT_PEER, name_some
from fastlloyd.wire.header import PartyId

# The cause before its consequence: a lost peer may be due to the other rank's failure.
_PRECEDENCE = (EXIT_INPUT, EXIT_BUDGET, EXIT_BUG, EXIT_PEER)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """How one rank ended, as far as known.

    Attributes
    ----------
    started : bool
        Whether it reported its start.
    code : int or None
        The exit code that it announced when it was done.
    place : int or None
        Its place in the order of ends, from 0; None if its end was not seen.
    status : int or None
        As `os.waitpid` gives it.
    watched : bool
        Whether it runs on this host, so that its end is seen.
    """

    started: bool = False
    code: int | None = None
    place: int | None = None
    status: int | None = None
    watched: bool = False

    @property
    def finished(self) -> bool:
        """Whether it reported that it was done, or is gone."""
        return self.code is not None or self.place is not None

    @property
    def failed(self) -> bool:
        """Whether it reported a failure, or is gone without a report."""
        return self.code != EXIT_OK if self.code is not None else self.place is not None

    @property
    def died(self) -> bool:
        """Whether it is gone without reporting a failure: without any report, or after reporting success."""
        return self.place is not None and not self.code and (self.code is None or bool(self.status))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The exit code of the whole run, and the sentence to print."""

    code: int
    sentence: str | None = None


def name_rank(rank: int) -> str:
    """Format a rank with its party: `rank 2 (client 2)`."""
    return f"rank {rank} ({PartyId(rank)})"


def describe_outlived(rank: int, ends: Mapping[int, RankEnd], *, stopped: bool) -> str:
    """Report that a rank was killed because it outlived the run, and which ranks had failed before."""
    wrong = {other: end.code for other, end in ends.items() if end.code}
    agreed = agree(list(wrong.values()))
    before = name_some([name_rank(other) for other, code in wrong.items() if code == agreed])
    state = "was stopped and " if stopped else ""
    cause = f"{before} ended with exit code {agreed}; " if before else ""
    return f"{cause}{name_rank(rank)} {state}outlived the run: killed"


def agree(codes: Sequence[int]) -> int:
    """Choose the code of a run from those that its ranks reported."""
    wrong = [code for code in codes if code != EXIT_OK]
    if not wrong:
        return EXIT_OK
    return next((code for code in _PRECEDENCE if code in wrong), EXIT_BUG)


def in_order(ends: Mapping[int, RankEnd], fallen: Sequence[int]) -> dict[int, RankEnd]:
    """Renumber the ends of ranks in the order in which their lifelines broke (`supervise.lifeline`).

    Parameters
    ----------
    ends : mapping from rank to RankEnd
    fallen : sequence of int
        Ranks. If a rank that ended is missing here, keep the order in which the ends were seen.
    """
    seen = [rank for rank, end in ends.items() if end.place is not None]
    known = {rank: place for place, rank in enumerate(fallen)}
    if not known.keys() >= set(seen):
        return dict(ends)
    places = {rank: place for place, rank in enumerate(sorted(seen, key=known.__getitem__))}
    return {rank: replace(end, place=places.get(rank)) for rank, end in ends.items()}


def judge(
    ends: Mapping[int, RankEnd],
    launcher_code: int,
    *,
    launcher_signal: int | None = None,
    interrupted: bool = False,
    elsewhere: tuple[int, str] | None = None,
) -> Verdict:
    """Judge a run that is over.

    Parameters
    ----------
    ends : mapping from rank to RankEnd
        Every rank of the run.
    launcher_code : int
        How mpirun ended, as `subprocess` gives it.
    launcher_signal : int, optional
        The signal in mpirun's own message.
    interrupted : bool
        The user interrupted the run.
    elsewhere : tuple of int and str, optional
        The first lost rank of another host, and how it was lost.
    """
    codes = [end.code for end in ends.values() if end.code is not None]
    agreed = agree(codes)
    if len(codes) == len(ends):
        return Verdict(agreed)
    if elsewhere is not None:
        rank, fate = elsewhere
        return Verdict(agreed or EXIT_PEER, f"{name_rank(rank)} {fate}")
    if interrupted:
        return Verdict(agreed or EXIT_PEER, "interrupted before the run was over")
    dead = _first_dead(ends)
    if dead is not None:
        return _judge_dead(dead, ends[dead], agreed, launcher_code, launcher_signal)
    started = [end.started for end in ends.values()]
    if agreed and all(started):
        return Verdict(agreed)
    if launcher_code == EXIT_OK and not any(started):
        return Verdict(EXIT_OK)
    return _judge_launcher(ends, agreed, launcher_code, launcher_signal)


def _first_dead(ends: Mapping[int, RankEnd]) -> int | None:
    """Return the rank that failed first, if it did not report its failure.

    The launcher kills the ranks that end later: their ends carry no information.
    """
    bad = (rank for rank, end in ends.items() if end.place is not None and (end.failed or end.died))
    first = min(bad, key=lambda rank: ends[rank].place or 0, default=None)
    return first if first is not None and ends[first].died else None


def _judge_dead(rank: int, end: RankEnd, agreed: int, launcher_code: int, launcher_signal: int | None) -> Verdict:
    """Judge a run in which a rank ended without a report."""
    signal = launcher_signal
    if end.status is not None:
        signal = os.WTERMSIG(end.status) if os.WIFSIGNALED(end.status) else None
    if signal is not None:
        return Verdict(agreed or EXIT_PEER, f"{name_rank(rank)} died: killed by signal {signal}")
    if end.status is None:
        code = launcher_code if launcher_code in _PRECEDENCE else EXIT_PEER
        return Verdict(agreed or code, f"{name_rank(rank)} ended before the run was over")
    code = os.waitstatus_to_exitcode(end.status)
    sentence = f"{name_rank(rank)} ended with exit code {code} before the run was over"
    return Verdict(agreed or (code if code in _PRECEDENCE else EXIT_BUG), sentence)


def _judge_launcher(ends: Mapping[int, RankEnd], agreed: int, code: int, signal: int | None) -> Verdict:
    """Judge a run from the launcher's end and the ranks that had started."""
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    missing = [rank for rank, end in ends.items() if not end.started]
    if len(missing) == len(ends):
        if code in _PRECEDENCE:
            return Verdict(code)
        return Verdict(
            EXIT_INPUT, f"mpirun {how} before any rank had started: see the lines above, and try `fastlloyd doctor`"
        )
    silent = [rank for rank, end in ends.items() if end.started and end.code is None]
    if missing:
        names = ", ".join(name_rank(rank) for rank in missing)
        return Verdict(agreed or EXIT_PEER, f"{names} ended before it had started (mpirun {how})")
    cause = "" if signal is None else f", a rank was killed by signal {signal}"
    names = ", ".join(name_rank(rank) for rank in silent)
    unseen = "" if all(ends[rank].watched for rank in silent) else " (ranks on other hosts cannot be watched)"
    return Verdict(EXIT_PEER, f"mpirun {how}{cause}; not done: {names}{unseen}")
