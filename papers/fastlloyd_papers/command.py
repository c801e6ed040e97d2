"""`fastlloyd bench NAME`: regenerates a paper's table or figure with ours beside the published; `all`, every one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from fastlloyd.cli.options import Parser
from fastlloyd.data.form import DATA_DIR_VARIABLE
from fastlloyd.errors import EXIT_OK, ConfigError, Interrupted
from fastlloyd_papers.engine.registry import (
    BENCHES,
    RESULTS,
    Options,
    default_output,
    find_bench,
    list_benches,
    run_bench,
)
from fastlloyd_papers.engine.sitting import NAME as ALL
from fastlloyd_papers.engine.sitting import run_all
from fastlloyd_papers.scoreboard.page import NAME as SCOREBOARD
from fastlloyd_papers.scoreboard.page import PAGE, write_page


def parser() -> Parser:
    """Return the parser of the flags."""
    made = Parser(
        prog="fastlloyd bench",
        description="Regenerate a table or figure of a paper: CSV, Markdown and, with matplotlib, PNG, published "
        "figures beside ours; each says how it was made. The Markdown is printed last. An interrupted benchmark goes "
        "on where it was, with the same data and code. Results are never replaced by less complete ones.",
    )
    made.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help=f"which one; --list names them; {ALL} runs one after the other; {SCOREBOARD} "
        f"writes {PAGE} from the committed results, or a page beside those of another --output",
    )
    made.add_argument(
        "--list", action="store_true", help="list the benchmarks, the data they read and how long they took"
    )
    made.add_argument("--quick", action="store_true", help="a cut-down version, at most four minutes on two cores")
    made.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help=f"default {RESULTS} in a checkout, else bench-results; with --quick bench-quick",
    )
    made.add_argument(
        "--data-dir",
        metavar="DIR",
        default=os.environ.get(DATA_DIR_VARIABLE) or None,
        help=f"folder of NAME.csv.gz files (default: ${DATA_DIR_VARIABLE}); sets that are not there are left out",
    )
    made.add_argument(
        "--peer", type=Path, metavar="DIR", help="your checkout of the paper's code, timed in turn with ours"
    )
    made.add_argument(
        "--peer-python", metavar="FILE", help="interpreter with what that code imports (default: this one)"
    )
    made.add_argument(
        "--shaped", action="store_true", help="also over shaped network namespaces (root, source checkout)"
    )
    made.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="processes that measure errors, or vertical-he's workers (default: one per core)",
    )
    made.add_argument(
        "--only",
        metavar="NAME,...",
        help="utility-league: measure these methods anew, and take the others' figures from the CSV of the last time; "
        f"{ALL}: run these benchmarks",
    )
    made.add_argument("--skip", metavar="NAME,...", help=f"{ALL}: leave out these benchmarks")
    made.add_argument(
        "--noisy",
        action="store_true",
        help="measure times though other processes use the machine: such rows are marked unusable, and have no ratio",
    )
    made.add_argument("--quiet", action="store_true", help="no progress bar")
    return made


def main(argv: Sequence[str]) -> int:
    """Run one benchmark and return 0.

    Raises
    ------
    ConfigError
        No or an unknown name, or a run that failed.
    Interrupted
        A signal said stop; what was measured is kept.
    """
    arguments = parser().parse_args(list(argv))
    if arguments.list:
        sys.stdout.write(list_benches())
        return EXIT_OK
    if arguments.name is None:
        raise ConfigError(f"expected the name of a benchmark: {', '.join(bench.name for bench in BENCHES)}")
    output = arguments.output or default_output(quick=arguments.quick)
    if arguments.name == SCOREBOARD:
        sys.stdout.write(write_page(output))
        return EXIT_OK
    if arguments.name != ALL:
        find_bench(arguments.name)
        if arguments.skip:
            raise ConfigError(f"--skip means nothing to {arguments.name}; it is for {ALL}")
    if arguments.peer_python is not None and arguments.peer is None:
        raise ConfigError("--peer-python needs --peer DIR, the checkout that it is to run")
    options = Options(
        quick=arguments.quick,
        output=output,
        data_dir=arguments.data_dir,
        peer=arguments.peer,
        peer_python=arguments.peer_python or sys.executable,
        shaped=arguments.shaped,
        jobs=arguments.jobs,
        only=tuple(arguments.only.split(",")) if arguments.only else (),
        noisy=arguments.noisy,
        progress=not arguments.quiet,
    )
    with stoppable():
        if arguments.name == ALL:
            skip = tuple(arguments.skip.split(",")) if arguments.skip else ()
            text = run_all(options, skip=skip, say=lambda line: print(line, file=sys.stderr))
        else:
            text = run_bench(arguments.name, options)
    sys.stdout.write(text)
    return EXIT_OK


@contextmanager
def stoppable() -> Iterator[None]:
    """Let signals end what is under way in order, so that its files are removed and what was measured is kept."""
    before = {number: signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """Let the run that is under way be ended and its files be removed."""
    raise Interrupted(f"stopped by {signal.Signals(number).name}; the same command goes on where it was")
