"""The page, the figures and the notebook's display of a fitted model: what was released, and nothing private."""

from __future__ import annotations

import html
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("jinja2")

from sklearn import config_context
from sklearn.exceptions import NotFittedError

from fastlloyd.errors import ConfigError
from fastlloyd.estimator.estimator import FastLloyd, ParameterError
from fastlloyd.estimator.showing import make_document
from fastlloyd.report.figure.paint import file_of
from fastlloyd.report.figure.released import warning_words
from fastlloyd.run.files import draw_figure
from tests.contracts import page

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

N = 317
HOSTILE = "<img src=x onerror=alert(1)>"
COMMANDS = re.compile(r"--[a-z]|approv|state dir|fastlloyd (report|run|describe)|roster", re.IGNORECASE)


def points(n: int = N) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.array([[20.0, 30.0], [70.0, 80.0]])[np.arange(n) % 2] + rng.uniform(-2, 2, (n, 2))


@pytest.fixture(scope="module")
def fitted() -> FastLloyd:
    columns = points()
    model = FastLloyd(2, epsilon=20.0, bounds=(0, 100), n_total=400, rounds=2)
    return model.fit({HOSTILE: columns[:, 0], "dose": columns[:, 1]})


def words(path: Path) -> str:
    root = page.check(path.read_text("utf-8"))
    return re.sub(r"\s+", " ", " ".join(root.find("body").itertext()))


def shows(text: str, value: float) -> bool:
    """Whether a number is in a text, to the digits that its range leaves."""
    return any(abs(float(number) - value) < 0.5 for number in re.findall(r"\d+\.?\d*", text))


def test_the_page_has_the_result_and_nothing_private(fitted: FastLloyd, tmp_path: Path) -> None:
    path = fitted.report(tmp_path / "report.html", title="Doses of two wards", names={0: "first ward"})
    assert path == tmp_path / "report.html" and stat.S_IMODE(path.stat().st_mode) == 0o600
    text = words(path)
    for shown in ("Doses of two wards", "first ward", HOSTILE, "dose", "2 clusters of records", "in one record"):
        assert shown in text
    assert fitted.quality_.sentence.partition(": ")[2].capitalize()[:20] in text
    assert shows(text, fitted.cluster_centers_[0, 1])
    assert "Spent by all runs in the ledger" in text
    assert not COMMANDS.search(text)
    # With so large an epsilon the sum of the noisy sizes comes near it.
    assert not re.search(rf"(?<![\d.]){N}(?!\d)", re.sub(r"total\s+\d+", "", text))
    assert "client" not in text.partition("Verdict")[2].partition("Clusters")[0].replace("all clients together", "")
    assert " ms" not in text and "Set-up" not in text  # times grow with the number of records


def test_the_page_states_the_promise_that_holds(tmp_path: Path) -> None:
    model = FastLloyd(2, epsilon=20.0, bounds=(0, 100), rounds=1).fit(points())
    model.report(tmp_path / "page.html")
    text = words(tmp_path / "page.html")
    assert "counts or is left out while the number of records stays the same (zero-out of one record)" in text
    assert f"at most {N} records" in text  # public, where it is not stated


def test_the_page_of_found_bounds_counts_both_releases(tmp_path: Path) -> None:
    model = FastLloyd(2, epsilon=30.0, bounds="private:0.3", n_total=4000, rounds=1).fit(np.tile(points(), (10, 1)))
    model.report(tmp_path / "page.html")
    text = words(tmp_path / "page.html")
    assert "Asked for 30 " in text and f"Spent by this run {model.epsilon_:.4g} " in text


def test_a_public_copy_makes_the_page_without_the_account(fitted: FastLloyd, tmp_path: Path) -> None:
    fitted.public().report(str(tmp_path / "page.html"))
    text = words(tmp_path / "page.html")
    assert "Spent by all runs in the ledger" not in text and "other fits of the same records add up" in text


def test_what_cannot_be_written_or_shown_is_named(fitted: FastLloyd, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        FastLloyd(2).report(tmp_path / "page.html")
    with pytest.raises(ConfigError, match="nowhere"):
        fitted.report(tmp_path / "nowhere" / "page.html")
    with pytest.raises(ConfigError, match="names"):
        fitted.report(tmp_path / "page.html", names={9: ""})
    with pytest.raises(NotFittedError):
        FastLloyd(2).plot()
    with pytest.raises(
        ParameterError, match="kind: expected one of centroids, profiles, plane for this fit, got 'elbow'"
    ):
        fitted.plot("elbow")
    empty = FastLloyd(2, epsilon=20.0, bounds=(0, 100), n_total=400, rounds=1, min_size=400).fit(points())
    with pytest.raises(ParameterError, match="plot: expected centres"):
        empty.plot()
    empty.report(tmp_path / "page.html")
    assert "no cluster" in words(tmp_path / "page.html")
    assert "FastLloyd" in empty._repr_html_()


@pytest.mark.parametrize("kind", [None, "plane", "centroids"])
def test_a_figure_is_that_of_the_files(fitted: FastLloyd, kind: str | None, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figure = fitted.plot(kind)
    assert isinstance(figure, Figure)
    figure.savefig(tmp_path / "a.png", metadata={"Software": None})
    drawing = draw_figure(kind or "plane", fitted._shown.result, make_document(fitted))
    assert (tmp_path / "a.png").read_bytes() == file_of(drawing, "png", warning_words(make_document(fitted)))


def plain(markup: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", markup)))


def test_a_notebook_shows_centres_ranges_epsilon_and_verdict(fitted: FastLloyd) -> None:
    shown: dict[str, Any] = fitted._repr_mimebundle_()
    assert shown["text/html"] == fitted._repr_html_() and shown["text/plain"] == repr(fitted)
    text = plain(shown["text/html"])
    assert HOSTILE not in shown["text/html"] and HOSTILE in text
    assert fitted.quality_.verdict.capitalize() in text and "Epsilon 20 at delta" in text and "in one record" in text
    assert re.search(r"\d \(\d[\d.]* to \d[\d.]*\)", text)
    for center in fitted.cluster_centers_.ravel():
        assert shows(text, center)
    assert "Noisy sizes: 0: " in text
    assert not re.search(rf"(?<![\d.]){N}(?!\d)", text) and "labels" not in text
    with config_context(display="text"):
        assert "text/html" not in fitted._repr_mimebundle_() and not hasattr(fitted, "_repr_html_")
    assert "Not fitted" in FastLloyd(2)._repr_html_()


def test_texts_of_what_a_fit_leaves_are_short(fitted: FastLloyd) -> None:
    assert repr(fitted.quality_).startswith(f"<Quality: {fitted.quality_.sentence}")
    assert re.fullmatch(
        r"<Plan: protocol='fastlloyd-plus', clients=1, k=2, n_total=400, epsilon=20.0, d=2, delta=[\d.e-]+, rounds=2; "
        r"to_json\(\) has all>",
        repr(fitted.plan_),
    )
    assert repr(fitted.ledger_) == f"<Ledger: {len(fitted.ledger_.releases)} releases of 1 run>"


def test_progress_is_a_line_a_round(capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"epsilon": 20.0, "bounds": (0, 100), "n_total": 400, "rounds": 3}
    FastLloyd(2, verbose=1, **options).fit(points())
    assert capsys.readouterr().out.splitlines() == [f"[FastLloyd] round {each} of 3" for each in (1, 2, 3)]
    FastLloyd(2, **options).fit(points())
    assert capsys.readouterr().out == ""
