"""A description of the clusters of a finished run: the whole protocol, all parties, over each carrier."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from fastlloyd.cli.check import main as check_command
from fastlloyd.cli.describe import main as describe_command
from fastlloyd.describe.columns import columns_from_json
from fastlloyd.describe.quality import QualityVector
from fastlloyd.dossier.blocks import to_markdown
from fastlloyd.dossier.content import make_dossier
from fastlloyd.dossier.planned_run import plan_run
from fastlloyd.dossier.study import read_study
from fastlloyd.errors import EXIT_BUDGET, ConfigError, DataError, PeerError, SecurityError
from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum
from fastlloyd.lifecycle.sealed import SealedParts
from fastlloyd.privacy.accountant import SAMPLER_DELTA, gdp_epsilon, spent
from fastlloyd.protocol.sums import MaskedSums
from fastlloyd.protocols.describe.inputs import _merge, read_finished
from fastlloyd.protocols.describe.plan_lines import plan_description
from fastlloyd.protocols.describe.protocol import PROTOCOL, Describe, settle
from fastlloyd.protocols.describe.rounds import PART
from fastlloyd.protocols.registry import FOLLOWING, PROTOCOLS, find, knows, names
from fastlloyd.report.ranges import NORMAL_TAIL
from fastlloyd.run import simulation
from fastlloyd.run.config import RunConfig
from fastlloyd.run.run_file import load_config, to_toml
from fastlloyd.run.session import find_protocol
from fastlloyd.run.simulation import InMemory, run_together
from fastlloyd.testing import ProtocolContract
from fastlloyd.testing.whole_run import command
from fastlloyd.wire.header import SERVER, Header, PartyId, clients
from tests import forks
from tests.contracts import page
from tests.forked import ForkedSites, forked_command
from tests.mpi.support import start_quickly

SIZES = (700, 400, 100)
BOUNDS = {"n_total": 1300, "client_caps": (700, 400, 200)}
COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "lo": 0, "hi": 100},
    {"name": "sex", "categories": ["f", "m"]},
    {"name": "a", "lo": 0, "hi": 10, "bins": 8},
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sites' files, and the folder of a finished run on two of their columns."""
    folder, rng = tmp_path_factory.mktemp("finished"), np.random.default_rng(4)
    for rank, n in enumerate(SIZES, start=1):
        group = rng.integers(0, 2, n)
        points = np.where(group[:, None], [2.0, 7.0], [7.0, 2.0]) + rng.normal(size=(n, 2))
        ages, sexes = np.clip(rng.normal(40 + 20 * group, 10), 0, 100), rng.random(n) < 0.3 + 0.4 * group
        rows = [
            f"{x:.4f},{y:.4f},{'' if at % 25 == 0 else f'{age:.1f}'},{'f' if sex else 'm'}\n"
            for at, ((x, y), age, sex) in enumerate(zip(points, ages, sexes, strict=True))
        ]
        (folder / f"own_{rank}.csv").write_text("a,b,age,sex\n" + "".join(rows))
    words = "run -n 4 --data own_{client}.csv --columns a,b --bounds 0,10 --k 2 --epsilon 5 --output result --quiet"
    caps = ",".join(map(str, BOUNDS["client_caps"]))
    with pytest.MonkeyPatch.context() as patch:
        start_quickly(patch)
        forked_command(folder, *words.split(), "--n-total", str(BOUNDS["n_total"]), "--client-caps", caps)
    return folder


def config_of(folder: Path, described_columns: list[dict[str, Any]] | None = None, **more: Any) -> RunConfig:
    """The configuration of a description, as a command makes it."""
    report = json.loads((folder / "result" / "report.json").read_text())
    base: dict[str, Any] = {
        "protocol": "describe",
        "data": str(folder / "own_{client}.csv"),
        "columns": ("a", "b"),
        "bounds": "0,10",
        "k": 2,
        "epsilon": 1.0,
        "described": str(folder / "result"),
        **BOUNDS,
    }
    config = RunConfig(**{**base, **more})
    wanted = COLUMNS if described_columns is None else described_columns
    described = columns_from_json(wanted, "the test") if wanted else ()
    empty = replace(
        config, settings={"describe": {"columns": json.dumps([{"name": "x", "lo": 0, "hi": 1, "bins": 2}])}}
    )
    public = protocol().public_parameters(empty, 3, config.n_total or 0, config.k or 0)
    own = {"columns": settle(described, public), "run": report["run"]}
    own = own if described else {**own, "columns": "", "quality": 1.0}
    return replace(config, settings={"describe": {**own, **more.get("settings", {}).get("describe", {})}})


def protocol() -> Describe:
    found = find_protocol("describe")
    assert isinstance(found, Describe)
    return found


def lines_of(ended: InMemory) -> list[dict[str, str]]:
    """profile.csv, the same at all clients."""
    texts = {one.result.files["profile.csv"] for one in ended.outcomes.values() if one.result is not None}
    assert len(texts) == 1
    return list(csv.DictReader(io.StringIO(texts.pop())))


def own_rows(folder: Path) -> list[dict[str, str]]:
    """The rows of all sites."""
    texts = [(folder / f"own_{rank}.csv").read_text() for rank in (1, 2, 3)]
    return [row for text in texts for row in csv.DictReader(io.StringIO(text))]


class TestContract(ProtocolContract):
    """What every protocol must do, over each carrier and under each masking."""

    command = staticmethod(forked_command)

    @pytest.fixture(autouse=True)
    def _of_the_finished_run(self, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        start_quickly(monkeypatch)
        both = config_of(finished, settings={"describe": {"quality": 0.2}})
        monkeypatch.setattr(type(self), "config", both, raising=False)

    config: ClassVar[RunConfig]

    def foreseen(self, config: RunConfig | None = None) -> Any:
        found = self.protocol.foresee(config or self.config, self.clients, 2)
        assert found is not None
        return found

    def test_a_plan_says_what_it_spends_and_the_claim_agrees(self) -> None:
        foreseen = self.foreseen()
        lines = [str(line) for line in self.protocol.plan_lines(self.config, self.clients, 2)]
        assert any("clusters of at least" in line for line in lines)
        assert not any("NOTHING to see" in line for line in lines)
        lines = [str(line) for line in self.protocol.plan_lines(replace(self.config, epsilon=0.001), self.clients, 2)]
        assert any("NOTHING to see; take a larger epsilon" in line for line in lines)
        assert 0.0 < spent(foreseen.releases, foreseen.claim.delta) <= self.config.epsilon * (1 + 1e-9)

    @pytest.mark.parametrize("masking", ["common", "pairwise", "threshold"])
    def test_the_noise_that_is_added_is_the_plan_s(  # type: ignore[override]
        self, masking: str, finished: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All numbers of the vector have it, with fixed keys."""
        exact, noisy = [], []
        local, step = Describe.local, Describe.step

        def added(self: Describe, *given: Any) -> Any:
            exact.append(local(self, *given)[PART])
            return {PART: exact[-1]}

        def received(self: Describe, *given: Any) -> Any:
            noisy.append((given[0][PART], given[2]))
            return step(self, *given)

        monkeypatch.setattr(Describe, "local", added)
        monkeypatch.setattr(Describe, "step", received)
        wide = [{"name": name, "lo": 0, "hi": 100, "bins": 100} for name in ("age", "a")]
        run_together(config_of(finished, wide, masking=masking), self.clients)
        got, plan = noisy[0]
        scores = (got - np.sum(exact, axis=0) / 2.0**plan.fraction_bits) / plan.noise_on(PART, 0)
        # Of 410 numbers five standard errors are 0.35: sensitivity sqrt(m), without size and half sums, gives 0.57.
        assert scores.size == 2 * (1 + 2 * 101 + 2)
        assert 0.65 < float((scores**2).mean()) < 1.35

    def test_one_record_moves_no_part_by_more_than_was_stated(self) -> None:
        """Both vectors are tested record by record (tests/unit/describe); the plan states their sensitivities."""
        plan = protocol().planned(self.config, self.clients, 2)
        layout = protocol().layout(plan)
        assert layout is not None
        assert [part.sensitivity for part in plan.parts] == [layout.sensitivity, QualityVector(2, 2).sensitivity]
        assert [release.sensitivity for release in plan.all_releases()] == [
            pytest.approx(part.sensitivity * 2.0**plan.fraction_bits) for part in plan.parts
        ]


def test_with_hardly_any_noise_it_says_what_is_true_of_all_sites_together(finished: Path) -> None:
    """Counted here from the files and the labels of the clients, by other code."""
    ended = run_together(config_of(finished, epsilon=100.0), 3)
    labels = np.concatenate([ended.outcomes[party].raw_labels for party in clients(3)])
    rows = own_rows(finished)
    found = {(line["cluster"], line["column"], line["measure"], line["value"]): line for line in lines_of(ended)}
    assert {line["shown"] for line in found.values()} == {"fine"}
    for cluster in ("0", "1"):
        own = [row for row, label in zip(rows, labels, strict=True) if str(label) == cluster]
        ages = [float(row["age"]) for row in own if row["age"]]
        shares = {
            ("sex", "f"): np.mean([row["sex"] == "f" for row in own]),
            ("sex", "missing"): 0.0,
            ("age", "missing"): 1.0 - len(ages) / len(own),
        }
        assert float(found[cluster, "", "size", ""]["estimate"]) == pytest.approx(len(own), abs=5)
        assert float(found[cluster, "age", "mean", ""]["estimate"]) == pytest.approx(np.mean(ages), abs=0.5)
        for (column, value), share in shares.items():
            line = found[cluster, column, "share", value]
            assert float(line["estimate"]) == pytest.approx(share, abs=0.01)
        line = found[cluster, "age", "median", ""]
        assert float(line["low"]) <= np.median(ages) <= float(line["high"])
    # `a` made the clusters; age and sex differ by what the records were drawn with, in opposite directions.
    assert {line["differs"] for line in found.values() if line["column"] == "a"} == {"made by"}
    for key in (("age", "mean", ""), ("sex", "share", "f")):
        assert {found[cluster, *key]["differs"] for cluster in ("0", "1")} == {"more", "less"}
        line, other = found["0", *key], found["1", *key]
        assert float(line["rest"]) == pytest.approx(float(other["estimate"]), rel=0.01)
        assert float(line["wide_low"]) < float(line["low"]) < float(line["high"]) < float(line["wide_high"])


def test_a_small_cluster_is_in_no_file_and_the_others_keep_their_numbers(finished: Path) -> None:
    config = config_of(finished, epsilon=100.0)
    sizes = [float(line["estimate"]) for line in lines_of(run_together(config, 3)) if line["measure"] == "size"]
    small, large = sorted(range(2), key=lambda cluster: sizes[cluster])
    for least, kept in ((round(sum(sizes) / 2), [large]), (1300, [])):
        ended = run_together(config_of(finished, epsilon=100.0, min_size=least), 3)
        result = ended.outcomes[PartyId(1)].result
        assert result is not None and result.noisy_sizes is None and result.quality.size_ranges is None
        assert result.quality.verdict == ("good" if kept else "unknown")
        assert result.left_out == 2 - len(kept) and result.common["parameters"]["min_size"] == least
        lines = lines_of(ended)
        assert sorted({int(line["cluster"]) for line in lines}) == kept
        # What is left out is not in the rest, and the one that stays is all.
        assert {line["rest"] for line in lines} <= {""}
        assert all(line["estimate"] == "1" for line in lines if (line["column"], line["measure"]) == ("", "share"))
    assert small != large


def test_clients_label_as_the_finished_run_did(finished: Path) -> None:
    ended = run_together(config_of(finished), 3)
    for party in clients(3):
        text = (finished / "result" / f"labels_{party.rank}.csv").read_text()
        theirs = [int(row["label"]) for row in csv.DictReader(io.StringIO(text))]
        labels = ended.outcomes[party].raw_labels
        assert labels is not None and labels.tolist() == theirs


@pytest.mark.parametrize("masking", ["common", "pairwise", "threshold"])
def test_what_is_released_is_one_vector_with_its_whole_sensitivity(finished: Path, masking: str) -> None:
    ended = run_together(config_of(finished, masking=masking, epsilon=0.5), 3)
    for party, ledger in ended.ledgers.items():
        releases = ledger.releases
        assert [release.name for release in releases] == ([] if party == SERVER and not releases else [PART])
        if party != SERVER:
            assert spent(releases, 1 / 130_000) == pytest.approx(0.5, rel=1e-6)
            assert releases[0].noise_multiplier > 0.0


class Lying:
    """Another result folder at one client: a copy with another first centroid, consistent in itself."""

    def __init__(self, finished: Path, folder: Path) -> None:
        for rank in (1, 2, 3):
            own = folder / f"result_{rank}"
            own.mkdir()
            for file in (finished / "result").iterdir():
                (own / file.name).write_bytes(file.read_bytes())
        lines = (folder / "result_2" / "centroids.csv").read_text().splitlines()
        cells = lines[1].split(",")
        lines[1] = ",".join([repr(float(cells[0]) + 0.5), *cells[1:]])
        (folder / "result_2" / "centroids.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("masking", ["common", "pairwise", "threshold"])
def test_a_client_with_other_centroids_is_refused_by_name_before_anything_is_released(
    finished: Path, tmp_path: Path, masking: str
) -> None:
    Lying(finished, tmp_path)
    config = config_of(finished, described=str(tmp_path / "result_{client}"), masking=masking)
    recorded: list[Header] = []

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        recorded.append(header)
        return body

    with pytest.raises(SecurityError, match="client 2"):
        run_together(config, 3, tap=tap)
    assert MaskedUpdate.TYPE not in {header.type for header in recorded}


def test_the_server_gets_no_digest_of_the_centroids(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With common masks it may know the noise of the finished run, and could test guesses of records with a digest."""
    Lying(finished, tmp_path)
    monkeypatch.setattr(simulation, "os", SimpleNamespace(urandom=bytes))  # the same run id in both runs
    seen: dict[str, list[bytes]] = {"1": [], "2": []}
    for which, contexts in seen.items():

        def tap(
            sender: PartyId, receiver: PartyId, header: Header, body: bytes, found: list[bytes] = contexts
        ) -> bytes:
            if header.type == SealedParts.TYPE:
                found.append(SealedParts.read(body, 3).context)
            return body

        run_together(config_of(finished, described=str(tmp_path / f"result_{which}")), 3, tap=tap)
    assert len(seen["1"]) == 3 and seen["1"] == seen["2"]


@pytest.mark.parametrize("masking", ["common", "threshold"])
def test_a_lost_client_is_left_out_and_ranges_say_the_noise_that_there_is(finished: Path, masking: str) -> None:
    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes | None:
        return None if header.type == MaskedUpdate.TYPE and sender.rank == 3 else body

    config = config_of(finished, epsilon=5.0, masking=masking, min_clients=2)
    ended = run_together(config, 3, tap=tap)
    result = ended.outcomes[PartyId(1)].result
    assert result is not None and result.common["rounds"][0]["clients_included"] == [1, 2]
    sizes = [line for line in lines_of(ended) if line["measure"] == "size"]
    assert sum(float(line["estimate"]) for line in sizes) == pytest.approx(sum(SIZES[:2]), abs=60)
    # Two of three clients with one known: s^2 u / (u - t), u = 2, t = 1.
    plan = protocol().planned(config, 3, 2)
    all_noise = math.sqrt(2.0) if masking == "threshold" else 1.0
    weight = 1.0 + sum(1.0 / column.width for column in protocol().layout(plan).columns)
    deviation = plan.rounds[0] * plan.parts[0].sensitivity * all_noise / math.sqrt(weight)
    for line in sizes:
        assert float(line["high"]) - float(line["low"]) == pytest.approx(2 * NORMAL_TAIL * deviation, rel=1e-3)


def test_with_pairwise_masks_a_lost_client_is_named_and_nothing_is_released(finished: Path) -> None:
    sent: set[int] = set()

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes | None:
        sent.add(header.type)
        return None if header.type == MaskedUpdate.TYPE and sender.rank == 3 else body

    with pytest.raises(PeerError, match="client 3"):
        run_together(config_of(finished, masking="pairwise"), 3, tap=tap)
    assert MaskedUpdate.TYPE in sent and NoisyMaskedSum.TYPE not in sent


@pytest.mark.process
@pytest.mark.parametrize("masking", ["pairwise", "threshold", pytest.param("common", marks=pytest.mark.slow)])
def test_a_killed_run_goes_on_and_releases_nothing_twice(finished: Path, tmp_path: Path, masking: str) -> None:
    config = config_of(finished, masking=masking, min_clients=3)
    own = ("--data", config.data or "", "--described", config.described or "")
    with ForkedSites(tmp_path, config, 3, *own, "--deadline", "5", "--delay", "0.1") as sites:
        sites.until((sites.run_folder(1) / "reply-0").exists)
        sites.kill(2)
        assert 0 not in sites.finish()
    with ForkedSites(tmp_path, config, 3, *own, "--resume") as sites:
        assert set(sites.finish()) == {0}, sites.said
    for rank in (1, 2, 3):
        entries = [
            json.loads(line) for line in (sites.run_folder(rank).parent / "ledger.jsonl").read_text().splitlines()
        ]
        assert [(entry["round"], entry["name"]) for entry in entries] == [(0, PART)]
    texts = {(tmp_path / str(rank) / "result" / "profile.csv").read_text() for rank in (1, 2, 3)}
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"described": None}, ConfigError, "--described: expected this party's folder"),
        ({"k": 3}, ConfigError, "2 clusters, expected 3"),
        ({"columns": ("b", "a")}, ConfigError, "expected b, a"),
        ({"settings": {"describe": {"run": "00" * 16}}}, ConfigError, "expected that of run 0000"),
        ({"settings": {"describe": {"columns": ""}}}, ConfigError, "got none"),
        ({"settings": {"describe": {"columns": "[{]"}}}, ConfigError, "not valid JSON"),
        ({"settings": {"describe": {"names": '{"2": "a"}'}}}, ConfigError, "describe.names: expected .* from 0 to 1"),
        ({"settings": {"describe": {"names": "[]"}}}, ConfigError, "describe.names: expected names by the number"),
        ({"settings": {"describe": {"names": "{"}}}, ConfigError, "describe.names: not valid JSON"),
        ({"settings": {"describe": {"columns": '[{"name": "age", "lo": 0, "hi": 1}]'}}}, ConfigError, "not settled"),
        ({"rounds": 2}, ConfigError, "--rounds means nothing"),
    ],
)
def test_what_does_not_fit_the_finished_run_is_refused(
    finished: Path, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        run_together(config_of(finished, **change), 3)


def test_a_column_that_a_site_lacks_is_named_to_its_owner(finished: Path) -> None:
    with pytest.raises(DataError, match="weight"):
        run_together(config_of(finished, [{"name": "weight", "lo": 0, "hi": 200}]), 3)


def test_a_changed_centroid_of_a_signed_run_is_refused_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a roster the folder is compared with what the parties signed, before anybody is waited for."""
    start_quickly(monkeypatch)
    folder = tmp_path
    for rank in range(3):
        forked_command(folder, "keygen", "--name", f"party {rank}", "--rank", str(rank), "--prefix", f"party-{rank}")
        forked_command(folder, "roster", "add", "--roster", "roster.toml", "--cert", f"party-{rank}.pem")
    words = "run -n 3 --dataset iris --bounds 0,8 --k 2 --epsilon 20 --output result --quiet"
    forked_command(folder, *words.split(), "--roster", "roster.toml", "--key", "party-{client}.key")
    roster = folder / "roster.toml"
    assert len(read_finished(folder / "result", roster).centroids) == 2
    path = folder / "result" / "centroids.csv"
    path.chmod(0o600)
    path.write_text(path.read_text().replace(".", ".1", 1))
    with pytest.raises(ConfigError, match="centroids.csv is not what the parties signed"):
        read_finished(folder / "result", roster)


def test_the_rows_of_a_person_count_once(tmp_path: Path, finished: Path) -> None:
    """With --unit: numbers as the mean of a person's rows or the first, categories as the first that is there."""
    values = np.array([1.0, np.nan, 3.0, 5.0, np.nan, 9.0])
    records = np.array([0, 1, 0, 1, 2, -1])
    assert _merge(values, records, 3, mean=True).tolist()[:2] == [2.0, 5.0]
    assert _merge(values, records, 3, mean=False).tolist()[:2] == [1.0, 5.0]
    assert np.isnan(_merge(values, records, 3, mean=True)[2]) and np.isnan(_merge(values, records, 3, mean=False)[2])
    for rank in (1, 2, 3):
        rows = (finished / f"own_{rank}.csv").read_text().splitlines()
        doubled = [f"{rows[0]},person", *(f"{row},p{at}" for at, row in enumerate(rows[1:]) for _ in range(2))]
        (tmp_path / f"own_{rank}.csv").write_text("\n".join(doubled) + "\n")
    config = config_of(finished, epsilon=100.0, data=str(tmp_path / "own_{client}.csv"), unit="person")
    sizes = [float(line["estimate"]) for line in lines_of(run_together(config, 3)) if line["measure"] == "size"]
    assert sum(sizes) == pytest.approx(sum(SIZES), abs=10)


def test_it_stands_on_masked_sums_and_is_no_protocol_to_choose() -> None:
    assert isinstance(protocol(), MaskedSums)
    assert [row.name for row in FOLLOWING][:1] == ["describe"] and knows("describe")
    assert "describe" not in names() and "describe" not in PROTOCOLS and find("describe").results == 2


COLUMNS_FILE = '[age]\nlo = 0\nhi = 100\n\n[sex]\ncategories = ["f", "m"]\n'


def test_a_plan_calls_the_folder_as_the_command_does(tmp_path: Path) -> None:
    """The command takes RESULT; `--described` is a flag that nobody typed."""
    with pytest.raises(ConfigError, match=r"^RESULT .*none: .*give the folder of a finished run"):
        plan_description(tmp_path / "none", (), epsilon=0.5)


def test_the_command_plans_writes_the_run_file_and_runs(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in forks.environment().items():  # not `start_quickly`: a page is asked for
        monkeypatch.setenv(name, value)
    (tmp_path / "columns.toml").write_text(COLUMNS_FILE)
    of = ("describe", str(finished / "result"), "--columns", "columns.toml")
    said = command(tmp_path, *of, "--total", "5.2", "--out", "total.toml")
    assert "total: epsilon 5.2 for run and description together, 5 for the run alone" in said.replace("5.1999", "5.2")
    assert "clusters of at least" in said
    own = load_config(tmp_path / "total.toml", links=False)
    assert own.protocol == "describe" and own.k == 2 and own.data is None and own.described is None
    (tmp_path / "names.toml").write_text('1 = "=frail"\n')
    said = command(tmp_path, *of, "--epsilon", "0.5", "--names", "names.toml", "-n", "4")
    assert "clusters  1 =frail" in said
    report = json.loads((tmp_path / "description" / "report.json").read_text())
    assert report["privacy"]["spent_epsilon"] == pytest.approx(0.5, rel=1e-6)
    assert [column["name"] for column in report["parameters"]["described_columns"]] == ["age", "sex"]
    first = json.loads((finished / "result" / "report.json").read_text())["run"]
    assert report["parameters"]["described_run"] == first
    assert "profile.csv" in report["output"] and "verified: " in command(tmp_path, "report", "description", "--verify")
    text = (tmp_path / "description" / "report.html").read_text("utf-8")
    page.check(text)
    assert text.count('class="card"') == 2 and "Compared with all other clusters together" in text
    command(tmp_path, "report", "description", "--html", "again.html")
    assert (tmp_path / "again.html").read_text("utf-8") == text
    # Names that the parties agreed on stand in page and files; those chosen later in copies.
    assert "<bdi>=frail</bdi> (cluster 1)" in text and report["parameters"]["described_names"] == {"1": "=frail"}
    signed = (tmp_path / "description" / "profile.csv").read_text()
    assert {line.split(",")[1] for line in signed.splitlines()} == {"name", "", "'=frail"}
    (tmp_path / "names.toml").write_text('0 = "young"\n')
    chosen = ("--names", "names.toml", "--profile", "named.csv", "--html", "again.html")
    command(tmp_path, "report", "description", *chosen)
    assert (tmp_path / "named.csv").read_text() == signed.replace("'=frail", "").replace("\n0,,", "\n0,young,")
    assert "<bdi>young</bdi> (cluster 0)" in (tmp_path / "again.html").read_text("utf-8")
    assert (tmp_path / "description" / "profile.csv").read_text() == signed


def test_on_one_machine_it_counts_in_the_ledgers_and_the_budget_of_the_finished_run(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --state-dir it ran uncounted, past the budget of the run that it describes."""
    start_quickly(monkeypatch)
    copied, state = tmp_path / "result", tmp_path / "state"
    shutil.copytree(finished / "result", copied)
    base = load_config(copied / "config.toml", links=False)
    kept = replace(base, data=str(finished / "own_{client}.csv"), state_dir=str(state), budget=0.5)
    (copied / "config.toml").write_text(to_toml(kept, copied))
    (tmp_path / "columns.toml").write_text(COLUMNS_FILE)
    words = ["describe", "result", "--columns", "columns.toml", "--epsilon", "1", "-n", "4", "--force"]
    forked_command(tmp_path, *words, code=2)  # the ledgers are not there
    forked_command(tmp_path, "init-state", "state", "-n", "4")
    said = forked_command(tmp_path, *words, code=EXIT_BUDGET)
    assert "holds nothing of run" in said and "give the --state-dir of that run" in said
    assert not (tmp_path / "description" / "profile.csv").exists()


def test_a_plan_says_what_the_server_learns_of_a_run_whose_noise_it_knew(finished: Path, tmp_path: Path) -> None:
    """The clients' choice of k is hidden from the server of the run; the --k of a description tells it."""
    columns = columns_from_json(COLUMNS, "the test")
    assert not [
        line for line in plan_description(finished / "result", columns, epsilon=0.5).lines() if "learns" in line.text
    ]
    (tmp_path / "names.toml").write_text('1 = "frail"\n')
    copied = tmp_path / "result"
    shutil.copytree(finished / "result", copied)
    report = json.loads((copied / "report.json").read_text())
    for masking, said in (("common", "learns how many clusters the clients chose and the names"), ("pairwise", None)):
        report["parameters"] |= {"k_max": 2, "masking": masking}
        (copied / "report.json").write_text(json.dumps(report))
        lines = plan_description(copied, columns, epsilon=0.5, names=tmp_path / "names.toml").lines()
        found = [line.text for line in lines if line.name == "server"]
        assert not found if said is None else found[0].startswith(said)


def test_the_total_is_what_the_accountant_makes_of_both(finished: Path) -> None:
    """Gaussians add in mu^2; shares of noise in the description change nothing about that."""
    columns = columns_from_json(COLUMNS, "the test")
    for masking in ("common", "threshold"):
        planned = plan_description(finished / "result", columns, total=5.3, changes={"masking": masking})
        assert planned.epsilon_before == pytest.approx(5.0, rel=1e-4) and planned.epsilon_after <= 5.3
        assert planned.epsilon_after == pytest.approx(5.3, rel=1e-3)
        scales = [one.noise_multiplier for one in planned.run]
        more = PROTOCOL.planned(planned.config, 3, 2).all_releases()[0]
        mu = math.sqrt(sum(scale**-2 for scale in scales) + more.noise_multiplier**-2)
        assert gdp_epsilon(mu, planned.delta - SAMPLER_DELTA) == pytest.approx(planned.epsilon_after, rel=1e-2)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "either --epsilon"),
        (("--epsilon", "1", "--total", "6"), "either --epsilon"),
        (("--total", "4.9"), "expected more than the run alone has spent"),
        (("--epsilon", "1", "-n", "1"), "at least 2 processes"),
        (("--epsilon", "1", "--out", "columns.toml"), "exists already"),
    ],
)
def test_what_the_command_refuses(
    finished: Path, tmp_path: Path, words: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "columns.toml").write_text(COLUMNS_FILE)
    with pytest.raises(ConfigError, match=expected):
        describe_command([str(finished / "result"), "--columns", "columns.toml", *words])
    assert (tmp_path / "columns.toml").read_text() == COLUMNS_FILE and not (tmp_path / "describe.toml").exists()


def test_a_site_checks_the_columns_of_a_description_before_the_run(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = plan_description(finished / "result", columns_from_json(COLUMNS, "the test"), epsilon=0.5)
    (tmp_path / "run.toml").write_text(planned.run_file(tmp_path))
    words = ["--config", str(tmp_path / "run.toml"), "--client", "1", "--data"]
    assert check_command([*words, str(finished / "own_1.csv")]) == 0
    said = capsys.readouterr().out
    assert "described age: 28 missing, 0 outside 0 to 100, of 700 rows" in said and "sex: 0 missing" in said
    wrong = (finished / "own_1.csv").read_text().replace(",f\n", ",x\n", 1)
    (tmp_path / "wrong.csv").write_text(wrong)
    with pytest.raises(DataError, match="column 'sex': expected a category of the columns file"):
        check_command([*words, str(tmp_path / "wrong.csv")])


def test_the_dossier_lists_the_runs_before_it_and_what_all_spend_together(finished: Path) -> None:
    planned = plan_description(finished / "result", columns_from_json(COLUMNS, "the test"), epsilon=0.5)
    alone = to_markdown(make_dossier(plan_run(planned.config, 3, None, d=2)))
    run = planned.run[0].run
    assert f"goes on from run {run[:16]}" in alone and "All together" not in alone
    # Approvers have no folder of the run: in which cases its number of clusters is news to the server is said always.
    assert "| the server, of the run that is described | how many clusters it released" in alone
    earlier = read_study([finished / "result"])
    text = to_markdown(make_dossier(plan_run(planned.config, 3, None, d=2, earlier=earlier)))
    assert f"| {run[:16]} | fastlloyd-plus |" in text and "Its folder was not given" not in text
    found = re.search(r"All together: epsilon ([\d.]+), delta ([\d.e-]+), composed", text)
    assert found is not None and float(found[2]) == pytest.approx(planned.delta, rel=1e-2)
    assert planned.epsilon_after <= float(found[1]) <= planned.epsilon_after * 1.001  # rounded up
    assert "| this run | describe | planned |" in text
    with pytest.raises(ConfigError, match="was given already"):
        read_study([finished / "result", finished / "result"])
    with pytest.raises(ConfigError, match="--earlier"):
        read_study([finished])


def test_the_dossier_names_the_columns(finished: Path) -> None:
    config = config_of(finished)
    foreseen = protocol().foresee(config, 3, 2)
    flow = protocol().data_flow("describe", foreseen.parameters)
    assert flow is not None and "by age, sex, a: all clients" in flow.result


def test_a_run_on_a_public_set_is_described_by_columns_of_the_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_quickly(monkeypatch)
    words = "run -n 3 --dataset iris --bounds 0,8 --k 2 --epsilon 20 --output result --quiet"
    forked_command(tmp_path, *words.split())
    names_ = json.loads((tmp_path / "result" / "report.json").read_text())["result"]["features"]
    table = f"[{json.dumps(names_[0])}]\nlo = 0\nhi = 8\nbins = 4\n"
    (tmp_path / "columns.toml").write_text(table)
    forked_command(tmp_path, "describe", "result", "--columns", "columns.toml", "--epsilon", "20", "-n", "3")
    lines = list(csv.DictReader(io.StringIO((tmp_path / "description" / "profile.csv").read_text())))
    sizes = [float(line["estimate"]) for line in lines if line["measure"] == "size"]
    assert sum(sizes) == pytest.approx(150, abs=15)
