"""Records in a file without a name: the same sums, labels and bits as in memory, in little of it."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans import stored
from fastlloyd.kmeans.assign import accumulate, assign, sum_by_label
from fastlloyd.kmeans.grid import GridPoints, quantise, quantise_stored, round_centers
from fastlloyd.kmeans.stored import Scratch, StoredPasses, StoredRows, release

Q = 16


def keep(points: NDArray[np.float64], folder: Path, cut: int = 7) -> StoredRows:
    """Put points into a file, some at a time."""
    rows = StoredRows(folder, points.shape[1])
    for start in range(0, len(points), cut):
        rows.append(points[start : start + cut])
    return rows


def on_disk(
    points: NDArray[np.float64], folder: Path, *, threads: int = 2, memory: int = 1, patience: float
) -> GridPoints:
    passes = StoredPasses(threads, folder, memory, patience=patience)
    rows = keep(points, folder)
    return quantise_stored(rows.drain(), points.shape, Q, passes=passes, scratch=Scratch(folder))


@pytest.mark.parametrize("patience", [float("inf"), 0.0], ids=["numpy", "compiled"])
@pytest.mark.parametrize("memory", [1, 3_000, 1 << 30])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shorten", [False, True])
def test_every_pass_gives_the_bits_that_memory_gives(
    patience: float, memory: int, threads: int, shorten: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_BLOCK_VALUES", 50)
    random = np.random.default_rng(memory)
    points = random.uniform(-1.1, 1.1, (331, 3))
    centers = round_centers(random.uniform(-1, 1, (4, 3)), Q)
    held, kept = quantise(points, Q), on_disk(points, tmp_path, threads=threads, memory=memory, patience=patience)
    np.testing.assert_array_equal(kept.raw_coordinates, held.raw_coordinates)
    np.testing.assert_array_equal(kept.raw_squared_norms, held.raw_squared_norms)
    assert kept.raw_coordinates.flags.c_contiguous
    labels = assign(kept, centers)
    np.testing.assert_array_equal(labels, assign(held, centers))
    for got, want in zip(
        (*accumulate(kept, centers, radius=30_000, relative=True, shorten=shorten), *sum_by_label(kept, labels, 4)),
        (*accumulate(held, centers, radius=30_000, relative=True, shorten=shorten), *sum_by_label(held, labels, 4)),
        strict=True,
    ):
        np.testing.assert_array_equal(got, want)


def test_rows_come_back_in_both_directions_and_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_BLOCK_VALUES", 8)
    points = np.random.default_rng(0).normal(size=(23, 2))
    rows = keep(points, tmp_path)
    assert len(rows) == 23
    np.testing.assert_array_equal(np.concatenate(list(rows.blocks())), points)
    blocks = list(rows.drain())
    assert [start for start, _ in blocks] == [20, 16, 12, 8, 4, 0]
    np.testing.assert_array_equal(np.concatenate([block for _, block in reversed(blocks)]), points)
    assert not len(rows)
    assert not list(rows.blocks())


def open_files() -> Iterator[os.stat_result]:
    """Yield what is known of this process's open files."""
    for entry in Path("/proc/self/fd").iterdir():
        try:
            yield entry.stat()
        except FileNotFoundError:  # of the listing itself
            continue


def test_the_file_has_no_name_and_is_its_owners_alone(tmp_path: Path) -> None:
    rows = keep(np.ones((100, 2)), tmp_path)
    assert not list(tmp_path.iterdir())
    (found,) = [
        info for info in open_files() if stat.S_ISREG(info.st_mode) and info.st_size == 1600 and not info.st_nlink
    ]
    assert stat.S_IMODE(found.st_mode) == 0o600
    del rows
    assert found.st_ino not in {info.st_ino for info in open_files() if not info.st_nlink}


@pytest.mark.process
def test_a_killed_process_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; import numpy as np;"
        "from fastlloyd.kmeans.stored import StoredRows;"
        "rows = StoredRows(Path(sys.argv[1]), 2); rows.append(np.ones((1000, 2))); print(len(rows), flush=True);"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1000\n"
        process.send_signal(signal.SIGKILL)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_made_yet_stays_so(tmp_path: Path) -> None:
    Scratch(tmp_path / "state" / "client-1").write(np.ones(1), 0)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_said_in_a_sentence(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(ConfigError, match=r"^--memory: no space for more records in .*; free some"):
            scratch.write(np.ones(1000), 0)
        with pytest.raises(ConfigError, match="no space"):
            scratch.reserve(8192)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_folder_without_rights_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(stored, "TemporaryFile", refuse)
    with pytest.raises(ConfigError, match="Permission denied"):
        Scratch(tmp_path)


def test_an_array_in_memory_is_not_given_back() -> None:
    array = np.arange(6).reshape(2, 3)[:, 1:]
    release(array)
    assert array.tolist() == [[1, 2], [4, 5]]


_MEMORY = """
import sys
from pathlib import Path
import numpy as np
from fastlloyd.kmeans.assign import accumulate, assign
from fastlloyd.kmeans.grid import quantise_stored
from fastlloyd.kmeans.stored import Scratch, StoredPasses, StoredRows

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

folder, n, d = Path(sys.argv[1]), 1 << 20, 16
block = np.random.default_rng(0).uniform(-1, 1, (1 << 14, d))
centers = np.zeros((2, d), dtype=np.int64)
centers[1] = 1000
rows = StoredRows(folder, d)
before = peak()
for _ in range(n // len(block)):
    rows.append(block)
points = quantise_stored(rows.drain(), (n, d), 16, passes=StoredPasses(2, folder, 4 << 20), scratch=Scratch(folder))
accumulate(points, centers, radius=1 << 20, relative=True)
assign(points, centers)
print(peak() - before)
"""


@pytest.mark.process
def test_passes_over_a_large_file_take_little_memory(tmp_path: Path) -> None:
    """128 MB of rows, 72 MB on the grid, 8 MB of labels: none of it stays in memory."""
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY, tmp_path], capture_output=True, text=True, check=True, timeout=300
    )
    assert float(done.stdout) < 40
