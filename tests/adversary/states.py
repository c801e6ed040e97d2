"""State directories that were damaged in every way a disk, a backup or a person can: what `--resume` says to each.

    python -m tests.adversary.states --out FOLDER

A run is interrupted in its third round, its state directories are copied, one file is damaged, and all parties resume
as real processes over TCP. `FOLDER/states.jsonl` holds a line per case.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastlloyd.errors import EXIT_BUG, EXIT_INPUT, EXIT_OK
from tests.adversary.arena import Ended, TcpRun
from tests.adversary.lie import Lie
from tests.adversary.play import PLAYS, Play, build
from tests.adversary.verdict import sentences

# Each protocol's uplink, and a number of rounds where it can be chosen.
CHOSEN = {"fastlloyd": (32, 4), "pairwise": (32, 4), "feddp": (48, None)}
Damage = Callable[[Path, random.Random], None]


def _halved(path: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _short(path: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _random(path: Path, draw: random.Random) -> None:
    path.write_bytes(draw.randbytes(max(1, path.stat().st_size)))


def _swollen(path: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes() * 2 + b"\0")


def _flipped(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def _folder(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path, draw: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _text(text: str) -> Damage:
    return lambda path, draw: path.write_text(text) and None


def _headless(path: Path, draw: random.Random) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[2:]))


def _doubled_line(path: Path, draw: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], *lines]))


ANY: dict[str, Damage] = {
    "empty": _text(""),
    "halved": _halved,
    "a byte short": _short,
    "random bytes": _random,
    "twice as long": _swollen,
    "a bit flipped": _flipped,
    "a folder": _folder,
    "a pipe": _pipe,
    "missing": lambda path, draw: path.unlink(),
}
JSON: dict[str, Damage] = {
    "a list": _text("[]"),
    "null": _text("null"),
    "{}": _text("{}"),
    "deep": _text("[" * 100000),
    "not UTF-8": lambda path, draw: path.write_bytes(b"\xff\xfe{}") and None,
}
LINES: dict[str, Damage] = {
    "without its first lines": _headless,
    "a line twice": _doubled_line,
    "a line of another kind": lambda path, draw: path.write_bytes(path.read_bytes() + b'{"x": NaN}\n') and None,
}


def damages(state: Path) -> Iterator[tuple[str, str, str, Damage]]:
    """Yield every damage: party, file, what is done to it, and how."""
    for party in ("client-1", "server"):
        folder = state / party
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            name = str(path.relative_to(folder))
            kinds = dict(ANY)
            if path.suffix == ".json":
                kinds |= JSON
            if path.suffix == ".jsonl":
                kinds |= LINES
            if "-0" in name:  # rounds of one kind are alike
                continue
            for what, damage in kinds.items():
                yield party, name, what, damage
        yield party, "run/reply-x", "a file of no round", _text("")
        yield party, "run/reply-99", "a file of a later round", _text("")


def facts_of(state: Path) -> Iterator[tuple[str, str, str, Damage]]:
    """Yield changes to single values of the public facts."""
    for party in ("client-1", "server"):
        path = state / party / "run" / "facts.json"
        for key in json.loads(path.read_bytes().partition(b"\n")[2]):
            for text in ("null", "-1", "NaN", '"x"', "[]"):
                yield party, "run/facts.json", f"{key}: {text}", _value(key, text)


def _value(key: str, text: str) -> Damage:
    def damage(path: Path, draw: random.Random) -> None:
        label, _, body = path.read_bytes().partition(b"\n")
        rest = {name: value for name, value in json.loads(body).items() if name != key}
        changed = (json.dumps(rest)[:-1] + f', "{key}": {text}}}').encode()
        fitting = {**json.loads(label), "digest": hashlib.sha256(changed).hexdigest()}
        path.write_bytes(json.dumps(fitting).encode() + b"\n" + changed)

    return damage


def with_state(play: Play, state: Path, *, resume: bool) -> Play:
    """Return a play with a state directory."""
    _, rounds = CHOSEN[play.name]
    chosen = ["--resume" if resume else "--new-state", *([] if rounds is None else ["--rounds", str(rounds)])]
    return replace(play, flags=(*play.flags, *chosen, "--state-dir", str(state)))


def interrupt(play: Play, stage: Path, folder: Path) -> Path:
    """Run until client 2 dies before its third update; give the state directories."""
    state = folder / "state"
    uplink, _ = CHOSEN[play.name]
    lie = Lie(rank=2, act="die", type=uplink, nth=2)
    ended = TcpRun(with_state(play, state, resume=False), stage, folder / "run", lie=lie).run()
    if len(ended.told) != 1 or EXIT_OK in ended.codes:
        raise RuntimeError(f"the run was not interrupted: {ended}")
    return state


def resume(play: Play, stage: Path, state: Path, folder: Path, damage: tuple[str, str, str, Damage]) -> Ended:
    """Resume from a damaged copy."""
    party, name, what, apply = damage
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(state, copy)
    apply(copy / party / name, random.Random(f"{party} {name} {what}"))
    return TcpRun(with_state(play, copy, resume=True), stage, folder / "resumed", lie=None).run()


def line(play: str, damage: tuple[str, str, str, Damage], ended: Ended) -> dict[str, Any]:
    """Return what is kept of a case, with what is wrong about it."""
    said = {rank: sentences(text)[:2] for rank, text in enumerate(ended.said)}
    codes = set(ended.codes)
    faults = [
        *(["bug"] if EXIT_BUG in codes else []),
        *(["hang"] if None in codes or ended.left else []),
        *(["crash"] if any(code is not None and code < 0 for code in codes) else []),
        *(["trace"] if any("Traceback" in text for text in ended.said) else []),
        # A file that is not needed, or is sent again by its owner, may be missing.
        *(["neither done nor refused"] if codes not in ({EXIT_OK}, {EXIT_INPUT}) else []),
        *(["no sentence"] if codes != {EXIT_OK} and not any(said.values()) else []),
    ]
    party, name, what, _ = damage
    return {
        "play": play,
        "party": party,
        "file": name,
        "damage": what,
        "codes": ended.codes,
        "said": said,
        "faults": faults,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Damage, resume, count; exit code 1 if any case went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.adversary.states", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plays", nargs="*", default=list(CHOSEN), choices=list(CHOSEN))
    parser.add_argument("--most", type=int, default=40, help="cases of each protocol")
    chosen = parser.parse_args(argv)
    out: Path = chosen.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    build(out / "stage")
    kept = []
    for name in chosen.plays:
        play = PLAYS[name]
        shutil.rmtree(out / name, ignore_errors=True)
        state = interrupt(play, out / "stage", out / name)
        every = [*damages(state), *facts_of(state)]
        random.Random(1).shuffle(every)
        for damage in every[: chosen.most]:
            kept.append(line(name, damage, resume(play, out / "stage", state, out / name, damage)))
            if kept[-1]["faults"]:
                print(json.dumps(kept[-1]), flush=True)
    (out / "states.jsonl").write_text("".join(json.dumps(each) + "\n" for each in kept))
    print(len(kept), "damaged states;", dict(Counter(str(each["codes"]) for each in kept)))
    print("faults:", dict(Counter(fault for each in kept for fault in each["faults"])))
    return int(any(each["faults"] for each in kept))


if __name__ == "__main__":
    sys.exit(main())
