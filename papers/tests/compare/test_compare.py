"""Protocols, baselines and own estimators on one's own tables: what is measured, written, refused and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastlloyd.errors import ConfigError, Interrupted
from fastlloyd_papers.compare import compare, study
from fastlloyd_papers.compare.command import main
from fastlloyd_papers.compare.method import choose_methods, loss_of
from fastlloyd_papers.compare.table import load_tables
from fastlloyd_papers.engine.origin import read_rows

CORNERS = np.array([[2.0, 2.0], [8.0, 8.0]])
OWN = '''
class Corners:
    """Knows the answer."""
    def __init__(self, n_clusters, epsilon, delta, random_state): self.n_clusters = n_clusters
    def fit(self, X): return self
    def predict(self, X): return (X.sum(axis=1) > 0).astype(int)
'''


def records(n: int = 200) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(corner, 0.2, (n // 2, 2)) for corner in CORNERS])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two tables, and an own estimator in the working directory."""
    data = tmp_path / "data"
    data.mkdir()
    for name in ("one", "two"):
        np.savetxt(data / f"{name}.csv", records(), delimiter=",", header="a,b", comments="", fmt="%.6f")
    (tmp_path / "mine_for_compare.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return data


def flags(folder: Path, *more: str) -> list[str]:
    words = ["--data", str(folder), "--k", "2", "--bounds", "0,10", "--epsilons", "1,4", "--repeats", "3"]
    return [*words, "--output", "out", "--jobs", "1", "--quiet", *more]


def test_one_command_gives_a_tidy_table_a_page_and_curves(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--protocols", "kmeans,lloyd,fastlloyd", "--own", "corners=mine_for_compare:Corners"]
    assert main(flags(folder, *own)) == 0
    page = capsys.readouterr().out
    assert page == Path("out/compare.md").read_text()
    assert Path("out/compare.png").read_bytes().startswith(b"\x89PNG")
    rows = read_rows(Path("out/compare.csv"))
    # On each table: two methods without epsilon and two with two, three times.
    assert len(rows) == 2 * (2 + 2 * 2) * 3
    at = {(row["data"], row["method"], row["epsilon"]): float(row["over_kmeans"]) for row in rows}
    assert at["one", "kmeans", ""] == 1.0 and at["two", "lloyd", ""] == pytest.approx(1.0, abs=1e-3)
    assert at["one", "corners", "1.0"] == pytest.approx(1.0, abs=1e-6)
    assert at["one", "fastlloyd", "1.0"] > 1.0
    assert "| fastlloyd |" in page and " ± " in page
    assert "figures are computed from the records without noise" in page
    assert "noise and keys from the operating system" in page and "--own corners=mine_for_compare:Corners" in page


def test_a_seed_repeats_public_figures_and_is_refused_for_real_data(folder: Path) -> None:
    tables = {}
    for seed in (1, 1, 2):
        found = compare(
            records(), 2, public=True, protocols=("kmeans", "fastlloyd"), epsilons=(1.0,), repeats=2, seed=seed
        )
        tables.setdefault(seed, []).append([row["loss"] for row in found.rows])
    assert tables[1][0] == tables[1][1] != tables[2][0]
    with pytest.raises(ConfigError, match="a seed makes the noise repeatable.*one, two is not known to be public"):
        main(flags(folder, "--seed", "1"))
    with pytest.raises(ConfigError, match="--seed: feddp draws its noise from the operating system"):
        compare(records(), 2, public=True, protocols=("feddp",), seed=1)
    with pytest.raises(ConfigError, match="only of public data"):
        compare(records(), 2)


def test_every_protocol_that_fits_is_run_and_the_others_say_why(tmp_path: Path) -> None:
    names = ("kfed", "secfc", "vertical-plain", "feddp")
    found = compare(records(60), 2, bounds="0,10", protocols=names, epsilons=(5.0,), repeats=1)
    ran = {row["method"]: row["loss"] for row in found.rows}
    assert set(ran) == set(names)
    two = compare(records(60), 2, bounds="0,10", protocols=("kfed", "secfc"), repeats=1, clients=2)
    assert {row["method"] for row in two.rows} == {"kfed"}
    assert "secfc is left out on X: secfc: expected at least 3 clients, got 2" in two.page


def test_an_interrupted_comparison_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def run(folder: Path) -> bytes:
        made = {"public": True, "protocols": ("lloyd", "fastlloyd"), "epsilons": (1.0, 2.0), "repeats": 2, "seed": 3}
        compare(records(), 2, output=folder, **made)  # type: ignore[arg-type]
        return (folder / "compare.csv").read_bytes()

    def fails(*given: Any) -> float:
        seen.append(given)
        if len(seen) == 4:
            raise Interrupted("stopped")
        return loss_of(*given)

    whole = run(tmp_path / "whole")
    monkeypatch.setattr(study, "loss_of", fails)
    with pytest.raises(Interrupted):
        run(tmp_path / "often")
    assert run(tmp_path / "often") == whole
    # Six runs, of which three were kept and one was broken off.
    assert len(seen) == 7


def test_less_complete_comparisons_replace_nothing(tmp_path: Path) -> None:
    for repeats in (3, 2):
        made = {"bounds": "0,10", "protocols": ("lloyd",), "repeats": repeats, "output": tmp_path}
        if repeats == 3:
            compare(records(), 2, **made)  # type: ignore[arg-type]
        else:
            with pytest.raises(ConfigError, match="has 3 rows and would have 2"):
                compare(records(), 2, **made)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has results of compare on X, which"):
        compare(records(), 2, bounds="0,10", protocols=("lloyd",), output=tmp_path, name="other")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--protocols", "fastloyd"], "no method 'fastloyd' .did you mean 'fastlloyd'"),
        (["--own", "x"], "expected NAME=MODULE:FACTORY, got 'x'"),
        (["--own", "x=no_such:Thing"], "that can be imported"),
        (["--own", "lloyd=a:b"], "a method has this name already"),
        (["--epsilons", "a"], "expected numbers with commas between"),
        (["--repeats", "0"], "at least 1 repeat"),
        (["--bounds", "auto-public"], "is for public data"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(folder: Path, words: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        main(flags(folder, *words))


def test_tables_are_public_sets_files_or_a_folder(folder: Path) -> None:
    (iris,) = load_tables("iris", k=None, bounds=None, public=False)
    assert (iris.name, iris.k, iris.public, len(iris.points)) == ("iris", 3, True, 150)
    assert [table.name for table in load_tables(str(folder), k=2, bounds="0,10", public=False)] == ["one", "two"]
    with pytest.raises(ConfigError, match="expected --k"):
        load_tables(str(folder / "one.csv"), k=None, bounds="0,10", public=False)
    with pytest.raises(ConfigError, match="expected --bounds"):
        load_tables(str(folder / "one.csv"), k=2, bounds=None, public=False)
    assert len(choose_methods(["all"], {})) >= 10


def test_rows_are_a_data_frame_where_pandas_is_there() -> None:
    pandas = pytest.importorskip("pandas")
    found = compare(records(), 2, bounds="0,10", protocols=("lloyd",), repeats=1)
    assert isinstance(found.to_frame(), pandas.DataFrame)
