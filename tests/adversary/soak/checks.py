"""What has to hold after each session of a soak, worked out from what was released and what is on the disks.

- Nothing is left but the driver and the services; those that stay do not grow.
- A ledger only ever gets longer. It holds each release of the rounds that the server has answered, and at most those of
  two more: the round under way, and the next, which is written down ahead.
- The state of an offer, its outcome and its cause are those of the run that ended last: `done` if and only if its
  result is there.
- Exit codes are those of docs/operations.md, "How a run ends", and nobody shows a stack trace.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scipy.optimize import brentq
from scipy.special import log_ndtr

from fastlloyd.errors import EXIT_INPUT, EXIT_OK, EXIT_PEER
from tests.adversary.soak.faults import SIGNALS, Fault
from tests.adversary.soak.parties import DELTA, Site, Year, processes
from tests.forks import HERE

_FORKS = bytes(HERE / "server.py")

_STATES = ("done", "failed", "waits for the server", "offered again")


@dataclass
class Truth:
    """What was released, by run: the server's stored answers, and the reports.

    Attributes
    ----------
    answered : dict
        Rounds that the server has answered.
    kind : dict
        The offer of each run.
    planned : dict
        The releases of a whole run by offer, from the first report.
    included : dict
        By run and round: whose vectors the answer contains, where a report says so.
    hit : dict
        By run: the sites that faults met. With threshold masks the others may have gone on without them.
    lines : dict
        By site: its ledger at the last look.
    """

    answered: dict[str, int] = field(default_factory=dict)
    kind: dict[str, str] = field(default_factory=dict)
    planned: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    included: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    hit: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    lines: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))

    def observe(self, year: Year, hit: set[int]) -> str | None:
        """Read what the server has answered; give the run that stands interrupted at it. `hit`: in this month."""
        before = set(self.answered)
        folder = year.operator / "state" / "server" / "run"
        results = year.operator / "results"
        for path in (*results.glob("*/server.json"), *results.glob("*/report.json")):  # of a server with the result
            content = json.loads(path.read_text())
            self._report(content, path.parent.name == str(year.session), year.name)
        for site in year.sites:
            for path in (site.folder / "results").glob("*/report.json"):
                self._report(json.loads(path.read_text()), False, None)
        run = begun(folder)
        if run is not None:
            self.kind.setdefault(run, year.name)
            answered = len(list(folder.glob("reply-*")))
            self.answered[run] = max(answered, self.answered.get(run, 0))
        for one in (self.answered.keys() - before) | ({run} - {None}):
            self.hit[str(one)] |= hit
        return run

    def _report(self, content: dict[str, Any], new: bool, name: str | None) -> None:
        run = content["run"]
        if new and name is not None:
            self.kind.setdefault(run, name)
        self.answered[run] = max(self.answered.get(run, 0), len(content["rounds"]))
        for entry in content["rounds"]:
            self.included[run, entry["round"]] = entry["clients_included"]
        if "privacy" in content and run in self.kind and self.kind[run] not in self.planned:
            releases: dict[int, list[str]] = defaultdict(list)
            for release in content["privacy"]["releases"]:
                releases[release["round"]].append(release["name"])
            self.planned[self.kind[run]] = dict(releases)


def begun(folder: Path) -> str | None:
    """Return the run of a folder `run/`; None without one."""
    try:
        return str(json.loads((folder / "facts.json").read_bytes().partition(b"\n")[0])["run"])
    except FileNotFoundError:
        return None


def check_ledger(truth: Truth, site: Site) -> list[str]:
    """Compare a site's ledger with what was released; return what is wrong."""
    content = (site.own / "ledger.jsonl").read_bytes()
    lines = content.split(b"\n")[:-1]
    before = truth.lines[site.rank]
    found = [f"site {site.rank}: its ledger is not a longer one than before"] * (lines[: len(before)] != before)
    truth.lines[site.rank] = lines
    held: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    keys: Counter[tuple[str, int, str]] = Counter()
    for line in lines:
        entry = json.loads(line)
        held[entry["run"]][entry["round"]].append(entry["name"])
        keys[entry["run"], entry["round"], entry["name"]] += 1
    found += [f"site {site.rank}: {key} stands {count} times in its ledger" for key, count in keys.items() if count > 1]
    for run, answered in truth.answered.items():
        planned, own = truth.planned.get(truth.kind.get(run, "")), held.get(run, {})
        for t in range(answered):
            inside = truth.included.get((run, t))
            left_out = site.rank in truth.hit[run] and truth.kind[run] == "three"
            needed = site.rank in inside if inside is not None else not left_out
            if needed and not own.get(t):
                found.append(f"site {site.rank}: round {t} of run {run[:8]} was released and is not in its ledger")
        for t, names in own.items():
            if planned is not None and sorted(names) != sorted(planned.get(t, [])):
                found.append(f"site {site.rank}: round {t} of run {run[:8]}: {names}, planned {planned.get(t)}")
        if own and max(own) > answered + 1:
            found.append(
                f"site {site.rank}: run {run[:8]} has {max(own) + 1} rounds in its ledger, answered {answered}"
            )
    for run in held.keys() - truth.answered.keys():
        if max(held[run]) > 1:
            found.append(
                f"site {site.rank}: run {run[:8]}, which the server has not begun, has {len(held[run])} rounds"
            )
    return found


def check_site(year: Year, site: Site, server_code: int | None, faults: list[Fault]) -> list[str]:
    """Compare status and outcome of a site with what is on its disk."""
    found = []
    offer = site.status()["offers"].get(year.name)
    if offer is None:
        return [f"site {site.rank}: {year.name} is not in its status"]
    state, more = offer["state"], offer["more"]
    outcome = site.outcome(year.name)
    if state not in _STATES:
        return [f"site {site.rank}: state {state}: {more}"]
    if (state == "waits for the server") != (outcome is None):
        found.append(f"site {site.rank}: {state}, and the outcome is {outcome}")
    last = json.loads((site.folder / "runs" / "last.json").read_text())
    report = site.folder / "results" / last["output"] / "report.json"
    written = last["name"] == year.name and report.exists() and report.stat().st_mtime >= year.began - 1
    # Once it has written its files, the others may still fail.
    if written and state != "done" and f"its result is in {report.parent}" not in more:
        found.append(f"site {site.rank}: its result is in {report}, and the state is {state}: {more}")
    if server_code == EXIT_OK and not written and not any(fault.rank == site.rank for fault in faults):
        found.append(f"site {site.rank}: the server ended well, no fault met this site, and it has no result: {offer}")
    if state == "done" and outcome is not None:
        place = Path(outcome["said"].removeprefix("results in "))
        if outcome["code"] != EXIT_OK or not (place / "report.json").exists():
            found.append(f"site {site.rank}: done, but {outcome}")
    if state == "failed" and outcome is not None and outcome["code"] not in (EXIT_INPUT, EXIT_PEER):
        found.append(f"site {site.rank}: outcome {outcome}")
    if state == "failed" and (outcome is None or not outcome["said"] or "log says no more" in outcome["said"]):
        found.append(f"site {site.rank}: failed without a cause: {outcome}")
    return found


def check_words(year: Year, code: int | None, faults: list[Fault], resume: bool) -> list[str]:
    """Check the server's code and everybody's words."""
    found = []
    own = [fault for fault in faults if fault.act == "kill the server" and fault.hit]
    full = any(fault.act == "fill a disk" for fault in faults)
    allowed = {EXIT_OK, EXIT_PEER}
    allowed |= {EXIT_INPUT} if full or resume else set()
    allowed |= {-int(fault.number) for fault in own}
    said = year.said()
    if code not in allowed:
        found.append(f"the server ended with {code}: {said[-600:]}")
    if code in (EXIT_INPUT, EXIT_PEER) and "fastlloyd: " not in said:
        found.append(f"the server ended with {code} without a sentence")
    texts = {"the server": said}
    for site in year.sites:
        texts[f"site {site.rank}"] = site.log.read_text(errors="replace")
        path = site.folder / "logs" / f"{year.name}.log"
        texts[f"the run of site {site.rank}"] = path.read_text(errors="replace") if path.exists() else ""
        for one in set(site.codes):
            if one not in (EXIT_OK, *(-number for number in SIGNALS)) and not (full and one == EXIT_INPUT):
                found.append(f"the service of site {site.rank} ended with {one}: {texts[f'site {site.rank}'][-400:]}")
        site.codes.clear()
    found += [f"{who} shows a stack trace" for who, text in texts.items() if "Traceback" in text]
    return found


def check_left(year: Year) -> list[str]:
    """Nothing runs but the services, and the server from which these tests fork."""
    known = {site.service.pid for site in year.sites if site.service is not None}
    left = {pid: words for pid, words in processes().items() if pid not in known and _FORKS not in words[1:2]}
    return [f"left: {pid} {words}" for pid, words in left.items()]


def measure(pid: int) -> dict[str, int]:
    """Return memory in KiB and the number of open files of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    rss = re.search(r"VmRSS:\s+(\d+)", status)
    assert rss is not None
    return {"rss": int(rss[1]), "files": len(list(Path(f"/proc/{pid}/fd").iterdir()))}


def check_spent(site: Site) -> list[str]:
    """`fastlloyd ledger` accepts the ledger, and shows the epsilon of all that stands in it, rounded up."""
    words = [sys.executable, "-m", "fastlloyd", "ledger", str(site.folder / "state"), "--delta", str(DELTA)]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    shown, (least, most) = re.search(r"together epsilon ([0-9.e+]+)", said.stdout), _spent(site.own / "ledger.jsonl")
    if shown is None or not least * (1 - 1e-6) <= float(shown[1]) <= most * 1.001 + 0.001:
        return [f"site {site.rank}: {said.stdout.splitlines()[:2]} {said.stderr}, recomputed: {least} to {most}"]
    return []


def _spent(ledger: Path) -> tuple[float, float]:
    """Compose apart from the package: Gaussian releases exactly, and pure epsilons from not counted to added.

    Source: Balle and Wang, Improving the Gaussian mechanism (2018), Theorem 8: epsilon at `DELTA` of sensitivity mu.
    """
    entries = [json.loads(line) for line in ledger.read_bytes().split(b"\n")[:-1]]
    assert {entry["norm"] for entry in entries} <= {"l1", "l2"}
    gaussian = [entry["noise_multiplier"] for entry in entries if entry["norm"] == "l2"]
    pure = sum(1.0 / entry["noise_multiplier"] for entry in entries if entry["norm"] == "l1")
    least = _gaussian(math.sqrt(sum(each**-2 for each in gaussian)))
    return least, least + pure


def _gaussian(mu: float) -> float:
    """Return epsilon at `DELTA` of a Gaussian release of sensitivity mu and noise 1."""
    if mu == 0.0:
        return 0.0

    def excess(epsilon: float) -> float:
        first = math.exp(float(log_ndtr(mu / 2 - epsilon / mu)))
        return first - math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))) - DELTA

    return float(brentq(excess, 0.0, mu * mu + 50.0 * mu))
