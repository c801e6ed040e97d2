"""What a run of vertical DP clustering would do, from public numbers alone."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.vertical import PartyFeatures
from fastlloyd.privacy.accountant import spent
from fastlloyd.protocols.vertical_dp.face_inputs import gather, public_parameters
from fastlloyd.protocols.vertical_dp.face_noise import expect
from fastlloyd.protocols.vertical_dp.messages import synopsis_format
from fastlloyd.protocols.vertical_dp.parameters import PublicParameters
from fastlloyd.protocols.vertical_dp.plan import Plan, make_plan
from fastlloyd.report.expected import Expected
from fastlloyd.report.outlook import PlanLine, outlook_line
from fastlloyd.report.unit import format_count
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import settle_size
from fastlloyd.run.promise import promise_lines
from fastlloyd.run.vertical import load_vertical, plan_widths, read_alignment


def plan_lines(config: RunConfig, clients: int, d: int | None) -> list[PlanLine]:
    """Describe the plan of a run, line by line; opens no data but a public --dataset.

    Raises
    ------
    ConfigError
        Public parameters that do not fit, or an unknown number of features.
    """
    public, features = _public(config, clients, d)
    plan = make_plan(public, features)
    lines = [
        PlanLine(
            plan.protocol,
            f"{format_count(plan.n_total, 'record')} at most, {format_count(plan.d, 'column')} of "
            f"{plan.clients} parties, {format_count(plan.k, 'cluster')}, one round",
        ),
        PlanLine(
            "local clusters",
            f"{plan.local_clusters} at each party, a grid of {format_count(plan.local_clusters**plan.clients, 'cell')}",
        ),
    ]
    sizes = [synopsis_format(plan, place).fixed_bytes for place in range(clients)]
    if plan.key_groups:
        groups = f"{format_count(len(plan.key_groups), 'group')} of parties, {format_count(plan.rows, 'row')}"
        phantoms = f"{format_count(plan.phantoms, 'phantom')} in each cell of a group's grid"
        lines.append(PlanLine("sketches", f"{groups}, {phantoms}"))
    lines.append(PlanLine("bytes", f"at most {max(sizes):,} up from a party"))
    lines.append(PlanLine("privacy", _privacy_words(plan)))
    if plan.private:
        lines += promise_lines(config, delta=plan.delta, n_total=plan.n_total)
        lines.append(_outlook(config, plan, public, features))
    return lines


def planned(config: RunConfig, clients: int, d: int | None) -> Plan:
    """Return the plan of a run; without names of columns, `d` of them are dealt out to the parties.

    Raises
    ------
    ConfigError
        Public parameters that do not fit, or an unknown number of features.
    """
    return make_plan(*_public(config, clients, d))


def _public(config: RunConfig, clients: int, d: int | None) -> tuple[PublicParameters, list[PartyFeatures]]:
    """Return the public parameters, and what is known of each party's columns."""
    if config.data is None and config.dataset is None and (d is not None or read_alignment(config).widths):
        return public_parameters(config, clients, *settle_size(config, None)), _guess_features(config, clients, d)
    config, common = gather(config, clients)
    if common.tables:
        return common.public, [load_vertical(config, common, place).features for place in range(clients)]
    return common.public, _guess_features(config, clients, d)


def _outlook(config: RunConfig, plan: Plan, public: PublicParameters, features: list[PartyFeatures]) -> PlanLine:
    """Say what to expect of the result, and about what would be good.

    Tight plans take their time, so those of other settings are quick ones, with as much less noise as this one gained.
    """

    def quick(k: int, epsilon: float, n_total: int) -> Expected:
        return expect(make_plan(replace(public, k=k, epsilon=epsilon, n_total=n_total), features, tight=False))

    def expected(k: int, epsilon: float, n_total: int) -> Expected:
        if (k, epsilon, n_total) == (public.k, public.epsilon, public.n_total):
            return found
        other = quick(k, epsilon, n_total)
        return replace(other, centre_noise=(other.centre_noise or 0.0) * gained)

    found = expect(plan)
    gained = (found.centre_noise or 0.0) / (quick(public.k, public.epsilon, public.n_total).centre_noise or 1.0)
    public_data = config.dataset is not None
    return outlook_line(expected, k=public.k, epsilon=public.epsilon, n_total=public.n_total, fixed_n=public_data)


def _privacy_words(plan: Plan) -> str:
    if not plan.private:
        return f"none; {plan.note}"
    return (
        f"epsilon {spent(plan.all_releases(), plan.delta):.6g} of {plan.epsilon:g}, delta {plan.delta:.3g}, "
        f"{plan.note}; epsilon {plan.change_epsilon():.4g} for a change of one row's values"
    )


def _guess_features(config: RunConfig, clients: int, d: int | None) -> list[PartyFeatures]:
    """Give the parties columns without names."""
    numbers, found = itertools.count(1), []
    for width in plan_widths(config, clients, d):
        names = tuple(f"x{next(numbers)}" for _ in range(width))
        found.append(PartyFeatures(names=names, bounds=Bounds(np.full(width, -1.0), np.full(width, 1.0), names)))
    return found
