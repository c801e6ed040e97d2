"""A name that is nearly right is answered with the one that was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastlloyd.__main__ import main

PLAN = ["plan", "--d", "3", "--k", "3", "--n-total", "2000"]
CHECK = ["check", "--data", "clinic.csv"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["lan"], "plan"),
        ([*PLAN, "--epsilom", "3"], "--epsilon"),
        (["keygen", "--name", "x", "--prefx=y"], "--prefix"),
        ([*PLAN, "--protocol", "fedpp"], "feddp"),
        ([*PLAN, "--set", "fastloyd.alpha=0.8"], "fastlloyd"),
        ([*PLAN, "--protocol", "fastlloyd", "--set", "fastlloyd.alfa=0.8"], "alpha"),
        ([*PLAN, "--config", "run.toml"], "epsilon"),
        ([*CHECK, "--columns", "Dos"], "dose"),
        ([*CHECK, "--bounds", "bounds.csv", "--columns", "dose"], "Dose"),
    ],
)
def test_the_name_that_was_meant(
    words: list[str],
    meant: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text("epsilo = 3.0\n")
    Path("clinic.csv").write_text("age,dose\n1,2\n3,4\n")
    Path("bounds.csv").write_text("feature,lo,hi\nage,0,1\nDose,0,1\n")
    assert main(words) == 2
    assert f"(did you mean {meant!r}?)" in capsys.readouterr().err


def test_nothing_is_guessed_for_a_name_that_is_like_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xyzzy"]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_feddp_is_planned_without_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--protocol", "feddp"]) == 0
    said = capsys.readouterr().out
    assert "feddp: 2,000 records at most, 3 features, 3 clusters" in said
    assert "the run needs --server-data FILE, and its noise is at most this" in said and "norm 1.732" in said


def test_a_protocol_that_cannot_choose_k_says_which_can(capsys: pytest.CaptureFixture[str]) -> None:
    for protocol in ("fastlloyd", "secfc", "vertical-he"):
        assert main([*PLAN, "--protocol", protocol, "--k", "auto:8"]) == 2
        said = capsys.readouterr().err
        assert f"--k auto:8: {protocol} does not choose the number of clusters" in said
        assert "(fastlloyd-plus, feddp)" in said
    for protocol in ("fastlloyd-plus", "feddp"):
        assert main([*PLAN, "--protocol", protocol, "--k", "auto:8"]) == 0
        assert "at most 8 clusters" in capsys.readouterr().out
    assert main([*PLAN, "--k", "auto:2000"]) == 2
    assert "from 3 to 1024" in capsys.readouterr().err
