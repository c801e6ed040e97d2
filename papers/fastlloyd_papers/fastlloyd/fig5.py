"""FastLloyd Figure 5: the radius's alpha, radius clipping and how centres are kept inside, at epsilon = 0.1.

Source: FastLloyd, App. B, Figure 5.
"""

from __future__ import annotations

import statistics

from fastlloyd.report.plot import available
from fastlloyd_papers.engine.chart import Panel, line_panels
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import markdown_table
from fastlloyd_papers.utility.data import ablation_sources
from fastlloyd_papers.utility.design import Method, list_cells
from fastlloyd_papers.utility.measure import Measured, measure_jobs
from fastlloyd_papers.utility.report import Curves, conditions, long_csv, write_with_charts

NAME = "fastlloyd-fig5"
EPSILON = 0.1
ALPHAS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
_QUICK_ALPHAS = (0.4, 0.8, 1.2)
_RUNS, _QUICK_RUNS = 20, 3
_DOMAINS = ("fold", "truncate", "none")

# No radius that ever binds, no post-processing.
NAIVE = Method("naive", "fastlloyd", {"alpha": 10.0, "radius": "constant", "clip": False, "domain": "none"})


def variant(alpha: float, radius: str, domain: str, *, clip: bool) -> Method:
    """Name a choice of settings."""
    settings = {"alpha": alpha, "radius": radius, "domain": domain, "clip": clip}
    return Method(f"{radius}, {domain}{', clipped' if clip else ''}, alpha {alpha:g}", "fastlloyd", settings)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    runs = _QUICK_RUNS if options.quick else _RUNS
    alphas = _QUICK_ALPHAS if options.quick else ALPHAS
    sources = ablation_sources()[1::3] if options.quick else ablation_sources()
    rows = [(radius, domain, clip) for radius in ("step", "constant") for domain in _DOMAINS for clip in (True, False)]
    methods = [variant(alpha, r, domain, clip=clip) for r, domain, clip in rows for alpha in alphas]
    jobs = [(s, cell) for s in sources for cell in list_cells(s, [NAIVE, *methods], [EPSILON], runs)]
    measured, done = measure_jobs(NAME, jobs, options)
    names = [source.name for source in sources]
    values = {
        (row, alpha): _relative(names, variant(alpha, *row[:2], clip=row[2]).name, measured)
        for row in rows
        for alpha in alphas
    }
    best = min(values, key=lambda key: values[key])
    lines = [
        [f"{radius}, {domain}", "yes" if clip else "no", *(f"{values[(radius, domain, clip), a]:.3f}" for a in alphas)]
        for radius, domain, clip in rows
    ]
    parts = [
        f"# FastLloyd, Figure 5: alpha and post-processing{' (quick)' if options.quick else ''}",
        conditions(str(runs)) + f" Epsilon {EPSILON:g}; NICV over that without radius and post-processing, mean over "
        f"{len(names)} generated sets (k, d from 2 to 16).",
        "Published (no numbers printed): folding is best, the step radius beats the constant one, clipping helps, and "
        "alpha of about 0.8 is best.",
        markdown_table(["radius, domain", "clipping", *(f"alpha {a:g}" for a in alphas)], lines),
        f"Best here: {best[0][0]}, {best[0][1]}, clipping {'on' if best[0][2] else 'off'}, alpha {best[1]:g} "
        f"({values[best]:.3f}); the paper's choice (step, fold, clipping, alpha 0.8) gives "
        f"{values[('step', 'fold', True), 0.8]:.3f}.",
    ]
    charts = {}
    if available():
        curves = {
            f"{r}, {domain}": (alphas, [values[(r, domain, True), a] for a in alphas])
            for r in ("step", "constant")
            for domain in _DOMAINS
        }
        panel = Panel(x_label="alpha", y_label="NICV / naive", lines=curves, log_x=False, log_y=False)
        charts = {"": line_panels([panel], columns=1)}
    everything = Curves(sources=sources, methods=[NAIVE, *methods], measured=measured, epsilons=[EPSILON])
    text = write_with_charts(options, NAME, parts, long_csv(everything, ["nicv"]), charts)
    done()
    return text


def _relative(names: list[str], method: str, measured: Measured) -> float:
    """Return a method's NICV over the naive one's, mean over sets."""
    return statistics.fmean(
        statistics.fmean(measured.runs(name, method, EPSILON))
        / statistics.fmean(measured.runs(name, NAIVE.name, EPSILON))
        for name in names
    )
