"""FastLloyd and its baselines GLloyd, SuLloyd and Lloyd as protocols: plans, rounds, results, and what people read.

The server sees no centroid (with pairwise masking, the noisy sums that they follow from) and writes `server.json`
only; the result is the clients'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.describe.quality import Judged, OfNumber, quality_csv, silhouettes_csv
from fastlloyd.errors import format_count
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.kmeans.update import movements
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.masking.mask import Masks
from fastlloyd.party.effects import Party
from fastlloyd.privacy.accountant import spent
from fastlloyd.protocol.masked import Masked, masked_flow, masked_sights, name_rounds
from fastlloyd.protocols.fastlloyd.client import ClientResult, client
from fastlloyd.protocols.fastlloyd.plan import Plan, asked_quality, check_plan, make_plan
from fastlloyd.protocols.fastlloyd.quality import expect, noise_of
from fastlloyd.protocols.fastlloyd.rounds import draw_noise, draw_parts, first_centers
from fastlloyd.protocols.fastlloyd.settings import MECHANISMS, PLUS, QUALITY_SHARE, PublicParameters, Settings
from fastlloyd.protocols.fastlloyd.work import estimate_work
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.outlook import Expected, PlanLine
from fastlloyd.report.sight import Flow, Sights
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Claim, Result
from fastlloyd.run.session import Session
from fastlloyd.run.work import Work

_NEAREST = (
    "A range is about the mean and the number of the records that are nearest to a centre. It follows from "
    "released values: from the noise, from how sizes and centres still changed at the end, and from what the "
    "shortening of far records usually adds to a centre. Without separate clusters it holds less often."
)
_SURVEY = "a noisy mean and spread of each feature and a noisy number of records"
_HISTOGRAM = "a noisy number of the records in each cell of a grid"


class FastLloydFamily(Masked[Plan]):
    """FastLloyd, fastlloyd-plus and the baselines: they differ in their plan."""

    settings = Settings
    plan_type = Plan
    public_type = PublicParameters

    def make_plan(self, public: PublicParameters, names: tuple[str, ...]) -> Plan:
        """Make the plan of a run; run by the server."""
        return make_plan(public, d=len(names), names=names)

    def check_plan(self, plan: Plan, public: PublicParameters, names: tuple[str, ...]) -> float:
        """Check the server's plan against a client's own configuration."""
        return check_plan(plan, public, d=len(names), names=names)

    def public_parameters(self, config: RunConfig, clients: int, n_total: int, k: int) -> PublicParameters:
        """Return the public parameters of a run; a range of k sets a share aside for the silhouettes."""
        if config.least_k and not config.quality:
            config = replace(config, quality=QUALITY_SHARE)
        public: PublicParameters = super().public_parameters(config, clients, n_total, k)
        return public

    def delta(self, config: RunConfig, n_total: int) -> float | None:
        """Return the delta that a run may have; None for the default, and without Gaussian noise."""
        return super().delta(config, n_total) if MECHANISMS[config.protocol] == "gaussian" else None

    def shared_start(self, plan: Plan) -> bytes:
        """Return the first centres."""
        return first_centers(plan).grid.tobytes()

    def noise(self, plan: Plan, t: int, secret: SecretRandom) -> NDArray[np.int64]:
        """Draw the server's noise of round t in grid units, shape (plan.elements(t),)."""
        return draw_noise(plan, t, secret)

    def noise_parts(
        self, plan: Plan, t: int, shares: Sequence[Fraction], secrets: Sequence[SecretRandom]
    ) -> NDArray[np.int64]:
        """Draw parts of one client's share of round t's noise, in grid units."""
        return draw_parts(plan, t, shares, secrets)

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
            silent=end.silent,
            noise=replace(noise_of(plan.played(end.noise), end.centers, chosen), measured=_measured(end)),
            movement=[*movements(end.path), *[None] * (len(plan.rounds) - plan.moving)] if plan.private else None,
            costs=None if chosen is None else chosen.merging.costs,
            extra=_files(end, len(left.exact)),
        )

    def privacy_unit(self, config: RunConfig) -> str | None:
        """Say what neighbours differ in; None if nothing is private."""
        return super().privacy_unit(config) if MECHANISMS[config.protocol] != "none" else None

    def claim(self, config: RunConfig, plan: Plan) -> Claim:
        """Return what a run of the agreed plan will claim."""
        claim = replace(super().claim(config, plan), lifetime_delta=self.lifetime_delta(plan))
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
        """Say what the rounds take, and which noise they have if the clients choose k."""
        lines = super().cost_lines(config, plan)
        if plan.choose_k:
            noise = f"the noise of all rounds is that of {format_count(plan.k, 'cluster')}"
            lines.append(PlanLine("k", f"the clients choose it from the last centres; {noise}"))
        if (asks := asked_quality(plan, plan.d)) is not None:
            said = asks.outlook(plan.noise_deviations(plan.moving)[1], plan.n_total)
            moving = [release for release in plan.all_releases() if release.round < plan.moving]
            without, less = spent(moving, plan.delta), 100.0 * (1.0 - math.sqrt(1.0 - plan.quality))
            share = f"it has {100.0 * plan.quality:.3g} % of 1/sigma^2"
            price = f"epsilon {without:.3g} for the same noise, or {less:.2g} % less noise for {plan.epsilon:g}"
            lines.append(PlanLine("quality", f"{said}; {share}; without it, {price}"))
        return lines

    def work(self, config: RunConfig, plan: Plan) -> Work:
        """Estimate what a run computes."""
        return estimate_work(config, plan)

    def noise_lines(self, plan: Plan) -> list[PlanLine]:
        """Say what noise each round has."""
        return [*super().noise_lines(plan), *round_lines(plan)]

    def privacy_lines(self, config: RunConfig, plan: Plan) -> list[PlanLine]:
        """Say what a run promises."""
        none = "none on the result; only the sums of each round are masked"
        return super().privacy_lines(config, plan) if plan.private else [PlanLine("privacy", none)]

    def about_ranges(self, protocol: str) -> str | None:
        """Say what the ranges of sizes and centres are about, if it is not what the last step counted."""
        return _NEAREST if protocol == PLUS else None

    def who_sees(self, protocol: str, parameters: Mapping[str, Any]) -> Sights:
        """Return who sees what, the network left out."""
        private = protocol != "lloyd"
        sums = f"{'noisy' if private else 'exact'} sums and counts of each cluster in each round, hence the centroids"
        learns = sums + (_beginning(parameters) if protocol == PLUS else "") + _ending(parameters)
        published = "the exact counts of the last round, if the server kept the noise that it drew; perhaps exact sums"
        return masked_sights(parameters, sums=sums, learns=learns, published=published, private=private)

    def data_flow(self, protocol: str, facts: Mapping[str, Any]) -> Flow:
        """Return where data are and go."""
        return masked_flow(facts, private=protocol != "lloyd")


def _beginning(parameters: Mapping[str, Any]) -> str:
    """Return what fastlloyd-plus shows beyond fastlloyd: as planned, or both ways to begin if no plan is known."""
    plus = parameters.get("plus")
    if plus is None:
        return f"; before that {_SURVEY}, or with up to three features perhaps {_HISTOGRAM}"
    said = f"; before that {_HISTOGRAM if plus['cells'] else _SURVEY}" if plus["cells"] or plus["survey"] else ""
    first, k = plus["stages"][0], parameters["k"]
    if first["clusters"] > k:
        rounds = format_count(first["rounds"], "round")
        steps = " step by step" if len(plus["stages"]) > 2 else ""
        said = f", in the first {rounds} of {first['clusters']} clusters, which are then merged{steps} to {k}{said}"
    return said


def _ending(parameters: Mapping[str, Any]) -> str:
    """Return what the last round shows on the quality of the clusters."""
    if not parameters.get("quality"):
        return ""
    several = "the silhouettes of several numbers of clusters" if parameters.get("least_k") else "how good they are"
    return f"; at the end noisy sums over all records, hence {several}"


def _files(end: ClientResult, chosen: int) -> dict[str, str]:
    """Return the files on the quality of the clusters."""
    judged = [one for one in end.quality if isinstance(one, Judged)]
    curve = [one for one in end.quality if isinstance(one, OfNumber)]
    files = {"quality.csv": quality_csv(judged)} if judged else {}
    return {**files, **({"silhouettes.csv": silhouettes_csv(curve, chosen)} if curve else {})}


def _measured(end: ClientResult) -> dict[str, tuple[float, float, float]]:
    """Return the figures on the quality of the clusters that are shown, with their ranges."""
    return {
        one.measure: (one.estimate, one.low, one.high)
        for one in end.quality
        if isinstance(one, Judged) and one.estimate is not None and one.low is not None and one.high is not None
    }


def round_lines(plan: Plan) -> list[PlanLine]:
    """Describe what each round asks for, and all noise on it; consecutive equal rounds share a line."""
    lines = []
    for words, group in groupby(range(len(plan.rounds)), lambda t: _round_words(plan, t)):
        same = tuple(group)
        lines.append(PlanLine(f"  {name_rounds(*same)}{', each' if len(same) > 1 else ''}", words))
    return lines


def _round_words(plan: Plan, t: int) -> str:
    """Describe what round t asks for."""
    planned, grid = plan.rounds[t], 2.0**plan.fraction_bits
    sums, counts = planned.sum_scale * plan.all_noise / grid, planned.count_scale * plan.all_noise / grid
    if planned.cells:
        return f"histogram of {format_count(planned.cells, 'cell')}, noise on a count {counts:.3g}"
    if planned.numbers:
        return f"{format_count(planned.numbers, 'number')} on the quality of the clusters, noise on each {counts:.3g}"
    largest = "at most " if plan.plus is not None else ""
    radius = "" if planned.radius is None else f"radius {largest}{planned.radius / grid:.3g}, "
    if planned.clusters != plan.k:
        radius = f"{format_count(planned.clusters, 'cluster')}, {radius}"
    records = plan.n_total / planned.clusters
    count, centre = f"{radius}noise on a count", "an average cluster's centre"
    if plan.is_survey(t):
        count, centre, records = "survey of all records, noise on their number", "their middle", plan.n_total
    percent = 100 * sums / records / 2
    return f"{count} {counts:.3g}; on a coordinate of {centre} {percent:.2f} % of the feature's range"


PROTOCOL = FastLloydFamily()
