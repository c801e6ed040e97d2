"""The noise in the released numbers, stage by stage: what left the parties less the exact statistic of their data.

An audit bounds epsilon of all stages together, so it cannot see one stage with too little noise where the others hide
it. Here every released coordinate is turned into a standard normal by the law that the ledger's entry states
(probability integral transform, at random within an atom). Their squares add up to a chi-square variable: a noise of
another size shows, too little or too much.

The noise comes from fixed keys, so a test gives the same result each time; with fresh ones each stage would give a
false alarm with probability `ALARM`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.signal import fftconvolve

from fastlloyd.kmeans.grid import quantise, round_centers
from fastlloyd.lifecycle.masked_sums import NoisyMaskedSum, vector_format
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import NO_HISTORY, continue_history
from fastlloyd.privacy.release import GAUSSIAN_SHARES, LAPLACE_SHARES, Release
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.rounds import first_centers, local_update, post_process
from fastlloyd.protocols.feddp.client import statistics_of
from fastlloyd.protocols.feddp.messages import CentersMessage
from fastlloyd.protocols.feddp.plan import Plan as FeddpPlan
from fastlloyd.protocols.feddp.server import REPLIES
from fastlloyd.protocols.feddp.settings import LLOYD, OUTER, WEIGHTS
from fastlloyd.wire.header import PartyId, clients
from tests.protocols.feddp.support import Data, parts_of
from tests.protocols.feddp.support import run as run_feddp
from tests.protocols.support import common_masks, run

ALARM = 1e-6

Integers = NDArray[np.int64]
Stages = Mapping[tuple[int, str], NDArray[np.float64]]
"""Round and name of a release to the standard normals that its noise was turned into."""


def wrong_stages(stages: Stages) -> set[tuple[int, str]]:
    """Return the stages whose noise is not what the ledger says."""
    return {key for key, scores in stages.items() if not has_unit_variance(scores)}


def has_unit_variance(scores: NDArray[np.float64]) -> bool:
    """Test standard normals by the sum of their squares."""
    level = stats.chi2(scores.size).cdf((scores**2).sum())
    return bool(ALARM / 2 < level < 1 - ALARM / 2)


def normal_scores(release: Release, noise: Integers, coins: np.random.Generator) -> NDArray[np.float64]:
    """Turn noise, of all shares together, into standard normals, if it has the release's law."""
    if release.mechanism == "gaussian":
        return noise / release.noise_scale
    if release.mechanism == GAUSSIAN_SHARES:
        return noise / (release.noise_scale * np.sqrt(release.clients / (release.clients - release.known)))
    if release.mechanism == "laplace":
        law = stats.laplace(scale=release.noise_scale)
        below, above = law.cdf(noise - 0.5), law.cdf(noise + 0.5)
    else:
        assert release.mechanism == LAPLACE_SHARES
        return polya_scores(release.clients / (release.clients - release.known), release.noise_scale, noise, coins)
    return _scores_between(below, above, coins)


def polya_scores(shape: float, scale: float, noise: Integers, coins: np.random.Generator) -> NDArray[np.float64]:
    """Turn differences of two Polya variables of this shape into standard normals."""
    width, total = _polya_table(shape, scale)
    middle = total.size // 2 - 1
    place = np.clip(np.floor_divide(noise + width // 2, width) + middle, 0, total.size - 2)
    return _scores_between(total[place], total[place + 1], coins)


def _scores_between(
    below: NDArray[np.float64], above: NDArray[np.float64], coins: np.random.Generator
) -> NDArray[np.float64]:
    """Draw a position within each atom, from P(X < x) to P(X <= x), and turn it into a standard normal."""
    position = below + coins.random(below.shape) * (above - below)
    return stats.norm.ppf(np.clip(position, 1e-15, 1.0 - 1e-15))


@lru_cache(maxsize=64)
def _polya_table(shape: float, scale: float) -> tuple[int, NDArray[np.float64]]:
    """Return the distribution in steps of `width`, small against the scale: what that blurs no test here could see."""
    width = max(1, int(scale) // 40)
    edges = np.arange(0, 50 * scale, width)
    one = np.diff(stats.nbinom(shape, -np.expm1(-1.0 / scale)).cdf(edges - 1), append=1.0)
    mass = np.maximum(fftconvolve(one, one[::-1]), 0.0)
    return width, np.concatenate([[0.0], np.cumsum(mass) / mass.sum()])


def join_stages(runs: Iterable[Stages]) -> Stages:
    """Put several runs' scores together."""
    found: dict[tuple[int, str], list[NDArray[np.float64]]] = defaultdict(list)
    for stages in runs:
        for key, scores in stages.items():
            found[key].append(scores)
    return {key: np.concatenate(parts) for key, parts in found.items()}


def lloyd_stages(
    points: NDArray[np.float64],
    plan: Plan,
    noise: Callable[[int], Integers],
    coins: np.random.Generator,
) -> Stages:
    """Run FastLloyd's parties and look at what the clients unmask.

    Parameters
    ----------
    points : float64 array, shape (n, d)
    plan : Plan
    noise : callable
        The server's noise of a round, or with pairwise masks one client's share of it, drawn anew in each call.
    coins : Generator
    """
    everybody, ring = clients(plan.clients), Ring(plan.ring_bits)
    parts = [quantise(part, plan.fraction_bits) for part in np.array_split(points, plan.clients)]
    shared, masks = plan.masking == "pairwise", common_masks(plan.clients)
    if shared:
        simulation = run(points, plan, share=lambda me, t: noise(t)).simulation
    else:
        simulation = run(points, plan, masks=masks, noise=noise).simulation
    centers = first_centers(plan)
    found: dict[tuple[int, str], NDArray[np.float64]] = {}
    history = NO_HISTORY
    for t in range(len(plan.rounds)):
        form = vector_format(plan, t)
        reply = NoisyMaskedSum.read(simulation.saved[everybody[-1], f"reply-{t}"], form)
        released = reply.elements(form)
        if not shared:
            released = released - masks[everybody[0]].shaped(ring, form.elements).total(t, reply.included, history)
        released = ring.decode(released)
        rest = released - sum(local_update(own, centers, plan, t) for own in parts)
        edges = [0, *np.cumsum([length for length in plan.lengths(t) if length]).tolist()]
        releases = [release for release in simulation.releases[everybody[0]] if release.round == t]
        for release, low, high in zip(releases, edges[:-1], edges[1:], strict=True):
            found[t, release.name] = normal_scores(release, rest[low:high], coins)
        centers = post_process(released, centers, plan, t)
        history = continue_history(history, reply.body())
    return found


def feddp_stages(
    data: Data,
    plan: FeddpPlan,
    share: Callable[[PartyId, int, int], Integers],
    coins: np.random.Generator,
) -> Stages:
    """Run FedDP-KMeans's parties and add up what the server receives; parameters as for `lloyd_stages`."""
    everybody = clients(plan.clients)
    saved = (outcome := run_feddp(data, plan, share=share)).simulation.saved
    owners = [
        statistics_of(quantise(data.points[rows], plan.fraction_bits), plan, data.users[rows] if plan.by_user else None)
        for rows in parts_of(data, plan.clients, by_user=plan.by_user)
    ]
    found: dict[tuple[int, str], NDArray[np.float64]] = {}
    projection = centers = None
    for t, step in enumerate(plan.rounds):
        ring = Ring(plan.ring_of(t))
        received = sum(np.frombuffer(saved[me, f"uplink-{t}"], dtype=ring.dtype) for me in everybody)
        if step.kind == OUTER:
            exact = sum(own.outer_product() for own in owners)
        elif step.kind == WEIGHTS:
            exact = sum(own.weights(projection) for own in owners)
        elif step.kind == LLOYD:
            exact = sum(own.lloyd_step(centers) for own in owners)
        else:
            exact = sum(own.projected_step(projection, centers) for own in owners)
        rest = ring.decode(np.asarray(received)) - exact
        releases = [r for r in outcome.simulation.releases[everybody[0]] if r.round == t]
        at = rest.size if len(releases) == 1 else plan.k * plan.d
        for release, noise in zip(releases, (rest[:at], rest[at:]), strict=False):
            found[t, release.name] = normal_scores(release, noise, coins)
        reply = REPLIES.get(step.kind, CentersMessage).read(saved[everybody[0], f"reply-{t}"], plan)
        if step.kind == OUTER:
            projection = reply.projection
        elif step.kind == WEIGHTS:
            centers = reply.found.centers
        else:
            centers = round_centers(reply.found.exact, plan.fraction_bits)
    return found
