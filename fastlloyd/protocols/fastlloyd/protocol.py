"""FastLloyd and its baselines GLloyd, SuLloyd and Lloyd as protocols: plans, rounds, results, and what people read.

The server sees no centroid (with pairwise masking, the noisy sums that they follow from) and writes `server.json`
only; the result is the clients'.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.kmeans.update import movements
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.masking.mask import Masks
from fastlloyd.party.effects import Party
from fastlloyd.protocol.masked import Masked
from fastlloyd.protocols.fastlloyd.client import ClientResult, client
from fastlloyd.protocols.fastlloyd.parameters import MECHANISMS, PublicParameters
from fastlloyd.protocols.fastlloyd.plan import Plan, check_plan, lifetime_delta, make_plan
from fastlloyd.protocols.fastlloyd.plan_lines import cost_lines, round_lines
from fastlloyd.protocols.fastlloyd.quality import expect, noise_of
from fastlloyd.protocols.fastlloyd.rounds import draw_noise, draw_share, first_centers
from fastlloyd.protocols.fastlloyd.settings import Settings
from fastlloyd.protocols.fastlloyd.words import about_ranges, data_flow, who_sees
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.expected import Expected
from fastlloyd.report.outlook import PlanLine
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Claim, Result
from fastlloyd.run.session import Session


class FastLloydFamily(Masked[Plan]):
    """FastLloyd, fastlloyd-plus and the baselines: they differ in their plan."""

    settings = Settings
    who_sees = staticmethod(who_sees)
    data_flow = staticmethod(data_flow)
    plan_type = Plan
    public_type = PublicParameters

    def make_plan(self, public: PublicParameters, names: tuple[str, ...]) -> Plan:
        """Make the plan of a run; run by the server."""
        return make_plan(public, d=len(names), names=names)

    def check_plan(self, plan: Plan, public: PublicParameters, names: tuple[str, ...]) -> float:
        """Check the server's plan against a client's own configuration."""
        return check_plan(plan, public, d=len(names), names=names)

    def delta(self, config: RunConfig, n_total: int) -> float | None:
        """Return the delta that a run may have; None for the default, and where there is no Gaussian noise."""
        return super().delta(config, n_total) if MECHANISMS[config.protocol] == "gaussian" else None

    def shared_start(self, plan: Plan) -> bytes:
        """Return the first centres."""
        return first_centers(plan).grid.tobytes()

    def noise(self, plan: Plan, t: int, secret: SecretRandom) -> NDArray[np.int64]:
        """Draw the server's noise of round t in grid units, shape (plan.elements(t),)."""
        return draw_noise(plan, t, secret)

    def share(self, plan: Plan, t: int, secret: SecretRandom) -> NDArray[np.int64]:
        """Draw one client's share of round t's noise in grid units, shape (plan.elements(t),)."""
        return draw_share(plan, t, secret)

    def play_client(
        self, session: Session, plan: Plan, points: GridPoints, secrets: Masks, stored: StoredRounds
    ) -> Party[ClientResult]:
        """Run Algorithm 1."""
        return client(session.me, points, plan, secrets, share=self.own_share(plan), stored=stored)

    def result(self, session: Session, plan: Plan, end: ClientResult) -> Result:
        """Return the result that the clients have at the end."""
        chosen = end.chosen
        left = end.centers if chosen is None else chosen
        return self.make_result(
            session,
            plan,
            end.included,
            centers=left.exact,
            sizes=left.noisy_counts,
            noise=noise_of(plan, end.centers, chosen),
            movement=movements(end.path) if plan.private else None,
            costs=None if chosen is None else chosen.merging.costs,
        )

    def lifetime_delta(self, plan: Plan) -> float:
        """Return the delta at which a ledger over many runs is read."""
        return lifetime_delta(plan)

    def privacy_unit(self, config: RunConfig) -> str | None:
        """Say what neighbours differ in; None where nothing is private."""
        return super().privacy_unit(config) if MECHANISMS[config.protocol] != "none" else None

    def claim(self, config: RunConfig, plan: Plan) -> Claim:
        """Return what a run of the agreed plan will claim."""
        claim = replace(super().claim(config, plan), lifetime_delta=lifetime_delta(plan))
        return claim if plan.private else replace(claim, epsilon=math.inf)

    def expected(self, config: RunConfig, plan: Plan) -> Expected | None:
        """Say what noise to expect on the result, from public numbers alone."""
        return expect(plan) if plan.private else None

    def parameters(self, plan: Plan, rounds: int) -> dict[str, Any]:
        """Return the public parameters for the report; the server does not know a k that the clients chose."""
        return {**super().parameters(plan, rounds), **({"k_max": plan.k} if plan.choose_k else {})}

    def size_line(self, plan: Plan) -> PlanLine:
        """Say how many records, features, clusters and clients a run has."""
        line = super().size_line(plan)
        return PlanLine(line.name, f"{line.text} (at least {plan.min_clients} in each round)")

    def cost_lines(self, config: RunConfig, plan: Plan) -> list[PlanLine]:
        """Say what a run takes."""
        return [*super().cost_lines(config, plan), *cost_lines(config, plan)]

    def noise_lines(self, plan: Plan) -> list[PlanLine]:
        """Say what noise each round has."""
        return [*super().noise_lines(plan), *round_lines(plan)]

    def privacy_lines(self, config: RunConfig, plan: Plan) -> list[PlanLine]:
        """Say what a run promises."""
        none = "none on the result; only the sums of each round are masked"
        return super().privacy_lines(config, plan) if plan.private else [PlanLine("privacy", none)]

    def about_ranges(self, protocol: str) -> str | None:
        """Say what the ranges of sizes and centres are about, where it is not what the last step counted."""
        return about_ranges(protocol)


PROTOCOL = FastLloydFamily()
