"""An empirical audit: a client that unmasks every noisy vector tells whether one record is there.

The attacker is client 1, without records of its own. Client 2 holds many known records (the anchors, which keep
every cluster's centre near a known place) and, by a coin for each cluster, one more: the canary, as far from
its centre as the sensitivity allows. Knowing all but the coins, the attacker computes the centres of every round
from the releases, subtracts what the anchors add to a cluster's row, and compares the likelihoods of the rest with and
without the canary: the most powerful test there is. It does so for all releases together, and for the sums, the
counts and each round by themselves, in case one of them has less noise than the ledger says; and by differences and
ratios of coordinates and of neighbouring rows (`combined_scores`), in case their noise depends on each other's.
Clusters have rows of their own, with noise of their own, so one run gives one independent trial per cluster.

Bounds: for an (epsilon, delta)-DP mechanism every test has TPR <= e^epsilon FPR + delta. Releases, direction and
threshold are chosen on the first half of the trials; on the second half Clopper-Pearson bounds, each failing with
probability at most `alarm` / 2, give epsilon >= ln((TPR_low - delta) / FPR_high). For a mechanism that is mu-GDP they
also give mu >= Phi^-1(TPR_low) - Phi^-1(FPR_high), which is sharper, and epsilon follows from mu.

Source: Jagielski et al., "Auditing differentially private machine learning" (2020); Nasr et al., "Tight auditing of
differentially private machine learning" (2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

from fastlloyd.kmeans.update import split
from fastlloyd.lifecycle.masked_sums import NoisyMaskedSum, VectorFormat, vector_format
from fastlloyd.masking.mask import NO_HISTORY, continue_history
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.rounds import Centers, first_centers, post_process
from fastlloyd.wire.header import PartyId
from tests.protocols.support import common_masks, run

ATTACKER = PartyId(1)
_QUANTILES = 400

Noise = Callable[[int], NDArray[np.int64]]


@dataclass(frozen=True)
class Scene:
    """What the attacker knows beforehand.

    Attributes
    ----------
    plan : Plan
        For two clients.
    start : float64 array, shape (k, d)
        Public centres of round 0, scaled.
    sites : float64 array, shape (k, d)
        Where each cluster's anchors lie, on the grid.
    anchors : int
        How many anchors lie at each site.
    canaries : float64 array, shape (k, d)
        One for each cluster, on the grid.
    """

    plan: Plan
    start: NDArray[np.float64]
    sites: NDArray[np.float64]
    anchors: int
    canaries: NDArray[np.float64]


@dataclass(frozen=True)
class Trials:
    """What the attacker computed, and the truth.

    Attributes
    ----------
    scores : float64 array, shape (trials, rounds, 2)
        Log likelihood ratio of "present" to "absent" by the sums and by the counts of each round.
    present : bool array, shape (trials,)
    combined : float64 array, shape (trials, views), optional
        By differences and ratios.
    """

    scores: NDArray[np.float64]
    present: NDArray[np.bool_]
    combined: NDArray[np.float64] | None = None

    def views(self) -> list[NDArray[np.float64]]:
        """Return the scores by all releases, by sums, by counts, and by each round; shape (trials,) each."""
        parts = [self.scores.sum(axis=(1, 2)), *self.scores.sum(axis=1).T]
        return parts + (list(self.scores.sum(axis=2).T) if self.scores.shape[1] > 1 else [])


def combined_scores(
    rest: NDArray[np.float64], moves: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Score each row's canary by what independent noise would make worse: differences and ratios.

    Parameters
    ----------
    rest : float64 array, shape (k, c)
        What is released less what the attacker knows.
    moves : float64 array, shape (k, c)
        What each row's canary adds.
    scale : float64 array, shape (c,)
        The noise's, by coordinate.

    Returns
    -------
    float64 array, shape (k, views)
        Of each two neighbouring coordinates of a row, the last and the first among them, in units of their noise, the
        difference and the ratio; of each coordinate the difference from the next row's, for every second row (so that
        trials stay independent).

    Notes
    -----
    The difference of numbers whose noise is one draw, or multiples of it, has none; their ratio is 1 without a canary.
    """
    seen, expected = rest / scale, moves / scale
    away, due = seen - np.roll(seen, -1, axis=1), expected - np.roll(expected, -1, axis=1)
    within = (away - due / 2.0) * due
    sizes = np.log(np.maximum(np.abs(seen), 1e-300))
    ratios = np.abs(sizes - np.roll(sizes, -1, axis=1))
    across = (seen - np.roll(seen, -1, axis=0) - expected / 2.0) * expected
    across[1::2] = 0.0
    if len(rest) % 2:
        across[-1] = 0.0
    return np.concatenate([within, ratios, across], axis=1)


def collect(
    scene: Scene,
    runs: int,
    coins: np.random.Generator,
    noise: Callable[[], Noise],
    known_noise: Callable[[], Noise] | None = None,
) -> Trials:
    """Run the protocol and attack it, `runs` times.

    Parameters
    ----------
    noise : callable
        Makes the noise source of one run: the server's, or that of each client's shares with pairwise masks.
    known_noise : callable, optional
        Makes the attacker's copy of that source, if it can have one.
    """
    present = coins.random((runs, scene.plan.k)) < 0.5
    scores = np.empty((*present.shape, len(scene.plan.rounds), 2))
    combined = np.empty((*present.shape, len(scene.plan.rounds) * 3 * (scene.plan.d + 1)))
    for i in range(runs):
        if scene.plan.masking == "pairwise":
            scores[i], combined[i] = _attack(scene, *_run_shares(scene, present[i], noise()))
            continue
        released = _run(scene, present[i], noise())
        scores[i], combined[i] = _attack(scene, released, known_noise() if known_noise is not None else None)
    return Trials(scores.reshape(-1, *scores.shape[2:]), present.ravel(), combined.reshape(-1, combined.shape[2]))


def epsilon_bound(trials: Trials, delta: float, alarm: float) -> float:
    """Return an epsilon that any (epsilon, delta)-DP mechanism falls below with probability at most `alarm`."""

    def bound(tpr: NDArray[np.float64], fpr: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log(np.maximum(tpr - delta, 1e-300) / fpr)

    return max(0.0, _best_bound(trials, bound, alarm))


def gaussian_bound(trials: Trials, alarm: float) -> float:
    """Return a mu that any mu-GDP mechanism falls below with probability at most `alarm`."""

    def bound(tpr: NDArray[np.float64], fpr: NDArray[np.float64]) -> NDArray[np.float64]:
        return norm.ppf(tpr) - norm.ppf(fpr)

    return max(0.0, _best_bound(trials, bound, alarm))


def _run_shares(scene: Scene, present: NDArray[np.bool_], noise: Noise) -> tuple[list[NDArray[np.int64]], Noise]:
    """Run all parties with pairwise masks; give the sums that server and client 1 see, and client 1's own shares."""
    own = dict[int, NDArray[np.int64]]()

    def share(me: PartyId, t: int) -> NDArray[np.int64]:
        drawn = noise(t)
        if me == ATTACKER:
            own[t] = drawn
        return drawn

    return [
        shape.ring.decode(reply.elements(shape)) for shape, reply in _replies(scene, present, share=share)
    ], own.__getitem__


def _run(scene: Scene, present: NDArray[np.bool_], noise: Noise) -> list[NDArray[np.int64]]:
    """Run all parties; give what client 1 unmasks, one vector for each round."""
    masks = common_masks(2)
    released, history = [], NO_HISTORY
    for t, (shape, reply) in enumerate(_replies(scene, present, masks=masks, noise=noise)):
        mask = masks[ATTACKER].shaped(shape.ring, shape.elements).total(t, reply.included, history)
        released.append(shape.ring.decode(reply.elements(shape) - mask))
        history = continue_history(history, reply.body())
    return released


def _replies(scene: Scene, present: NDArray[np.bool_], **chosen: Any) -> list[tuple[VectorFormat, NoisyMaskedSum]]:
    """Run the rounds, all records being client 2's; give the format of each round's reply, and what client 1 got."""
    plan = scene.plan
    points = np.concatenate([np.repeat(scene.sites, scene.anchors, axis=0), scene.canaries[present]])
    parts = [np.arange(0), np.arange(len(points))]
    saved = run(points, plan, parts=parts, start=scene.start, **chosen).simulation.saved
    shapes = [vector_format(plan, t) for t in range(len(plan.rounds))]
    return [(shape, NoisyMaskedSum.read(saved[ATTACKER, f"reply-{t}"], shape)) for t, shape in enumerate(shapes)]


def _attack(
    scene: Scene, released: list[NDArray[np.int64]], known: Noise | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the log likelihood ratios of each canary's presence, shape (k, rounds, 2), and the combined scores."""
    plan = scene.plan
    ratios = np.zeros((plan.k, len(released), 2))
    combined = np.zeros((plan.k, len(released), 3 * (plan.d + 1)))
    centers = first_centers(plan, scene.start)
    for t, noisy in enumerate(released):
        clean = noisy if known is None else noisy - known(t)
        labels, moves = _contributions(scene.canaries, centers, plan, t)
        at, per_anchor = _contributions(scene.sites, centers, plan, t)
        residual = _rows(clean, plan)
        np.subtract.at(residual, at, scene.anchors * per_anchor)
        # A canary that left its cluster for this round is not scored: its row could hold another one.
        own = (labels == np.arange(plan.k)) & (np.bincount(labels, minlength=plan.k) == 1)
        ratios[own, t] = _log_ratios(residual, moves, plan, t)[own]
        sums, counts = plan.releases(t)
        scale = np.array([sums.noise_scale] * plan.d + [counts.noise_scale])
        combined[own, t] = combined_scores(residual, moves, scale)[own]
        centers = post_process(noisy, centers, plan, t)
    return ratios, combined.reshape(plan.k, -1)


def _contributions(
    points: NDArray[np.float64], centers: Centers, plan: Plan, t: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return each point's label and what it adds to that row: d sums and a count, in grid units."""
    x = np.rint(points * float(1 << plan.fraction_bits)).astype(np.int64)
    lengths = [np.einsum("ij,ij->i", rows, rows) for rows in (x, centers.grid)]
    squares = lengths[0][:, None] - 2 * (x @ centers.grid.T) + lengths[1]
    labels = squares.argmin(axis=1)
    radius = plan.rounds[t].radius
    kept = np.ones(len(x), dtype=bool) if radius is None else squares.min(axis=1) <= radius * radius
    sums = x - centers.grid[labels] if plan.relative else x
    counts = np.full((len(x), 1), 1 << plan.fraction_bits)
    return labels, np.concatenate([sums, counts], axis=1) * kept[:, None].astype(np.float64)


def _rows(vector: NDArray[np.int64], plan: Plan) -> NDArray[np.float64]:
    """Lay a released vector out by clusters, shape (k, d + 1)."""
    sums, counts = split(vector, plan.k, plan.d)
    return np.concatenate([sums, counts[:, None]], axis=1).astype(np.float64)


def _log_ratios(residual: NDArray[np.float64], moves: NDArray[np.float64], plan: Plan, t: int) -> NDArray[np.float64]:
    """Return ln p(residual | present) - ln p(residual | absent) of a row's sums and count, under the ledger's noise."""
    sums, counts = plan.releases(t)
    scale = np.array([sums.noise_scale] * plan.d + [counts.noise_scale])
    if sums.norm == "l1":
        ratios = (np.abs(residual) - np.abs(residual - moves)) / scale
    else:
        ratios = (residual - moves / 2.0) * moves / scale**2
    return np.stack([ratios[:, :-1].sum(axis=1), ratios[:, -1]], axis=1)


def _best_bound(
    trials: Trials,
    bound: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]],
    alarm: float,
) -> float:
    """Choose releases, direction and threshold on the first half of the trials, evaluate them on the second.

    Combined scores share half of the alarm: where noise is dependent, so are the trials of one run, and the first half
    may make another score look best.
    """
    if trials.combined is None:
        return _bound_of(trials.views(), trials.present, bound, alarm)
    each = alarm / 2.0 / trials.combined.shape[1]
    return max(
        _bound_of(trials.views(), trials.present, bound, alarm / 2.0),
        *(_bound_of([view], trials.present, bound, each) for view in trials.combined.T),
    )


def _bound_of(
    views: list[NDArray[np.float64]],
    present: NDArray[np.bool_],
    bound: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]],
    alarm: float,
) -> float:
    """Choose one of these scores, direction and threshold on the first half, evaluate them on the second."""
    half = len(present) // 2
    levels = np.linspace(0.0, 1.0, _QUANTILES)
    best, chosen = -math.inf, (present[:0] + 0.0, present[:0], np.zeros(1))
    for view in views:
        # Accept "present", or accept "absent": neighbours go both ways.
        for scores, truth in ((view, present), (-view, ~present)):
            # Laplace scores have atoms: a threshold between two of them would be a rounding error off one.
            thresholds = np.unique(np.quantile(scores[:half], levels, method="lower"))
            values = bound(*_rates(scores[:half], truth[:half], thresholds, alarm))
            i = int(values.argmax())
            if values[i] > best:
                best, chosen = float(values[i]), (scores[half:], truth[half:], thresholds[i : i + 1])
    return float(bound(*_rates(*chosen, alarm))[0])


def _rates(
    scores: NDArray[np.float64], truth: NDArray[np.bool_], thresholds: NDArray[np.float64], alarm: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a lower bound on the true and an upper bound on the false positive rate per threshold."""
    hits, false = np.sort(scores[truth]), np.sort(scores[~truth])
    true_positive = len(hits) - np.searchsorted(hits, thresholds, side="left")
    false_positive = len(false) - np.searchsorted(false, thresholds, side="left")
    low = beta.ppf(alarm / 2.0, true_positive, len(hits) - true_positive + 1)
    high = beta.isf(alarm / 2.0, false_positive + 1, len(false) - false_positive)
    # No hit: nothing is known from below; all false: nothing from above.
    return np.where(true_positive == 0, 0.0, low), np.where(false_positive == len(false), 1.0, high)
