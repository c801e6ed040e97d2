"""`fastlloyd plan` and `check`: delta against 1 / N, and what one unit of privacy is."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastlloyd.cli.check import main as check
from fastlloyd.cli.plan import main
from fastlloyd.errors import ConfigError
from fastlloyd.run.config import RunConfig
from fastlloyd.run.promise import size_conditions
from fastlloyd.run.run_file import load_config, to_toml
from fastlloyd.run.session import find_protocol

FEDDP = ["--protocol", "feddp", "--set", "feddp.start=sphere-packing"]
CLIENT = [*FEDDP, "--set", "feddp.privacy_level=client"]
DELTAS = {**dict.fromkeys(("fastlloyd", "fastlloyd-plus", "glloyd"), 6.578e-05), "feddp": 1e-6}
VERTICAL = {"vertical-dp": 1 / 2000, "vertical-he": 1 / 2000}
BASE = ["-n", "4", "--data", "x_{client}.csv", "--bounds", "-1,1", "--k", "3", "--d", "3", "--epsilon", "4"]


def plan(capsys: pytest.CaptureFixture[str], *flags: str, n: int = 2000) -> list[str]:
    rounds = [] if {"kfed", "vertical-dp", "vertical-plain"} & set(flags) else ["--rounds", "2"]
    assert main([*BASE, "--n-total", str(n), *rounds, *flags]) == 0
    return capsys.readouterr().out.splitlines()


def beginning(lines: list[str], word: str) -> list[str]:
    return [line.removeprefix(word) for line in lines if line.startswith(word)]


def of(protocol: str) -> list[str]:
    few = ["--set", "vertical-dp.rows=64"] if protocol == "vertical-dp" else []  # quick to plan
    return FEDDP if protocol == "feddp" else ["--protocol", protocol, *few]


@pytest.mark.parametrize("protocol", [*DELTAS, "vertical-he"])
def test_default_and_papers_delta_of_every_private_protocol(capsys: pytest.CaptureFixture[str], protocol: str) -> None:
    lines = plan(capsys, *of(protocol))
    assert "delta 5e-06" in beginning(lines, "privacy: ")[0]
    assert not beginning(lines, "delta: ")
    assert beginning(lines, "unit of privacy: one ")
    paper = {**DELTAS, **VERTICAL}[protocol]
    lines = plan(capsys, *of(protocol), "--delta", "paper")
    assert f"delta {paper:.3g}," in beginning(lines, "privacy: ")[0]
    noted = beginning(lines, "delta: ")
    assert not noted if protocol == "feddp" else f"N times delta is {2000 * paper:.2g}, above 0.01" in noted[0]


def test_the_same_for_vertical_dp_whose_plan_takes_longer(capsys: pytest.CaptureFixture[str]) -> None:
    lines = plan(capsys, *of("vertical-dp"), "--delta", "paper")
    assert f"delta {1 / 2000:.3g}," in beginning(lines, "privacy: ")[0]
    assert "N times delta is 1, above 0.01" in beginning(lines, "delta: ")[0]
    assert beginning(lines, "unit of privacy: one person's row")


@pytest.mark.parametrize("protocol", ["fastlloyd", "feddp", "vertical-he"])
def test_a_delta_above_one_in_n_is_refused_unless_it_is_said_to_be_meant(
    capsys: pytest.CaptureFixture[str], protocol: str
) -> None:
    with pytest.raises(ConfigError, match=r"--delta: expected at most 1 / N = 0.0005 .*--accept-large-delta"):
        main([*BASE, "--n-total", "2000", *of(protocol), "--delta", "0.001"])
    lines = plan(capsys, *of(protocol), "--delta", "0.001", "--accept-large-delta")
    assert "N times delta is 2, above 0.01" in beginning(lines, "delta: ")[0]


def test_a_run_refuses_it_before_it_starts() -> None:
    values = {"data": "x.csv", "bounds": "-1,1", "n_total": 2000, "k": 3, "delta": 0.001}
    for protocol in (*DELTAS, *VERTICAL):
        settings = {"feddp": {"start": "sphere-packing"}}
        with pytest.raises(ConfigError, match="--accept-large-delta"):
            find_protocol(protocol).gather(RunConfig(protocol=protocol, settings=settings, **values), 3)
        accepted = RunConfig(protocol=protocol, settings=settings, accept_large_delta=True, **values)
        assert find_protocol(protocol).gather(accepted, 3)[1].public.delta == 0.001


def test_protocols_without_gaussian_noise_do_not_ask(capsys: pytest.CaptureFixture[str]) -> None:
    assert "(pure)" in beginning(plan(capsys, "--protocol", "sulloyd", "--delta", "0.1"), "privacy: ")[0]


def test_a_run_file_holds_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = RunConfig(delta="paper", accept_large_delta=True, output=str(tmp_path))
    path = tmp_path / "run.toml"
    path.write_text(to_toml(config))
    assert load_config(path) == config
    path.write_text("delta = 0.001\naccept-large-delta = true\n")
    assert "delta 0.001" in beginning(plan(capsys, "--config", str(path)), "privacy: ")[0]
    path.write_text("delta = 0.001\n")
    with pytest.raises(ConfigError, match="--accept-large-delta"):
        plan(capsys, "--config", str(path))
    for wrong in ('"papers"', "true", "[1]"):
        path.write_text(f"delta = {wrong}\n")
        with pytest.raises(ConfigError, match="--delta: expected 'auto', 'paper' or a number"):
            load_config(path)


@pytest.mark.parametrize(
    "flags,unit,several",
    [
        ([], "one record, which is one row of one client", "g rows"),
        (["--protocol", "fastlloyd-plus"], "one record, which is one row of one client", "g rows"),
        (FEDDP, "one record, which is one row of one client", "g rows"),
        (CLIENT, "all records of one client", "at g clients"),
        ([*CLIENT, "--set", "feddp.users=pid"], "all rows of one user at one client", "a user of g clients"),
        (["--protocol", "vertical-he"], "one person's row", "g ids"),
    ],
)
def test_a_plan_says_what_one_unit_is(
    capsys: pytest.CaptureFixture[str], flags: list[str], unit: str, several: str
) -> None:
    (said,) = beginning(plan(capsys, *flags), "unit of privacy: ")
    assert said.startswith(unit) and several in said
    assert said.endswith("g times the epsilon, and a larger delta")


def test_a_plan_without_delta_or_promise_says_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    (said,) = beginning(plan(capsys, "--protocol", "sulloyd"), "unit of privacy: ")
    assert said.endswith("g times the epsilon")
    for protocol in ("lloyd", "kfed", "secfc", "vertical-plain"):
        flags = [] if protocol == "lloyd" else ["--n-total", "60"]
        assert not beginning(plan(capsys, "--protocol", protocol, *flags), "unit of privacy: ")


@pytest.mark.parametrize(
    "text,unit",
    [
        ("", "one record, which is one row of one client; somebody with g rows has g times"),
        (
            'protocol = "feddp"\n[feddp]\nprivacy_level = "client"\nusers = "pid"\n',
            "all rows of one user at one client",
        ),
        ('protocol = "kfed"\n', "none: kfed promises no differential privacy"),
    ],
)
def test_a_check_says_it_of_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, unit: str) -> None:
    (tmp_path / "run.toml").write_text(text)
    (tmp_path / "own.csv").write_text("a,b\n1,2\n3,4\n")
    assert check(["--config", str(tmp_path / "run.toml"), "--data", str(tmp_path / "own.csv")]) == 0
    (said,) = beginning(capsys.readouterr().out.splitlines(), "unit      ")
    assert said.startswith(unit)


def test_a_counted_size_is_a_condition_of_the_claim() -> None:
    (said,) = size_conditions(RunConfig(dataset="iris"))
    assert "is the same for neighbours" in said
    assert not size_conditions(RunConfig(dataset="iris", n_total=200))
    assert not size_conditions(RunConfig(data="x.csv", bounds="-1,1", n_total=200, k=3))
