"""What the tables of SecFC measure: columns with the published figures, methods, repetitions.

Source: SecFC, §5, Tables 1 to 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastlloyd_papers.engine.cells import Cell
from fastlloyd_papers.secfc.data import Source

LLOYD, KFED, SECFC, PROTOCOL = "centralised Lloyd", "k-FED", "SecFC", "protocol"
SEPARATION = "separation"
METHODS = (LLOYD, KFED, SECFC)

Figure = tuple[float, float]
"""Mean accuracy in per cent, and what stands after the +-."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a published table.

    Attributes
    ----------
    source : Source
    local : int
        Paper: k'.
    published : mapping from method to Figure
    """

    source: Source
    local: int
    published: Mapping[str, Figure]

    @property
    def title(self) -> str:
        """What stands above the column."""
        return f"{self.source.title}, k' = {self.local}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One published table.

    Attributes
    ----------
    name : str
        Of the benchmark and its files.
    title : str
    note : str
        What a reader must know about the data.
    columns : tuple of Column
    """

    name: str
    title: str
    note: str
    columns: tuple[Column, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured.

    Attributes
    ----------
    draws, starts : int
        So many times records are drawn, and so many public seeds are tried on each.
    protocol_k, protocol_d : int
        Sources of up to so many clusters and features are also given to the parties themselves, once.
    """

    draws: int
    starts: int
    protocol_k: int
    protocol_d: int = 100


QUICK = Size(draws=2, starts=2, protocol_k=4)
# Ten times the paper's runs. The parties with 16 clusters or 784 features, eight starts each, take many minutes.
FULL = Size(draws=10, starts=10, protocol_k=4)


def columns(source: Source, locals_: tuple[int, ...], lloyd: Figure, secfc: Figure, *kfed: Figure) -> list[Column]:
    """Return the columns of one source; the paper's Lloyd and SecFC have the same figures in all of them."""
    return [
        Column(source=source, local=local, published={LLOYD: lloyd, KFED: own, SECFC: secfc})
        for local, own in zip(locals_, kfed, strict=True)
    ]


def list_cells(table: Table, size: Size, sources: set[str]) -> list[Cell]:
    """List what is measured of the sources that are there, so that each draw of records is made once.

    SecFC sees nothing of k' but the order of the records: its runs go through the k' in turn, and count for all.
    """
    own = [column for column in table.columns if column.source.label in sources]
    cells: list[Cell] = []
    for source in {column.source.label: column.source for column in own}.values():
        locals_ = [column.local for column in own if column.source == source]
        for draw in range(size.draws):
            runs = range(draw * size.starts, (draw + 1) * size.starts)
            common = {"name": source.label, "draw": draw}
            cells += [{**common, "local": locals_[run % len(locals_)], "method": SECFC, "run": run} for run in runs]
            cells += [{**common, "local": local, "method": KFED, "run": run} for local in locals_ for run in runs]
            cells += [{**common, "local": local, "method": SEPARATION, "run": runs.start} for local in locals_]
            if draw == 0 and source.k <= size.protocol_k and source.d <= size.protocol_d:
                cells.append({**common, "local": min(locals_), "method": PROTOCOL, "run": 0})
    return cells


def code_for(clients: int) -> tuple[int, int]:
    """Return l and t for n clients as in §5.1: t = ceil(n / 3), and the largest l that this leaves."""
    threshold = math.ceil(clients / 3)
    return (clients + 1) // 2 - threshold, threshold
