"""Every value that a server sends, replaced by extremes, in whole runs: in memory, over TCP, and under mpirun.

Of what an honest run sent a message of the server is drawn, then a place in it, then what stands there instead: in JSON
another value, elsewhere a number of 1 to 8 bytes. No honest party may end with code 70 or not at all, and where the
bytes say who sent them, the server is named.

    python -m tests.adversary.values --transport memory --values 2000 --seed 1
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from fastlloyd.errors import FastLloydError, InternalError
from fastlloyd.run.simulation import Tap, run_together
from fastlloyd.wire.header import SERVER, Header, PartyId
from tests.adversary.arena import record
from tests.adversary.campaign import Case, run_all, table
from tests.adversary.lie import Lie, Teller
from tests.adversary.mutate import HEADER_BYTES, LEAVES, is_document, paths
from tests.adversary.plans import MORE, Hung, build, no_longer_than, of_play
from tests.adversary.play import PLAYS

NUMBERS = (
    *("0", "1", "-1", "2", str(2**31), str(2**31 - 1), str(2**53), str(2**53 + 1), str(2**63), str(2**64)),
    *("1" + "0" * 30, "1e308", "-1e308", "1e-300", "5e-324", "-0.0", "0.5", "1e18", "NaN", "Infinity"),
)
_KINDS = ("<u1", "<u2", "<u4", "<i4", "<u8", "<i8", "<f4", "<f8")
_REALS = (0.0, 1.0, -1.0, 2.0**31, 2.0**53, 1e30, 5e-324, 1e308, -1e308, np.nan, np.inf, -np.inf)
_HANG_S = 60
Sent = dict[int, list[bytes]]
"""Frames of the server by their type."""


def server_frames(name: str, stage: Path, folder: Path | None) -> Sent:
    """Run honestly, in memory or in a folder over TCP, and keep the first three frames of each type of the server."""
    sent: Sent = defaultdict(list)

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if sender == SERVER:
            sent[header.type].append(header.encode() + body)
        return body

    if folder is None:
        config, clients = of_play(name, stage)
        run_together(config, clients, tap=tap)
    else:
        for line in record(PLAYS[name], stage, folder):
            if line["rank"] == 0:
                sent[line["frame"][0]].append(line["frame"])
    return {type_: frames[:3] for type_, frames in sent.items() if len(frames[0]) > HEADER_BYTES}


def draw_value(sent: Sent, seed: int) -> Lie:
    """Draw one value of one message, and what takes its place for all receivers."""
    draw = random.Random(seed)
    type_ = draw.choice(sorted(sent))
    body = draw.choice(sent[type_])[HEADER_BYTES:]
    if is_document(body):
        places = paths(json.loads(body))
        place = draw.choice(places) if places else ("x",)
        text = draw.choice(NUMBERS if draw.random() < 0.75 else LEAVES)
        what, value = f"{'.'.join(map(str, place))} = {text[:20]}", (place, text)
        return Lie(rank=0, act="leaf", type=type_, value=value, seed=seed, name=f"{type_} {what}")
    kind = np.dtype(draw.choice([kind for kind in _KINDS if np.dtype(kind).itemsize <= len(body)]))
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            number = np.array([draw.choice(_REALS)]).astype(kind).tobytes()
    else:
        number = (draw.choice([int(text) for text in NUMBERS[:11]]) % (1 << 8 * kind.itemsize)).to_bytes(
            kind.itemsize, "little"
        )
    front, size = draw.random() < 0.3, kind.itemsize
    place = 0 if front else size * draw.randrange(len(body) // size)
    name = f"{type_} byte {place} = {number.hex()}"
    return Lie(rank=0, act="put", type=type_, value=(place, number.hex()), seed=seed, provable=False, name=name)


def teller_tap(lie: Lie) -> tuple[Tap, list[int]]:
    """Return what tells a lie in memory, and the list of who heard it."""
    teller, told = Teller(lie), list[int]()

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if sender.rank != lie.rank:
            return body
        (frame,) = teller.frames(receiver.rank, header.type, header.encode() + body, HEADER_BYTES, lambda raw: None)
        if frame[HEADER_BYTES:] != body:
            told.append(receiver.rank)
        return frame[HEADER_BYTES:]

    return tap, told


def in_memory(name: str, stage: Path, lie: Lie) -> tuple[str, bool]:
    """Tell a lie in a run in memory; return what came of it, 'fault: ..' if it must not, and whether it was told."""
    config, clients = of_play(name, stage)
    tap, told = teller_tap(lie)
    try:
        with no_longer_than(_HANG_S), np.errstate(all="raise", under="ignore"):
            run_together(config, clients, tap=tap)
    except InternalError as error:
        # A wait that nobody serves ends by a deadline in a real run.
        return ("silence" if "nothing is under way" in str(error) else f"fault: {error!r}"), bool(told)
    except FastLloydError as error:
        wrong = lie.provable and getattr(error, "rank", 0) not in (0, None)
        return (f"fault: {error!r} names another" if wrong else type(error).__name__), bool(told)
    except (Exception, Hung) as error:
        return f"fault: {error!r}", bool(told)
    return "done", bool(told)


def campaign_in_memory(plays: Sequence[str], stage: Path, values: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Change values in whole runs in memory, protocol after protocol; return what came of them, and faults."""
    sent = {play: server_frames(play, stage, None) for play in plays}
    ends, faults = Counter[str](), []
    for number, play in enumerate(islice(cycle(plays), values)):
        lie = draw_value(sent[play], seed + number)
        end, told = in_memory(play, stage, lie)
        if told:
            ends[f"{play} {end.partition(':')[0]}"] += 1
        if end.startswith("fault"):
            faults.append(f"{seed + number} {play} {lie.name}: {end[:300]}")
    return ends, faults


def campaign_of_processes(
    transport: str, plays: Sequence[str], stage: Path, out: Path, values: int, seed: int, workers: int = 1
) -> list[dict[str, Any]]:
    """Change values in runs of real processes; return what is kept of each."""
    sent = {play: server_frames(play, stage, out / "rehearsal") for play in plays}
    lies = [(play, draw_value(sent[play], seed + at)) for at, play in enumerate(islice(cycle(plays), values))]
    # A number that no multiple of four follows by one has no roster.
    cases = [Case(4 * at, play, transport, "drawn", lie) for at, (play, lie) in enumerate(lies)]
    return run_all(cases, out, stage, workers)


def main() -> int:
    """Run the campaign, print what came of it, and return 1 after a fault."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--transport", choices=("memory", "tcp", "mpi"), default="memory")
    options.add_argument("--values", type=int, default=2000)
    options.add_argument("--seed", type=int, default=1, help="of the first value; each next has the next one")
    options.add_argument("plays", nargs="*", default=None)
    chosen = options.parse_args()
    plays = chosen.plays or [*PLAYS, *(MORE if chosen.transport == "memory" else ())]
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder, "stage")
        build(stage)
        if chosen.transport == "memory":
            ends, faults = campaign_in_memory(plays, stage, chosen.values, chosen.seed)
            print(*(f"{end}: {count}" for end, count in sorted(ends.items())), sep="\n")
            print(f"{ends.total()} values", *faults, f"{len(faults)} faults", sep="\n")
            return int(bool(faults))
        kept = campaign_of_processes(chosen.transport, plays, stage, Path(folder), chosen.values, chosen.seed)
    print(table(kept))
    wrong = [each for each in kept if each["faults"]]
    for each in wrong:
        print(json.dumps({name: each[name] for name in ("play", "lie", "codes", "said", "faults")}))
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
