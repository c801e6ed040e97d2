"""fastlloyd-plus against fastlloyd: NICV on ten real sets, on Synth by clusters and features, and part by part.

What the variant's constants were tuned on are generated sets of the kind of App. B, so the part on real sets is a
test. `fastlloyd-plus.csv` holds every run on them.

Source: docs/fastlloyd-plus.md.
"""

from __future__ import annotations

import math
import statistics

from fastlloyd.bench.registry import Options
from fastlloyd.bench.tables import csv_table, markdown_table, summarise
from fastlloyd.bench.utility_data import REAL, Source, ablation_sources, real_source, synth_source
from fastlloyd.bench.utility_measure import Measured, measure_jobs, present
from fastlloyd.bench.utility_plan import EPSILONS, FASTLLOYD, FULL, LLOYD, PLUS, QUICK, Method, list_cells
from fastlloyd.bench.utility_report import (
    Curves,
    can_draw,
    conditions,
    curve_chart,
    curve_table,
    ratio,
    ratio_text,
    short,
    write_files,
)

NAME = "fastlloyd-plus"
METHODS = (LLOYD, FASTLLOYD, PLUS)
PARTS = (
    Method("without the survey", PLUS.protocol, {"survey": 0.0}),
    Method("far records dropped", PLUS.protocol, {"far": "drop"}),
    Method("steps and counts as they come", PLUS.protocol, {"shrink": False}),
    Method("no swaps", PLUS.protocol, {"swap": False}),
    Method("radius twice as large", PLUS.protocol, {"reach": 0.9}),
    Method("at most 7 rounds", PLUS.protocol, {"max_rounds": 7}),
    Method("at most 4 rounds", PLUS.protocol, {"max_rounds": 4}),
)
_SYNTH_PLACES = tuple((k, d) for k in (2, 4, 8, 16, 32) for d in (2, 8, 32))
_PART_RUNS, _SYNTH_RUNS, _QUICK_RUNS = 10, 5, 2


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    size = QUICK if options.quick else FULL
    part_runs, synth_runs = (_QUICK_RUNS, _QUICK_RUNS) if options.quick else (_PART_RUNS, _SYNTH_RUNS)
    real, notes = present([real_source(name) for name in REAL], options.data_dir)
    ablation = ablation_sources()[1::3]
    synth = [synth_source(k, d, 0) for k, d in (_SYNTH_PLACES[::2] if options.quick else _SYNTH_PLACES)]
    jobs = [(s, cell) for s in real for cell in list_cells(s, METHODS, EPSILONS, size.runs_of(s))]
    jobs += [(s, c) for s in ablation for c in list_cells(s, [FASTLLOYD, PLUS, *PARTS], EPSILONS, part_runs)]
    jobs += [(s, cell) for s in synth for cell in list_cells(s, [FASTLLOYD, PLUS], EPSILONS, synth_runs)]
    measured, done = measure_jobs(NAME, jobs, options)
    curves = Curves(sources=real, methods=METHODS, measured=measured)
    parts = [
        f"# fastlloyd-plus against fastlloyd{' (quick)' if options.quick else ''}",
        conditions(
            f"{size.runs} (adult, birch2, mnist: {size.large_runs}; generated sets: {part_runs}, Synth by clusters and "
            f"features: {synth_runs})"
        ),
        "The constants of fastlloyd-plus were tuned on generated sets only, and fixed before it was run on a real set.",
        "## Real sets: area under NICV against epsilon",
        real_table(curves) if real else "No real set is there.",
        "## Part by part, on the generated sets of App. B (separation 0.5)",
        part_table(ablation, measured),
        "## Synth by clusters and features: area over fastlloyd's",
        synth_table(synth, measured),
    ]
    for source in real:
        parts += [f"## {source.name}", curve_table(curves, source)]
    parts += ["\n".join(f"- {note}" for note in notes)] if notes else []
    charts = {"": curve_chart(curves, "nicv", "NICV")} if can_draw(real) else {}
    text = write_files(options, NAME, parts, raw_csv(curves), charts)
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


def part_table(sources: tuple[Source, ...], measured: Measured) -> str:
    """Write the area over fastlloyd's with each part left out: mean and largest over the sets."""
    rows = []
    for method in (PLUS, *PARTS):
        found = [_relative(source, method, measured) for source in sources]
        rows.append([method.name, f"{statistics.fmean(found):.3f}", f"{max(found):.3f}"])
    return markdown_table(["variant", "mean over sets", "worst set"], rows)


def synth_table(sources: list[Source], measured: Measured) -> str:
    """Write the area over fastlloyd's by k and d."""
    values = {(source.k, source.d): _relative(source, PLUS, measured) for source in sources}
    dimensions = sorted({d for _, d in values})
    rows = [
        [str(k), *(f"{values[k, d]:.3f}" if (k, d) in values else "" for d in dimensions)]
        for k in sorted({k for k, _ in values})
    ]
    return markdown_table(["k \\ d", *(str(d) for d in dimensions)], rows)


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


def _relative(source: Source, method: Method, measured: Measured) -> float:
    """Give the mean area of a method over fastlloyd's."""
    base = statistics.fmean(measured.areas(source.name, FASTLLOYD.name))
    return statistics.fmean(measured.areas(source.name, method.name)) / base
