"""fastlloyd-plus against fastlloyd on generated sets: part by part, and by clusters and features.

The sets of App. B are of the kind that the variant's constants were tuned on (16 of the 48 were used), the others are
not.

Source: docs/fastlloyd-plus.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastlloyd.report.plot import available
from fastlloyd_papers.engine.chart import Panel, line_panels
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import markdown_table
from fastlloyd_papers.utility.data import Source, ablation_sources, fresh_sources, synth_source
from fastlloyd_papers.utility.design import EPSILONS, FASTLLOYD, PLUS, Method, list_cells
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

NAME = "fastlloyd-plus-generated"
PARTS = (
    Method("without the survey", PLUS.protocol, {"survey": 0.0}),
    Method("far records dropped", PLUS.protocol, {"far": "drop"}),
    Method("steps and counts as they come", PLUS.protocol, {"shrink": False}),
    Method("no swaps", PLUS.protocol, {"swap": False}),
    Method("radius twice as large", PLUS.protocol, {"reach": 0.9}),
    Method("at most 7 rounds", PLUS.protocol, {"max_rounds": 7}),
    Method("at most 4 rounds", PLUS.protocol, {"max_rounds": 4}),
)
VARIANTS = (PLUS, *PARTS)
_SYNTH_PLACES = tuple((k, d) for k in (2, 4, 8, 16, 32) for d in (2, 8, 32))
_RUNS, _QUICK_RUNS = 10, 3


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    runs = _QUICK_RUNS if options.quick else _RUNS
    known, fresh = ablation_sources()[1::3], fresh_sources()
    synth = [synth_source(k, d, 0) for k, d in _SYNTH_PLACES]
    if options.quick:
        known, fresh, synth = known[::4], fresh[::5], synth[::2]
    jobs = [(s, c) for s in (*known, *fresh) for c in list_cells(s, [FASTLLOYD, *VARIANTS], EPSILONS, runs)]
    jobs += [(s, cell) for s in synth for cell in list_cells(s, [FASTLLOYD, PLUS], EPSILONS, runs)]
    measured, done = measure_jobs(NAME, jobs, options)
    parts = [
        f"# fastlloyd-plus on generated sets{' (quick)' if options.quick else ''}",
        conditions(str(runs))
        + " Areas under NICV, over fastlloyd's; intervals are about runs, with the sets as given.",
        f"## Part by part, on {len(fresh)} sets that nothing was tuned on",
        "k and d of 3, 6, 12, 24; 400 to 20,000 records; separation 0.15, 0.35, 0.6; every second one with sizes "
        "1:2:..:k, 1 % outliers and skewed features.",
        part_table(fresh, measured),
        f"## Part by part, on {len(known)} sets of App. B (separation 0.5), the kind that was tuned on",
        part_table(known, measured),
        "## Set by set, those that nothing was tuned on",
        set_table(fresh, measured),
        "## Synth by clusters and features",
        heat_map({(s.k, s.d): ratio_text(*mean_ratio([s], PLUS, FASTLLOYD, measured)) for s in synth}),
    ]
    whole = Curves(sources=(*fresh, *known), methods=(FASTLLOYD, *VARIANTS), measured=measured)
    places = Curves(sources=synth, methods=(FASTLLOYD, PLUS), measured=measured)
    table = long_csv(whole, ["nicv"]) + long_csv(places, ["nicv"]).partition("\n")[2]
    charts = {"": _chart(known, fresh, measured)} if available() else {}
    text = write_with_charts(options, NAME, parts, table, charts)
    done()
    return text


def part_table(sources: Sequence[Source], measured: Measured) -> str:
    """Write the area over fastlloyd's with each part left out or changed: mean over the sets, and the worst one."""
    rows = []
    for method in VARIANTS:
        single = [mean_ratio([source], method, FASTLLOYD, measured) for source in sources]
        mean = mean_ratio(sources, method, FASTLLOYD, measured)
        rows.append([method.name, ratio_text(*mean), ratio_text(*max(single, key=lambda found: found[0]))])
    return markdown_table(["variant", "mean over sets", "worst set"], rows)


def set_table(sources: Sequence[Source], measured: Measured) -> str:
    """Write the area of the variant as it is over fastlloyd's, set by set."""
    rows = [[source.name, ratio_text(*mean_ratio([source], PLUS, FASTLLOYD, measured))] for source in sources]
    return markdown_table(["set", "plus / fastlloyd"], rows)


def _chart(known: Sequence[Source], fresh: Sequence[Source], measured: Measured) -> bytes:
    """Draw NICV against epsilon over fastlloyd's, mean over sets, for each variant but that far above the others."""
    drawn = [method for method in VARIANTS if method.settings.get("far") != "drop"]
    panels = []
    for title, sources in (("not tuned on", fresh), ("App. B", known)):
        lines = {m.name: (EPSILONS, [_at(sources, m, epsilon, measured) for epsilon in EPSILONS]) for m in drawn}
        panels.append(Panel(x_label="epsilon", y_label="NICV / fastlloyd's", lines=lines, title=title, log_y=False))
    return line_panels(panels, columns=2)


def _at(sources: Sequence[Source], method: Method, epsilon: float, measured: Measured) -> float:
    found = [
        measured.summary(s.name, method.name, epsilon).mean / measured.summary(s.name, FASTLLOYD.name, epsilon).mean
        for s in sources
    ]
    return sum(found) / len(found)
