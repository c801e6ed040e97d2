"""FedDP-KMeans' tables, figures and claims (Scott, Lampert, Saulpic, 2025)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from fastlloyd_papers.engine.tables import summarise
from fastlloyd_papers.feddp.assumptions import EPSILONS
from fastlloyd_papers.feddp.assumptions import NAME as ASSUMPTIONS
from fastlloyd_papers.feddp.assumptions import PUBLISHED as RADII
from fastlloyd_papers.feddp.data import FILES
from fastlloyd_papers.feddp.design import OURS
from fastlloyd_papers.feddp.kfed import NAME as KFED_STEPS
from fastlloyd_papers.feddp.kfed import PLAIN, SPECTRAL
from fastlloyd_papers.feddp.run import PACKED
from fastlloyd_papers.feddp.tables import NAME as TABLES
from fastlloyd_papers.feddp.tables import PARTS, ROWS, SHARES, STEPS, Row
from fastlloyd_papers.scoreboard.board import Entry, Line, Part, Results, absent, held, number

_NEAR = 1.01
_MIXTURE = "Gaussian mixture, 100 clients"
_CENSUS = (
    ("Figure 1, right", "census-federal"),
    ("Figure 8", "census-nonprofit"),
    ("Figure 9", "census-self"),
)
_TEXTS = (
    ("Figure 2, right", "stackoverflow-github-pdf"),
    ("Figure 12", "stackoverflow-facebook-hibernate"),
    ("Figure 13", "stackoverflow-plotting-cookies"),
    ("Figure 14", "stackoverflow-machine-learning-math"),
)
_LACKING = ("", ", server lacks 1 of 10", ", server lacks 2 of 10", ", server lacks 5 of 10")


def parts(results: Results) -> list[Part]:
    """Return all parts, in the paper's order; appendices stand beside the figures that they continue."""
    return [
        Part("Figure 1, left: one record protected, mixture of 100 clients", "feddp-fig1", _figure1(results)),
        Part("Figure 1, left: k-FED by local step", KFED_STEPS, [_kfed(results, step) for step in (SPECTRAL, PLAIN)]),
        Part(
            "Figures 1, right, 8 and 9: census",
            "feddp-fig1",
            [_of_file(results, "feddp-fig1", *one, "best but at very low budgets") for one in _CENSUS],
        ),
        Part("Table 1: radius of each data set", ASSUMPTIONS, _radius(results)),
        Part("App. G.2: what the theory asks of the data", ASSUMPTIONS, _assumptions(results)),
        Part("Figures 2, left, 10 and 11: all records of a user protected", "feddp-fig2", _figure2(results)),
        Part(
            "Figures 2, right, and 12 to 14: Stack Overflow",
            "feddp-fig2",
            [_of_file(results, "feddp-fig2", *one, "best but in a few cases") for one in _TEXTS],
        ),
        Part("Figures 3 to 6: clusters that the server data lack", "feddp-fig3", _figures3_6(results)),
        *(
            Part(f"Table {number_}: parts of the budget", TABLES, _shares(results, level))
            for number_, level in _LEVELS[:2]
        ),
        *(
            Part(f"Table {number_}: Lloyd steps of the best runs", TABLES, _steps(results, level))
            for number_, level in _LEVELS[2:]
        ),
        Part("Figure 7: choosing k by the elbow", "feddp-fig7", [_figure7(results)]),
    ]


_LEVELS = ((2, "record"), (3, "client"), (4, "record"), (5, "client"))


class Costs:
    """Costs of one data set by method and epsilon: of several numbers of Lloyd steps the least."""

    def __init__(self, entries: Iterable[Entry], data: str) -> None:
        own = [one for one in entries if one["data"] == data]
        self.optimum = min((float(one["optimum"]) for one in own if one["optimum"]), default=math.nan)
        self.methods: dict[str, dict[float, float]] = {}
        for one in own:
            points = self.methods.setdefault(one["method"], {})
            epsilon = float(one["epsilon"] or "nan")
            points[epsilon] = min(points.get(epsilon, math.inf), float(one["cost"]))

    @property
    def ours(self) -> dict[float, float]:
        """Our method's costs by epsilon."""
        return self.methods.get(OURS, {})

    def baselines(self) -> list[str]:
        """Return the paper's private baselines; of sphere packing, ours."""
        return [name for name in self.methods if name in ("ServerKMeans++", "ServerLloyds", PACKED)]

    def ahead(self, others: Sequence[str] | None = None) -> list[bool]:
        """Say for each epsilon whether ours is not above any of the others."""
        chosen = self.baselines() if others is None else others
        return [
            cost <= min(self.methods[name].get(epsilon, math.inf) for name in chosen)
            for epsilon, cost in sorted(self.ours.items())
            if chosen
        ]

    def reached(self) -> float | None:
        """Return the least epsilon at which ours is within a hundredth of the optimum."""
        return min((epsilon for epsilon, cost in self.ours.items() if cost <= _NEAR * self.optimum), default=None)


def _of_file(results: Results, bench: str, place: str, name: str, claim: str) -> Line:
    """Count where ours is best on one of the sets that the user makes."""
    cases = Costs(results.entries(bench), FILES[name]).ahead()
    return held(bench, f"{place}: {FILES[name]}", claim, cases, data=name.partition("-")[0])


def _quantity(results: Results, title: str, name: str, epsilon: float | None = None) -> float | None:
    at = "" if epsilon is None else str(epsilon)
    own = results.pick(ASSUMPTIONS, data=title, quantity=name, epsilon=at)
    return statistics.fmean(float(one["value"]) for one in own) if own else None


def _radius(results: Results) -> list[Line]:
    lines = []
    for title, published in RADII.items():
        ours, what, data = _quantity(results, title, "radius"), title, "census" if "census" in title else ""
        if ours is None:
            lines.append(absent(ASSUMPTIONS, what, f"{published:g}", data))
        else:
            lines.append(Line(what, f"{published:g}", f"{ours:.2f}", f"{number(ours / published)} times"))
    return lines


def _assumptions(results: Results) -> list[Line]:
    """Put both sides of each assumption beside each other; what has no constant in the paper is judged with 1."""
    lines = []
    for title in RADII:
        data = "census" if "census" in title else ""
        told = (
            ("satisfied", "300 at most some 29,000")
            if not data
            else ("2.65 at most some 123,000", "1,020 at most some 620,000")
        )
        sides = (("(1) Delta", "radius", "radius_bound"), ("(2) server points", "server_points", "server_bound"))
        for (name, left, right), published in zip(sides, told, strict=True):
            for epsilon in EPSILONS:
                what = f"{title}: {name}, epsilon {epsilon:g}"
                own, most = _quantity(results, title, left), _quantity(results, title, right, epsilon)
                if own is None or most is None:
                    lines.append(absent(ASSUMPTIONS, what, published, data))
                else:
                    verdict = "holds" if own <= most else "does not hold"
                    lines.append(Line(what, published, f"{number(own)} at most {number(most)}", verdict))
    for name, what, published in (
        ("separation", "largest c with which the mixture is c-separated", "c large enough"),
        ("size_constant", "largest zeta_1 with which the mixture has enough records, epsilon 1", "not looked at"),
    ):
        value = _quantity(results, _MIXTURE, name, 1.0 if name == "size_constant" else None)
        lines.append(
            absent(ASSUMPTIONS, what, published)
            if value is None
            else Line(what, published, number(value), "not judged")
        )
    return lines


def _figure1(results: Results) -> list[Line]:
    costs, bench = Costs(results.entries("feddp-fig1"), _MIXTURE), "feddp-fig1"
    lines = [held(bench, "every budget", "outperforms all private baselines", costs.ahead())]
    what, told = "total epsilon from which the cost is within 1 % of the optimum", "about 0.4"
    reached = costs.reached()
    lines.append(
        absent(bench, what, told)
        if reached is None
        else Line(what, told, number(reached), f"{number(reached / 0.4)} times")
    )
    return lines


def _kfed(results: Results, step: str) -> Line:
    """Judge k-FED with one local step: the paper does not say which it took."""
    what, claim = f"k-FED's cost over the optimum's, local step: {step}", "optimal; the local step is not stated"
    own = [float(one["over_optimum"]) for one in results.pick(KFED_STEPS, local_step=step)]
    if not own:
        return absent(KFED_STEPS, what, claim)
    found = summarise(own)
    verdict = "holds" if found.mean - (found.half_width or 0.0) <= _NEAR else "does not hold"
    return Line(what, claim, f"{found.text(4)} times ({found.count} runs)", verdict)


def _figure2(results: Results) -> list[Line]:
    bench, lines, leads = "feddp-fig2", [], []
    for users in (2000, 1000, 5000):
        costs = Costs(results.entries(bench), f"Gaussian mixture, {users} users")
        cases = costs.ahead(["ServerKMeans++", "ServerLloyds"] if costs.ours else [])
        lines.append(
            held(bench, f"{users:,} users, every budget", "server data alone cannot overcome a poor start", cases)
        )
        wins = [epsilon for epsilon, case in zip(sorted(costs.ours), cases, strict=True) if case]
        leads.append((users, min(wins, default=math.inf)))
    claim = "falls with the number of users"
    what = "least epsilon from which it is ahead, with 1,000, 2,000 and 5,000 users"
    found = [least for _, least in sorted(leads)]
    if math.inf in found:
        return [*lines, absent(bench, what, claim)]
    verdict = "holds" if found == sorted(found, reverse=True) else "does not hold"
    return [*lines, Line(what, claim, ", ".join(map(number, found)), verdict)]


def _figures3_6(results: Results) -> list[Line]:
    bench, lines, worst = "feddp-fig3", [], []
    for lacking in _LACKING:
        costs = Costs(results.entries(bench), _MIXTURE + lacking)
        words = (lacking.removeprefix(", ") or "server has all") + ", every budget"
        lines.append(held(bench, words, "best of the private methods", costs.ahead()))
        if costs.ours:
            worst.append(min(costs.ours.values()) / costs.optimum)
    what, claim = "least cost over the optimum with 0, 1, 2 and 5 clusters missing", "grows modestly"
    if len(worst) < len(_LACKING):
        return [*lines, absent(bench, what, claim)]
    verdict = (
        "holds" if worst == sorted(worst) and worst[-1] < 2 else "holds in part" if worst[-1] < 2 else "does not hold"
    )
    return [*lines, Line(what, claim, ", ".join(f"{factor:.3f}" for factor in worst), verdict)]


def _front(results: Results, row: Row) -> list[Entry]:
    return results.pick(TABLES, data=row.title, on_front=1)


def _shares(results: Results, level: str) -> list[Line]:
    lines = []
    for row in ROWS:
        front = _front(results, row) if row.level == level else []
        for place, part in enumerate(PARTS if row.level == level else ()):
            told, what = row.proportions[place], f"{row.title}: {part}"
            if front:
                ours = statistics.fmean(
                    float(one[SHARES[place]]) / sum(float(one[share]) for share in SHARES) for one in front
                )
                lines.append(_difference(what, told, ours))
            else:
                lines.append(absent(TABLES, what, f"{told:.2f}", _data(row)))
    return lines


def _steps(results: Results, level: str) -> list[Line]:
    lines = []
    for row in ROWS:
        front = _front(results, row) if row.level == level else []
        for place, count in enumerate(STEPS if row.level == level else ()):
            told, what = float(row.steps[place]), f"{row.title}: {count} step{'s' * (count != 1)}"
            if front:
                ours = sum(one["T"] == str(count) for one in front) / len(front)
                lines.append(_difference(what, told, ours))
            else:
                lines.append(absent(TABLES, what, f"{told:.2f}", _data(row)))
    return lines


def _difference(what: str, published: float, ours: float) -> Line:
    return Line(what, f"{published:.2f}", f"{ours:.2f}", f"{ours - published:+.2f}")


def _data(row: Row) -> str:
    return "census" if "Census" in row.title else "stackoverflow" if "Overflow" in row.title else ""


def _figure7(results: Results) -> Line:
    chosen = {(one["epsilon"], one["run"]): one["k_chosen"] for one in results.entries("feddp-fig7") if one["epsilon"]}
    return held(
        "feddp-fig7",
        "k chosen at the elbow, all budgets and runs",
        "k = 10",
        [found == "10" for found in chosen.values()],
    )
