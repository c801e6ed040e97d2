"""SecFC's tables, figures and claims (Li et al., 2022)."""

from __future__ import annotations

from dataclasses import replace

from fastlloyd_papers.scoreboard.board import Entry, Line, Part, Results, absent, held, number
from fastlloyd_papers.secfc.design import KFED, LLOYD, METHODS, SECFC, Table
from fastlloyd_papers.secfc.fig1 import NAME as FIGURE1
from fastlloyd_papers.secfc.report import compare, summary
from fastlloyd_papers.secfc.table1 import TABLE as TABLE1
from fastlloyd_papers.secfc.table2 import TABLE as TABLE2
from fastlloyd_papers.secfc.table3 import TABLE as TABLE3

_ONE_START = "SecFC, one start"
_FIELDS = {LLOYD: (SECFC, "lloyd"), _ONE_START: (SECFC, "one"), SECFC: (SECFC, "accuracy")}
# Per cent that a published accuracy may lie from that of guessing.
_GUESSING = 2.0
_WORST_S = 16.0
_FLAT, _RISING, _LINEAR = "flat", "rising", "linear"


def parts(results: Results) -> list[Part]:
    """Return all parts, in the paper's order."""
    return [
        Part("Table 1: accuracy (%), Gaussian mixture, sigma = 1", TABLE1.name, _table(results, TABLE1)),
        Part("Table 2: accuracy (%), Gaussian mixture, sigma = 20", TABLE2.name, _table(results, TABLE2)),
        Part("Figure 1: time of an iteration", FIGURE1, _figure1(results)),
        Part(
            "Table 3: accuracy (%), rotated MNIST; which pictures the paper took it does not say",
            TABLE3.name,
            _table(results, TABLE3),
        ),
    ]


def _table(results: Results, table: Table) -> list[Line]:
    lines = []
    for column in table.columns:
        for method in (*METHODS, _ONE_START):
            published, what = column.published[SECFC if method == _ONE_START else method], f"{column.title}: {method}"
            told = f"{published[0]:.1f} ± {published[1]:.1f}"
            measured, field = _FIELDS.get(method, (method, "accuracy"))
            # SecFC's runs are those of all k'.
            which = {} if measured == SECFC else {"local_k": column.local}
            own = results.pick(table.name, data=column.source.label, method=measured, **which)
            values = [100.0 * float(one[field]) for one in own]
            if not values:
                lines.append(absent(table.name, what, told, "mnist" if column.source.digit is not None else ""))
                continue
            mean, deviation = summary(values)
            verdict = compare(values, published)
            if method == KFED and abs(published[0] - 100.0 / column.source.k) < _GUESSING:
                verdict += f"; the published one is about that of guessing, 100 / {column.source.k}"
            lines.append(Line(what, told, f"{mean:.1f} ± {deviation:.1f} ({len(values)} runs)", verdict))
    return lines


def _figure1(results: Results) -> list[Line]:
    entries = results.entries(FIGURE1)
    if not entries:
        return [absent(FIGURE1, "an iteration, worst case", "less than 16 s")]
    doubt = results.distrust(FIGURE1, entries)
    worst = max(float(one["client_ms"]) + float(one["server_ms"]) for one in entries) / 1e3
    verdict = "holds" if worst < _WORST_S else "does not hold"
    slower = [float(one["client_ms"]) + float(one["server_ms"]) > float(one["kfed_ms"]) for one in entries]
    behind = held(FIGURE1, "all points", "an iteration takes longer than the whole of k-FED", slower)
    lines = [
        Line("client and server, worst case of all points", "less than 16 s", f"{number(worst)} s", doubt or verdict),
        replace(behind, verdict=doubt or behind.verdict),
    ]
    for axis, column, claim, growth in (
        ("n", "client_ms", "the client's time is independent of n", _FLAT),
        ("n", "server_ms", "the server's time increases slightly with n", _RISING),
        ("d", "server_ms", "the server's time remains almost unchanged", _FLAT),
        ("d", "client_ms", "the client's time increases with d", _RISING),
        ("d", "kfed_ms", "k-FED's time increases with d", _RISING),
        ("m", "client_ms", "the client's time grows almost linearly", _LINEAR),
        ("m", "server_ms", "the server's time grows almost linearly", _LINEAR),
        ("m", "kfed_ms", "k-FED's time grows almost linearly", _LINEAR),
    ):
        own = sorted((one for one in entries if one["axis"] == axis), key=lambda one: int(one[axis]))
        lines.append(_growth(own, axis, column, claim, growth=growth, doubt=doubt))
    return lines


def _growth(own: list[Entry], axis: str, column: str, claim: str, *, growth: str, doubt: str) -> Line:
    """Compare the last time of an axis over the first with the last place over the first."""
    first, last = own[0], own[-1]
    times = float(last[column]) / float(first[column])
    places = int(last[axis]) / int(first[axis])
    # Half of the axis's own growth, or twice, still counts as linear; up to half as much again as none.
    limits = {_FLAT: (0.0, 1.5), _RISING: (1.0, places), _LINEAR: (0.5 * places, 2.0 * places)}
    least, most = limits[growth]
    holds = least < times < most
    what = f"{axis} from {int(first[axis]):,} to {int(last[axis]):,}"
    return Line(
        what,
        claim,
        f"{number(times)} times for {number(places)} times {axis}",
        doubt or ("holds" if holds else "does not hold"),
    )
