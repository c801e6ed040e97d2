"""What the figures of a result may show, from its report and its released centres.

Privacy: post-processing of released values. Sizes without noise are left out, as on the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import printable
from fastlloyd.report.label import short_labels
from fastlloyd.report.names import ClusterNames
from fastlloyd.report.page.render import format_rounded
from fastlloyd.report.unit import format_epsilon

MOST_CLUSTERS, MOST_COLUMNS = 60, 100
"""Largest numbers that figures and tables of the page show."""
_RUN_DIGITS = 8


@dataclass(frozen=True, kw_only=True)
class Centres:
    """Centres centres and what is known of them.

    Attributes
    ----------
    labels, names : sequence of str, length d
        Of the features: for a figure, and in full.
    clusters, headings : sequence of str, length k
        What a table and a heading call each cluster.
    values : float64 array, shape (k, d)
    margins : float64 array, shape (k, d), or None
        Half-widths of the 95 % ranges.
    ends : float64 array, shape (2, d)
        The public bounds; without them the least and the greatest of all clusters and ranges.
    bounded : bool
        Whether these are bounds.
    sizes, size_ranges : sequences of length k, or None
        Noisy.
    made : str
        Epsilon, date and run, for a caption.
    """

    labels: Sequence[str]
    names: Sequence[str]
    clusters: Sequence[str]
    headings: Sequence[str]
    values: NDArray[np.float64]
    margins: NDArray[np.float64] | None
    ends: NDArray[np.float64]
    bounded: bool
    sizes: Sequence[float] | None
    size_ranges: Sequence[Sequence[float]] | None
    made: str

    @classmethod
    def of(
        cls,
        document: Mapping[str, Any],
        centroids: NDArray[np.float64],
        bounds: NDArray[np.float64] | None = None,
        called: ClusterNames | None = None,
    ) -> Centres:
        """Return what is released of a result.

        Parameters
        ----------
        document : dict
            A valid report.json.
        centroids : float64 array, shape (k, d)
        bounds : float64 array, shape (2, d), optional
        called : ClusterNames, optional
        """
        called = ClusterNames() if called is None else called
        quality, names = document.get("quality") or {}, document["result"]["features"]
        margins = quality.get("centre_margins")
        half = np.zeros_like(centroids) if margins is None else np.array(margins, dtype=np.float64)
        ends = np.stack([(centroids - half).min(axis=0), (centroids + half).max(axis=0)]) if bounds is None else bounds
        noisy = has_noise(document)
        return cls(
            labels=short_labels(names),
            names=list(map(printable, names)),
            clusters=short_labels([called.short(row) for row in range(len(centroids))]),
            headings=[called.heading(row) for row in range(len(centroids))],
            values=centroids,
            margins=None if margins is None else half,
            ends=ends,
            bounded=bounds is not None,
            sizes=document["result"]["noisy_sizes"] if noisy else None,
            size_ranges=quality.get("size_ranges") if noisy else None,
            made=made_words(document),
        )

    @cached_property
    def span(self) -> NDArray[np.float64]:
        """The length of each feature's range, shape (d,); 1 where it has none."""
        return np.where(self.ends[1] > self.ends[0], self.ends[1] - self.ends[0], 1.0)

    @cached_property
    def mean(self) -> NDArray[np.float64]:
        """The mean of all centres, shape (d,): each weighs as its noisy size, or they weigh the same without sizes."""
        weights = np.ones(len(self.values)) if self.sizes is None else np.clip(self.sizes, 0.0, None)
        mean: NDArray[np.float64] = np.average(self.values, axis=0, weights=weights if weights.any() else None)
        return mean

    @property
    def total(self) -> float | None:
        """The sum of the noisy sizes; None without sizes, or if it is not above zero."""
        total = 0.0 if self.sizes is None else float(sum(self.sizes))
        return total if total > 0.0 else None


def percent_of(size: float, low: float | None, high: float | None, total: float) -> str:
    """Return a noisy size as share of the sum of all, in per cent, with at most two digits of its range."""
    if total <= 0.0:
        return ""
    margin = 1.0 if low is None or high is None else max(50.0 * (high - low) / total, 1.0)
    return f"{format_rounded(100.0 * size / total, margin)} %"


def has_noise(document: Mapping[str, Any]) -> bool:
    """Return whether every release of a run carries noise; counts without noise appear in no figure."""
    return all(release["mechanism"] != "none" for release in document["privacy"]["releases"])


def warning_words(document: Mapping[str, Any]) -> str:
    """Return the sentence that stands above a figure of a doubtful result; else ''."""
    quality = document.get("quality") or {}
    return f"Doubtful result. {quality['sentence']}" if quality.get("warnings") else ""


def made_words(document: Mapping[str, Any]) -> str:
    """Return epsilon, date and run of a result, for a caption."""
    spent = document["privacy"]["spent_epsilon"]
    promise = "no noise" if spent is None else f"epsilon {format_epsilon(spent)}"
    return f"{document['protocol']}, {promise}, {document['created'][:10]}, run {document['run'][:_RUN_DIGITS]}."
