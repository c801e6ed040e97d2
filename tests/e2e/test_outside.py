"""A run seen from outside, with real processes: status page, metrics files and JSON lines."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fastlloyd.__main__ import main
from fastlloyd.report.document import load
from tests.e2e.test_serve_join import BUSY_S, CLIENTS, GRACE_S, SLOWLY, Sites, alone, parties  # noqa: F401
from tests.mpi.support import Job, hospitals


def metrics(path: Path) -> dict[str, float]:
    """Values by name, of those without further labels."""
    families = text_string_to_metric_families(path.read_text())
    return {sample.name: sample.value for family in families for sample in family.samples if len(sample.labels) == 2}


def stage(path: Path) -> str:
    families = text_string_to_metric_families(path.read_text())
    (found,) = (s.labels["stage"] for f in families for s in f.samples if s.name.endswith("_stage") and s.value == 1)
    return found


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def fetch(sites: Sites, path: str) -> Any:
    (address,) = re.findall(r"status at (http://127\.0\.0\.1:\d+/)", sites.out(0))
    with urllib.request.urlopen(address + path, timeout=60) as answer:
        text = answer.read().decode()
    return json.loads(text) if path.endswith("json") else text


def test_a_page_and_metrics_follow_a_run_between_sites(parties: Path, tmp_path: Path) -> None:  # noqa: F811
    with Sites(parties, tmp_path, *SLOWLY, "--rounds", "60", "--metrics", "run.prom") as sites:
        sites.serve("--status", "127.0.0.1:0", "--status-linger", "600")
        sites.until(lambda: "status at" in sites.out(0))
        status = fetch(sites, "status.json")
        assert (status["stage"], status["run"]) == ("starting", "")
        assert [client["joined"] for client in status["clients"]] == [False] * CLIENTS
        sites.join(2)
        sites.until(lambda: "1 of 3" in sites.out(0))
        status = fetch(sites, "status.json")
        assert [client["joined"] for client in status["clients"]] == [False, True, False]
        assert [client["name"] for client in status["clients"]] == ["clinic north", "clinic south", "clinic west"]
        assert "waiting for client 1" in status["waiting"] and "to say that they can start" in status["waiting"]
        assert stage(tmp_path / "0/run.prom") == "starting"
        sites.join(1)
        sites.join(3)
        sites.until(lambda: "round 3 of 60" in sites.out(0))
        status = fetch(sites, "status.json")
        assert status["stage"] == "rounds" and status["rounds"]["closed"] >= 3 and status["rounds"]["planned"] == 60
        assert status["bytes"]["payload"] > 0 and status["bytes"]["sent"] > 1000
        assert "in the rounds" in fetch(sites, "") and "fastlloyd_run_stage" in fetch(sites, "metrics")
        # How the run ended can be seen after its end, until a signal comes.
        sites.until(lambda: "the status stays for 600 s" in sites.out(0))
        assert (fetch(sites, "status.json")["stage"], sites.processes[0].poll()) == ("done", None)
        sites.processes[0].send_signal(signal.SIGTERM)
        assert sites.codes(0, 1, 2, 3) == [0] * 4, sites.said()
    server = load(sites.result(0) / "server.json", "server")
    for rank in range(CLIENTS + 1):
        found = metrics(tmp_path / str(rank) / "run.prom")
        assert found["fastlloyd_run_exit_code"] == 0 and stage(tmp_path / str(rank) / "run.prom") == "done"
        assert found["fastlloyd_run_rounds_closed"] == 60 and found["fastlloyd_run_clients"] == CLIENTS
        if rank == 0:
            assert found["fastlloyd_run_payload_bytes_total"] == server["traffic"]["payload_bytes"]
        assert server["run"] in (tmp_path / str(rank) / "run.prom").read_text()


@pytest.mark.slow
def test_metrics_and_json_lines_tell_of_a_failure(parties: Path, tmp_path: Path) -> None:  # noqa: F811
    flags = (*SLOWLY, "--metrics", "run.prom", "--log-format", "json", "--log-level", "info")
    with Sites(parties, tmp_path, *flags) as sites:
        sites.start()
        sites.in_the_middle()
        sites.until(lambda: stage(tmp_path / "2/run.prom") == "rounds")
        sites.processes[2].send_signal(signal.SIGKILL)
        assert sites.codes(0, 1, 3, limit_s=GRACE_S + BUSY_S) == [3] * 3, sites.said()
        # What is gone writes nothing: its file is what it was up to a second before, and grows old.
        assert stage(tmp_path / "2/run.prom") == "rounds"
    for rank in (0, 1, 3):
        said = lines((tmp_path / str(rank) / "err").read_text())
        assert said[-1]["level"] == "error" and said[-1]["rank"] == rank
        assert said[-1]["message"].startswith("client 2 (clinic south) is gone")
        rounds = [line for line in said if line.get("event") == "round"]
        assert [line["round"] for line in rounds] == list(range(len(rounds))) and len(rounds) >= 3
        assert {"clients", "seconds", "bytes", "time", "logger"} <= rounds[0].keys()
        found = metrics(tmp_path / str(rank) / "run.prom")
        assert (found["fastlloyd_run_exit_code"], stage(tmp_path / str(rank) / "run.prom")) == (3, "failed")
    joined = [line["message"] for line in lines((tmp_path / "0/err").read_text()) if "joined from" in line["message"]]
    assert len(joined) == CLIENTS


@pytest.mark.mpi
def test_under_mpirun_each_rank_has_its_file_and_all_lines_are_json(tmp_path: Path) -> None:
    hospitals(tmp_path)
    flags = ["--data", "hospital_{client}.csv", "--bounds", "-1,1", "--k", "2", "--n-total", "80", "--output", "res"]
    with Job(
        tmp_path,
        [*flags, "--metrics", "rank_{client}.prom", "--log-file", "log_{client}", "--log-format", "json"],
        supervised=True,
    ) as job:
        ended = job.finish()
    assert ended.code == 0, ended
    for rank in range(3):
        assert metrics(tmp_path / f"rank_{rank}.prom")["fastlloyd_run_exit_code"] == 0
        assert (tmp_path / f"log_{rank}").exists()


@pytest.mark.slow
@pytest.mark.mpi
def test_one_file_under_mpirun_is_the_server_s(tmp_path: Path) -> None:
    hospitals(tmp_path)
    flags = ["--data", "hospital_{client}.csv", "--bounds", "-1,1", "--k", "2", "--n-total", "80", "--output", "res"]
    bad = ["--log-format", "json", "--metrics", "run.prom", "--columns", "f9"]
    with Job(tmp_path, [*flags, *bad], supervised=True) as job:
        ended = job.finish()
    assert ended.code == 2, ended
    said = lines((tmp_path / "launcher.err").read_text())
    assert said and {line["level"] for line in said} == {"error"} and any("f9" in line["message"] for line in said)
    assert 'party="the server"' in (tmp_path / "run.prom").read_text()
    assert metrics(tmp_path / "run.prom")["fastlloyd_run_exit_code"] == 2


@pytest.mark.slow
@pytest.mark.mpi
def test_a_supervisor_s_own_sentence_is_a_line_of_json(tmp_path: Path) -> None:
    hospitals(tmp_path)
    flags = ["--data", "hospital_{client}.csv", "--bounds", "-1,1", "--k", "2", "--n-total", "80", "--output", "res"]
    with Job(tmp_path, [*flags, *SLOWLY, "--log-format", "json"], supervised=True) as job:
        job.until(lambda: job.rounds_done() > 2)
        job.kill(2, signal.SIGKILL)
        ended = job.finish()
    assert ended.code == 3, ended
    said = lines((tmp_path / "launcher.err").read_text())
    assert any("rank 2 (client 2)" in line["message"] and "killed by signal 9" in line["message"] for line in said)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--status", "0.0.0.0:0"), "--status 0.0.0.0:0: expected a loopback address"),
        (("--status", "nowhere"), "--status: expected HOST:PORT"),
        (("--status-remote",), "--status-remote: expected with --status"),
        (("--parent", "localhost:1", "--status", "127.0.0.1:0"), "--status: it is for the server itself"),
        (("--log-format", "xml"), "--log-format"),
    ],
)
@pytest.mark.usefixtures("alone")
def test_flags_that_cannot_be_are_refused_in_a_sentence(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--listen", "127.0.0.1:0", "--clients", "2", *words]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.usefixtures("alone")
def test_an_error_of_a_command_is_a_line_once_the_log_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--listen", "nowhere", "--clients", "2", "--log-format", "json"]) == 2
    (line,) = lines(capsys.readouterr().err)
    assert line["level"] == "error" and line["message"].startswith("--listen: expected HOST:PORT")
