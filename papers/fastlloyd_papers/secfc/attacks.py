"""Attacks on what the SecFC server decodes, with each protection and without: what they recover.

Source: none in the paper; docs/secfc.md, "What the server learns".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import auto_public, scale
from fastlloyd.data.public.named import load_named
from fastlloyd.kmeans.grid import quantise
from fastlloyd.protocols.secfc.math.masks import draw_rotation, rotate
from fastlloyd.protocols.secfc.plan import Plan, make_plan
from fastlloyd.protocols.secfc.settings import PublicParameters
from fastlloyd.report.files import write_atomic
from fastlloyd_papers.engine.cells import stream_of
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import markdown_table
from fastlloyd_papers.secfc.data import gaussian_mixture
from fastlloyd_papers.secfc.geometry import read_lines, rebuild_geometry, similarity_error
from fastlloyd_papers.secfc.lattice import count_columns, rebuild_records
from fastlloyd_papers.secfc.lloyd import run_pooled
from fastlloyd_papers.secfc.view import make_views

NAME = "secfc-attacks"
Floats = NDArray[np.float64]

_FOUND = 0.99


def run(options: Options) -> str:
    """Run all attacks, write Markdown, and return it."""
    sets: dict[str, tuple[Callable[[], Floats], tuple[int, ...]]] = {
        "iris": (lambda: _iris(options.data_dir), (3, 4, 8)),
        "mixture, n = 200, d = 4": (lambda: gaussian_mixture(200, 4, 4, 4.0, 0)[0], (2, 4, 8)),
    }
    if options.quick:
        sets = {"iris": (sets["iris"][0], (3,))}
    text = "\n\n".join(
        [
            "# SecFC: attacks on what the server decodes",
            "Columns of the records that come back exactly, but for their order and sign, by lattice reduction of the "
            "first message of each iteration. The attack is given every assignment, which the server does not have. "
            "`exact`: differences of scores without masks, in the order of the run. `as run`: rotation, order and "
            "masks.",
            markdown_table(*_lattice_table(sets)),
            "One secret factor for all scores of a record, the last iteration alone (not what is run): error of the "
            "rebuilt records after the best rotation, shift and scale, over their spread. It needs d + 2 clusters.",
            markdown_table(*_ratio_table(sets)),
            "If the rotation alone were left (not what is run): columns that independent component "
            f"analysis finds (correlation above {_FOUND}), and the mean over the columns of the best correlation.",
            markdown_table(*_component_table(sets)),
        ]
    )
    text += "\n"
    write_atomic(options.output / f"{NAME}.md", text)
    return text


def make_attacked(points: Floats, k: int) -> Plan:
    """Return the plan of a run that is attacked."""
    n, d = points.shape
    public = PublicParameters(
        protocol="secfc", clients=5, k=k, n_total=n, rounds=None, seed=0, settings={"start": "random", "starts": 1}
    )
    sizes = tuple(len(part) for part in np.array_split(np.arange(n), 5))
    return make_plan(public, d=d, names=tuple(f"x{i + 1}" for i in range(d)), sizes=sizes)


def attack(points: Floats, k: int, *, rotated: bool, masked: bool, ordered: bool) -> tuple[int, int]:
    """Return how many columns of the records the lattice attack finds, and the iterations that it used."""
    plan, records = make_attacked(points, k), _grid(points)
    grid = _rotated(points) if rotated else records
    views = make_views(grid, plan, masked=masked, ordered=ordered, secret=stream_of({"name": NAME, "k": k}, "masks"))
    return count_columns(rebuild_records(views, plan.d), records), len(views)


def _lattice_table(sets: dict[str, tuple[Callable[[], Floats], tuple[int, ...]]]) -> tuple[list[str], list[list[str]]]:
    ways = {
        "exact": (False, False, True),
        "rotated": (True, False, True),
        "secret order": (False, False, False),
        "sign masks": (False, True, True),
        "as run": (True, True, False),
    }
    rows = []
    for name, (make, ks) in sets.items():
        points = make()
        for k in ks:
            found = [attack(points, k, rotated=r, masked=m, ordered=o) for r, m, o in ways.values()]
            rows.append([name, str(k), str(found[0][1]), *(f"{hits} of {points.shape[1]}" for hits, _ in found)])
    return ["records", "k", "iterations", *ways], rows


def _ratio_table(sets: dict[str, tuple[Callable[[], Floats], tuple[int, ...]]]) -> tuple[list[str], list[list[str]]]:
    rows = []
    for name, (make, ks) in sets.items():
        points = make()
        for k in ks:
            grid = _rotated(points)
            labels = run_pooled(grid, make_attacked(points, k))[-1]
            found = rebuild_geometry(read_lines(grid, labels), labels, points.shape[1])
            error = "not found" if found is None else f"{similarity_error(found, points):.0e}"
            rows.append([name, str(k), str(len(np.unique(labels))), error])
    return ["records", "k", "clusters in use", "error"], rows


def _component_table(
    sets: dict[str, tuple[Callable[[], Floats], tuple[int, ...]]],
) -> tuple[list[str], list[list[str]]]:
    independent = np.random.default_rng(0).uniform(-1, 1, (1000, 4))
    rows = []
    for name, points in [*((name, make()) for name, (make, _) in sets.items()), ("uniform, d = 4", independent)]:
        best = find_components(points)
        rows.append([name, f"{int((best > _FOUND).sum())} of {len(best)}", f"{best.mean():.2f}"])
    return ["records", "columns", "mean correlation"], rows


def find_components(points: Floats) -> Floats:
    """Return, for each column, the best correlation with a component found in the rotated records."""
    from sklearn.decomposition import FastICA

    grid = _rotated(points).astype(np.float64)
    found = FastICA(whiten="unit-variance", random_state=0, max_iter=2000, tol=1e-3).fit_transform(grid)
    d = points.shape[1]
    return np.asarray(np.abs(np.corrcoef(points.T, found.T)[:d, d:]).max(axis=1))


def _iris(data_dir: str | None) -> Floats:
    values = load_named("iris", data_dir).values
    return scale(values, auto_public(values))


def _grid(points: Floats) -> NDArray[np.int64]:
    return quantise(points, 16).raw_coordinates.T.astype(np.int64)


def _rotated(points: Floats) -> NDArray[np.int64]:
    rotation = draw_rotation(
        points.shape[1], seed=stream_of({"name": NAME, "d": points.shape[1]}, "rotation").bytes(32), run_id=b""
    )
    return rotate(points, rotation, 16).raw_coordinates.T.astype(np.int64)
