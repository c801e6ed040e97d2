"""docs/sites.md, typed as it is written: an operator and three clinics, each in a folder of its own.

A block that begins with ```console is what the parties type, after their prompts; what follows `cat FILE` is the file.
The test carries files from one party to the others where the text says so, stands in for the name of the operator's
machine, and answers `agree` at a terminal.
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

from tests.documents.test_commands import blocks

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
    run: list[tuple[str, subprocess.Popen[str]]] = []
    pages = [block for block in blocks(PAGE) if block.kind == "console"]
    assert len(pages) == 4
    for block in pages:
        for who, command, lines in typed(block.text):
            if command.startswith("cat "):
                (parties.folders[who] / command.removeprefix("cat ")).write_text("\n".join(lines) + "\n")
                continue
            process = parties.start(who, command)
            run.append((f"{who}$ {command}", process))
            if not command.startswith(("fastlloyd serve", "fastlloyd join")):
                process.wait(LIMIT_S)
        parties.carry()
    told = []
    for command, process in run:
        said, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, f"{command}\n{said}"
        told.append((command, said))
    (seen,) = (block.text for block in blocks(PAGE) if block.text.startswith("operator$ listening"))
    for who, pattern in shown(seen):
        words = next(said for command, said in told if command.startswith(f"{who}$ fastlloyd {RUNS[who]}"))
        assert re.search(pattern, words), (pattern, words)
    centroids = {(parties.folders[clinic] / "fastlloyd-run/centroids.csv").read_bytes() for clinic in CLINICS}
    assert len(centroids) == 1
    report = json.loads((parties.folders["west"] / "fastlloyd-run/report.json").read_text())
    assert report["parties"]["authenticated"]
    assert report["network"]["transport"] == "serve/join"
    assert (parties.folders["north"] / "approval_1.json").exists()
