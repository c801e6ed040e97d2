"""`fastlloyd plan` with pairwise masks: the price of noise in shares, from public numbers alone."""

from __future__ import annotations

import pytest

from fastlloyd.cli.plan import main
from fastlloyd.errors import ConfigError
from fastlloyd.run.config import RunConfig
from fastlloyd.run.run_file import load_config, to_toml

BASE = ["--d", "2", "--n-total", "5000", "--k", "15", "--data", "x.csv", "--bounds", "-1,1", "--masking", "pairwise"]


@pytest.mark.parametrize("clients,price", [(2, "41.4%"), (3, "22.5%"), (5, "11.8%"), (10, "5.4%")])
def test_the_price_is_printed(capsys: pytest.CaptureFixture[str], clients: int, price: str) -> None:
    assert main(["-n", str(clients + 1), *BASE]) == 0
    said = capsys.readouterr().out
    assert f"{price} more noise in all than a server alone would add" in said
    assert "discrete gaussian shares noise" in said and "by zCDP it would be" in said


def test_laplace_shares_have_no_zcdp_to_compare_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-n", "4", *BASE, "--protocol", "sulloyd", "--known-shares", "2"]) == 0
    said = capsys.readouterr().out
    assert "73.2% more noise" in said and "(pure)" in said and "zCDP" not in said


def test_the_noise_of_a_round_is_all_noise(capsys: pytest.CaptureFixture[str]) -> None:
    def count_noise(flags: list[str]) -> float:
        main(["-n", "3", *BASE[:-2], "--rounds", "2", *flags])
        line = next(line for line in capsys.readouterr().out.splitlines() if "rounds 1 to 2, each:" in line)
        return float(line.split("noise on a count ")[1].split(";")[0])

    common, shared = count_noise([]), count_noise(["--masking", "pairwise"])
    assert shared == pytest.approx(common * 2**0.5, rel=0.01)


@pytest.mark.parametrize(
    "flags,text",
    [
        (["--min-clients", "1"], "does not go with --masking pairwise.*--resume"),
        (["--known-shares", "2"], "at least one unknown share"),
    ],
)
def test_what_does_not_go_is_said_with_a_mend(flags: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        main(["-n", "3", *BASE, *flags])


def test_a_run_file_holds_the_masking(tmp_path) -> None:
    config = RunConfig(masking="pairwise", known_shares=3, output=str(tmp_path))
    (tmp_path / "run.toml").write_text(to_toml(config))
    assert load_config(tmp_path / "run.toml") == config
    with pytest.raises(ConfigError, match="--known-shares"):
        RunConfig(known_shares=0)
