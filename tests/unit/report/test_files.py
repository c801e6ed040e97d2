import csv
import io
import os
import stat
import subprocess
import sys
import time

import numpy as np
import pytest

from fastlloyd.data.bounds import Bounds, parse_bounds
from fastlloyd.data.records import RawRows
from fastlloyd.errors import ConfigError
from fastlloyd.report.files import (
    PRIVATE_MODE,
    RunFolder,
    bounds_csv,
    centroids_csv,
    clusters_csv,
    labels_csv,
    refuse_running,
    write_atomic,
)
from fastlloyd.report.quality import Quality
from fastlloyd.wire.header import PartyId, clients

RUN = bytes(16)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_written_whole_with_its_mode_and_nothing_beside_it(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, "grün\n", mode=PRIVATE_MODE)
    assert path.read_bytes() == "grün\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert names(tmp_path) == ["file"]


def test_failed_writing_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_missing_folder_is_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match="--output"):
        write_atomic(tmp_path / "nowhere" / "file", "text")


def test_centroids_read_back_exactly():
    centers = np.array([[0.1, 1 / 3], [-1e300, 5e-324]])
    header, *rows = centroids_csv(['plain "quoted"', "with, comma"], centers).splitlines()
    assert header == '"plain ""quoted""","with, comma"'
    assert np.array_equal(np.array([[float(cell) for cell in row.split(",")] for row in rows]), centers)


def test_labels():
    assert "".join(labels_csv(np.array([2, 0, 1]))) == "row,label\n1,2\n2,0\n3,1\n"
    assert "".join(labels_csv(np.array([], dtype=np.int64))) == "row,label\n"
    rows = RawRows(raw_records=np.array([0, -1, 0]), raw_ids=("-7", 'x, "y"', "a\rb"))
    assert list(csv.reader(io.StringIO("".join(labels_csv(np.array([4]), rows)), newline=""))) == [
        ["row", "id", "label"],
        ["1", "-7", "4"],
        ["2", 'x, "y"', ""],
        ["3", "a\rb", "4"],
    ]


def test_bounds_read_back_exactly(tmp_path):
    bounds = Bounds(np.array([0.1, -1e90]), np.array([1 / 3, 5e-300]))
    (tmp_path / "bounds.csv").write_text(bounds_csv(["a, b", "=c"], bounds))
    read = parse_bounds(str(tmp_path / "bounds.csv"))
    assert read.names == ("a, b", "'=c")
    assert (read.lo == bounds.lo).all() and (read.hi == bounds.hi).all()


def test_lowest_included_client_writes_in_a_shared_folder(tmp_path):
    folders = {party: RunFolder(str(tmp_path), RUN, party) for party in clients(3)}
    everybody = clients(3)
    assert [folders[party].writes_shared(everybody) for party in everybody] == [True, False, False]
    assert [folders[party].writes_shared(everybody[1:]) for party in everybody] == [False, True, False]
    for folder in folders.values():
        folder.discard()
        folder.discard()
    assert names(tmp_path) == []


def test_every_client_writes_in_a_folder_of_its_own(tmp_path):
    folders = [RunFolder(str(tmp_path / "{client}"), RUN, party) for party in clients(2)]
    assert [folder.path.name for folder in folders] == ["1", "2"]
    assert all(folder.writes_shared(clients(2)) for folder in folders)
    for folder in folders:
        folder.discard()


def test_marker_of_another_run_does_not_count(tmp_path):
    (tmp_path / f".fastlloyd-{'01' * 16}-1").touch()
    folder = RunFolder(str(tmp_path), RUN, PartyId(2))
    assert folder.writes_shared(clients(2))
    folder.discard()


def test_a_folder_that_another_run_uses_is_refused_until_it_ends(tmp_path):
    first = RunFolder(str(tmp_path), b"\1" * 16, PartyId(1))
    os.utime(tmp_path / f".fastlloyd-{'01' * 16}-1", (1.0, 1.0))  # for days: its marker is no leftover
    for attempt in (lambda: RunFolder(str(tmp_path), RUN, PartyId(1)), lambda: refuse_running(tmp_path)):
        with pytest.raises(ConfigError, match="run 01010101, which has not ended"):
            attempt()
    assert names(tmp_path) == [f".fastlloyd-{'01' * 16}-1"]
    RunFolder(str(tmp_path), b"\1" * 16, PartyId(2)).discard()  # another party of the same run
    first.discard()
    RunFolder(str(tmp_path), RUN, PartyId(1)).discard()
    assert names(tmp_path) == []


def test_a_run_that_was_killed_uses_its_folder_no_longer(tmp_path):
    code = (
        "import os, sys; from fastlloyd.report.files import PartyId, RunFolder\n"
        "folder = RunFolder(sys.argv[1], b'1' * 16, PartyId(1))\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False).returncode == -9
    assert len(names(tmp_path)) == 1
    RunFolder(str(tmp_path), RUN, PartyId(1)).discard()


def test_leftovers_of_dead_runs_go_after_a_day_but_ledgers_stay(tmp_path):
    long_ago = time.time() - 2 * 86_400
    for name in (".fastlloyd-aa-1", ".fastlloyd-x.part", ".fastlloyd-aa-1.ledger.jsonl", "centroids.csv"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (long_ago, long_ago))
    (tmp_path / ".fastlloyd-bb-1").touch()
    RunFolder(str(tmp_path), RUN, PartyId(1)).discard()
    assert names(tmp_path) == [".fastlloyd-aa-1.ledger.jsonl", ".fastlloyd-bb-1", "centroids.csv"]


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be made"):
        RunFolder(str(tmp_path / "file" / "inside"), RUN, PartyId(1))


def test_file_is_replaced_without_asking(tmp_path):
    folder = RunFolder(str(tmp_path), RUN, PartyId(1))
    folder.write("report.json", "old")
    assert folder.write("report.json", "new").read_text() == "new"
    folder.discard()


def test_each_cluster_has_its_size_and_centre_with_the_ends_of_their_ranges():
    centres = np.array([[20.0, 1e5], [79.5, 0.1]])
    bounds = Bounds(np.array([0.0, 0.0]), np.array([80.0, 1e5]), ("age", "=cost"))
    quality = Quality(
        verdict="good",
        sentence="",
        size_ranges=np.array([[90.0, 110.0], [-3.0, 7.5]]),
        centre_margins=np.array([[0.5, 10.0], [1.5, 0.2]]),
    )
    rows = list(csv.DictReader(io.StringIO(clusters_csv(("age", "=cost"), centres, [100.0, 2.5], quality, bounds))))
    names = [
        "cluster",
        *(f"{name}{end}" for name in ("noisy_size", "age", "'=cost") for end in ("", "_low95", "_high95")),
    ]
    assert [*rows[0]] == names
    found = [[float(cell) for cell in row.values()] for row in rows]
    # A range ends at the bounds, for no value lies outside; the centre is that of centroids.csv, bit by bit.
    assert found[0] == [0, 100, 90, 110, 20, 19.5, 20.5, 1e5, 1e5 - 10, 1e5]
    assert found[1] == [1, 2.5, -3, 7.5, 79.5, 78.0, 80.0, 0.1, 0.0, 0.1 + 0.2]
    bare = clusters_csv(("age", "cost"), centres, None, Quality(verdict="exact", sentence=""), bounds)
    assert bare == "cluster,age,cost\n0,20.0,100000.0\n1,79.5,0.1\n"
