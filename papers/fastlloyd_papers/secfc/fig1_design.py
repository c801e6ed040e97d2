"""What Figure 1 of SecFC measures: points on each axis, the two settings with a target, and how often.

Source: SecFC, §5.1 "Complexity evaluation", Figure 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastlloyd_papers.engine.cells import Cell
from fastlloyd_papers.engine.generate import Shares
from fastlloyd_papers.engine.runner import Job
from fastlloyd_papers.secfc.design import code_for
from fastlloyd_papers.secfc.memory import make_points

BASE: Mapping[str, int] = {"n": 10, "m": 1000, "d": 20, "k": 4}
LARGE: Mapping[str, int] = {"n": 16, "m": 16_384, "d": 100, "k": 16}
TITLES = {"n": "clients n", "d": "features d", "m": "records m", "k": "clusters k"}
SIGMA = 20.0
"""Overlapping components: at sigma = 1 the iterations end before there is anything to time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The points on each axis, how often each is measured, and for how many iterations at most.

    Attributes
    ----------
    most_processes : int
        Clients beyond this run in memory only.
    """

    axes: Mapping[str, tuple[int, ...]]
    runs: int
    rounds: int
    large_rounds: int
    most_processes: int = 16


FULL = Size(
    axes={
        "n": (5, 7, 10, 13, 16, 19, 22),
        "d": (10, 20, 50, 100, 200),
        "m": (500, 1000, 2000, 5000, 10_000, 20_000),
        "k": (2, 4, 8, 16),
    },
    runs=3,
    rounds=20,
    large_rounds=8,
)
QUICK = Size(
    axes={"n": (5, 10, 16), "d": (10, 20, 100), "m": (500, 1000, 5000), "k": (2, 4, 16)},
    runs=1,
    rounds=12,
    large_rounds=5,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecfcJob(Job):
    """One run of `secfc` under mpirun.

    Attributes
    ----------
    settings : mapping
        What `--set` gives.
    """

    settings: Mapping[str, Any]

    def flags(self, output: Path) -> list[str]:
        """Return the flags of the ranks."""
        values: dict[str, Any] = {
            "protocol": "secfc",
            "data": self.shares.template,
            "bounds": "-1,1",
            "n-total": self.shares.n,
            "client-caps": ",".join(map(str, self.shares.caps)),
            "k": self.k,
            "rounds": self.rounds,
            "seed": self.seed,
            "transport": "tcp",
            "output": output,
        }
        chosen = [f"--set=secfc.{name}={value}" for name, value in self.settings.items()]
        return [*(f"--{name}={value}" for name, value in values.items()), *chosen, "--quiet"]


def shape_at(point: Mapping[str, int], rounds: int) -> dict[str, Any]:
    """Return the whole description of a measured point: t = ceil(n / 3) and the largest l that this leaves."""
    segments, threshold = code_for(point["n"])
    return {**point, "l": segments, "t": threshold, "rounds": rounds, "sigma": SIGMA}


def axis_shapes(size: Size, axis: str) -> list[dict[str, Any]]:
    """Return the points on one axis, all else as in the base point."""
    return [shape_at({**BASE, axis: value}, size.rounds) for value in size.axes[axis]]


def target_shapes(size: Size) -> list[dict[str, Any]]:
    """Return the settings that have a target."""
    return [shape_at(BASE, size.rounds), shape_at(LARGE, size.large_rounds)]


def list_cells(size: Size) -> list[Cell]:
    """List what is measured, each point once in each repetition."""
    shapes = [shape for axis in size.axes for shape in axis_shapes(size, axis)] + target_shapes(size)
    unique = {name_of(shape): shape for shape in shapes}
    return [
        {"name": name, "way": way, "run": run, **shape}
        for run in range(size.runs)
        for name, shape in unique.items()
        for way in ("memory", "processes")
        if way == "memory" or shape["n"] <= size.most_processes
    ]


def name_of(shape: Mapping[str, Any]) -> str:
    """Return a name that differs between points."""
    return f"n={shape['n']} m={shape['m']} d={shape['d']} k={shape['k']}"


def make_job(cell: Cell, folder: Path) -> SecfcJob:
    """Write the clients' files, and give the run."""
    points = make_points(cell, cell["sigma"])
    parts = np.array_split(np.arange(len(points)), cell["n"])
    for rank, rows in enumerate(parts, start=1):
        np.save(folder / f"part-{rank}.npy", points[rows])
    return SecfcJob(
        shares=Shares(template=str(folder / "part-{client}.npy"), caps=tuple(len(rows) for rows in parts)),
        k=cell["k"],
        rounds=cell["rounds"],
        seed=cell["run"],
        settings={"segments": cell["l"], "threshold": cell["t"], "start": "random", "starts": 1},
    )
