"""`fastlloyd describe`: plan the description of a finished run's clusters, write its run file, and run it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fastlloyd.cli.options import Parser, add_options, number
from fastlloyd.errors import EXIT_OK, ConfigError, printable
from fastlloyd.gate.held import SHOWN_DIGITS, party_folders
from fastlloyd.run.config import OPTIONS, RunConfig
from fastlloyd.run.state import LEDGER, StateDir

_OWN = (
    "data",
    "query",
    "table",
    "data_dir",
    "missing",
    "id",
    "delimiter",
    "decimal",
    "thousands",
    "encoding",
    "na",
    "header",
    "rename",
    "roster",
    "key",
    "passphrase_file",
    "state_dir",
    "budget",
    "budget_delta",
    "review",
)
"""What each party's file of a run says besides the run file of all; with -n as the finished run had it."""

_DEFAULT = 0.0  # --quality without a number


def main(argv: Sequence[str]) -> int:
    """Print the plan, write the run file, and with -n run all parties of this machine.

    Raises
    ------
    ConfigError
        The folder cannot be described, the columns do not fit, or a file is in the way; nothing is written.
    """
    options = parser().parse_args(argv)
    if (options.epsilon is None) == (options.total is None):
        raise ConfigError("expected either --epsilon, of the description alone, or --total, of it and the run together")
    if options.n is not None and options.n < 2:
        raise ConfigError(f"-n: expected at least 2 processes (the server and one client), got {options.n}")
    if options.columns is None and options.quality is None:
        raise ConfigError("expected --columns, what describes the clusters, or --quality, how good they are, or both")
    if options.columns is None and options.quality not in (_DEFAULT, 1.0):
        raise ConfigError(
            f"--quality {options.quality:g}: without --columns the quality has the whole epsilon; leave the share out"
        )
    from fastlloyd.describe.columns import read_columns
    from fastlloyd.protocols.describe.plan_lines import plan_description
    from fastlloyd.protocols.describe.protocol import QUALITY_SHARE
    from fastlloyd.report.files import PUBLIC_MODE, write_atomic

    columns, folder = () if options.columns is None else read_columns(options.columns), Path(options.result)
    quality = QUALITY_SHARE if options.quality == _DEFAULT else options.quality
    given = {
        name: getattr(options, name) for name in ("masking", "title", "purpose", "min_size") if getattr(options, name)
    }
    planned = plan_description(
        folder,
        columns,
        epsilon=options.epsilon,
        total=options.total,
        quality=quality,
        names=None if options.names is None else Path(options.names),
        changes=given,
    )
    sys.stdout.write("".join(f"{line}\n" for line in planned.lines()))
    out = Path(options.out)
    if out.exists() and not options.force:
        raise ConfigError(f"--out {out}: exists already; remove it, give another name, or add --force")
    write_atomic(out, planned.run_file(out.parent), mode=PUBLIC_MODE, flag="--out")
    sys.stdout.write(
        f"run file  {out}: for all parties; each adds --described, its own folder of the run, and its --data\n"
    )
    if options.n is None:
        return EXIT_OK
    from fastlloyd.supervise.supervisor import supervise

    own = replace(
        planned.config,
        data=options.data or planned.config.data,
        state_dir=options.state_dir or planned.config.state_dir,
        output=options.output,
        overwrite=options.overwrite,
    )
    for line in _not_in_ledgers(own.state_dir, planned.described):
        sys.stdout.write(f"warning   {line}\n")
    sys.stdout.flush()
    words = ["--config", str(out), "--described", options.result, *own_words(own)]
    return supervise(options.n, words, transport="tcp")


def _not_in_ledgers(state_dir: str | None, run: str) -> Iterator[str]:
    """Say which ledgers of a state directory hold nothing of the finished run: both would count apart."""
    for folder in party_folders(Path(state_dir)) if state_dir else ():
        if (folder / LEDGER).exists():
            with StateDir.of(folder).open_ledger() as ledger:
                known = any(release.run == run for release in ledger.releases)
            if not known:
                yield (
                    f"the ledger in {printable(str(folder))} holds nothing of run {run[:SHOWN_DIGITS]}, whose clusters "
                    "are described: what it spent is not counted there; give the --state-dir of that run if it had one"
                )


def own_words(config: RunConfig) -> list[str]:
    """Return the flags of what stands in no run file of all: the ledgers and the budget of the finished run too."""
    words = []
    for name in (*_OWN, "output", "overwrite"):
        value, flag = getattr(config, name), OPTIONS[name].flag
        if value != OPTIONS[name].default:
            words += [flag] if value is True else [flag, str(value)]
    return words


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd describe",
        usage="%(prog)s RESULT [--columns FILE.toml] [--quality [SHARE]] (--epsilon E | --total E) [-n N] [flags]",
        description="Describe the clusters of a finished run by public columns, say how good they are, or both: prints "
        "what it would spend and show, and writes the run file for all parties; with -n it runs them all on this "
        "machine.",
    )
    parser.add_argument("result", metavar="RESULT", help="folder of the finished run")
    parser.add_argument("--columns", metavar="FILE.toml", help="the public columns: bounds or categories")
    parser.add_argument(
        "--quality",
        nargs="?",
        const=_DEFAULT,
        type=number(float, 0.001, 1.0),
        metavar="SHARE",
        help="release how good the clusters are, with ranges; beside --columns with this share of 1/sigma^2 (default "
        "0.2)",
    )
    least, most = OPTIONS["epsilon"].within.ends
    parser.add_argument("--epsilon", type=number(float, least, most), metavar="E", help="epsilon of the description")
    parser.add_argument("--total", type=number(float, least, most), metavar="E", help="of run and description together")
    parser.add_argument("--names", metavar="FILE.toml", help="public names of the clusters by number, in all files")
    parser.add_argument(
        "--min-size",
        type=number(int, 1, 10**12),
        default=0,
        metavar="N",
        help="leave out clusters and numbers of fewer than N records, by noisy sizes",
    )
    parser.add_argument("-n", type=int, metavar="N", help="run all: a server and N - 1 clients on this machine")
    parser.add_argument("--data", metavar="TEMPLATE", help="with -n: the records (default: as the finished run)")
    parser.add_argument("--output", default="description", metavar="DIR", help="with -n: default ./%(default)s")
    parser.add_argument("--overwrite", action="store_true", help="with -n: replace the files of another run there")
    parser.add_argument("--state-dir", metavar="DIR", help="with -n: ledgers over runs (default: as the finished run)")
    parser.add_argument("--masking", choices=OPTIONS["masking"].choices, help="default: as the finished run")
    add_options(parser, "title", "purpose")
    parser.add_argument("--out", default="describe.toml", metavar="FILE", help="the run file (default ./%(default)s)")
    parser.add_argument("--force", action="store_true", help="replace the run file")
    return parser
