"""What a fitted model shows: the page and the figures of a run, and a notebook's display.

All follow from released values and public facts, as the files of a run do. Sizes of owners, times and labels are left
out: with a stated N, the number of records is private.

Source: docs/estimator.md, "Show the result"; docs/report.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fastlloyd.estimator.account import Spending
from fastlloyd.estimator.words import ParameterError
from fastlloyd.privacy.release import ADD_REMOVE, ZERO_OUT_RECORD
from fastlloyd.report import document
from fastlloyd.report.figure.paint import figure_of
from fastlloyd.report.figure.released import warning_words
from fastlloyd.report.files import PRIVATE_MODE, write_atomic
from fastlloyd.report.names import ClusterNames
from fastlloyd.report.page import result as page
from fastlloyd.report.page.render import available, render
from fastlloyd.run.files import draw_figure, figure_kinds, privacy_entry
from fastlloyd.run.outcome import Result

_UNITS = {
    ADD_REMOVE: "one record",
    ZERO_OUT_RECORD: "one record, which counts or is left out while the number of records stays the same",
}
_READERS = "whoever reads the released values (not against the caller of the fit, who has the records)"
_OTHER_FITS = "other fits of the same records add up"


@dataclass(frozen=True, slots=True)
class Shown:
    """What is kept of a fit for its displays; nothing of it is private.

    Attributes
    ----------
    result : Result
        As a run has it; claim and releases as the estimator states them.
    traffic : mapping
        The entry of a report.
    created : str
        When, in UTC.
    """

    result: Result = field(repr=False)
    traffic: Mapping[str, Any] = field(repr=False)
    created: str

    @classmethod
    def of(cls, result: Result, traffic: Mapping[str, Any], spending: Spending, epsilon: float) -> Shown:
        """Keep what may be shown of a result; `epsilon` is what was asked for, with the bounds."""
        claim = result.claim
        if claim.private:
            unit = _UNITS.get(spending.neighbours, claim.unit)
            claim = replace(claim, epsilon=epsilon, neighbours=spending.neighbours, unit=unit, against=_READERS)
        kept = {name: value for name, value in result.common["parameters"].items() if name != "client_caps"}
        common = {**result.common, "parameters": kept}
        return cls(
            replace(result, common=common, claim=claim, releases=spending.releases, exact_sizes=None),
            traffic,
            datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )


def make_document(model: Any, title: str | None = None) -> dict[str, Any]:
    """Return what report.json of a run would hold, checked."""
    shown: Shown = model._shown
    result, claim = shown.result, shown.result.claim
    if hasattr(model, "ledger_"):
        privacy = privacy_entry(claim, result.releases, model.ledger_, model.budget_)
    else:
        privacy = {**privacy_entry(claim, result.releases), "note": _OTHER_FITS}
    return document.build_report(
        {
            **result.common,
            "created": shown.created,
            "network": {**result.common["network"], "transport": page.IN_MEMORY},
            "traffic": shown.traffic,
            "machine": document.machine(),
            **({} if title is None else {"title": title}),
        },
        claim=claim,
        privacy=privacy,
        result=result.entry,
        quality=model.quality_.to_dict(),
        signatures=None,
    )


def write_page(model: Any, path: str | Path, title: str | None, names: Mapping[int, str] | None) -> Path:
    """Write the page of a result; `FastLloyd.report` says how."""
    called = None if names is None else ClusterNames.check({str(key): names[key] for key in names}, "names")
    result = model._shown.result
    files = {name: text.encode() for name, text in result.files.items() if name in page.FILES}
    target = Path(path)
    text = page.result_page(make_document(model, title), result.centroids, files, called)
    write_atomic(target, text, mode=PRIVATE_MODE, flag="report")
    return target


def draw(model: Any, kind: str | None) -> Any:
    """Return a figure of matplotlib; `FastLloyd.plot` says which."""
    result: Result = model._shown.result
    if result.centroids is None or not np.isfinite(result.centroids).all():
        raise ParameterError("plot: expected centres of all clusters, got a fit that shows none, or only some")
    kinds = figure_kinds(result)
    kind = kind or ("plane" if "plane" in kinds else "centroids")
    if kind not in kinds:
        raise ParameterError(f"kind: expected one of {', '.join(kinds)} for this fit, got {kind!r}")
    report = make_document(model)
    return figure_of(draw_figure(kind, result, report), warning_words(report))


def as_html(model: Any) -> str | None:
    """Return a notebook's display of a fitted model; None where scikit-learn's has to do.

    Centres with their ranges, noisy sizes, epsilon and verdict.
    """
    result = model._shown.result
    if not available() or result.centroids is None:
        return None
    made = make_document(model)
    quality, called = made["quality"], ClusterNames()
    files = {"bounds.csv": result.files["bounds.csv"].encode()}
    return render(
        "model.html",
        document=made,
        privacy=made["privacy"],
        quality=quality,
        k=len(result.centroids),
        clusters=page.show_clusters(made, quality, result.centroids, files, called),
        sizes=page.show_sizes(made, quality, called),
        parameters=repr(model),
    )
