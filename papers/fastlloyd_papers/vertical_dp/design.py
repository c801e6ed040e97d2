"""What the figures of vertical DP measure: methods, data sets, budgets and repetitions.

Source: Vertical DP, §6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastlloyd.protocols.vertical_dp.local_plan import BOX_TREE
from fastlloyd_papers.engine.cells import Cell
from fastlloyd_papers.vertical_dp.data import Source
from fastlloyd_papers.vertical_dp.run import (
    CENTRAL,
    CENTRAL_PRIVATE,
    EXACT,
    EXACT_PAIRS,
    HISTOGRAM,
    REPORT_PAIRS,
    REPORTS,
    SKETCH,
    Method,
)

_UNIONS = {"estimator": "basic", "fit": "paper"}
_PAPER = {**_UNIONS, "phantoms": "paper", "composition": "paper", "local": BOX_TREE}

OURS = Method(name="vertical-dp", weights=SKETCH, local_clusters=None)
OURS_FIVE = Method(name="vertical-dp, k' = 5", weights=SKETCH)
CORRECTED_PAIRS = Method(name="2PEst, corrected", weights=SKETCH, settings=_UNIONS)
# The same local clustering and division of epsilon as the baselines': only the weights differ.
CORRECTED_LOOSE = Method(
    name="2PEst, corrected, paper's composition", weights=SKETCH, settings={**_UNIONS, "composition": "paper"}
)
CORRECTED_FIT = Method(name="unions, entropy fit", weights=SKETCH, settings={"estimator": "basic"})
CORRECTED_BASIC = Method(name="BasicEst, corrected", weights=SKETCH, settings={**_UNIONS, "weights": "basic"})
PAPER_PAIRS = Method(name="2PEst as published (no privacy claim)", weights=SKETCH, settings=_PAPER, claim=False)
PAPER_BASIC = Method(
    name="BasicEst as published (no privacy claim)",
    weights=SKETCH,
    settings={**_PAPER, "weights": "basic"},
    claim=False,
)
IND_LAP = Method(name="IND-LAP", weights=HISTOGRAM)
LDP_AGG = Method(name="LDP-AGG", weights=REPORTS)
LDP_PAIRS = Method(name="LDP-AGG-2PEst", weights=REPORT_PAIRS)
CENTRAL_TREE = Method(name="central box tree", weights=CENTRAL_PRIVATE)
PLAIN = Method(name="vertical-plain", weights=EXACT, plain_local=True, claim=False, by_epsilon=False)
PAIRS_KNOWN = Method(name="exact pairs", weights=EXACT_PAIRS, plain_local=True, claim=False, by_epsilon=False)
CENTRAL_KMEANS = Method(name="central k-means", weights=CENTRAL, claim=False, by_epsilon=False)

# The paper prints no budgets; those who repeat its experiments say 0.5 to 5 (Vertical HE, §5.4). Nor does it say how
# many repetitions it has.
EPSILONS = (0.5, 1.0, 2.0, 5.0)
QUICK_EPSILONS = (0.5, 1.0, 4.0)
RUNS, QUICK_RUNS = 10, 2

# The paper's baselines, which divide epsilon as it does.
_LIKE_PAPER = (HISTOGRAM, REPORTS, REPORT_PAIRS)
_OWNER = {True: "the paper's", False: "ours"}

Views = Callable[["Figure", Sequence["Panel"]], "list[View]"]
Words = Callable[["Figure", Sequence["Panel"]], "list[str]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured on one source: budgets, repetitions, methods."""

    epsilons: tuple[float, ...]
    runs: int
    methods: tuple[Method, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Panel:
    """One source with what was measured on it."""

    source: Source
    size: Size
    cells: list[tuple[Cell, Any]] = field(repr=False)

    def values(self, method: Method, metric: str, epsilon: float | None) -> list[float]:
        """Return one figure of all repetitions of one method."""
        wanted = epsilon if method.by_epsilon else None
        return [
            value[metric]
            for cell, value in self.cells
            if cell["method"] == method.name and cell["epsilon"] == wanted and value[metric] is not None
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One table and one set of axes.

    Attributes
    ----------
    xs : tuple of float
    lines : mapping from label to repetitions at each x
        None or an empty list leaves a place empty.
    levels : mapping from label to repetitions
        What does not depend on x.
    """

    title: str
    x_label: str
    xs: tuple[float, ...]
    lines: dict[str, list[list[float]]]
    levels: dict[str, list[float]] = field(default_factory=dict)
    log_x: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of the paper.

    Attributes
    ----------
    name : str
        Of the benchmark and its files.
    paper : str
        What the published figure shows, in words: it prints no numbers.
    metric : {'loss', 'v_score', 'error'}
    y_label : str
    quick, full : tuple of (Source, Size)
    views : callable
        From the measured panels to tables and axes.
    findings : callable
        What the figures say, in sentences.
    note : str
        Conditions of this figure alone.
    others : tuple of Figure
        Further figures of the same runs; their own panels are not looked at.
    """

    name: str
    title: str
    paper: str
    metric: str
    y_label: str
    views: Views = field(repr=False)
    findings: Words = field(repr=False)
    quick: tuple[tuple[Source, Size], ...] = field(default=(), repr=False)
    full: tuple[tuple[Source, Size], ...] = field(default=(), repr=False)
    note: str = ""
    others: tuple[Figure, ...] = ()


def whose(method: Method) -> tuple[str, str]:
    """Say which parts of a method are the paper's and which are ours: in a word or two, and part by part.

    Notes
    -----
    No private method is the paper's in all parts: its DPLSF is an LSH forest, our box tree's cuts do not look at the
    records.
    """
    settings = method.settings
    if method.weights == CENTRAL:
        return "not private", "k-means on the pooled columns"
    if method.weights == CENTRAL_PRIVATE:
        return "ours", "pooled columns, our box tree where the paper has an LSH forest (DPLSF)"
    if method.plain_local:
        local = "k-means of each party, not private"
    elif settings.get("local") == BOX_TREE:
        local = "our box tree where the paper has an LSH forest (DPLSF)"
    elif method.weights in _LIKE_PAPER or settings.get("composition") == "paper":
        local = "ours (lloyd)"
    else:
        local = "ours (shortened)"
    if method.weights == EXACT:
        return "not private" if method.plain_local else "half private", f"exact weights; local clusters: {local}"
    if method.weights == EXACT_PAIRS:
        return "not private", f"exact tables of all pairs, our fit; local clusters: {local}"
    if method.weights != SKETCH:
        return "paper's baseline", f"weights: the paper's baseline; local clusters: {local}"
    chosen = {
        "estimate": settings.get("estimator") == "basic",
        "fit": settings.get("fit") == "paper",
        "phantoms": settings.get("phantoms") == "paper",
        "composition": settings.get("composition") == "paper",
    }
    parts = ", ".join(f"{part} {_OWNER[paper]}" for part, paper in chosen.items())
    short = (
        "ours"
        if not any(chosen.values())
        else "paper's weights"
        if all(chosen.values())
        else "paper's, corrected by us"
    )
    return short, f"{parts}; local clusters: {local}"


def compared(parties: int) -> tuple[Method, ...]:
    """Return the methods of Figures 3 to 5; for two parties 2PEst is BasicEst, with and without reports."""
    several = (CORRECTED_BASIC, PAPER_BASIC) if parties > 2 else ()
    reports = (LDP_AGG, LDP_PAIRS) if parties > 2 else (LDP_AGG,)
    return (
        OURS,
        OURS_FIVE,
        CORRECTED_PAIRS,
        CORRECTED_LOOSE,
        PAPER_PAIRS,
        *several,
        IND_LAP,
        *reports,
        CENTRAL_TREE,
        PLAIN,
        CENTRAL_KMEANS,
    )


def step_by_step(parties: int) -> tuple[Method, ...]:
    """Return what Figure 7 has besides: each step from the paper's estimator to ours, and the fit of exact pairs."""
    return (CORRECTED_FIT, PAIRS_KNOWN) if parties > 2 else ()


def list_cells(source: Source, size: Size) -> list[Cell]:
    """List what is measured on one source, repetition by repetition, so that records are made once for each."""
    cells: list[Cell] = []
    for run in range(size.runs):
        for method in size.methods:
            cells += [
                {"name": source.label, "run": run, "method": method.name, "epsilon": epsilon}
                for epsilon in (size.epsilons if method.by_epsilon else (None,))
            ]
    return cells
