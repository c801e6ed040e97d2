"""What the league shows: one table, one figure, and where a protocol stands among the other private methods."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from fastlloyd_papers.baselines.table import OPTIMUM_NAME
from fastlloyd_papers.engine.chart import Panel, line_panels
from fastlloyd_papers.engine.tables import Summary, markdown_table
from fastlloyd_papers.utility.data import Source
from fastlloyd_papers.utility.design import FASTLLOYD, PLUS, Method
from fastlloyd_papers.utility.measure import Measured
from fastlloyd_papers.utility.report import mean_ratio, ratio_text, short

LEAGUE_EPSILONS = (0.1, 0.25, 0.5, 1.0)
_COLUMNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class League:
    """Sets, methods and what was measured; a method may lack figures on a set.

    Attributes
    ----------
    real, unequal : sequence of Source
        Real sets, and generated ones with clusters of unequal sizes.
    methods : sequence of Method
    measured : Measured
    """

    real: Sequence[Source]
    unequal: Sequence[Source]
    methods: Sequence[Method]
    measured: Measured

    def summary(self, source: Source, method: Method, epsilon: float) -> Summary | None:
        """Summarise the NICV of a method on a set, or None where it has no figures."""
        try:
            return self.measured.summary(source.name, method.name, epsilon)
        except KeyError:
            return None

    def excess(self, source: Source, method: Method, epsilon: float) -> float | None:
        """Return mean NICV over that of the best of many starts without privacy, less 1."""
        found = self.summary(source, method, epsilon)
        best = self.summary(source, Method(OPTIMUM_NAME, OPTIMUM_NAME), epsilon)
        return None if found is None or best is None else found.mean / best.mean - 1.0

    def rivals(self) -> list[Method]:
        """Return the private methods other than fastlloyd-plus."""
        return [method for method in self.methods if method.private and method != PLUS]


def league_parts(league: League, *, quick: bool) -> list[str]:
    """Write the report, part by part."""
    return [
        f"# The league: private k-means side by side{' (quick)' if quick else ''}",
        _conditions(),
        "## Where another private method is below fastlloyd-plus",
        above_text(league),
        "## Mean of NICV / kmeans - 1 over the real sets",
        excess_table(league),
        "## Area under NICV over fastlloyd's, and sizes 1:20",
        area_text(league),
        "## All figures",
        league_table(league),
    ]


def _conditions() -> str:
    """Say how the figures came about."""
    return (
        "Mean NICV with 95 % intervals of the mean (Student). Records are scaled per feature to [-1, 1]; delta is "
        "1 / (N ln N) and N public for all; neighbours differ in one record added or removed. The lowest private mean "
        f"of a row is bold. `{OPTIMUM_NAME}` is the best of 100 k-means++ starts without privacy (mnist: of 20), "
        "`lloyd` one start without privacy. eugkm and diffprivlib are pure epsilon-DP; what diffprivlib and google-lsh "
        "state of their privacy is theirs. The unequal sets have two features, 6,000 records and eight clusters whose "
        "sizes rise evenly from 1 to 20."
    )


def above_text(league: League) -> str:
    """Name where the mean of fastlloyd-plus is above another private method's by more than the interval allows.

    The interval is that of the difference: the root of the sum of both squared half-widths.
    """
    rows, compared = [], 0
    for source in (*league.real, *league.unequal):
        for epsilon in LEAGUE_EPSILONS:
            own = league.summary(source, PLUS, epsilon)
            for method in league.rivals() if own is not None else ():
                other = league.summary(source, method, epsilon)
                if own is None or other is None:
                    continue
                compared += 1
                if own.mean - other.mean > math.hypot(own.half_width or 0.0, other.half_width or 0.0):
                    rows.append([source.name, f"{epsilon:g}", short(own), method.name, short(other)])
    if not rows:
        return (
            f"Nowhere, in {compared} comparisons of a set, an epsilon and a method (95 % interval of the difference)."
        )
    found = markdown_table(["set", "epsilon", PLUS.name, "below it", "its NICV"], rows)
    return f"In {len(rows)} of {compared} comparisons (95 % interval of the difference):\n\n{found}"


def excess_table(league: League) -> str:
    """Write for each method and epsilon the mean over real sets; where it lacks a set, over how many."""
    rows = []
    for method in league.methods:
        texts = []
        for epsilon in LEAGUE_EPSILONS:
            found = [league.excess(source, method, epsilon) for source in league.real]
            known = [value for value in found if value is not None]
            lacking = f" ({len(known)} sets)" if len(known) < len(found) else ""
            texts.append(f"{statistics.fmean(known):.3f}{lacking}" if known else "")
        rows.append([method.name, *texts])
    return markdown_table(["method", *(f"epsilon {epsilon:g}" for epsilon in LEAGUE_EPSILONS)], rows)


def area_text(league: League) -> str:
    """Write the area of fastlloyd-plus over fastlloyd's on FastLloyd's ten sets, and its excess on unequal sizes."""
    if PLUS not in league.methods or FASTLLOYD not in league.methods:
        return f"Not measured: this needs {FASTLLOYD.name} and {PLUS.name}."
    lines = []
    ten = [source for source in league.real if source.name != "letter"]
    if ten:
        single = {source.name: mean_ratio([source], PLUS, FASTLLOYD, league.measured) for source in ten}
        worst = max(single, key=lambda name: single[name][0])
        mean = ratio_text(*mean_ratio(ten, PLUS, FASTLLOYD, league.measured))
        lines.append(
            f"- Area of {PLUS.name} over {FASTLLOYD.name}'s (epsilon 0.1 to 1): mean of {len(ten)} sets {mean}, "
            f"largest {ratio_text(*single[worst])} ({worst})."
        )
    excesses = [league.excess(source, PLUS, LEAGUE_EPSILONS[-1]) for source in league.unequal]
    known = [value for value in excesses if value is not None]
    if known:
        lines.append(f"- {PLUS.name} at epsilon 1 on unequal sizes: at most {max(known) + 1.0:.3f} times the optimum.")
    return "\n".join(lines)


def league_table(league: League) -> str:
    """Write every mean with its interval, the lowest private one of a row in bold."""
    rows = []
    for source in (*league.real, *league.unequal):
        for epsilon in LEAGUE_EPSILONS:
            found = [(method, league.summary(source, method, epsilon)) for method in league.methods]
            private = [value.mean for method, value in found if value is not None and method.private]
            least = min(private, default=-math.inf)
            texts = []
            for method, value in found:
                text = "" if value is None else short(value)
                best = value is not None and method.private and value.mean == least
                texts.append(f"**{text}**" if best else text)
            rows.append([source.name, f"{epsilon:g}", *texts])
    return markdown_table(["set", "epsilon", *(method.name for method in league.methods)], rows)


def league_chart(league: League) -> bytes:
    """Draw NICV over the best without privacy against epsilon, one panel for each set.

    A method without figures on a set keeps its colour: its line there is empty.
    """
    panels = []
    for source in (*league.real, *league.unequal):
        lines: dict[str, tuple[list[float], list[float]]] = {}
        for method in league.methods:
            if method.private:
                found = [(epsilon, league.excess(source, method, epsilon)) for epsilon in LEAGUE_EPSILONS]
                known = [(epsilon, value + 1.0) for epsilon, value in found if value is not None]
                lines[method.name] = ([epsilon for epsilon, _ in known], [value for _, value in known])
        panels.append(
            Panel(
                x_label="epsilon",
                y_label="NICV / kmeans",
                lines=lines,
                levels={"kmeans, best of 100 starts": 1.0},
                title=source.name,
            )
        )
    columns = next(width for width in range(_COLUMNS, 0, -1) if len(panels) % width == 0)
    return line_panels(panels, columns=columns)
