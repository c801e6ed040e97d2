"""FastLloyd Figures 6 to 8: silhouette, Davies-Bouldin and centroid error against epsilon on ten real sets.

Source: FastLloyd, App. D.
"""

from __future__ import annotations

from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import markdown_table, summarise
from fastlloyd_papers.utility.data import REAL, Source, real_source
from fastlloyd_papers.utility.design import EPSILONS, FULL, PAPER, PLUS, QUICK, list_cells
from fastlloyd_papers.utility.measure import measure_jobs, present
from fastlloyd_papers.utility.report import (
    Curves,
    can_draw,
    conditions,
    curve_chart,
    long_csv,
    short,
    write_with_charts,
)

NAME = "fastlloyd-fig6-8"
METHODS = (*PAPER, PLUS)
METRICS = {
    "silhouette": "Figure 6: silhouette (higher is better)",
    "davies_bouldin": "Figure 7: Davies-Bouldin index (lower is better)",
    "centroid_mse": "Figure 8: mean squared distance to the matched centres of KMeans (n_init = 10)",
}


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    size = QUICK if options.quick else FULL
    epsilons = EPSILONS[::2] if options.quick else EPSILONS
    sources, notes = present([real_source(name) for name in REAL], options.data_dir)
    jobs = [(s, cell) for s in sources for cell in list_cells(s, METHODS, epsilons, size.runs_of(s), everything=True)]
    measured, done = measure_jobs(NAME, jobs, options)
    curves = Curves(sources=sources, methods=METHODS, measured=measured, epsilons=epsilons)
    parts = [
        f"# FastLloyd, Figures 6 to 8: other metrics on real sets{' (quick)' if options.quick else ''}",
        conditions(f"{size.runs} (adult, birch2, mnist: {size.large_runs})"),
        "The silhouette is taken on a fixed public sample of at most 2,000 rows; it is -1 for a single cluster, for "
        "which the Davies-Bouldin index is infinite and left out (App. D).",
    ]
    for metric, title in METRICS.items():
        parts.append(f"## {title}")
        for source in sources:
            parts += [f"### {source.name}", _table(curves, source, metric)]
    parts += ["\n".join(f"- {note}" for note in notes)] if notes else []
    charts = {}
    if can_draw(sources):
        charts = {f"-{metric.replace('_', '-')}": curve_chart(curves, metric, metric) for metric in METRICS}
    text = write_with_charts(options, NAME, parts, long_csv(curves, ["nicv", *METRICS]), charts)
    done()
    return text


def _table(curves: Curves, source: Source, metric: str) -> str:
    """Write a metric; a dash where no run has a value."""
    rows = []
    for method in curves.methods:
        numbers = [curves.measured.runs(source.name, method.name, e, metric) for e in curves.epsilons]
        rows.append([method.name, *(short(summarise(found)) if found else "-" for found in numbers)])
    return markdown_table(["epsilon", *(f"{e:g}" for e in curves.epsilons)], rows)
