"""`fastlloyd init`: what it writes can be planned and checked as it stands, and it replaces nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.__main__ import main
from fastlloyd.run.run_file import load_config


def test_a_file_that_cannot_be_written_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    opened = Path.open

    def full(path: Path, *arguments: Any, **more: Any) -> Any:
        if path.name == "bounds.csv":
            raise OSError(28, "No space left on device")
        return opened(path, *arguments, **more)

    monkeypatch.setattr(Path, "open", full)
    for folder in ("new", "here"):
        assert main(["init", str(tmp_path / folder)]) == 2
        assert "cannot be written (No space left on device)" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["here"]


def test_every_line_of_the_run_file_says_what_it_is_for(tmp_path: Path) -> None:
    flags = ["--masking", "pairwise", "--min-clients", "3", "--set", "fastlloyd.alpha=0.5"]
    assert main(["init", str(tmp_path / "a"), "--protocol", "fastlloyd", "--epsilon", "0.5", *flags]) == 0
    text = (tmp_path / "a" / "run.toml").read_text()
    config = load_config(tmp_path / "a" / "run.toml")
    assert (config.masking, config.min_clients, config.epsilon) == ("pairwise", 3, 0.5)
    assert config.own_settings == {"alpha": 0.5}
    body = text.partition("[fastlloyd]")[0]
    keys = re.findall(r"(?m)^\w+ = ", body)
    assert len(keys) == len(re.findall(r"(?m)^# .+\n\w+ = ", body)) and text.count("FILL IN: ") >= 4


def test_only_what_nobody_has_given_is_to_be_filled_in(tmp_path: Path) -> None:
    def marked(*flags: str) -> list[str]:
        folder = tmp_path / str(len(flags))
        assert main(["init", str(folder), *flags]) == 0
        return re.findall(r"(?m)^# FILL IN: .+\n(\w+) = ", (folder / "run.toml").read_text())

    assert marked() == ["bounds", "n_total", "k"]
    assert marked("--k", "4") == ["bounds", "n_total"]
    assert marked("--k", "4", "--n-total", "90") == ["bounds"]


@pytest.mark.parametrize(("start", "needs"), [((), True), (("--set", "feddp.start=private"), False)])
def test_only_a_server_that_must_bring_records_has_a_key_for_them(tmp_path: Path, start: Any, needs: bool) -> None:
    assert main(["init", str(tmp_path / "new"), "--protocol", "feddp", *start]) == 0
    assert ('server_data = "server.csv"' in (tmp_path / "new" / "run.toml").read_text()) == needs


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bounds.csv").write_text("mine")
    assert main(["init", str(tmp_path)]) == 2
    assert "bounds.csv would be overwritten" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["bounds.csv"]
    for flags, sentence in (
        (["--epsilon", "-1"], "--epsilon: expected a number from"),
        (["--protocol", "fastloyd"], "did you mean 'fastlloyd'?"),
        (["--protocol", "feddp", "--set", "feddp.starts=private"], "feddp has no setting 'starts'"),
    ):
        assert main(["init", str(tmp_path / "new"), *flags]) == 2
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
