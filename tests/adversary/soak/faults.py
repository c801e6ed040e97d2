"""What goes wrong in a soak: drawn from a seed, and done to processes, disks and flows that are there."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.adversary.soak.parties import DEADLINE_S, PORT, Year

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
ACTS = {"kill the server": 3, "kill a run": 4, "kill a service": 4, "fill a disk": 4, "cut": 3, "reject": 2, "drop": 2}
"""Acts and how often each is drawn."""
_BALLAST = "ballast"
_PORT = re.compile(r"127\.0\.0\.1:(\d+)\s+127\.0\.0\.1:" + str(PORT))


@dataclass
class Fault:
    """One fault.

    Attributes
    ----------
    act : str
        Of `ACTS`.
    rank : int
        Whose process, disk or flow.
    number : int
        The signal.
    group : bool
        Of a killed service: whether its run is killed with it.
    round : int or None
        Once the server has closed this round; None: from the start of the server.
    after_s : float
    lasts_s : float
        How long a disk is full or a flow blocked.
    room : int
        Pages left on the disk.
    """

    act: str
    rank: int
    number: int
    group: bool
    round: int | None
    after_s: float
    lasts_s: float
    room: int
    due: float | None = None
    done: bool = False
    undo: Callable[[], None] | None = None
    hit: bool = False

    def shown(self) -> dict[str, Any]:
        """Return what was drawn, and whether it met anything."""
        names = ("act", "rank", "number", "group", "round", "after_s", "lasts_s", "room", "hit")
        return {name: getattr(self, name) for name in names}


def draw_fault(draw: random.Random, sites: int) -> Fault:
    """Draw one fault; the service of the first site is never killed: its memory is watched."""
    act = draw.choices(list(ACTS), list(ACTS.values()))[0]
    lowest = {"kill the server": 0, "kill a service": 2, "fill a disk": 0}.get(act, 1)
    after = draw.choice((None, 1, 2, 3, 4))
    return Fault(
        act=act,
        rank=0 if act == "kill the server" else draw.randint(lowest, sites),
        number=int(draw.choice(SIGNALS)),
        group=draw.random() < 0.5,
        round=after,
        after_s=round(draw.uniform(0, 4.0 if after is None else draw.choice((0.1, 0.3, 1.0))), 3),
        lasts_s=round(draw.uniform(0.2, 1.5 * DEADLINE_S), 2),
        room=draw.choice((0, 0, 1, 2, 5)),
    )


@dataclass
class Faults:
    """The faults of one session."""

    year: Year
    drawn: list[Fault]
    over: list[Fault] = field(default_factory=list)

    def turn(self, now: float, began: float) -> None:
        """Do what is due, and undo what has lasted."""
        text = self.year.out.read_text()
        for fault in self.drawn:
            if fault.due is None and (fault.round is None or f"round {fault.round} of" in text):
                fault.due = (began if fault.round is None else now) + fault.after_s
            if fault.due is not None and not fault.done and now >= fault.due:
                fault.done = True
                self._act(fault)
            if fault.undo is not None and fault.due is not None and now >= fault.due + fault.lasts_s:
                fault.undo()
                fault.undo = None

    @property
    def pending(self) -> bool:
        """Whether something is still to be undone, or due without a round that may never come."""
        return any(fault.undo is not None or (fault.due is not None and not fault.done) for fault in self.drawn)

    def _act(self, fault: Fault) -> None:
        if fault.act == "kill the server":
            fault.hit = self.year.serve is not None and self.year.serve.poll() is None
            if self.year.serve is not None:
                self.year.serve.send_signal(fault.number)
        elif fault.act == "kill a service":
            site = self.year.sites[fault.rank - 1]
            fault.hit = site.service is not None and site.service.poll() is None
            site.kill(fault.number, group=fault.group)
        elif fault.act == "kill a run":
            for pid in self.year.sites[fault.rank - 1].runs():
                fault.hit = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, fault.number)
        elif fault.act == "fill a disk":
            self._fill(fault)
        else:
            self._block(fault)

    def _fill(self, fault: Fault) -> None:
        """Leave a drawn number of pages on a disk."""
        path = self.year.disk(fault.rank) / _BALLAST
        found = os.statvfs(path.parent)
        with path.open("wb") as file:
            for taken in range(8):  # by somebody else, meanwhile
                with contextlib.suppress(OSError):
                    os.posix_fallocate(file.fileno(), 0, (found.f_bavail - fault.room - taken) * found.f_bsize)
                    break
        fault.hit = True
        fault.undo = lambda: path.unlink(missing_ok=True)

    def _block(self, fault: Fault) -> None:
        """Cut the flow of a site's run, or block it for a while."""
        flows = []
        found = subprocess.run(
            ["ss", "-tnpH", "state", "established", "dport", "=", f":{PORT}"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        pids = self.year.sites[fault.rank - 1].runs()
        for line in found.splitlines():
            match = _PORT.search(line)
            if match and any(f"pid={pid}," in line for pid in pids):
                flows.append(match[1])
        for flow in flows:
            fault.hit = True
            if fault.act == "cut":
                kill = ["ss", "-K", "-tn", "sport", "=", f":{flow}", "dport", "=", f":{PORT}"]
                subprocess.run(kill, capture_output=True, check=False)
                continue
            rules = []
            for side in ("--sport", "--dport"):
                other = "--dport" if side == "--sport" else "--sport"
                target = ["DROP"] if fault.act == "drop" else ["REJECT", "--reject-with", "tcp-reset"]
                rules.append(["OUTPUT", "-p", "tcp", side, flow, other, str(PORT), "-j", *target])
            for rule in rules:
                subprocess.run(["iptables", "-w", "-I", *rule], check=True)

            def undo(rules: list[list[str]] = rules, before: Callable[[], None] | None = fault.undo) -> None:
                for rule in rules:
                    subprocess.run(["iptables", "-w", "-D", *rule], check=True)
                if before is not None:
                    before()

            fault.undo = undo
