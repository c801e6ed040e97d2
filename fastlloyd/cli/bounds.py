"""`fastlloyd bounds`: find bounds of columns that nobody knows, with noise, and write the file for `--bounds`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fastlloyd.cli.options import Parser, add_run_options, number, parse_run_options
from fastlloyd.errors import EXIT_OK, ConfigError, printable
from fastlloyd.party.option import AUTO
from fastlloyd.run.config import LEAST_SHARE, MOST_SHARE, OPTIONS, RunConfig
from fastlloyd.wire.toml import read_toml

_UNUSED = ("protocol", "k", "rounds", "categories", "evaluate", "min_size", "memory", "workers", "network")


def main(argv: Sequence[str]) -> int:
    """Run all parties on this machine and write the bounds that they found; or write the run file for sites.

    Raises
    ------
    ConfigError
        Flags that do not fit, noise that would hide where the values lie, or a file that is in the way.
    """
    from fastlloyd.protocols.private_bounds.inputs import BOUNDS, ROW

    options, rest = _own_parser().parse_known_args(argv)
    config, share = _configured(rest, options)
    n = 3 if options.n is None else options.n
    if n < 2:
        raise ConfigError(f"-n: expected at least 2 processes (the server and one client), got {n}")
    from fastlloyd.report.files import PUBLIC_MODE, output_folder, write_atomic
    from fastlloyd.run.run_file import to_toml
    from fastlloyd.run.session import find_protocol
    from fastlloyd.wire.header import PartyId

    flag, out = ("--out", options.out) if options.run_file is None else ("--run-file", options.run_file)
    if out.exists() and not config.overwrite:
        raise ConfigError(f"{flag} {out}: exists already; remove it, give another name, or add --overwrite")
    if share is not None:
        from fastlloyd.privacy.calibration import stated_delta
        from fastlloyd.protocols.fastlloyd.settings import MECHANISMS
        from fastlloyd.protocols.private_bounds.plan_lines import split_epsilon
        from fastlloyd.protocols.private_bounds.protocol import PROTOCOL
        from fastlloyd.run.inputs import settle_size

        records, k = settle_size(config, None)
        delta = stated_delta(PROTOCOL.public_parameters(config, n - 1, records, k).delta, records)
        gaussian = [name for name, mechanism in MECHANISMS.items() if mechanism == "gaussian"]
        own, left = split_epsilon(config.epsilon, delta, share)
        sys.stdout.write(
            f"share: epsilon {own:g} for the bounds, then --epsilon {left:g} for a run that follows with Gaussian "
            f"noise ({', '.join(gaussian)}); both together {config.epsilon:g} at delta {delta:.3g}\n"
        )
        config = replace(config, epsilon=own)
    if config.columns:  # else only the parties' files tell how many columns there are
        lines = find_protocol(ROW.name).plan_lines(config, n - 1, len(config.columns))
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    if options.run_file is not None:
        shared = [name for name, option in OPTIONS.items() if not option.own]
        write_atomic(out, to_toml(config, out.parent, only=shared), mode=PUBLIC_MODE, flag=flag)
        sys.stdout.write(f"run file  {out}: for all parties; each adds its --data, and finds bounds.csv in --output\n")
        return EXIT_OK
    from fastlloyd.supervise.launch import start_configured
    from fastlloyd.supervise.supervisor import supervise

    code = start_configured(config, lambda given, _: supervise(n, given, transport="tcp", quiet=config.quiet))
    if code != EXIT_OK or config.review:
        return code
    found = (output_folder(config.output, PartyId(1)) / BOUNDS).read_text("utf-8")
    write_atomic(out, found, mode=PUBLIC_MODE, flag=flag)
    rows = [line for line in found.splitlines() if not line.startswith(("# ", '"# '))]
    sys.stdout.write(f"bounds of {len(rows) - 1} columns in {out}: for --bounds of the runs that follow\n")
    return EXIT_OK


def _configured(rest: Sequence[str], options: argparse.Namespace) -> tuple[RunConfig, float | None]:
    """Return the configuration, and the share of the epsilon; what a run file says of clusters is left out by name."""
    from fastlloyd.protocols.private_bounds.inputs import OF_CLUSTERS, ROW, columns_of_numbers

    given = parser().parse_args(rest)
    files = [path for path in (given.config, given.site) if path is not None]
    written = {
        key.replace("-", "_"): (value, Path(path).parent)
        for path in files
        for key, value in read_toml(Path(path), f"run file {path}").items()
    }
    left_out = [
        name for name in OF_CLUSTERS if name in written and written[name][0] not in (OPTIONS[name].default, AUTO)
    ]
    (bounds, folder), masking = written.get("bounds", ("", Path())), written.get("masking")
    share = options.share
    if given.bounds is None and bounds and isinstance(bounds, str):
        asked = RunConfig(bounds=bounds).bounds_share
        share = asked if share is None else share
        if asked is not None or (folder / bounds).resolve() == options.out.resolve():
            left_out.append("bounds")
    if given.masking is None and masking is not None and masking[0] == "common":
        left_out.append("masking")
    if left_out and not given.quiet:
        about = f"{', '.join(left_out)} of {' and '.join(files)}: of the run that clusters, and not of this one"
        sys.stdout.write(f"left out  {printable(about)}\n")
    words = ["--output", ROW.name, *rest, "--protocol", ROW.name]
    config, _ = parse_run_options(parser(), words, links=options.run_file is None, without=left_out)
    if given.masking is None and config.masking == "common":
        config = replace(config, masking="threshold")
    if "categories" in left_out:
        name, folder = written["categories"]
        config = replace(config, columns=columns_of_numbers(config.columns, folder / str(name)))
    return config, share


def _own_parser() -> Parser:
    """Return the parser of what a run has no flags for."""
    parser = Parser(prog="fastlloyd bounds", add_help=False)
    parser.add_argument("-n", type=int, metavar="N", help="processes: one server and N - 1 clients (default 3)")
    about = "where the bounds go (default ./%(default)s)"
    parser.add_argument("--out", type=Path, default=Path("bounds.csv"), metavar="FILE", help=about)
    about = (
        "--epsilon is of the bounds and of the run that follows together; this share of 1/sigma^2 is theirs (0.1, say)"
    )
    parser.add_argument("--share", type=number(float, LEAST_SHARE, MOST_SHARE), metavar="S", help=about)
    about = "for sites: write the run file of all parties, and run nothing"
    parser.add_argument("--run-file", type=Path, metavar="FILE.toml", help=about)
    return parser


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd bounds",
        usage="%(prog)s --data TEMPLATE --n-total N --epsilon E [-n N] [--out bounds.csv] [flags of a run]",
        description="Find bounds of columns that nobody knows, with noise: one release, in bins that double in width. "
        "--bounds says where values can lie at all, the origin in the middle (default: about 0, up to 10^12).",
        parents=[_own_parser()],
    )
    add_run_options(parser, unused=_UNUSED)
    return parser
