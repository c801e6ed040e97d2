"""Every value of every protocol's plan, changed, as the honest client checks it.

A client receives the plan from the server, or from the party that coordinates. Each value of a plan that a run has
really proposed is replaced by others, extremes above all, and the client's own check decides. It accepts the plan or
names the server, soon; whatever else comes out is a fault. What it accepts is proposed in a whole run in memory.

    python -m tests.adversary.plans --values 20000
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from fastlloyd.cli.options import parse_run_options
from fastlloyd.client import parser
from fastlloyd.errors import FastLloydError, InternalError, PeerError
from fastlloyd.lifecycle.hello import PlanProposal
from fastlloyd.run import checks
from fastlloyd.run.config import RunConfig
from fastlloyd.run.session import Session
from fastlloyd.run.simulation import run_together
from fastlloyd.wire.header import Header, PartyId
from tests.adversary.play import PLAYS, Play
from tests.adversary.play import build as build_sites

WHOLE = (0, 1, -1, 2, 2**31, 2**31 - 1, 2**53, 2**53 + 1, 2**63, 2**64, 10**30, 10**400)
REAL = (0.0, -0.0, 1e-300, 5e-324, 1e-9, 0.5, 3.0, 1e18, 1e308, -1e308)
ODD: tuple[Any, ...] = (None, True, False, "", "x", "\ud800", [], {}, [[]], [None], {"a": 1})
_MODULES = ("run.horizontal", "protocols.vertical_dp.protocol", "protocols.vertical_he.protocol")
_HANG_S = 20

_HE = (
    *("--protocol", "vertical-he", "--bounds", "STAGE/he_bounds_{client}.csv", "--n-total", "200", "--epsilon", "4"),
    *("--rounds", "2", "--workers", "1", "--k", "2", "--deadline", "60"),
)
_PLUS = ("--protocol", "fastlloyd-plus", "--bounds", "0,100", "--n-total", "200", "--epsilon", "5")
_FEDDP = ("--protocol", "feddp", "--bounds", "0,100", "--n-total", "200", "--epsilon", "1")
_VDP = ("--protocol", "vertical-dp", "--bounds", "STAGE/bounds_{client}.csv", "--n-total", "200", "--epsilon", "2")
_COLUMNS, _SITES, _SERVER = "he_columns_{client}.csv", "site_{client}.csv", ("--server-data", "STAGE/site_0.csv")
MORE = {
    play.name: play
    for play in (
        Play("he-aided", 2, (*_HE, "--set", "vertical-he.scheme=pairwise"), _COLUMNS),
        Play("he-threshold", 2, (*_HE, "--set", "vertical-he.mode=threshold"), _COLUMNS),
        Play(
            "he-two-of-three",
            2,
            (*_HE, "--set", "vertical-he.mode=threshold", "--set", "vertical-he.threshold=2"),
            _COLUMNS,
        ),
        Play("plus-auto", 2, (*_PLUS, "--k", "auto:5"), _SITES),
        Play("plus-pairwise", 3, (*_PLUS, "--k", "3", "--masking", "pairwise"), _SITES),
        Play("feddp-auto", 3, (*_FEDDP, "--k", "auto:4"), _SITES, server=_SERVER),
        Play("feddp-private", 3, (*_FEDDP, "--k", "3", "--set", "feddp.start=private"), _SITES),
        Play(
            "vertical-dp-basic",
            2,
            (*_VDP, "--k", "3", "--set", "vertical-dp.weights=basic", "--set", "vertical-dp.share_result=true"),
            "columns_{client}.csv",
        ),
    )
}
"""Modes that the campaign of real processes does not play."""

Place = tuple[Any, ...]
Check = Callable[[Mapping[str, Any]], object]


class Caught(Exception):
    """The run has come to the check of the plan, and that is enough."""


class Hung(BaseException):
    """A check takes too long."""


@dataclass
class Tally:
    """What came of the changed plans of one play."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    accepted: list[tuple[Place, Any]] = field(default_factory=list)
    slowest_s: float = 0.0


def build(stage: Path) -> None:
    """Write everybody's records and bounds, with a third party's for the modes of more than two."""
    build_sites(stage)
    text = (stage / "he_columns_1.csv").read_text()
    (stage / "he_columns_2.csv").write_text(text.replace("id,y", "id,z"))
    (stage / "he_bounds_2.csv").write_text("feature,lo,hi\nz,0,100\n")


def of_play(name: str, stage: Path) -> tuple[RunConfig, int]:
    """Return a configuration that holds for all parties of a play in one process, and the number of clients."""
    play = (PLAYS | MORE)[name]
    words = [word.replace("STAGE", str(stage)) for word in (*play.flags, *play.server)]
    config, _ = parse_run_options(parser(), [*words, "--data", str(stage / play.data)])
    return config, play.clients


def proposed(config: RunConfig, clients: int) -> tuple[dict[str, Any], Check]:
    """Run until a client checks the plan; return the plan, and the check."""
    caught: list[tuple[dict[str, Any], Check]] = []

    def accept(session: Session, values: Mapping[str, Any], read: Check) -> object:
        def check(changed: Mapping[str, Any]) -> object:
            return checks.accept_plan(session, changed, read)

        caught.append((json.loads(json.dumps(values)), check))
        raise Caught

    with ExitStack() as stack:
        for module in _MODULES:
            stack.enter_context(mock.patch(f"fastlloyd.{module}.accept_plan", accept))
        with suppress(Caught):
            run_together(config, clients)
    return caught[0]


def places(value: Any, where: Place = ()) -> Iterator[Place]:
    """Yield the way to each value: of a list, to the first two and the last."""
    if where:
        yield where
    if isinstance(value, dict):
        for name in value:
            yield from places(value[name], (*where, name))
    elif isinstance(value, list):
        for at in sorted({0, 1, len(value) - 1} & set(range(len(value)))):
            yield from places(value[at], (*where, at))


def others(value: Any) -> list[Any]:
    """Return what takes a value's place."""
    found: list[Any] = [*WHOLE, *REAL, *ODD]
    if isinstance(value, bool):
        found.append(not value)
    elif isinstance(value, int):
        found += [float(value), value + 1, value - 1, 2 * value, 1000 * value, -value]
    elif isinstance(value, float):
        found += [2 * value, value / 2, value * 1.0000001, value * 0.9999999, -value, value * 1e-6, value * 1e6]
    elif isinstance(value, list):
        found += [value[:-1], value + value[-1:], value[::-1], value * 50, value * 1000]
    elif isinstance(value, str):
        found += [f"{value}x", value.upper(), value * 1000]
    return found


def changed(plan: Mapping[str, Any], where: Place, value: Any) -> dict[str, Any]:
    """Return a plan with another value in one place; `Caught` in its place takes it out."""
    made = copy.deepcopy(dict(plan))
    inner: Any = made
    for step in where[:-1]:
        inner = inner[step]
    if value is Caught:
        del inner[where[-1]]
    else:
        inner[where[-1]] = value
    return made


def changes(plan: Mapping[str, Any]) -> list[tuple[Place, Any]]:
    """Return all changes of a plan."""
    made: list[tuple[Place, Any]] = []
    for where in places(plan):
        inner: Any = plan
        for step in where:
            inner = inner[step]
        made += [(where, value) for value in others(inner)]
        made += [(where, Caught)] if isinstance(where[-1], str) else []
    return made


@contextmanager
def no_longer_than(seconds: int) -> Iterator[None]:
    """Raise `Hung` in the main thread."""

    def ring(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fuzz(name: str, stage: Path, most: int, draw: random.Random) -> Tally:
    """Let a client check changed plans of one play."""
    config, clients = of_play(name, stage)
    plan, check = proposed(config, clients)
    tally, whole = Tally(), json.dumps(plan)
    made = changes(plan)
    for where, value in draw.sample(made, min(most, len(made))):
        other = changed(plan, where, value)
        if json.dumps(other) == whole:
            continue
        begun, what = time.monotonic(), f"{name} {'.'.join(map(str, where))} = {str(value)[:60]}"
        try:
            with no_longer_than(_HANG_S), np.errstate(all="raise", under="ignore"):
                check(other)
        except PeerError as error:
            tally.outcomes["refused"] += 1
            if error.rank != 0 or len(str(error)) > 4000:
                tally.faults.append(f"{what}: rank {error.rank}, {len(str(error))} characters")
        except Hung:
            tally.faults.append(f"{what}: no answer in {_HANG_S} s")
        except Exception as error:
            tally.faults.append(f"{what}: {error!r}")
        else:
            tally.outcomes["accepted"] += 1
            tally.accepted.append((where, value))
        tally.slowest_s = max(tally.slowest_s, time.monotonic() - begun)
    return tally


def run_with(name: str, stage: Path, where: Place, value: Any) -> str:
    """Propose a changed plan to all clients of a run in memory; return what came of it, 'fault: ..' if it must not."""
    config, clients = of_play(name, stage)

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type != PlanProposal.TYPE:
            return body
        proposal = json.loads(body)
        proposal["plan"] = changed(proposal["plan"], where, value)
        return json.dumps(proposal).encode()

    try:
        with no_longer_than(6 * _HANG_S):
            run_together(config, clients, tap=tap)
    except InternalError as error:
        return f"fault: {error!r}"
    except FastLloydError as error:
        # Only what clients received was changed, so they may name nobody else. What the server says does not count:
        # in a real run it is the one that lies.
        calls = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
        right = "serve" in calls or getattr(error, "rank", None) == 0
        return f"{type(error).__name__}" if right else f"fault: {error!r}"
    except (Exception, Hung) as error:
        return f"fault: {error!r}"
    return "done"


def main() -> int:
    """Run the campaign, print its counts, and return 1 after a fault."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--values", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--runs", type=int, default=5, help="whole runs of accepted plans, of each play")
    options.add_argument("plays", nargs="*", default=[*PLAYS, *MORE])
    chosen = options.parse_args()
    draw, total = random.Random(chosen.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder)
        build(stage)
        for name in chosen.plays:
            tally = fuzz(name, stage, chosen.values, draw)
            ends = Counter[str]()
            for where, value in draw.sample(tally.accepted, min(chosen.runs, len(tally.accepted))):
                end = run_with(name, stage, where, value)
                ends[end.partition(":")[0]] += 1
                if end.startswith("fault"):
                    tally.faults.append(f"{name} {where} = {value!r} in a whole run: {end}")
            print(name, dict(tally.outcomes), f"slowest {tally.slowest_s:.2f} s", dict(ends), flush=True)
            for fault in tally.faults:
                print("  FAULT", fault[:400], flush=True)
            total += tally.outcomes
            total["faults"] += len(tally.faults)
            total["whole runs"] += sum(ends.values())
    print("in all:", dict(total))
    return int(total["faults"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
