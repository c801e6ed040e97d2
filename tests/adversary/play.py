"""The protocols that are attacked: flags, parties and small records for each."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

# Long enough for a busy machine; only silence costs them.
SETUP_S = 20
ROUND_S = 8
_RECORDS = 200
_CENTERS = ((20, 20), (80, 30), (50, 80))


@dataclass(frozen=True)
class Play:
    """One protocol as it is run here.

    Attributes
    ----------
    name : str
    clients : int
    flags : tuple of str
        Of every party.
    data : str
        Template of the records' file, `{client}` being the rank.
    server : tuple of str
        Further flags of rank 0.
    server_has_records : bool
        Rank 0 reads `data` too.
    limit_s : float
        When a run counts as hung: far beyond all deadlines together.
    """

    name: str
    clients: int
    flags: tuple[str, ...]
    data: str
    server: tuple[str, ...] = ()
    server_has_records: bool = False
    limit_s: float = 90.0

    def hurried(self) -> Play:
        """Return the same with a short time for the set-up, where parties are kept from each other."""
        return replace(self, flags=(*self.flags, "--setup-deadline", "6"))

    def words(self, rank: int, stage: Path, output: Path) -> list[str]:
        """Return a party's flags."""
        words = [word.replace("STAGE", str(stage)) for word in self.flags]
        if rank or self.server_has_records:
            words += ["--data", str(stage / self.data)]
        if not rank:
            words += [word.replace("STAGE", str(stage)) for word in self.server]
        return [*words, "--output", str(output)]


def _deadlines(setup: int = SETUP_S, round_: int = ROUND_S) -> tuple[str, ...]:
    return ("--setup-deadline", str(setup), "--deadline", str(round_))


def _horizontal(protocol: str, *flags: str) -> tuple[str, ...]:
    return (
        *("--protocol", protocol, "--k", "3", "--bounds", "0,100", "--n-total", str(_RECORDS)),
        *flags,
        *_deadlines(),
    )


def _vertical(protocol: str, bounds: str, *flags: str, deadlines: tuple[str, ...] = _deadlines()) -> tuple[str, ...]:
    return ("--protocol", protocol, "--bounds", f"STAGE/{bounds}", "--n-total", str(_RECORDS), *flags, *deadlines)


_SMALL_SKETCH = ("--set", "vertical-dp.rows=256", "--set", "vertical-dp.gamma=0.25")
_E1 = ("--epsilon", "1")
_SITES = "site_{client}.csv"
_COLUMNS = "columns_{client}.csv"
PLAYS = {
    play.name: play
    for play in (
        Play("fastlloyd", 3, _horizontal("fastlloyd", *_E1, "--rounds", "3"), _SITES),
        Play("fewer", 3, _horizontal("fastlloyd", *_E1, "--rounds", "2", "--min-clients", "2"), _SITES),
        Play("fastlloyd-plus", 2, _horizontal("fastlloyd-plus", *_E1, "--rounds", "4"), _SITES),
        Play("glloyd", 2, _horizontal("glloyd", *_E1, "--rounds", "2"), _SITES),
        Play("sulloyd", 2, _horizontal("sulloyd", *_E1, "--rounds", "2"), _SITES),
        Play("lloyd", 2, _horizontal("lloyd", "--rounds", "3"), _SITES),
        Play("pairwise", 3, _horizontal("fastlloyd", *_E1, "--rounds", "3", "--masking", "pairwise"), _SITES),
        Play("threshold", 3, _horizontal("fastlloyd", *_E1, "--rounds", "3", "--masking", "threshold"), _SITES),
        Play(
            "feddp-threshold",
            3,
            _horizontal("feddp", *_E1, "--masking", "threshold"),
            _SITES,
            server=("--server-data", "STAGE/site_0.csv"),
        ),
        Play("feddp", 3, _horizontal("feddp", *_E1), _SITES, server=("--server-data", "STAGE/site_0.csv")),
        Play("kfed", 3, _horizontal("kfed", *_E1), _SITES),
        Play("secfc", 4, _horizontal("secfc", "--rounds", "3", "--set", "secfc.reveal_centers=true"), _SITES),
        Play(
            "secfc-membership",
            4,
            _horizontal("secfc", "--rounds", "3", "--set", "secfc.membership=true", "--client-caps", "50,50,50,50"),
            _SITES,
        ),
        Play(
            "vertical-dp",
            2,
            _vertical("vertical-dp", "bounds_{client}.csv", "--k", "3", "--epsilon", "2", *_SMALL_SKETCH),
            _COLUMNS,
        ),
        Play(
            "vertical-dp-intersect",
            2,
            _vertical(
                *("vertical-dp", "bounds_{client}.csv", "--k", "3", "--epsilon", "2"),
                *("--set", "vertical.align=intersect", "--set", "vertical-dp.composition=paper", *_SMALL_SKETCH),
            ),
            _COLUMNS,
        ),
        Play("vertical-plain", 2, _vertical("vertical-plain", "bounds_{client}.csv", "--k", "3"), _COLUMNS),
        Play(
            "vertical-he",
            1,
            _vertical(
                *("vertical-he", "he_bounds_{client}.csv", "--k", "2", "--epsilon", "1", "--rounds", "2"),
                *("--workers", "1"),
                deadlines=_deadlines(30, 20),
            ),
            "he_columns_{client}.csv",
            server_has_records=True,
            limit_s=120.0,
        ),
    )
}


def build(stage: Path) -> None:
    """Write everybody's records and bounds."""
    draw = random.Random(9)

    def near(center: float, spread: float) -> float:
        return min(100.0, max(0.0, draw.gauss(center, spread)))

    stage.mkdir(parents=True, exist_ok=True)
    for rank in range(5):
        centers = [draw.choice(_CENTERS) for _ in range(40)]
        lines = [f"{near(x, 5 + 3 * (rank == 0)):.3f},{near(y, 5):.3f}" for x, y in centers]
        _write(stage / f"site_{rank}.csv", "a,b", lines)
    names = [f"u{i:04d}" for i in range(_RECORDS)]
    for rank, columns in {1: ("age", "income"), 2: ("spend", "visits")}.items():
        rows = draw.sample(names, len(names))
        lines = [f"{name},{draw.uniform(0, 100):.2f},{draw.uniform(0, 100):.2f}" for name in rows]
        _write(stage / f"columns_{rank}.csv", f"id,{','.join(columns)}", lines)
        _write(stage / f"bounds_{rank}.csv", "feature,lo,hi", [f"{column},0,100" for column in columns])
    for rank, column in {0: "x", 1: "y"}.items():
        lines = [f"{name},{near(draw.choice((20, 80)), 5):.2f}" for name in names]
        _write(stage / f"he_columns_{rank}.csv", f"id,{column}", lines)
        _write(stage / f"he_bounds_{rank}.csv", "feature,lo,hi", [f"{column},0,100"])


def _write(path: Path, head: str, lines: list[str]) -> None:
    path.write_text("\n".join([head, *lines]) + "\n")
