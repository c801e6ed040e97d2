"""FedDP-KMeans: who sees what, where data go and in which messages, in words for those who judge a run.

Source: docs/feddp.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlloyd.protocols.feddp.messages import MESSAGES
from fastlloyd.protocols.feddp.settings import PRIVATE
from fastlloyd.report.flow import OWN_LABELS, RELEASED, Flow
from fastlloyd.report.sight import NOISE, Sight, Sights, see_shares


def who_sees(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    """Return who sees what, the network left out."""
    if parameters.get("start") == PRIVATE:
        return Sights(
            (
                Sight("the server", "the noisy sums of each step, hence the centres", NOISE),
                Sight(
                    "each client", "its own records; the projection, the proxy points, the centres of each step", NOISE
                ),
            ),
            see_shares(parameters, "the noisy sums of each step"),
        )
    return Sights(
        (
            Sight("the server", "its own points; the noisy sums of each step, hence the centres", NOISE),
            Sight(
                "each client",
                "its own records; the projection, the server's points projected, the centres of each step",
                "the noise, for the clients' records; nothing, for the server's points",
            ),
        ),
        see_shares(parameters, "the noisy sums of each step"),
    )


def data_flow(protocol: str, facts: Mapping[str, Any]) -> Flow:
    """Return where data are and go."""
    records = "only inside one vector a step, of sums over this site's records under a mask and with a share of noise"
    shown = ". The server's own points are not protected: all clients see them, projected"
    further = (("the server's own points", "at the server; shown to the clients, projected, and not protected"),)
    private = facts.get("start") == PRIVATE
    return Flow(
        records=records if private else records + shown,
        labels=OWN_LABELS,
        result=f"{RELEASED}: the server and all clients",
        messages=MESSAGES,
        further=() if private else further,
    )
