"""A last round on the quality of the clusters: `--quality SHARE`, and silhouettes of several numbers by `--k 2..8`."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.cli.options import Parser, add_run_options, parse_run_options
from fastlloyd.describe.quality import SilhouetteVector
from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.merging import merge, merge_each
from fastlloyd.lifecycle.masked_sums import MaskedUpdate
from fastlloyd.privacy.accountant import SAMPLER_DELTA, gdp_epsilon, spent
from fastlloyd.protocols.fastlloyd.plan import Plan, check_plan
from fastlloyd.protocols.fastlloyd.protocol import FastLloydFamily
from fastlloyd.protocols.fastlloyd.settings import QUALITY_SHARE
from fastlloyd.run.config import RunConfig
from fastlloyd.run.run_file import load_config, read_k, to_toml, with_values
from fastlloyd.run.session import find_protocol
from fastlloyd.run.simulation import InMemory, run_together
from fastlloyd.testing.whole_run import Sites
from fastlloyd.wire.header import Header, PartyId, clients
from tests.mpi.support import start_quickly
from tests.protocols.support import parameters, plan_for, run

GROUPS = np.array([[-0.7, -0.7], [-0.7, 0.6], [0.1, 0.0], [0.7, 0.7], [0.7, -0.6]])


def protocol() -> FastLloydFamily:
    found = find_protocol("fastlloyd-plus")
    assert isinstance(found, FastLloydFamily)
    return found


def mixture(n: int, spread: float = 0.06) -> NDArray[np.float64]:
    rng = np.random.default_rng(3)
    found: NDArray[np.float64] = np.clip(GROUPS[rng.integers(0, 5, n)] + rng.normal(0, spread, (n, 2)), -1, 1)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sites' files."""
    made = tmp_path_factory.mktemp("sites")
    for rank, rows in enumerate(np.array_split(mixture(1500, 0.15), 3), start=1):
        (made / f"own_{rank}.csv").write_text("a,b\n" + "".join(f"{a:.6f},{b:.6f}\n" for a, b in rows))
    return made


def config(folder: Path, **more: Any) -> RunConfig:
    base: dict[str, Any] = {
        **{"protocol": "fastlloyd-plus", "data": str(folder / "own_{client}.csv"), "bounds": "-1,1", "k": 5},
        **{"epsilon": 50.0, "n_total": 1500, "quality": 0.2},
    }
    return RunConfig(**{**base, **more})


def result_of(ended: InMemory) -> Any:
    results = [one.result for one in ended.outcomes.values() if one.result is not None]
    assert len({str(sorted(result.files.items())) for result in results}) == 1
    return results[0]


def lines(ended: InMemory, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(result_of(ended).files[name])))


def squares(folder: Path, centers: NDArray[np.float64], ranks: tuple[int, ...] = (1, 2, 3)) -> NDArray[np.float64]:
    """Squared distances of all records to the two nearest centres, by other code."""
    rows = np.vstack([np.loadtxt(folder / f"own_{rank}.csv", delimiter=",", skiprows=1) for rank in ranks])
    found: NDArray[np.float64] = np.sort(((rows[:, None] - centers) ** 2).sum(axis=2), axis=1)[:, :2]
    return found


@pytest.mark.parametrize(
    ("protocol", "masking"),
    [
        ("fastlloyd-plus", "common"),
        ("fastlloyd-plus", "pairwise"),
        ("fastlloyd-plus", "threshold"),
        ("glloyd", "common"),
    ],
)
def test_the_last_round_says_how_good_the_released_clusters_are(folder: Path, protocol: str, masking: str) -> None:
    ended = run_together(config(folder, protocol=protocol, masking=masking), 3)
    found = {line["measure"]: line for line in lines(ended, "quality.csv")}
    two = squares(folder, result_of(ended).centroids)
    true = {
        "silhouette": float((1 - np.sqrt(two[:, 0] / two[:, 1])).mean()),
        "nicv": float(np.minimum(two[:, 0], 0.6 * 2 / 5).mean()),
        "far": float((two[:, 0] > 0.6 * 2 / 5).mean()),
    }
    for measure, value in true.items():
        assert float(found[measure]["estimate"]) == pytest.approx(value, abs=0.01), measure
        assert float(found[measure]["low"]) - 0.002 <= value <= float(found[measure]["high"]) + 0.002, measure
    assert float(found["records"]["estimate"]) == pytest.approx(1500, abs=20)


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_its_share_is_one_of_all_that_the_run_spends(folder: Path, share: float) -> None:
    ended = run_together(config(folder, quality=share, epsilon=1.0), 3)
    releases = ended.ledgers[PartyId(1)].releases
    parts = dict.fromkeys(("quality", "other"), 0.0)
    for release in releases:
        parts["quality" if release.name == "quality" else "other"] += release.noise_multiplier**-2
    assert parts["quality"] / sum(parts.values()) == pytest.approx(share, rel=1e-6)
    assert spent(releases, 1 / 150_000) == pytest.approx(1.0, rel=1e-6)
    assert [release.round for release in releases if release.name == "quality"] == [releases[-1].round]


def test_without_it_plan_and_bits_are_as_they_were() -> None:
    points = mixture(400)
    with_, without = (plan_for(points, 5, protocol="fastlloyd-plus", quality=share) for share in (0.2, 0.0))
    assert with_.moving == without.moving == len(without.rounds) == len(with_.rounds) - 1
    assert [planned.numbers for planned in with_.rounds] == [0] * with_.moving + [5]
    # The other rounds have 1 - 0.2 of 1/sigma^2.
    ratio = with_.rounds[-2].count_scale / without.rounds[-1].count_scale
    assert ratio == pytest.approx(1 / math.sqrt(0.8), rel=1e-6)


def test_a_client_refuses_another_share_or_another_last_round() -> None:
    public = parameters(400, 5, protocol="fastlloyd-plus", quality=0.2)
    plan = plan_for(mixture(400), 5, protocol="fastlloyd-plus", quality=0.2)
    names, last = ("x1", "x2"), plan.rounds[-1]
    assert check_plan(plan, public, d=2, names=names) <= public.epsilon * (1 + 1e-9)
    wrong = {
        "quality": replace(plan, quality=0.1),
        "numbers on quality": replace(plan, rounds=(*plan.rounds[:-1], replace(last, numbers=4))),
        "noise": replace(plan, rounds=(*plan.rounds[:-1], replace(last, count_scale=1.1 * last.count_scale))),
        "noise on sums": replace(plan, rounds=(*plan.rounds[:-1], replace(last, sum_scale=1.0))),
        "epsilon": replace(plan, rounds=(*plan.rounds[:-1], replace(last, count_scale=0.9 * last.count_scale))),
    }
    for words, other in wrong.items():
        with pytest.raises(ValueError, match=words):
            check_plan(Plan.from_json(other.to_json()), public, d=2, names=names)


def test_a_range_of_k_shows_the_silhouettes_of_the_merged_centres_and_auto_chooses(folder: Path) -> None:
    asked = {"k": 8, "choose_k": True, "quality": 0.0}
    ended = run_together(config(folder, least_k=2, **asked), 3)
    curve = lines(ended, "silhouettes.csv")
    assert [int(line["k"]) for line in curve] == [2, 3, 4, 5, 6, 7, 8]
    chosen = [int(line["k"]) for line in curve if line["chosen"] == "1"]
    centroids = result_of(ended).centroids
    assert chosen == [5] == [len(centroids)]
    two = squares(folder, centroids)
    own = next(line for line in curve if line["chosen"] == "1")
    true = float((1 - np.sqrt(two[:, 0] / two[:, 1])).mean())
    assert float(own["estimate"]) == pytest.approx(true, abs=0.01)
    assert "quality.csv" not in result_of(ended).files
    parameters_ = result_of(ended).common["parameters"]
    assert (parameters_["quality"], parameters_["least_k"]) == (QUALITY_SHARE, 2)


def test_candidates_are_those_that_merging_passes() -> None:
    points = mixture(3000)
    plan = plan_for(points, 8, protocol="fastlloyd-plus", choose_k=True, quality=0.05, least_k=2, epsilon=20.0)
    ended = run(points, plan)
    first = ended.first
    assert first.chosen is not None and len(first.quality) == 7
    noise = plan.noise_deviations(plan.moving - 1)[1]
    last, counts = first.centers.exact, first.centers.noisy_counts
    each = merge_each(last, counts, range(1, 10), count_noise=noise)
    assert each[8] is None
    for k, groups in enumerate(each[:8], start=1):
        assert groups is None or len(groups) == k
    found = merge(last, counts, count_noise=noise)
    assert each[len(found.groups) - 1] == found.groups


def test_a_lost_client_is_in_no_figure(folder: Path) -> None:
    rounds = len(protocol().planned(config(folder), 3, 2).rounds)

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes | None:
        last = header.type == MaskedUpdate.TYPE and header.round == rounds - 1
        return None if last and sender.rank == 1 else body

    ended = run_together(config(folder, min_clients=2), 3, tap=tap)
    two = squares(folder, result_of(ended).centroids, (2, 3))
    found = {line["measure"]: line for line in lines(ended, "quality.csv")}
    assert result_of(ended).common["rounds"][-1]["clients_included"] == [2, 3]
    assert float(found["silhouette"]["estimate"]) == pytest.approx(
        float((1 - np.sqrt(two[:, 0] / two[:, 1])).mean()), abs=0.01
    )
    assert float(found["records"]["estimate"]) == pytest.approx(1000, abs=20)


@pytest.mark.process
def test_a_run_that_is_killed_in_its_last_round_goes_on_and_releases_nothing_twice(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question of the last round follows from stored replies alone."""
    start_quickly(monkeypatch)
    asked_ = config(folder, k=8, choose_k=True, least_k=2, rounds=3, min_clients=3)
    last = len(protocol().planned(asked_, 3, 2).rounds) - 1
    own = ("--data", asked_.data or "")
    with Sites(tmp_path, asked_, 3, *own, "--deadline", "5", "--delay", "0.1") as sites:
        sites.until((sites.run_folder(1) / f"reply-{last - 1}").exists)
        sites.kill(2)
        assert 0 not in sites.finish()
    with Sites(tmp_path, asked_, 3, *own, "--resume") as sites:
        assert set(sites.finish()) == {0}, sites.said
    for rank in (1, 2, 3):
        text = (sites.run_folder(rank).parent / "ledger.jsonl").read_text()
        entries = [json.loads(line) for line in text.splitlines()]
        spent_ = [(entry["round"], entry["name"]) for entry in entries]
        assert len(set(spent_)) == len(spent_) and spent_.count((last, "quality")) == 1
    texts = {(tmp_path / str(rank) / "result" / "silhouettes.csv").read_text() for rank in (1, 2, 3)}
    assert len(texts) == 1 and texts.pop().count("\n") == 8


def test_no_record_moves_the_silhouettes_by_more_than_their_sensitivity_and_one_reaches_it() -> None:
    vector, bits = SilhouetteVector((2, 3, 4)), 12
    rng = np.random.default_rng(5)
    sets = [rng.uniform(-1, 1, (k, 2)) for k in (2, 3, 4)]
    for point in (*rng.uniform(-1, 1, (200, 2)), *sets[0], (sets[0][0] + sets[0][1]) / 2):
        moved = vector.add_up(point[None], sets, bits) / 2.0**bits
        assert np.linalg.norm(moved) <= vector.sensitivity * (1 + 1e-12)
    on = [np.vstack([[0.0, 0.0], rng.uniform(0.5, 1, (k - 1, 2))]) for k in (2, 3, 4)]
    moved = vector.add_up(np.zeros((1, 2)), on, bits) / 2.0**bits
    assert np.linalg.norm(moved) == pytest.approx(vector.sensitivity) == pytest.approx(math.sqrt(1 / 16 + 3 / 4))
    assert vector.add_up(np.zeros((1, 2)), [None, *on[1:]], bits)[1] == 0


def test_a_plan_and_who_sees_what_say_so(folder: Path) -> None:
    found = protocol()
    said = {line.name: line.text for line in found.plan_lines(config(folder, quality=0.05, epsilon=1.0), 3, 2)}
    assert said["quality"].startswith("silhouette within 0.0") and "it has 5 % of 1/sigma^2" in said["quality"]
    # Gaussians add in mu^2: mu of the other rounds is sqrt(0.95) of all.
    plan = found.planned(config(folder, quality=0.05, epsilon=1.0), 3, 2)
    mu = math.sqrt(0.95 * sum(one.noise_multiplier**-2 for one in plan.all_releases()))
    without = gdp_epsilon(mu, plan.delta - SAMPLER_DELTA)
    assert said["quality"].endswith(f"without it, epsilon {without:.3g} for the same noise, or 2.5 % less noise for 1")
    several = config(folder, k=8, choose_k=True, least_k=2, quality=0.0)
    said = {line.name: line.text for line in found.plan_lines(several, 3, 2)}
    assert said["quality"].startswith("silhouettes of 2 to 8 clusters")
    parameters_ = found.foresee(several, 3, 2).parameters
    assert "silhouettes of several numbers" in found.who_sees("fastlloyd-plus", parameters_).alone[1].sees


def test_a_range_of_k_is_read_and_written(tmp_path: Path) -> None:
    assert read_k("2..8") == {"k": 8, "choose_k": True, "least_k": 2}
    assert read_k("auto:8") == {"k": 8, "choose_k": True, "least_k": 0} and read_k(8)["least_k"] == 0
    parser = Parser(prog="test")
    add_run_options(parser)
    flags = parse_run_options(parser, ["--k", "2..8", "--quality", "--epsilon", "1"])[0]
    assert (flags.k, flags.choose_k, flags.least_k, flags.quality) == (8, True, 2, 0.05)
    path = tmp_path / "run.toml"
    path.write_text(to_toml(with_values(RunConfig(), {"k": "2..8", "epsilon": 1.0})))
    loaded = load_config(path, links=False)
    assert (loaded.k, loaded.choose_k, loaded.least_k) == (8, True, 2)
    for wrong in ("8..2", "1..8", "2..", "8..8"):
        with pytest.raises(ConfigError, match="--k: expected"):
            read_k(wrong)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"protocol": "sulloyd", "quality": 0.1}, "--quality: sulloyd has no round"),
        ({"protocol": "feddp", "k": 8, "choose_k": True, "least_k": 2}, r"--k 2\.\.8: feddp has no round"),
        ({"quality": 0.7}, "--quality: expected"),
    ],
)
def test_what_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RunConfig(**values)
    with pytest.raises(ConfigError, match="--quality: expected 0, or a share"):
        parameters(400, 5, protocol="fastlloyd-plus", quality=0.0001)


def test_all_clients_read_the_same(folder: Path) -> None:
    ended = run_together(config(folder, masking="threshold"), 3)
    texts = {ended.outcomes[party].result.files["quality.csv"] for party in clients(3)}  # type: ignore[union-attr]
    assert len(texts) == 1
