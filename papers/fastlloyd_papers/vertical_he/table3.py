"""Vertical HE Table 3 (b): seconds and megabytes of ten iterations, ten networks, published figures beside ours.

One column at each of two parties, as in the paper; and two at each, by the scheme that a run chooses and by the
pairwise circuit. Runs are timed over the loopback interface; what a network adds is computed, and with `--shaped` some
runs go over shaped links.

Source: Vertical HE, §5.3, Table 3.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastlloyd_papers.engine.cells import Cell
from fastlloyd_papers.engine.chart import Panel
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.shaped import shaped_network, why_not
from fastlloyd_papers.vertical_he.common import Sheet, Timer, compute_seconds
from fastlloyd_papers.vertical_he.network import NETWORKS
from fastlloyd_papers.vertical_he.paper import CLUSTERS, SIZES, published
from fastlloyd_papers.vertical_he.run import Case, synthetic
from fastlloyd_papers.vertical_he.table3_report import ROUNDS, Measured, write_report

NAME = "vertical-he-table3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What is measured.

    Attributes
    ----------
    sizes : tuple of int
        Records, one column each.
    repeats : int
        Of runs with at most 100,000 records.
    pairwise : tuple of int
        Clusters, two columns each.
    pairwise_rounds : int
    shaped : tuple of str
    """

    sizes: tuple[int, ...]
    repeats: int
    pairwise: tuple[int, ...]
    pairwise_rounds: int
    shaped: tuple[str, ...]


FULL = Size(sizes=SIZES, repeats=3, pairwise=CLUSTERS, pairwise_rounds=4, shaped=tuple(NETWORKS))
QUICK = Size(sizes=SIZES[:2], repeats=1, pairwise=(2, 5), pairwise_rounds=2, shaped=("LAN500", "regWAN100", "ccWAN50"))
SHAPED_N, SHAPED_K = 10_000, 5
PAIRWISE_N = 10_000
REPEATED_N = 100_000


def run(options: Options) -> str:
    """Measure all sizes, write Markdown, CSV and PNG, and give the Markdown.

    Raises
    ------
    ConfigError
        A run failed.
    """
    sheet = Sheet(name=NAME, title="Vertical HE, Table 3: ten iterations", options=options)
    size, timer, notes = QUICK if options.quick else FULL, Timer(sheet.workers), []
    shaped: tuple[str, ...] = size.shaped if options.shaped else ()
    if shaped and (reason := why_not() or (None if timer.mpirun else timer.how)) is not None:
        notes.append(f"Shaped networks are left out: {reason}.")
        shaped = ()
    cells = list_cells(size, shaped)
    found = gather(cells, sheet.measure(cells, lambda cell: _measure(cell, timer)))
    sheet.chart(_panels(found))
    return write_report(sheet, found, how=timer.how, notes=notes)


def list_cells(size: Size, shaped: Sequence[str]) -> list[Cell]:
    """List what is measured, repetition by repetition, the short runs of each first."""
    cells: list[dict[str, Any]] = []
    for run in range(size.repeats):
        for n in size.sizes:
            if run == 0 or n <= REPEATED_N:
                cells += [_cell(n, k, (1, 1), ROUNDS, run=run) for k in CLUSTERS]
            if run == 0 and n == PAIRWISE_N:
                for scheme, rounds in (("auto", ROUNDS), ("pairwise", size.pairwise_rounds)):
                    cells += [_cell(n, k, (2, 2), rounds, scheme=scheme) for k in size.pairwise]
                cells += [_cell(SHAPED_N, SHAPED_K, (1, 1), ROUNDS, network=network) for network in shaped]
    return list(cells)


def _cell(
    n: int,
    k: int,
    widths: tuple[int, int],
    rounds: int,
    *,
    scheme: str = "linear",
    run: int = 0,
    network: str = "",
) -> dict[str, Any]:
    columns = "+".join(map(str, widths))
    name = f"n {n}, k {k}, {columns}, {network or scheme}"
    own = {"n": n, "k": k, "columns": columns, "rounds": rounds, "scheme": scheme}
    return {"name": name, **own, "run": run, "network": network}


def gather(cells: Sequence[Cell], values: Sequence[Any]) -> list[Measured]:
    """Put repetitions together: the run with the median total counts."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for cell, value in zip(cells, values, strict=True):
        key = (cell["network"], cell["columns"], cell["n"], cell["k"], cell["rounds"], cell["scheme"])
        groups.setdefault(key, []).append(value)
    found = []
    for (network, columns, n, k, rounds, _), runs in groups.items():
        totals = [compute_seconds(value, rounds) for value in runs]
        median = totals.index(statistics.median_low(totals))
        found.append(
            Measured(network=network, columns=columns, n=n, k=k, rounds=rounds, values=runs, value=runs[median])
        )
    return found


def _measure(cell: Cell, timer: Timer) -> Mapping[str, Any]:
    widths = tuple(int(part) for part in cell["columns"].split("+"))
    points, _ = synthetic(cell["n"], cell["k"], sum(widths))
    case = Case(k=cell["k"], widths=widths, rounds=cell["rounds"], scheme=cell["scheme"], seed=cell["run"])
    if not cell["network"] or timer.mpirun is None:
        return timer.measure(case, points)
    with shaped_network(cell["network"], case.ranks) as network:
        before = network.sent_bytes()
        value = timer.measure(case, points, network.hosts(timer.mpirun))
        wire = network.sent_bytes() - before
    return {**value, "wire_bytes": wire, "backend": network.backend, "congestion": congestion_control()}


def congestion_control(file: Path = Path("/proc/sys/net/ipv4/tcp_congestion_control")) -> str:
    """Name how TCP answers to loss here."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return "unknown"


def _panels(found: Sequence[Measured]) -> list[Panel]:
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for one in found:
        if one.columns != "1+1" or one.network:
            continue
        for label, seconds in (
            (f"k = {one.k}", compute_seconds(one.value, ROUNDS)),
            (f"k = {one.k}, paper", published("LAN10000", one.n, one.k)),
        ):
            xs, ys = lines.setdefault(label, ([], []))
            xs.append(float(one.n))
            ys.append(seconds)
    return [Panel(x_label="records", y_label="seconds, ten iterations", lines=lines)]
