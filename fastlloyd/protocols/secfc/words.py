"""SecFC: who sees what, where data go and in which messages, in words for those who judge a run.

Source: docs/secfc.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlloyd.protocols.secfc.messages import MESSAGES
from fastlloyd.report.flow import Flow
from fastlloyd.report.sight import NOTHING, Sight, Sights


def who_sees(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    """Return who sees what, the network left out."""
    seeds = ", which records are seeds" * (parameters.get("start") != "random")
    owners = "" if parameters.get("membership") else " and whose they are"
    centres = "; the final centres" if parameters.get("reveal_centers") else ""
    t, needed = parameters.get("threshold", "t"), "l + t"
    if isinstance(t, int) and isinstance(parameters.get("segments"), int):
        needed = str(parameters["segments"] + t)
    return Sights(
        (
            Sight(
                "the server",
                "how many records there are and how many clusters are in use; of comparisons whose record, clusters, "
                "start and outcome it cannot tell, how close they are, blurred over 64 octaves",
                "the masks, which any client can take off",
            ),
            Sight(
                "each client",
                f"the cluster of every record in every iteration of every start{seeds}, how many records there "
                f"are{owners}{centres}",
                "secret shares, for the records; nothing, for their clusters",
            ),
        ),
        (
            Sight("the server and any one client", "count all records as known", NOTHING),
            Sight(
                "one client" if t == 1 else f"up to {t} clients",
                "what each sees alone",
                "secret shares, whatever the computing power",
            ),
            Sight(f"{needed} clients", "all records", NOTHING),
        ),
    )


def data_flow(protocol: str, facts: Mapping[str, Any]) -> Flow:
    """Return where data are and go."""
    return Flow(
        records="every record leaves as secret shares, another share to each client; what is computed on shares goes "
        "to the server, masked",
        labels="every client learns the cluster of every record of all clients, in every iteration of every start",
        result="exact sizes of the clusters: all clients"
        + "; the final centres: all clients" * bool(facts.get("reveal_centers")),
        messages=MESSAGES,
    )
