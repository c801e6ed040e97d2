"""Bounds that nobody knows: the whole protocol, all parties, and the command."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from fastlloyd.cli.bounds import main as bounds_command
from fastlloyd.cli.check import main as check_command
from fastlloyd.cli.dossier import main as dossier_command
from fastlloyd.cli.plan import main as plan_command
from fastlloyd.data.bounds import Bounds, parse_bounds
from fastlloyd.errors import ConfigError, DataError
from fastlloyd.lifecycle.masked_sums import MaskedUpdate
from fastlloyd.privacy.accountant import spent
from fastlloyd.protocol.sums import SumsParameters
from fastlloyd.protocols.private_bounds.plan_lines import GOOD, MOST, noise_share
from fastlloyd.protocols.private_bounds.protocol import PART, PrivateBounds
from fastlloyd.protocols.registry import FOLLOWING, names
from fastlloyd.report.document import load
from fastlloyd.run.config import WIDEST, RunConfig
from fastlloyd.run.run_file import load_config, to_toml
from fastlloyd.run.session import find_protocol
from fastlloyd.run.simulation import InMemory, run_together
from fastlloyd.testing import ProtocolContract
from fastlloyd.testing.whole_run import command
from fastlloyd.wire.header import Header, PartyId, clients
from tests import forks

COLUMNS = ("age", "gain", "sex", "rare")
SIZES = (700, 400, 300)
N = 1500


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sites' files; 'rare' has values that nothing makes stand out, nearly all are missing; costs have a tail."""
    folder, rng = tmp_path_factory.mktemp("sites"), np.random.default_rng(4)
    for rank, n in enumerate(SIZES, start=1):
        ages, gains = rng.integers(18, 91, n), np.where(rng.random(n) < 0.5, 0.0, rng.uniform(100, 1000, n))
        costs = np.random.default_rng(rank).lognormal(6, 1.5, n)
        rows = [
            f"p{at // 2},{age},{gain:.2f},{at % 2},{1e9 if at == 0 else ''},{cost:.2f}\n"
            for at, (age, gain, cost) in enumerate(zip(ages, gains, costs, strict=True))
        ]
        (folder / f"own_{rank}.csv").write_text("person," + ",".join(COLUMNS) + ",cost\n" + "".join(rows))
    return folder


def config_of(folder: Path, **more: Any) -> RunConfig:
    base: dict[str, Any] = {
        "protocol": "private-bounds",
        "data": str(folder / "own_{client}.csv"),
        "columns": COLUMNS,
        "missing": "midpoint",
        "masking": "threshold",
        "n_total": N,
        "client_caps": (700, 400, 400),
        "epsilon": 2.0,
    }
    return RunConfig(**{**base, **more})


def found(ended: InMemory, folder: Path) -> Bounds:
    """What `--bounds` reads, the same at all clients."""
    texts = {one.result.files["bounds.csv"] for one in ended.outcomes.values() if one.result is not None}
    assert len(texts) == 1
    (folder / "found.csv").write_text(texts.pop())
    return parse_bounds(str(folder / "found.csv"))


class TestContract(ProtocolContract):
    """What every protocol must do; MPI, other masks over TCP and processes are shown by `describe` and the example."""

    config: ClassVar[RunConfig] = RunConfig(
        protocol="private-bounds", dataset="iris", epsilon=20.0, masking="threshold"
    )
    test_over_mpi_it_is_the_same = None  # type: ignore[assignment]
    test_with_other_masks_it_is_the_same = None  # type: ignore[assignment]
    test_the_dossier_says_who_sees_what = None  # type: ignore[assignment]

    @pytest.mark.parametrize("masking", ["pairwise", "threshold"])
    def test_the_noise_that_is_added_is_the_plan_s(self, masking: str, monkeypatch: pytest.MonkeyPatch) -> None:
        super().test_the_noise_that_is_added_is_the_plan_s(masking, monkeypatch)


@pytest.mark.parametrize("masking", ["pairwise", "threshold"])
def test_the_bounds_hold_the_values_and_a_column_of_noise_is_refused_by_name(
    sites: Path, tmp_path: Path, masking: str
) -> None:
    ended = run_together(config_of(sites, masking=masking), 3)
    bounds = found(ended, tmp_path)
    sides = dict(zip(bounds.names or (), zip(bounds.lo.tolist(), bounds.hi.tolist(), strict=True), strict=True))
    assert sides == {"age": (0.0, 128.0), "gain": (0.0, 1024.0), "sex": (0.0, 1.0)}
    result = ended.outcomes[PartyId(1)].result
    assert result is not None and result.quality.verdict == "poor" and ended.outcomes[PartyId(1)].raw_labels is None
    assert (
        "bounds of 3 of 4 columns" in result.quality.sentence
        and "stands out of the noise: rare" in result.quality.sentence
    )
    text = result.files["bounds.csv"]
    assert f"epsilon 2; delta {1 / (100 * N):.6g}; alpha 0.001" in text and "no bounds of rare" in text
    assert result.entry["noisy_sizes"] is None and result.common["parameters"]["alpha"] == 0.001
    for party in clients(3):
        assert [one.name for one in ended.ledgers[party].releases] == [PART]
        assert spent(ended.ledgers[party].releases, 1 / (100 * N)) == pytest.approx(2.0, rel=1e-6)


def test_every_other_command_reads_the_file_and_the_dossier_says_who_spent_what_for_it(
    sites: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = run_together(config_of(sites, columns=(*COLUMNS, "cost")), 3)
    bounds = found(ended, tmp_path)
    assert bounds.names == ("age", "gain", "sex", "cost")
    cost = bounds.hi[3]
    assert bounds.lo[3] == 0.0 and 2000 < cost < 16384  # a tenth of the costs are above 2,750, a hundredth above 13,000
    file = str(tmp_path / "found.csv")
    run = RunConfig(data=str(sites / "own_{client}.csv"), bounds=file, n_total=N, client_caps=(700, 400, 400), k=2)
    result = run_together(replace(run, epsilon=5.0), 3).outcomes[PartyId(1)].result
    assert result is not None and result.bounds.hi[3] == cost and result.features == bounds.names
    (tmp_path / "run.toml").write_text(to_toml(replace(run, data=None), tmp_path))
    shared = ["--config", str(tmp_path / "run.toml")]
    assert plan_command(shared) == 0 and "4 features" in capsys.readouterr().out
    assert check_command([*shared, "--data", str(sites / "own_2.csv"), "--client", "2"]) == 0
    said = capsys.readouterr().out
    assert "columns   4 used: age, gain, sex, cost" in said and said.rstrip().endswith("ready")
    assert (
        bounds_command(
            [*shared, "--out", file, "--columns", "age", "-n", "4", "--run-file", str(tmp_path / "again.toml")]
        )
        == 0
    )
    dossier_command([*shared, "--clients", "3", "--output", str(tmp_path / "dossier")])
    dossier = (tmp_path / "dossier" / "dossier.md").read_text()
    run_id = ended.outcomes[PartyId(1)].result.common["run"]
    for about in (f"run {run_id}: 3 clients without a roster", f"epsilon 2; delta {1 / (100 * N):.6g}; alpha 0.001"):
        assert about in dossier
    assert "no bounds of rare: no value but the origin stands out of the noise" in dossier


def test_a_box_of_its_own_for_each_column_moves_the_origin(sites: Path, tmp_path: Path) -> None:
    """Ages lie about 50: with the origin there the bounds fit on both sides."""
    (tmp_path / "box.csv").write_text("feature,lo,hi\nage,-14,114\nsex,-1000,1000\n")
    config = config_of(sites, columns=(), bounds=str(tmp_path / "box.csv"))
    bounds = found(run_together(config, 3), tmp_path)
    assert bounds.names == ("age", "sex") and (bounds.lo[0], bounds.hi[0]) == (18, 114)
    assert bounds.lo[1] == 0.0 and bounds.hi[1] == 1000 / 2**9


def test_values_at_the_end_of_the_box_are_said_to_lie_beyond(sites: Path) -> None:
    result = run_together(config_of(sites, bounds="-60,60"), 3).outcomes[PartyId(2)].result
    assert result is not None and "values of age, gain may lie beyond the box" in result.quality.sentence


def test_a_value_that_is_missing_counts_nowhere_and_with_unit_people_count_once(
    sites: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = []
    local = PrivateBounds.local

    def counted(self: PrivateBounds, *given: Any) -> Any:
        exact.append(local(self, *given)[PART])
        return {PART: exact[-1]}

    monkeypatch.setattr(PrivateBounds, "local", counted)
    run_together(config_of(sites), 3)
    assert np.sum(exact, axis=0).sum(axis=1).tolist() == [1400, 1400, 1400, 3]
    exact.clear()
    run_together(config_of(sites, unit="person"), 3)
    assert np.sum(exact, axis=0).sum(axis=1).tolist() == [700, 700, 700, 3]
    exact.clear()
    with pytest.raises(DataError, match="missing"):
        run_together(config_of(sites, missing="refuse"), 3)
    assert not exact


def test_with_a_client_lost_the_rule_uses_the_noise_that_there_is(sites: Path, tmp_path: Path) -> None:
    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes | None:
        return None if header.type == MaskedUpdate.TYPE and sender.rank == 3 else body

    config = config_of(sites, min_clients=2, columns=("age",))
    ended = run_together(config, 3, tap=tap)
    assert found(ended, tmp_path).hi[0] == 128.0
    result = ended.outcomes[PartyId(1)].result
    assert result is not None and result.common["rounds"][0]["clients_included"] == [1, 2]
    plan = protocol().planned(config, 3, 1)
    noise = plan.rounds[0] * math.sqrt(2.0)  # two shares of one that counts
    assert f"standard deviation {noise:.6g} on" in result.files["bounds.csv"]


def test_common_masks_are_refused_for_the_server_gets_the_bounds_and_would_know_their_noise(sites: Path) -> None:
    with pytest.raises(ConfigError, match="--masking common: private-bounds expects threshold or pairwise"):
        run_together(config_of(sites, masking="common"), 3)


def protocol() -> PrivateBounds:
    made = find_protocol("private-bounds")
    assert isinstance(made, PrivateBounds)
    return made


def test_the_noise_over_n_decides_and_the_refusal_names_what_would_do() -> None:
    """Good up to 0.01, fair up to 0.02, else refused with an epsilon or N that makes the bounds good."""

    def config(epsilon: float, n_total: int = 2000) -> RunConfig:
        return RunConfig(protocol="private-bounds", data="x.csv", n_total=n_total, epsilon=epsilon, masking="pairwise")

    def share(one: RunConfig) -> float:
        public: SumsParameters = protocol().public_parameters(one, 3, one.n_total or 0, 1)
        return noise_share(public, 10)

    assert share(config(0.2)) > MOST and GOOD < share(config(0.4)) <= MOST and share(config(0.8)) <= GOOD
    for epsilon, words in ((0.4, "fair"), (0.8, "good")):
        plan = protocol().planned(config(epsilon), 3, 10)
        assert plan.noise_on(PART, 0) / 2000 == pytest.approx(share(config(epsilon)), rel=1e-3)
        assert f": {words}" in str(protocol().outlook(config(epsilon), plan)[0])
    with pytest.raises(ConfigError, match="got 3.3 %") as refused:
        protocol().planned(config(0.2), 3, 10)
    words = str(refused.value).split()
    least, records = float(words[words.index("need") + 2]), int(words[words.index("or") + 2])
    assert 0.9 * GOOD < share(config(least)) <= GOOD < share(config(0.98 * least - 0.01))
    assert 0.9 * GOOD < share(config(0.2, records)) <= GOOD


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"k": 3}, "--k means nothing in private-bounds"),
        ({"rounds": 2}, "--rounds means nothing"),
        ({"categories": "lists.csv"}, "--categories means nothing"),
        ({"min_size": 5}, "has no sizes"),
        ({"n_total": None}, "needs --n-total"),
    ],
)
def test_what_means_nothing_is_refused(sites: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of(sites, **change)


def test_it_is_no_protocol_to_choose() -> None:
    assert "private-bounds" in [row.name for row in FOLLOWING] and "private-bounds" not in names()
    assert config_of(Path()).box == WIDEST and RunConfig().box is None


@pytest.mark.process
def test_the_command_runs_all_parties_and_the_next_run_reads_its_file(
    sites: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in forks.environment().items():  # with a page
        monkeypatch.setenv(variable, value)
    words = ("--data", str(sites / "own_{client}.csv"), "--columns", "age,gain,sex", "--n-total", "2100", "-n", "4")
    said = command(tmp_path, "bounds", *words, "--epsilon", "0.8", "--quiet")
    assert "expected: noise on a count of" in said and "bounds of 3 columns in bounds.csv" in said
    report = load(tmp_path / "private-bounds" / "report.json")
    assert report["protocol"] == "private-bounds" and report["privacy"]["spent_epsilon"] == pytest.approx(0.8, rel=1e-6)
    assert "verified: " in command(tmp_path, "report", "private-bounds", "--verify")
    page = (tmp_path / "private-bounds" / "report.html").read_text()
    assert "Bounds of 3 columns of records that clients kept to themselves" in page and "cluster of" not in page
    assert "Not promised: that the bounds reveal nothing about people" in page and "clusters</th>" not in page
    rows = [line.split(",") for line in (tmp_path / "bounds.csv").read_text().splitlines() if line[0] != "#"][1:]
    assert [name for name, _, _ in rows] == ["age", "gain", "sex"]  # the noise is drawn anew: bounds may be wider
    for name, lo, hi in rows:
        assert f'<th scope="row"><bdi>{name}</bdi></th><td class="number">{lo}</td><td class="number">{hi}</td>' in page
    assert (tmp_path / "bounds.csv").read_text() == (tmp_path / "private-bounds" / "bounds.csv").read_text()
    config = RunConfig(data=str(sites / "own_{client}.csv"), bounds=str(tmp_path / "bounds.csv"), n_total=2100, k=2)
    result = run_together(replace(config, epsilon=5.0), 3).outcomes[PartyId(1)].result
    assert result is not None and result.features == ("age", "gain", "sex") and result.bounds.hi[0] >= 128.0


def test_the_command_writes_the_run_file_for_sites_and_refuses_what_is_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--columns", "age,sex", "--n-total", "3000", "--epsilon", "0.5", "--masking", "threshold"]
    bounds_command([*words, "--run-file", "bounds.toml", "-n", "4"])
    config = load_config("bounds.toml", links=False)
    assert (config.protocol, config.epsilon, config.masking) == ("private-bounds", 0.5, "threshold")
    assert config.bounds is None and config.k is None and config.data is None
    with pytest.raises(ConfigError, match=r"--run-file bounds.toml: exists already"):
        bounds_command([*words, "--run-file", "bounds.toml"])
    with pytest.raises(ConfigError, match="at least 2 processes"):
        bounds_command([*words, "-n", "1"])
    with pytest.raises(ConfigError, match="good bounds need --epsilon"):
        bounds_command([*words, "--epsilon", "0.01"])
    with pytest.raises(ConfigError, match="--epsilon: expected"):
        bounds_command([*words, "--epsilon", "0.001", "--share", "0.001"])
    assert plan_command(["--config", "bounds.toml", "-n", "4"]) == 0
    dossier_command(["--config", "bounds.toml", "--clients", "3", "--output", "dossier"])
    dossier = (tmp_path / "dossier" / "dossier.md").read_text()
    assert "find bounds of the columns" in dossier and "1 cluster" not in dossier


def test_the_command_takes_the_run_file_of_the_run_that_follows_and_names_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "of").mkdir()
    (tmp_path / "of" / "lists.csv").write_text("feature,category,weight\nsex,f,1\nsex,m,1\n")
    run = RunConfig(data="x.csv", bounds="private:0.2", n_total=3000, k=3, rounds=4, columns=("age", "sex"), min_size=9)
    run = replace(run, quality=0.1, categories="of/lists.csv", settings={run.protocol: {"alpha": 1}})
    (tmp_path / "of" / "run.toml").write_text(to_toml(run, "of"))
    words = ["--config", "of/run.toml", "-n", "4", "--client-caps", "1500,1000,500", "--run-file"]
    bounds_command([*words, "bounds.toml"])
    said, shared, _ = capsys.readouterr().out.split("\n", 2)
    names = "rounds, k, categories, quality, min_size, bounds, masking"
    assert said == f"left out  {names} of of/run.toml: of the run that clusters, and not of this one"
    assert shared.startswith("share: epsilon 0.4") and "both together 1 at" in shared
    config = load_config("bounds.toml", links=False)
    assert (config.protocol, config.columns, config.masking) == ("private-bounds", ("age",), "threshold")
    assert config.client_caps == (1500, 1000, 500) and config.k is config.bounds is config.categories is None
    # The box of a run file counts, and so do its masks; the file that this command writes is no box.
    run = RunConfig(data="x.csv", n_total=3000, k=3, columns=("age",), bounds="0,100", masking="pairwise")
    (tmp_path / "run.toml").write_text(to_toml(run, "."))
    bounds_command(["--config", "run.toml", "--epsilon", "0.5", "--run-file", "box.toml"])
    assert (load_config("box.toml").bounds, load_config("box.toml").masking) == ("0,100", "pairwise")
    (tmp_path / "run.toml").write_text(to_toml(replace(run, bounds="bounds.csv"), "."))
    bounds_command(["--config", "run.toml", "--run-file", "none.toml"])
    assert load_config("none.toml").bounds is None and load_config("none.toml").epsilon == 1.0


@pytest.mark.parametrize("masking", ["threshold", "pairwise"])
def test_a_share_of_a_budget_and_the_rest_of_it_are_together_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], masking: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--columns", "age,sex", "--n-total", "3000", "--epsilon", "1", "--masking", masking]
    bounds_command([*words, "--share", "0.1", "--run-file", "bounds.toml", "-n", "4"])
    said = capsys.readouterr().out.split("\n")[0]
    assert said.endswith("both together 1 at delta 3.33e-06")
    config = load_config("bounds.toml", links=False)
    left = float(said.split("--epsilon ")[1].split()[0])
    follows = RunConfig(epsilon=left, n_total=3000, k=3, masking=masking, bounds="0,1", data="x.csv")
    releases = [*protocol().planned(config, 3, 2).all_releases()]
    releases += [replace(one, run="00") for one in find_protocol("fastlloyd-plus").foresee(follows, 3, 2).releases]
    assert 0.9999 < spent(releases, 1 / 300_000) <= 1.0
    # Laplace noise does not add in 1/sigma^2: the sentence must not be about such a run.
    laplace = find_protocol("sulloyd").foresee(replace(follows, protocol="sulloyd"), 3, 2).releases
    bounds = [*protocol().planned(config, 3, 2).all_releases()]
    assert spent([*bounds, *(replace(one, run="00") for one in laplace)], 1 / 300_000) > 1.0
    assert "a run that follows with Gaussian noise (fastlloyd, fastlloyd-plus, glloyd)" in said
    multipliers = [one.noise_multiplier**-2 for one in releases]
    assert multipliers[0] / sum(multipliers) == pytest.approx(0.1, rel=1e-3)


def test_the_dossier_says_what_is_released(sites: Path) -> None:
    config = config_of(sites)
    flow = protocol().data_flow("private-bounds", protocol().foresee(config, 3, 4).parameters)
    assert protocol().size_line(protocol().planned(config, 3, 4)).text.endswith("at most, 4 columns, 3 clients")
    assert flow is not None and "alpha 0.001" in flow.result and flow.labels == "there are no clusters"


def test_comments_stand_above_the_bounds_alone(tmp_path: Path) -> None:
    path = tmp_path / "bounds.csv"
    path.write_text('# found, with noise\n"# of ""x, y"""\nfeature,lo,hi\n#1,0,2\n')
    assert parse_bounds(str(path)).names == ("#1",)
    rows = list(csv.DictReader(line for line in path.read_text().splitlines() if not line.startswith(("# ", '"#'))))
    assert json.dumps(rows[0]) == '{"feature": "#1", "lo": "0", "hi": "2"}'
