"""FastLloyd Table 3: time and bytes of one round with two clients, beside the published figures.

In the paper's way each send waits for a fixed time. The paper's text says 0.25 ms; its published code
waits 0.125 ms, so that is what ours waits when both are timed in turn. WAN is 25 ms, as in that code. With
`--shaped`, packets are delayed in network namespaces instead.

Source: FastLloyd, §6.1.1, §6.1.3, Table 3.
"""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.net.mpi.launcher import Mpirun, find_mpirun
from fastlloyd_papers.engine.cells import Cell, measure_cells, open_cells
from fastlloyd_papers.engine.generate import Workspace
from fastlloyd_papers.engine.machine import describe_machine, describe_software
from fastlloyd_papers.engine.peer import Peer, open_peer, time_peer
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.runner import Job, run_job
from fastlloyd_papers.engine.shaped import shaped_network, why_not
from fastlloyd_papers.fastlloyd.table3_design import CLIENTS, EPSILON, FULL, NAME, QUICK, ROWS, Row, list_cells
from fastlloyd_papers.fastlloyd.table3_report import Figures, write_report

WIRE_ROUNDS = 900
WIRE_EPSILON = 1.0


def run(options: Options) -> str:
    """Measure all cells, write Markdown, CSV and PNG, and give the Markdown.

    Raises
    ------
    ConfigError
        There is no mpirun, a run failed, or a flag does not fit.
    """
    mpirun = find_mpirun()
    peer = None if options.peer is None else open_peer(options.peer, options.peer_python)
    size = QUICK if options.quick else FULL
    notes = []
    shaped = options.shaped
    if shaped and (reason := why_not()) is not None:
        notes.append(f"Shaped networks are left out: {reason}.")
        shaped = False
    machine, software = describe_machine(), describe_software(mpirun)
    with tempfile.TemporaryDirectory(prefix="fastlloyd-bench-") as folder:
        work = Workspace(Path(folder), options.data_dir)
        rows, left_out = _usable_rows(work)
        notes += left_out
        cells = list_cells(rows, size, peer, shaped=shaped)
        store = open_cells(options, NAME, software=software)
        values = measure_cells(cells, _meter(work, mpirun, peer), store, progress=options.progress, watch=options.watch)
    figures = Figures(rows=rows, cells=cells, values=values, machine=machine, software=software, peer=peer, notes=notes)
    text = write_report(figures, options.output, size, quick=options.quick)
    store.remove()
    return text


def _usable_rows(work: Workspace) -> tuple[list[Row], list[str]]:
    """Leave out public sets that are not there, with a note."""
    rows, notes = [], []
    for row in ROWS:
        try:
            work.shares(row.source, CLIENTS)
        except ConfigError as error:
            notes.append(f"{row.title} is left out: {error}.")
        else:
            rows.append(row)
    return rows, notes


def _meter(work: Workspace, mpirun: Mpirun, peer: Peer | None) -> Callable[[Cell], Any]:
    """Return the function that measures one cell."""
    sources = {row.source.label: row.source for row in ROWS}

    def measure(cell: Cell) -> Any:
        source = sources[cell["name"]]
        if cell["kind"] == "peer" and peer is not None:
            return time_peer(peer, source.label, work.points(source), repeats=cell["repeats"])
        job = Job(
            shares=work.shares(source, CLIENTS),
            k=source.k,
            rounds=cell["rounds"] + 1,
            ring_bits=cell.get("ring", 32),
            delay_s=cell.get("delay", 0.0),
            # Very many rounds at 0.1 would need more noise than the ring of 32 bits holds; bytes do not depend on it.
            epsilon=WIRE_EPSILON if cell["kind"] == "shaped" else EPSILON,
            seed=cell["run"],
        )
        if cell["kind"] == "shaped":
            return _measure_shaped(job, mpirun, cell["net"])
        return _ours(run_job(job, mpirun))

    return measure


def _ours(measured: dict[str, Any]) -> dict[str, Any]:
    """Keep of a run what the table needs."""
    return {
        "seconds": statistics.fmean(measured["seconds"]),
        "median_seconds": statistics.median(measured["seconds"]),
        "bytes_per_round": measured["payload_bytes_per_round"],
    }


def _measure_shaped(job: Job, mpirun: Mpirun, profile: str) -> dict[str, Any]:
    """Time a run; under lan count bytes, too, by a second one with many more rounds.

    The difference of two runs is free of wiring and set-up. What is left of these (the number of acknowledgements
    differs by some thousand bytes from run to run) is spread over all the rounds that the second has more.
    """
    with shaped_network(profile, job.ranks) as network:
        hosts = network.hosts(mpirun)
        start = network.sent_bytes()
        short = run_job(job, mpirun, hosts=hosts)
        measured = {**_ours(short), "backend": network.backend}
        if profile != "lan":
            return measured
        middle = network.sent_bytes()
        long = run_job(dataclasses.replace(job, rounds=job.rounds + WIRE_ROUNDS), mpirun, hosts=hosts)
        end = network.sent_bytes()
    return {
        **measured,
        "wire_bytes_per_round": ((end - middle) - (middle - start)) / WIRE_ROUNDS,
        "link_bytes_per_round": (long["rounds_link_bytes"] - short["rounds_link_bytes"]) / WIRE_ROUNDS,
    }
