"""k-FED: who sees what, where data go and in which messages, in words for those who judge a run.

Source: docs/security.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlloyd.dossier.shared_messages import BEGINNING, CHAINS_OF_ALL, COUNTERS, HELLO, PLAN_PROPOSAL, READY
from fastlloyd.report.flow import DOWN, OWN_LABELS, UP, Flow, MessageClass
from fastlloyd.report.sight import NOTHING, Sight, Sights
from fastlloyd.wire import numbers

_OWN = (
    MessageClass(
        name="LocalCenters (kfed)",
        about="the centres of this site's own records",
        route=UP,
        server="means of the client's records",
        others="never sent to them",
        types=(numbers.LOCAL_CENTERS,),
    ),
    MessageClass(
        name="MergedCenters (kfed)",
        about="the result",
        route=DOWN,
        server="what it computed",
        others="the merged centres",
        types=(numbers.MERGED_CENTERS,),
    ),
)


def who_sees(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    """Return who sees what, the network left out."""
    return Sights(
        (
            Sight("the server", "each client's own centres, each a mean of records of that client", NOTHING),
            Sight("each client", "its own records; the merged centres", NOTHING),
        ),
        (),
    )


def data_flow(protocol: str, facts: Mapping[str, Any]) -> Flow:
    """Return where data are and go."""
    return Flow(
        records="as means of this site's records, without noise or mask, readable by the server; a mean of one record "
        "is that record",
        labels=OWN_LABELS,
        result="the merged centres: the server and all clients",
        messages=(*BEGINNING, HELLO, PLAN_PROPOSAL, READY, *_OWN, CHAINS_OF_ALL, COUNTERS),
    )
