"""The run file and the flags: types, ranges, unknown keys, round trip."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.cli.options import Parser, add_run_options, parse_run_options
from fastlloyd.errors import ConfigError
from fastlloyd.protocols.registry import ROWS
from fastlloyd.run.config import OPTIONS, RunConfig, public_part
from fastlloyd.run.run_file import load_config, to_toml, with_values


def parse(*argv: str) -> RunConfig:
    parser = Parser(prog="test")
    add_run_options(parser)
    return parse_run_options(parser, argv)[0]


def test_defaults() -> None:
    assert parse() == RunConfig()


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('k = 5\nepsilon = 2\nrounds = "auto"\nring-bits = 64\n[fastlloyd]\nalpha = 0.5\nclip = false\n')
    config = parse("--config", str(file), "--protocol", "fastlloyd", "--k", "7", "--set", "fastlloyd.alpha=1")
    assert (config.k, config.epsilon, config.rounds, config.ring_bits) == (7, 2.0, None, 64)
    assert config.own_settings == {"alpha": 1, "clip": False}


def test_settings_of_another_protocol_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[fastlloyd]\nalpha = 0.5\n[glloyd]\nrho = 0.3\n")
    assert parse("--config", str(file), "--protocol", "glloyd").own_settings == {"rho": 0.3}


def test_negative_bounds_work_as_typed() -> None:
    assert parse("--bounds", "-1,1").bounds == "-1,1"
    assert parse("--bounds=-1,1").bounds == "-1,1"


def test_lists_and_auto() -> None:
    config = parse("--columns", "age, weight", "--client-caps", "10,20", "--delta", "auto", "--rounds", "3")
    assert config.columns == ("age", "weight")
    assert config.client_caps == (10, 20)
    assert config.delta is None
    assert config.rounds == 3


@pytest.mark.parametrize(
    "argv,text",
    [
        (["--k", "x"], "whole number"),
        (["--k", "0"], "--k: expected 'auto:KMAX', '2..KMAX' or a whole number from 1 to 10000, got 0"),
        (["--epsilon", "-1"], "--epsilon"),
        (["--epsilon", "nan"], "--epsilon"),
        (["--protocol", "magic"], "magic"),
        (["--ring-bits", "16"], "16"),
        (["--set", "alpha=1"], "PROTOCOL.KEY=VALUE"),
        (["--set", "magic.alpha=1"], "unknown protocol"),
        (["--set", "fastlloyd.alpha=1"], "this run is one of fastlloyd-plus; add --protocol fastlloyd"),
        (["--data", "a", "--dataset", "b"], "exclude each other"),
        (["--data", "a"], "--bounds"),
        (["--data", "a", "--bounds", "auto-public"], "would leak"),
        (["--data", "a", "--bounds", "0,1"], "--n-total"),
        (["--data", "a", "--bounds", "0,1", "--n-total", "10"], "--k"),
        (["--data", "a", "--bounds", "0,1", "--n-total", "10", "--k", "2", "--evaluate"], "public --dataset"),
        (["--budget", "3"], "--state-dir"),
        (["--resume"], "--state-dir"),
        (["--roster", "r"], "belong together"),
        (["--key", "k"], "belong together"),
        (["--deadline", "0"], "--deadline"),
        (["--client-caps", "-1"], "--client-caps"),
        (["--config", "/nonexistent.toml"], "cannot be read"),
    ],
)
def test_wrong_flags_end_in_a_sentence(argv: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        parse(*argv)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "content,text",
    [
        ("k = ", "not valid TOML"),
        ("k = 1" + "0" * 5000, "not valid TOML"),
        ("columns = " + "[" * 5000 + "]" * 5000, "not valid TOML"),
        ("kk = 3", "unknown key 'kk'"),
        ("k = 2.5", "a whole number"),
        ('k = "3"', "a whole number"),
        ("epsilon = true", "a number"),
        ("evaluate = 1", "true or false"),
        ('columns = "a"', "a list of names"),
        ("client_caps = [1.5]", "a list of whole numbers"),
        ("settings = {}", "unknown key"),
        ("[magic]\nx = 1", "unknown key 'magic'"),
        ('missing = "guess"', "'refuse', 'drop' or"),
    ],
)
def test_wrong_run_files_end_in_a_sentence_with_the_path(tmp_path: Path, content: str, text: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=text) as caught:
        load_config(file)
    assert "run.toml" in str(caught.value)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "k": st.integers(1, 100),
            "epsilon": st.floats(0.001, 100),
            "delta": st.one_of(st.just("auto"), st.floats(1e-11, 0.5)),
            "rounds": st.one_of(st.just("auto"), st.integers(1, 100)),
            "columns": st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5), max_size=3),
            "client_caps": st.lists(st.integers(0, 10**9), max_size=3),
            "output": st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9),
            "quiet": st.booleans(),
            "fastlloyd": st.fixed_dictionaries({}, optional={"alpha": st.floats(0.1, 1), "clip": st.booleans()}),
        },
    )
)
def test_a_merged_configuration_reads_back(values: dict) -> None:
    import tomllib

    config = with_values(RunConfig(), values)
    assert with_values(RunConfig(), tomllib.loads(to_toml(config))) == config


def test_the_public_part_holds_no_path_of_one_party() -> None:
    part = public_part(RunConfig(key="secret.key", roster="r", state_dir="s", output="o"))
    assert not {"key", "output", "state_dir", "data", "log_file"} & set(part)


def test_flags_complete_a_run_file_before_it_is_checked(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('roster = "roster.toml"\nn-total = 10\n[fastlloyd]\nalpha = 0.5\n')
    with pytest.raises(ConfigError, match="run.toml: --roster and --key belong together"):
        load_config(file)
    config = load_config(file, {"key": "own.key", "n_total": 20, "fastlloyd": {"beta": 2}})
    assert (config.roster, config.key, config.n_total) == (str(tmp_path / "roster.toml"), "own.key", 20)
    assert config.settings == {"fastlloyd": {"alpha": 0.5, "beta": 2}}


def test_a_mistake_is_laid_to_flag_or_file(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("k = 3\n")
    with pytest.raises(ConfigError, match="^--k: expected"):
        load_config(file, {"k": 0})
    file.write_text("k = 0\n")
    with pytest.raises(ConfigError, match="run.toml: --k: expected"):
        load_config(file, {"epsilon": 2.0})
    assert load_config(file, {"k": 2}).k == 2


def test_k_is_a_number_or_a_limit_for_the_choice(tmp_path: Path) -> None:
    own = {"protocol": "feddp", "output": str(tmp_path)}
    config = with_values(RunConfig(), {**own, "k": "auto:20"})
    assert (config.k, config.choose_k) == (20, True)
    file = tmp_path / "run.toml"
    file.write_text(to_toml(config))
    assert load_config(file) == config
    assert with_values(config, {"k": 3}) == with_values(RunConfig(), {**own, "k": 3})
    for wrong in ("auto", "auto:", "auto:x", "auto:-3", "auto:" + "9" * 5000, 2.5, True):
        with pytest.raises(ConfigError, match="auto:KMAX"):
            with_values(RunConfig(), {"k": wrong})
    with pytest.raises(ConfigError, match="unknown key 'choose_k'"):
        with_values(RunConfig(), {"choose_k": True})


def test_paths_in_a_run_file_begin_at_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study").mkdir()
    own = {"n_total": 90, "k": 3, "output": "/results", "state_dir": "../state", "log_file": "log_{client}.txt"}
    values = {"data": "h_{client}.csv", "bounds": "bounds.csv", "roster": "r.toml", "key": "keys/a.key", **own}
    Path("study/run.toml").write_text("".join(f"{name} = {value!r}\n" for name, value in values.items()))
    config = load_config("study/run.toml", {"key": "own.key"})
    assert (config.data, config.bounds, config.roster) == ("study/h_{client}.csv", "study/bounds.csv", "study/r.toml")
    assert (config.output, config.state_dir, config.log_file) == ("/results", "state", "study/log_{client}.txt")
    assert config.key == "own.key"  # a flag's path begins where the command was typed
    # Written beside the results, it reads back the same.
    Path("deep/result").mkdir(parents=True)
    Path("deep/result/config.toml").write_text(to_toml(config, "deep/result"))
    assert load_config("deep/result/config.toml") == config


@pytest.mark.parametrize(
    "values",
    [
        {"dataset": "iris"},
        {"dataset": "mixture:spread=0.5", "split": "label"},
        {"bounds": "-1,1"},
        {"bounds": [0, 1.5]},
    ],
)
def test_names_and_numbers_are_no_paths(tmp_path: Path, values: dict[str, Any]) -> None:
    file = tmp_path / "run.toml"
    file.write_text("".join(f"{name} = {value!r}\n" for name, value in values.items()))
    assert load_config(file) == with_values(RunConfig(), values)
    file.write_text('dataset = "own.csv"\nsplit = "who.csv"\nbounds = "auto-public"')
    config = load_config(file)
    assert (config.dataset, config.split) == (str(tmp_path / "own.csv"), str(tmp_path / "who.csv"))
    assert config.bounds == "auto-public"


def test_every_option_that_names_files_says_so() -> None:
    named = {
        name for name, entry in OPTIONS.items() if set(re.split(r"\W", entry.metavar or "")) & {"FILE", "DIR", "CSV"}
    }
    assert {name for name, entry in OPTIONS.items() if entry.path} == named | {"data"}


def test_a_setting_with_too_many_digits_for_a_number_is_text() -> None:
    digits = "1" + "0" * 5000
    assert parse("--set", f"fastlloyd-plus.reach={digits}").own_settings == {"reach": digits}


def test_a_run_file_for_all_may_ask_for_a_gate(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("review = true\n")
    assert load_config(file, links=False).review
    with pytest.raises(ConfigError, match="--review holds .* needs --state-dir"):
        load_config(file)
    assert load_config(file, {"state_dir": "own"}).review


def test_a_flag_that_means_nothing_in_a_protocol_is_refused() -> None:
    """Ignored in silence, it would promise what no party does: masks, a cap, rounds."""
    given = {
        "rounds": 0,
        "client_caps": (5, 5),
        "min_clients": 1,
        "masking": "pairwise",
        "known_shares": 2,
        "colluding": 1,
    }
    for row in ROWS:
        for name in row.unused:
            with pytest.raises(ConfigError, match=f"{OPTIONS[name].flag} means nothing in {row.name}: leave it out"):
                RunConfig(protocol=row.name, **{name: given[name]})
        RunConfig(protocol=row.name)
    assert {"rounds", *given} == {name for row in ROWS for name in row.unused}


@pytest.mark.parametrize("title", ["", " ", "x" * 101, "a\x1b[2J", "a\u202eb", "a\nb", " a", "\u3164"])
def test_a_title_is_text_that_people_can_see(title: str) -> None:
    with pytest.raises(ConfigError, match=r"--title: expected 1 to 100 printable characters, got ") as caught:
        RunConfig(title=title)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"authors": ("A. Meyer", "b\u202ec")}, "--authors: expected 1 to 100 printable characters in each name, got "),
        ({"authors": ("x",) * 101}, "--authors: expected at most 100 names, got 101"),
        ({"institution": "x" * 201}, "--institution: expected 1 to 200 printable characters, got "),
        ({"purpose": "plan\nbeds"}, "--purpose: expected 1 to 500 printable characters, got "),
    ],
)
def test_what_is_said_of_a_study_is_text_that_people_can_see(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RunConfig(**values)
    assert str(caught.value).startswith(expected) and str(caught.value).isprintable()


def test_a_title_is_public_and_may_be_in_any_script() -> None:
    assert public_part(RunConfig(title="\u03b2-HCG: \u7814\u7a76"))["title"] == "\u03b2-HCG: \u7814\u7a76"
    assert public_part(RunConfig())["title"] is None
