"""The campaign: thousands of hostile messages in real runs, each judged from outside.

    python -m tests.adversary.campaign --cases 2000 --mpi 200 --workers 1 --out FOLDER

Every case is one run of real processes in which one party changes one message (or a few of a kind). Directed lies come
first, then drawn ones until each protocol has its share. `FOLDER/cases.jsonl` holds a line per case, `FOLDER/table.md`
the counts; `--only NUMBER` runs a case again and shows what everybody said.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from tests.adversary import mpi
from tests.adversary.arena import Ended, TcpRun, record
from tests.adversary.directed import directed
from tests.adversary.drawn import Sent, draw_lie, material
from tests.adversary.lie import Lie
from tests.adversary.mutate import HEADER_BYTES
from tests.adversary.play import PLAYS, build
from tests.adversary.relay import HUB_ACTS, WIRE_ACTS, Wire, hostile_hub, make_roster
from tests.adversary.verdict import FAULTS, judge, sentences

PLAN_TYPE = 9
_CODES = (0, 2, 3, 4, 70)
# Their clients say nothing to each other.
UNLINKED = ("fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "lloyd", "fewer")
NAMES = ("operator", "clinic north", "clinic south", "clinic west", "clinic east")


@dataclass(frozen=True)
class Case:
    """One run of the campaign."""

    number: int
    play: str
    transport: str
    kind: str
    lie: Lie

    @property
    def liar(self) -> int | None:
        """Which party lies; None for the network."""
        return None if self.kind == "wire" else self.lie.rank

    @property
    def rostered(self) -> bool:
        """Whether the parties have a roster: relays are of no use without, of the other runs every fourth has one."""
        return self.kind in ("hub", "wire") or (self.transport == "tcp" and self.number % 4 == 1)


def rehearse(stage: Path, folder: Path, plays: Sequence[str]) -> dict[str, list[Sent]]:
    """Run every protocol honestly once and keep what was sent."""
    return {play: material(record(PLAYS[play], stage, folder)) for play in plays}


def plan_of(sent: Sequence[Sent]) -> dict[str, Any]:
    """Return the honest plan message of a rehearsal."""
    frame = next(each.frames[0][1] for each in sent if each.type == PLAN_TYPE)
    plan: dict[str, Any] = json.loads(frame[HEADER_BYTES:])
    return plan


def cases(sent: dict[str, list[Sent]], tcp: int, mpi_cases: int, seed: int) -> list[Case]:
    """Lay out the campaign: over each transport half directed lies, half drawn ones."""
    told = [(play, lie) for play in sent for lie in directed(play, plan_of(sent[play]))]
    random.Random(seed).shuffle(told)
    planned = [("tcp", "directed", play, lie) for play, lie in told[: tcp // 2]]
    planned += _relayed(sent, tcp // 20, seed)
    planned += _drawn(sent, "tcp", tcp - len(planned), seed)
    apart = [("mpi", "directed", play, lie) for play, lie in reversed(told)][: mpi_cases // 2]
    planned += apart + _drawn(sent, "mpi", mpi_cases - len(apart), seed + 10**6)
    return [Case(i, play, transport, kind, lie) for i, (transport, kind, play, lie) in enumerate(planned)]


def _drawn(sent: dict[str, list[Sent]], transport: str, count: int, seed: int) -> list[tuple[str, str, str, Lie]]:
    """Draw lies, protocol after protocol."""
    found: list[tuple[str, str, str, Lie]] = []
    for play in islice(cycle(sent), max(0, count)):
        seed += 1
        found.append((transport, "drawn", play, draw_lie(sent[play], seed, slow=transport == "tcp")))
    return found


def read_cases(path: Path) -> list[Case]:
    """Read cases from a file: a list of {play, transport, kind, lie}."""
    listed = json.loads(path.read_text())
    told = [Lie.from_json(json.dumps(each["lie"])) for each in listed]
    return [
        Case(i, each["play"], each["transport"], each["kind"], lie)
        for i, (each, lie) in enumerate(zip(listed, told, strict=True))
    ]


def _relayed(sent: dict[str, list[Sent]], count: int, seed: int) -> list[tuple[str, str, str, Lie]]:
    """Lies of whoever stands between: the forwarding hub, and the network in front of it."""
    found: list[tuple[str, str, str, Lie]] = []
    several = [play for play in sent if PLAYS[play].clients > 1]
    linked = cycle(play for play in several if play not in UNLINKED)
    for number, play in enumerate(islice(cycle(several), count)):
        kind = "wire" if number % 3 == 0 else "hub"
        if kind == "hub":
            play = next(linked)
        act = random.Random(seed + number).choice(WIRE_ACTS if kind == "wire" else HUB_ACTS)
        lie = Lie(rank=0, act=act, type=0, seed=seed + number, provable=False, name=f"{kind}, {act}, {number}")
        found.append(("tcp", kind, play, lie))
    return found


def perform(case: Case, stage: Path, folder: Path) -> Ended:
    """Run one case."""
    play, lie, told = PLAYS[case.play], case.lie, folder / "told.jsonl"
    if case.transport == "mpi":
        return mpi.run(play, stage, folder, lie)
    roster = stage / f"roster-{play.clients}" if case.rostered else None
    if case.kind == "hub":
        return TcpRun(play, stage, folder, prepare={0: hostile_hub(lie.act, lie.seed, told)}, roster=roster).run()
    if case.kind == "wire":
        wire = Wire(lie.act, lie.seed, told)
        try:
            return TcpRun(play.hurried(), stage, folder, between=wire.between, roster=roster).run()
        finally:
            wire.stop()
    return TcpRun(play, stage, folder, lie=lie, roster=roster).run()


def line(case: Case, ended: Ended) -> dict[str, Any]:
    """Return what is kept of a case."""
    lie = case.lie
    names = NAMES if case.rostered else None
    found = judge(ended, case.liar, provable=lie.provable, equivocates=lie.equivocates, names=names)
    honest = [rank for rank in range(len(ended.codes)) if rank != case.liar]
    return {
        "case": case.number,
        "play": case.play,
        "liar": case.liar,
        "roster": case.rostered,
        "transport": case.transport,
        "kind": case.kind,
        "lie": json.loads(lie.to_json()),
        "told": len(ended.told),
        "codes": ended.codes,
        "seconds": round(ended.seconds, 2),
        "left": ended.left,
        "results": [list(names) for names in ended.results],
        "said": {rank: sentences(ended.said[rank])[:3] for rank in honest},
        "faults": [name for name in FAULTS if found[name]],
    }


def work(mine: Sequence[Case], stage: Path, folder: Path, out: Path) -> None:
    """Run cases one after the other."""
    for case in mine:
        kept = line(case, perform(case, stage, folder))
        with out.open("a") as file:
            file.write(json.dumps(kept) + "\n")
        if kept["faults"]:
            print(case.number, case.play, case.transport, case.lie.name, kept["codes"], kept["faults"], flush=True)


def run_all(chosen: Sequence[Case], out: Path, stage: Path, workers: int) -> list[dict[str, Any]]:
    """Run all cases, shared among forked workers."""
    pids = []
    for worker in range(workers):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                work(chosen[worker::workers], stage, out / f"run-{worker}", out / f"cases-{worker}.jsonl")
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    failed = [pid for pid in pids if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]
    if failed:
        raise RuntimeError(f"{len(failed)} of {workers} workers failed")
    return sorted(load(out), key=lambda kept: kept["case"])


def load(out: Path) -> list[dict[str, Any]]:
    """Read what all workers kept."""
    return [json.loads(text) for path in sorted(out.glob("cases-*.jsonl")) for text in path.read_text().splitlines()]


def table(kept: Sequence[dict[str, Any]]) -> str:
    """Count runs, hostile messages, exits by code and faults: by protocol and transport, then by kind of lie.

    A run that ended before its lie could be told is not counted.
    """
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    kinds: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for each in (each for each in kept if each["told"]):
        groups[each["play"], each["transport"]].append(each)
        kinds[(each["kind"],)].append(each)
    return _table(("protocol", "transport"), groups) + "\n" + _table(("lies",), kinds)


def _table(heads: tuple[str, ...], groups: dict[tuple[str, ...], list[dict[str, Any]]]) -> str:
    """Write one table, with a last row of all."""
    columns = [
        *heads,
        "runs",
        "messages",
        *(f"exit {code}" for code in _CODES),
        *(name.replace("_", " ") for name in FAULTS),
    ]
    rows = [[*key, *_count(group)] for key, group in sorted(groups.items())]
    rows.append(["all", *[""] * (len(heads) - 1), *_count([each for group in groups.values() for each in group])])
    rule = ["---"] * len(heads) + ["---:"] * (len(columns) - len(heads))
    return "".join(f"| {' | '.join(map(str, row))} |\n" for row in [columns, rule, *rows])


def _count(group: Sequence[dict[str, Any]]) -> list[int]:
    """Count runs, changed messages, agreed exit codes of the honest, faults."""
    codes = Counter(_agreed(each) for each in group)
    faults = Counter(name for each in group for name in each["faults"])
    told = sum(each["told"] for each in group)
    return [len(group), told, *(codes[code] for code in _CODES), *(faults[name] for name in FAULTS)]


def _agreed(kept: dict[str, Any]) -> int | None:
    """Return the worst exit code among the honest parties."""
    codes = [code for rank, code in enumerate(kept["codes"]) if rank != kept["liar"] and code is not None]
    return max(codes, default=None)


def show(case: Case, ended: Ended) -> None:
    """Print one case in full."""
    print(json.dumps(line(case, ended), indent=1))
    for rank, text in enumerate(ended.said):
        print(f"--- rank {rank}{' (the liar)' if rank == case.lie.rank else ''}: {ended.codes[rank]}\n{text}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; exit code 1 if any case went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.adversary.campaign", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="runs over TCP")
    parser.add_argument("--mpi", type=int, default=200, help="runs under mpirun")
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--plays", nargs="*", default=list(PLAYS), choices=list(PLAYS))
    parser.add_argument("--only", type=int, nargs="*", help="run these cases and show them")
    parser.add_argument("--listed", type=Path, help="run the cases of this JSON file instead")
    parser.add_argument("--match", default="", help="only lies whose name holds this text")
    parser.add_argument("--count", action="store_true", help="only count what lies in --out")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args(argv)
    out: Path = chosen.out.resolve()
    if chosen.count:
        print(table(load(out)))
        return 0
    out.mkdir(parents=True, exist_ok=True)
    build(out / "stage")
    for count in sorted({PLAYS[play].clients for play in chosen.plays}):
        make_roster(out / "stage" / f"roster-{count}", NAMES[: count + 1])
    if chosen.listed is not None:
        planned = read_cases(chosen.listed)
    else:
        sent = rehearse(out / "stage", out / "rehearsal", chosen.plays)
        planned = [case for case in cases(sent, chosen.cases, chosen.mpi, chosen.seed) if chosen.match in case.lie.name]
    random.Random(chosen.seed).shuffle(planned)
    if chosen.only is not None:
        for case in planned:
            if case.number in chosen.only:
                show(case, perform(case, out / "stage", out / "only"))
        return 0
    started = time.monotonic()
    for path in out.glob("cases-*.jsonl"):
        path.unlink()
    kept = run_all(planned, out, out / "stage", chosen.workers)
    text = table(kept)
    (out / "table.md").write_text(text)
    print(text + f"{len(kept)} runs in {time.monotonic() - started:.0f} s")
    return int(any(each["faults"] for each in kept))


if __name__ == "__main__":
    sys.exit(main())
