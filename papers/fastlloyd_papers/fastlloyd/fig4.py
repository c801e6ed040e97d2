"""FastLloyd Figure 4: area under NICV of SuLloyd and FastLloyd on Synth, by clusters and features.

Source: FastLloyd, §6.2.3, Figure 4.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from fastlloyd.report.plot import available
from fastlloyd_papers.engine.chart import Panel, line_panels
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.utility.data import SYNTH_CLUSTERS, SYNTH_DIMENSIONS, SYNTH_SEEDS, Source, synth_source
from fastlloyd_papers.utility.design import EPSILONS, FASTLLOYD, PLUS, SULLOYD, Method, list_cells
from fastlloyd_papers.utility.measure import Measured, measure_jobs
from fastlloyd_papers.utility.report import (
    Curves,
    conditions,
    heat_map,
    long_csv,
    mean_ratio,
    ratio_text,
    write_with_charts,
)

NAME = "fastlloyd-fig4"
METHODS = (SULLOYD, FASTLLOYD, PLUS)
PAIRS = ((SULLOYD, FASTLLOYD), (FASTLLOYD, PLUS))
Ratios = dict[tuple[int, int], tuple[float, float | None]]
_QUICK_CLUSTERS, _QUICK_DIMENSIONS, _QUICK_RUNS, _RUNS = (2, 8, 32), (2, 8, 32), 4, 10


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    runs = _QUICK_RUNS if options.quick else _RUNS
    seeds = SYNTH_SEEDS[:1] if options.quick else SYNTH_SEEDS
    clusters = _QUICK_CLUSTERS if options.quick else SYNTH_CLUSTERS
    dimensions = _QUICK_DIMENSIONS if options.quick else SYNTH_DIMENSIONS
    grid = {(k, d): [synth_source(k, d, seed) for seed in seeds] for k in clusters for d in dimensions}
    sources = [source for group in grid.values() for source in group]
    jobs = [(s, cell) for s in sources for cell in list_cells(s, METHODS, EPSILONS, runs)]
    measured, done = measure_jobs(NAME, jobs, options)
    parts = [
        f"# FastLloyd, Figure 4: Synth by clusters and features{' (quick)' if options.quick else ''}",
        conditions(str(runs)) + f" {len(seeds)} set(s) for each k and d.",
        "Published (no numbers printed): fastlloyd is better than sulloyd everywhere, more so with more features and "
        "clusters; up to 88 % less error.",
    ]
    for method in METHODS:
        areas = {place: mean_area(group, method, measured) for place, group in grid.items()}
        parts += [f"## Area, {method.name}", heat_map({place: f"{area:.3g}" for place, area in areas.items()})]
    ratios: dict[str, Ratios] = {}
    for base, method in PAIRS:
        title = f"{method.name} over {base.name}"
        ratios[title] = {place: mean_ratio(group, method, base, measured) for place, group in grid.items()}
        texts = {place: ratio_text(*found) for place, found in ratios[title].items()}
        parts += [f"## {title}", heat_map(texts), "Mean over sets of the ratio of areas, with its interval."]
    charts = {"": _chart(clusters, dimensions, ratios)} if available() else {}
    curves = Curves(sources=sources, methods=METHODS, measured=measured)
    text = write_with_charts(options, NAME, parts, long_csv(curves, ["nicv"]), charts)
    done()
    return text


def mean_area(sources: Sequence[Source], method: Method, measured: Measured) -> float:
    """Return the area under a method's NICV, mean over sets."""
    return statistics.fmean(statistics.fmean(measured.areas(s.name, method.name)) for s in sources)


def _chart(clusters: Sequence[int], dimensions: Sequence[int], ratios: Mapping[str, Ratios]) -> bytes:
    panels = []
    for title, found in ratios.items():
        lines = {f"k = {k}": (dimensions, [found[k, d][0] for d in dimensions]) for k in clusters}
        panels.append(Panel(x_label="features", y_label="area, ratio", lines=lines, title=title, log_y=False))
    return line_panels(panels, columns=2)
