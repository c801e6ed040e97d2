"""Parties killed at random moments, alone or together, and the run resumed until it ends: nothing is paid for twice.

    python -m tests.adversary.kills --out FOLDER --kills 100

A killed party dies by SIGKILL at a random time, or at a random one of its messages or disk synchronisations, just
before or just after it. Then all parties resume, and may be killed again. At the end it is checked that

- whatever the crash left was accepted, if all parties had begun the run;
- each ledger holds each release once, those of the uninterrupted run, and the report the same epsilon; the ledger of
  whoever died in the session in which the others came to the result may end earlier;
- no party ever sent two messages of one kind and round that differ, over all resumes: no fresh noise, no second vector
  under a mask, no second set with threshold masks. The comparison at the end is none of a round: its tags are bytes of
  a stream whose key is made of the common seed and of all that was heard, and in a resumed session the server says how
  many rounds it has closed. Votes are about the session, and the server passes on those of whoever was fastest;
- who ended well has a result;
- without noise (`lloyd`, `kfed`) the centres are those of an uninterrupted run.

`FOLDER/kills.jsonl` holds a line per run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastlloyd.errors import EXIT_BUG, EXIT_INPUT, EXIT_OK
from fastlloyd.lifecycle.threshold.messages import SetVote, SetVotes
from fastlloyd.wire.header import COMPARE_ROUND, FINAL_ROUND, SETUP_ROUND, Header
from tests.adversary.arena import Ended, TcpRun
from tests.adversary.play import PLAYS, Play, build

CHOSEN = {
    **{"fastlloyd": 4, "fastlloyd-plus": 4, "pairwise": 4, "threshold": 4, "feddp-threshold": None},
    **{"lloyd": 4, "feddp": None, "kfed": None},
}
"""The protocols that resume, with a number of rounds where it can be chosen."""
EXACT = ("lloyd", "kfed")
LOSES = ("threshold", "feddp-threshold")
"""Plays in which the others go on when a client dies."""
MOST_RESUMES = 8
_MOMENTS = ("time", "before a sync", "after a sync", "before a message", "after a message")


@dataclass(frozen=True)
class Kill:
    """When one party dies; `nth` counts syncs or messages, `after_s` runs from its start."""

    rank: int
    moment: str
    nth: int
    after_s: float

    def install(self) -> None:
        """Prepare this process for its end."""
        if self.moment == "time":
            threading.Timer(self.after_s, self._die).start()
        elif self.moment.endswith("sync"):
            os.fsync = self._deadly(os.fsync)
        else:
            from fastlloyd.net.link.secure import SecureLinks

            SecureLinks.send = self._deadly(SecureLinks.send)  # type: ignore[method-assign]

    def _deadly(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Let the n-th call be the last thing that happens."""
        calls: list[None] = []

        def deadly(*args: Any, **options: Any) -> Any:
            calls.append(None)
            if len(calls) == self.nth and self.moment.startswith("before"):
                self._die()
            result = call(*args, **options)
            if len(calls) == self.nth:
                self._die()
            return result

        return deadly

    def _die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def draw_kills(draw: random.Random, clients: int, seconds: float) -> dict[int, Kill]:
    """Choose who dies, most often one party, and when."""
    victims = draw.sample(range(clients + 1), draw.choices((1, 2, clients + 1), (6, 3, 1))[0])
    return {
        rank: Kill(rank, draw.choice(_MOMENTS), draw.randint(1, 40), draw.uniform(0.0, 1.2 * seconds))
        for rank in victims
    }


@dataclass
class Story:
    """One run and all its resumes.

    Parameters
    ----------
    play : Play
    stage, folder : Path
    """

    play: Play
    stage: Path
    folder: Path

    def __post_init__(self) -> None:
        self.state = self.folder / "state"
        self.kills = self.resumes = self.anew = 0
        self.dead: set[int] = set()
        self.faults: list[str] = []
        self.sent: dict[tuple[int, int, int], set[bytes]] = defaultdict(set)

    def session(self, number: int, *, resume: bool, kills: dict[int, Kill]) -> Ended:
        """Start all parties once, and note what went wrong and what they sent."""
        flags = (*self.play.flags, "--state-dir", str(self.state), *(["--resume"] if resume else []))
        prepare = {rank: kill.install for rank, kill in kills.items()}
        # A run that is started anew counts on the ledgers that are there.
        new = () if resume else (rank for rank in range(self.play.clients + 1) if not self._has_ledger(rank))
        folder, extra = self.folder / str(number), dict.fromkeys(new, ("--new-state",))
        play = replace(self.play, flags=flags)
        ended = TcpRun(play, self.stage, folder, prepare=prepare, extra=extra, record=True).run()
        self.dead = {rank for rank, code in enumerate(ended.codes) if code == -signal.SIGKILL}
        self.kills += len(self.dead)
        for rank, (code, said) in enumerate(zip(ended.codes, ended.said, strict=True)):
            if code == EXIT_BUG or "Traceback" in said:
                self.faults.append(f"rank {rank} met a bug: {said[-300:]}")
            if code is None:
                self.faults.append(f"rank {rank} hung")
        for header, rank, body in _messages(folder / "sent.jsonl"):
            if header.type not in (SetVote.TYPE, SetVotes.TYPE):
                self.sent[rank, header.type, header.round].add(body)
        return ended

    def _own(self, rank: int) -> Path:
        return self.state / (f"client-{rank}" if rank else "server")

    def _has_ledger(self, rank: int) -> bool:
        return (self._own(rank) / "ledger.jsonl").exists()

    def begun(self) -> bool:
        """Whether all parties have stored the same run with its secrets."""
        runs = set()
        for rank in range(self.play.clients + 1):
            run = self._own(rank) / "run"
            try:
                runs.add(json.loads((run / "facts.json").read_bytes().partition(b"\n")[0])["run"])
            except FileNotFoundError:
                return False
            if not all((run / name).exists() for name in self._secrets(rank)):
                return False
        return len(runs) == 1

    def _secrets(self, rank: int) -> tuple[str, ...]:
        """Name the files that a resume needs of a party besides the public values."""
        name = self.play.name
        if name in LOSES:
            return (("seed",) * (name == "threshold") + ("group", "threshold")) if rank else ("words",)
        if not rank or name == "kfed":
            return ()
        return ("pairs",) if name in ("pairwise", "feddp") else ("seed",)

    def over(self) -> bool:
        """Whether some party has ended the run well: then all have heard the result, and who lives wrote it."""
        return any(not (folder / "run").exists() for folder in self.state.glob("*"))

    def tell(self, draw: random.Random, seconds: float) -> Path | None:
        """Kill and resume until the run is over; give the folder of a client's result."""
        resume = False
        for number in range(MOST_RESUMES + 1):
            last = number == MOST_RESUMES
            again = number == 0 or draw.random() < 0.4
            kills = draw_kills(draw, self.play.clients, seconds) if again and not last else {}
            ended = self.session(number, resume=resume, kills=kills)
            killed = -signal.SIGKILL in ended.codes
            if set(ended.codes) == {EXIT_OK} or (killed and self.over()):
                return self._written(self.folder / str(number), ended)
            if not killed:
                self.faults.append(f"refused without a reason: {ended.codes} {[text[-300:] for text in ended.said]}")
                return None
            self.resumes += 1
            resume = self.begun()
            if not resume:
                self._refuse_unbegun(number)
                self.sent.clear()
                self.anew += 1
        self.faults.append("it did not end")
        return None

    def _written(self, folder: Path, ended: Ended) -> Path | None:
        """Return the folder of a client's result; every client that ended well has one."""
        found = None
        for rank in range(1, self.play.clients + 1):
            own = folder / f"out-{rank}"
            if (own / "report.json").exists():
                found = found or own
            elif ended.codes[rank] == EXIT_OK:
                self.faults.append(f"client {rank} ended well without a result")
        return found

    def _refuse_unbegun(self, number: int) -> None:
        """What not all have begun cannot be resumed, and is refused with a sentence."""
        ended = self.session(1000 + number, resume=True, kills={})
        if set(ended.codes) != {EXIT_INPUT}:
            self.faults.append(f"resumed a run that not all have: {ended.codes} {ended.said}")

    def check(self, results: Path, reference: Path) -> None:
        """Compare with an uninterrupted run."""
        told, expected = (json.loads((out / "report.json").read_text()) for out in (results, reference))
        for name in ("epsilon", "delta", "spent_epsilon"):
            if told["privacy"][name] != expected["privacy"][name]:
                self.faults.append(f"{name} is {told['privacy'][name]}, expected {expected['privacy'][name]}")
        releases = Counter((entry["round"], entry["name"]) for entry in expected["privacy"]["releases"])
        for path in self.state.glob("*/ledger.jsonl"):
            entries = [json.loads(line) for line in path.read_text().splitlines()]
            counts = Counter((entry["run"], entry["round"], entry["name"]) for entry in entries)
            own = Counter((t, name) for run, t, name in counts if run == told["run"])
            rank = 0 if path.parent.name == "server" else int(path.parent.name.rpartition("-")[2])
            early = rank in self.dead and self.play.name in LOSES and own.keys() < releases.keys()
            if set(counts.values()) - {1} or (own != releases and not early):
                self.faults.append(f"{path.parent.name}'s ledger is not that of the plan: {sorted(counts.items())}")
        if self.play.name in EXACT:
            mine, theirs = ((out / "centroids.csv").read_text() for out in (results, reference))
            if mine != theirs:
                self.faults.append("other centres than without an interruption")

    def compare_sent(self) -> None:
        """No party sends two different messages of one kind and round, whoever receives them."""
        for (rank, type_, t), bodies in self.sent.items():
            if len(bodies) > 1:
                self.faults.append(f"rank {rank} sent {len(bodies)} different messages of type {type_}, round {t}")


def _messages(path: Path) -> Iterator[tuple[Header, int, bytes]]:
    """Read what was sent in rounds; a line that the sender's death cut short was not sent."""
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        frame = bytes.fromhex(entry["frame"])
        header = Header.decode(frame)
        if header.round not in (SETUP_ROUND, COMPARE_ROUND, FINAL_ROUND):
            yield header, entry["rank"], frame[8:]


def play_for(name: str) -> Play:
    """Return a protocol with two clients or more and the rounds of `CHOSEN`."""
    play, rounds = PLAYS[name], CHOSEN[name]
    return play if rounds is None else replace(play, flags=(*play.flags, "--rounds", str(rounds)))


def campaign(out: Path, names: Sequence[str], kills: int, seed: int) -> list[dict[str, Any]]:
    """Tell stories, protocol after protocol, until so many parties were killed."""
    stage, draw = out / "stage", random.Random(seed)
    build(stage)
    references: dict[str, tuple[Path, float]] = {}
    for name in names:
        ended = TcpRun(play_for(name), stage, out / "reference" / name).run()
        if set(ended.codes) != {EXIT_OK}:
            raise RuntimeError(f"an honest run of {name} failed: {ended}")
        references[name] = (out / "reference" / name / "out-1", ended.seconds)
    kept: list[dict[str, Any]] = []
    while sum(line["kills"] for line in kept) < kills:
        name = names[len(kept) % len(names)]
        reference, seconds = references[name]
        folder = out / "story"
        shutil.rmtree(folder, ignore_errors=True)
        story = Story(play_for(name), stage, folder)
        results = story.tell(draw, seconds)
        story.compare_sent()
        if results is not None:
            story.check(results, reference)
        kept.append(
            {"play": name, "kills": story.kills, "resumes": story.resumes, "anew": story.anew, "faults": story.faults}
        )
        with (out / "kills.jsonl").open("a") as file:
            file.write(json.dumps(kept[-1]) + "\n")
        if story.faults:
            shutil.copytree(folder, out / f"fault-{len(kept)}", dirs_exist_ok=True)
    return kept


def table(kept: Sequence[dict[str, Any]]) -> str:
    """Return the counts by protocol as a Markdown table."""
    rows = ["| protocol | runs | kills | resumes | started anew | faults |", "|---|---|---|---|---|---|"]
    for name in [*dict.fromkeys(line["play"] for line in kept), "all"]:
        own = [line for line in kept if name in (line["play"], "all")]
        sums = [sum(line[key] for line in own) for key in ("kills", "resumes", "anew")]
        rows.append(f"| {name} | {len(own)} | {' | '.join(map(str, sums))} | {sum(len(x['faults']) for x in own)} |")
    return "\n".join(rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Kill, resume, count; exit code 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.adversary.kills", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plays", nargs="*", default=list(CHOSEN), choices=list(CHOSEN))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(argv)
    out: Path = chosen.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    kept = campaign(out, chosen.plays, chosen.kills, chosen.seed)
    print(table(kept))
    for line in kept:
        for fault in line["faults"]:
            print(f"{line['play']}: {fault}")
    return int(any(line["faults"] for line in kept))


if __name__ == "__main__":
    from tests.adversary import kills  # what prepares a process is looked for there

    sys.exit(kills.main())
