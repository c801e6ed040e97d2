"""FastLloyd and its baselines: who sees what, where data go and in which messages, in words for those who judge a run.

Source: docs/security.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlloyd.errors import format_count
from fastlloyd.protocol.masked import masked_flow, masked_sights
from fastlloyd.protocols.fastlloyd.settings import PLUS
from fastlloyd.report.flow import Flow
from fastlloyd.report.sight import Sights

_NEAREST = (
    "A range is about the mean and the number of the records that are nearest to a centre. It follows from "
    "released values: from the noise, from how sizes and centres still changed at the end, and from what the "
    "shortening of far records usually adds to a centre. Without separate clusters it holds less often."
)


def who_sees(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    """FastLloyd and its relatives."""
    private = protocol != "lloyd"
    sums = f"{'noisy' if private else 'exact'} sums and counts of each cluster in each round, hence the centroids"
    learns = sums + (_beginning(parameters) if protocol == PLUS else "")
    published = "the exact counts of the last round, if the server kept the noise that it drew; perhaps exact sums"
    return masked_sights(parameters, sums=sums, learns=learns, published=published, private=private)


def data_flow(protocol: str, facts: Mapping[str, Any]) -> Flow:
    """Return where data are and go."""
    return masked_flow(facts, private=protocol != "lloyd")


_SURVEY = "a noisy mean and spread of each feature and a noisy number of records"
_HISTOGRAM = "a noisy number of the records in each cell of a grid"


def _beginning(parameters: Mapping[str, Any]) -> str:
    """Say what fastlloyd-plus shows beyond fastlloyd: as planned, or both ways to begin where no plan is known."""
    plus = parameters.get("plus")
    if plus is None:
        return f"; before that {_SURVEY}, or with up to three features perhaps {_HISTOGRAM}"
    said = f"; before that {_HISTOGRAM if plus['cells'] else _SURVEY}" if plus["cells"] or plus["survey"] else ""
    first, k = plus["stages"][0], parameters["k"]
    if first["clusters"] > k:
        rounds = format_count(first["rounds"], "round")
        steps = " step by step" if len(plus["stages"]) > 2 else ""
        said = f", in the first {rounds} of {first['clusters']} clusters, which are then merged{steps} to {k}{said}"
    return said


def about_ranges(protocol: str) -> str | None:
    """Say what the ranges of sizes and centres are about, where it is not what the last step counted."""
    return _NEAREST if protocol == PLUS else None
