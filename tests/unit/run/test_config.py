"""The run file and the flags: types, ranges, unknown keys, round trip."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.cli.options import Parser, add_run_options, parse_run_options
from fastlloyd.errors import ConfigError
from fastlloyd.run.config import RunConfig, load_config, public_part, to_toml, with_values


def parse(*argv: str) -> RunConfig:
    parser = Parser(prog="test")
    add_run_options(parser)
    return parse_run_options(parser, argv)[0]


def test_defaults() -> None:
    assert parse() == RunConfig()


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('k = 5\nepsilon = 2\nrounds = "auto"\nring-bits = 64\n[fastlloyd]\nalpha = 0.5\nclip = false\n')
    config = parse("--config", str(file), "--k", "7", "--set", "fastlloyd.alpha=1")
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
        (["--k", "0"], "--k: expected a number from 1"),
        (["--epsilon", "-1"], "--epsilon"),
        (["--epsilon", "nan"], "--epsilon"),
        (["--protocol", "magic"], "magic"),
        (["--ring-bits", "16"], "16"),
        (["--set", "alpha=1"], "PROTOCOL.KEY=VALUE"),
        (["--set", "magic.alpha=1"], "unknown protocol"),
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
        ("kk = 3", "unknown key 'kk'"),
        ("k = 2.5", "a whole number"),
        ('k = "3"', "a whole number"),
        ("epsilon = true", "a number"),
        ("evaluate = 1", "true or false"),
        ('columns = "a"', "a list of names"),
        ("client_caps = [1.5]", "a list of whole numbers"),
        ("settings = {}", "unknown key"),
        ("[magic]\nx = 1", "unknown key 'magic'"),
        ('missing = "guess"', "one of refuse"),
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
    assert (config.roster, config.key, config.n_total) == ("roster.toml", "own.key", 20)
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
    config = with_values(RunConfig(), {"protocol": "feddp", "k": "auto:20"})
    assert (config.k, config.choose_k) == (20, True)
    file = tmp_path / "run.toml"
    file.write_text(to_toml(config))
    assert load_config(file) == config
    assert with_values(config, {"k": 3}) == with_values(RunConfig(), {"protocol": "feddp", "k": 3})
    for wrong in ("auto", "auto:", "auto:x", "auto:-3", 2.5, True):
        with pytest.raises(ConfigError, match="auto:KMAX"):
            with_values(RunConfig(), {"k": wrong})
    with pytest.raises(ConfigError, match="unknown key 'choose_k'"):
        with_values(RunConfig(), {"choose_k": True})
