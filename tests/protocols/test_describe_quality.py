"""How good the clusters of a finished run are: the release beside a description, or alone."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastlloyd.cli.describe import main as describe_command
from fastlloyd.describe.columns import columns_from_json
from fastlloyd.errors import ConfigError
from fastlloyd.lifecycle.masked_sums import MaskedUpdate
from fastlloyd.privacy.accountant import spent
from fastlloyd.protocols.describe.plan_lines import plan_description
from fastlloyd.protocols.describe.protocol import PROTOCOL
from fastlloyd.protocols.describe.rounds import PART, QUALITY
from fastlloyd.run.run_file import load_config
from fastlloyd.run.simulation import InMemory, run_together
from fastlloyd.wire.header import Header, PartyId, clients
from tests.protocols.test_describe import COLUMNS, COLUMNS_FILE, SIZES, config_of, finished

__all__ = ["finished"]  # a fixture


def figures(ended: InMemory) -> dict[str, dict[str, str]]:
    """quality.csv by measure, the same at all clients."""
    texts = {one.result.files["quality.csv"] for one in ended.outcomes.values() if one.result is not None}
    assert len(texts) == 1
    return {line["measure"]: line for line in csv.DictReader(io.StringIO(texts.pop()))}


def true_figures(folder: Path, ranks: tuple[int, ...] = (1, 2, 3)) -> dict[str, float]:
    """From the files and the released centroids, by other code."""
    text = (folder / "result" / "centroids.csv").read_text()
    centers = np.array([[float(row["a"]), float(row["b"])] for row in csv.DictReader(io.StringIO(text))]) / 5.0 - 1.0
    texts = [(folder / f"own_{rank}.csv").read_text() for rank in ranks]
    rows = [row for text in texts for row in csv.DictReader(io.StringIO(text))]
    points = np.clip(np.array([[float(row["a"]), float(row["b"])] for row in rows]) / 5.0 - 1.0, -1.0, 1.0)
    squares = np.sort(((points[:, None] - centers) ** 2).sum(axis=2), axis=1)
    bound = 0.6 * 2 * 2 ** (-2 / 2)
    sizes = json.loads((folder / "result" / "report.json").read_text())["result"]["noisy_sizes"]
    middle = np.average(centers, axis=0, weights=sizes)
    nicv = float(np.minimum(squares[:, 0], bound).mean())
    return {
        "records": len(points),
        "silhouette": float((1.0 - np.sqrt(squares[:, 0] / squares[:, 1])).mean()),
        "nicv": nicv,
        "far": float((squares[:, 0] > bound).mean()),
        "explained": 1.0 - nicv / float(np.minimum(((points - middle) ** 2).sum(axis=1), 2).mean()),
    }


@pytest.mark.parametrize("masking", ["common", "pairwise", "threshold"])
def test_alone_it_says_what_is_true_of_all_sites_together(finished: Path, masking: str) -> None:
    ended = run_together(config_of(finished, [], epsilon=100.0, masking=masking), 3)
    found, true = figures(ended), true_figures(finished)
    assert found.keys() == true.keys() and true["records"] == sum(SIZES)
    for measure, line in found.items():
        tolerance = 10.0 if measure == "records" else 0.01
        assert float(line["estimate"]) == pytest.approx(true[measure], abs=tolerance), measure
        assert float(line["low"]) - tolerance <= true[measure] <= float(line["high"]) + tolerance
        assert line["shown"] == "fine"
    result = ended.outcomes[PartyId(1)].result
    assert result is not None and "profile.csv" not in result.files and result.noisy_sizes is None
    assert result.quality.verdict == "good"


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_beside_columns_it_has_its_share_of_the_budget_and_both_are_in_the_ledger(
    finished: Path,
    share: float,
) -> None:
    """Of 1/sigma^2: with equal noise over sensitivity for both it would be 0.5 whatever was asked for."""
    ended = run_together(config_of(finished, settings={"describe": {"quality": share}}), 3)
    for party in clients(3):
        releases = ended.ledgers[party].releases
        assert [release.name for release in releases] == [PART, QUALITY]
        assert spent(releases, 1 / 130_000) == pytest.approx(1.0, rel=1e-6)
        parts = [release.noise_multiplier**-2 for release in releases]
        assert parts[1] / sum(parts) == pytest.approx(share)
        assert releases[1].sensitivity == pytest.approx(math.sqrt(1.75) * 2.0 ** bits_of(finished))
    result = ended.outcomes[PartyId(1)].result
    assert result is not None and {"profile.csv", "quality.csv"} <= result.files.keys()
    assert result.common["parameters"]["quality_share"] == share


def bits_of(folder: Path) -> int:
    return PROTOCOL.planned(config_of(folder, settings={"describe": {"quality": 0.2}}), 3, 2).fraction_bits


def test_with_little_budget_nothing_is_shown(finished: Path) -> None:
    ended = run_together(config_of(finished, [], epsilon=0.001), 3)
    found = figures(ended)
    assert {line["shown"] for line in found.values()} == {"nothing"}
    assert {line["estimate"] for line in found.values()} == {""}
    result = ended.outcomes[PartyId(1)].result
    assert result is not None and result.quality.verdict == "noise"


def test_a_lost_client_counts_for_nothing(finished: Path) -> None:
    """The number of records is the release's: with that of the run, which the lost client was in, all would be off."""

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes | None:
        return None if header.type == MaskedUpdate.TYPE and sender.rank == 1 else body

    ended = run_together(config_of(finished, [], epsilon=100.0, min_clients=2), 3, tap=tap)
    found, true = figures(ended), true_figures(finished, (2, 3))
    for measure in ("silhouette", "nicv", "explained"):
        assert float(found[measure]["estimate"]) == pytest.approx(true[measure], abs=0.01)


def test_a_plan_says_how_exact_it_will_be_and_the_total(finished: Path) -> None:
    planned = plan_description(finished / "result", (), epsilon=0.5)
    lines = {line.name: line.text for line in planned.lines()}
    assert lines["quality"].startswith("silhouette within 0.0") and "described" not in lines
    assert "epsilon 5.0" in lines["total"] and "5 for the run alone" in lines["total"]
    columns = columns_from_json(COLUMNS, "the test")
    both = plan_description(finished / "result", columns, epsilon=0.5, quality=0.2)
    alone = plan_description(finished / "result", columns, epsilon=0.5)
    assert both.epsilon_after == pytest.approx(alone.epsilon_after, rel=1e-6)  # one budget, shared


def test_the_command_writes_the_run_file_and_the_words_fit(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "columns.toml").write_text(COLUMNS_FILE)
    of = [str(finished / "result"), "--epsilon", "0.5", "--quality"]
    describe_command([*of, "--out", "alone.toml"])
    assert "quality: silhouette within" in capsys.readouterr().out
    settings = load_config(tmp_path / "alone.toml", links=False).settings["describe"]
    assert settings["quality"] == 1.0 and not settings.get("columns")
    describe_command([*of, "--columns", "columns.toml"])
    config = load_config(tmp_path / "describe.toml", links=False)
    assert config.settings["describe"]["quality"] == 0.2
    alone = config_of(finished, [])
    for one, words in ((alone, "noisy figures on the quality"), (config, "by age, sex and noisy figures")):
        foreseen = PROTOCOL.foresee(one, 3, 2)
        flow = PROTOCOL.data_flow("describe", {**foreseen.parameters, "settings": one.settings["describe"]})
        assert flow is not None and words in flow.result
        assert "five noisy sums" in PROTOCOL.who_sees("describe", foreseen.parameters).alone[1].sees
    seen = PROTOCOL.who_sees("describe", {"masking": "common", "quality_share": 1.0}).alone[1].sees
    assert seen == "its own records; five noisy sums over all records, hence how good the clusters are"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "expected --columns, what describes"),
        (("--quality", "0.5"), "without --columns the quality has the whole"),
    ],
)
def test_what_the_command_refuses(finished: Path, words: tuple[str, ...], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        describe_command([str(finished / "result"), "--epsilon", "1", *words])


@pytest.mark.parametrize("change", [{"quality": 0.0, "columns": ""}, {"quality": 0.5, "columns": ""}, {"quality": 1.0}])
def test_a_share_that_does_not_fit_is_refused(finished: Path, change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"--set describe\.(columns|quality): expected"):
        run_together(config_of(finished, settings={"describe": change}), 3)
