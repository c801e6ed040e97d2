"""`fastlloyd run -n N [flags]`: all ranks of a run, supervised."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise

from fastlloyd.cli.options import Parser, add_run_options, parse_run_options
from fastlloyd.config import PROTOCOLS
from fastlloyd.errors import ConfigError
from fastlloyd.protocols.fastlloyd.settings import APPLICABLE, HELP


def main(argv: Sequence[str]) -> int:
    """Start the ranks under the mpirun of this environment and stay until all are gone."""
    words = list(argv)
    parser = Parser(
        prog="fastlloyd run",
        description="Run a federated clustering: rank 0 serves, ranks 1 to N - 1 are clients.",
        epilog=_settings_help(words),
    )
    parser.add_argument(
        "-n", type=int, default=3, metavar="N", help="processes: one server and N - 1 clients (default 3)"
    )
    add_run_options(parser)
    config, arguments = parse_run_options(parser, words)
    if arguments.n < 2:
        raise ConfigError(f"-n: expected at least 2 processes (the server and one client), got {arguments.n}")
    from fastlloyd.supervisor import supervise

    return supervise(
        arguments.n,
        _without_n(words),
        transport="tcp" if config.transport == "tcp" else "shm",
        quiet=config.quiet,
        debug=config.log_level == "debug",
    )


def _without_n(words: Sequence[str]) -> list[str]:
    """Leave out -n N: it is the launcher's, not the ranks'."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "-n":
            next(rest, None)
        elif not (word.startswith("-n") and word[2:].isdigit()):
            kept.append(word)
    return kept


def _settings_help(words: Sequence[str]) -> str:
    """List the settings of the protocol that `--protocol NAME --help` asks about."""
    protocol = next((b for a, b in pairwise(words) if a == "--protocol" and b in PROTOCOLS), "fastlloyd")
    lines = [f"{protocol}.{key}: {HELP[key]}" for key in APPLICABLE[protocol]]
    return f"settings of {protocol} for --set: " + "; ".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
