"""FastLloyd Figure 3: area under NICV against the number of features (G2) and of clusters (Synth-K).

Source: FastLloyd, §6.2.3, Figure 3.
"""

from __future__ import annotations

from fastlloyd.report.plot import available
from fastlloyd_papers.engine.chart import Panel, line_panels
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import markdown_table
from fastlloyd_papers.utility.data import (
    G2_DIMENSIONS,
    SYNTH_K_CLUSTERS,
    SYNTH_SEEDS,
    Source,
    g2_source,
    synth_source,
)
from fastlloyd_papers.utility.design import EPSILONS, PAPER, PLUS, SULLOYD, list_cells
from fastlloyd_papers.utility.measure import Measured, measure_jobs
from fastlloyd_papers.utility.report import Curves, conditions, long_csv, mean_ratio, ratio_text, write_with_charts

NAME = "fastlloyd-fig3"
METHODS = (*PAPER, PLUS)
_QUICK_G2, _QUICK_K, _QUICK_RUNS, _RUNS = (2, 8, 32, 128), (2, 8, 32), 4, 20

Groups = dict[int, list[Source]]


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    runs = _QUICK_RUNS if options.quick else _RUNS
    seeds = SYNTH_SEEDS[:1] if options.quick else SYNTH_SEEDS
    g2: Groups = {d: [g2_source(d)] for d in (_QUICK_G2 if options.quick else G2_DIMENSIONS)}
    clusters = _QUICK_K if options.quick else SYNTH_K_CLUSTERS
    synth: Groups = {k: [synth_source(k, 2, seed) for seed in seeds] for k in clusters}
    sources = [source for group in (*g2.values(), *synth.values()) for source in group]
    jobs = [(s, cell) for s in sources for cell in list_cells(s, METHODS, EPSILONS, runs)]
    measured, done = measure_jobs(NAME, jobs, options)
    parts = [
        f"# FastLloyd, Figure 3: more features, more clusters{' (quick)' if options.quick else ''}",
        conditions(str(runs)) + f" Synth-K: {len(seeds)} set(s) for each k. Areas under NICV, over SuLloyd's.",
        "Published (no numbers printed): all methods are close to the baseline for few features; with more, and with "
        "more clusters, fastlloyd is best of the private ones. G2 with d above 2 is made anew by its recipe.",
        "## Features (G2, k = 2)",
        _table("d", g2, measured),
        "## Clusters (Synth-K, d = 2)",
        _table("k", synth, measured),
    ]
    charts = {"": _chart(g2, synth, measured)} if available() else {}
    text = write_with_charts(
        options, NAME, parts, long_csv(Curves(sources=sources, methods=METHODS, measured=measured), ["nicv"]), charts
    )
    done()
    return text


def _table(letter: str, groups: Groups, measured: Measured) -> str:
    rows = [
        [
            str(number),
            *(ratio_text(*mean_ratio(sources, m, SULLOYD, measured)) for m in METHODS if m != SULLOYD),
        ]
        for number, sources in groups.items()
    ]
    return markdown_table([letter, *(m.name for m in METHODS if m != SULLOYD)], rows)


def _chart(g2: Groups, synth: Groups, measured: Measured) -> bytes:
    panels = []
    for label, groups in (("features (G2)", g2), ("clusters (Synth-K)", synth)):
        lines = {
            m.name: (list(groups), [mean_ratio(sources, m, SULLOYD, measured)[0] for sources in groups.values()])
            for m in METHODS
        }
        panels.append(Panel(x_label=label, y_label="area / SuLloyd's", lines=lines, log_y=False))
    return line_panels(panels, columns=2)
