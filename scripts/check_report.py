"""Check a finished run: both reports against the schema, the ledger against the report, and how it ran.

Usage: check_report.py DIR MPI, where MPI is how report.json must name its MPI library ("MPICH", "Open MPI").
Prints one line and leaves with 0, or says what was wrong and leaves with 2.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fastlloyd.dossier.verify import verify
from fastlloyd.errors import EXIT_INPUT, EXIT_OK, ConfigError
from fastlloyd.report.document import load


def check(folder: Path, mpi: str) -> str:
    """Return one line about a run that is as it should be.

    Raises
    ------
    ConfigError
        A file is missing or damaged, or the run was not authenticated, not over TCP or not with this MPI.
    """
    report, server = load(folder / "report.json"), load(folder / "server.json", "server")
    verify(folder)
    found = {
        "the run of server.json": (report["run"], server["run"]),
        "authenticated": (True, report["parties"]["authenticated"]),
        "the transport": ("tcp", report["network"]["transport"]),
        "the MPI library": (mpi, str(report["machine"]["mpi"])[: len(mpi)]),
    }
    for name, (expected, got) in found.items():
        if got != expected:
            raise ConfigError(f"{folder}: expected {name} to be {expected!r}, got {got!r}")
    privacy = report["privacy"]
    return (
        f"{report['parties']['clients']} clients over TCP, authenticated, {report['parameters']['rounds']} rounds, "
        f"epsilon {privacy['spent_epsilon']:.4g} spent of {privacy['epsilon']:g}, reports valid, ledger verified"
    )


if __name__ == "__main__":
    try:
        print(check(Path(sys.argv[1]), sys.argv[2]))
    except ConfigError as error:
        print(error, file=sys.stderr)
        sys.exit(EXIT_INPUT)
    sys.exit(EXIT_OK)
