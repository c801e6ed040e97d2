"""Makes vertical_he.json: what every party makes of one round's NoisySums, and whether it stops.

Written from docs/vertical-he.md ("After a round") and docs/protocol.md alone, in decimal numbers of 50 digits.
It imports nothing of the package.
`python -m tests.vectors.make_vertical_he > tests/vectors/vertical_he.json` writes the file anew.
"""

from __future__ import annotations

import json
from decimal import Decimal, getcontext
from typing import Any

getcontext().prec = 50
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


def vectors() -> list[dict[str, Any]]:
    return [vector(case) for case in CASES]


if __name__ == "__main__":
    print(json.dumps(vectors(), indent=1))
