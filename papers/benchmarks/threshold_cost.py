"""What threshold masks cost beside common and pairwise ones: bytes and time of set-up and round, with clients lost.

    python papers/benchmarks/threshold_cost.py [--clients 3 10 50 200] [--profiles lan wan] [--shaped 3 10]
                                               [--output papers/benchmarks/results]

All parties of a run work in one thread, each with a clock for each profile: its work is measured as it is done, in
processor time, and a message arrives the profile's delay after it was sent (`scripts/netem/profiles.toml`; lan and wan limit
no bandwidth). So a time is that of a machine for each party, links up, and it does not depend on how many cores this machine
has. Keys and signatures are real, with a roster. Lost clients say nothing more from round 1 on; the round in which they go
waits for the deadline and is left out, as the medians are over the rounds after it. `--shaped` adds whole runs of real
processes over shaped links (`fastlloyd run --network`, as root) for these numbers of clients, with nobody lost.

Masks are compared in turn, `--repeats` times with up to 10 clients and once with more, and real processes three times.
Run it alone: processes that share caches and cores lengthen the parties' work, and that of threshold masks most.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.link.identity import Identity, make_identity
from fastlloyd.crypto.link.roster import Roster, RosterEntry
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.party.effects import Effect, Gather, Publish, Send
from fastlloyd.run import simulation
from fastlloyd.run.config import RunConfig
from fastlloyd.run.session import Session
from fastlloyd.run.simulation import Simulation, Step
from fastlloyd.wire.header import SERVER, Header, PartyId
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.quiet import begin_quietly

ROOT = Path(__file__).resolve().parents[2]
RECORDS, FEATURES, CLUSTERS, ROUNDS = 20_000, 5, 5, 10
MASKS = ("common", "pairwise", "threshold")
REPEATS = 7
MANY = 10
SHAPED = 3


class Timed(Simulation):
    """A simulation in which every party has a clock for each profile: its own work, and the delays of what it waits for."""

    delays: NDArray[np.float64]
    last: Timed

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        type(self).last = self
        self.clocks = {party: np.zeros_like(self.delays) for party in self._parties}
        self.arrived: dict[tuple[PartyId, PartyId, Header], NDArray[np.float64]] = {}
        self.events: list[tuple[str, NDArray[np.float64]]] = []
        self._began = 0.0

    def _now(self, party: PartyId) -> NDArray[np.float64]:
        return self.clocks[party] + (time.thread_time() - self._began)

    def _go_on(self, party: PartyId, step: Step, results: dict[PartyId, Any]) -> None:
        self._began = time.thread_time()
        super()._go_on(party, step, results)
        self.clocks[party] = self._now(party)

    def _perform(self, party: PartyId, effect: Effect) -> Any:
        if party == SERVER and isinstance(effect, Publish):
            self.events.append((effect.event, self._now(party)))
        return super()._perform(party, effect)

    def _send(self, sender: PartyId, effect: Send) -> None:
        header = Header(effect.message.TYPE, effect.round, effect.step)
        arrives = self._now(sender) + self.delays
        self.arrived.update(((receiver, sender, header), arrives) for receiver in effect.to)
        super()._send(sender, effect)

    def _answer(self, party: PartyId, senders: Sequence[PartyId]) -> Step:
        effect = self._waiting[party]
        header = Header(effect.type.TYPE, effect.round, effect.step)
        times = np.sort([self.arrived[party, sender, header] for sender in senders], axis=0)
        last = effect.at_least if isinstance(effect, Gather) and effect.patience_s == 0.0 else len(times)
        self.clocks[party] = np.maximum(self.clocks[party], times[last - 1])
        return super()._answer(party, senders)


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes of one run; bytes are of all parties together, of messages with their headers."""

    setup_s: float
    round_s: float
    setup_bytes: int
    round_bytes: float


def make_roster(clients: int, folder: Path) -> tuple[list[Identity], Roster]:
    """Return fresh keys of all parties and their roster."""
    made = [make_identity(f"site {rank}", rank) for rank in range(clients + 1)]
    roles = ["server", *["client"] * clients]
    entries = (
        RosterEntry(each.name, role, rank, each.certificate_pem)
        for rank, (each, role) in enumerate(zip(made, roles, strict=True))
    )
    roster = Roster(tuple(entries))
    roster.save(folder / "roster.toml")
    return made, roster


def measure(config: RunConfig, clients: int, lost: int, delays_s: Sequence[float], folder: Path) -> list[Cost]:
    """Run all parties once; return what it costs with each delay."""
    made, roster = make_roster(clients, folder)
    vars(simulation).update(
        Simulation=Timed,
        Session=partial(Session, roster=roster),
        make_identity=lambda name, rank: made[rank],
    )
    Timed.delays = np.array(delays_s)
    gone = range(clients - lost + 1, clients + 1)

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes | None:
        return None if sender.rank in gone and 1 <= header.round < ROUNDS else body

    ended = simulation.run_together(config, clients, tap=tap)
    timed = Timed.last
    closed = np.array([at for name, at in timed.events if name == "round"])
    first = 2 if lost else 1
    rounds_s = np.median(np.diff(closed, axis=0)[first - 1 :], axis=0)
    setup_s = next(at for name, at in timed.events if name == "setup")
    meters = ended.meters.values()
    sent = [count.link_bytes for one in meters for (_, t), count in one.sent.items() if t in range(first, ROUNDS)]
    setup_bytes = sum(one.setup_sent().link_bytes for one in meters)
    return [
        Cost(before, each, setup_bytes, sum(sent) / (ROUNDS - first))
        for before, each in zip(setup_s.tolist(), rounds_s.tolist(), strict=True)
    ]


def configuration(folder: Path, clients: int, masking: str, lost: int) -> RunConfig:
    """Return the public configuration of a run."""
    least = clients - lost if masking == "common" and lost else None
    return RunConfig(
        protocol="fastlloyd",
        dataset=str(folder / "records.csv"),
        bounds="-1,1",
        k=CLUSTERS,
        rounds=ROUNDS,
        epsilon=1.0,
        ring_bits=64,
        masking=masking,
        min_clients=least,
        roster=str(folder / "roster.toml"),
        key="(in memory)",
    )


def cases(clients: int) -> list[tuple[str, int]]:
    """Return masks and numbers of lost clients; pairwise masks lose none."""
    most = Numbers.settle(clients).lost
    found = [("common", 0), ("pairwise", 0)]
    for lost in sorted({0, *(lost for lost in (1, 3) if lost <= most), most}):
        found.append(("threshold", lost))
    return found


def shaped(folder: Path, clients: int, masking: str, profile: str) -> Cost:
    """Run real processes over shaped links."""
    out = folder / f"shaped-{clients}-{masking}-{profile}"
    words = [f"{clients + 1}", "--network", profile, "--masking", masking, "--protocol", "fastlloyd"]
    words += ["--dataset", str(folder / "records.csv"), "--bounds", "-1,1", "--k", f"{CLUSTERS}", "--ring-bits", "64"]
    words += ["--rounds", f"{ROUNDS}", "--output", str(out), "--overwrite", "--quiet"]
    subprocess.run([sys.executable, "-m", "fastlloyd", "run", "-n", *words], check=True, cwd=folder)
    report = json.loads((out / "report.json").read_text())
    seconds = [entry["seconds"] for entry in report["rounds"][1:]]
    traffic = report["traffic"]
    in_rounds = (traffic["link_bytes"] - traffic["setup_bytes"]) / ROUNDS
    return Cost(report["timing"]["setup_seconds"], statistics.median(seconds), traffic["setup_bytes"], in_rounds)


def line(name: str, lost: int | str, costs: Sequence[Cost], base: float) -> str:
    """Return a row of the table: medians."""

    def of(value: str) -> float:
        return float(statistics.median(getattr(cost, value) for cost in costs))

    ratio = of("round_s") / base
    return (
        f"| {name} | {lost} | {of('setup_s'):.3f} | {of('setup_bytes') / 1e3:,.0f} | {1e3 * of('round_s'):.2f} | "
        f"{ratio:.2f} | {of('round_bytes') / 1e3:,.1f} |"
    )


def main() -> None:
    """Measure and write the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, nargs="+", default=[3, 10, 50, 200])
    parser.add_argument("--profiles", nargs="+", default=["lan", "wan"])
    parser.add_argument("--shaped", type=int, nargs="*", default=[])
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--anyway", action="store_true", help="do not wait for a quiet machine: for a try")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    before = 0.0 if given.anyway else begin_quietly()
    profiles = tomllib.loads((ROOT / "scripts" / "netem" / "profiles.toml").read_text())
    head = "| masks | lost | set-up, s | kB in all | a round, ms | over common | kB in a round |\n|---|---:|---:|---:|---:|---:|---:|"
    tables = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        points = np.random.default_rng(0).uniform(-1, 1, (RECORDS, FEATURES))
        names = ",".join(f"x{i + 1}" for i in range(FEATURES))
        np.savetxt(folder / "records.csv", points, delimiter=",", header=names, comments="", fmt="%.6f")
        delays_s = [profiles[profile]["delay_ms"] / 1e3 for profile in given.profiles]
        for clients in given.clients:
            found: dict[tuple[str, int], list[list[Cost]]] = {case: [] for case in cases(clients)}
            for _ in range(given.repeats if clients <= MANY else 1):
                for (masking, lost), costs in found.items():
                    config = configuration(folder, clients, masking, lost)
                    costs.append(measure(config, clients, lost, delays_s, folder))
            for i, profile in enumerate(given.profiles):
                of_profile = {case: [cost[i] for cost in costs] for case, costs in found.items()}
                base = statistics.median(cost.round_s for cost in of_profile["common", 0])
                rows = [head, *(line(*case, costs, base) for case, costs in of_profile.items())]
                tables.append(f"## {clients} clients, {profile}\n\n" + "\n".join(rows) + "\n")
        for profile in given.profiles:
            for clients in given.shaped:
                runs: dict[str, list[Cost]] = {masking: [] for masking in MASKS}
                for _ in range(SHAPED):
                    for masking, of_masks in runs.items():
                        of_masks.append(shaped(folder, clients, masking, profile))
                base = statistics.median(cost.round_s for cost in runs["common"])
                rows = [head, *(line(masking, 0, of_masks, base) for masking, of_masks in runs.items())]
                tables.append(f"## {clients} clients, {profile}, real processes\n\n" + "\n".join(rows) + "\n")
    text = (
        f"# Cost of threshold masks\n\n{describe_machine()}, load before the first run {before:.1f}. "
        "`python papers/benchmarks/threshold_cost.py`: protocol `fastlloyd`, k = d = 5, "
        f"{RECORDS:,} records in all, {ROUNDS} rounds, a roster; medians of {given.repeats} runs, above {MANY} clients of one. Every party "
        "has a machine of its own, whose work is measured; a message takes the profile's delay. With clients lost, a round is one "
        "after they are gone. Bytes are of all parties together. Real processes share this machine.\n\n"
    )
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "threshold_cost.md").write_text(text + "\n".join(tables))
    print(text + "\n".join(tables))


if __name__ == "__main__":
    main()
