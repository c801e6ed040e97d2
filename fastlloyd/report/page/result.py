"""The page of a result, from report.json and the released files that it names; nothing else is read.

It never shows labels, counts without noise, or anything of config.toml, which holds a party's own paths.

Source: docs/report.md, "report.html".
"""

from __future__ import annotations

import base64
import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.link.identity import group_hex
from fastlloyd.errors import ConfigError, format_count, printable
from fastlloyd.protocols.registry import Row, find
from fastlloyd.report.citation import bibtex, cite_run, reference
from fastlloyd.report.display import csv_text
from fastlloyd.report.figure import heat, plane, profile
from fastlloyd.report.figure.released import MOST_CLUSTERS, MOST_COLUMNS, Centres, has_noise, percent_of
from fastlloyd.report.label import TABLE_WIDTH, in_full, short_labels
from fastlloyd.report.names import DESCRIBED_NAMES, ClusterNames
from fastlloyd.report.outlook import planned_words
from fastlloyd.report.page import chart
from fastlloyd.report.page.cards import PROFILE, show_cards
from fastlloyd.report.page.judged import CURVE, FIGURES, show_quality
from fastlloyd.report.page.language import Language
from fastlloyd.report.page.render import format_number, format_rounded, keep_units, number_captions, render
from fastlloyd.report.sight import about_ranges, operator_words, who_sees, words_in_mode
from fastlloyd.report.unit import format_delta, format_left

FILES = ("bounds.csv", "elbow.csv", "palette.png", PROFILE, FIGURES, CURVE)
"""Released files other than centroids.csv whose content may appear on the page."""
NAME = "report.html"
IN_MEMORY = "memory"
"""The transport of a report whose parties were all in one process, which Python's `FastLloyd` runs."""
_MOST_ROUNDS = 100
# A table of more rounds is folded away.
_FEW_ROUNDS = 12
_MOST_CLIENTS = 1_000
_MOST_NAMES = 200
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
    DESCRIBED_NAMES: "names of the clusters",
    "k_max": "clusters, at most",
    "choose_k": "number of clusters chosen by the run",
    "d": "features",
    "n": "people",
    "n_total": "records, at most",
    "n_server": "points that the server starts from",
    "client_caps": "records of each client, at most",
    "epsilon": "epsilon asked for",
    "delta": "delta",
    "epsilon_for_a_change": "epsilon for a change of one row's values",
    "rounds": "rounds",
    "planned_rounds": "rounds planned",
    "min_size": "smallest size of a cluster that is published",
    "described_run": "run that is described",
    "described_columns": "columns that describe",
    "seed": "seed of public randomness",
    "masking": "masks",
    "known_shares": "clients whose share of the noise an observer may know",
    "noise_price": "noise over that of a server alone",
    "mechanism": "noise",
    "settings": "settings given",
    "unit": "column that names people",
    "per_unit": "how a person's rows became one record",
    "categories": "weights of categories",
}

_LAST_STEP = (
    "A range describes the mean and the number of the records that the last step counted. The records nearest to the "
    "released centre may have another mean and another number."
)
_COLUMNS = 6
_AS_TEXT: Mapping[str, Callable[[Any], str]] = {"seed": str, "delta": format_delta}
# Share of a feature's range; smaller digits mean nothing to people.
_STEP = 1e-3
# Names of files come from a report: a link leads to a file beside the page and nowhere else. Labels are their owner's.
_LINKED = re.compile("(?!labels)[a-z][a-z0-9_-]*[.](?:csv|json|jsonl|png|svg|pdf|toml)")
_AS_WRITTEN = "give the folder as the run wrote it"
_MOST_PICTURE_BYTES = 4_000_000
_PNG = b"\x89PNG\r\n\x1a\n"


def show_clusters(
    document: Mapping[str, Any],
    quality: Mapping[str, Any],
    centroids: NDArray[np.float64],
    files: Mapping[str, bytes],
    called: ClusterNames,
) -> dict[str, Any]:
    """Return the centres for the page; parameters as for `result_page`, checked together.

    Raises
    ------
    ConfigError
        bounds.csv is wrong.
    """
    names = document["result"]["features"]
    margins = quality["centre_margins"]
    margins = None if margins is None else np.array(margins, dtype=np.float64)
    k, d = centroids.shape
    finite = bool(np.isfinite(centroids).all() and (margins is None or np.isfinite(margins).all()))
    bounds = _bounds(files.get("bounds.csv"), d)
    wide = short_labels(names[:MOST_COLUMNS], TABLE_WIDTH)
    released = Centres.of(document, centroids, bounds, called)
    heads = list(zip(wide, names, strict=False))
    picture = files.get("palette.png", b"")
    shown = picture.startswith(_PNG) and len(picture) <= _MOST_PICTURE_BYTES
    return {
        "tables": list(_tables(heads, centroids[:MOST_CLUSTERS, :MOST_COLUMNS], margins, bounds, called)),
        "in_full": in_full(names, released.labels)[:_MOST_NAMES],
        "left_out": (max(0, k - MOST_CLUSTERS), max(0, d - MOST_COLUMNS)),
        "ranges": margins is not None,
        "about_ranges": about_ranges(document["protocol"]) or _LAST_STEP,
        "beyond": bounds is not None and _beyond(centroids, bounds),
        "heat": heat.heat_parts(released) if finite else [],
        "panels": profile.panels(released) if finite and d > 1 and k <= profile.MOST_PANELS else [],
        "panels_caption": profile.caption(released) if finite else "",
        "plane": plane.plane(released) if finite and d == 2 and k <= MOST_CLUSTERS else None,
        "palette": _palette(centroids) if picture and finite and d in (1, 3) else [],
        "picture": base64.b64encode(picture).decode() if shown else None,
    }


def _bounds(content: bytes | None, d: int) -> NDArray[np.float64] | None:
    """Return the public bounds, shape (2, d), from bounds.csv; None without that file."""
    if content is None:
        return None
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8"), newline="")))
        bounds = np.array([[float(row["lo"]), float(row["hi"])] for row in rows]).T
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise ConfigError(
            f"bounds.csv: expected feature, lo and hi, got another table ({error}); {_AS_WRITTEN}"
        ) from error
    if bounds.shape != (2, d) or not np.isfinite(bounds).all():
        raise ConfigError(f"bounds.csv: expected finite bounds of {d} features, got other ones; {_AS_WRITTEN}")
    return bounds


def _found_bounds(content: bytes) -> list[tuple[str, str, str]]:
    """Return name and bounds of each column from the bounds.csv of a run that found them, as they stand there."""
    lines = content.decode("utf-8").splitlines(keepends=True)
    try:
        rows = [row for row in csv.reader(lines) if row and not row[0].startswith("# ")]
        return [(csv_text(name), lo, hi) for name, lo, hi in rows[1:]]
    except (ValueError, csv.Error) as error:
        raise ConfigError(
            f"bounds.csv: expected feature, lo and hi, got another table ({error}); {_AS_WRITTEN}"
        ) from error


def _beyond(centroids: NDArray[np.float64], bounds: NDArray[np.float64]) -> bool:
    """Return whether a centre lies beyond the public bounds by more than rounding."""
    slack = _STEP * (bounds[1] - bounds[0])
    return bool(((centroids < bounds[0] - slack) | (centroids > bounds[1] + slack)).any())


def _tables(
    names: Sequence[tuple[str, str]],
    centroids: NDArray[np.float64],
    margins: NDArray[np.float64] | None,
    bounds: NDArray[np.float64] | None,
    called: ClusterNames,
) -> Iterator[dict[str, Any]]:
    """Yield the centres as tables of few columns, all about as wide; many features, if more than clusters, are rows.

    Heads are pairs of what is shown and the name in full.
    """
    turned = len(names) > _COLUMNS and len(names) > len(centroids)
    call = called.mention if turned else called.short
    clusters = [(call(row), call(row)) for row in range(len(centroids))]
    rows, columns = (names, clusters) if turned else (clusters, names)
    ends = np.tile([[-math.inf], [math.inf]], len(names)) if bounds is None else bounds
    known = np.full(centroids.shape, math.inf) if margins is None else margins

    def cell(row: int, column: int) -> tuple[str, str | None]:
        return _cell(float(centroids[row, column]), float(known[row, column]), *ends[:, column].tolist())

    for part in np.array_split(range(len(columns)), -(-len(columns) // _COLUMNS)):
        yield {
            "corner": "feature" if turned else "cluster",
            "columns": [columns[j] for j in part],
            "rows": [(head, [cell(j, i) if turned else cell(i, j) for j in part]) for i, head in enumerate(rows)],
        }


def _cell(value: float, margin: float, lo: float, hi: float) -> tuple[str, str | None]:
    """Return a coordinate and its range, which ends where the bounds do, with significant digits."""
    if not 0.0 < margin < math.inf:
        step = (hi - lo) * _STEP
        return (format_rounded(value, step) if step < math.inf else format_number(value, 5)), None
    ends = min(max(value - margin, lo), value), max(min(value + margin, hi), value)
    return format_rounded(value, margin), " to ".join(format_rounded(end, margin) for end in ends)


def _palette(centroids: NDArray[np.float64]) -> list[str]:
    """Return the centres as colours, dark to light."""
    whole = np.clip(np.rint(centroids), 0, 255).astype(int)
    colours = [tuple(row) * (3 // len(row)) for row in whole.tolist()]
    return ["#{:02x}{:02x}{:02x}".format(*each) for each in sorted(colours, key=sum)]


def show_sizes(document: Mapping[str, Any], quality: Mapping[str, Any], called: ClusterNames) -> dict[str, Any] | None:
    """Return the noisy sizes as bars; None without sizes, or if they are exact."""
    sizes = document["result"]["noisy_sizes"]
    if sizes is None or not has_noise(document):
        return None
    bars = chart.size_bars(sizes, quality["size_ranges"])
    bars = [replace(bar, label=called.short(row)) for row, bar in enumerate(bars)]
    total = sum(sizes)
    return {
        "bars": bars[:MOST_CLUSTERS],
        "left_out": max(0, len(bars) - MOST_CLUSTERS),
        "ranges": bars[0].lo is not None,
        "total": total if total > 0.0 else None,
        "shares": [percent_of(bar.value, bar.lo, bar.hi, total) for bar in bars[:MOST_CLUSTERS]],
    }


def result_page(
    document: Mapping[str, Any],
    centroids: NDArray[np.float64] | None,
    files: Mapping[str, bytes] | None = None,
    names: ClusterNames | None = None,
    language: Language | None = None,
) -> str:
    """Return the page of a result.

    Parameters
    ----------
    document : dict
        A valid report.json.
    centroids : float64 array, shape (k, d), or None
        Released, in original units, as in centroids.csv.
    files : mapping from name to bytes
        Those of `FILES` that the run wrote; others are ignored.
    names : ClusterNames, optional
        That people chose; by default those that the parties of a description agreed on.
    language : Language, optional
        By default English.

    Raises
    ------
    ConfigError
        jinja2 is not installed, or the files do not match.

    Sees
    ----
    Everybody who reads the page sees report.json, centroids.csv, and the picture of a public data set.
    """
    files = {} if files is None else files
    names = ClusterNames.agreed(document["parameters"]) if names is None else names
    quality, row = document.get("quality", _UNJUDGED), _row(document["protocol"])
    _check(document, centroids, quality)
    word, tone = _VERDICTS[quality["verdict"]]
    mode = words_in_mode(document["protocol"], document["parameters"])
    given, k = list(_given(document["parameters"])), count_clusters(document, centroids)
    found = _found_bounds(files.get("bounds.csv", b"")) if row is not None and row.finds_bounds else None
    text = render(
        "report.html",
        document=document,
        k=k,
        found=None if found is None else found[:MOST_COLUMNS],
        about=format_count(k, "cluster") if found is None else f"bounds of {format_count(len(found), 'column')}",
        k_most=document["parameters"].get("k_max"),
        parameters=document["parameters"],
        privacy=document["privacy"],
        quality=quality,
        expected=planned_words(quality),
        word=word,
        tone=tone,
        in_memory=document["network"]["transport"] == IN_MEMORY,
        summary=None if row is None else mode.get("summary", row.summary),
        vertical=row is not None and row.partition == "vertical",
        holders=_holders(document),
        sites=_sites(document),
        plain=_plain_words(document),
        clusters=None if centroids is None else show_clusters(document, quality, centroids, files, names),
        described=show_cards(
            files.get(PROFILE) if has_noise(document) else None, int(document["parameters"].get("min_size", 0))
        ),
        judged=show_quality(files),
        sizes=show_sizes(document, quality, names),
        called=names,
        costs=_costs(files.get("elbow.csv")),
        metrics=_metrics(document["evaluation"]),
        sights=who_sees(
            document["protocol"],
            document["parameters"],
            masking=document["parties"].get("masking"),
            authenticated=document["parties"]["authenticated"],
        ),
        operator=operator_words(
            masking=document["parties"].get("masking"),
            authenticated=document["parties"]["authenticated"],
            private=not document["not_private"],
        ),
        roster=None if document["signatures"] is None else group_hex(bytes.fromhex(document["signatures"]["roster"])),
        releases=list(_releases(document["privacy"]["releases"])),
        budget=_budget(document["privacy"]),
        absent=_absent(document),
        rounds=_rounds(document),
        movement=_movement(document, quality),
        settings=[
            (mode.get(name, _PARAMETERS[name]), _AS_TEXT.get(name, _value)(value))
            for name, value in given
            if name in _PARAMETERS and (found is None or name != "k")
        ],
        citation=bibtex(Row("", "", "horizontal", "") if row is None else row, document["version"]),
        cited=cite_run(document),
        reference=None if row is None else reference(row),
        outputs=[(name, _LINKED.fullmatch(name) is not None) for name in document["output"]],
        planned=[(name, _value(value)) for name, value in given if name not in _PARAMETERS],
    )
    if language is None:
        return keep_units(number_captions(text))
    return keep_units(number_captions(language.page(text), language.say))


def count_clusters(document: Mapping[str, Any], centroids: NDArray[np.float64] | None) -> int:
    """Return how many clusters a result is about; parameters as for `result_page`."""
    if centroids is not None:
        return len(centroids)
    left_out, parameters = int(document["result"].get("left_out", 0)), document["parameters"]
    return 0 if left_out and "k_max" in parameters else int(parameters["k"]) - left_out


def _row(protocol: str) -> Row | None:
    """Return the protocol's row; None if it is not installed here."""
    try:
        return find(protocol)
    except ConfigError:
        return None


def _given(parameters: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield meaningful parameters: the largest allowed k if k was chosen, and shares of noise if there are any."""
    unsaid = {"k": "k_max" in parameters, "known_shares": parameters.get("masking") == "common"}
    if "described_run" in parameters:  # the settings say the same as these, in full
        columns = [column["name"] for column in parameters.get("described_columns", [])]
        parameters = {**parameters, "settings": None, "described_columns": columns}
    for name, value in parameters.items():
        if value not in (None, {}, []) and not unsaid.get(name, False):
            yield name, value


def _holders(document: Mapping[str, Any]) -> int:
    """Return the number of parties that hold records or columns; with vertical protocols rank 0 may be one."""
    names = document["parameters"].get("names")
    return len(names) if isinstance(names, list) and names else int(document["parties"]["clients"])


def _sites(document: Mapping[str, Any]) -> list[str]:
    """Return the names of the parties that hold records or columns, as the roster has them; empty without one."""
    signers = [] if document["signatures"] is None else document["signatures"]["parties"]
    everybody = len(signers) == _holders(document)
    return [party["name"] for party in signers if party["rank"] or everybody]


def _check(document: Mapping[str, Any], centroids: NDArray[np.float64] | None, quality: Mapping[str, Any]) -> None:
    """Refuse lists of different lengths, which the schema cannot."""
    sizes, ranges, margins = document["result"]["noisy_sizes"], quality["size_ranges"], quality["centre_margins"]
    moved = document["result"].get("movement")
    shape = None if centroids is None else [centroids.shape[1]] * len(centroids)
    fits = (
        (sizes is None or (len(sizes) > 0 and (shape is None or len(sizes) == len(shape))))
        and (ranges is None or (sizes is not None and [len(pair) for pair in ranges] == [2] * len(sizes)))
        and (margins is None or [len(row) for row in margins] == shape)
        and (moved is None or len(moved) == len(document["rounds"]))
    )
    if not fits:
        raise ConfigError(
            "report.json: expected one size, one range and one row of margins for each cluster of centroids.csv, and "
            "one movement for each round, got other numbers of them; give the folder as the run wrote it"
        )


def _plain_words(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the promise as the chance of a right guess; None if nothing is promised.

    A guess between two neighbours chosen by a fair coin is right with probability at most
    (e^epsilon + delta) / (1 + e^epsilon).

    Source: Kairouz, Oh, Viswanath, "The Composition Theorem for Differential Privacy", Theorem 2.1.
    """
    privacy = document["privacy"]
    if document["not_private"] or privacy["spent_epsilon"] is None or privacy["unit"] is None:
        return None
    odds = math.exp(min(privacy["spent_epsilon"], 700.0))
    chance = 1.0 - (1.0 - privacy["delta"]) / (1.0 + odds)
    # Rounded up, so that it is never less than the true limit.
    percent = math.ceil(chance * 1000.0) / 10.0
    return {"percent": f"{percent:.1f}" if percent < 100.0 else None, "weak": chance > 0.95, "unit": privacy["unit"]}


def _costs(content: bytes | None) -> dict[str, Any] | None:
    """Return the curve of costs by which the number of clusters was chosen, from elbow.csv."""
    if content is None:
        return None
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8"))))
        bars = chart.size_bars([float(row["cost"]) for row in rows], None)
        chosen = [row["chosen"] == "1" for row in rows].index(True) + 1
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"elbow.csv: expected k, cost and chosen, got another table ({error}); give the folder as the run wrote it"
        ) from error
    return {"bars": bars, "chosen": chosen}


def _metrics(evaluation: Mapping[str, float | None] | None) -> list[tuple[str, str, float]]:
    """Return name, meaning and value of each figure."""
    found = (evaluation or {}).items()
    return [(*_METRICS.get(name, (name, "")), value) for name, value in found if value is not None]


def _releases(releases: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the releases as lines; releases that differ only in the round share one."""

    def kind(entry: Mapping[str, Any]) -> tuple[str, ...]:
        shown = (entry["name"], entry["mechanism"], entry.get("seen_by"), format_number(entry["noise_multiplier"]))
        return tuple(map(str, shown))

    for _, group in groupby(sorted(releases, key=lambda entry: (kind(entry), entry["round"])), key=kind):
        entries = list(group)
        yield {**entries[0], "rounds": _spans([entry["round"] + 1 for entry in entries])}


def _spans(numbers: Sequence[int]) -> str:
    """Return numbers as ranges.

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
    """Return what all runs in the ledger have spent, and the rest; None for a run without a state directory."""
    used, limit = privacy.get("lifetime_epsilon"), privacy["budget"]
    if used is None:
        return None
    left = None if limit is None else max(0.0, limit - used)
    return {
        "used": used,
        "limit": limit,
        "at": f" at delta {format_delta(privacy['lifetime_delta'])}" if privacy.get("lifetime_delta") else "",
        "left": None if left is None else format_left(left),
        "bar": chart.share_bar(left / limit if left and limit else 0.0),
    }


def _absent(document: Mapping[str, Any]) -> list[str]:
    """Return which clients missed which rounds."""
    everybody = range(1, min(document["parties"]["clients"], _MOST_CLIENTS) + 1)
    missed = {
        rank: [entry["round"] + 1 for entry in document["rounds"] if rank not in entry["clients_included"]]
        for rank in everybody
    }
    silent = {
        rank: [entry["round"] + 1 for entry in document["rounds"] if rank in entry.get("clients_silent", ())]
        for rank in everybody
    }
    return [
        *(f"client {rank}: round {_spans(rounds)}" for rank, rounds in missed.items() if rounds),
        *(
            f"client {rank}: the end of round {_spans(rounds)}, whose sum has more of its noise"
            for rank, rounds in silent.items()
            if rounds
        ),
    ]


def _rounds(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return time and bytes of each round, with the times as bars on one scale."""
    entries = document["rounds"]
    most = max((entry["seconds"] or 0.0 for entry in entries), default=0.0) or 1.0
    rows = [
        {
            **_round_head(document, place),
            "seconds": entry["seconds"],
            "sent": entry.get("sent_bytes"),
            "received": entry.get("received_bytes"),
            "bar": chart.share_bar((entry["seconds"] or 0.0) / most),
            "clients": len(entry["clients_included"]),
        }
        for place, entry in enumerate(entries)
    ]
    counted = any(row["sent"] is not None for row in rows)
    return {**_cut(document, rows), "counted": counted, "unknown": any(row["seconds"] is None for row in rows)}


def _movement(document: Mapping[str, Any], quality: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how far the centres moved in each round, with the largest shifts as bars; None if it is not known."""
    rows = [
        {**_round_head(document, place), "largest": one["largest"], "mean": one["mean"]}
        for place, one in enumerate(document["result"].get("movement") or [])
        if one is not None
    ]
    if not rows:
        return None
    # The shift of round 1 from the public start would dwarf all others.
    drawn = [row for row in rows if row["number"] > 1]
    most = max((row["largest"] for row in drawn), default=0.0) or 1.0
    for row in rows:
        row["bar"] = chart.share_bar(row["largest"] / most) if row in drawn else None
    expected = quality["expected"]
    noise = None if expected is None else expected["centre_noise"]
    plus = document["parameters"].get("plus")
    stages = plus.get("stages") if isinstance(plus, dict) else None
    merged = isinstance(stages, list) and len(stages) > 1  # the round that merges has no row
    shown = noise is not None and noise < 1.0  # for more than the whole range the verdict is enough
    return {
        **_cut(document, rows),
        "first": rows[0],
        "last": rows[-1],
        "noise": noise if shown else None,
        "merged": merged,
    }


def _round_head(document: Mapping[str, Any], place: int) -> dict[str, Any]:
    """Return a round's number and the name of its step, if it has one."""
    return {"number": document["rounds"][place]["round"] + 1, "step": (_steps(document) or {}).get(place)}


def _steps(document: Mapping[str, Any]) -> dict[int, str] | None:
    """Return the names of the rounds; None if they do not differ in kind."""
    steps = document["parameters"].get("steps")
    fits = isinstance(steps, list) and len(steps) == len(document["rounds"])
    return dict(enumerate(steps)) if fits and all(isinstance(step, str) for step in steps) else None


def _cut(document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the first rows of a table of rounds, folded away if there are many."""
    return {
        "rows": rows[:_MOST_ROUNDS],
        "left_out": max(0, len(rows) - _MOST_ROUNDS),
        "folded": len(rows) > _FEW_ROUNDS,
        "named": _steps(document) is not None,
    }


def _value(value: Any) -> str:
    """Return a parameter as text for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return format_number(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_inner(each)}" for name, each in value.items())
    if isinstance(value, list):
        # Not commas, which separate thousands.
        return "; ".join(map(_inner, value))
    return printable(str(value))


def _inner(value: Any) -> str:
    """Return a part of a parameter as text, with nested parts in brackets."""
    return f"({_value(value)})" if isinstance(value, Mapping | list) else _value(value)
