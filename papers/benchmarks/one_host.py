"""Ranks of one host over TCP and over shared memory, by turns; and the bytes of reports beside those on the interface.

Run: python papers/benchmarks/one_host.py. The namespaces in which bytes are counted need the rights to make them.
Writes a table for papers/benchmarks/results/one_host.md to standard output.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fastlloyd.net.mpi.launcher import find_mpirun, mpirun_command

PAIRS, ROUNDS = 7, 300
CLIENT = (sys.executable, "-m", "fastlloyd.client", "--quiet", "--output", "out")
TIMED = ("--protocol", "lloyd", "--dataset", "iris", "--rounds", str(ROUNDS))
COUNTED = {"the literal command": (), "iris, 60 rounds": ("--dataset", "iris", "--rounds", "60")}
ALONE = ("unshare", "-rn", "sh", "-c", 'ip link set lo up; "$@" >/dev/null; sed -n "s/ *lo: *//p" /proc/net/dev', "sh")


def run(folder: Path, *flags: str, alone: bool = False) -> tuple[dict[str, Any], int]:
    """Run three ranks; return the report, and the bytes on the interface if it is a namespace's."""
    command, env = mpirun_command(find_mpirun(), 3, [*CLIENT, "--overwrite", *flags])
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    words = [*ALONE, *command] if alone else command
    done = subprocess.run(words, cwd=folder, env={**os.environ, **env, **root}, capture_output=True, check=True)
    report = json.loads((folder / "out" / "report.json").read_text())
    return report, int(done.stdout.split()[8]) if alone else 0


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rounds: dict[str, list[float]] = {"shm": [], "tcp": []}
        for pair in range(PAIRS):
            for transport in ("shm", "tcp") if pair % 2 else ("tcp", "shm"):
                report, _ = run(folder, "--transport", transport, *TIMED)
                rounds[transport].append(statistics.median(each["seconds"] for each in report["rounds"]) * 1e3)
        ratios = sorted(tcp / shm for shm, tcp in zip(rounds["shm"], rounds["tcp"], strict=True))
        mpi = report["machine"]["mpi"]
        figures = f"{min(rounds['shm']):.2f} | {min(rounds['tcp']):.2f}"
        print(f"| {mpi} | {figures} | {ratios[0]:.2f} | {statistics.median(ratios):.2f} | {ratios[-1]:.2f} |")
        for what, flags in COUNTED.items():
            report, interface = run(folder, *flags, alone=True)
            traffic = report["traffic"]
            parts = [
                traffic["link_bytes"],
                *(traffic["wire"][part] for part in sorted(traffic["wire"]) if part != "counted"),
            ]
            off = traffic["wire_bytes"] / interface - 1
            print(
                f"| {mpi}, {what} | {' | '.join(f'{part:,}' for part in (*parts, traffic['wire_bytes'], interface))} | {off:.2%} |"
            )


if __name__ == "__main__":
    main()
