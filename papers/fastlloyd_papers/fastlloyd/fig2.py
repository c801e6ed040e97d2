"""FastLloyd Figure 2: NICV against epsilon on ten real sets, beside the published code's figures.

Source: FastLloyd, §6.2.2, Figure 2.
"""

from __future__ import annotations

from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.utility.data import REAL, real_source
from fastlloyd_papers.utility.design import (
    CODE,
    EPSILONS,
    FASTLLOYD,
    FULL,
    GLLOYD,
    PAPER,
    QUICK,
    SULLOYD,
    Size,
    list_cells,
)
from fastlloyd_papers.utility.measure import measure_jobs, present
from fastlloyd_papers.utility.report import (
    Curves,
    area_table,
    can_draw,
    conditions,
    curve_chart,
    curve_table,
    long_csv,
    write_with_charts,
)

NAME = "fastlloyd-fig2"


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    size = QUICK if options.quick else Size(runs=FULL.runs, large_runs=FULL.runs)
    sources, notes = present([real_source(name) for name in REAL], options.data_dir)
    jobs = [(s, cell) for s in sources for cell in list_cells(s, PAPER, EPSILONS, size.runs_of(s))]
    measured, done = measure_jobs(NAME, jobs, options)
    curves = Curves(sources=sources, methods=PAPER, measured=measured)
    parts = [
        f"# FastLloyd, Figure 2: NICV on real sets{' (quick)' if options.quick else ''}",
        conditions(str(size.runs) + (f" (adult, birch2, mnist: {size.large_runs})" if options.quick else "")),
        "Published code: mean over 100 runs (adult, birch2: 20), with noise that does not follow from the public seed.",
    ]
    for source in sources:
        parts += [f"## {source.name}", curve_table(curves, source)]
    parts += ["## Area under the curve", area_table(curves, FASTLLOYD), "## Against the paper", findings(curves)]
    parts += ["\n".join(f"- {note}" for note in notes)] if notes else []
    charts = {"": curve_chart(curves, "nicv", "NICV")} if can_draw(sources) else {}
    text = write_with_charts(options, NAME, parts, long_csv(curves, ["nicv"]), charts)
    done()
    return text


def findings(curves: Curves) -> str:
    """Say where our figures differ from the published code's, and whether the paper's order holds."""
    lines = []
    for source in curves.sources:
        found = [curves.measured.summary(source.name, "fastlloyd", e) for e in EPSILONS]
        if source.name in CODE:
            pairs = list(zip(EPSILONS, found, CODE[source.name], strict=True))
            ratios = ", ".join(f"{ours.mean / code:.2f}" for _, ours, code in pairs)
            worse = [f"{e:g}" for e, ours, code in pairs if ours.mean - (ours.half_width or 0.0) > code]
            verdict = f"above it beyond the interval at epsilon {', '.join(worse)}" if worse else "nowhere above it"
            lines.append(f"- {source.name}: fastlloyd over the published code {ratios}; {verdict}.")
        lines.append(f"- {source.name}: {_order(curves, source.name)}")
    return "\n".join(lines)


def _order(curves: Curves, name: str) -> str:
    """Say where fastlloyd <= glloyd <= sulloyd does not hold beyond the intervals."""
    broken = []
    for low, high in ((FASTLLOYD, GLLOYD), (GLLOYD, SULLOYD)):
        for epsilon in EPSILONS:
            first = curves.measured.summary(name, low.name, epsilon)
            second = curves.measured.summary(name, high.name, epsilon)
            margin = (first.half_width or 0.0) + (second.half_width or 0.0)
            if first.mean - second.mean > margin:
                broken.append(f"{low.name} above {high.name} at epsilon {epsilon:g}")
    return "; ".join(broken) + "." if broken else "fastlloyd <= glloyd <= sulloyd holds within the intervals."
