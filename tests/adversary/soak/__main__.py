"""Run after run of `fastlloyd serve` and `fastlloyd site`, with faults drawn from a seed.

    python -m tests.adversary.soak --out FOLDER --runs 200 --seed 1 --sites 3

A month is one run that the timer of the operator starts, with its sessions: if it breaks off, the operator goes on with
`--resume`, or the timer starts the next one. Each session is a run of `serve` and of the sites' `join`. The first
sessions of most months have faults (`faults.py`); the last ones have none, so that a month that does not end well is a
fault. After each session `checks.py` looks at everything. Needs root: the soak has its own network, processes and
disks (`unshare`). `FOLDER/soak.jsonl` holds a line per month; a soak that was ended goes on after the last one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastlloyd.errors import EXIT_OK
from tests.adversary.soak.checks import (
    Truth,
    begun,
    check_ledger,
    check_left,
    check_site,
    check_spent,
    check_words,
    measure,
)
from tests.adversary.soak.faults import Fault, Faults, draw_fault
from tests.adversary.soak.parties import Year, kinds

_INSIDE = "FASTLLOYD_SOAK_INSIDE"
_TICK_S = 0.03
_LIMIT_S = 60.0
_MOST_SESSIONS = 6
_MOST_BAD = 8
"""Months with problems after which a soak ends."""


def run_session(year: Year, faults: list[Fault]) -> tuple[int | None, list[str]]:
    """Wait until the server has ended, all faults are undone, and each site has looked once more."""
    assert year.serve is not None
    done, began = Faults(year, faults), time.monotonic()
    quiet_since: float | None = None
    while True:
        now = time.monotonic()
        year.tend()
        done.turn(now, began)
        if now - began > _LIMIT_S:
            code = year.serve.poll()
            states = [site.status()["offers"].get(year.name) for site in year.sites]
            for fault in faults:
                if fault.undo is not None:
                    fault.undo()
            for site in year.sites:
                for pid in site.runs():
                    os.kill(pid, 9)
            year.serve.kill()
            return code, [f"not over after {_LIMIT_S:g} s: server {code}, {states}"]
        if year.serve.poll() is None or done.pending or any(site.runs() for site in year.sites):
            quiet_since = None
        elif quiet_since is None:
            quiet_since = now
            since = datetime.now(UTC).isoformat(timespec="seconds")
        elif all(site.status()["looked_at"] > since for site in year.sites) and all(
            site.service is not None for site in year.sites if site.stays
        ):
            waiting = [site for site in year.sites if not site.stays and site.service is not None]
            if not waiting:
                return year.serve.poll(), []
        time.sleep(_TICK_S)


def run_month(year: Year, truth: Truth, name: str, draw: random.Random) -> dict[str, Any]:
    """Run the sessions of one month."""
    sessions: list[dict[str, Any]] = []
    found: list[str] = []
    resume = False
    hit: set[int] = set()
    while len(sessions) < _MOST_SESSIONS:
        often = (0.8, 0.4)[len(sessions)] if len(sessions) < 2 else 0.0
        count = draw.choice((1, 1, 1, 2)) if draw.random() < often else 0
        faults = [draw_fault(draw, year.count) for _ in range(count)]
        goes_on = draw.random() < 0.7
        runs = {begun(folder / "run") for folder in (year.operator / "state" / "server", *(s.own for s in year.sites))}
        can_resume = len(runs) == 1 and None not in runs
        year.start(name, resume=resume)
        code, problems = run_session(year, faults)
        hit |= {fault.rank for fault in faults}
        stands = truth.observe(year, hit)
        problems += check_words(year, code, faults, resume)
        for site in year.sites:
            problems += check_ledger(truth, site)
            problems += check_site(year, site, code, faults)
        problems += check_left(year)
        if not faults and code != EXIT_OK and (can_resume or not resume):
            problems.append(f"no fault, resume {resume}, and the server ended with {code}: {year.said()[-500:]}")
        states = [site.status()["offers"].get(name, {}) for site in year.sites]
        sessions.append(
            {
                **{"resume": resume, "can_resume": can_resume, "code": code, "faults": [f.shown() for f in faults]},
                **{"states": [state.get("state") for state in states], "said": year.said()[-300:]},
                "seconds": round(time.time() - year.began, 1),
            }
        )
        found += problems
        if code == EXIT_OK or problems:
            break
        resume = stands is not None and (goes_on or (resume and can_resume))
        if resume and sessions[-1]["resume"] and not can_resume:
            resume = False  # it was tried
    else:
        found.append("it did not end")
    first = year.sites[0].service
    return {
        **{"offer": name, "sessions": sessions, "problems": found},
        **{"first": None if first is None else {"pid": first.pid, **measure(first.pid)}},
    }


def soak(out: Path, months: int, seed: int, sites: int) -> int:
    """Run so many months, after those that stand in `out`; return how many problems there are in all."""
    log = out / "soak.jsonl"
    done = len(log.read_text().splitlines()) if log.exists() else 0
    year = Year(out / "year", sites)
    shutil.rmtree(year.folder, ignore_errors=True)
    year.make()
    truth = Truth()
    bad = 0
    try:
        for number in range(done, months):
            draw = random.Random(f"{seed} {number}")
            name = kinds(sites)[number % len(kinds(sites))]
            month = {"month": number, **run_month(year, truth, name, draw)}
            with log.open("a") as file:
                file.write(json.dumps(month) + "\n")
            if month["problems"]:
                bad += 1
                if bad > _MOST_BAD:
                    break
                keep(year, out / f"problem-{number}")
                print(f"month {number} ({name}):", *month["problems"], sep="\n  ", flush=True)
        for problem in (problem for site in year.sites for problem in check_spent(site)):
            bad += 1
            print(problem, flush=True)
    finally:
        year.close()
    return bad


def keep(year: Year, folder: Path) -> None:
    """Copy what the parties left."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in (year.operator, *(site.folder for site in year.sites), year.folder / "said"):
        shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("ballast"), dirs_exist_ok=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Soak; exit code 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.adversary.soak", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sites", type=int, default=3)
    chosen = parser.parse_args(argv)
    out: Path = chosen.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if _INSIDE not in os.environ:
        os.environ[_INSIDE] = "1"
        words = [sys.executable, "-m", "tests.adversary.soak", *(sys.argv[1:] if argv is None else argv)]
        os.execvp("unshare", ["unshare", "-mnpf", "--mount-proc", "--kill-child", *words])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return int(soak(out, chosen.runs, chosen.seed, chosen.sites) > 0)


if __name__ == "__main__":
    sys.exit(main())
