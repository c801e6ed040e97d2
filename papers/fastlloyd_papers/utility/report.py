"""Tables and charts of utility against epsilon, set by set."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastlloyd.report.files import write_atomic
from fastlloyd.report.plot import available
from fastlloyd_papers.engine.chart import Panel, line_panels
from fastlloyd_papers.engine.files import write_files
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import Summary, csv_table, markdown_table, summarise
from fastlloyd_papers.utility.data import Source
from fastlloyd_papers.utility.design import CODE, EPSILONS, Method
from fastlloyd_papers.utility.measure import Measured

_DIGITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """What a benchmark of curves against epsilon has measured."""

    sources: Sequence[Source]
    methods: Sequence[Method]
    measured: Measured
    epsilons: Sequence[float] = EPSILONS


def conditions(runs: str) -> str:
    """Say how figures came about."""
    return (
        f"{describe_machine()}. {runs} runs of each figure, with 95 % intervals of the mean (Student). Data scaled per "
        "feature to [-1, 1]; delta = 1 / (N ln N); epsilon is the total of all rounds; start from the public seeds 0, "
        "1, ...; noise independent of them (numpy's generator, for measurements). Clients' own arithmetic on pooled "
        "records: equal to the parties' bit by bit for the same noise."
    )


def curve_table(curves: Curves, source: Source, metric: str = "nicv") -> str:
    """Write mean and half-width for each method and epsilon, the published code's figures below."""
    rows = [
        [method.name, *(short(curves.measured.summary(source.name, method.name, e, metric)) for e in curves.epsilons)]
        for method in curves.methods
    ]
    if metric == "nicv" and source.name in CODE:
        published = dict(zip(EPSILONS, CODE[source.name], strict=True))
        rows.append(["published code, fastlloyd", *(f"{published[e]:g}" for e in curves.epsilons)])
    return markdown_table(["epsilon", *(f"{e:g}" for e in curves.epsilons)], rows)


def area_table(curves: Curves, baseline: Method) -> str:
    """Write the area under NICV of all methods on all sets, and its ratio to a method's."""
    others = [method for method in curves.methods if method.private and method != baseline]
    header = ["set", *(m.name for m in curves.methods), *(f"{m.name} / {baseline.name}" for m in others)]
    rows = []
    for source in curves.sources:
        areas = {m.name: curves.measured.areas(source.name, m.name, curves.epsilons) for m in curves.methods}
        ratios = [ratio_text(*ratio(areas[m.name], areas[baseline.name])) for m in others]
        rows.append([source.name, *(short(summarise(areas[m.name])) for m in curves.methods), *ratios])
    return markdown_table(header, rows)


def ratio(values: Sequence[float], base: Sequence[float]) -> tuple[float, float | None]:
    """Return the ratio of two means of independent runs and the half-width of its 95 % interval (delta method)."""
    top, bottom = summarise(values), summarise(base)
    quotient = top.mean / bottom.mean
    if top.half_width is None or bottom.half_width is None:
        return quotient, None
    return quotient, quotient * math.hypot(top.half_width / top.mean, bottom.half_width / bottom.mean)


def mean_ratio(
    sources: Sequence[Source], method: Method, base: Method, measured: Measured
) -> tuple[float, float | None]:
    """Return a method's area over another's, mean over sets, and the half-width of its 95 % interval.

    The sets are taken as given: the interval is about runs, not about other sets of the kind.
    """
    found = [ratio(measured.areas(s.name, method.name), measured.areas(s.name, base.name)) for s in sources]
    widths = [width for _, width in found if width is not None]
    half = math.hypot(*widths) / len(found) if len(widths) == len(found) else None
    return statistics.fmean(quotient for quotient, _ in found), half


def ratio_text(quotient: float, half_width: float | None) -> str:
    """Write a ratio with its half-width."""
    return f"{quotient:.3f}" if half_width is None else f"{quotient:.3f} ± {half_width:.3f}"


def short(summary: Summary) -> str:
    """Write mean and half-width with three significant digits of the mean."""
    digits = _DIGITS - 1 - math.floor(math.log10(abs(summary.mean))) if summary.mean else _DIGITS
    return summary.text(max(0, digits))


def heat_map(texts: Mapping[tuple[int, int], str]) -> str:
    """Write a table of texts by k (rows) and d (columns); places that are not there stay empty."""
    dimensions = sorted({d for _, d in texts})
    rows = [[str(k), *(texts.get((k, d), "") for d in dimensions)] for k in sorted({k for k, _ in texts})]
    return markdown_table(["k \\ d", *(str(d) for d in dimensions)], rows)


def long_csv(curves: Curves, metrics: Sequence[str]) -> str:
    """Write mean, half-width and number of runs of each figure."""
    header = ["dataset", "protocol", "epsilon", "metric", "runs", "mean", "half_width"]
    rows: list[list[object]] = []
    for source in curves.sources:
        for method in curves.methods:
            for epsilon in curves.epsilons:
                for metric in metrics:
                    numbers = curves.measured.runs(source.name, method.name, epsilon, metric)
                    found = summarise(numbers) if numbers else None
                    spread = [0, None, None] if found is None else [found.count, found.mean, found.half_width]
                    rows.append([source.name, method.name, epsilon, metric, *spread])
    return csv_table(header, rows)


def curve_chart(curves: Curves, metric: str, label: str) -> bytes:
    """Draw one panel for each set."""
    panels = []
    for source in curves.sources:
        lines, levels = {}, {}
        for method in curves.methods:
            numbers = [curves.measured.runs(source.name, method.name, e, metric) for e in curves.epsilons]
            known = [(e, summarise(found).mean) for e, found in zip(curves.epsilons, numbers, strict=True) if found]
            if method.private:
                lines[method.name] = ([e for e, _ in known], [value for _, value in known])
            elif known:
                levels[method.name] = known[0][1]
        log = metric in ("nicv", "centroid_mse")
        panels.append(Panel(x_label="epsilon", y_label=label, lines=lines, levels=levels, title=source.name, log_y=log))
    columns = next(width for width in (5, 4, 3, 2, 1) if len(panels) % width == 0)
    return line_panels(panels, columns=columns)


def write_with_charts(options: Options, name: str, parts: Sequence[str], table: str, charts: dict[str, bytes]) -> str:
    """Write Markdown, CSV and PNG files, and give the Markdown.

    Parameters
    ----------
    charts : dict from suffix of the file's name to PNG
    """
    pictures = []
    for suffix, picture in charts.items():
        write_atomic(options.output / f"{name}{suffix}.png", picture)
        pictures.append(f"![{name}{suffix}]({name}{suffix}.png)")
    return write_files(options.output, name, [*parts, *pictures], table)


def can_draw(sources: Sequence[Source]) -> bool:
    """Whether there is anything to draw, and something to draw with."""
    return bool(sources) and available()
