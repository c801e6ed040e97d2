"""The command line: list, up, down, status, exec, counters and measure."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from . import emulator, kernel, namespace, setup, table, verdict
from .failure import EXIT_TOLERANCE, NetemError, UsageError
from .plan import DEFAULT_NAME, Plan
from .profile import DEFAULT_FILE, find_profile, load_profiles

_EPILOGUE = """A set-up is a full mesh: every host is a network namespace with the address 10.77.0.N on one
switch, and each packet is shaped once, as it leaves its host. Nothing outside the set-up's own
namespaces is touched, unless --interface names an interface. Exit codes: 0 done, 1 a measurement is
out of tolerance (or no such set-up, for status), 2 the command is wrong, 3 the machine cannot do it."""


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    words, command = _split(arguments)
    options = _parser().parse_args(words)
    options.command = command
    try:
        return int(options.act(options))
    except NetemError as error:
        sys.stderr.write(f"netem: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate what follows `--`: a command for a host, whose flags are not ours."""
    words = list(arguments)
    if "--" not in words:
        return words, []
    place = words.index("--")
    return words[:place], words[place + 1 :]


def _parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(prog="netem", description=__doc__, epilog=_EPILOGUE)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    name = argparse.ArgumentParser(add_help=False)
    name.add_argument("--name", default=DEFAULT_NAME, help=f"which set-up, several may exist (default {DEFAULT_NAME})")
    output = argparse.ArgumentParser(add_help=False)
    output.add_argument("--json", action="store_true", help="print one JSON document")
    profiles = argparse.ArgumentParser(add_help=False)
    profiles.add_argument("--profiles", type=Path, default=DEFAULT_FILE, help="a file of profiles of your own")
    shaping = argparse.ArgumentParser(add_help=False, parents=[profiles])
    shaping.add_argument(
        "--backend", choices=("auto", "netem", "emulator"), default="auto", help="who shapes (default: netem if it can)"
    )

    one = commands.add_parser("list", parents=[profiles], help="list the profiles")
    one.set_defaults(act=_list)
    one = commands.add_parser("up", parents=[name, output, shaping], help="make hosts under a profile")
    one.add_argument("profile")
    one.add_argument("--hosts", type=int, default=3, help="how many (default 3)")
    one.add_argument("--interface", help="instead of making hosts, shape what leaves this real interface")
    one.set_defaults(act=_up)
    one = commands.add_parser("down", parents=[name], help="end what runs on the hosts and remove them")
    one.add_argument("--all", action="store_true", help="every set-up of this tool")
    one.add_argument("--interface", help="instead, put a real interface's default back")
    one.set_defaults(act=_down)
    one = commands.add_parser("status", parents=[output], help="show one set-up, or all")
    one.add_argument("--name", help="which (default: all)")
    one.set_defaults(act=_status)
    one = commands.add_parser("exec", parents=[name], help="run a command on a host: exec HOST -- COMMAND")
    one.add_argument("host", help="a number, host name, namespace or address")
    one.set_defaults(act=_exec)
    one = commands.add_parser(
        "counters", parents=[name, output], help="show bytes and packets on each host's interface"
    )
    one.set_defaults(act=_counters)
    one = commands.add_parser("measure", parents=[output, shaping], help="measure profiles: asked against seen")
    one.add_argument("profile", nargs="+", help="one or more, or `all`")
    one.add_argument("--markdown", action="store_true", help="print a Markdown table")
    one.set_defaults(act=_measure)
    one = commands.add_parser("forward", parents=[name, profiles], help="internal: the emulator's process")
    one.add_argument("profile")
    one.add_argument("--hosts", type=int, required=True)
    one.set_defaults(act=_forward)
    return parser


def _list(options: argparse.Namespace) -> int:
    """Print the profiles."""
    print("\n".join(table.profile_lines(load_profiles(options.profiles).values())))
    return 0


def _up(options: argparse.Namespace) -> int:
    """Make a set-up, or shape a real interface."""
    profile = find_profile(options.profile, options.profiles)
    if options.interface is not None:
        namespace.check_machine()
        if options.backend == "emulator" or options.json:
            raise UsageError("expected --interface without --json and --backend emulator: the kernel shapes it alone")
        kernel.shape_real(profile, options.interface)
        print(
            f"{options.interface}: what leaves is shaped as {profile.name}; undo: down --interface {options.interface}"
        )
        return 0
    made = setup.up(
        Plan(options.name, profile, options.hosts),
        None if options.backend == "auto" else options.backend,
        profiles_file=options.profiles,
    )
    document = made.document()
    print(json.dumps(document, indent=2) if options.json else "\n".join(table.status_lines(document)))
    return 0


def _down(options: argparse.Namespace) -> int:
    """Remove one set-up, or all, or the shaping of a real interface."""
    if options.interface is not None:
        namespace.check_machine()
        done = "released" if kernel.release_real(options.interface) else "not shaped by this tool, left as it is"
        print(f"{options.interface}: {done}")
        return 0
    for name in setup.names() if options.all else [options.name]:
        print(f"{name}: removed" if setup.down(name) else f"{name}: nothing there")
    return 0


def _status(options: argparse.Namespace) -> int:
    """Show what is up; with a name, exit 1 when that is not, or not whole."""
    names = setup.names() if options.name is None else [options.name]
    documents = []
    for name in names:
        try:
            documents.append(setup.find(name).document())
        except UsageError:
            # Killed half way: namespaces without a state file. `down` removes them by their names.
            documents.append({"name": name, "profile": None, "backend": None, "hosts": [], "working": False})
    if options.json:
        print(json.dumps({"setups": documents}, indent=2))
    elif not documents:
        print("nothing is up")
    for document in () if options.json else documents:
        print("\n".join(table.status_lines(document)) if document["hosts"] else f"{document['name']}: not up")
    return 0 if options.name is None or documents[0]["working"] else EXIT_TOLERANCE


def _exec(options: argparse.Namespace) -> int:
    """Become a command on a host."""
    if not options.command:
        raise UsageError("expected `exec HOST -- COMMAND`, got no command after --")
    setup.execute(setup.find(options.name), options.host, options.command)


def _counters(options: argparse.Namespace) -> int:
    """Print the interface counters."""
    namespace.check_machine()
    document = setup.find(options.name).counters()
    print(json.dumps(document, indent=2) if options.json else "\n".join(table.counter_lines(document)))
    return 0


def _measure(options: argparse.Namespace) -> int:
    """Measure profiles one after the other, each on a separate set-up."""
    names = list(load_profiles(options.profiles)) if options.profile == ["all"] else options.profile
    profiles = [find_profile(name, options.profiles) for name in names]
    wanted = None if options.backend == "auto" else options.backend
    measurements: list[verdict.Measurement] = []
    for number, profile in enumerate(profiles):
        plan = Plan(f"measure{os.getpid()}", profile, 2)
        with setup.signals_raised():
            try:
                made = setup.up(plan, wanted, profiles_file=options.profiles)
                measurements.append(verdict.measure(made))
            finally:
                setup.down(plan.name)
        if not options.json:
            lines = table.measurement_lines(measurements[-1:], markdown=options.markdown)
            print("\n".join(lines if number == 0 or not options.markdown else lines[2:]), flush=True)
    if options.json:
        print(json.dumps([table.measurement_document(one) for one in measurements], indent=2))
    return 0 if all(one.met for one in measurements) else EXIT_TOLERANCE


def _forward(options: argparse.Namespace) -> int:
    """Be the emulator."""
    emulator.serve(Plan(options.name, find_profile(options.profile, options.profiles), options.hosts))
    return 0
