"""docs/sites.md, typed as it is written: an operator and three clinics, each in a folder of its own.

A block that begins with ```console is what the parties type, after their prompts; what follows `cat FILE` is the file.
Two sections more have blocks of their own. The test carries files from one party to the others where the text says so,
stands in for the name of the operator's machine, and answers `agree` at a terminal.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.documents.test_commands import Block, blocks

PAGE = "docs/sites.md"
CLINICS = ("north", "south", "west")
PROMPT = re.compile(r"(\w+)\$ +(.*)")
LIMIT_S = 100
RUNS = {"operator": "serve", "north": "join"}


def typed(text: str) -> list[tuple[str, str, list[str]]]:
    """Return who types what, and the lines that follow it, continued lines joined."""
    commands: list[tuple[str, str, list[str]]] = []
    for line in text.replace("\\\n", "").splitlines():
        found = PROMPT.fullmatch(line)
        if found:
            commands.append((found[1], " ".join(found[2].split()), []))
        else:
            commands[-1][2].append(line)
    return commands


def file_in(page: str, name: str) -> str:
    """Return the text of a file that a page shows by `cat`."""
    for block in blocks(page):
        for _, command, lines in typed(block.text) if block.kind == "console" else ():
            if command == f"cat {name}":
                return "\n".join(lines) + "\n"
    raise AssertionError(f"{page} does not show {name}")


def shown(text: str) -> list[tuple[str, str]]:
    """Return the lines that a page shows, each with who sees it, as patterns: numbers of one run may differ."""
    who, found = "", []
    for line in text.splitlines():
        prompt = PROMPT.fullmatch(line)
        who, words = (prompt[1], prompt[2]) if prompt else (who, line.strip())
        if words != "...":
            pattern = re.escape(re.sub(r"\S+:\d+\b|\d+ of 3|client [123] joined|[\d.]+ m?s,", "@", words))
            found.append((who, pattern.replace("@", ".+").replace(r"\ ", " +")))
    return found


class Parties:
    """The folders of the parties, and what runs in them."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.terminals: list[int] = []
        self.folders = {name: folder / name for name in ("operator", *CLINICS)}
        generator = np.random.default_rng(0)
        for name, own in self.folders.items():
            own.mkdir()
            if name in CLINICS:
                table = generator.normal([50, 140], [8, 12], (300, 2))
                np.savetxt(own / "patients.csv", table, delimiter=",", header="age,pressure", comments="")

    def prepare(self) -> list[Block]:
        """Type all that comes before the run; give the page's blocks of what is typed."""
        pages = [block for block in blocks(PAGE) if block.kind == "console"]
        for block in pages[:3]:
            for who, command, lines in typed(block.text):
                if command.startswith("cat "):
                    (self.folders[who] / command.removeprefix("cat ")).write_text("\n".join(lines) + "\n")
                else:
                    self.finish(f"{who}$ {command}", self.start(who, command))
            self.carry()
        return pages

    def finish(self, command: str, process: subprocess.Popen[str]) -> str:
        """Wait for the end of a command that must end well; give what it said."""
        said, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, f"{command}\n{said}"
        return said

    def start(self, who: str, command: str) -> subprocess.Popen[str]:
        """Begin a command in a party's folder, at a terminal on which somebody has typed yes."""
        for name in ("*:4400", "operator.example.org:4400"):
            command = command.replace(name, f"127.0.0.1:{self.port}")
        controller, terminal = pty.openpty()
        self.terminals += [controller, terminal]
        os.write(controller, b"yes\n")
        return subprocess.Popen(
            ["bash", "-euc", command],
            cwd=self.folders[who],
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def carry(self) -> None:
        """Send certificates to the operator, and what is public from there to all."""
        for clinic in CLINICS:
            shutil.copy(self.folders[clinic] / f"{clinic}.pem", self.folders["operator"])
            for name in ("roster.toml", "run.toml", "bounds.csv"):
                if (self.folders["operator"] / name).exists():
                    shutil.copy(self.folders["operator"] / name, self.folders[clinic])


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[Parties]:
    made = Parties(tmp_path)
    yield made
    for terminal in made.terminals:
        os.close(terminal)


@pytest.mark.slow  # tests/e2e/test_serve_join.py has the same parties, started faster
@pytest.mark.timeout(3 * LIMIT_S)
def test_three_clinics_and_an_operator_as_written(parties: Parties) -> None:
    pages = parties.prepare()
    run = [(f"{who}$ {command}", parties.start(who, command)) for who, command, _ in typed(pages[3].text)]
    assert len(pages) == 6 and len(run) == 4
    told = [(command, parties.finish(command, process)) for command, process in run]
    (seen,) = (block.text for block in blocks(PAGE) if block.text.startswith("operator$ listening"))
    for who, pattern in shown(seen):
        words = next(said for command, said in told if command.startswith(f"{who}$ fastlloyd {RUNS[who]}"))
        assert re.search(pattern, words), (pattern, words)
    centroids = {(parties.folders[clinic] / "fastlloyd-run/centroids.csv").read_bytes() for clinic in CLINICS}
    assert len(centroids) == 1
    report = json.loads((parties.folders["west"] / "fastlloyd-run/report.json").read_text())
    assert report["parties"]["authenticated"]
    assert report["network"]["transport"] == "serve/join"
    ((who, verify, lines),) = typed(pages[4].text)
    said = parties.finish(verify, parties.start(who, verify)).splitlines()
    assert [line.split()[:3] for line in said] == [line.split()[:3] for line in lines], said


def block_with(words: str) -> str:
    """Return the text of the one block of the page that has these words."""
    (found,) = (block.text for block in blocks(PAGE) if words in block.text)
    return found


@pytest.mark.slow
@pytest.mark.timeout(3 * LIMIT_S)
def test_a_gate_before_release_as_written(parties: Parties) -> None:
    pages = parties.prepare()
    gate = block_with("fastlloyd release state").replace("\\\n", "")
    commands = [line.removeprefix("north$ ").partition("  # ")[0] for line in gate.splitlines() if line[:6] == "north$"]
    assert [command.split()[1] for command in commands] == ["init-state", "join", "release", "discard"]
    make, join, release, discard = commands
    parties.finish(make, parties.start("north", make))
    run = {who: command for who, command, _ in typed(pages[3].text)} | {"north": join}
    for command, process in [(command, parties.start(who, command)) for who, command in run.items()]:
        said = parties.finish(command, process)
        assert ("is held in state/client-1" in said) == (command == join), said
    north = parties.folders["north"]
    assert not (north / "fastlloyd-run/centroids.csv").exists()
    shutil.copytree(north / "state", north / "as it was")
    assert "Type yes to release" in parties.finish(release, parties.start("north", release))
    assert (north / "fastlloyd-run/centroids.csv").exists() and (north / "fastlloyd-run/labels_1.csv").exists()
    shutil.rmtree(north / "state")
    (north / "as it was").rename(north / "state")
    assert "What the run has spent stays spent" in parties.finish(discard, parties.start("north", discard))
    assert not list((north / "state/client-1/held").iterdir())
    assert (north / "state/client-1/ledger.jsonl").stat().st_size > 0


@pytest.mark.slow
@pytest.mark.timeout(3 * LIMIT_S)
def test_a_site_that_stays_as_written(parties: Parties) -> None:
    pages = parties.prepare()
    north = parties.folders["north"]
    place = "/var/lib/fastlloyd/north"
    settings = block_with("# site.toml").replace("operator.example.org:4400", f"127.0.0.1:{parties.port}")
    settings = re.sub(r"(?m)^hours = .*\n", "", re.sub(r"(?m)^every = 60\b", "every = 1", settings))
    (north / "site.toml").write_text(settings)
    commands = [command for _, command, _ in typed(re.sub(r"(?m)^ .*\n", "", block_with("# stays;")))]
    assert [command.split()[0] for command in commands] == ["cd", *["fastlloyd"] * 4]
    make, stays, agree = (command.partition(" # ")[0].replace(place, str(north)) for command in commands[1:4])
    parties.finish(make, parties.start("north", make))
    assert stays.endswith(str(north)) and agree.endswith("--agree march")
    run = {who: command for who, command, _ in typed(pages[3].text)}
    ((_, run["operator"], _),) = typed(block_with("--offer march"))
    del run["north"]
    others = [(command, parties.start(who, command)) for who, command in run.items()]
    service = parties.start("north", stays)
    assert service.stdout is not None
    said = ""
    while "march: waits for consent" not in said:
        said += service.stdout.readline() or pytest.fail(said)
    assert "fastlloyd site" in said and (north / "offers/march.bounds.csv").exists()
    assert "approved" in parties.finish(agree, parties.start("north", agree))
    while "march: done" not in said:
        said += service.stdout.readline() or pytest.fail(said)
    for command, process in others:
        parties.finish(command, process)
    service.terminate()
    parties.finish(stays, service)
    centroids = (north / "results/march/centroids.csv").read_bytes()
    assert centroids == (parties.folders["south"] / "fastlloyd-run/centroids.csv").read_bytes()
    assert json.loads((north / "status.json").read_text())["offers"]["march"]["state"] == "done"
