"""Makes vertical_he.json: what every party makes of NoisySums, weighed or not, and whether it stops.

Written from docs/vertical-he.md ("After a round", "Weighing") and docs/protocol.md alone, in decimal numbers of 50
digits. It imports nothing of the package.
`python -m tests.vectors.make_vertical_he > tests/vectors/vertical_he.json` writes the file anew.
"""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from typing import Any

from tests.vectors.make_start import Stream, sphere_packing

PRECISION = 50
D = Decimal

# Counts and sums are in records; what travels is these times the unit, in whole numbers.
CASES: tuple[dict[str, Any], ...] = (
    {
        "about": "noise of 2.5 on a count: clusters below sqrt(2) 2.5 = 3.54 keep their centres",
        "unit_bits": 30,
        "count_deviation": "2.5",
        "tolerance": "0",
        "before": [["0.5", "-0.25"], ["-0.5", "0.75"], ["0.125", "0.375"], ["0", "-1"]],
        "counts": ["100.25", "3.5", "3.5625", "-40"],
        "sums": [["25.5", "-50.75"], ["1", "1"], ["-2.25", "3"], ["12", "-7"]],
    },
    {
        "about": "less noise than one record: clusters below 1 keep their centres, others divide",
        "unit_bits": 24,
        "count_deviation": "0.25",
        "tolerance": "0",
        "before": [["0.75"], ["-0.75"], ["0.25"], ["1"], ["0"]],
        "counts": ["1", "0.9375", "0.5", "7", "3"],
        "sums": [["-0.5"], ["-0.5"], ["0.25"], ["7.5"], ["-3.25"]],
    },
    {
        "about": "every coordinate moves by at most the tolerance: stop",
        "unit_bits": 20,
        "count_deviation": "1",
        "tolerance": "0.03125",
        "before": [["0.25", "0.5"], ["-0.5", "0"]],
        "counts": ["16", "32"],
        "sums": [["4.5", "7.5"], ["-15", "1"]],
    },
    {
        "about": "one coordinate moves by twice the tolerance: go on",
        "unit_bits": 20,
        "count_deviation": "1",
        "tolerance": "0.03125",
        "before": [["0.25", "0.5"], ["-0.5", "0"]],
        "counts": ["16", "32"],
        "sums": [["4", "8"], ["-16", "2"]],
    },
    {
        "about": "nothing moves, but a tolerance of 0 never stops",
        "unit_bits": 20,
        "count_deviation": "1",
        "tolerance": "0",
        "before": [["0.25"], ["-0.5"]],
        "counts": ["16", "32"],
        "sums": [["4"], ["-16"]],
    },
)


def vector(case: dict[str, Any]) -> dict[str, Any]:
    unit, tolerance = D(2) ** case["unit_bits"], D(case["tolerance"])
    before = [[D(x) for x in row] for row in case["before"]]
    integers = []
    for count, sums in zip(case["counts"], case["sums"], strict=True):
        integers += [int(D(x) * unit) for x in (count, *sums)]
    width = 1 + len(before[0])
    counts, after = [], []
    least = max(D(1), D(2).sqrt() * D(case["count_deviation"]))
    for j, centre in enumerate(before):
        count, *sums = (D(x) / unit for x in integers[j * width : (j + 1) * width])
        counts.append(count)
        after.append([min(max(s / count, D(-1)), D(1)) for s in sums] if count >= least else centre)
    farthest = max(abs(x - y) for a, b in zip(before, after, strict=True) for x, y in zip(a, b, strict=True))
    return {
        **{key: case[key] for key in ("about", "unit_bits", "count_deviation", "tolerance", "before")},
        "noisy_sums": b"".join(x.to_bytes(8, "little", signed=True) for x in integers).hex(),
        "counts": [str(x) for x in counts],
        "after": [[str(x) for x in row] for row in after],
        "stops": tolerance > 0 and farthest <= tolerance,
    }


# Runs that weigh: what all records would give, and noise, both invented here.
WEIGHED: tuple[dict[str, Any], ...] = (
    {
        "about": "two clusters: no swaps",
        "k": 2,
        "d": 3,
        "n": 500,
        "rounds": 3,
        "deviations": ["12", "20"],
        "held": [300, 200],
    },
    {
        "about": "an empty cluster moves",
        "k": 3,
        "d": 2,
        "n": 900,
        "rounds": 3,
        "deviations": ["6", "9"],
        "held": [0, 800, 100],
    },
    {
        "about": "hardly any noise",
        "k": 5,
        "d": 1,
        "n": 10_000,
        "rounds": 4,
        "deviations": ["0.5", "0.25"],
        "held": [10, 4000, 1990, 3000, 1000],
    },
    {
        "about": "hardly any records",
        "k": 4,
        "d": 2,
        "n": 40,
        "rounds": 2,
        "deviations": ["30", "40"],
        "held": [10, 10, 10, 10],
    },
    {"about": "one cluster", "k": 1, "d": 2, "n": 200, "rounds": 2, "deviations": ["5", "7"], "held": [200]},
    {
        "about": "steps in two of three columns, and swaps",
        "k": 3,
        "d": 3,
        "n": 900,
        "rounds": 3,
        "deviations": ["6", "9"],
        "held": [0, 800, 100],
        "own": 2,
        "radius": "0.25",
        "step_deviation": "8",
    },
)
UNIT_BITS, SEED = 30, 7
VARIANCE = D("0.15")


class Run:
    """What the parties know."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.k, self.d, self.n, self.rounds = case["k"], case["d"], D(case["n"]), case["rounds"]
        self.cell = D(self.k) ** (D(-1) / self.d)
        self.s_count, s_sum = (D(2).sqrt() * D(x) for x in case["deviations"])
        self.own, self.radius = case.get("own", 0), D(case.get("radius", "0"))
        s_step = D(2).sqrt() * D(case.get("step_deviation", "0"))
        self.noise = [s_step] * self.own + [s_sum] * (self.d - self.own)
        packed = sphere_packing(self.k, self.d, SEED)
        self.centers = [[D("0.45") * x / 2**20 for x in row] for row in packed]
        self.counts = [self.n / self.k] * self.k
        self.count_variance = [(D("0.8") * self.n / self.k) ** 2] * self.k
        self.variance = [[D("0.1")] * self.d for _ in range(self.k)]

    def advance(self, table: list[list[Decimal]], t: int) -> dict[str, Any]:
        share = self.n / self.k
        steps, doubts = [], []
        area = VARIANCE * self.cell**2 if t else D(0)
        for j, (count, *sums) in enumerate(table):
            wide = self.count_variance[j] + ((share / 2) ** 2 if t else 0)
            gain = wide / (wide + self.s_count**2)
            self.counts[j] += gain * (count - self.counts[j])
            self.count_variance[j] = wide * (1 - gain)
            divisor = max(self.counts[j], share / 5)
            square = sum(x * x for x in self.centers[j]) / self.d
            step, doubt, kept = [], [], []
            for a in range(self.d):
                if a < self.own:
                    step.append(sums[a] * self.radius / divisor)
                    doubt.append((self.noise[a] * self.radius / divisor) ** 2)
                    uncertain = self.variance[j][a] + area * D("0.6") ** t
                else:
                    step.append(sums[a] / divisor - self.centers[j][a])
                    doubt.append((self.noise[a] ** 2 + square * self.count_variance[j]) / divisor**2)
                    uncertain = self.variance[j][a] + area * D("0.3") / 2**t
                part = uncertain / (uncertain + doubt[a])
                kept.append((1 - part) * step[a])
                self.variance[j][a] = uncertain * (1 - part)
            self.centers[j] = cut(c + x - y for c, x, y in zip(self.centers[j], step, kept, strict=True))
            steps.append(step)
            doubts.append(doubt)
        if t < self.rounds - 1 and self.k > 2:
            self.swaps(t)
        return {"steps": steps, "step_variance": doubts}

    def swaps(self, t: int) -> None:
        stream, others = Stream(SEED, f"vertical-he swaps of round {t}"), range(self.k)
        for _ in range(min(max(1, self.k // 5), 32)):
            held = [max(c, D(0)) for c in self.counts]
            apart = [[sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) for y in self.centers] for x in self.centers]
            near = [min(apart[i][j] for j in others if j != i) for i in others]
            pairs = [(i, j) for i in others for j in others if i != j]
            loss = {(i, j): held[i] * held[j] / max(held[i] + held[j], D("1e-9")) * apart[i][j] for i, j in pairs}
            stays, leaves = min(pairs, key=lambda pair: loss[pair])
            cost = loss[stays, leaves]
            if held[leaves] > held[stays]:
                stays, leaves = leaves, stays
            all_held, spread = max(sum(held), D("1e-9")), VARIANCE * self.d
            mean = [sum(h * c[a] for h, c in zip(held, self.centers, strict=True)) / all_held for a in range(self.d)]
            between = sum(
                h / all_held * sum((x - m) ** 2 for x, m in zip(c, mean, strict=True))
                for h, c in zip(held, self.centers, strict=True)
            )
            within = max(spread - between, D("0.3") * self.cell**2 * spread)
            gains = [h * min(x / 10, within / 2) for h, x in zip(held, near, strict=True)]
            gains[leaves] = D(-1)
            split = gains.index(max(gains))
            if (split == stays and cost > 0) or cost >= gains[split]:
                return
            away = D("0.35") * near[split].sqrt()
            both = held[stays] + held[leaves]
            if both > 0:
                pair = zip(self.centers[stays], self.centers[leaves], strict=True)
                self.centers[stays] = [(held[stays] * a + held[leaves] * b) / both for a, b in pair]
            self.counts[stays] = both
            self.count_variance[stays] += self.count_variance[leaves]
            direction = [x * VARIANCE.sqrt() for x in stream.integers(-(2**20), 2**20, self.d)]
            length = max(sum(x * x for x in direction), D("1e-12")).sqrt()
            middle = self.centers[split]
            for place, sign in ((split, 1), (leaves, -1)):
                self.centers[place] = cut(m + sign * x * away / length for m, x in zip(middle, direction, strict=True))
            self.counts[split] = self.counts[leaves] = self.counts[split] / 2
            self.count_variance[split] += self.counts[split] ** 2 / 4
            self.variance[split] = [x + away * away / self.d for x in self.variance[split]]
            self.count_variance[leaves] = self.count_variance[split]
            self.variance[leaves] = list(self.variance[split])


def cut(row: Any) -> list[Decimal]:
    return [min(max(x, D(-1)), D(1)) for x in row]


def invented(name: str, count: int) -> list[Decimal]:
    """Numbers from -1 to 1."""
    return [D(x) / 2**20 for x in Stream(SEED, f"test of vertical-he {name}").integers(-(2**20), 2**20, count)]


def weighed(case: dict[str, Any]) -> dict[str, Any]:
    run = Run(case)
    k, d = run.k, run.d
    found = {**case, "unit_bits": UNIT_BITS, "seed": SEED, "cell": shown(run.cell), "played": []}
    found["start"] = [[shown(x) for x in row] for row in run.centers]
    means = invented(f"means {k} {d}", k * d)
    for t in range(run.rounds):
        noise = invented(f"noise {k} {d} {t}", k * (d + 1))
        table = []
        for j, held in enumerate(case["held"]):
            row = [D(held), *(held * D("0.8") * x for x in means[j * d : (j + 1) * d])]
            table.append([x + 2 * ([run.s_count, *run.noise][h]) * noise[j * (d + 1) + h] for h, x in enumerate(row)])
        integers = [int(x * 2**UNIT_BITS) for row in table for x in row]
        told = [[D(x) / 2**UNIT_BITS for x in integers[j * (d + 1) : (j + 1) * (d + 1)]] for j in range(k)]
        more = run.advance(told, t)
        rows = {"centers": run.centers, "variance": run.variance, **more}
        flat = {"counts": run.counts, "count_variance": run.count_variance}
        found["played"].append(
            {
                "noisy_sums": b"".join(x.to_bytes(8, "little", signed=True) for x in integers).hex(),
                **{name: [[shown(x) for x in row] for row in table] for name, table in rows.items()},
                **{name: [shown(x) for x in row] for name, row in flat.items()},
            }
        )
    return found


def shown(value: Decimal) -> str:
    """Return 20 digits: more than a float64 holds."""
    return f"{value:.20g}"


def vectors() -> dict[str, list[dict[str, Any]]]:
    with localcontext(prec=PRECISION):
        return {"plain": [vector(case) for case in CASES], "weighed": [weighed(case) for case in WEIGHED]}


if __name__ == "__main__":
    print(json.dumps(vectors(), indent=1))
