"""What the cost figures of FedDP-KMeans measure: panels, methods, budgets and repetitions.

Source: FedDP-KMeans, Figures 1 to 6 and 8 to 14.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fastlloyd_papers.engine.cells import Cell
from fastlloyd_papers.feddp.data import Source
from fastlloyd_papers.feddp.run import KFED, OPTIMAL, STARTS

OURS = "FedDP-KMeans"
PUBLISHED = "published calibration (no privacy claim)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured.

    Attributes
    ----------
    epsilons : tuple of float
    runs : int
        Repetitions; a mixture is drawn anew for each.
    own_rounds, baseline_rounds : tuple of int
        Lloyd steps after our start and after the baselines'; the best counts for each epsilon.
    starts : tuple of str
        Which methods, out of `STARTS`.
    published : bool
        Also draw our method with the published code's calibration.
    """

    epsilons: tuple[float, ...]
    runs: int
    own_rounds: tuple[int, ...] = (0, 1)
    baseline_rounds: tuple[int, ...] = (1, 2)
    starts: tuple[str, ...] = tuple(STARTS)
    published: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of the paper.

    Attributes
    ----------
    name : str
        Of the benchmark and its files.
    title : str
    paper : str
        What the published figure shows, in words: it prints no numbers.
    quick, full : tuple of (Source, Size)
        The panels.
    """

    name: str
    title: str
    paper: str
    quick: tuple[tuple[Source, Size], ...] = field(repr=False)
    full: tuple[tuple[Source, Size], ...] = field(repr=False)


def list_cells(source: Source, size: Size) -> list[Cell]:
    """List what is measured on one source, in an order in which little is computed twice.

    One repetition after the other, for it shares its records; in it, methods of one budget beside each other, for they
    share calibration and grids.
    """
    ours = [OURS] if OURS in size.starts else []
    published = [PUBLISHED] if size.published and source.level == "record" else []
    baselines = [start for start in size.starts if start != OURS]
    cells: list[Cell] = []
    for run in range(size.runs):
        common: dict[str, Any] = {"name": source.label, "run": run}
        cells += [{**common, "method": OPTIMAL}, {**common, "method": KFED}]
        rounds = [(count, [*ours, *published] if i == 0 else ours) for i, count in enumerate(size.own_rounds)]
        rounds += [(count, baselines) for count in size.baseline_rounds]
        cells += [
            {**common, "method": method, "epsilon": epsilon, "rounds": count}
            for count, methods in rounds
            for epsilon in size.epsilons
            for method in methods
        ]
    return cells
