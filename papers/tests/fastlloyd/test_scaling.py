"""Points of the scaling figure, rings that hold them, and many clients in memory."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fastlloyd.protocols.fastlloyd.plan import make_plan
from fastlloyd_papers.engine.generate import time_synth
from fastlloyd_papers.engine.memory import run_in_memory
from fastlloyd_papers.fastlloyd import scaling


def test_the_wider_ring_is_taken_where_the_sums_need_it() -> None:
    assert scaling.ring_bits(dict(scaling.BASE), 31) == 32
    assert scaling.ring_bits({**scaling.BASE, "n": 10_000_000}, 31) == 64


def test_each_quantity_varies_alone() -> None:
    cells = scaling.list_cells(scaling.QUICK)
    assert len({cell["name"] for cell in cells}) == len(cells)
    for cell in cells:
        fixed = {key: cell[key] for key in scaling.BASE if key != cell["axis"]}
        assert fixed == {key: value for key, value in scaling.BASE.items() if key != cell["axis"]}
    assert [cell["clients"] for cell in cells if cell["way"] == "memory"] == list(scaling.QUICK.memory)
    assert max(scaling.FULL.memory) == 1_000
    runs = [cell["run"] for cell in scaling.list_cells(scaling.FULL)]
    assert runs == sorted(runs) and max(runs) == scaling.FULL.runs - 1  # repetitions take turns


@pytest.mark.parametrize(("clients", "ring"), [(1, 32), (40, 64)])
def test_in_memory_the_bytes_are_the_protocols(clients: int, ring: int) -> None:
    shape = {**scaling.BASE, "n": 2_000, "clients": clients}
    plan = make_plan(scaling._public(shape, 3, ring), d=5, names=scaling._names(5))
    measured = run_in_memory(time_synth(2_000, 5, 5), plan)
    assert measured["bytes_per_round"] == 2 * clients * 5 * 6 * ring // 8
    assert measured["seconds"] > 0


def test_repetitions_become_one_point_and_one_line(tmp_path: Path) -> None:
    size = scaling.Size(axes={"n": (1_000,), "clients": (2, 4)}, memory=(8,), runs=3, rounds=4, memory_rounds=2)
    cells = scaling.list_cells(size)
    values = [
        {"seconds": 0.001 * (1 + cell["run"]), "bytes_per_round": 480.0, "setup_seconds": 0.5 + cell["run"]}
        for cell in cells
    ]
    points = scaling.gather_points(cells, values)
    assert [(point.axis, point.way, point.place) for point in points] == [
        ("n", "processes", 1_000),
        ("clients", "processes", 2),
        ("clients", "processes", 4),
        ("clients", "memory", 8),
    ]
    assert {(point.milliseconds, point.least, point.largest, point.setup, point.runs) for point in points} == {
        (2.0, 1.0, 3.0, 1.5, 3)
    }
    text = scaling.write_report(points, "conditions", tmp_path, quick=True)
    assert "| processes | 1,000 | 5 | 5 | 2 | 32 | 2.00 | 1.00 to 3.00 | 1.50 | 480 |" in text
    assert "| memory | 100,000 | 5 | 5 | 8 | 32 | 2.00 | 1.00 to 3.00 |  | 480 |" in text
    rows = list(csv.DictReader((tmp_path / "fastlloyd-scaling.csv").read_text().splitlines()))
    assert [row["clients"] for row in rows] == ["2", "2", "4", "8"]
    assert (tmp_path / "fastlloyd-scaling.png").read_bytes().startswith(b"\x89PNG")
