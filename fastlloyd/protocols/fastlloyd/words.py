"""FastLloyd and its baselines: who sees what, where data go and in which messages, in words for those who judge a run.

Source: docs/security.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlloyd.errors import format_count
from fastlloyd.lifecycle.masked_messages import MESSAGES
from fastlloyd.party.declaration import pairwise
from fastlloyd.protocols.fastlloyd.settings import PLUS
from fastlloyd.report.flow import OWN_LABELS, RELEASED, Flow
from fastlloyd.report.sight import NOISE, NOTHING, Sight, Sights, see_shares

_NEAREST = (
    "A range is about the mean and the number of the records that are nearest to a centre. It follows from "
    "released values: from the noise, from how sizes and centres still changed at the end, and from what the "
    "shortening of far records usually adds to a centre. Without separate clusters it holds less often."
)


def who_sees(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    """FastLloyd and its relatives."""
    private = protocol != "lloyd"
    kind, shield = ("noisy", NOISE) if private else ("exact", NOTHING)
    sums = f"{kind} sums and counts of each cluster in each round, hence the centroids"
    learns = sums + (_beginning(parameters) if protocol == PLUS else "")
    clients = Sight("each client", f"its own records; {learns}", shield)
    if parameters["masking"] == "pairwise":
        return Sights(
            (Sight("the server", f"who was included; {learns}", shield), clients), see_shares(parameters, sums)
        )
    server = Sight(
        "the server",
        "who was included; masked sums, which are random numbers to it",
        "the masks, as long as no client's masks or results reach it" + (": it knows the noise" if private else ""),
    )
    published = Sight(
        "the server and the published result",
        "the exact counts of the last round, if the server kept the noise that it drew; perhaps exact sums",
        NOTHING,
        public=True,
    )
    return Sights(
        (server, clients),
        (
            Sight("the server and any one client", "each client's exact sums of each round", NOTHING),
            *([published] if private else ()),
            Sight(
                "several clients",
                sums + "; with two clients in all, one can take its own sums away" * (not private),
                shield,
            ),
        ),
    )


def data_flow(protocol: str, facts: Mapping[str, Any]) -> Flow:
    """Return where data are and go."""
    private, in_pairs = protocol != "lloyd", pairwise(facts)
    noise = " and with a share of noise" if private and in_pairs else ""
    result = RELEASED if private else "the exact centroids and sizes of the clusters"
    reader = (
        "to the server this vector is random numbers; added to those of the others it gives the sums over all sites"
        if in_pairs
        else "to the server this vector is random numbers, and other clients never get it"
    )
    return Flow(
        records=f"only inside one vector a round, of sums over this site's records under a mask{noise}; {reader}",
        labels=OWN_LABELS,
        result=f"{result}: all clients"
        + ("; the server sees the sums that they follow from" if in_pairs else "; no message shows it to the server"),
        messages=MESSAGES,
        server_noise=private and not in_pairs,
    )


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
