"""Results and costs of a run, as plain text for a terminal of 80 columns."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import printable
from fastlloyd.protocols.registry import FOLLOWING
from fastlloyd.report.citation import STUDY
from fastlloyd.report.names import ClusterNames
from fastlloyd.report.outlook import planned_words
from fastlloyd.report.unit import format_bytes, format_count, format_epsilon, format_seconds

MAX_ROWS = 12
MAX_COLUMNS = 8
WIDTH = 80
_LABEL = 10
_CELL = 11
_METRICS = {
    "nicv": "spread (NICV)",
    "nicv_central": "of central k-means",
    "silhouette": "silhouette",
    "davies_bouldin": "Davies-Bouldin",
    "centroid_mse": "centroid MSE",
    "accuracy": "accuracy",
}


def render(
    document: Mapping[str, Any],
    centroids: NDArray[np.float64] | None = None,
    *,
    names: Mapping[int, str] | None = None,
    width: int | None = None,
) -> str:
    """Return the table of a finished run.

    Parameters
    ----------
    document : dict
        A valid report.json.
    centroids : float64 array, shape (k, d), optional
        In original units.
    names : mapping from cluster to name, optional
        By default those that the parties of a description agreed on.
    width : int, optional
        By default that of the terminal, at most 80.

    Returns
    -------
    str
        Lines of at most `width` columns, with a newline at the end.

    Sees
    ----
    Everybody who reads the terminal sees released centroids and sizes.
    """
    names = ClusterNames.agreed(document["parameters"]) if names is None else names
    width = _own_width() if width is None else width
    lines = [_title(document, centroids), ""]
    if centroids is not None:
        sizes = document["result"]["noisy_sizes"]
        lines += [*_centroid_lines(centroids, document["result"]["features"], sizes, width), ""]
    rows = [
        *([("clusters", ", ".join(f"{cluster} {name}" for cluster, name in sorted(names.items())))] if names else []),
        *_named(document),
        *_left_out(document),
        *_quality_facts(document),
        *_privacy_facts(document),
        *_cost_rows(document),
        ("signed", _signed(document["signatures"])),
    ]
    if document["output"]:
        rows.append(("files", ", ".join(document["output"])))
    return printable("\n".join([*lines, *_wrapped(rows, width)]), lines=True) + "\n"


def render_server(document: Mapping[str, Any], *, width: int | None = None) -> str:
    """Return what the server knows of a finished run: parties and cost, no result.

    Parameters
    ----------
    document : dict
        A valid server.json.
    width : int, optional
        By default that of the terminal, at most 80.
    """
    sees = (
        "could compute it from the noisy sums"
        if document["parties"].get("masking") == "pairwise"
        else "sees no centroid"
    )
    width = _own_width() if width is None else width
    rows = [*_named(document), ("result", f"held by the clients: the server {sees}"), *_cost_rows(document)]
    return printable("\n".join([_title(document), "", *_wrapped(rows, width)]), lines=True) + "\n"


def _own_width() -> int:
    """Return the columns of the terminal, at most as many as most have."""
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


def _wrapped(rows: Iterable[tuple[str, str]], width: int) -> Iterator[str]:
    """Yield rows as the lines of labelled paragraphs."""
    for label, text in rows:
        head = f"{label:<{_LABEL}}"
        yield from textwrap.wrap(
            text, width, initial_indent=head, subsequent_indent=" " * _LABEL, break_on_hyphens=False
        )


def _named(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the parties say of their study."""
    said = {name: document[name] for name in STUDY if name in document}
    shown = {name: ", ".join(text) if name == "authors" else text for name, text in said.items()}
    return [("at" if name == "institution" else name, text) for name, text in shown.items()]


def _left_out(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield how many clusters are too small to be published, if the run has a least size."""
    if "left_out" in document["result"]:
        least = format_count(document["parameters"]["min_size"], "record")
        yield "left out", f"{format_count(document['result']['left_out'], 'cluster')} of a size below {least}"


def _title(document: Mapping[str, Any], centroids: NDArray[np.float64] | None = None) -> str:
    """Return protocol, clusters, clients and rounds; for a chosen number of clusters also the largest allowed one."""
    most = document["parameters"].get("k_max")
    k = f"k = {document['parameters']['k'] if centroids is None else len(centroids)}"
    if most is not None:
        k = f"k at most {most}" if centroids is None else f"{k} (chosen, at most {most})"
    clients = format_count(document["parties"]["clients"], "client")
    if any(row.finds_bounds and row.name == document["protocol"] for row in FOLLOWING):
        k = "bounds"
    return f"{document['protocol']}: {k}, {clients}, {format_count(len(document['rounds']), 'round')}"


def _centroid_lines(
    centroids: NDArray[np.float64], names: Sequence[str], sizes: Sequence[float] | None, width: int
) -> Iterator[str]:
    """Yield the centroids, as many rows and columns as fit."""
    k, d = centroids.shape
    used = 7 + (0 if sizes is None else 1 + _CELL)
    shown = max(1, min(d, MAX_COLUMNS, (width - used - 4 * (d > 1)) // (_CELL + 1)))
    more = " ..." if shown < d else ""
    head = f"{'cluster':>7}" + ("" if sizes is None else f" {'noisy size':>{_CELL}}")
    yield head + "".join(f" {_short(name):>{_CELL}}" for name in names[:shown]) + more
    rows = k if k <= MAX_ROWS else MAX_ROWS - 1
    for row in range(rows):
        size = "" if sizes is None else f" {round(sizes[row]):>{_CELL},}"
        cells = "".join(f" {float(value) + 0.0:>{_CELL}.5g}" for value in centroids[row, :shown])
        yield f"{row:>7}{size}{cells}{more}"
    if rows < k:
        yield f"{'...':>7} {k - rows} more in centroids.csv"
    if shown < d:
        yield f"{'...':>7} {format_count(d - shown, 'more feature')} in centroids.csv"
    if sizes is not None and min(sizes) < 0.0:
        yield f"{'':>7} a size below zero is noise"


def _quality_facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield how much of the result is signal; reports before schema 3 do not say."""
    quality = document.get("quality")
    if quality is not None:
        yield "verdict", quality["sentence"]
        for warning in quality["warnings"]:
            yield "", f"WARNING: {warning}"
        if (planned := planned_words(quality)) is not None and quality["expected"]["verdict"] != quality["verdict"]:
            yield "planned", planned


def _privacy_facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what the run claims, what it does not, and its metrics."""
    yield "privacy", _privacy(document)
    if document["not_private"]:
        yield "", f"NOT PRIVATE: {document['not_private_reason']}"
    else:
        yield "claim", document["claim"]
    price = document["parameters"].get("noise_price", 1.0)
    if price > 1.0:
        yield (
            "noise",
            f"in shares by the clients, of which {document['parameters']['known_shares']} may be known to an observer: "
            f"{price - 1.0:.1%} more in all than a server alone would add for the same epsilon",
        )
    if document["evaluation"] is not None:
        figures = {name: value for name, value in document["evaluation"].items() if value is not None}
        yield "metrics", ", ".join(f"{_METRICS.get(name, name)} {value:.4g}" for name, value in figures.items())


def _cost_rows(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield how the parties were connected, what they sent and how long it took."""
    if not document["parties"]["authenticated"]:
        yield "links", "encrypted, keys not authenticated (demonstration: no --roster)"
    traffic, timing = document["traffic"], document["timing"]
    yield (
        "traffic",
        f"{format_bytes(traffic['payload_bytes'])} of payload ({format_bytes(traffic['payload_bytes_per_round'])} a "
        f"round), {format_bytes(traffic['link_bytes'])} on the links in "
        f"{format_count(traffic['messages'], 'message')}"
        + (f"; {traffic['incomplete']}" if traffic["incomplete"] else ""),
    )
    yield (
        "time",
        f"set-up {format_seconds(timing['setup_seconds'])}, rounds {format_seconds(timing['rounds_seconds'])} "
        f"({format_seconds(timing['seconds_per_round'])} each)",
    )


def _signed(signatures: Mapping[str, Any] | None) -> str:
    """Return who signed the report."""
    if signatures is None:
        return "by nobody (no --roster)"
    good = [entry["name"] for entry in signatures["parties"] if entry["signature"] is not None]
    bad = [f"{entry['name']} {entry['problem']}" for entry in signatures["parties"] if entry["signature"] is None]
    return ", ".join([f"by {', '.join(good) or 'nobody'}", *bad])


def _privacy(document: Mapping[str, Any]) -> str:
    """Return what was spent of which budget, and for which neighbours."""
    privacy = document["privacy"]
    if privacy["spent_epsilon"] is None:
        return "none: epsilon is infinite"
    delta = f" at delta {privacy['delta']:.3g}" if privacy["delta"] > 0 else ""
    total = "" if privacy["epsilon"] is None else f" of {format_epsilon(privacy['epsilon'])}"
    text = (
        f"epsilon {format_epsilon(privacy['spent_epsilon'])} spent{total}{delta}, neighbours: {privacy['neighbours']}"
    )
    if "lifetime_epsilon" in privacy and privacy["lifetime_epsilon"] is not None:
        limit = "" if privacy["budget"] is None else f" of a budget of {format_epsilon(privacy['budget'])}"
        at = f", at delta {privacy['lifetime_delta']:.3g}" if privacy.get("lifetime_delta") else ""
        text += f"; {format_epsilon(privacy['lifetime_epsilon'])}{limit} by all runs in the ledger{at}"
    return text


def _short(name: str) -> str:
    """Cut a long name in its middle, where names differ least."""
    name = printable(name)
    if len(name) <= _CELL:
        return name
    return f"{name[: _CELL - 5]}..{name[-3:]}"
