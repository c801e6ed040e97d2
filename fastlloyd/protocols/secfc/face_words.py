"""SecFC: who sees what, where data go and in which messages, in words for those who judge a run.

Source: docs/secfc.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlloyd.dossier.shared_messages import BEGINNING, CHAINS, COUNTERS, HELLO, PLAN_PROPOSAL, READY, SEED
from fastlloyd.report.flow import ACROSS, DOWN, UP, Flow, MessageClass
from fastlloyd.report.sight import NOTHING, Sight, Sights
from fastlloyd.wire import numbers

_OWN = (
    MessageClass(
        name="Size",
        about="how many records this site brings",
        route=UP,
        server="number of records of each client, or its public padded size",
        others="the same, in the plan",
        types=(numbers.SIZE,),
    ),
    MessageClass(
        name="LayerPublicKey, SealedTags, Union (membership)",
        about="hide whose a record is",
        route=ACROSS,
        server="nothing",
        others="random tags of all records, in no client's order; the last client: how many are padding",
        types=(numbers.LAYER_PUBLIC_KEY, numbers.SEALED_TAGS, numbers.UNION),
        when=lambda facts: bool(facts.get("membership")),
    ),
    MessageClass(
        name="DataShares",
        about="a secret share of every record of this site, another one for each client",
        route=ACROSS,
        server="nothing",
        others="one share of each record, as good as random for any t clients together",
        types=(numbers.DATA_SHARES,),
    ),
    MessageClass(
        name="Shared",
        about="the shares are there",
        route=UP,
        server="number of records of all clients",
        others="-",
        types=(numbers.SHARED,),
    ),
    MessageClass(
        name="CodedValues",
        about="comparisons of distances and of their totals, computed on shares, masked, blurred and in a secret order",
        route=UP,
        server="with the others: how close comparisons are, blurred over 64 octaves, of records, clusters and "
        "starts that it cannot tell; how many clusters are in use",
        others="never sent to them",
        types=(numbers.CODED_VALUES,),
    ),
    MessageClass(
        name="Signs",
        about="the outcome of the comparisons",
        route=DOWN,
        server="fair coins",
        others="who won each comparison, hence the cluster of every record, in every iteration of every start; which "
        "records are seeds; which start won",
        types=(numbers.SIGNS,),
    ),
    MessageClass(
        name="Finished",
        about="the last assignment came",
        route=UP,
        server="that it came",
        others="-",
        types=(numbers.FINISHED,),
    ),
    MessageClass(
        name="Roll, CenterShares (reveal)",
        about="open the final centres to the clients",
        route="server; client to client",
        server="who was there",
        others="the sums, hence the centres, of the final clusters",
        types=(numbers.ROLL, numbers.CENTER_SHARES),
        when=lambda facts: bool(facts.get("reveal_centers")),
    ),
)


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
        messages=(*BEGINNING, HELLO, PLAN_PROPOSAL, SEED, READY, *_OWN, CHAINS, COUNTERS),
    )
