"""What Table 3 measures: its rows with the published figures, how often, and in which order.

Source: FastLloyd, §6.1.1, §6.1.3, Table 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastlloyd_papers.engine.cells import Cell
from fastlloyd_papers.engine.generate import Source
from fastlloyd_papers.engine.peer import LAN_DELAY_S as PEER_LAN_DELAY_S
from fastlloyd_papers.engine.peer import Peer

NAME = "fastlloyd-table3"
CLIENTS = 2
EPSILON = 0.1
DELAYS_S = {"lan": 0.00025, "wan": 0.025}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the published table.

    Attributes
    ----------
    title : str
    source : Source
    published_ms, published_half_width_ms : float
        Mean of 100 runs with its 95 % interval, LAN.
    published_bytes : int
        Per round, all parties together.
    mohlloyd_ms, mohlloyd_bytes : float or None
        Time and bytes of an iteration of MohLloyd, secure two-party k-means, as the paper quotes them.
    """

    title: str
    source: Source
    published_ms: float
    published_half_width_ms: float
    published_bytes: int
    mohlloyd_ms: float | None
    mohlloyd_bytes: float | None


def _row(
    shape: tuple[int, int, int],
    published: tuple[float, float, int],
    mohlloyd: tuple[float | None, float | None] = (None, None),
    *,
    dataset: str | None = None,
) -> Row:
    n, k, d = shape
    milliseconds, half_width, size = published
    mohlloyd_ms, mohlloyd_bytes = mohlloyd
    titles = {"lsun": "LSun", "s1": "S1"}
    return Row(
        title="TimeSynth" if dataset is None else titles[dataset],
        source=Source(n=n, k=k, d=d, dataset=dataset),
        published_ms=milliseconds,
        published_half_width_ms=half_width,
        published_bytes=size,
        mohlloyd_ms=mohlloyd_ms,
        mohlloyd_bytes=mohlloyd_bytes,
    )


ROWS = (
    _row((10_000, 2, 2), (3.03, 0.02, 192), (10_500, 2.557e8)),
    _row((10_000, 2, 5), (3.24, 0.01, 384)),
    _row((10_000, 5, 2), (4.32, 0.02, 480), (34_050, 9.746e8)),
    _row((10_000, 5, 5), (4.95, 0.04, 960)),
    _row((100_000, 2, 2), (12.57, 0.02, 192), (105_120, 2.467e9)),
    _row((100_000, 2, 5), (13.17, 0.03, 384)),
    _row((100_000, 5, 2), (22.05, 0.03, 480), (347_250, 9.535e9)),
    _row((100_000, 5, 5), (22.56, 0.02, 960)),
    _row((400, 3, 2), (2.6, 0.04, 288), (1_481, None), dataset="lsun"),
    _row((5_000, 15, 2), (5.81, 0.08, 1440), (49_087, None), dataset="s1"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How often and how long: (runs, rounds per run) for each kind of cell."""

    lan32: tuple[int, int]
    lan64: tuple[int, int]
    wan32: tuple[int, int]
    wan64: tuple[int, int]
    shaped: tuple[int, int]
    peer_runs: int
    peer_repeats: int


FULL = Size(lan32=(100, 30), lan64=(3, 100), wan32=(3, 30), wan64=(2, 30), shaped=(3, 60), peer_runs=3, peer_repeats=20)
QUICK = Size(lan32=(2, 100), lan64=(1, 20), wan32=(1, 10), wan64=(0, 0), shaped=(1, 20), peer_runs=1, peer_repeats=5)


def list_cells(rows: list[Row], size: Size, peer: Peer | None, *, shaped: bool) -> list[Cell]:
    """List what is measured, repetition by repetition, so that a drift of the machine meets all alike.

    Parameters
    ----------
    rows : list of Row
    size : Size
    peer : Peer or None
    shaped : bool
    """
    kinds: list[tuple[int, dict[str, Any]]] = [
        (size.lan32[0], {"kind": "ours", "net": "lan", "delay": DELAYS_S["lan"], "ring": 32, "rounds": size.lan32[1]}),
        (size.lan64[0], {"kind": "ours", "net": "lan", "delay": DELAYS_S["lan"], "ring": 64, "rounds": size.lan64[1]}),
        (size.wan32[0], {"kind": "ours", "net": "wan", "delay": DELAYS_S["wan"], "ring": 32, "rounds": size.wan32[1]}),
        (size.wan64[0], {"kind": "ours", "net": "wan", "delay": DELAYS_S["wan"], "ring": 64, "rounds": size.wan64[1]}),
    ]
    if peer is not None:
        # Beside each other, the same number of times, and at the delay that the published code has.
        beside = {"kind": "ours", "net": "beside", "delay": PEER_LAN_DELAY_S, "ring": 32, "rounds": size.lan32[1]}
        theirs = {"kind": "peer", "commit": peer.commit, "mpi": peer.mpirun.version, "repeats": size.peer_repeats}
        kinds += [(size.peer_runs, beside), (size.peer_runs, theirs)]
    if shaped:
        kinds += [(size.shaped[0], {"kind": "shaped", "net": net, "rounds": size.shaped[1]}) for net in DELAYS_S]
    most = max(runs for runs, _ in kinds)
    return [
        {"name": row.source.label, "run": repetition, **kind}
        for repetition in range(most)
        for row in rows
        for runs, kind in kinds
        if repetition < runs
    ]
