"""What `fastlloyd init` writes for each protocol can be planned and checked as it prints the commands."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from fastlloyd.__main__ import main
from fastlloyd.protocols.registry import ROWS
from fastlloyd.run.run_file import load_config


def commands(said: str) -> list[list[str]]:
    """The commands that `init` prints, without the program's name."""
    return [shlex.split(line)[1:] for line in said.splitlines() if line.startswith("  fastlloyd ")]


@pytest.mark.parametrize(
    ("protocol", "clients", "first"),
    [("vertical-he", 1, 0), ("vertical-he", 2, 1), ("vertical-dp", 2, 1), ("vertical-plain", 2, 1)],
)
def test_what_it_writes_for_columns_is_planned_and_checked_as_printed(
    protocol: str,
    clients: int,
    first: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "study", "--protocol", protocol, "--n-total", "90", "--clients", str(clients)]) == 0
    plan, check, state, run = commands(capsys.readouterr().out)
    assert plan[plan.index("--d") + 1] == "4" and run[0] == "run"
    assert sorted(path.name for path in (tmp_path / "study").glob("bounds*")) == [
        f"bounds_{rank}.csv" for rank in (first, first + 1)
    ]
    config = load_config("study/run.toml")
    assert (config.protocol, config.data) == (protocol, "study/client_{client}.csv")
    (tmp_path / "study" / f"client_{first}.csv").write_text(f"id,age_{first},weight_{first}\n7,40,70.5\n8,50,80\n")
    assert main(plan) == 0 and main(state) == 0 and main(check) == 0
    said = capsys.readouterr().out
    assert said.endswith("ready\n") and (("expected" in said) == (protocol != "vertical-plain"))
    assert main(["init", "other", "--protocol", protocol, "--columns", "a"]) == 2
    assert "each party names its own" in capsys.readouterr().err and not (tmp_path / "other").exists()


@pytest.mark.parametrize("protocol", [row.name for row in ROWS if row.partition == "horizontal"])
def test_what_it_writes_is_planned_and_checked_as_printed(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = "my study"
    assert main(["init", folder, "--protocol", protocol, "--n-total", "90", "--columns", "age,dose"]) == 0
    plan, check, state, run = commands(capsys.readouterr().out)
    assert (plan[0], check[0], state[0], run[0]) == ("plan", "check", "init-state", "run")
    assert "--d" not in plan  # the bounds have as many features as somebody fills in
    config = load_config(f"{folder}/run.toml")
    assert (config.protocol, config.n_total, config.state_dir) == (protocol, 90, f"{folder}/state")
    (tmp_path / folder / "client_1.csv").write_text("age,dose\n40,0.5\n50,0.25\n")
    (tmp_path / folder / "server.csv").write_text("age,dose\n" + "40,0.5\n" * 5)
    assert main(plan) == 0 and main(state) == 0 and main(check) == 0
    assert capsys.readouterr().out.endswith("ready\n")
