"""The notebook tutorial runs as it stands, and shows what its text says."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"


@pytest.fixture(scope="module")
def cells() -> list[dict[str, Any]]:
    document = json.loads(NOTEBOOK.read_text("utf-8"))
    return [cell for cell in document["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_runs_and_shows_what_it_says(cells: list[dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("agg")
    said = io.StringIO()
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
        for number, cell in enumerate(cells):
            exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}, code cell {number}", "exec"), names)
    kinds = names["kinds"]
    for model in (names["model"], names["together"]):  # noise on a centre is below 0.1 % of the range
        found = model.cluster_centers_[np.argsort(model.cluster_centers_[:, 0])]
        assert np.abs((found - kinds) / [100, 10_000]).max() < 0.02
    assert [warning.category.__name__ for warning in names["caught"]] == ["ConvergenceWarning"]
    assert "refused: " in said.getvalue()


def test_the_notebook_is_kept_with_the_output_of_every_cell(cells: list[dict[str, Any]]) -> None:
    shown = [{output["output_type"] for output in cell["outputs"]} for cell in cells]
    assert all(shown)
    assert set().union(*shown) == {"stream", "display_data"}, "no cell ended with an error"
    figure = next(output for cell in cells for output in cell["outputs"] if "data" in output)
    assert "image/png" in figure["data"]
