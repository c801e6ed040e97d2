"""Metrics: what a strict parser reads, whole files only, and a run that a full disk does not hold up."""

from __future__ import annotations

import logging
import math
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fastlloyd.errors import ConfigError
from fastlloyd.report.view import STAGES, View
from fastlloyd.watch import metrics
from fastlloyd.watch.metrics import MetricsFile, render, render_site
from fastlloyd.wire.header import SERVER, PartyId

LIMIT_S = 60.0


def view(**changes: object) -> View:
    made = View(me=SERVER, protocol="fastlloyd-plus", clients=3, epsilon=0.5, absent=lambda: [3], started=1.5e9)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def samples(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """What Prometheus' own parser reads: values by name and labels; every name is declared once, with a help."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type in ("gauge", "counter"), family
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in found.setdefault(sample.name, {})
            found[sample.name][labels] = sample.value
    assert len(re.findall("^# TYPE ", text, re.M)) == len(re.findall("^# HELP ", text, re.M)) == len(found)
    return found


def value(text: str, name: str, **labels: str) -> float:
    (found,) = (v for given, v in samples(text)[name].items() if labels.items() <= dict(given).items())
    return found


def test_the_facts_of_a_run_read_back() -> None:
    seen = view(run="ab" * 16)
    seen.take("setup", {"seconds": 1.25, "sent_bytes": 1000, "received_bytes": 3000})
    for t in range(2):
        facts = {"round": t, "rounds": 6, "clients": 2, "seconds": 0.5, "bytes": 96}
        seen.take("round", {**facts, "sent_bytes": 10, "received_bytes": 20})
    text = render(seen, "weekly")
    labels = {"task": "weekly", "party": "the server"}
    assert all(labels.items() <= dict(given).items() for found in samples(text).values() for given in found)
    expected = {
        "clients": 3,
        "clients_joined": 2,
        "clients_included": 2,
        "epsilon": 0.5,
        "setup_seconds": 1.25,
        "rounds_planned": 6,
        "rounds_closed": 2,
        "last_round_seconds": 0.5,
        "rounds_seconds_total": 1.0,
        "payload_bytes_total": 192,
        "start_time_seconds": 1.5e9,
    }
    assert {name: value(text, f"fastlloyd_run_{name}") for name in expected} == expected
    assert value(text, "fastlloyd_run_link_bytes_total", direction="sent") == 1020
    assert value(text, "fastlloyd_run_link_bytes_total", direction="received") == 3040
    assert value(text, "fastlloyd_run_info", protocol="fastlloyd-plus", run="ab" * 16) == 1
    assert {s: value(text, "fastlloyd_run_stage", stage=s) for s in STAGES} == {s: float(s == "rounds") for s in STAGES}
    assert "fastlloyd_run_exit_code" not in samples(text)
    seen.end(3)
    text = render(seen, "weekly")
    assert value(text, "fastlloyd_run_exit_code") == 3 and value(text, "fastlloyd_run_stage", stage="failed") == 1
    assert value(text, "fastlloyd_run_end_time_seconds") > 1.6e9


def test_names_follow_the_conventions() -> None:
    text = render(view(exit_code=0), "x")
    for family in text_string_to_metric_families(text):
        (kind,) = re.findall(f"# TYPE {family.name}(?:_total)? (.*)", text)
        assert re.fullmatch(r"fastlloyd_run_[a-z]+(_[a-z]+)*", family.name)
        assert (kind == "counter") == text.count(f"# TYPE {family.name}_total ")
        if "time" in family.name or family.name.endswith("seconds"):
            assert family.name.endswith("_seconds")
    assert "millis" not in text and "kB" not in text


def test_any_text_may_stand_in_a_label() -> None:
    task = 'a "b" \\ c\nd{e="f"} 1'
    text = render(view(), task)
    assert all(dict(given)["task"] == task for found in samples(text).values() for given in found)
    assert all(math.isfinite(v) for found in samples(text).values() for v in found.values())


def wait_for(condition: object) -> None:
    pause = threading.Event()
    for _ in range(int(LIMIT_S / 0.01)):
        if condition():  # type: ignore[operator]
            return
        pause.wait(0.01)
    raise AssertionError("did not happen")


def test_a_file_follows_the_run_to_its_end(tmp_path: Path) -> None:
    path, seen = tmp_path / "weekly.prom", view()
    kept = MetricsFile(path, seen, look_s=0.01)
    assert path.stat().st_mode & 0o777 == 0o644
    assert value(path.read_text(), "fastlloyd_run_rounds_closed") == 0
    seen.take("round", {"round": 4, "rounds": 6, "clients": 2, "seconds": 0.5, "bytes": 96})
    wait_for(lambda: value(path.read_text(), "fastlloyd_run_rounds_closed", task="weekly") == 5)
    seen.end(0)
    kept.close()
    assert value(path.read_text(), "fastlloyd_run_exit_code") == 0
    assert list(tmp_path.iterdir()) == [path]


def test_it_is_written_again_without_a_change_and_not_more_often(tmp_path: Path) -> None:
    path = tmp_path / "x.prom"
    kept = MetricsFile(path, view(), look_s=0.01, every_s=0.2)
    first = path.stat().st_ino
    wait_for(lambda: path.stat().st_ino != first)
    kept.close()
    kept = MetricsFile(path, view(), look_s=0.01, every_s=1000.0)
    first = path.stat().st_ino
    threading.Event().wait(0.2)
    assert path.stat().st_ino == first
    kept.close()


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--metrics .*no: cannot be written \(No such file"):
        MetricsFile(tmp_path / "nowhere" / "no", view())


def test_a_disk_that_fills_up_later_is_told_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, tried = tmp_path / "x.prom", []
    kept = MetricsFile(path, view(), look_s=0.01, every_s=0.01)
    before = path.read_text()

    def full(*_: object, **more: object) -> None:
        tried.append(1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(metrics, "replace_file", full)
    with caplog.at_level(logging.WARNING, "fastlloyd"):
        wait_for(lambda: len(tried) > 3)
    kept.close()
    assert [record.message for record in caplog.records] == [
        f"--metrics {path}: cannot be written any longer (No space left on device)"
    ]
    assert path.read_text() == before


def test_each_party_counts_its_own(tmp_path: Path) -> None:
    seen = View(me=PartyId(2), clients=3)
    assert seen.joined == (1, 2, 3)
    assert value(render(seen, "x"), "fastlloyd_run_clients_joined", party="client 2") == 3


def test_what_only_some_runs_have_is_shown_by_them_alone() -> None:
    names = {"fastlloyd_run_budget_epsilon", "fastlloyd_run_budget_left_epsilon"}
    assert not names & samples(render(view(), "x")).keys()
    text = render(view(budget=3.0, budget_left=0.25, certificate_ends=2e9), "x")
    assert value(text, "fastlloyd_run_budget_epsilon") == 3.0
    assert value(text, "fastlloyd_run_budget_left_epsilon") == 0.25
    assert value(text, "fastlloyd_run_certificate_end_time_seconds") == 2e9


def test_alert_rules_ask_for_metrics_that_there_are() -> None:
    yaml = pytest.importorskip("yaml")
    path = Path(__file__).parents[3] / "launch" / "prometheus" / "fastlloyd.rules.yml"
    (group,) = yaml.safe_load(path.read_text())["groups"]
    shown = samples(render(view(exit_code=3, budget=1.0, certificate_ends=1.0), "x")).keys()
    shown |= samples(render_site("x", "client 1", alive=2.0, looked=1.0, offers={"done": 1}, code=3, ended=3.0)).keys()
    for rule in group["rules"]:
        assert rule.keys() >= {"alert", "expr", "labels", "annotations"}
        assert set(re.findall("fastlloyd_(?:run|site)_[a-z_]+", rule["expr"])) <= shown, rule


def test_the_alert_for_a_process_that_is_gone_knows_files_by_path_and_by_name() -> None:
    rules = (Path(__file__).parents[3] / "launch" / "prometheus" / "fastlloyd.rules.yml").read_text()
    (chosen,) = re.findall(r'node_textfile_mtime_seconds{file=~"(.*?)"}', rules)
    (name,) = re.findall(r'node_textfile_mtime_seconds.*?"\$1", "file", "(.*?)"\)', rules)
    for file in ("/var/lib/node/fastlloyd-x.prom", "fastlloyd-x.prom"):
        assert re.fullmatch(chosen, file)
        found = re.fullmatch(name, file)
        assert (found[1] if found else file) == "fastlloyd-x.prom"
    assert not re.fullmatch(chosen, "/var/lib/fastlloyd/site.prom")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_prometheus_accepts_the_alert_rules() -> None:
    done = subprocess.run(["promtool", "test", "rules", Path(__file__).with_name("alerts.yml")], check=False)
    assert done.returncode == 0
