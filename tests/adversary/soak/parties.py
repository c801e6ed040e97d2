"""The operator and the sites of a soak: folders on small disks, services that stay, and services started by a timer.

What `launch/systemd` does is done here: a service that was killed starts again, what is left of its processes is killed
as systemd does with `KillMode=mixed`, or goes on as without systemd, and a timer starts `fastlloyd serve`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.adversary.relay import make_roster
from tests.forked import Forked
from tests.mpi.support import QUICK

PORT = 4400
DISK_MIB = 48
EVERY_S = 1.0
DEADLINE_S, SETUP_S = 4.0, 15.0
ROUNDS, EPSILON, ROWS, DELTA = 4, 0.5, 40, 1e-5
KINDS = {
    "plus": ("fastlloyd-plus", ""),
    "pairs": ("fastlloyd", f'masking = "pairwise"\nrounds = {ROUNDS}\n'),
    "sums": ("glloyd", f"rounds = {ROUNDS}\n"),
    "three": ("fastlloyd-plus", 'masking = "threshold"\n'),
    "steps": ("feddp", "rounds = 1\n"),
}
"""Offers by their names: protocol, and further lines of the run file."""
ENVIRONMENT = {"PYTHONPATH": QUICK}


def kinds(sites: int) -> list[str]:
    """Name the offers that so many sites can join."""
    return [name for name in KINDS if name != "three" or sites > 2]


@dataclass
class Site:
    """One site: a service that stays, or one that a timer starts with `--once`.

    Parameters
    ----------
    rank : int
    folder : Path
    stays : bool
    repeats : bool
        Whether it joins repeated runs under one approval; else a person says `--again`.
    """

    rank: int
    folder: Path
    stays: bool
    repeats: bool
    service: subprocess.Popen[bytes] | Forked | None = None
    starts_at: float = 0.0
    codes: list[int] = field(default_factory=list)

    @property
    def own(self) -> Path:
        """Its state."""
        return self.folder / "state" / f"client-{self.rank}"

    @property
    def log(self) -> Path:
        """What its service says."""
        return self.folder.parent / "said" / f"site-{self.rank}.log"

    def tend(self) -> None:
        """Start the service, if it is not there and its time has come."""
        if self.service is not None and (code := self.service.poll()) is not None:
            self.codes.append(code)
            self.service = None
            self.starts_at = time.monotonic() + (0.3 if self.stays else EVERY_S)
        if self.service is not None or time.monotonic() < self.starts_at:
            return
        if not self.stays:
            self.service = Forked(("site", str(self.folder), "--once"), self.log, self.log, environment=ENVIRONMENT)
            return
        with self.log.open("ab") as said:
            self.service = subprocess.Popen(
                [sys.executable, "-m", "fastlloyd", "site", str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=os.environ | ENVIRONMENT,
                start_new_session=True,
            )

    def kill(self, number: int, *, group: bool) -> None:
        """Send a signal to the service; with `group`, kill what it has started once it has ended, as systemd does."""
        if self.service is None:
            return
        pids = self.runs()
        self.service.send_signal(number)
        if not group:
            return
        if number != signal.SIGKILL:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.service.wait(10.0)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def runs(self) -> list[int]:
        """Return the numbers of its runs' processes."""
        mine = f"{self.folder}/runs/".encode()
        return [pid for pid, words in processes().items() if b"join" in words and any(mine in word for word in words)]

    def status(self) -> dict[str, Any]:
        """Read its status."""
        try:
            return dict(json.loads((self.folder / "status.json").read_text()))
        except FileNotFoundError:
            return {"offers": {}, "looked_at": ""}

    def outcome(self, name: str) -> dict[str, Any] | None:
        """Read how its last run of an offer ended."""
        try:
            return dict(json.loads((self.folder / "outcomes" / f"{name}.json").read_text()))
        except FileNotFoundError:
            return None


@dataclass
class Year:
    """The operator's folder, and the sites.

    Parameters
    ----------
    folder : Path
        Each party has a disk below it.
    count : int
        Number of sites.
    """

    folder: Path
    count: int

    def __post_init__(self) -> None:
        self.sites = [
            Site(rank, self.folder / f"site-{rank}", stays=rank % 2 == 1, repeats=rank in (1, 2) and rank < self.count)
            for rank in range(1, self.count + 1)
        ]
        self.operator = self.folder / "operator"
        self.serve: Forked | None = None
        self.session = 0

    def disk(self, rank: int) -> Path:
        """Return the folder of a party, which is a disk."""
        return self.operator if rank == 0 else self.sites[rank - 1].folder

    def make(self) -> None:
        """Mount the disks, and do once what people do once: keys, roster, records, state, approvals."""
        (self.folder / "said").mkdir(parents=True)
        keys = make_roster(self.folder / "keys", ["operator", *(f"site {site.rank}" for site in self.sites)])
        for rank in range(self.count + 1):
            self.disk(rank).mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "soak", str(self.disk(rank))]
            subprocess.run(mount, check=True)
        for name in kinds(self.count):
            (self.operator / f"{name}.toml").write_text(self._run_file(name))
        self._command("init-state", str(self.operator / "state"), "--rank", "0")
        self._records(self.operator, 0)
        for site in self.sites:
            self._records(site.folder, site.rank)
            (site.folder / "site.toml").write_text(
                f'server = "127.0.0.1:{PORT}"\nkey = "{keys}/party_{site.rank}.key"\nroster = "{keys}/roster.toml"\n'
                f'data = "own.csv"\nask = true\nevery = {EVERY_S}\npatience = 2\nbudget = 100000.0\n'
                f'budget_delta = {DELTA}\nrepeat = {str(site.repeats).lower()}\nservice_metrics = "site.prom"\n'
                "delay = 0.08\n"
            )
            self._command("init-state", str(site.folder / "state"), "--rank", str(site.rank))
            (site.folder / "offers").mkdir()
            for name in kinds(self.count):
                (site.folder / "offers" / f"{name}.toml").write_text(self._offered(name))
                self._command("site", str(site.folder), "--agree", name, "--yes", "--d", "2")

    def _records(self, folder: Path, seed: int) -> None:
        draw = np.random.default_rng(seed)
        values = np.where(np.arange(ROWS) % 2, 0.5, -0.5)[:, None] + draw.uniform(-0.1, 0.1, (ROWS, 2))
        np.savetxt(folder / "own.csv", values, "%.5f", ",", header="f1,f2", comments="")

    def _run_file(self, name: str) -> str:
        protocol, more = KINDS[name]
        return (
            f'protocol = "{protocol}"\nk = 2\nbounds = "-1,1"\nn_total = {ROWS * self.count}\nepsilon = {EPSILON}\n'
            f"deadline = {DEADLINE_S}\nsetup_deadline = {SETUP_S}\n{more}"
        )

    def _offered(self, name: str) -> str:
        """Return the offer's text as the server sends it: what a site stores when it asks for the first time."""
        from fastlloyd.run.run_file import load_config
        from fastlloyd.supervise.offers import write_offer

        content = write_offer(load_config(self.operator / f"{name}.toml", links=False), name)
        return str(json.loads(content)["run"])

    def _command(self, *words: str) -> None:
        log = self.folder / "said" / "once.log"
        if Forked(words, log, log, environment=ENVIRONMENT).wait(60.0):
            raise RuntimeError(f"{words}: {log.read_text()}")

    def start(self, name: str, *, resume: bool) -> None:
        """Do what the timer of `fastlloyd serve` does, or a person with `--resume`."""
        self.session += 1
        self.name = name
        keys = self.folder / "keys"
        self.out = self.folder / "said" / f"serve-{self.session}.out"
        words = (
            *("serve", "--listen", f"127.0.0.1:{PORT}", "--config", f"{name}.toml", "--roster", f"{keys}/roster.toml"),
            *("--key", f"{keys}/party_0.key", "--offer", name, "--state-dir", "state"),
            *("--output", f"results/{self.session}", *["--resume"] * resume),
            *(("--server-data", "own.csv") if KINDS[name][0] == "feddp" else ()),
        )
        self.serve = Forked(
            words, self.out, self.out.with_suffix(".err"), folder=self.operator, environment=ENVIRONMENT
        )
        self.began = time.time()

    def tend(self) -> None:
        """Keep the services, and let people say `--again` where the service asks for it."""
        for site in self.sites:
            site.tend()
            if site.repeats or self.serve is None or self.serve.poll() is not None:
                continue
            with contextlib.suppress(ValueError, OSError):
                state = site.status()["offers"].get(self.name, {}).get("state")
                path = site.folder / "outcomes" / f"{self.name}.json"
                ended_at = path.stat().st_mtime
                if state == "offered again" or (state == "failed" and ended_at < self.began):
                    self._command("site", str(site.folder), "--again", self.name)
        collect_orphans({process.pid for process in (self.serve, *(site.service for site in self.sites)) if process})

    def said(self) -> str:
        """Return what the server of this session complained of."""
        return self.out.with_suffix(".err").read_text(errors="replace")

    def close(self) -> None:
        """End all services."""
        for process in (self.serve, *(site.service for site in self.sites)):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(10.0)


def processes() -> dict[int, tuple[bytes, ...]]:
    """Return the processes of this host, which is the soak's alone, and their words."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if words != [b""]:
                    found[int(entry.name)] = tuple(words)
    return found


def collect_orphans(known: set[int]) -> None:
    """Reap ended processes whose parents were killed: this process is the first of its namespace."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in (os.getpid(), *known):
            continue
        with contextlib.suppress(OSError, ChildProcessError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if (state, parent) == ("Z", str(os.getpid())):
                os.waitpid(int(entry.name), os.WNOHANG)
