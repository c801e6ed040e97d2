"""What a run of masked sums computes, for `plan`: what a client does with its records measured, the rest by numbers.

The times of operations were measured once, on the machine of the benchmarks; `run/work.py` scales them to the machine
that asks.

Compared with runs: papers/benchmarks/planned_work.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np

from fastlloyd.kmeans.initial import packing_units
from fastlloyd.masking.threshold.parts import Parts
from fastlloyd.privacy.noise.sampler import round_laplace, round_normal
from fastlloyd.privacy.release import GAUSSIAN_SHARES, LAPLACE_SHARES, NORM_OF, Release
from fastlloyd.privacy.shares import draw_gaussian_parts, draw_laplace_parts
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import share_caps
from fastlloyd.run.work import Linear, Work, machine_factor, measured, measured_linear

SAMPLE_UNITS = 1 << 24
"""Products of records, clusters and features that a sample of records takes at most."""
MOST_TRIED = 2e9
"""Units of `packing_units` that a plan tries out at most, in some 20 seconds."""
_SAMPLE_DRAWS = 1 << 12
# A party's session from hello to shutdown, and for each other client in it; a name and bounds of a feature; a value of
# a record, put on the grid and into the digest; a composition of Gaussian and Laplace noise.
_SESSION_S, _OTHER_S, _FEATURE_S, _VALUE_S, _COMPOSITION_S = 1.5e-3, 1.5e-5, 1.6e-6, 1.1e-8, 0.022
# An agreement with another client; a round at a client, and for each other client with pairwise or threshold masks.
_PAIR_S, _ROUND_S, _PAIRWISE_S, _THRESHOLD_S = 1e-4, 3e-4, 1.5e-5, 9e-5
# A number of a vector at its client, with threshold masks beside, from another client with pairwise masks, and at the
# server; a number in the result's files.
_NUMBER_S, _OPENED_S, _STREAM_S, _ADDED_S, _WRITTEN_S = 1.3e-7, 2e-7, 1e-8, 5e-8, 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSteps:
    """What one client computes besides masks and noise, in processor seconds on this machine.

    Attributes
    ----------
    round : Linear
        Its records' sums, and the next state.
    start, step : float
        The public state before round 0; a step from the noisy sums to the next state.
    labels : Linear
        After the last round.
    """

    round: Linear
    labels: Linear
    start: float = 0.0
    step: float = 0.0


def masked_work(config: RunConfig, plan: Any, own: OwnSteps, *, centers: int) -> Work:
    """Estimate what a run of N records computes.

    Parameters
    ----------
    config : RunConfig
    plan : NoisyPlan
    own : OwnSteps
    centers : int
        Numbers in the result's centres.
    """
    rounds, numbers = len(plan.rounds), [plan.elements(t) for t in range(len(plan.rounds))]
    mean = round(sum(numbers) / rounds)
    caps = share_caps(config, plan.clients, plan.n_total)
    # Nearly all numbers have the first release's noise.
    releases = plan.releases(rounds - 1)
    setup = [own.start + setup_seconds(plan, n, releases) for n in caps]
    client, server = exchange_seconds(plan, [(releases[0], mean)])
    each = [own.round.of(n) + own.step + client for n in caps]
    ending = [own.labels.of(n) + written_seconds(centers) for n in caps]
    return Work(
        rounds=rounds,
        setup=sum(setup) + setup_seconds(plan, 0, releases),
        round=sum(each) + server,
        setup_wait=max(setup),
        round_wait=max(each) + server,
        ending=sum(ending),
        messages=4 if plan.masking == "threshold" else 2,
    )


def sums_work(protocol: Any, config: RunConfig, plan: Any) -> Work | str:
    """Estimate what a run of a `MaskedSums` computes: its author's steps are measured, on made-up records and sums.

    Parameters
    ----------
    protocol : MaskedSums
    config : RunConfig
    plan : SumsPlan
    """
    if packing_units(plan.k, plan.d) > MOST_TRIED:
        return "there are too many clusters and features to try its first state and its steps out"
    random, rounds = np.random.default_rng(0), len(plan.rounds)
    begin = time.process_time()
    state = protocol.start(plan)
    start = time.process_time() - begin
    largest = max(share_caps(config, plan.clients, plan.n_total))
    sample = max(1, min(largest, max(64, SAMPLE_UNITS // (plan.k * plan.d + plan.elements(0)) // 8)))

    def added(n: int) -> Callable[[], object]:
        return partial(protocol.vector, protocol.sample(plan, n), state, plan)

    def labelled(n: int) -> Callable[[], object]:
        return partial(protocol.labels, protocol.sample(plan, n), state)

    noisy = {part.name: random.uniform(0.5, 1.5, part.shape) * plan.n_total / plan.k for part in plan.parts}
    after = protocol.step(noisy, state, plan, 0)
    noise = measured(lambda: protocol.result_noise(plan, [(noisy, state)] * rounds, after), 1)
    labels = measured_linear(labelled, sample)
    own = OwnSteps(
        round=measured_linear(added, sample),
        labels=Linear(labels.fixed + noise, labels.each),
        start=start,
        step=measured(lambda: protocol.step(noisy, state, plan, 0), 3),
    )
    return masked_work(config, plan, own, centers=plan.k * plan.d)


def setup_seconds(plan: Any, n: int, releases: Sequence[Release]) -> float:
    """Return the processor seconds of a party with n records before round 0, its own start left out."""
    others: int = plan.clients
    d = len(plan.names)
    pairs = 0.0 if plan.masking == "common" or n == 0 else others * _PAIR_S
    mixed = plan.delta > 0.0 and any(NORM_OF.get(release.mechanism) == "l1" for release in releases)
    accounting = _COMPOSITION_S * mixed
    return machine_factor() * (_SESSION_S + others * _OTHER_S + pairs + d * (_FEATURE_S + n * _VALUE_S) + accounting)


def written_seconds(numbers: int) -> float:
    """Return the processor seconds of a party's files of a result of this many numbers."""
    return machine_factor() * numbers * _WRITTEN_S


def exchange_seconds(plan: Any, noises: Sequence[tuple[Release, int]]) -> tuple[float, float]:
    """Return the processor seconds of masks, noise and messages of a round: of one client, and of the server.

    Parameters
    ----------
    plan : NoisyPlan
    noises : sequence of (Release, int)
        Which noise is on how many numbers of the round's vector.
    """
    factor, others, numbers = machine_factor(), plan.clients, sum(count for _, count in noises)
    client, server = _ROUND_S + numbers * _NUMBER_S, others * (_ROUND_S / 4 + numbers * _ADDED_S)
    parts = (plan.share if plan.in_shares else Fraction(1),)
    if plan.masking == "pairwise":
        client += others * (_PAIRWISE_S + numbers * _STREAM_S)
    elif plan.masking == "threshold":
        client += others * _THRESHOLD_S + numbers * _OPENED_S
        parts = tuple(plan.share * shape for shape in Parts(plan.numbers, Fraction(1 << 40)).shapes)
    noise = 0.0
    for release, count in noises:
        noise += count * _draw_seconds(release.mechanism, release.noise_scale, parts)
    if plan.masking == "common":
        return factor * client, factor * server + noise
    return factor * client + noise, factor * server


@cache
def _draw_seconds(mechanism: str, scale: float, parts: tuple[Fraction, ...]) -> float:
    """Measure how long one number's noise takes: of the server, or of one client in all its parts."""
    count, secret = _SAMPLE_DRAWS, SecretRandom()

    def draw() -> object:
        if mechanism in (GAUSSIAN_SHARES, LAPLACE_SHARES):
            of = draw_gaussian_parts if mechanism == GAUSSIAN_SHARES else draw_laplace_parts
            return of([(scale, count)], parts, [secret] * len(parts))
        return (round_normal if mechanism == "gaussian" else round_laplace)(scale, count, secret)

    return 0.0 if mechanism == "none" else measured(draw, 3) / count
