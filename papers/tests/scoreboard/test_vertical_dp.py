"""What the scoreboard makes of vertical DP's claims, on made-up results."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from fastlloyd_papers.scoreboard import vertical_dp
from fastlloyd_papers.scoreboard.board import Line, Results
from fastlloyd_papers.vertical_dp.design import CORRECTED_BASIC, CORRECTED_PAIRS, IND_LAP, LDP_AGG
from fastlloyd_papers.vertical_dp.fig8 import PAPER_BOTH, PAPER_LOCAL, PAPER_WEIGHTS
from fastlloyd_papers.vertical_dp.fig9 import AUTOMATIC

COLUMNS = ("data", "parties", "columns", "method", "epsilon", "run", "loss", "v_score", "weight_error")
Row = Mapping[str, object]


def rows(method: str, losses: Sequence[float], *, epsilon: float = 1.0, **where: object) -> list[Row]:
    """One line for each run."""
    own = {"data": "mixture", "parties": 2, "columns": "4+4", **where}
    return [
        {
            **own,
            "method": method,
            "epsilon": epsilon,
            "run": run,
            "loss": loss,
            "v_score": 1 - loss,
            "weight_error": loss,
        }
        for run, loss in enumerate(losses)
    ]


def lines(folder: Path, figure: int, place: str, entries: Sequence[Row]) -> dict[str, Line]:
    """The lines of one part of the board, by what they are about."""
    with (folder / f"vertical-dp-fig{figure}.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        table.writerows(entries)
    parts = {part.place.partition(":")[0]: part for part in vertical_dp.parts(Results(folder))}
    return {line.what: line for line in parts[place].lines}


@pytest.mark.parametrize(
    ("ours", "told"),
    [
        ((0.1, 0.2), ("in 1 of 1, within the intervals in 1", "holds")),
        # Behind, but by less than chance makes of two runs each; then by more.
        ((0.3, 0.6), ("in 0 of 1, within the intervals in 1", "holds")),
        ((0.899, 0.901), ("in 0 of 1, within the intervals in 0", "does not hold")),
    ],
)
def test_a_method_is_behind_where_the_interval_says_so(
    tmp_path: Path, ours: tuple[float, float], told: tuple[str, str]
) -> None:
    entries = [*rows(CORRECTED_PAIRS.name, ours), *rows(IND_LAP.name, (0.399, 0.401)), *rows(LDP_AGG.name, (0.9, 0.9))]
    found = lines(tmp_path, 3, "Figure 3", entries)
    line = found["mixed Gaussian, S = 2, 2PEst, corrected not behind the baselines"]
    assert (line.ours, line.verdict) == told
    # Of scores more is better.
    scores = lines(tmp_path, 3, "Figure 4", entries)
    assert scores["mixed Gaussian, S = 2, 2PEst, corrected not behind the baselines"].ours == told[0]
    assert "letter, S = 2, ours not behind the baselines" in found


def test_largely_better_is_a_tenth(tmp_path: Path) -> None:
    entries = [
        *rows(CORRECTED_PAIRS.name, (0.8, 0.8), parties=4),
        *rows(CORRECTED_BASIC.name, (1.0, 1.0), parties=4),
        *rows(CORRECTED_PAIRS.name, (0.95, 0.95), parties=4, epsilon=2.0),
        *rows(CORRECTED_BASIC.name, (1.0, 1.0), parties=4, epsilon=2.0),
    ]
    for place in ("Figure 3", "Figure 7"):
        (line,) = (line for line in lines(tmp_path, 3, place, entries).values() if line.published.endswith("better"))
        assert (line.ours, line.verdict) == ("in 1 of 2; 80% to 95%", "holds in part")


def test_splits_are_compared_at_each_budget(tmp_path: Path) -> None:
    entries = [
        *(
            row
            for loss, split in ((0.2, "3+5"), (0.21, "2+6"))
            for row in rows(CORRECTED_PAIRS.name, (loss,), columns=split)
        ),
        *(row for split in ("3+5", "2+6") for row in rows(IND_LAP.name, (0.5,), columns=split)),
        *rows(CORRECTED_PAIRS.name, (0.2,), columns="3+5", epsilon=2.0),
        *rows(CORRECTED_PAIRS.name, (0.4,), columns="2+6", epsilon=2.0),
    ]
    found = lines(tmp_path, 5, "Figure 5", entries)
    line = found["mixed Gaussian, 2PEst, corrected: losses of both splits at most 1.1 times apart"]
    assert (line.ours, line.verdict) == ("in 1 of 2; at most 2.00 times", "holds in part")
    assert found["mixed Gaussian, columns 3+5, 2PEst, corrected"].verdict == "holds"
    assert found["loan, columns 6+10, 2PEst, corrected"].verdict.startswith("no result: Kaggle's")


@pytest.mark.parametrize(
    ("parties", "weights", "local", "verdict"),
    [(2, 0.1, 0.2, "holds"), (2, 0.2, 0.1, "does not hold"), (4, 0.2, 0.21, "holds"), (4, 0.1, 0.2, "does not hold")],
)
def test_which_part_costs(tmp_path: Path, parties: int, weights: float, local: float, verdict: str) -> None:
    entries = [
        row
        for method, loss in ((PAPER_WEIGHTS, weights), (PAPER_LOCAL, local), (PAPER_BOTH, 0.3))
        for row in rows(method.name, (loss,), parties=parties)
    ]
    found = [line for line in lines(tmp_path, 8, "Figure 8", entries).values() if line.ours]
    assert [(line.ours, line.verdict) for line in found] == [(f"{weights}, {local}, 0.3", verdict)]


def test_the_best_number_of_local_clusters_must_grow(tmp_path: Path) -> None:
    def best(low: int, high: int) -> list[Row]:
        return [
            row
            for epsilon, least in ((0.5, low), (5.0, high))
            for name, loss in (
                (AUTOMATIC.name, 0.105),
                *((f"{AUTOMATIC.name}, k' = {count}", 0.1 if count == least else 0.2) for count in (3, 5)),
            )
            for row in rows(name, (loss,), epsilon=epsilon)
        ]

    for counts, verdict in (((3, 5), "holds"), ((5, 5), "does not hold"), ((5, 3), "does not hold")):
        found = lines(tmp_path, 9, "Figure 9", best(*counts))
        line = found["mixed Gaussian, S = 2, 2PEst, corrected: best k' by epsilon"]
        assert (line.ours, line.verdict) == (f"{counts[0]} at 0.5, {counts[1]} at 5", verdict)
    rule = found["mixed Gaussian, S = 2, 2PEst, corrected: the rule's loss at most 1.1 times the least tried"]
    assert (rule.ours, rule.verdict) == ("in 2 of 2; at most 1.05 times", "holds")
