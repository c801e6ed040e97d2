"""What the reports of vertical-he say about its privacy claim: against whom it is, and on what it rests.

Source: docs/vertical-he-privacy.md.
"""

from __future__ import annotations

from fastlloyd.errors import format_count
from fastlloyd.protocols.vertical_he.parameters import PAIRWISE, THRESHOLD
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import change_epsilon

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
    """Say against whom the claim is, and what is counted beyond the rounds done."""
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
    """Say what the claim rests on besides the noise, and what it is for other neighbours."""
    heuristic = [_HEURISTIC[kind] for kind in (plan.scheme, plan.mode) if kind in _HEURISTIC]
    *others, last = ["that all parties follow the protocol", *heuristic, _HINTS]
    return [*others, f"{last}; for any change of the row's values epsilon is {change_epsilon(plan):.4g}"]
