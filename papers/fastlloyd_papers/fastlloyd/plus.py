"""fastlloyd-plus against fastlloyd: NICV on ten real sets; `fastlloyd-plus.csv` holds every run.

What the variant's constants were tuned on are generated sets, so this is a test. For generated sets, and the variant
part by part, see `plus_generated`.

Source: docs/fastlloyd-plus.md.
"""

from __future__ import annotations

import math
import statistics

from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import csv_table, markdown_table, summarise
from fastlloyd_papers.utility.data import REAL, real_source
from fastlloyd_papers.utility.design import EPSILONS, FASTLLOYD, FULL, LLOYD, PLUS, QUICK, list_cells
from fastlloyd_papers.utility.measure import measure_jobs, present
from fastlloyd_papers.utility.report import (
    Curves,
    can_draw,
    conditions,
    curve_chart,
    curve_table,
    ratio,
    ratio_text,
    short,
    write_with_charts,
)

NAME = "fastlloyd-plus"
METHODS = (LLOYD, FASTLLOYD, PLUS)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    size = QUICK if options.quick else FULL
    real, notes = present([real_source(name) for name in REAL], options.data_dir)
    jobs = [(s, cell) for s in real for cell in list_cells(s, METHODS, EPSILONS, size.runs_of(s))]
    measured, done = measure_jobs(NAME, jobs, options)
    curves = Curves(sources=real, methods=METHODS, measured=measured)
    parts = [
        f"# fastlloyd-plus against fastlloyd{' (quick)' if options.quick else ''}",
        conditions(f"{size.runs} (adult, birch2, mnist: {size.large_runs})"),
        "The constants were tuned on generated sets; docs/fastlloyd-plus.md says what came after real ones.",
        "## Area under NICV against epsilon",
        real_table(curves) if real else "No real set is there.",
    ]
    for source in real:
        parts += [f"## {source.name}", curve_table(curves, source)]
    parts += ["\n".join(f"- {note}" for note in notes)] if notes else []
    charts = {"": curve_chart(curves, "nicv", "NICV")} if can_draw(real) else {}
    text = write_with_charts(options, NAME, parts, raw_csv(curves), charts)
    done()
    return text


def real_table(curves: Curves) -> str:
    """Write areas and their ratio set by set, and the mean ratio."""
    rows, quotients, widths = [], [], []
    for source in curves.sources:
        areas = {m.name: curves.measured.areas(source.name, m.name) for m in METHODS}
        quotient, width = ratio(areas[PLUS.name], areas[FASTLLOYD.name])
        quotients.append(quotient)
        widths.append(width or 0.0)
        rows.append([source.name, *(short(summarise(areas[m.name])) for m in METHODS), ratio_text(quotient, width)])
    half = math.sqrt(sum(width**2 for width in widths)) / len(widths)
    rows.append(["mean", "", "", "", ratio_text(statistics.fmean(quotients), half)])
    return markdown_table(["set", *(m.name for m in METHODS), "plus / fastlloyd"], rows)


def raw_csv(curves: Curves) -> str:
    """Write every run of the two private protocols on the real sets."""
    rows: list[list[object]] = [
        [source.name, method.name, epsilon, number, value]
        for source in curves.sources
        for method in (FASTLLOYD, PLUS)
        for epsilon in EPSILONS
        for number, value in enumerate(curves.measured.runs(source.name, method.name, epsilon))
    ]
    return csv_table(["dataset", "protocol", "epsilon", "run", "nicv"], rows)
