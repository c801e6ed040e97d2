"""Vertical HE Figure 4: seconds of ten iterations against the columns; one party has one, the other the rest.

Three lines: as a run does it, the party with one column holding the key; as in the paper, the rest encrypted; and
columns in halves. Where that needs the pairwise circuit three rounds are run, and ten are computed.

Source: Vertical HE, §5.3, Figure 4 (n = 100,000, k = 5, regWAN500; its curve grows about linearly with the columns).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastlloyd_papers.engine.cells import Cell
from fastlloyd_papers.engine.chart import Panel
from fastlloyd_papers.engine.quiet import COLUMNS, entries
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.vertical_he.common import Sheet, Timer, compute_seconds, tables, traffic_of
from fastlloyd_papers.vertical_he.network import NETWORKS, plain_seconds, tcp_seconds
from fastlloyd_papers.vertical_he.paper import published
from fastlloyd_papers.vertical_he.run import Case, plan_case, synthetic

NAME = "vertical-he-fig4"
NETWORK = "regWAN500"
CLUSTERS = 5
ROUNDS, PAIRWISE_ROUNDS = 10, 3
N, QUICK_N = 100_000, 10_000
OURS, PAPER, HALVES = "1 + rest", "1 + rest, the rest encrypted", "halves"
# Line, columns of both parties.
FULL = (
    *((OURS, 1, d - 1) for d in range(2, 11)),
    *((PAPER, 1, d - 1) for d in (2, 3, 4, 6, 8, 10)),
    *((HALVES, half, half) for half in (2, 5)),
)
QUICK = ((OURS, 1, 1), (OURS, 1, 3), (OURS, 1, 5), (PAPER, 1, 3), (HALVES, 2, 2))


def run(options: Options) -> str:
    """Measure all widths, write Markdown, CSV and PNG, and give the Markdown.

    Raises
    ------
    ConfigError
        A run failed.
    """
    sheet = Sheet(name=NAME, title="Vertical HE, Figure 4: time against columns", options=options)
    n, timer = QUICK_N if options.quick else N, Timer(sheet.workers)
    cells: list[Cell] = [
        {"name": f"{first} + {second} columns, {line}", "line": line, "first": first, "second": second, "n": n}
        for line, first, second in (QUICK if options.quick else FULL)
    ]
    values = sheet.measure(cells, lambda cell: _measure(cell, timer))
    table, csv = _table(cells, values)
    _draw(sheet, cells, values)
    notes = [
        "1 + rest: the party with one column holds the key; the linear scheme applies, and the other columns are never "
        "encrypted. The rest encrypted: the party with one column computes on the others, as in the paper. Pairwise: "
        "of three rounds that were run the last two count, tenfold.",
        f"Seconds on {NETWORK} are computed: rate and delay; with TCP: the rate kept at its loss as well. Jitter is "
        "left out.",
        f"The paper publishes a curve alone, between 150 and about 300 s; for two columns its Table 3 has "
        f"{published(NETWORK, N, CLUSTERS)} s.",
    ]
    return sheet.write([timer.how, table], notes, {"": csv})


def _table(cells: Sequence[Cell], values: Sequence[Any]) -> tuple[str, str]:
    header = (
        "columns", "split", "line", "n", "k", "scheme", "set-up, s", "a round, s", "ten rounds and set-up, s",
        f"on {NETWORK}, s", "with TCP, s", "MB", "processor, s", "largest process, MiB", *COLUMNS,
    )  # fmt: skip
    rows: list[list[object]] = []
    for cell, value in zip(cells, values, strict=True):
        total, traffic, shape = compute_seconds(value, ROUNDS), traffic_of(value, ROUNDS), NETWORKS[NETWORK]
        rows.append([
            cell["first"] + cell["second"], f"{cell['first']} + {cell['second']}", cell["line"], cell["n"], CLUSTERS,
            value["scheme"], value["setup_seconds"], value["round_seconds"], total,
            total + plain_seconds(shape, traffic), total + tcp_seconds(shape, traffic), traffic.total_bytes / 1e6,
            value["cpu_seconds"], value["peak_mib"], *entries([value]),
        ])  # fmt: skip
    return tables(header, rows)


def _draw(sheet: Sheet, cells: Sequence[Cell], values: Sequence[Any]) -> None:
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for cell, value in zip(cells, values, strict=True):
        xs, ys = lines.setdefault(cell["line"], ([], []))
        xs.append(float(cell["first"] + cell["second"]))
        ys.append(compute_seconds(value, ROUNDS) + plain_seconds(NETWORKS[NETWORK], traffic_of(value, ROUNDS)))
    if cells[0]["n"] == N:
        lines["paper (Table 3)"] = ([2.0], [published(NETWORK, N, CLUSTERS)])
    label = f"seconds, ten iterations, {NETWORK}"
    sheet.chart([Panel(x_label="columns", y_label=label, lines=lines, log_x=False)])


def _measure(cell: Cell, timer: Timer) -> Any:
    first, second = cell["first"], cell["second"]
    points, _ = synthetic(cell["n"], CLUSTERS, first + second)
    widths, computing = (first, second), 0 if cell["line"] == PAPER else -1
    pairwise = plan_case(Case(k=CLUSTERS, widths=widths, computing=computing), cell["n"]).scheme == "pairwise"
    rounds = PAIRWISE_ROUNDS if pairwise else ROUNDS
    return timer.measure(Case(k=CLUSTERS, widths=widths, computing=computing, rounds=rounds), points)
