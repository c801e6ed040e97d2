"""One run split in two: what each is, and that both spend what one was given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.errors import ConfigError, DataError
from fastlloyd.privacy.accountant import spent
from fastlloyd.protocols.private_bounds.inputs import bounds_config, split_run
from fastlloyd.run.config import PRIVATE_SHARE, RunConfig
from fastlloyd.run.run_file import load_config, to_toml


def config(**more: Any) -> RunConfig:
    base: dict[str, Any] = {
        "data": "x_{client}.csv",
        "bounds": "private",
        "n_total": 5000,
        "k": 3,
        "columns": ("a", "b"),
    }
    return RunConfig(**{"masking": "threshold", **base, **more})


@pytest.mark.parametrize("masking", ["threshold", "pairwise"])
@pytest.mark.parametrize("protocol", ["fastlloyd-plus", "fastlloyd", "glloyd"])
def test_both_runs_spend_what_one_was_given(masking: str, protocol: str) -> None:
    for share, text in ((PRIVATE_SHARE, "private"), (0.4, "private:0.4")):
        both = split_run(config(masking=masking, protocol=protocol, bounds=text), 3)
        assert 0.9999 < spent(both.releases, both.delta) <= 1.0 and both.delta == pytest.approx(2e-6)
        squares = [one.noise_multiplier**-2 for one in both.releases]
        assert squares[0] / sum(squares) == pytest.approx(share, rel=1e-3)
        assert both.bounds.epsilon < both.run.epsilon < 1.0 and len({one.run for one in both.releases}) == 2
        assert f"together {spent(both.releases, both.delta):.6g} of 1 at delta 2e-06" in str(both.line())


def test_the_first_run_has_what_concerns_bounds_alone(tmp_path: Path) -> None:
    lists = tmp_path / "lists.csv"
    lists.write_text("feature,category,weight\nsex,f,1\nsex,m,1\n")
    given = config(columns=("a", "sex", "b"), categories=str(lists), rounds=4, min_size=9, quality=0.1, unit="p")
    first = bounds_config(replace(given, settings={"fastlloyd-plus": {"alpha": 0.8}}, memory="1G", state_dir="s"))
    assert (first.protocol, first.columns, first.bounds, first.output) == (
        *("private-bounds", ("a", "b"), None),
        "fastlloyd-run-bounds",
    )
    assert (first.unit, first.n_total, first.masking, first.state_dir) == ("p", 5000, "threshold", "s")
    with pytest.raises(ConfigError, match=r"--columns: expected the columns of numbers by name"):
        bounds_config(replace(given, columns=("sex",)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"masking": "common"}, "--masking common: private-bounds expects threshold or pairwise"),
        ({"protocol": "sulloyd"}, "expected a protocol of Gaussian noise for the same records"),
        ({"protocol": "lloyd", "masking": "pairwise"}, "got lloyd: find the bounds with `fastlloyd bounds`"),
        ({"n_total": 300}, "which would hide where the values of 2 columns lie"),
    ],
)
def test_what_cannot_be_split_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        split_run(config(**change), 3)


@pytest.mark.parametrize("text", ["private:", "private:0", "private:1", "private:x", "private:nan"])
def test_a_share_is_a_number_below_one(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--bounds: expected a share from 0.001 to 0.999 after 'private:'"):
        config(bounds=text)


def test_a_run_file_keeps_the_word_and_makes_no_path_of_it(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(to_toml(config(bounds="private:0.3"), tmp_path))
    assert load_config(tmp_path / "run.toml").bounds_share == 0.3


def test_a_column_without_bounds_is_named_with_what_can_be_done(tmp_path: Path) -> None:
    both, file = split_run(config(), 3), tmp_path / "bounds.csv"
    file.write_text("feature,lo,hi\na,0,1\n")
    with pytest.raises(DataError, match=r"no bounds of b: .* leave b out of --columns, .* --epsilon 0.94\d+$"):
        both.with_found(file)
    file.write_text("feature,lo,hi\na,0,1\nb,0,1\n")
    assert both.with_found(file).bounds == str(file)
