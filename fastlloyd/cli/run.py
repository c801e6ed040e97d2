"""`fastlloyd run -n N [flags]`: run all ranks, supervised."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from fastlloyd.cli.options import Parser, add_run_options, name_list, parse_run_options
from fastlloyd.data.database import refuse_standard_input
from fastlloyd.errors import EXIT_BUDGET, EXIT_INPUT, EXIT_OK, ConfigError
from fastlloyd.protocols.registry import knows, summaries
from fastlloyd.report.lines import json_line
from fastlloyd.report.unit import format_bytes
from fastlloyd.run.config import RunConfig
from fastlloyd.wire.header import PartyId

if TYPE_CHECKING:
    from fastlloyd.net.mpi.launcher import TransportName

_HOST = re.compile("[A-Za-z0-9]([A-Za-z0-9._@-]*[A-Za-z0-9])?")


def main(argv: Sequence[str]) -> int:
    """Start the ranks under the mpirun of this environment, and return once all have exited."""
    words = list(argv)
    config, arguments = parse_run_options(parser(words), words)
    refuse_standard_input(config.data, "several parties would read one standard input")
    hosts: tuple[str, ...] = arguments.hosts or ()
    n = (len(hosts) or 3) if arguments.n is None else arguments.n
    if n < 2:
        raise ConfigError(f"-n: expected at least 2 processes (the server and one client), got {n}")
    if hosts and (n != len(hosts) or config.network is not None):
        surplus = "-n" if n != len(hosts) else "--network"
        raise ConfigError(f"--hosts: one rank runs on each host of this list; leave out {surplus}")
    if config.bounds_share is not None:
        from fastlloyd.supervise.launch import run_with_private_bounds

        if hosts or config.network is not None:
            raise ConfigError(
                f"--bounds {config.bounds}: expected all ranks on this host, got "
                f"{'--hosts' if hosts else '--network'}; find the bounds first, with `fastlloyd bounds --share`"
            )
        return run_with_private_bounds(config, n, lambda words, own: _start(n, words, own))
    return _start(n, _for_ranks(words), config, hosts)


def _start(n: int, words: Sequence[str], config: RunConfig, hosts: Sequence[str] = ()) -> int:
    """Start the ranks of one run, and return their exit code once all have ended."""
    from fastlloyd.supervise.supervisor import supervise

    debug = config.log_level == "debug"
    if config.network is not None:
        return _run_shaped(n, words, config, debug=debug)
    # Across hosts each rank chooses its own interface, because none is known to exist on all of them.
    transport: TransportName = "tcp" if config.transport == "tcp" and not hosts else "shm"
    begun = time.time()
    code = supervise(
        n,
        words,
        transport=transport,
        quiet=config.quiet,
        debug=debug,
        json_lines=_json_lines(config),
        hosts=hosts,
        start_s=config.setup_deadline,
    )
    if code not in (EXIT_OK, EXIT_BUDGET):
        _point_to_resume(config, n, begun, code)
    return code


def _point_to_resume(config: RunConfig, ranks: int, begun: float, code: int) -> None:
    """Say how to resume a run that had begun: if a rank is lost, the launcher kills the others before they can."""
    if config.state_dir is None or not config.row.resumes or (config.resume and code == EXIT_INPUT):
        return
    from fastlloyd.run.state import interrupted_since, resume_words

    for rank in range(ranks):
        since = interrupted_since(config.state_dir, PartyId(rank))
        if since is not None and (config.resume or since >= begun - 1.0):
            sentence = resume_words(Path(config.state_dir))
            sys.stderr.write(json_line("error", sentence) if _json_lines(config) else f"fastlloyd: {sentence}\n")
            return


def _json_lines(config: RunConfig) -> bool:
    """Whether standard error must hold JSON lines alone."""
    return config.log_format == "json" and config.log_file is None


def parser(words: Sequence[str] = ()) -> Parser:
    """Return the parser of the flags; the end of its help depends on the words of the command line."""
    parser = Parser(
        prog="fastlloyd run",
        usage="%(prog)s [-n N] [flags]",
        description="Run a federated clustering: rank 0 serves, ranks 1 to N - 1 are clients.",
        epilog=_protocols_help(words) if {"-h", "--help", "--help-all"} & set(words) else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-n", type=int, metavar="N", help="processes: one server and N - 1 clients (default 3)")
    about = "one rank on each of these hosts over ssh, the server on the first, which is this one"
    parser.add_rare("--hosts", type=_host_list, metavar="HOST,HOST,..", help=about)
    add_run_options(parser)
    return parser


def _host_list(text: str) -> tuple[str, ...]:
    """Read the hosts of the ranks."""
    hosts = name_list(text)
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise argparse.ArgumentTypeError(f"expected a host name or an IPv4 address, got {host!r}")
    if len(hosts) < 2 or len(set(hosts)) < len(hosts):
        raise argparse.ArgumentTypeError(f"expected two hosts or more, each once, the server first, got {text!r}")
    return hosts


def _run_shaped(n: int, words: Sequence[str], config: RunConfig, *, debug: bool) -> int:
    """Run each rank on a separate shaped host, over TCP, and note the bytes on the interfaces."""
    from fastlloyd.supervise.shaped import note_wire_bytes, shaped_hosts
    from fastlloyd.supervise.supervisor import supervise

    with shaped_hosts(config.network or "", n) as hosts:
        shaping = ["--transport", "tcp", "--shaping", hosts.backend]
        if config.print_result is None and not config.review:  # the hosts are namespaces of this machine
            shaping.append("--print-result")
        lines = _json_lines(config)
        code = supervise(n, [*words, *shaping], quiet=config.quiet, debug=debug, place=hosts.command, json_lines=lines)
        if code == EXIT_OK:
            wire_bytes = hosts.sent_bytes()
            note_wire_bytes(Path(config.output), wire_bytes)
            if not config.quiet:
                sys.stdout.write(
                    f"network   {hosts.profile} by {hosts.backend}: {format_bytes(wire_bytes)} on the wire, "
                    "the launcher's and MPI's own included\n"
                )
        return code


def _for_ranks(words: Sequence[str]) -> list[str]:
    """Leave out -n N and --hosts, which are for the launcher and not for the ranks."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        flag = word.partition("=")[0]
        if word in ("-n", "--hosts"):
            next(rest, None)
        elif flag != "--hosts" and not (word.startswith("-n") and word[2:].isdigit()):
            kept.append(word)
    return kept


def _protocols_help(words: Sequence[str]) -> str:
    """List the protocols, and the settings of one if `--help-all` or `--protocol NAME --help` asks for them."""
    asked = next((b for a, b in pairwise(words) if a == "--protocol" and knows(b)), None)
    lines = ["protocols:", *(f"  {name:<16}{summary}" for name, summary in summaries()), ""]
    if asked is None and "--help-all" not in words:
        return "\n".join([*lines, "settings of a protocol: fastlloyd run --protocol NAME --help"])
    from fastlloyd.run.session import find_protocol

    protocol = RunConfig().protocol if asked is None else asked
    lines += [f"settings of {protocol}, for --set or in the run file's table [{protocol}]:"]
    for name, text in find_protocol(protocol).settings_help(protocol).items():
        lines += textwrap.wrap(f"{name}  {text}", 78, initial_indent="  ", subsequent_indent=" " * 8)
    return "\n".join(lines)
