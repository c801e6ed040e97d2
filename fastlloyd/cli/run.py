"""`fastlloyd run -n N [flags]`: all ranks of a run, supervised."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from fastlloyd.cli.options import Parser, add_run_options, parse_run_options
from fastlloyd.errors import EXIT_OK, ConfigError
from fastlloyd.net.mpi.launcher import TransportName
from fastlloyd.protocols.registry import knows, summaries
from fastlloyd.report.unit import format_bytes
from fastlloyd.run.config import RunConfig


def main(argv: Sequence[str]) -> int:
    """Start the ranks under the mpirun of this environment and stay until all are gone."""
    words = list(argv)
    parser = Parser(
        prog="fastlloyd run",
        description="Run a federated clustering: rank 0 serves, ranks 1 to N - 1 are clients.",
        epilog=_settings_help(words) if {"-h", "--help"} & set(words) else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-n", type=int, default=3, metavar="N", help="processes: one server and N - 1 clients (default 3)"
    )
    add_run_options(parser)
    config, arguments = parse_run_options(parser, words)
    if arguments.n < 2:
        raise ConfigError(f"-n: expected at least 2 processes (the server and one client), got {arguments.n}")
    from fastlloyd.supervise.supervisor import supervise

    words = _without_n(words)
    debug = config.log_level == "debug"
    if config.network is not None:
        return _run_shaped(arguments.n, words, config, debug=debug)
    transport: TransportName = "tcp" if config.transport == "tcp" else "shm"
    return supervise(arguments.n, words, transport=transport, quiet=config.quiet, debug=debug)


def _run_shaped(n: int, words: Sequence[str], config: RunConfig, *, debug: bool) -> int:
    """Run each rank on a shaped host of its own, over TCP, and note the bytes on the interfaces."""
    from fastlloyd.supervise.shaped import note_wire_bytes, shaped_hosts
    from fastlloyd.supervise.supervisor import supervise

    with shaped_hosts(config.network or "", n) as hosts:
        shaping = ["--transport", "tcp", "--shaping", hosts.backend]
        if config.print_result is None:  # the hosts are namespaces of this machine
            shaping.append("--print-result")
        code = supervise(n, [*words, *shaping], quiet=config.quiet, debug=debug, place=hosts.command)
        if code == EXIT_OK:
            wire_bytes = hosts.sent_bytes()
            note_wire_bytes(Path(config.output), wire_bytes)
            if not config.quiet:
                sys.stdout.write(
                    f"network   {hosts.profile} by {hosts.backend}: {format_bytes(wire_bytes)} on the wire, "
                    "the launcher's and MPI's own included\n"
                )
        return code


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
    """List the protocols, and the settings of the one that `--protocol NAME --help` asks about."""
    from fastlloyd.run.session import find_face

    protocol = next((b for a, b in pairwise(words) if a == "--protocol" and knows(b)), "fastlloyd")
    lines = ["protocols:", *(f"  {name:<16}{summary}" for name, summary in summaries()), ""]
    lines += [f"settings of {protocol}, for --set or in the run file's table [{protocol}]:"]
    for name, text in find_face(protocol).settings_help(protocol).items():
        lines += textwrap.wrap(f"{name}  {text}", 78, initial_indent="  ", subsequent_indent=" " * 8)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
