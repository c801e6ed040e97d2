"""Command lines drawn at random, with extremes: whatever is typed, a command ends soon, with a code that is documented.

Each line runs in a forked child of this warm process, on records that are drawn with it; `run` has all its parties in
the threads of one. With a locale it is a new interpreter. A standard stream, or all three, may be full, closed or a
pipe without a reader. Files may be allowed to grow to a few bytes only, or what is written goes to a real file system
that is small, has few inodes or is read-only (where this process may mount one). Code 70, a code that
docs/operations.md does not list, a stack trace and silence are faults.

    python -m tests.adversary.extremes --lines 3000
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from fastlloyd.__main__ import main as fastlloyd
from fastlloyd.cli.options import parse_run_options
from fastlloyd.client import parser
from fastlloyd.errors import EXIT_INPUT, ConfigError
from fastlloyd.protocols.registry import ROWS
from fastlloyd.report.announcer import Announcer
from fastlloyd.report.stream import complain, guard_streams
from fastlloyd.run.execute import execute
from fastlloyd.wire.header import PartyId
from tests.net.memory import MemoryNetwork

ROOT = Path(__file__).parents[2]
CODES = (0, 2, 3, 4)
LIMIT_S = 120
FINISHED = ROOT / "tests" / "golden" / "finished"
# Flags that `check` takes, and those that `plan` does not take.
OF_FILES = (
    *(
        "--header",
        "--no-header",
        "--na",
        "--rename",
        "--encoding",
        "--decimal",
        "--delimiter",
        "--missing",
        "--columns",
    ),
    *("--unit", "--id"),
)
OF_RUNS = (
    *("--threads", "--delay", "--deadline", "--budget", "--header", "--no-header", "--na", "--rename", "--encoding"),
    *("--decimal", "--figures", "--memory"),
)
STREAMS = (
    *("", "", "", "", "stdout full", "stdout pipe", "stdout closed"),
    *("stdin closed", "stderr full", "stderr pipe", "stderr closed", "all closed", "all full"),
)
LOCALES = ("", "", "", "", "C", "POSIX", "de_DE")
# What `mount -t tmpfs -o` takes.
DISKS = ("size=4k", "size=16k", "size=64k", "size=256k", "nr_inodes=2", "nr_inodes=5", "nr_inodes=9", "ro")
NUMBERS = ("0", "1", "-1", "0.5", "1e308", "-1e308", "1e-320", "nan", "", "text", "1e400", "10000000000000000000000")
BOUNDS = (
    *(
        "0,1",
        "0,1",
        "0,1",
        "-1,1",
        "0,100",
        "-1e308,1e308",
        "-1e100,1e100",
        "0,1e-99",
        "0,1e-300",
        "5,5",
        "1,0",
        "nan,1",
    ),
    *("1000000000000000,1000000000000001", "-1e-50,1e50", "0,1e99", "auto-public", "nowhere.csv"),
    *("private", "private:0.5", "private:0", "private:2", "private:x"),
)
EXTREMES = {
    "--epsilon": ("1", "1", "0.001", "100", "0", "1e-300", "nan", "101"),
    "--delta": ("auto", "paper", "1e-11", "0.4", "1", "1e-300"),
    "--rounds": ("auto", "0", "1", "2", "50", "1000", "1001", "-1"),
    "--min-clients": ("1", "2", "100000", "0"),
    "--masking": ("common", "pairwise", "threshold", "none"),
    "--known-shares": ("1", "2", "100000"),
    "--colluding": ("0", "1", "200"),
    "--ring-bits": ("32", "64", "31"),
    "--seed": ("0", "9223372036854775808", "-1", "x"),
    "--missing": ("refuse", "drop", "midpoint"),
    "--threads": ("1", "2", "1000"),
    "--columns": ("a0", "a0,a1", "β-HCG", "nothing", ""),
    "--client-caps": ("1,1", "0,0", "100,100", "1000000000000,1", "-1,5"),
    "--delimiter": (";", "tab", "xx"),
    "--unit": ("a0", "β-HCG", "nobody"),
    "--id": ("a0", "nobody"),
    "--deadline": ("1", "1e9", "nan", "-1"),
    "--delay": ("0.001", "-1", "nan"),
    "--budget": ("0", "1", "1e6"),
    "--header": ("",),
    "--no-header": ("",),
    "--na": ("-999", "", "1,2", "0.5,NA", "x" * 5000, "nan", "β"),
    "--rename": ("a0=b", "a0=a1", "=", "nothing=x", "a0=", "β-HCG=b", "a0=b,a0=c", "b\u202e=a0"),
    "--encoding": ("utf-8", "cp1252", "utf-16", "nothing", "idna"),
    "--decimal": (".", ",", "x"),
    "--figures": ("png", "svg", "svg,pdf,png", "", "gif", "png,png"),
    "--quality": ("0.05", "0", "1", "2", "nan"),
    "--title": ("a study", "", "x" * 5000, "a\u202eb", "\x1b[31m", "β", "two\nlines", "{client}"),
    "--min-size": ("5", "0", "-1", "1000000000000"),
    "--memory": ("64M", "1", "x", "1e400"),
    "--set": ("fastlloyd.alpha=0", "feddp.start=private", "secfc.membership=true", "x", "vertical-dp.rows=1"),
}


@dataclass(frozen=True)
class Line:
    """What is typed, and what its streams, disk and locale are like.

    Attributes
    ----------
    words : tuple of str
    parties : int
        Of `run`, with the server.
    stream : str
        Which stream, and what it is like; '' for ordinary ones.
    disk : str
        `limit=BYTES` for each file, or a file system of `DISKS`; '' for the ordinary one.
    locale : str
    """

    words: tuple[str, ...]
    parties: int
    stream: str = ""
    disk: str = ""
    locale: str = ""


SWITCHES = ("--header", "--no-header")
"""Flags that no value follows."""
COLUMNS = (
    *("[a0]\nlo = 0\nhi = 1\n", "[a0]\nlo = 0\nhi = 1\nwhole = true\n", "[age]\nlo = 0\nhi = 100\nbins = 1\n"),
    *('["β-HCG"]\ncategories = ["a", "a"]\n', "[a0]\nlo = 1e308\nhi = -1e308\n", "[a0]\nedges = [0, 1e-320, 1e400]\n"),
    *("", "x", '["a\u202eb"]\nlo = 0\nhi = 1\n', "[a0]\nedges = []\n", "[a0]\nlo = 0\nhi = 1e300\nbins = 100\n"),
    "".join(f"[c{at}]\nlo = 0\nhi = 1\n" for at in range(200)),
    *(
        "[a0]\nlo = 0\nhi = 1\nbins = 1000000000\n",
        "[a0]\nlo = nan\nhi = 1\n",
        "[a0]\nlo = 0\nhi = 99999\nwhole = true\n",
    ),
)
"""Files of described columns."""


def mostly(draw: random.Random, values: Sequence[str], share: float = 0.6) -> str:
    """Draw one of some values, the first one most often: a line with many extremes tries the first check only."""
    return values[0] if draw.random() < share else draw.choice(values)


def draw_records(folder: Path, parties: int, draw: random.Random, *, vertical: bool) -> None:
    """Write records of each party; in a vertical protocol each has columns with names that no other has."""
    columns = draw.choice((1, 2, 2, 3, 8, 40))
    names = [f"a{at}" for at in range(columns - 1)] + [draw.choice(("β-HCG", "=1+1", "x" * 300, "a\u202eb", "last"))]
    extreme = draw.random() < 0.15
    rows = draw.choice((0, 1, 2, 3, 10, 60, 60, 60, 60, 60))
    for rank in range(parties):
        lines = [",".join(["id", *(f"{name}{rank}" if vertical else name for name in names)])]
        for row in range(rows):
            cells = [draw.choice(NUMBERS) if extreme and draw.random() < 0.1 else f"{draw.random():.3f}" for _ in names]
            lines.append(",".join([f"p{row}", *cells]))
        (folder / f"own_{rank}.csv").write_text("\n".join(lines) + "\n", "utf-8")


def draw_line(folder: Path, draw: random.Random) -> Line:
    """Draw a command line, and write the records that it is about."""
    protocol = draw.choice([row.name for row in ROWS])
    parties = draw.choice((2, 3, 3, 4, 5))
    draw_records(folder, parties, draw, vertical=protocol.startswith("vertical"))
    words = _draw_words(folder, draw, protocol, parties)
    disk = draw.choice(("", "", "", "", "limit=1000", "limit=5000", draw.choice(DISKS), draw.choice(DISKS)))
    return Line(tuple(words), parties, draw.choice(STREAMS), disk, draw.choice(LOCALES))


def _draw_words(folder: Path, draw: random.Random, protocol: str, parties: int) -> list[str]:
    """Draw what is typed; what it writes goes below `folder / "disk"`."""
    disk = folder / "disk"
    command = draw.choice(
        (
            *(*("run",) * 5, "plan", "plan", "check", "dossier", "choose", "init", "init-state", "keygen", "ledger"),
            *("describe", "describe", "bounds", "runs", "cite", "report"),
        )
    )
    if command in ("describe", "runs", "cite", "report"):
        return _draw_finished(folder, draw, command)
    words = [command, "--protocol", protocol]
    calm = draw.choice((0.5, 0.95, 0.98))
    total = mostly(draw, ("600", "10", "1000", "1000000", "1000000000000", "1", "3", "1e30"), calm)
    k = mostly(draw, ("2", "1", "2", "3", "10", "10000", "auto:3", "0", "2..4", "2..1000", "4..2", "2.."), calm)
    shape = ["--bounds", mostly(draw, BOUNDS, calm), "--k", k, "--n-total", total]
    if command == "choose":
        words = [command, *("--n", total, "--k", k, "--d", draw.choice(("1", "2", "50", "0")))]
        return [*words, "--split", draw.choice(("rows", "columns")), "--parties", str(parties)]
    if command == "init":
        return [command, str(disk / "made"), "--clients", str(parties - 1), *words[1:], "--k", k, "--n-total", total]
    if command == "init-state":
        budget = ["--budget", draw.choice(("1", "0", "nan", "1e308", "-1"))] if draw.random() < 0.5 else []
        return [command, str(disk / "state"), "-n", mostly(draw, (str(parties), "0", "-1", "100000000")), *budget]
    if command == "keygen":
        name = mostly(draw, ("clinic", "β-clinic", "", "x" * 300, "a\u202eb", "a/b"))
        return [
            command,
            "--name",
            name,
            "--rank",
            mostly(draw, ("1", "0", "-1", "65536", "x")),
            "--prefix",
            str(disk / "p"),
        ]
    if command == "ledger":
        return [command, str(draw.choice((disk / "state", disk, folder / "own_1.csv")))]
    if command == "bounds":  # for sites: runs of it are `run --protocol private-bounds`
        shape = ["--bounds", mostly(draw, BOUNDS, calm)] if draw.random() < 0.5 else []
        shape += ["--share", mostly(draw, ("0.1", "0", "1", "nan"))] if draw.random() < 0.3 else []
        shape += ["--epsilon", mostly(draw, EXTREMES["--epsilon"]), "--title", mostly(draw, EXTREMES["--title"])]
        words = [command, "--run-file", str(disk / "bounds.toml"), "--n-total", total, "-n", str(parties), *shape]
        return [*words, *(["--columns", mostly(draw, EXTREMES["--columns"])] if draw.random() < 0.7 else [])]
    if command == "dossier":
        public = {"protocol": protocol, "bounds": shape[1], "k": k, "n_total": total}
        lines = [
            f"{name} = {json.dumps(text)}" if name in ("protocol", "bounds") or ":" in text else f"{name} = {text}"
            for name, text in public.items()
        ]
        (folder / "run.toml").write_text("\n".join(lines) + "\n")
        words = [command, "--config", str(folder / "run.toml"), "--clients", str(parties - 1)]
        return [*words, "--d", mostly(draw, ("2", "1", "40", "1000", "0"))]
    if command == "plan":
        words += ["-n", str(parties), *shape]
        words += ["--d", draw.choice(("1", "2", "40", "1000", "0"))] if draw.random() < 0.9 else []
    elif draw.random() < 0.2:
        words += [
            "--dataset",
            draw.choice((str(folder / "own_1.csv"), "iris", "nothing", "gaussian:n=5,d=1,k=1")),
            *shape,
        ]
    else:
        words += ["--data", str(folder / "own_{client}.csv"), *shape]
    for flag in draw.sample(OF_FILES if command == "check" else list(EXTREMES), draw.choice((0, 0, 1, 1, 2, 3))):
        if command == "run" or flag not in OF_RUNS:
            words += [flag] if flag in SWITCHES else [flag, mostly(draw, EXTREMES[flag], calm - 0.3)]
    if command == "check":
        words += ["--client", mostly(draw, ("1", "0", "9"))]
    if command == "run" and draw.random() < 0.3:
        words += ["--state-dir", str(disk / "state"), "--new-state"]
    return words


def _draw_finished(folder: Path, draw: random.Random, command: str) -> list[str]:
    """Draw a command about a finished run, which is kept as a golden one, whole or damaged."""
    disk, result = folder / "disk", folder / "result"
    shutil.copytree(FINISHED, result)
    public = 'protocol = "fastlloyd-plus"\nk = 3\nbounds = "bounds.csv"\nn_total = 400\nepsilon = 20.0\n'
    (result / "config.toml").write_text(public)
    if draw.random() < 0.3:
        damaged = draw.choice(sorted(result.iterdir()))
        damaged.write_bytes(draw.choice((b"", b"\xff\n", damaged.read_bytes()[:-100], b"[" * 100_000)))
    if command == "cite":
        return [command, *draw.choice(((), ("fastlloyd",), ("feddp",), ("nothing",), ("",), ("β",), ("--output",)))]
    if command == "runs":
        words = [command, str(draw.choice((disk / "state", disk, result, folder / "own_1.csv")))]
        return words + draw.choice(([], ["--json"], ["--csv"], ["--html", str(disk / "runs.html")], ["--delta", "nan"]))
    if command == "report":
        more = draw.choice(
            ((), ("--verify",), ("--html", str(disk / "page.html")), ("--names", str(folder / "names.toml")))
        )
        (folder / "names.toml").write_text(draw.choice(('1 = "one"\n', "1 = 1\n", "x", '99 = "\u202e"\n', "")), "utf-8")
        return [command, str(draw.choice((result, result, disk))), *more]
    (folder / "columns.toml").write_text(draw.choice(COLUMNS), "utf-8")
    words = [command, str(result), "--out", str(disk / "describe.toml")]
    words += ["--columns", str(folder / "columns.toml")] if draw.random() < 0.8 else []
    words += ["--quality", draw.choice(("0.2", "0", "1", "nan"))] if draw.random() < 0.4 else []
    words += [draw.choice(("--epsilon", "--total")), mostly(draw, ("1", "0.001", "30", "100", "0", "nan", "-1"))]
    more = draw.sample(("--title", "--min-size", "--masking"), draw.choice((0, 1, 2)))
    return words + [word for flag in more for word in (flag, mostly(draw, EXTREMES[flag]))]


def run_parties(words: Sequence[str], parties: int, folder: Path, *, agree: bool = True) -> int:
    """Run all parties of `fastlloyd run` in threads; return their code.

    Where the disk is the trouble one party may have written its result, and another not: the highest code stands for
    all, unless one of them is undocumented.
    """
    own = ["--output", str(folder / "out-{client}"), "--setup-deadline", "60"]
    try:
        config, _ = parse_run_options(parser(), [*words, *own])
    except ConfigError as error:
        complain(str(error))
        return EXIT_INPUT
    network = MemoryNetwork(parties)

    def one(rank: int) -> int:
        me = PartyId(rank)
        threading.current_thread().name = f"rank_{rank}"
        with network.endpoint(me) as transport:
            return execute(config, transport, Announcer(me, own_terminal=True)).code

    with ThreadPoolExecutor(parties) as pool:
        codes = set(pool.map(one, range(parties)))
    return max(codes) if len(codes) == 1 or not agree else 99


def _set_streams(stream: str) -> None:
    """Give this process its standard streams."""
    which, _, how = stream.partition(" ")
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(0, 1)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if which not in (name, "all"):
            continue
        if how == "closed":
            os.close(number)
        elif how == "full":
            os.dup2(os.open("/dev/full", os.O_RDWR), number)
        else:
            read, write = os.pipe()
            os.close(read)
            os.dup2(write, number)


def _take_streams() -> None:
    """Make Python's own streams anew, as a new interpreter would."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
            made = os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8")
        except OSError:
            made = None
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)


def _be(line: Line, folder: Path) -> int:
    """Be the process that a person started."""
    disk = folder / "disk"
    os.chdir(folder)
    os.environ["TMPDIR"], tempfile.tempdir = str(disk), None
    kind, _, most = line.disk.partition("=")
    if kind == "limit":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), resource.RLIM_INFINITY))
    guard_streams()
    if line.words[0] == "run":
        return run_parties(line.words[1:], line.parties, disk, agree=not line.disk)
    try:
        return fastlloyd(list(line.words))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0


def _start(line: Line, folder: Path, error: int) -> int:
    """Be the forked process; where the line has a locale, become a new interpreter."""
    os.dup2(error, 2)
    own = os.dup(2)  # stays open as long as this process lives: its end is how the end is noticed
    os.set_inheritable(own, True)
    _set_streams(line.stream)
    if not line.locale:
        _take_streams()
        return _be(line, folder)
    plain = {"LC_ALL": line.locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "tests.adversary.extremes", "--be", json.dumps(asdict(line)), str(folder)]
    return os.execve(sys.executable, words, {**os.environ, **plain})


@contextlib.contextmanager
def small_disk(place: Path, kind: str) -> Iterator[bool]:
    """Have a file system of a kind of `DISKS` at a folder; whether there is one, or this process may not mount."""
    place.mkdir()
    if kind not in DISKS:
        yield False
        return
    command = ["mount", "-t", "tmpfs", "-o", kind, "tmpfs", str(place)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=True)


def try_line(line: Line, folder: Path) -> tuple[int, str]:
    """Run a line in a child; return its code, -1 for one that does not end, and what it said."""
    read, error = os.pipe()
    child = os.fork()
    if child == 0:
        code = 98
        try:
            code = _start(line, folder, error)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(code)
    os.close(error)
    end, pieces, code = time.monotonic() + LIMIT_S, [b""], -1
    with os.fdopen(read, "rb", 0) as said:
        while time.monotonic() < end and select.select([said], [], [], max(0.0, end - time.monotonic()))[0]:
            pieces.append(said.read(1 << 16))
            if not pieces[-1]:
                code = 0
                break
    if code:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return code or os.waitstatus_to_exitcode(status), b"".join(pieces).decode("utf-8", "replace")


def fault(code: int, said: str) -> str:
    """Return what is wrong with an end; '' for nothing."""
    if code not in CODES:
        return "it does not end" if code == -1 else f"code {code}"
    return "a stack trace" if "Traceback (most recent" in said else ""


def campaign(lines: int, seed: int, *, first: int = 0) -> tuple[Counter[str], Counter[str], list[str]]:
    """Try a number of lines; the same seed and number make the same line.

    Returns
    -------
    tuple of (Counter, Counter, list of str)
        Commands with their codes, streams, disks and locales, and faults.
    """
    ends, conditions, faults = Counter[str](), Counter[str](), []
    with tempfile.TemporaryDirectory() as place:
        for number in range(first, first + lines):
            folder = Path(place, str(number))
            folder.mkdir()
            line = draw_line(folder, random.Random(f"{seed} {number}"))
            with small_disk(folder / "disk", line.disk) as mounted:
                code, said = try_line(line, folder)
            small = line.disk.partition("=")[0]
            conditions[small if mounted or small == "limit" else "not mounted" if small else "ordinary disk"] += 1
            conditions[line.stream or "ordinary streams"] += 1
            conditions[line.locale or "ordinary locale"] += 1
            ends[f"{line.words[0]} {code}"] += 1
            if wrong := fault(code, said):
                tail = " | ".join(said.strip().splitlines()[-2:])
                where = f"[{line.stream}, {line.disk}, {line.locale}]"
                faults.append(f"{number}: {' '.join(line.words)} {where}: {wrong}: {tail[-600:]}")
                sys.stderr.write(faults[-1] + "\n")
            shutil.rmtree(folder, ignore_errors=True)
    return ends, conditions, faults


def main() -> int:
    """Run the campaign, and print how lines ended."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--lines", type=int, default=3000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--be", nargs=2, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.be:
        line = json.loads(chosen.be[0])
        return _be(Line(**line | {"words": tuple(line["words"])}), Path(chosen.be[1]))
    begun = time.monotonic()
    ends, conditions, faults = campaign(chosen.lines, chosen.seed, first=chosen.first)
    print(dict(sorted(ends.items())), dict(sorted(conditions.items())), sep="\n")
    print(len(faults), "faults", f"{math.ceil(time.monotonic() - begun)} s")
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
