"""What an earlier run has left in an output folder: found, refused, cleared; nothing of anybody else's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastlloyd.errors import ConfigError, Reason
from fastlloyd.report.earlier import find_earlier

OLD, NEW = "a" * 32, "b" * 32


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder with somebody's own files in it."""
    output = [
        "centroids.csv",
        "kinds.txt",
        "labels_1.csv",
        "ledger.jsonl",
        "report.json",
        "../outside.csv",
        "linked.csv",
    ]
    (tmp_path / "outside.csv").write_text("mine")
    path = tmp_path / "result"
    path.mkdir()
    (path / "report.json").write_text(json.dumps({"schema": 2, "run": OLD, "output": output}))
    for name in ("centroids.csv", "kinds.txt", "labels_1.csv", "labels_2.csv", "ledger.jsonl", "thesis.csv"):
        (path / name).write_text(name)
    (path / "interrupted-0123-client-1.ledger.jsonl").write_text("paid for")
    (path / "linked.csv").symlink_to(path / "thesis.csv")
    (path / "palette.png").mkdir()
    return path


def test_files_of_a_run_are_found(folder: Path) -> None:
    earlier = find_earlier(folder)
    assert earlier.runs == {"report.json": OLD}
    found = ("centroids.csv", "kinds.txt", "labels_1.csv", "labels_2.csv", "ledger.jsonl", "report.json")
    assert earlier.files == found
    assert find_earlier(folder / "nowhere").files == ()


def test_only_the_same_run_may_go_on_there(folder: Path) -> None:
    find_earlier(folder).refuse(OLD)
    find_earlier(folder / "palette.png").refuse(None)
    for own in (None, NEW):
        with pytest.raises(
            ConfigError, match=r"files of another run \(centroids.csv, .* and 3 more\).*--overwrite"
        ) as caught:
            find_earlier(folder).refuse(own)
        assert caught.value.reason is Reason.BAD_CONFIG  # told once by all ranks that see the folder


def test_names_of_a_run_without_its_report_are_nobody_known(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[tool]")
    (tmp_path / "report.json").write_text('{"schema": 2, "run": "x"}')
    earlier = find_earlier(tmp_path)
    with pytest.raises(ConfigError, match="files named like those of a run"):
        earlier.refuse(None)
    earlier.refuse(NEW)  # a resumed run that had begun to write
    earlier.clear(lambda _: True, ())
    assert names(tmp_path) == ["config.toml", "report.json"]


def test_clearing_takes_each_partys_files_and_nobody_elses(folder: Path) -> None:
    earlier = find_earlier(folder)
    earlier.clear(lambda rank: rank == 2, ())
    assert not (folder / "labels_2.csv").exists() and (folder / "labels_1.csv").exists()
    (folder / "centroids.csv").write_text("new")
    earlier.clear(lambda rank: rank in (None, 1), {"centroids.csv"})
    own = ["interrupted-0123-client-1.ledger.jsonl", "kinds.txt", "linked.csv", "palette.png", "thesis.csv"]
    assert names(folder) == ["centroids.csv", *own] and (folder.parent / "outside.csv").exists()


def test_a_report_cannot_have_other_files_removed(folder: Path) -> None:
    output = ["thesis.csv", "..", "result", "a\0b", "\ud800", "x" * 5000]
    (folder / "report.json").write_text(json.dumps({"schema": 3, "run": OLD, "output": output}))
    earlier = find_earlier(folder)
    assert "thesis.csv" in earlier.files
    earlier.clear(lambda _: True, ())
    assert (folder / "thesis.csv").exists() and not (folder / "report.json").exists()


def test_where_only_a_server_has_written_its_own_file_alone_goes(tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text(json.dumps({"schema": 3, "run": OLD}))
    for name in ("config.toml", "bounds.csv"):
        (tmp_path / name).write_text("the operator's own")
    find_earlier(tmp_path).clear(lambda _: True, ())
    assert names(tmp_path) == ["bounds.csv", "config.toml"]


def test_the_files_of_a_description_go_with_it(tmp_path: Path) -> None:
    output = ["profile.csv", "quality.csv", "silhouettes.csv"]
    (tmp_path / "report.json").write_text(json.dumps({"schema": 6, "run": OLD, "output": output}))
    for name in output:
        (tmp_path / name).write_text(name)
    find_earlier(tmp_path).clear(lambda _: True, ())
    assert names(tmp_path) == []
