"""What a run of vertical k-means under CKKS would do, from public numbers alone."""

from __future__ import annotations

import itertools
from dataclasses import replace

from fastlloyd.data.vertical import VerticalTable
from fastlloyd.privacy.accountant import spent
from fastlloyd.protocols.vertical_he.face_inputs import gather, run_parameters
from fastlloyd.protocols.vertical_he.face_noise import expect
from fastlloyd.protocols.vertical_he.math.choose import options, planned_option
from fastlloyd.protocols.vertical_he.parameters import PAIRWISE, PublicParameters
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import change_epsilon, try_options
from fastlloyd.report.expected import Expected
from fastlloyd.report.outlook import PlanLine, outlook_line
from fastlloyd.report.unit import format_count
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import settle_size
from fastlloyd.run.promise import promise_lines
from fastlloyd.run.vertical import plan_widths, read_alignment


def planned(config: RunConfig, clients: int, d: int | None) -> Plan:
    """Return the plan of a run with as many records as there may be; errors as for `plan_lines`."""
    public, names = _public(config, clients, d)
    return try_options(public, names)[0]


def plan_lines(config: RunConfig, clients: int, d: int | None) -> list[PlanLine]:
    """Describe the plan of a run, line by line; opens no data but a public --dataset.

    Raises
    ------
    ConfigError
        Public parameters that do not fit, or an unknown number of features.
    """
    public, names = _public(config, clients, d)
    n = public.n_total
    plan, refused = try_options(public, names)
    widths = tuple(map(len, names))
    chosen = planned_option(public, widths, plan.scheme, plan.computing)
    reasons = dict(refused)
    lines = [
        PlanLine(
            "vertical-he",
            f"{format_count(n, 'record')} at most, {' + '.join(map(str, widths))} columns, "
            f"{format_count(plan.k, 'cluster')}, {plan.mode}, {format_count(plan.rounds, 'round')}",
        ),
        PlanLine("choice", chosen.line(plan.rounds)),
    ]
    others = [choice for choice in options(public, widths) if choice != chosen]
    lines += [PlanLine("", f"  instead of {choice.line(plan.rounds)}") for choice in others if choice not in reasons]
    lines += [
        PlanLine(f"  not scheme {choice.scheme}, rank {choice.computing} computing", str(reasons[choice]))
        for choice in reasons
    ]
    primes = f"primes of {', '.join(map(str, plan.scales.prime_bits))} bits (128-bit security)"
    lines.append(PlanLine("encryption", f"ring degree {plan.scales.ring}, {primes}"))
    if plan.private:
        neighbours = plan.releases(0, seen_by="-")[0].neighbours
        stated = f"epsilon {spent(plan.all_releases(), plan.delta):.6g} of {plan.epsilon:g}, delta {plan.delta:.3g}"
        changed = f"epsilon {change_epsilon(plan):.4g} for any change of a row"
        lines.append(PlanLine("privacy", f"{stated}, {neighbours}; {changed}"))
        lines += promise_lines(config, delta=plan.delta, n_total=n)
        if plan.scheme == PAIRWISE:
            why = "the bound on its rounding errors is not proved"
            lines.append(PlanLine("privacy of the pairwise circuit is heuristic", why))
        if plan.tolerance:
            lines.append(PlanLine("", "every round is charged, also where the tolerance ends the run earlier"))
        own = plan.step_scale / plan.unit * plan.radius
        steps = (
            f", {own:.3g} on one of steps from the centres (rank {plan.computing}'s columns)" if plan.stepping else ""
        )
        count, total = plan.count_scale / plan.unit, plan.sum_scale / plan.unit
        noise = f"{count:.3g} on a count, {total:.3g} on a sum (scaled to [-1, 1])"
        lines.append(PlanLine("noise of each side", noise + steps))
        lines.append(_outlook(config, public, names))
    else:
        lines.append(PlanLine("privacy", "none on the result; only as much noise as protects the key"))
    return lines


def _outlook(config: RunConfig, public: PublicParameters, names: list[list[str]]) -> PlanLine:
    """Say what to expect of the result, and what would be good."""

    def expected(k: int, epsilon: float, n_total: int) -> Expected:
        changed = replace(public, k=k, epsilon=epsilon, n_total=n_total)
        return expect(try_options(changed, names)[0])

    public_data = config.dataset is not None
    return outlook_line(expected, k=public.k, epsilon=public.epsilon, n_total=public.n_total, fixed_n=public_data)


def _public(config: RunConfig, clients: int, d: int | None) -> tuple[PublicParameters, list[list[str]]]:
    """Return the public parameters, and the names of each owner's columns."""
    tables: tuple[VerticalTable, ...] = ()
    if config.data is None and config.dataset is None and (d is not None or read_alignment(config).widths):
        run = run_parameters(config, clients, *settle_size(config, None))
    else:
        config, common = gather(config, clients)
        run, tables = common.public, common.tables
    owners = run.owners
    if tables:
        names = [list(table.names) for table in tables]
    else:
        numbers = itertools.count(1)
        names = [[f"x{next(numbers)}" for _ in range(width)] for width in plan_widths(config, len(owners), d)]
    return run.settled(), names
