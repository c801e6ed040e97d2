"""How time and bytes of a FastLloyd round grow with records, clusters, features and clients.

From one base point, one quantity at a time. Clients run as processes under mpirun; beyond what a machine
can hold as processes, all parties run in memory, in one thread, without links.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastlloyd.errors import RangeError
from fastlloyd.net.cores import cores
from fastlloyd.net.mpi.launcher import Mpirun, find_mpirun
from fastlloyd.privacy.calibration import paper_delta
from fastlloyd.protocols.fastlloyd.plan import make_plan
from fastlloyd.protocols.fastlloyd.settings import PublicParameters
from fastlloyd.report.plot import available
from fastlloyd_papers.engine.cells import Cell, measure_cells, open_cells
from fastlloyd_papers.engine.chart import Panel, line_panels
from fastlloyd_papers.engine.files import write_files
from fastlloyd_papers.engine.generate import Source, Workspace
from fastlloyd_papers.engine.machine import describe_machine, describe_software
from fastlloyd_papers.engine.memory import run_in_memory
from fastlloyd_papers.engine.quiet import COLUMNS, entries, marked, words
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.runner import Job, run_job
from fastlloyd_papers.engine.tables import csv_table, markdown_table, summarise

NAME = "fastlloyd-scaling"
EPSILON = 0.1
DELAY_S = 0.00025
BASE = {"n": 100_000, "k": 5, "d": 5, "clients": 2}
TITLES = {"n": "records N", "k": "clusters k", "d": "features d", "clients": "clients M"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The points on each axis, and how often and how long each is measured."""

    axes: dict[str, tuple[int, ...]]
    memory: tuple[int, ...]
    runs: int
    rounds: int
    memory_rounds: int


FULL = Size(
    axes={
        "n": (10_000, 100_000, 1_000_000, 10_000_000),
        "k": (2, 5, 16, 64, 128, 512),
        "d": (2, 5, 16, 64, 128, 512),
        "clients": (2, 4, 8, 16, 32, 64),
    },
    memory=(2, 8, 32, 100, 316, 1000),
    runs=3,
    rounds=30,
    memory_rounds=5,
)
QUICK = Size(
    axes={"n": (10_000, 100_000), "k": (2, 5, 16), "d": (2, 5, 16), "clients": (2, 4)},
    memory=(2, 16, 128),
    runs=1,
    rounds=10,
    memory_rounds=3,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured point.

    Attributes
    ----------
    axis : str
        What was varied: 'n', 'k', 'd' or 'clients'.
    way : {'processes', 'memory'}
    milliseconds, payload, setup : float
        Medians over the runs: time and payload bytes of a round, seconds of the set-up (0 in memory).
    values : sequence
        What was measured, run by run, with the conditions.
    """

    axis: str
    way: str
    n: int
    k: int
    d: int
    clients: int
    ring: int
    runs: int
    milliseconds: float
    least: float
    largest: float
    payload: float
    setup: float
    values: Sequence[Any] = field(default=(), repr=False)

    @property
    def place(self) -> int:
        """Where on its axis it stands."""
        return int(getattr(self, self.axis))


def run(options: Options) -> str:
    """Measure all points, write Markdown, CSV and PNG, and give the Markdown.

    Raises
    ------
    ConfigError
        There is no mpirun, or a run failed.
    """
    mpirun = find_mpirun()
    size = QUICK if options.quick else FULL
    machine, software = describe_machine(), describe_software(mpirun)
    cells = list_cells(size)
    store = open_cells(options, NAME, software=software)
    with tempfile.TemporaryDirectory(prefix="fastlloyd-bench-") as folder:
        meter = _meter(Workspace(Path(folder)), mpirun)
        values = measure_cells(cells, meter, store, progress=options.progress, watch=options.watch)
    points = gather_points(cells, values)
    conditions = f"{machine}; {software}. {words(values)}\n\n{_words(size)}"
    text = write_report(points, conditions, options.output, quick=options.quick)
    store.remove()
    return text


def list_cells(size: Size) -> list[Cell]:
    """List what is measured, repetition by repetition: what is compared takes turns, though records are made again."""
    shapes = [(axis, {**BASE, axis: value}) for axis, values in size.axes.items() for value in values]
    shapes_in_memory = [("clients", {**BASE, "clients": value}) for value in size.memory]
    kinds: list[dict[str, Any]] = []
    for way, some in (("processes", shapes), ("memory", shapes_in_memory)):
        rounds = size.rounds if way == "processes" else size.memory_rounds
        for axis, shape in some:
            ring = ring_bits(shape, rounds + 1)
            common = {"axis": axis, "way": way, **shape, "ring": ring, "rounds": rounds}
            name = f"{way}, {axis} = {shape[axis]:,}"
            kinds.append({"name": name, **common})
    return [{**kind, "run": repetition} for repetition in range(size.runs) for kind in kinds]


def ring_bits(shape: dict[str, int], rounds: int) -> int:
    """Return the narrower ring that holds the sums of these public numbers."""
    try:
        make_plan(_public(shape, rounds, 32), d=shape["d"], names=_names(shape["d"]))
    except RangeError:
        return 64
    return 32


def gather_points(cells: Sequence[Cell], values: Sequence[Any]) -> list[Point]:
    """Take the repetitions of each point together."""
    groups: dict[str, list[tuple[Cell, Any]]] = {}
    for cell, value in zip(cells, values, strict=True):
        groups.setdefault(cell["name"], []).append((cell, value))
    points = []
    for pairs in groups.values():
        cell = pairs[0][0]
        time = summarise([1e3 * value["seconds"] for _, value in pairs])
        points.append(
            Point(
                **{key: cell[key] for key in ("axis", "way", "n", "k", "d", "clients", "ring")},
                runs=time.count,
                milliseconds=time.median,
                least=time.least,
                largest=time.largest,
                payload=pairs[0][1]["bytes_per_round"],
                setup=statistics.median(value["setup_seconds"] for _, value in pairs),
                values=[value for _, value in pairs],
            )
        )
    return points


def write_report(points: Sequence[Point], conditions: str, output: Path, *, quick: bool) -> str:
    """Write Markdown, CSV and PNG, and give the Markdown."""
    parts = [f"# FastLloyd, scaling{' (quick)' if quick else ''}", conditions]
    header = ["run as", "N", "k", "d", "M", "ring", "round, ms", "least to largest", "set-up, s", "payload, bytes"]
    for axis, title in TITLES.items():
        own = [point for point in points if point.axis == axis]
        parts += [f"## Against {title}", markdown_table(header, [_line(point) for point in own])]
    picture = line_panels(_panels(points), columns=len(TITLES)) if available() else None
    fields = [name for name in Point.__dataclass_fields__ if name != "values"]
    lines = [[*(getattr(point, name) for name in fields), *entries(point.values)] for point in points]
    return write_files(
        output,
        NAME,
        parts,
        csv_table([*fields, *COLUMNS], lines),
        picture=picture,
        about="Time and bytes of a round against N, k, d and M",
    )


def _words(size: Size) -> str:
    base = ", ".join(f"{name} = {BASE[key]:,}" for name, key in (("N", "n"), ("k", "k"), ("d", "d"), ("M", "clients")))
    return (
        f"From {base}, one quantity at a time, on balanced generated clusters. Processes: MPI over TCP on localhost, "
        f"TLS 1.3, each send delayed by 0.25 ms, {size.runs} run(s) of {size.rounds} rounds, median of the runs' "
        "medians as the server sees a round, first round left out; M + 1 processes share "
        f"{cores()} core(s). Memory: all parties in one thread, no links, no delay, {size.memory_rounds} rounds, mean "
        "time from one round's reply to the next one's, set-up left out. The ring has 32 bits where the sums fit, else "
        "64. Payload: all parties together."
    )


def _line(point: Point) -> list[str]:
    shape = [f"{point.n:,}", str(point.k), str(point.d), str(point.clients), str(point.ring)]
    spread = f"{point.least:.2f} to {point.largest:.2f}"
    setup = "" if point.way == "memory" else f"{point.setup:.2f}"
    time = marked(f"{point.milliseconds:.2f}", point.values)
    return [point.way, *shape, time, spread, setup, f"{point.payload:,.0f}"]


def _panels(points: Sequence[Point]) -> list[Panel]:
    """Make the upper row of panels for time, the lower one for bytes."""
    panels = []
    for label, value in (("ms per round", "milliseconds"), ("payload bytes per round", "payload")):
        for axis, title in TITLES.items():
            lines = {}
            for way in ("processes", "memory"):
                own = [point for point in points if point.axis == axis and point.way == way]
                if own:
                    lines[way] = ([point.place for point in own], [getattr(point, value) for point in own])
            panels.append(Panel(x_label=title, y_label=label, lines=lines))
    return panels


def _meter(work: Workspace, mpirun: Mpirun) -> Callable[[Cell], Any]:
    """Return the function that measures one cell; only one source's files are kept."""
    last: list[Source] = []

    def measure(cell: Cell) -> Any:
        source = Source(n=cell["n"], k=cell["k"], d=cell["d"])
        if last != [source]:
            work.forget()
            last[:] = [source]
        if cell["way"] == "memory":
            public = _public({**cell}, cell["rounds"], cell["ring"])
            return run_in_memory(work.points(source), make_plan(public, d=source.d, names=_names(source.d)))
        job = Job(
            shares=work.shares(source, cell["clients"]),
            k=source.k,
            rounds=cell["rounds"] + 1,
            ring_bits=cell["ring"],
            delay_s=DELAY_S,
            epsilon=EPSILON,
            seed=cell["run"],
        )
        measured = run_job(job, mpirun)
        return {
            "seconds": statistics.median(measured["seconds"]),
            "bytes_per_round": measured["payload_bytes_per_round"],
            "setup_seconds": measured["setup_seconds"],
        }

    return measure


def _public(shape: dict[str, Any], rounds: int, ring: int) -> PublicParameters:
    return PublicParameters(
        protocol="fastlloyd",
        clients=shape["clients"],
        min_clients=shape["clients"],
        k=shape["k"],
        n_total=shape["n"],
        epsilon=EPSILON,
        delta=paper_delta(shape["n"]),
        rounds=rounds,
        seed=shape.get("run", 0),
        ring_bits=ring,
        masking="common",
        known_shares=1,
        settings={},
    )


def _names(d: int) -> tuple[str, ...]:
    return tuple(f"x{i + 1}" for i in range(d))
