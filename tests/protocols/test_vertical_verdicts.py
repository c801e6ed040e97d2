"""Whole runs of the vertical protocols: a doubtful result is told on screen, in report, page and picture alike."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.protocols.whole import run_whole

K = 2


def told(folder: Path, parties: int, capsys: pytest.CaptureFixture[str], **config: Any) -> tuple[dict[str, Any], str]:
    """Run; the report's quality and the screen of a party with the result, whose page must say the same."""
    assert set(run_whole(folder, parties, quiet=False, k=K, **config)) == {0}
    written = next(path.parent for path in sorted(folder.glob("*/report.json")))
    quality = json.loads((written / "report.json").read_text())["quality"]
    page = html.unescape((written / "report.html").read_text()).replace("\u00a0", " ")
    screen = " ".join(capsys.readouterr().out.split())  # where it breaks lines
    assert quality["sentence"] in screen and quality["sentence"].partition(": ")[2][1:] in page
    for warning in quality["warnings"]:
        assert warning in screen and warning[1:] in page
    sizes, margins = np.array(quality["size_ranges"]), np.array(quality["centre_margins"])
    assert sizes.shape == (K, 2) and (sizes[:, 0] <= sizes[:, 1]).all() and (sizes[:, 0] >= 0.0).all()
    assert margins.shape[0] == K and (margins > 0.0).all()
    assert "95 % range for the noise" in page
    assert ("may not have settled" in page) == (config["protocol"] == "vertical-dp")
    return quality, screen


@pytest.mark.parametrize(("n", "epsilon", "verdicts"), [(4000, 8.0, {"good", "fair"}), (60, 0.2, {"noise"})])
def test_a_run_of_vertical_dp_says_what_its_result_is_worth(
    n: int, epsilon: float, verdicts: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quality, screen = told(
        tmp_path,
        3,
        capsys,
        protocol="vertical-dp",
        dataset=f"vertical-mixture:n={n},d=4,k=2,spread=0.05",
        epsilon=epsilon,
        settings={"vertical-dp": {"rows": 256, "share_result": True}},
    )
    assert quality["verdict"] in verdicts
    reports = [json.loads(path.read_text()) for path in tmp_path.glob("*/report.json")]
    assert len(reports) == 3, "the server and both parties"
    assert all(each["quality"] == quality for each in reports)
    assert all(each["result"] == reports[0]["result"] for each in reports)
    assert ("do not use it" in screen) == (quality["verdict"] == "noise")


@pytest.mark.parametrize(("epsilon", "verdicts"), [(20.0, {"good", "fair"}), (0.1, {"noise"})])
def test_a_run_of_vertical_he_says_what_its_result_is_worth(
    epsilon: float, verdicts: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tenseal")
    quality, screen = told(
        tmp_path,
        2,
        capsys,
        protocol="vertical-he",
        dataset="vertical-mixture:n=300,d=2,k=2,spread=0.05",
        epsilon=epsilon,
        rounds=5,
        workers=1,
    )
    assert quality["verdict"] in verdicts
    assert ("do not use it" in screen) == (quality["verdict"] == "noise")


def test_without_privacy_the_noise_that_protects_the_key_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tenseal")
    quality, _ = told(
        tmp_path,
        2,
        capsys,
        protocol="vertical-he",
        dataset="vertical-mixture:n=300,d=2,k=2,spread=0.05",
        rounds=2,
        workers=1,
        settings={"vertical-he": {"noise": "flooding"}},
    )
    assert quality["verdict"] in ("good", "fair", "poor") and quality["expected"] is None
