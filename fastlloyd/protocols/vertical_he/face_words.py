"""k-means on encrypted columns: who sees what, where data go and in which messages, in words for those who judge a run.

Source: docs/vertical-he-privacy.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlloyd.errors import format_count
from fastlloyd.protocols.vertical_he.messages import MESSAGES, several_parties, shares_key
from fastlloyd.protocols.vertical_he.parameters import THRESHOLD
from fastlloyd.report.flow import NO_LABELS, Flow
from fastlloyd.report.sight import NOTHING, Sight, Sights


def who_sees(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    """Return who sees what, the network left out."""
    private = parameters.get("private", True)
    sums = "noisy" if private else "almost exact"
    shared, several = parameters.get("mode") == THRESHOLD, several_parties(parameters)
    whose = "noise that it does not know" if shared and several else "the other side's noise"
    shield = f"{whose}: this is what the promise is about" if private else NOTHING
    parties = [
        Sight("the computing party", f"its own columns if it has any; ciphertexts; {sums} sums of each round", shield),
        Sight(
            ("each other party" if several else "the other party") if shared else "the key holder",
            f"its own columns; {sums} sums of each round" + "; a share of the key, which opens nothing" * shared,
            shield,
        ),
    ]
    if parameters.get("mode") == "server-aided":
        both = "both sides' noise: this is what the promise is about" if private else NOTHING
        parties.append(Sight("each further owner", f"its own columns; {sums} sums of each round", both))
    holder = ("all parties" if several else "both parties") if shared else "the computing party and the key holder"
    needed = parameters.get("threshold")
    if several and needed and needed != parameters.get("parties"):
        holder = f"the computing party and {format_count(needed - 1, 'other owner')}"
    return Sights(tuple(parties), (Sight(holder, "everything that is encrypted", NOTHING),))


def data_flow(protocol: str, facts: Mapping[str, Any]) -> Flow:
    """Return where data are and go."""
    key, rest = "The key holder's key", "key holder, further owners"
    if shares_key(facts):
        key = "The shares of rank 0 and t - 1 owners together (of all parties unless a threshold t is set)"
        rest = "other parties" if several_parties(facts) else "other party"
    return Flow(
        records="an owner's columns go to the computing party encrypted, and it cannot open them; what is opened are "
        f"noisy sums of each round. {key} could open the columns. Columns of the computing party itself do not "
        "leave it",
        labels=NO_LABELS,
        result="the released centres: all parties",
        messages=MESSAGES,
        readers=("computing party", rest),
    )
