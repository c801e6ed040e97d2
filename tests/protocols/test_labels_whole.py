"""Labels at the end of whole runs: for every row of an owner's file, and those that `fastlloyd label` gives again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastlloyd.cli.label import main as label
from tests.protocols.whole import run_whole

N_TOTAL = 400


def write_tables(folder: Path) -> None:
    """Two clients' tables with ids that are text, a text column, missing values and another order of columns."""
    generator = np.random.default_rng(8)
    for client, rows in ((1, 90), (2, 130)):
        age, size = generator.uniform(0, 100, rows).round(1), generator.uniform(-3, 3, rows)
        lines = ["patient,age,note,size" if client == 1 else "size,note,age,patient"]
        for row in range(rows):
            gap = row % 17 == 3
            cells = [f"P-{client}{row:03d}", "" if gap else str(age[row]), "well, well", repr(float(size[row]))]
            cells[2] = f'"{cells[2]}"'
            lines.append(",".join(cells if client == 1 else [cells[3], cells[2], cells[1], cells[0]]))
        (folder / f"site_{client}.csv").write_text("\n".join(lines) + "\n")
    (folder / "limits.csv").write_text("feature,lo,hi\nage,0,90\nsize,-2,2\n")


@pytest.mark.parametrize("protocol", ["fastlloyd", "lloyd", "fastlloyd-plus", "kfed", "feddp"])
@pytest.mark.parametrize("missing", ["drop", "midpoint"])
def test_label_gives_the_labels_of_the_run(tmp_path, protocol, missing):
    write_tables(tmp_path)
    own = {"dataset": None, "data": str(tmp_path / "site_{client}.csv"), "bounds": str(tmp_path / "limits.csv")}
    start = {"settings": {"feddp": {"start": "sphere-packing"}}} if protocol == "feddp" else {}
    codes = run_whole(tmp_path, 3, protocol=protocol, k=3, n_total=N_TOTAL, missing=missing, **own, **start)
    assert codes == [0, 0, 0]
    for client, rows in ((1, 90), (2, 130)):
        folder = tmp_path / str(client)
        written = (folder / f"labels_{client}.csv").read_text()
        lines = [line.split(",") for line in written.splitlines()]
        assert lines[0] == ["row", "label"]
        assert [line[0] for line in lines[1:]] == [str(row) for row in range(1, rows + 1)]
        dropped = [row for row, line in enumerate(lines[1:]) if line[1] == ""]
        assert dropped == ([row for row in range(rows) if row % 17 == 3] if missing == "drop" else [])
        argv = ["--centroids", str(folder / "centroids.csv"), "--data", str(tmp_path / f"site_{client}.csv")]
        assert label([*argv, "--missing", missing, "--out", str(tmp_path / "again.csv")]) == 0
        assert (tmp_path / "again.csv").read_text() == written
        modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
        assert modes.pop("config.toml") == 0o644 and set(modes.values()) == {0o600}, modes


def test_rows_of_a_demonstration_are_those_of_the_set(tmp_path):
    lines = ["a,b", *(f"{row % 10},{row % 7}" if row % 9 else ",1" for row in range(60))]
    (tmp_path / "set.csv").write_text("\n".join(lines) + "\n")
    run = {"dataset": str(tmp_path / "set.csv"), "protocol": "lloyd", "k": 2, "missing": "drop", "bounds": "0,10"}
    assert run_whole(tmp_path, 3, **run) == [0, 0, 0]
    rows = []
    for client in (1, 2):
        text = (tmp_path / str(client) / f"labels_{client}.csv").read_text()
        rows += [int(line.partition(",")[0]) for line in text.splitlines()[1:]]
    assert sorted(rows) == [row + 1 for row in range(60) if row % 9]


def test_owners_of_columns_label_by_their_own_and_a_joined_table_by_all(tmp_path):
    generator = np.random.default_rng(5)
    groups = generator.integers(0, 2, 60)
    tables = {
        1: generator.normal(groups[:, None] * 4, 1, (60, 2)),
        2: generator.normal(groups[:, None] * 9, 1, (60, 1)),
    }
    for client, values in tables.items():
        names = [f"c{client}{column}" for column in range(values.shape[1])]
        lines = [
            f"id,{','.join(names)}",
            *(f"u{row:02d}," + ",".join(map(repr, own)) for row, own in enumerate(values.tolist())),
        ]
        (tmp_path / f"office_{client}.csv").write_text("\n".join(lines) + "\n")
        limits = [f"{name},{-3 * client},{12 * client}" for name in names]
        (tmp_path / f"bounds_{client}.csv").write_text("\n".join(["feature,lo,hi", *limits]) + "\n")
    own = {
        "dataset": None,
        "data": str(tmp_path / "office_{client}.csv"),
        "bounds": str(tmp_path / "bounds_{client}.csv"),
    }
    assert run_whole(tmp_path, 3, protocol="vertical-plain", k=2, n_total=60, **own) == [0, 0, 0]
    assert not list(tmp_path.glob("*/labels_*"))
    stored = (tmp_path / "0" / "bounds.csv").read_text()
    assert stored == "feature,lo,hi\nc10,-3.0,12.0\nc11,-3.0,12.0\nc20,-6.0,24.0\n"
    argv = ["--centroids", str(tmp_path / "0" / "centroids.csv"), "--id", "id", "--out", str(tmp_path / "out.csv")]
    assert label([*argv, "--data", str(tmp_path / "office_2.csv"), "--own-columns"]) == 0
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "row,id,label" and [line.split(",")[1] for line in lines[1:]] == [
        f"u{row:02d}" for row in range(60)
    ]
    by_own = [int(line.split(",")[2]) for line in lines[1:]]
    joined = [a + b[b.index(",") :] for a, b in zip(*map(read_lines, sorted(tmp_path.glob("office_*"))), strict=True)]
    (tmp_path / "joined.csv").write_text("\n".join(joined) + "\n")
    assert label([*argv, "--data", str(tmp_path / "joined.csv")]) == 0
    by_all = [int(line.split(",")[2]) for line in read_lines(tmp_path / "out.csv")[1:]]
    for found in (by_own, by_all):
        assert len({(a, b) for a, b in zip(found, groups.tolist(), strict=True)}) == 2, "the groups lie far apart"


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
