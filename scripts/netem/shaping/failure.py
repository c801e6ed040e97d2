"""What can go wrong, sorted by who has to act.

The scripts run from a fresh clone, before anything is installed: so they do not import the package's
own errors, but exit with the same codes.
"""

from __future__ import annotations

EXIT_TOLERANCE = 1
EXIT_USAGE = 2
EXIT_MACHINE = 3


class NetemError(Exception):
    """Anything this tool gives up on; the text says what was expected, what came and what to do."""

    exit_code = EXIT_USAGE


class UsageError(NetemError):
    """A flag, a profile or a name is wrong."""


class MachineError(NetemError):
    """The machine cannot do it: rights, tools, kernel, or a set-up that is in the way."""

    exit_code = EXIT_MACHINE
