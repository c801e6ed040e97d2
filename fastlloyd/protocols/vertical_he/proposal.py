"""Make and check the plan of one run from public parameters.

Every party makes the plan from its own configuration and the columns' names, and compares it with rank 0's.

Source: Vertical HE, §3 ("Differential Privacy"); docs/vertical-he-privacy.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastlloyd.errors import RangeError
from fastlloyd.lifecycle.align.columns import Columns
from fastlloyd.party.plain_plan import check_epsilon, same_named
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.calibration import calibrate
from fastlloyd.protocols.vertical_he.budget import (
    automatic_rounds,
    enters_by_steps,
    multipliers,
    step_multipliers,
    step_radius,
)
from fastlloyd.protocols.vertical_he.frame import check_messages
from fastlloyd.protocols.vertical_he.math.choose import SchemeChoice, allowed_options
from fastlloyd.protocols.vertical_he.math.circuit import choose_circuit
from fastlloyd.protocols.vertical_he.math.hints import (
    FLOODING,
    HINT_SHARE,
    MOST_HINTED,
    Openings,
    SideNoise,
    hinted_share,
    too_little_noise,
)
from fastlloyd.protocols.vertical_he.math.scales import MAX_ERROR, choose_scales
from fastlloyd.protocols.vertical_he.parameters import PAIRWISE, TWO_PARTY, PublicParameters, check_names
from fastlloyd.protocols.vertical_he.plan import Plan, movement

_SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class Proposal:
    """What rank 0 proposes: the plan, and the columns of all owners in the order of their ranks."""

    plan: Plan
    features: tuple[Columns, ...]


def make_plan(public: PublicParameters, names: Sequence[Sequence[str]]) -> Plan:
    """Make the plan of a run.

    Parameters
    ----------
    public : PublicParameters
    names : sequence of sequences of str
        Column names of each owner, in the order of the owners' ranks.

    Raises
    ------
    ConfigError
        The mode or scheme does not fit the parties and their columns.
    RangeError
        No parameters of the encryption have room for these records; says what to change.
    """
    return try_options(public, names)[0]


def try_options(
    public: PublicParameters, names: Sequence[Sequence[str]]
) -> tuple[Plan, tuple[tuple[SchemeChoice, RangeError], ...]]:
    """Plan by the cheapest option that has parameters; return the plan, and why cheaper options have none.

    Raises
    ------
    ConfigError, RangeError
        As `make_plan`; where no option has parameters, that of the cheapest one.
    """
    check_names(names, len(public.owning))
    refused: list[tuple[SchemeChoice, RangeError]] = []
    for choice in allowed_options(public, tuple(map(len, names))):
        try:
            return _plan_option(public, names, choice), tuple(refused)
        except RangeError as error:
            refused.append((choice, error))
    raise refused[0][1]


def _plan_option(public: PublicParameters, names: Sequence[Sequence[str]], choice: SchemeChoice) -> Plan:
    """Make the plan of a run by one option; raise RangeError if it has no parameters."""
    settings = public.chosen
    private = settings.noise == "dp"
    d = sum(map(len, names))
    moves = movement(choice.scheme)
    rounds = automatic_rounds(public, d, moves) if public.rounds is None else public.rounds
    owners = tuple(party.rank for party in public.owning)
    own = len(names[owners.index(choice.computing)]) if choice.computing in owners else 0
    if not enters_by_steps(public, choice.scheme, own, rounds):
        own = 0
    radius = step_radius(public, own, d, rounds) if own else 0.0
    counts = sums = steps = 0.0
    if private and own:
        counts, sums, steps = step_multipliers(public, own, d - own, rounds, radius)
    elif private:
        counts, sums = multipliers(public, d, rounds)
    counts, sums = moves * counts, moves * sums * math.sqrt(d - own)
    openings = Openings(rounds=rounds, n=public.n_total, k=public.k, d=d, keys=public.keys, corners=choice.corners)
    least, largest = min(counts, sums), max(counts, sums)
    if own:  # how much rounding adds to the sensitivity of steps is not known yet
        least, largest = min(least, steps), max(largest, steps * (1.0 + math.sqrt(own) * MAX_ERROR))
    noise = SideNoise(counts=least, sums=largest, private=private, openings=openings)
    if choice.scheme == PAIRWISE:
        seeded = public.mode == TWO_PARTY
        scales = choose_circuit(noise, seeded=seeded)
    else:
        scales = choose_scales(noise)
    base = Plan(
        **same_named(Plan, public, choice),
        owners=owners,
        names=tuple(tuple(map(str, own)) for own in names),
        delta=public.allowed_delta,
        rounds=rounds,
        tolerance=settings.tolerance,
        private=private,
        cell=math.pow(public.k, -1.0 / d) if private and settings.shrink else 0.0,
        radius=radius,
        scales=scales,
        count_scale=FLOODING * scales.flood * scales.unit,
        sum_scale=FLOODING * scales.flood * scales.unit,
        step_scale=0.0,
    )
    plan = _calibrated(base, public.epsilon, counts, sums, steps=steps) if private else base
    least = min([plan.count_scale, plan.sum_scale, *([plan.step_scale] if plan.stepping else [])])
    if hinted_share(plan.scales, openings, least, private=private) > MOST_HINTED:  # the noise must hide the hints
        raise too_little_noise()
    check_messages(plan)
    return plan


def _calibrated(base: Plan, epsilon: float, counts: float, sums: float, *, steps: float) -> Plan:
    """Return the plan with the least noise that the accountant accepts, from analytic deviations in counts."""
    part = base.unit / math.sqrt(1.0 - HINT_SHARE)
    whole = part * (1.0 + base.scales.error)
    stepped = part * (1.0 + math.sqrt(len(base.stepping)) * base.scales.error)

    def build(factor: float) -> Plan:
        return dataclasses.replace(
            base,
            count_scale=counts * whole * factor,
            sum_scale=sums * whole * factor,
            step_scale=steps * stepped * factor,
        )

    factor, _ = calibrate(lambda candidate: build(candidate).all_releases(), epsilon, base.delta, 1.0)
    return build(factor)


def check_plan(plan: Plan, public: PublicParameters, names: Sequence[Sequence[str]]) -> float:
    """Compare a peer's plan with this party's.

    Returns
    -------
    float
        Bound on epsilon of the planned releases towards another party; infinite without privacy.

    Raises
    ------
    ValueError
        The plan differs or spends more than epsilon: the sender is at fault.
    """
    own = make_plan(public, names)
    for ours, received in ((own, plan), (own.scales, plan.scales)):
        for field in dataclasses.fields(ours):
            mine, theirs = getattr(ours, field.name), getattr(received, field.name)
            # Numbers may differ by rounding; the unit is a power of two.
            numbers = isinstance(mine, float) and isinstance(theirs, float) and field.name != "unit"
            close = numbers and math.isclose(mine, theirs, rel_tol=_SLACK)
            if mine != theirs and not close and field.name != "scales":
                raise ValueError(f"the plan has {field.name} = {theirs!r}, expected {mine!r}")
    if plan == own and plan.private:
        return public.epsilon  # this party's plan was calibrated to it
    # The noise is the peer's; the sensitivity is this party's.
    mixed = dataclasses.replace(plan, scales=own.scales)
    return check_epsilon(mixed.all_releases, own.delta, most=public.epsilon, private=plan.private)


def change_epsilon(plan: Plan) -> float:
    """Return epsilon for any change of one row's values: two vectors of weights, so at most twice what one row adds."""
    factor = 2.0 / plan.movement
    wider = [dataclasses.replace(release, sensitivity=factor * release.sensitivity) for release in plan.all_releases()]
    return spent(wider, plan.delta)
