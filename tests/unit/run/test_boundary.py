"""Whose a key of a run file is: what comes from somebody else sets nothing that is a site's own."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.__main__ import main
from fastlloyd.errors import ConfigError
from fastlloyd.run.config import OPTIONS, RunConfig
from fastlloyd.run.run_file import load_config, refuse_own_keys, toml_value

SHARED = {"bounds", "categories", "roster", "deadline", "setup_deadline", "dataset", "split"}
"""What need not be alike and may stand in a file of somebody else."""
VALUES: dict[str, Any] = {"str": "x", "int": 4, "float": 1.5, "bool": True}
PUBLIC = 'k = 3\nbounds = "bounds.csv"\nn_total = 300\nepsilon = 1.0\nsetup_deadline = 12\n'


def value_of(name: str) -> Any:
    option = OPTIONS[name]
    return option.choices[0] if option.choices else VALUES.get(option.kind, [])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an operator sends to a site, and the site's key and records."""
    for rank, name in enumerate(("operator", "north", "south")):
        with contextlib.redirect_stdout(None):
            main(["keygen", "--name", name, "--rank", str(rank), "--prefix", str(tmp_path / f"p{rank}")])
            main(["roster", "add", "--roster", str(tmp_path / "roster.toml"), "--cert", str(tmp_path / f"p{rank}.pem")])
    (tmp_path / "bounds.csv").write_text("feature,lo,hi\nage,0,100\npressure,60,220\n")
    (tmp_path / "own.csv").write_text("age,pressure\n" + "40,120\n50,140\n" * 20)
    (tmp_path / "run.toml").write_text(PUBLIC)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_key_is_public_shared_or_a_site_s_own() -> None:
    assert {name for name, option in OPTIONS.items() if option.shared} == SHARED
    assert not any(option.public and option.shared for option in OPTIONS.values())
    files = {name for name, option in OPTIONS.items() if option.path and not option.own}
    assert files == SHARED - {"deadline", "setup_deadline"}, "other keys that name files must not come from others"


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.own])
def test_no_key_of_a_site_s_own_is_taken_from_a_file_of_somebody_else(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run.toml"
    for key in (name, name.replace("_", "-")):
        path.write_text(f"{PUBLIC}{key} = {toml_value(value_of(name))}\n")
        with pytest.raises(ConfigError, match=rf"run.toml: {key}: each site's own.*--site FILE.*{OPTIONS[name].flag}"):
            refuse_own_keys(path)


@pytest.mark.parametrize("line", ['dataset = "own.csv"', 'dataset = "./iris"', 'split = "rows.csv"'])
def test_a_public_set_is_no_file_of_the_site(tmp_path: Path, line: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(f"{PUBLIC}{line}\n")
    with pytest.raises(ConfigError, match="each site's own"):
        refuse_own_keys(path)
    path.write_text(f'{PUBLIC}dataset = "iris"\nsplit = "label"\n')
    refuse_own_keys(path)


OPERATOR_S = 'metrics = "keys"\nstate_dir = "elsewhere"\noutput = "published"\noverwrite = true\nmissing = "midpoint"\n'
OTHERS = ["--roster", "roster.toml", "--key", "p1.key"]


@pytest.mark.parametrize(
    "words",
    [
        ["agree", "--config", "run.toml", *OTHERS, "--yes"],
        ["check", "--config", "run.toml", *OTHERS, "--data", "own.csv"],
        ["dossier", "--config", "run.toml", "--roster", "roster.toml"],
        ["join", "--server", "127.0.0.1:9", "--config", "run.toml", *OTHERS, "--data", "own.csv", "--patience", "1"],
        ["join", "--server", "127.0.0.1:9", "--config", "run.toml", "--rank", "1", "--data", "own.csv"],
    ],
    ids=lambda words: words[0],
)
def test_every_command_of_a_site_names_them_and_does_nothing(
    site: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (site / "keys").write_text("precious\n")
    (site / "run.toml").write_text(PUBLIC + OPERATOR_S)
    before = sorted(path.name for path in site.iterdir())
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "run.toml: metrics, state_dir, output, overwrite, missing: each site's own" in said
    assert "--site FILE" in said and "--metrics --state-dir --output --overwrite --missing" in said
    assert sorted(path.name for path in site.iterdir()) == before and (site / "keys").read_text() == "precious\n"


def test_labelling_by_a_file_between_sites_takes_nothing_of_a_site_s_own_from_it(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "c.csv").write_text("age,pressure\n40,120\n50,140\n")
    (site / "own.csv").write_text("age,pressure\n40,120\n,140\n")
    (site / "run.toml").write_text(PUBLIC + 'roster = "roster.toml"\nmissing = "midpoint"\n')
    words = ["label", "--config", "run.toml", "--centroids", "c.csv", "--data", "own.csv", "--out", "labels.csv"]
    assert main(words) == 2
    assert "run.toml: missing: each site's own" in capsys.readouterr().err
    (site / "run.toml").write_text(PUBLIC + 'roster = "roster.toml"\n')
    assert main([*words, "--missing", "midpoint"]) == 0


def test_a_site_sets_them_in_its_own_file(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / "mine").mkdir()
    own = {"key": "../p1.key", "roster": "../roster.toml", "data": "../own.csv", "state_dir": "state", "deadline": 9}
    (site / "mine" / "own.toml").write_text("".join(f"{key} = {toml_value(value)}\n" for key, value in own.items()))
    config = load_config("run.toml", site="mine/own.toml")
    assert (config.key, config.data, config.state_dir) == ("p1.key", "own.csv", "mine/state")
    assert (config.k, config.bounds, config.deadline, config.setup_deadline) == (3, "bounds.csv", 9.0, 12.0)
    words = ["--config", "run.toml", "--site", "mine/own.toml", "--roster", "roster.toml"]
    assert main(["check", *words]) == 0
    assert "own.csv" in capsys.readouterr().out
    assert main(["agree", *words, "--yes"]) == 0
    assert main(["dossier", *words]) == 0
    assert "names a state directory" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["k = 4", "n-total = 400", "[fastlloyd]\nalpha = 0.5"])
def test_what_must_be_the_same_at_all_is_not_set_there(site: Path, line: str) -> None:
    (site / "own.toml").write_text(f"{line}\n")
    key = line.strip("[]").partition("\n")[0].partition(" ")[0].strip("]")
    with pytest.raises(ConfigError, match=f"--site own.toml: all parties must have the same {key}"):
        load_config("run.toml", site="own.toml")


@pytest.mark.parametrize(
    "line", ['missing = "middle"', 'budget = "3"', 'dat = "x.csv"', "na = [true]", "review = true"]
)
def test_a_mistake_there_names_that_file(site: Path, line: str) -> None:
    (site / "own.toml").write_text(f"{line}\n")
    with pytest.raises(ConfigError, match=r"^own\.toml: "):
        load_config("run.toml", site="own.toml")
    (site / "own.toml").write_text('missing = "drop"\n')
    (site / "run.toml").write_text(f"{PUBLIC}rounds = true\n")
    with pytest.raises(ConfigError, match=r"^run\.toml: "):
        load_config("run.toml", site="own.toml")


def test_codes_of_missing_values_may_be_numbers_there(site: Path) -> None:
    (site / "own.toml").write_text('na = [-999, 99.9, "?"]\n')
    assert load_config("run.toml", site="own.toml").na == ("-999", "99.9", "?")


def test_one_s_own_run_file_may_hold_everything(site: Path) -> None:
    (site / "run.toml").write_text(PUBLIC + OPERATOR_S + 'data = "own.csv"\n')
    assert load_config("run.toml").metrics == "keys"
    assert main(["check", "--config", "run.toml"]) == 0
    assert isinstance(load_config(None, {"k": 2}), RunConfig)
