"""Who sees what in a run of vertical-he, where data go and in which messages.

Source: docs/vertical-he-privacy.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlloyd.errors import format_count
from fastlloyd.protocols.vertical_he.messages import MESSAGES, several_parties, shares_key
from fastlloyd.protocols.vertical_he.parameters import PAIRWISE, THRESHOLD
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import change_epsilon
from fastlloyd.report.flow import NO_LABELS, Flow
from fastlloyd.report.sight import NOTHING, Sight, Sights

FLOODING = (
    "vertical-he.noise = flooding adds only what protects the key: the parties learn soft sums of each round almost "
    "exactly"
)
_AGAINST = (
    "any single other party, over all messages to it (the computing party sees ciphertexts, the {} noisy sums; "
    "the two together can open everything)"
)
_AGAINST_SEVERAL = (
    "{}, over all messages to them (they see ciphertexts that only {} can open, and each round's sums with noise that "
    "they do not know)"
)
_HINTS = (
    "that ring-LWE is hard at 128 bits although the opened sums are hints on errors and key (an assumption: the "
    "theorem on hints is for Gaussian secrets and hints fixed in advance)"
)
_HEURISTIC = {
    PAIRWISE: "that eight standard deviations bound the circuit's rounding errors, as if these were independent of the "
    "data (heuristic, not proved)",
    THRESHOLD: "that no error under the common key exceeds eight standard deviations",
}


def against(plan: Plan, done: int) -> str:
    """Say against whom the claim protects, and what is counted beyond the rounds done."""
    left_out = plan.rounds - done
    whom = _AGAINST.format("other" if plan.mode == THRESHOLD else "key holder")
    if plan.openers and plan.threshold == plan.parties:
        whom = _AGAINST_SEVERAL.format("all other parties together", "all parties together")
    elif plan.openers:
        few = plan.threshold - 1
        whose = "any single other party" if few == 1 else f"any {few} other parties together"
        whom = _AGAINST_SEVERAL.format(whose, f"rank 0 with {format_count(few, 'owner')}")
    if not plan.tolerance or not left_out:
        return whom
    return f"{whom}, with all {plan.rounds} planned rounds counted, since the releases decided to stop after {done}"


def conditions(plan: Plan) -> list[str]:
    """Return what the claim rests on besides the noise, and epsilon for other neighbours."""
    heuristic = [_HEURISTIC[kind] for kind in (plan.scheme, plan.mode) if kind in _HEURISTIC]
    *others, last = ["that all parties follow the protocol", *heuristic, _HINTS]
    return [*others, f"{last}; for any change of the row's values epsilon is {change_epsilon(plan):.4g}"]


def who_sees(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    """Return who sees what, without the network."""
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
    """Return where data are and where they go."""
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
