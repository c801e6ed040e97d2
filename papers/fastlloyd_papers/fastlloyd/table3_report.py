"""Puts the measured cells of Table 3 into Markdown, CSV and a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastlloyd.net.cores import cores
from fastlloyd.report.plot import available
from fastlloyd_papers.engine.cells import Cell
from fastlloyd_papers.engine.chart import Bars, bar_chart
from fastlloyd_papers.engine.files import write_files
from fastlloyd_papers.engine.peer import Peer
from fastlloyd_papers.engine.quiet import COLUMNS, entries, marked, ratio, words
from fastlloyd_papers.engine.tables import Summary, csv_table, markdown_table, summarise
from fastlloyd_papers.fastlloyd.table3_design import NAME, Row, Size

_SHAPE = ("data", "N", "k", "d")
MOHLLOYD_WORDS = (
    "## Beside MohLloyd\n\nMohassel, Rosulek and Trieu's secure two-party k-means, an iteration, as the paper quotes "
    "it from theirs: another machine, and exact clusters without privacy of the result."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All that was measured, and where.

    Attributes
    ----------
    rows : list of Row
        Those that could be measured.
    cells, values : list
        What was measured and what came out, in the same order.
    notes : list of str
        What was left out.
    """

    rows: list[Row]
    cells: Sequence[Cell]
    values: Sequence[Any]
    machine: str
    software: str
    peer: Peer | None = None
    notes: list[str] = field(default_factory=list)

    def pick(self, row: Row, **wanted: Any) -> list[Any]:
        """Return the values of all repetitions of one kind of cell."""
        wanted["name"] = row.source.label
        pairs = zip(self.cells, self.values, strict=True)
        return [value for cell, value in pairs if all(cell.get(key) == wish for key, wish in wanted.items())]

    def time(self, row: Row, field_: str = "seconds", **wanted: Any) -> Summary | None:
        """Summarise the milliseconds of a round over the runs; None where nothing was measured."""
        values = self.pick(row, **wanted)
        return summarise([1e3 * value[field_] for value in values]) if values else None

    def shown(self, row: Row, field_: str = "seconds", **wanted: Any) -> str:
        """Write the milliseconds of a round, marked where others used the machine."""
        time = self.time(row, field_, **wanted)
        return "" if time is None else marked(time.text(), self.pick(row, **wanted))

    def has(self, **wanted: Any) -> bool:
        """Whether any such cell was measured."""
        return any(self.pick(row, **wanted) for row in self.rows)


def write_report(figures: Figures, output: Path, size: Size, *, quick: bool) -> str:
    """Write the Markdown, CSV and PNG files, and give the Markdown.

    Parameters
    ----------
    figures : Figures
    output : Path
    size : Size
    quick : bool

    Raises
    ------
    ConfigError
        The folder cannot be written.
    """
    parts = [f"# FastLloyd, Table 3{' (quick)' if quick else ''}", _conditions(figures, size), main_table(figures)]
    parts += [MOHLLOYD_WORDS, mohlloyd_table(figures)]
    if figures.peer is not None:
        parts += [_peer_words(figures.peer, size), peer_table(figures)]
    if figures.has(kind="shaped"):
        parts += [_shaped_words(figures), shaped_table(figures)]
    if figures.notes:
        parts.append("\n".join(f"- {note}" for note in figures.notes))
    picture = _chart(figures) if available() else None
    return write_files(
        output, NAME, parts, table_csv(figures), picture=picture, about="Time of a round, published and measured"
    )


def main_table(figures: Figures) -> str:
    """Write time and bytes beside the published ones."""
    header = [*_SHAPE, "published, ms", "lan, ms", "ours / published", "lan 64-bit, ms", "wan, ms", "wan 64-bit, ms"]
    header += ["published, bytes", "64-bit, bytes", "32-bit, bytes"]
    rows = []
    for row in figures.rows:
        wanted: dict[str, Any] = {"kind": "ours", "net": "lan", "ring": 32}
        lan = figures.time(row, **wanted)
        rows.append(
            [
                *_shape(row),
                f"{row.published_ms:.2f} ± {row.published_half_width_ms:.2f}",
                figures.shown(row, **wanted),
                "" if lan is None else ratio(lan.mean / row.published_ms, 2, figures.pick(row, **wanted)),
                *(
                    figures.shown(row, kind="ours", net=net, ring=ring)
                    for net, ring in (("lan", 64), ("wan", 32), ("wan", 64))
                ),
                str(row.published_bytes),
                *(_bytes(figures.pick(row, kind="ours", net="lan", ring=ring)) for ring in (64, 32)),
            ]
        )
    return markdown_table(header, rows)


def mohlloyd_table(figures: Figures) -> str:
    """Write the published time and bytes of MohLloyd, and how many times ours they are."""
    header = [*_SHAPE, "published, ms", "over our lan", "published, bytes", "over our 32-bit ring"]
    rows = []
    for row in figures.rows:
        lan = figures.time(row, kind="ours", net="lan", ring=32)
        if row.mohlloyd_ms is None or lan is None:
            continue
        size = figures.pick(row, kind="ours", net="lan", ring=32)[0]["bytes_per_round"]
        sizes = (
            ["", ""]
            if row.mohlloyd_bytes is None
            else [f"{row.mohlloyd_bytes:.3e}", f"{row.mohlloyd_bytes / size:.2e}"]
        )
        times = ratio(row.mohlloyd_ms / lan.mean, 0, figures.pick(row, kind="ours", net="lan", ring=32))
        rows.append([*_shape(row), f"{row.mohlloyd_ms:,.0f}", times, *sizes])
    return markdown_table(header, rows)


def peer_table(figures: Figures) -> str:
    """Write the peer's time and ours, taken in turn."""
    header = [*_SHAPE, "theirs lan, ms", "ours lan, ms", "theirs / ours", "theirs wan, ms", "ours wan, ms", "bytes"]
    rows = []
    for row in figures.rows:
        theirs, ours = figures.time(row, "lan_seconds", kind="peer"), figures.time(row, kind="ours", net="beside")
        both = figures.pick(row, kind="peer") + figures.pick(row, kind="ours", net="beside")
        times = [
            figures.shown(row, "lan_seconds", kind="peer"),
            figures.shown(row, kind="ours", net="beside"),
            "" if theirs is None or ours is None else ratio(theirs.mean / ours.mean, 1, both),
            figures.shown(row, "wan_seconds", kind="peer"),
            figures.shown(row, kind="ours", net="wan", ring=32),
        ]
        rows.append([*_shape(row), *times, _bytes(figures.pick(row, kind="peer"))])
    return markdown_table(header, rows)


def shaped_table(figures: Figures) -> str:
    """Write the time over shaped links, and the bytes on payload, link and wire."""
    header = [*_SHAPE, "lan, ms", "wan, ms", "payload, bytes", "link, bytes", "wire, bytes"]
    rows = []
    for row in figures.rows:
        values = figures.pick(row, kind="shaped", net="lan")
        links = [
            summarise([value[f"{layer}_bytes_per_round"] for value in values]).median for layer in ("link", "wire")
        ]
        times = [figures.shown(row, kind="shaped", net=net) for net in ("lan", "wan")]
        rows.append([*_shape(row), *times, _bytes(values), *(f"{count:.0f}" for count in links)])
    return markdown_table(header, rows)


def table_csv(figures: Figures) -> str:
    """Write one line for each row and kind of cell, with the spread over the runs."""
    header = [*_SHAPE, "who", "network", "delay_ms", "ring_bits", "runs", "rounds", "mean_ms", "half_width_ms"]
    header += ["median_ms", "least_ms", "largest_ms", "bytes_per_round", "link_bytes_per_round", "wire_bytes_per_round"]
    header += COLUMNS
    lines: list[list[object]] = []
    for row in figures.rows:
        shape: list[object] = [row.title, row.source.n, row.source.k, row.source.d]
        published = [100, None, row.published_ms, row.published_half_width_ms, None, None, None, row.published_bytes]
        lines.append([*shape, "published", "lan", 0.25, None, *published, None, None, *entries([])])
        if row.mohlloyd_ms is not None:
            mohlloyd = [None, None, row.mohlloyd_ms, None, None, None, None, row.mohlloyd_bytes, None, None]
            lines.append([*shape, "MohLloyd, published", "lan", None, None, *mohlloyd, *entries([])])
        kinds = {_kind(cell): cell for cell in figures.cells}
        for cell in kinds.values():
            lines += [[*shape, *line] for line in _csv_lines(figures, row, cell)]
    return csv_table(header, lines)


def _csv_lines(figures: Figures, row: Row, cell: Cell) -> list[list[object]]:
    """Return the lines of one kind of cell; the peer's code gives two networks at once."""
    values = figures.pick(row, **dict(_kind(cell)))
    if not values:
        return []
    if cell["kind"] == "peer":
        ways = [("theirs", "lan", 0.125, 64, "lan_seconds"), ("theirs", "wan", 25.0, 64, "wan_seconds")]
    elif cell["kind"] == "shaped":
        ways = [("ours", f"{cell['net']}, {values[0]['backend']}", 0.0, 32, "seconds")]
    else:
        net = "lan" if cell["net"] == "beside" else cell["net"]
        ways = [("ours", net, 1e3 * cell["delay"], cell["ring"], "seconds")]
    lines: list[list[object]] = []
    rounds = values[0]["rounds"] if cell["kind"] == "peer" else cell["rounds"]
    for who, net, delay, ring, field_ in ways:
        time = summarise([1e3 * value[field_] for value in values])
        spread = [_rounded(figure) for figure in (time.mean, time.half_width, time.median, time.least, time.largest)]
        sizes = [values[0].get(f"{layer}bytes_per_round") for layer in ("", "link_", "wire_")]
        lines.append([who, net, delay, ring, time.count, rounds, *spread, *sizes, *entries(values)])
    return lines


def _kind(cell: Cell) -> tuple[tuple[str, Any], ...]:
    """Return what repetitions of a cell have in common, apart from the data."""
    return tuple(sorted((key, value) for key, value in cell.items() if key not in ("name", "run")))


def _conditions(figures: Figures, size: Size) -> str:
    """Say how the figures came about."""
    lines = [
        f"{figures.machine}; {figures.software}. {words(figures.values)}",
        "",
        "Time of one round with two clients as the server sees it, mean over runs with its 95 % interval (Student; "
        "from three runs on). TLS 1.3 on all links, MPI over TCP on localhost, each send delayed by 0.25 ms (lan) or "
        "25 ms (wan) as the paper does, so a round waits at least 0.5 or 50 ms. Epsilon 0.1, step radius, folding. "
        f"Lan: {size.lan32[0]} runs of {size.lan32[1]} rounds (64-bit ring: {size.lan64[0]} of {size.lan64[1]}); "
        f"wan: {size.wan32[0]} of {size.wan32[1]} (64-bit ring: {size.wan64[0]} of {size.wan64[1]}). The first round "
        "of each run is left out; the paper's code runs 2 to 7 rounds and counts them all. The noise of more rounds "
        "is larger, the work of a round the same. Published: mean of 100 runs on a MacBook Pro M2 Max; the paper has "
        "no wan figures.",
    ]
    if cores() < 3:
        lines += ["", f"Three ranks on {cores()} core(s): they are oversubscribed."]
    return "\n".join(lines)


def _peer_words(peer: Peer, size: Size) -> str:
    return (
        f"## The paper's own code on the same machine\n\nCommit {peer.commit}, {peer.mpirun.vendor} "
        f"{peer.mpirun.version}, unchanged, with its own transport (shared memory) and its own delays of 0.125 ms and "
        f"25 ms a call; {size.peer_runs} times {size.peer_repeats} of its runs, in turn with ours at 0.125 ms over TCP "
        "with TLS. Its time includes the start of a run, ours does not include the first round. Its bytes are 8 for "
        "each element."
    )


def _shaped_words(figures: Figures) -> str:
    pairs = zip(figures.cells, figures.values, strict=True)
    backend = next(value["backend"] for cell, value in pairs if cell["kind"] == "shaped")
    by = "the kernel (tc netem)" if backend == "netem" else "the user-space emulator of scripts/netem"
    return (
        "## Shaped links\n\nEach rank in its own network namespace, each packet delayed by 0.25 ms (lan) or 25 ms "
        f"(wan) as it leaves its host, by {by}; no injected delay. Bytes per round under lan, all parties together: "
        "payload (ring elements), link (records of TLS and headers), wire (interface counters, with Ethernet, IP, TCP "
        "and MPI headers and acknowledgements): what a run with 900 rounds more sends more, over 900; median of "
        "the runs."
    )


def _chart(figures: Figures) -> bytes:
    """Draw published and measured times beside each other, lan."""
    series = [
        Bars(
            label="published",
            heights=[row.published_ms for row in figures.rows],
            errors=[row.published_half_width_ms for row in figures.rows],
        )
    ]
    wanted: dict[str, dict[str, Any]] = {"ours": {"kind": "ours", "net": "lan", "ring": 32}}
    if figures.peer is not None:
        wanted["paper's code, here"] = {"kind": "peer", "field_": "lan_seconds"}
        wanted["ours beside it (0.125 ms)"] = {"kind": "ours", "net": "beside"}
    if figures.has(kind="shaped"):
        wanted["ours, shaped link"] = {"kind": "shaped", "net": "lan"}
    for label, how in wanted.items():
        times = [figures.time(row, **how) for row in figures.rows]
        series.append(
            Bars(
                label=label,
                heights=[None if time is None else time.mean for time in times],
                errors=[None if time is None else time.half_width for time in times],
            )
        )
    places = [f"{row.title}\n{row.source.n:,}, k={row.source.k}, d={row.source.d}" for row in figures.rows]
    return bar_chart(places, series, y_label="milliseconds per round (lan)")


def _shape(row: Row) -> list[str]:
    return [row.title, f"{row.source.n:,}", str(row.source.k), str(row.source.d)]


def _bytes(values: Sequence[Any]) -> str:
    """Write the bytes of a round, the same in every run."""
    return "" if not values else f"{values[0]['bytes_per_round']:g}"


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else round(figure, 4)
