"""What the benchmarks of vertical-he compute, read and write; runs with real ciphertexts are tiny here."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tenseal")

from fastlloyd.cli.options import parse_run_options
from fastlloyd.client import parser
from fastlloyd.data.table import read_table
from fastlloyd.errors import ConfigError, DataError
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.party.effects import Publish, Record
from fastlloyd_papers.engine.quiet import Watch
from fastlloyd_papers.engine.registry import Options, find_bench
from fastlloyd_papers.engine.shaped import TOOL
from fastlloyd_papers.vertical_he import fig4 as vertical_he_fig4
from fastlloyd_papers.vertical_he import fig5 as vertical_he_fig5
from fastlloyd_papers.vertical_he import table3 as vertical_he_table3
from fastlloyd_papers.vertical_he import table4 as vertical_he_table4
from fastlloyd_papers.vertical_he.common import IN_MEMORY, Timer, shown
from fastlloyd_papers.vertical_he.data import Missing, components, describe_given, load_points, split_widths, try_points
from fastlloyd_papers.vertical_he.mpi import PeakMemory, flags, from_report, write_offices
from fastlloyd_papers.vertical_he.network import NETWORKS, Network, Traffic, kept_rate, plain_seconds, tcp_seconds
from fastlloyd_papers.vertical_he.paper import MEGABYTES, SECONDS, UTILITY, published, published_megabytes
from fastlloyd_papers.vertical_he.run import ENCRYPTED, Case, _marked, plain_lloyd, run_case, synthetic
from fastlloyd_papers.vertical_he.utility import vertical_dp_centers

TRAFFIC = Traffic(setup_bytes=4e6, round_bytes=1e5, rounds=10, setup_messages=15)


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


def test_a_network_s_rate_and_delay_are_counted_once_for_each_message() -> None:
    # 5 MB at 100 Mbit/s, and 35 messages of 20 ms.
    assert plain_seconds(NETWORKS["regWAN100"], TRAFFIC) == pytest.approx(0.4 + 0.7)


def test_tcp_is_never_faster_and_follows_mathis_and_the_doubling_window() -> None:
    for network in NETWORKS.values():
        assert tcp_seconds(network, TRAFFIC) >= plain_seconds(network, TRAFFIC)
        assert kept_rate(network) <= network.bytes_per_second
    lossy = Network(1000.0, 50.0, 1.5)
    assert kept_rate(lossy) == pytest.approx(1460 * 10 / 0.1)  # sqrt(3 / (2 * 0.015)) = 10 segments in 0.1 s
    wide = Network(1e6, 50.0)
    one = Traffic(setup_bytes=14_600 * 7, round_bytes=0.0, rounds=0, setup_messages=1)
    # 10, 20 and 40 segments leave at 0, 0.1 and 0.2 s.
    assert tcp_seconds(wide, one) == pytest.approx(0.2 + 0.05, abs=1e-5)


def test_the_networks_are_those_of_the_shaping_scripts() -> None:
    profiles = tomllib.loads(TOOL.with_name("profiles.toml").read_text("utf-8"))
    for name, network in NETWORKS.items():
        profile = profiles[name]
        assert network == Network(profile["rate_mbit"], profile["delay_ms"], profile.get("loss_percent", 0.0))


def test_published_figures_are_complete_and_stand_where_they_belong() -> None:
    assert set(SECONDS) == set(NETWORKS)
    assert {len(found) for found in SECONDS.values()} == {len(MEGABYTES)} == {12}
    assert published("LAN10000", 10_000, 5) == 102.0
    assert published_megabytes(100_000, 5) == 72.9
    assert all(line.dp_loss is None or line.dp_loss > line.loss > line.plain_loss
               for lines in UTILITY.values() for line in lines)  # fmt: skip


@pytest.mark.parametrize("widths", [(1, 2), (1, 1, 2)])
def test_the_offices_files_and_flags_are_a_run(tmp_path: Path, widths: tuple[int, ...]) -> None:
    points, _ = synthetic(40, 3, sum(widths))
    case = Case(k=3, widths=widths, rounds=4, noise="flooding", seed=7)
    write_offices(tmp_path, case, points)
    config, _ = parse_run_options(parser(), flags(case, 40, 2, tmp_path))
    assert (config.k, config.rounds, config.n_total, config.seed, config.workers) == (3, 4, 40, 7, 2)
    assert (config.delta, config.transport, config.own_settings["noise"]) == (1 / 40, "tcp", "flooding")
    assert config.data is not None
    first = case.ranks - len(widths)
    assert first == (0 if len(widths) == 2 else 1)
    read = []
    for rank in range(first, case.ranks):
        path = config.data.replace("{client}", str(rank))
        table = read_table(path, texts=("id",))
        assert table.raw_texts["id"][:2] == ["0", "1"]
        read.append(table.values)
    np.testing.assert_allclose(np.hstack([own.reshape(40, -1) for own in read]), points, atol=1e-9)


def test_the_first_round_s_extra_time_is_set_up_and_only_what_waits_is_a_message() -> None:
    report = {
        "parameters": {
            "encryption": {"ring": 2048}, "scheme": "linear", "mode": "two-party", "owners": [0, 1], "computing": 1,
            "n_total": 10_000,
        },
        "rounds": [{"seconds": 5.0}, {"seconds": 1.0}, {"seconds": 2.0}],
        "timing": {"setup_seconds": 2.0, "total_seconds": 12.0},
        "traffic": {"messages": 22, "setup_bytes": 1000, "link_bytes": 1900},
    }  # fmt: skip
    found = from_report(report)
    assert (found["round_seconds"], found["setup_seconds"]) == (1.5, 12.0 - 3 * 1.5)
    slow = {**report, "rounds": [{"seconds": 3.0}, {"seconds": 4.0}, {"seconds": 4.0}]}
    assert from_report(slow)["setup_seconds"] == 2.0  # the machine was slower later: never less than what was seen
    # 22 less two in each round and five blocks, and four for the handshakes.
    assert found["setup_messages"] == 22 - 6 - 5 + 4
    assert (found["setup_bytes"], found["round_bytes"]) == (1000, 300)


def test_the_peak_of_a_child_s_memory_is_seen() -> None:
    code = "import sys; held = b'x' * (64 << 20); print('held', flush=True); sys.stdin.read()"
    with (
        PeakMemory() as memory,
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child,
    ):
        assert child.stdout is not None and child.stdin is not None
        child.stdout.readline()
        while memory.peak_kib < 64 << 10 and child.poll() is None:
            time.sleep(0.05)
        child.stdin.close()
    assert memory.peak_kib >= 64 << 10


def test_sets_of_the_user_are_read_and_missing_ones_are_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    np.savetxt(tmp_path / "har.csv", rng.normal(size=(30, 12)), delimiter=",",
               header=",".join(f"f{i}" for i in range(12)), comments="")  # fmt: skip
    points, labels = load_points("har", str(tmp_path))
    assert points.shape == (30, 10) and labels is None
    assert np.abs(points).max() == pytest.approx(1.0)
    names = ["age", "job", "duration", "emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed"]
    lines = [";".join(f'"{name}"' for name in names)]
    lines += [f'{20 + i};"admin.";{i};{-1 + i / 10};93.{i};-36.{i};4.8{i};5191' for i in range(9)]
    (tmp_path / "bank.csv").write_text("\n".join(lines) + "\n")
    points, _ = load_points("bank", str(tmp_path))
    assert points.shape == (9, 7)
    told = describe_given("bank", str(tmp_path))
    assert "9 x 7" in told
    (tmp_path / "bank.csv").write_text("\n".join(lines).replace('"', "") + "\n")
    assert describe_given("bank", str(tmp_path)) == told  # another copy with the same numbers
    (tmp_path / "bank.csv").write_text("\n".join(lines).replace("93.1;", "93.2;") + "\n")
    assert describe_given("bank", str(tmp_path)) != told
    (tmp_path / "bank.csv").write_text("\n".join([*lines, "30;student;x;1;2;3;4;5"]) + "\n")
    with pytest.raises(DataError, match="line 11: expected the columns age, duration"):
        load_points("bank", str(tmp_path))
    for name in ("taxi", "loan", "s1"):
        found = try_points(name, str(tmp_path))
        assert isinstance(found, Missing) and name in found.reason


def test_components_keep_what_varies_most() -> None:
    rng = np.random.default_rng(5)
    spread = rng.normal(size=(200, 3)) * [1.0, 10.0, 0.1]
    found = components(spread, 1)
    assert found.shape == (200, 1)
    assert abs(np.corrcoef(found[:, 0], spread[:, 1])[0, 1]) > 0.99
    assert components(spread, 3) is spread
    assert split_widths(7, 3) == (3, 2, 2)


def test_vertical_dp_is_judged_on_the_same_points() -> None:
    points, classes = synthetic(3000, 3, 2)
    means = np.array([points[classes == j].mean(axis=0) for j in range(3)])
    private = nearest(points, vertical_dp_centers(points, Case(k=3, widths=(1, 1), epsilon=20.0)))[1]
    assert 0.95 <= private / nearest(points, means)[1] <= 2.0


def test_plain_k_means_keeps_the_centre_of_an_empty_cluster() -> None:
    points, _ = synthetic(500, 2, 2)
    start = np.array([points[0], points[1], [5.0, 5.0]])
    found = plain_lloyd(points, start, 20)
    np.testing.assert_array_equal(found[2], start[2])
    assert nearest(points, found)[1] <= nearest(points, start)[1]


def test_values_are_shown_to_three_digits() -> None:
    assert [shown(value) for value in (None, 0.123456, 3744.2, 1_000_000, 15, "x")] == [
        "", "0.123", "3744", "1,000,000", "15", "x"
    ]  # fmt: skip


@pytest.fixture
def no_mpirun(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise ConfigError("no mpirun here")

    monkeypatch.setattr("fastlloyd_papers.vertical_he.common.find_mpirun", none)


@pytest.mark.usefixtures("no_mpirun")
def test_table3_without_mpirun_runs_in_memory_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = vertical_he_table3.Size(sizes=(1_000,), repeats=2, pairwise=(), pairwise_rounds=1, shaped=("LAN500",))
    monkeypatch.setattr(vertical_he_table3, "QUICK", size)
    monkeypatch.setattr(vertical_he_table3, "CLUSTERS", (2,))
    options = Options(quick=True, output=tmp_path, shaped=True, progress=False, jobs=1, watch=Watch(noisy=True))
    text = vertical_he_table3.run(options)
    assert "While cells were measured, at most " in text
    assert IN_MEMORY in text and "no mpirun here" in text and "Shaped networks are left out" in text
    (measured,) = rows(tmp_path / "vertical-he-table3.csv")
    assert (measured["n"], measured["k"], measured["runs"]) == ("1000", "2", "2")
    assert (measured["times faster"] == "unusable") == (measured["usable"] == "no")
    networks = rows(tmp_path / "vertical-he-table3-networks.csv")
    assert [row["network"] for row in networks] == list(NETWORKS)
    for row in networks:
        computed = float(row["computed_s"])
        assert float(row["computed_with_tcp_s"]) >= computed >= float(measured["ten rounds and set-up, s"])
        assert float(row["paper_s"]) == published(row["network"], 1_000, 2)
    assert (tmp_path / "vertical-he-table3.png").stat().st_size > 1000
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".md", ".png"}


@pytest.mark.usefixtures("no_mpirun")
def test_figure4_counts_rounds_of_the_pairwise_circuit_tenfold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vertical_he_fig4, "QUICK_N", 100)
    # The paper has no figure for three clusters.
    monkeypatch.setattr(vertical_he_fig4, "CLUSTERS", 3)
    monkeypatch.setattr(vertical_he_fig4, "published", lambda *_: 1.0)
    monkeypatch.setattr(vertical_he_fig4, "QUICK", (("1 + rest", 1, 1), (vertical_he_fig4.PAPER, 1, 3)))
    vertical_he_fig4.run(Options(quick=True, output=tmp_path, progress=False, jobs=1))
    linear, pairwise = rows(tmp_path / "vertical-he-fig4.csv")
    assert (linear["scheme"], pairwise["scheme"]) == ("linear", "pairwise")
    for row in (linear, pairwise):
        expected = float(row["set-up, s"]) + 10 * float(row["a round, s"])
        assert float(row["ten rounds and set-up, s"]) == pytest.approx(expected)


@pytest.mark.slow
def test_table4_and_figure5_have_every_run_beside_its_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vertical_he_table4, "UTILITY", {})
    line = vertical_he_table4.Line(name="synth-300-2-2", k=2, parties=2)
    refused = vertical_he_table4.Line(name="synth-10-2-2", k=20, parties=2)
    monkeypatch.setattr(vertical_he_table4, "LINES", (line, refused))
    monkeypatch.setattr(vertical_he_table4, "QUIET_SETS", {"synth-400-2-3": (2, ((2, 1),))})
    text = vertical_he_table4.run(Options(quick=True, output=tmp_path, progress=False, jobs=1))
    (private,) = rows(tmp_path / "vertical-he-table4.csv")
    assert (private["data set"], private["scheme"]) == ("synth-300-2-2", "linear")
    assert "synth-10-2-2 with 2 parties is left out" in text
    quiet = rows(tmp_path / "vertical-he-table4-without-noise.csv")
    assert [row["start"] for row in quiet] == ["0", "1"]
    for row in quiet:
        assert float(row["loss"]) <= 1.05 * float(row["plain_loss"])
    monkeypatch.setattr(vertical_he_fig5, "EPSILONS", (0.5, 1.0))
    monkeypatch.setattr(vertical_he_fig5, "load_points", lambda name, folder: synthetic(300, 2, 2))
    monkeypatch.setattr(vertical_he_fig5, "CLUSTERS_OF", {"s1": 2})
    vertical_he_fig5.run(Options(quick=True, output=tmp_path, progress=False, jobs=1))
    (figure,) = rows(tmp_path / "vertical-he-fig5.csv")
    assert float(figure["epsilon"]) == 1.0 and float(figure["paper"]) == UTILITY["s1"][0].loss
    assert math.isfinite(float(figure["vertical-dp"]))


def test_the_benchmarks_take_workers_and_one_takes_shaped_links() -> None:
    for name in ("table3", "table4", "fig4", "fig5"):
        assert "jobs" in find_bench(f"vertical-he-{name}").accepts
    assert "shaped" in find_bench("vertical-he-table3").accepts


def test_a_case_in_memory_tells_time_bytes_and_loss() -> None:
    points, _ = synthetic(300, 2, 2)
    value = run_case(Case(k=2, widths=(1, 1), rounds=2, noise="flooding"), points, 1)
    assert (value["scheme"], value["rounds"]) == ("linear", 2)
    assert value["setup_bytes"] > 33 * 2048 * 5 and value["round_bytes"] > 0
    assert value["round_seconds"] > 0 and value["setup_seconds"] > 0
    assert Timer(1).workers == 1


@pytest.mark.parametrize("early", [0, 2])
def test_a_set_up_ends_with_its_last_block_or_where_the_rounds_begin(early: int) -> None:
    block = Publish("progress", {"stage": ENCRYPTED, "fraction": 0.5})
    marks: dict[str, float] = {}
    party, seen = _marked((effect for effect in [*[block] * early, Record(()), block, block]), marks), []
    for _ in party:
        seen.append(marks.get("setup"))
    assert len(set(seen[max(early - 1, 0) :])) == 1 and seen[-1] is not None
    assert early == 0 or seen[0] != seen[1]
