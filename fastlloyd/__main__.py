"""The command `fastlloyd`: finds the subcommand and prints the one sentence of an error."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Sequence

from fastlloyd.cli import COMMANDS
from fastlloyd.errors import FastLloydError, did_you_mean
from fastlloyd.version import __version__


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
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(usage())
        return 0
    if words[0] == "--version":
        sys.stdout.write(f"fastlloyd {__version__}\n{_numbers()}\n")
        return 0
    if words[0] not in COMMANDS:
        close = did_you_mean(words[0], COMMANDS)
        _complain(f"unknown command {words[0]!r}{close}; known are {', '.join(COMMANDS)}")
        return 2
    try:
        command = importlib.import_module(f"fastlloyd.cli.{words[0]}")
        code: int = command.main(words[1:])
    except FastLloydError as error:
        _complain(str(error))
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        _complain("interrupted")
        return 3
    return code


def _complain(sentence: str) -> None:
    """Print the sentence of an error."""
    from fastlloyd.report.display import paint
    from fastlloyd.report.lines import speaks_json

    if speaks_json():
        logging.getLogger("fastlloyd").error("%s", sentence)
        return
    sys.stderr.write(paint(f"fastlloyd: {sentence}\n", sys.stderr))


if __name__ == "__main__":
    sys.exit(main())
