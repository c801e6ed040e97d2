"""The command `fastlloyd`: finds the subcommand and prints the one sentence of an error."""

from __future__ import annotations

import errno
import importlib
import sys
from collections.abc import Sequence

from fastlloyd.cli import COMMANDS
from fastlloyd.errors import EXIT_INPUT, EXIT_OK, FastLloydError, did_you_mean, unusable_path
from fastlloyd.report.stream import complain, guard_streams, lost_output
from fastlloyd.version import __version__

_IN_RUN = ("run", "serve", "join", "site")


def usage() -> str:
    """Return the help text."""
    lines = ["usage: fastlloyd COMMAND [flags]      (fastlloyd COMMAND --help for each)", ""]
    lines += [f"  {name:<10} {text}" for name, text in COMMANDS.items()]
    return "\n".join([*lines, "", "Without a launcher of your own: fastlloyd run -n 3", ""])


def _numbers() -> str:
    """Return what parties compare beside their configurations: versions of messages and, by protocol, of results."""
    from fastlloyd.protocols.registry import results_versions
    from fastlloyd.wire.header import PROTOCOL_VERSION

    results = ", ".join(f"{name} {number}" for name, number in results_versions())
    return f"messages: {PROTOCOL_VERSION}\nresults: {results}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    in_run = bool(words) and words[0] in _IN_RUN
    guard_streams(says_pipe=in_run)
    try:
        code = _command(words)
    except SystemExit as ended:  # argparse has printed its help
        if not ended.code and _is_lost(in_run):
            return EXIT_INPUT
        raise
    return EXIT_INPUT if code == EXIT_OK and _is_lost(in_run) else code


def _is_lost(in_run: bool) -> bool:
    """Whether the output that a command is about is lost; a reader that went away has read all that it needed."""
    error = lost_output()
    return error is not None and not in_run and error.errno != errno.EPIPE


def _command(words: list[str]) -> int:
    """Run one subcommand and return its exit code."""
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(usage())
        return 0
    if words[0] == "--version":
        sys.stdout.write(f"fastlloyd {__version__}\n{_numbers()}\n")
        return 0
    if words[0] not in COMMANDS:
        close = did_you_mean(words[0], COMMANDS)
        complain(f"unknown command {words[0]!r}{close}; known are {', '.join(COMMANDS)}")
        return 2
    try:
        command = importlib.import_module(f"fastlloyd.cli.{words[0].replace('-', '_')}")
        code: int = command.main(words[1:])
    except FastLloydError as error:
        complain(str(error))
        return error.exit_code
    except UnicodeEncodeError as error:  # of a file name: all that is written is UTF-8 or escaped
        complain(f"this locale ({error.encoding}) cannot name {error.object!r}; start it with LC_ALL=C.UTF-8")
        return EXIT_INPUT
    except OSError as error:
        if error.filename is None:
            raise
        complain(str(unusable_path(error)))
        return EXIT_INPUT
    except KeyboardInterrupt:
        complain("interrupted")
        return 3
    return code


if __name__ == "__main__":
    sys.exit(main())
