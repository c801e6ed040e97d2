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
    left = ["centroids.csv", "interrupted-0123-client-1.ledger.jsonl", "linked.csv", "palette.png", "thesis.csv"]
    assert names(folder) == left and (folder.parent / "outside.csv").exists()
