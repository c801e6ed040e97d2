"""The page of a result, from report.json and the released files that it names; nothing else is read.

Labels never come onto it, nor counts without noise, nor anything of config.toml, where a party's own paths stand.

Source: docs/report.md, "report.html".
"""

from __future__ import annotations

import base64
import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.link.identity import group_hex
from fastlloyd.errors import ConfigError, printable
from fastlloyd.protocols.registry import ROWS
from fastlloyd.report.page import chart
from fastlloyd.report.page.render import format_number, render
from fastlloyd.report.sight import who_sees

FILES = ("bounds.csv", "elbow.csv", "palette.png")
"""Released files besides centroids.csv whose content may stand on the page."""
NAME = "report.html"
MOST = 60
_COLUMNS = 6
# Of a feature's range: digits beyond say nothing to people.
_STEP = 1e-3
_MOST_ROUNDS = 30
_MOST_CLIENTS = 1_000
_MOST_PICTURE_BYTES = 4_000_000
_PNG = b"\x89PNG\r\n\x1a\n"
_ROWS = {row.name: row for row in ROWS}
_VERDICTS = {
    "good": ("Good", "good"),
    "fair": ("Fair", "fair"),
    "poor": ("Poor", "poor"),
    "noise": ("Noise", "bad"),
    "exact": ("Exact", "plain"),
    "unknown": ("Not judged", "plain"),
}
_UNJUDGED: dict[str, Any] = {
    "verdict": "unknown",
    "sentence": "This report was written before reports had a verdict.",
    "warnings": [],
    "expected": None,
    "size_ranges": None,
    "centre_margins": None,
}
_METRICS = {
    "nicv": ("NICV", "mean squared distance of a record to its nearest centre, on [-1, 1]; less is better"),
    "nicv_central": ("NICV of central k-means", "the same for k-means on all records in one place, without noise"),
    "silhouette": ("silhouette", "-1 to 1; more is better"),
    "davies_bouldin": ("Davies-Bouldin", "less is better"),
    "centroid_mse": ("centroid MSE", "mean squared distance to the matching central centre, on [-1, 1]"),
    "accuracy": ("accuracy", "share of records whose cluster fits their known label"),
}
_PARAMETERS = {
    "clients": "clients",
    "min_clients": "least number of clients in a round",
    "k": "clusters",
    "d": "features",
    "n": "people",
    "n_total": "records, at most",
    "n_server": "records of the server's own",
    "client_caps": "records of each client, at most",
    "epsilon": "epsilon asked for",
    "delta": "delta",
    "epsilon_for_a_change": "epsilon for a change of one row's values",
    "rounds": "rounds",
    "planned_rounds": "rounds planned",
    "seed": "seed of public randomness",
    "ring_bits": "bits of the masks' ring",
    "fraction_bits": "bits behind the point",
    "masking": "masks",
    "known_shares": "clients whose share of the noise an observer may know",
    "noise_price": "noise over that of a server alone",
    "mechanism": "noise",
    "settings": "settings given",
    "unit": "column that names people",
    "per_unit": "how a person's rows became one record",
    "categories": "weights of categories",
}


def result_page(
    document: Mapping[str, Any], centroids: NDArray[np.float64] | None, files: Mapping[str, bytes] | None = None
) -> str:
    """Return the page of a result.

    Parameters
    ----------
    document : dict
        A valid report.json.
    centroids : float64 array, shape (k, d), or None
        Released, in original units, as in centroids.csv.
    files : mapping from name to bytes
        Those of `FILES` that the run wrote; others are not looked at.

    Raises
    ------
    ConfigError
        jinja2 is not installed, or the files do not belong together.

    Sees
    ----
    Whoever reads the page: what report.json and centroids.csv say, and the picture of a public data set.
    """
    files = {} if files is None else files
    quality, row = document.get("quality", _UNJUDGED), _ROWS.get(document["protocol"])
    _check(document, centroids, quality)
    word, tone = _VERDICTS[quality["verdict"]]
    return render(
        "report.html",
        document=document,
        parameters=document["parameters"],
        privacy=document["privacy"],
        quality=quality,
        expected=_expected(quality),
        word=word,
        tone=tone,
        summary=None if row is None else row.summary,
        vertical=row is not None and row.partition == "vertical",
        holders=_holders(document),
        plain=_plain_words(document),
        clusters=None if centroids is None else _clusters(document, quality, centroids, files),
        sizes=_sizes(document, quality),
        costs=_costs(files.get("elbow.csv")),
        metrics=_metrics(document["evaluation"]),
        sights=who_sees(
            document["protocol"],
            document["parameters"],
            masking=document["parties"].get("masking"),
            authenticated=document["parties"]["authenticated"],
        ),
        roster=None if document["signatures"] is None else group_hex(bytes.fromhex(document["signatures"]["roster"])),
        releases=list(_releases(document["privacy"]["releases"])),
        budget=_budget(document["privacy"]),
        absent=_absent(document),
        rounds=_rounds(document),
        settings=[
            (_PARAMETERS.get(name, name.replace("_", " ")), str(value) if name == "seed" else _value(value))
            for name, value in document["parameters"].items()
            if value not in (None, {}, [])
        ],
    )


def _holders(document: Mapping[str, Any]) -> int:
    """Return how many parties hold records, or columns of them: with vertical protocols rank 0 may be one."""
    names = document["parameters"].get("names")
    return len(names) if isinstance(names, list) and names else int(document["parties"]["clients"])


def _expected(quality: Mapping[str, Any]) -> str | None:
    """Return what the plan said, unless a warning says it already."""
    told = quality["expected"]
    if told is None or any(told["sentence"] in warning for warning in quality["warnings"]):
        return None
    return str(told["sentence"])


def _check(document: Mapping[str, Any], centroids: NDArray[np.float64] | None, quality: Mapping[str, Any]) -> None:
    """Refuse what the schema cannot: lists that do not belong together."""
    sizes, ranges, margins = document["result"]["noisy_sizes"], quality["size_ranges"], quality["centre_margins"]
    shape = None if centroids is None else [centroids.shape[1]] * len(centroids)
    fits = (
        (sizes is None or (len(sizes) > 0 and (shape is None or len(sizes) == len(shape))))
        and (ranges is None or (sizes is not None and [len(pair) for pair in ranges] == [2] * len(sizes)))
        and (margins is None or [len(row) for row in margins] == shape)
    )
    if not fits:
        raise ConfigError(
            "report.json: expected one size, one range and one row of margins for each cluster of centroids.csv, got "
            "other numbers of them; give the folder as the run wrote it"
        )


def _plain_words(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the promise as the chance of a right guess; None where nothing is promised.

    Whoever guesses between two neighbours after a fair coin is right with probability at most
    (e^epsilon + delta) / (1 + e^epsilon).

    Source: Kairouz, Oh, Viswanath, "The Composition Theorem for Differential Privacy", Theorem 2.1.
    """
    privacy = document["privacy"]
    if document["not_private"] or privacy["spent_epsilon"] is None or privacy["unit"] is None:
        return None
    odds = math.exp(min(privacy["spent_epsilon"], 700.0))
    chance = 1.0 - (1.0 - privacy["delta"]) / (1.0 + odds)
    # Rounded up: what is said is never less than what may happen.
    percent = math.ceil(chance * 1000.0) / 10.0
    return {"percent": f"{percent:.1f}" if percent < 100.0 else None, "weak": chance > 0.95, "unit": privacy["unit"]}


def _clusters(
    document: Mapping[str, Any],
    quality: Mapping[str, Any],
    centroids: NDArray[np.float64],
    files: Mapping[str, bytes],
) -> dict[str, Any]:
    """Return what the page shows of the centres."""
    names, sizes = document["result"]["features"], _sizes(document, quality)
    told = quality["centre_margins"]
    margins = None if told is None else np.array(told, dtype=np.float64)
    k, d = centroids.shape
    finite = bool(np.isfinite(centroids).all() and (margins is None or np.isfinite(margins).all()))
    bounds = _bounds(files.get("bounds.csv"), d)
    panels, columns = chart.profiles(names, centroids[:MOST], None if margins is None else margins[:MOST], bounds)
    picture = files.get("palette.png", b"")
    shown = picture.startswith(_PNG) and len(picture) <= _MOST_PICTURE_BYTES
    return {
        "tables": list(_tables(names[:MOST], centroids[:MOST, :MOST], margins, bounds)),
        "left_out": (max(0, k - MOST), max(0, d - MOST)),
        "ranges": margins is not None,
        "bounded": bounds is not None,
        "panels": panels if finite and d > 1 else [],
        "features_drawn": len(columns),
        "label_width": chart.label_width([names[column] for column in columns]),
        "plane": _plane(names, centroids, margins, sizes, bounds) if finite and d == 2 and k <= MOST else None,
        "palette": _palette(centroids) if picture and finite and d in (1, 3) else [],
        "picture": base64.b64encode(picture).decode() if shown else None,
    }


def _bounds(content: bytes | None, d: int) -> NDArray[np.float64] | None:
    """Return the public bounds, shape (2, d), from bounds.csv; None in a folder without."""
    if content is None:
        return None
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8"), newline="")))
        bounds = np.array([[float(row["lo"]), float(row["hi"])] for row in rows]).T
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise ConfigError(f"bounds.csv: expected feature, lo and hi, got another table ({error})") from error
    if bounds.shape != (2, d) or not np.isfinite(bounds).all():
        raise ConfigError(f"bounds.csv: expected finite bounds of {d} features, got other ones")
    return bounds


def _tables(
    names: Sequence[str],
    centroids: NDArray[np.float64],
    margins: NDArray[np.float64] | None,
    bounds: NDArray[np.float64] | None,
) -> Iterator[dict[str, Any]]:
    """Return the centres as tables of few columns; features are rows where they are many, and more than clusters."""
    turned = len(names) > _COLUMNS and len(names) > len(centroids)
    clusters = [f"cluster {row}" if turned else str(row) for row in range(len(centroids))]
    rows, columns = (names, clusters) if turned else (clusters, names)
    steps = np.zeros(len(names)) if bounds is None else (bounds[1] - bounds[0]) * _STEP
    for start in range(0, len(columns), _COLUMNS):
        part = range(start, min(start + _COLUMNS, len(columns)))
        yield {
            "corner": "feature" if turned else "cluster",
            "columns": [columns[j] for j in part],
            "rows": [
                (name, [_cell(centroids, margins, steps, *((j, i) if turned else (i, j))) for j in part])
                for i, name in enumerate(rows)
            ],
        }


def _cell(
    centroids: NDArray[np.float64],
    margins: NDArray[np.float64] | None,
    steps: NDArray[np.float64],
    row: int,
    column: int,
) -> tuple[str, str | None]:
    """Return a coordinate, and the half-width of its range, with digits that mean something."""
    value = float(centroids[row, column])
    margin = math.inf if margins is None else float(margins[row, column])
    if not 0.0 < margin < math.inf:
        step = float(steps[column])
        return (format_rounded(value, step) if step > 0.0 else format_number(value, 5)), None
    return format_rounded(value, margin), f"\u00b1 {format_number(margin, 2)}"


def format_rounded(value: float, margin: float) -> str:
    """Write a value with no more digits than two of its margin.

    Examples
    --------
    >>> format_rounded(12.3456, 0.034), format_rounded(12345.6, 250.0)
    ('12.346', '12346')
    """
    digits = min(max(1 - math.floor(math.log10(margin)), 0), 12)
    if not math.isfinite(value) or abs(value) >= 1e15:
        return format_number(value, 5)
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "\u2212")


def _plane(
    names: Sequence[str],
    centroids: NDArray[np.float64],
    margins: NDArray[np.float64] | None,
    sizes: Mapping[str, Any] | None,
    bounds: NDArray[np.float64] | None,
) -> dict[str, Any]:
    """Return what the page draws of two features."""
    values = None if sizes is None else [bar.value for bar in sizes["bars"]]
    drawn, ends = chart.discs(centroids, margins, values, bounds)
    return {"discs": drawn, "ends": [[format_number(end, 3) for end in row] for row in ends], "names": names}


def _palette(centroids: NDArray[np.float64]) -> list[str]:
    """Return the centres as colours, dark to light."""
    whole = np.clip(np.rint(centroids), 0, 255).astype(int)
    colours = [tuple(row) * (3 // len(row)) for row in whole.tolist()]
    return ["#{:02x}{:02x}{:02x}".format(*each) for each in sorted(colours, key=sum)]


def _sizes(document: Mapping[str, Any], quality: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the noisy sizes as bars; None where there are none, or where they are exact."""
    sizes = document["result"]["noisy_sizes"]
    if sizes is None or not noisy(document):
        return None
    bars = chart.size_bars(sizes, quality["size_ranges"])
    return {"bars": bars[:MOST], "left_out": max(0, len(bars) - MOST), "ranges": bars[0].lo is not None}


def noisy(document: Mapping[str, Any]) -> bool:
    """Return whether every release of a run carries noise: counts without it never come onto a page."""
    return all(release["mechanism"] != "none" for release in document["privacy"]["releases"])


def _costs(content: bytes | None) -> dict[str, Any] | None:
    """Return the curve by which the number of clusters was chosen, from elbow.csv."""
    if content is None:
        return None
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8"))))
        bars = chart.size_bars([float(row["cost"]) for row in rows], None)
        chosen = [row["chosen"] == "1" for row in rows].index(True) + 1
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"elbow.csv: expected k, cost and which was chosen, got another table ({error})") from error
    return {"bars": bars, "chosen": chosen}


def _metrics(evaluation: Mapping[str, float | None] | None) -> list[tuple[str, str, float]]:
    """Return name, meaning and value of each figure."""
    found = (evaluation or {}).items()
    return [(*_METRICS.get(name, (name, "")), value) for name, value in found if value is not None]


def _releases(releases: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Return the releases in lines: those that the page shows alike, but for the round, in one."""

    def kind(entry: Mapping[str, Any]) -> tuple[str, ...]:
        shown = (entry["name"], entry["mechanism"], entry.get("seen_by"), format_number(entry["noise_multiplier"]))
        return tuple(map(str, shown))

    for _, group in groupby(sorted(releases, key=lambda entry: (kind(entry), entry["round"])), key=kind):
        entries = list(group)
        yield {**entries[0], "rounds": _spans([entry["round"] + 1 for entry in entries])}


def _spans(numbers: Sequence[int]) -> str:
    """Write numbers in short: 1-4, 7.

    Examples
    --------
    >>> _spans([1, 2, 3, 7])
    '1–3, 7'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}\u2013{last}" for first, last in runs)


def _budget(privacy: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what all runs in the ledger have spent, and what is left; None for a run without a state directory."""
    used, limit = privacy.get("lifetime_epsilon"), privacy["budget"]
    if used is None:
        return None
    left = None if limit is None else max(0.0, limit - used)
    return {
        "used": used,
        "limit": limit,
        # Rounded down: what is said to be left is never more than there is.
        "left": None if left is None else f"{math.floor(left * 1e4) / 1e4:g}",
        "bar": chart.share_bar(left / limit if left and limit else 0.0),
    }


def _absent(document: Mapping[str, Any]) -> list[str]:
    """Say which clients missed which rounds."""
    everybody = range(1, min(document["parties"]["clients"], _MOST_CLIENTS) + 1)
    missed = {
        rank: [entry["round"] + 1 for entry in document["rounds"] if rank not in entry["clients_included"]]
        for rank in everybody
    }
    return [f"client {rank}: round {_spans(rounds)}" for rank, rounds in missed.items() if rounds]


def _rounds(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the time of each round, as bars on one scale."""
    entries = document["rounds"]
    steps = document["parameters"].get("steps")
    named = isinstance(steps, list) and len(steps) == len(entries) and all(isinstance(step, str) for step in steps)
    most = max((entry["seconds"] or 0.0 for entry in entries), default=0.0) or 1.0
    rows = [
        {
            "number": entry["round"] + 1,
            "step": steps[place] if named else None,
            "seconds": entry["seconds"],
            "bar": chart.share_bar((entry["seconds"] or 0.0) / most),
            "clients": len(entry["clients_included"]),
        }
        for place, entry in enumerate(entries)
    ]
    return {"rows": rows[:_MOST_ROUNDS], "left_out": max(0, len(rows) - _MOST_ROUNDS), "named": named}


def _value(value: Any) -> str:
    """Write a parameter as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return format_number(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_inner(each)}" for name, each in value.items())
    if isinstance(value, list):
        # Thousands have commas.
        return "; ".join(map(_inner, value))
    return printable(str(value))


def _inner(value: Any) -> str:
    """Write a part of a parameter: parts of its own stand in brackets."""
    return f"({_value(value)})" if isinstance(value, Mapping | list) else _value(value)
