"""Measures a comparison, as a benchmark is measured: in parallel, resumable, and stamped with how it was made."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastlloyd.data.bounds import auto_public, parse_bounds, scale
from fastlloyd.errors import ConfigError, FastLloydError, InternalError, Interrupted
from fastlloyd_papers.compare.method import (
    DEFAULTS,
    Factory,
    Method,
    check_seeded,
    choose_methods,
    loss_of,
)
from fastlloyd_papers.compare.report import NAME, tidy, write_report
from fastlloyd_papers.compare.table import Table
from fastlloyd_papers.engine.cells import Cell, measure_cells, open_cells
from fastlloyd_papers.engine.origin import FULL, SEEDED, UNSEEDED, Origin
from fastlloyd_papers.engine.publish import Desk, check_folder, check_replaceable, publish
from fastlloyd_papers.engine.registry import Options, describe_here

EPSILONS = (0.1, 0.25, 0.5, 0.75, 1.0)
REPEATS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What a comparison runs.

    Attributes
    ----------
    seed : int or None
        Of simulated noise; None: the operating system's.
    """

    tables: Sequence[Table]
    methods: Sequence[Method]
    epsilons: Sequence[float] = EPSILONS
    repeats: int = REPEATS
    clients: int = 3
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.repeats < 1 or self.clients < 2 or not self.epsilons or min(self.epsilons) <= 0:
            raise ConfigError(
                f"expected at least 1 repeat, 2 clients and epsilons above 0, got {self.repeats}, {self.clients} and "
                f"{', '.join(f'{epsilon:g}' for epsilon in self.epsilons)}"
            )
        if len({table.name for table in self.tables}) < len(self.tables):
            raise ConfigError("two tables have the same name; rename one")
        if self.seed is not None:
            if real := [table.name for table in self.tables if not table.public]:
                raise ConfigError(
                    f"a seed makes the noise repeatable, which is for simulations: {', '.join(real)} is not known to "
                    "be public; leave the seed out, or say that the data are public"
                )
            check_seeded(self.methods)

    def cells(self) -> list[Cell]:
        """List what is measured, repeat by repeat."""
        return [
            {
                "name": table.name, "method": method.name, "epsilon": epsilon, "repeat": repeat, "k": table.k,
                "clients": self.clients, "seed": self.seed,
            }
            for repeat in range(self.repeats)
            for table in self.tables
            for method in self.methods
            for epsilon in (self.epsilons if method.private else (None,))
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was measured.

    Attributes
    ----------
    rows : list of dict
        One for each run: data, records, features, k, method, epsilon, repeat, loss, over_kmeans.
    page : str
        Markdown.
    """

    rows: list[dict[str, Any]] = field(repr=False)
    page: str = field(repr=False)

    def to_frame(self) -> Any:
        """Return the rows as a pandas data frame.

        Raises
        ------
        ConfigError
            pandas is not installed.
        """
        try:
            import pandas  # type: ignore[import-untyped]
        except ModuleNotFoundError as error:
            raise ConfigError("pandas is not installed; `rows` has the same, or `pip install pandas`") from error
        return pandas.DataFrame(self.rows)


def compare(
    X: ArrayLike,
    k: int,
    *,
    bounds: str | None = None,
    protocols: Sequence[str] = DEFAULTS,
    own: Mapping[str, str | Factory] | None = None,
    epsilons: Sequence[float] = EPSILONS,
    repeats: int = REPEATS,
    clients: int = 3,
    seed: int | None = None,
    public: bool = False,
    jobs: int = 1,
    output: str | Path | None = None,
    name: str = "X",
) -> Comparison:
    """Compare protocols, baselines and own estimators on one table.

    Parameters
    ----------
    X : array, shape (n, d)
    k : int
    bounds : str or None
        'LO,HI' for all features; None takes the least and largest values, for public data only.
    protocols : sequence of str
        Names of protocols and baselines, or 'all'.
    own : mapping from a name to a factory or 'MODULE:FACTORY'
        A factory is called with n_clusters, epsilon, delta and random_state, and gives an object with fit, and with
        cluster_centers_ or predict. Records reach it scaled to [-1, 1].
    epsilons : sequence of float
    repeats, clients : int
    seed : int or None
        Of simulated noise, for public data only: the same seed gives the same figures.
    public : bool
        Whether anybody may see the records.
    jobs : int
        Processes; with more than one, factories are given as 'MODULE:FACTORY'.
    output : path or None
        Folder for page, CSV and picture; the same call goes on where it was interrupted.
    name : str
        Of the table.

    Returns
    -------
    Comparison

    Raises
    ------
    ConfigError
        A name is unknown, bounds are missing, the seed is refused, or the folder has more complete results.
    """
    values = np.asarray(X, dtype=np.float64)
    names = tuple(f"x{h + 1}" for h in range(values.shape[1]))
    if bounds is None and not public:
        raise ConfigError("expected bounds='LO,HI'; only of public data (public=True) are the values' own ends taken")
    box = auto_public(values, names) if bounds is None else parse_bounds(bounds).match(names)
    table = Table(name=name, points=scale(values, box), k=k, public=public)
    methods = choose_methods(protocols, own or {})
    study = Study(tables=[table], methods=methods, epsilons=epsilons, repeats=repeats, clients=clients, seed=seed)
    if output is not None:
        return run_study(study, Path(output), jobs=jobs, command="compare(X, ..)")
    with tempfile.TemporaryDirectory(prefix="fastlloyd-compare-") as folder:
        return run_study(study, Path(folder), jobs=jobs, command="compare(X, ..)")


def run_study(study: Study, folder: Path, *, jobs: int | None, command: str, progress: bool = False) -> Comparison:
    """Measure a study, and write page, CSV and picture.

    Raises
    ------
    ConfigError
        The folder cannot be written or has more complete results.
    """
    check_folder(folder)
    seeded = SEEDED.replace("each measurement's name", f"seed {study.seed} and each measurement's name")
    origin = Origin(
        benchmark=NAME,
        size=FULL,
        noisy="",
        command=command,
        seed=UNSEEDED if study.seed is None else seeded,
        data=" ".join(table.word for table in study.tables),
        **describe_here(),
    )
    check_replaceable(folder, origin, frozenset())
    key = {"data": origin.data, "commit": origin.commit, "software": origin.software}
    desk, cells = Desk(folder=folder, key=dict(key)), study.cells()
    tables = {table.name: table for table in study.tables}
    methods = {method.name: method for method in study.methods}
    with tempfile.TemporaryDirectory(prefix="fastlloyd-compare-") as aside:
        options = Options(output=Path(aside), desk=desk, progress=progress)
        store = open_cells(options, NAME)
        values = measure_cells(
            cells, partial(_measure, tables, methods), store, progress=progress, together=("name", "method"), jobs=jobs
        )
        kept = [(cell, value["loss"]) for cell, value in zip(cells, values, strict=True) if "loss" in value]
        notes = dict.fromkeys(
            f"{cell['method']} is left out on {cell['name']}: {value['why']}."
            for cell, value in zip(cells, values, strict=True)
            if "why" in value
        )
        rows = tidy(study.tables, [cell for cell, _ in kept], [loss for _, loss in kept])
        page = write_report(options, study.tables, study.methods, rows, epsilons=study.epsilons, notes=list(notes))
        counted = {"measurements": str(desk.cells), "runs": str(study.repeats)}
        page = publish(Path(aside), folder, replace(origin, **counted))
    for drop in desk.drops:
        drop()
    return Comparison(rows, page)


def _measure(tables: Mapping[str, Table], methods: Mapping[str, Method], cell: Cell) -> dict[str, Any]:
    try:
        return {"loss": loss_of(methods[cell["method"]], tables[cell["name"]].points, cell)}
    except (Interrupted, InternalError):
        raise
    except FastLloydError as error:
        return {"why": str(error)}
