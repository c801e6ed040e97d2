"""The command `fastlloyd`: finds the subcommand and prints the one sentence of an error."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from fastlloyd.errors import FastLloydError, did_you_mean
from fastlloyd.version import __version__

_COMMANDS = {
    "run": "run all ranks on this machine or a host list, supervised, with a progress bar",
    "serve": "serve a run for sites that no mpirun can start: one open port",
    "join": "join a run as one of its clients, over outgoing TCP only",
    "check": "check one party's file alone; contacts nobody",
    "agree": "show this site what it would take part in, and sign its approval",
    "label": "label new records with released centroids",
    "report": "show a finished run again, or verify its privacy from the ledger",
    "plan": "show what a run would do: rounds, noise, ring, bytes; no data needed",
    "bench": "regenerate a paper's table or figure with our figures beside the published ones",
    "datasets": "list the public data sets, or fetch them",
    "keygen": "make this party's key and certificate",
    "roster": "add, show or check pinned certificates",
    "doctor": "check this environment and say what to mend",
}


def usage() -> str:
    """Give the help text."""
    lines = ["usage: fastlloyd COMMAND [flags]      (fastlloyd COMMAND --help for each)", ""]
    lines += [f"  {name:<9} {text}" for name, text in _COMMANDS.items()]
    return "\n".join([*lines, "", "Without a launcher of your own: fastlloyd run -n 3", ""])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(usage())
        return 0
    if words[0] == "--version":
        sys.stdout.write(f"fastlloyd {__version__}\n")
        return 0
    if words[0] not in _COMMANDS:
        close = did_you_mean(words[0], _COMMANDS)
        sys.stderr.write(f"fastlloyd: unknown command {words[0]!r}{close}; known are {', '.join(_COMMANDS)}\n")
        return 2
    try:
        command = importlib.import_module(f"fastlloyd.cli.{words[0]}")
        code: int = command.main(words[1:])
    except FastLloydError as error:
        sys.stderr.write(f"fastlloyd: {error}\n")
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        sys.stderr.write("fastlloyd: interrupted\n")
        return 3
    return code


if __name__ == "__main__":
    sys.exit(main())
