"""What people read about threshold masks: from whom they protect, who may be lost, what some see together.

Nothing here says more than the claim that docs/privacy.md proves.

Source: docs/privacy.md, "Noise in shares"; docs/security.md, "Who sees what".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fastlloyd.errors import format_count
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.privacy.shares import spread
from fastlloyd.report.outlook import PlanLine
from fastlloyd.report.sight import BOTH_KEYS, NOISE, NOTHING, Sight, Sights, recorded
from fastlloyd.run.promise import site_words


def _with(count: int) -> str:
    return "one client" if count == 1 else f"up to {count} clients"


def threshold_against(numbers: Numbers, *, roster: bool) -> str:
    """Say from whom a run with threshold masks protects.

    Parameters
    ----------
    numbers : Numbers
    roster : bool
        Whether everybody's keys are known beforehand: without it nothing holds against a server that breaks the rules.
    """
    known, c, note = _with(numbers.known), numbers.lying, "each client adds its noise in parts"
    reads = "reads" if numbers.known == 1 else "read"
    against = [f"{known} who {reads} all that is published", f"a server that follows the protocol, with {known}"]
    if roster:
        against.insert(0, f"a server that breaks the rules, {f'with {_with(c)}' if c else 'whom no client helps'}")
    else:
        note += "; without a roster not against a server that breaks the rules"
    listed = "; ".join(f"({place}) {whom}" for place, whom in enumerate(against, 1))
    return (
        f"{listed}; over all messages to them, and for every loss of clients that leaves {numbers.threshold} of "
        f"{numbers.clients} in a round ({note})"
    )


def threshold_condition(numbers: Numbers) -> str:
    """Say how many clients may be set back to an older copy of their state, at any time of a run.

    What docs/privacy.md proves allows that many behind each round; this is less, and needs no explanation.
    """
    if numbers.restored == 0:
        return "that no client is set back to an older copy of its state"
    few = format_count(numbers.restored, "client")
    return f"that older copies of the state of at most {few} are restored in the run, together or in turn"


def threshold_lines(numbers: Numbers) -> list[PlanLine]:
    """Say in a plan who may be lost, who may collude, and how much noise that costs beside other masks."""
    M, T, D, t = numbers.clients, numbers.threshold, numbers.lost, numbers.known
    pairwise, most = spread(M, t), math.sqrt(T / (T - t))
    lost = f", {most:.3g} with {D} lost" if D else ""
    return [
        PlanLine(
            "threshold",
            f"T = {T} of {M} clients open a round, D = {D} may be lost in it; c = {numbers.lying} may collude with a "
            f"server that breaks the rules (only with a roster), t = {t} with one that follows the protocol",
        ),
        PlanLine("", f"  {site_words(numbers)}"),
        PlanLine(
            "all noise",
            f"over the noise that the guarantee counts: {pairwise:.3g} with nobody lost{lost} (more where a client "
            f"leaves while a round is opened); common masks 1 (the server "
            f"knows that noise), pairwise masks {pairwise:.3g} (nobody may be lost)",
        ),
    ]


def threshold_sights(parameters: Mapping[str, Any], *, sums: str, clients: Sight) -> Sights:
    """Return who sees what where a common mask lies over threshold masks, the network left out.

    Parameters
    ----------
    parameters : mapping
        Public; `known_shares`, `colluding`, `min_clients` and `roster` among them, or their defaults.
    sums : str
        What the clients see of the sums.
    clients : Sight
        What each client sees; its protection says whether there is noise.
    """
    private = clients.protection == NOISE
    server = Sight(
        "the server",
        "who was included; masked sums, which are random numbers to it",
        "the masks, and where a client's masks or results reach it, the noise, which the clients add"
        if private
        else "the masks, as long as no client's masks or results reach it",
    )
    return Sights(
        (server, clients),
        see_opened(parameters, sums, private=private),
        recorded("what the server sees: masked sums, which are random numbers", f"the masks, under {BOTH_KEYS}"),
    )


def see_opened(parameters: Mapping[str, Any], sums: str, *, private: bool) -> tuple[Sight, ...]:
    """Return what some see together with threshold masks.

    Parameters
    ----------
    parameters : mapping
        As for `threshold_sights`.
    sums : str
        What a client, or the server with one, sees of the sums.
    private : bool
        Whether there is noise.
    """
    t, c = parameters.get("known_shares") or 1, parameters.get("colluding") or 0
    threshold = parameters.get("min_clients") or "T"
    shield, bare = (NOISE, "less noise than promised: one client's share of it") if private else (NOTHING, NOTHING)
    single = f"each client's {'' if private else 'exact '}sums of a round"
    follows = Sight(f"the server, while it follows the protocol, and {_with(t)}", sums, shield)
    lying: tuple[Sight, ...]
    if not parameters.get("roster", True):
        who = "a server that breaks the rules (without a roster nobody checks whose keys it passes on)"
        lying = (Sight(who, f"perhaps {single}", bare, weaker=private),)
    elif c:
        lying = (
            Sight(f"a server that breaks the rules, and {_with(c)}", sums, shield),
            Sight(
                f"a server that breaks the rules, and more than {c} of the clients",
                f"perhaps {single}",
                bare,
                weaker=private,
            ),
        )
    else:
        who = "a server that breaks the rules, and any one client"
        lying = (Sight(who, f"perhaps {single}", bare, weaker=private),)
    several = (
        Sight(
            f"more than {t} of the clients, with or without the server",
            f"the same, and more of the noise than was planned for; with the server and {threshold} of them, {single}",
            "less noise than promised; with all clients but one, one client's share of it",
            weaker=True,
        )
        if private
        else Sight(f"the server and {threshold} of the clients", single, NOTHING)
    )
    return (follows, *lying, several)
