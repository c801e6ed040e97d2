"""The numbers of one round: start, local update, noise and post-processing; for fastlloyd-plus see `plus.py`.

After the last round that moves centres, one may ask how good the clusters are (`describe/quality.py`).

After the last round of fastlloyd-plus with `--k auto:KMAX` its clusters are merged to the number that the data support.
Each client computes it from releases: post-processing, which spends no privacy. The noise of all rounds is that of KMAX
clusters.

Source: FastLloyd, Alg. 1 lines 3, 6 to 13 (local update) and 18 to 20 (post-processing); docs/fastlloyd-plus.md,
"Choosing k".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastlloyd.describe.quality import Judged, OfNumber, QualityVector, SilhouetteVector, middle_of
from fastlloyd.kmeans.assign import accumulate, add_up
from fastlloyd.kmeans.grid import GridPoints, round_centers
from fastlloyd.kmeans.initial import sphere_packing, to_grid
from fastlloyd.kmeans.merging import Merging, gather, merge, merge_each
from fastlloyd.kmeans.update import bring_inside, clip_step, join, move, split, truncate
from fastlloyd.privacy.noise.sampler import round_laplace, round_normal
from fastlloyd.privacy.release import GAUSSIAN_SHARES, SHARED
from fastlloyd.privacy.shares import draw_gaussian_parts, draw_laplace_parts
from fastlloyd.protocols.fastlloyd.plan import Plan, asked_quality
from fastlloyd.protocols.fastlloyd.plus import first_state, next_state, plus_update
from fastlloyd.protocols.fastlloyd.plus_grid import State
from fastlloyd.protocols.fastlloyd.plus_plan import GRID_FEATURES
from fastlloyd.randomness.secret import SecretRandom


@dataclass(frozen=True, slots=True)
class Centers:
    """The centres of one round; public among the clients.

    Attributes
    ----------
    exact : float64 array, shape (k, d)
        Scaled domain.
    grid : int64 array, shape (k, d)
        The same on the grid of 2^-q: what points are compared with.
    noisy_counts : float64 array, shape (k,)
        Of the round that made them; zeros for the start.
    state : State or None
        State of fastlloyd-plus.
    released : int64 array, shape (k (d + 1),), or None
        The noisy sums and counts of the round that made them; None for the start.
    """

    exact: NDArray[np.float64]
    grid: NDArray[np.int64]
    noisy_counts: NDArray[np.float64]
    state: State | None = None
    released: NDArray[np.int64] | None = None


def first_centers(plan: Plan, start: NDArray[np.float64] | None = None) -> Centers:
    """Return the public start: sphere packing (line 3), or given centres, shape (k, d), scaled.

    With neither survey nor histogram, fastlloyd-plus starts from half the packed points if it has more than
    `GRID_FEATURES` features.
    """
    if start is None:
        halved = plan.plus is not None and not plan.plus.first and plan.d > GRID_FEATURES
        packed = sphere_packing(plan.rounds[0].clusters, plan.d, plan.seed)  # line 3
        grid = to_grid(packed, plan.fraction_bits - halved)
    else:
        grid = round_centers(np.asarray(start, dtype=np.float64), plan.fraction_bits)
    state = None if plan.plus is None else first_state(plan, given=start is not None)
    return Centers(grid / float(1 << plan.fraction_bits), grid, np.zeros(len(grid)), state)


def local_update(points: GridPoints, centers: Centers, plan: Plan, t: int) -> NDArray[np.int64]:
    """Return one client's sums and counts, shape (k (d + 1),), counts on the grid of 2^-q as well.

    Notes
    -----
    Sees: nobody but the caller, until masked.
    Privacy: see `kmeans.assign.accumulate`; the counts are scaled by 2^q, so one record moves them by 2^q.
    Source: Alg. 1, lines 6 to 13; `plus.plus_update`.
    """
    if centers.state is not None:
        return plus_update(points, centers.grid, centers.state, plan, t)
    # Nearest centre and radius, lines 6 to 9; R and C, lines 11 to 13. The radius is kept exactly, so a point on it
    # counts, as in Eq. 4; line 8 has "<".
    raw_sums, raw_counts = accumulate(points, centers.grid, radius=plan.rounds[t].radius, relative=plan.relative)
    return join(raw_sums, raw_counts << plan.fraction_bits)


def draw_noise(plan: Plan, t: int, secret: SecretRandom) -> NDArray[np.int64]:
    """Draw the server's noise of round t in grid units, shape (plan.elements(t),); zeros where it adds none.

    Notes
    -----
    Sees: the server, which never sees the sums; the clients never see the noise.
    Source: Eq. 8 (Gaussian), Su et al. (Laplace); docs/privacy.md.
    """
    if plan.mechanism not in ("gaussian", "laplace"):
        return np.zeros(plan.elements(t), dtype=np.int64)
    # Laplace noise on each coordinate: scale b with L1 sensitivity d 2^q is epsilon = d 2^q / b for all.
    draw = round_normal if plan.mechanism == "gaussian" else round_laplace
    return np.concatenate([draw(scale, count, secret) for scale, count in _noise(plan, t)])


def draw_share(plan: Plan, t: int, share: Fraction, secret: SecretRandom) -> NDArray[np.int64]:
    """Draw one client's share of round t's noise in grid units, shape (plan.elements(t),), as `draw_parts` does."""
    drawn: NDArray[np.int64] = draw_parts(plan, t, [share], [secret])[0]
    return drawn


def draw_parts(plan: Plan, t: int, shares: Sequence[Fraction], secrets: Sequence[SecretRandom]) -> NDArray[np.int64]:
    """Draw parts of one client's share of round t's noise in grid units, shape (len(shares), plan.elements(t)).

    Zeros where the server adds the noise.

    Notes
    -----
    Sees: the client that draws it; the server and the others see sums of all clients' shares and updates.
    Privacy: m - t shares together have the scales of the plan (`privacy/shares.py`).
    """
    if plan.mechanism not in SHARED:
        return np.zeros((len(shares), plan.elements(t)), dtype=np.int64)
    draw = draw_gaussian_parts if plan.mechanism == GAUSSIAN_SHARES else draw_laplace_parts
    return draw(_noise(plan, t), shares, secrets)


def _noise(plan: Plan, t: int) -> list[tuple[float, int]]:
    """Return scale and number of elements of round t's noise on its sums, if it has any, and then on its counts."""
    planned, (sums, counts) = plan.rounds[t], plan.lengths(t)
    return [(planned.sum_scale, sums)] * bool(sums) + [(planned.count_scale, counts)]


def post_process(noisy: NDArray[np.int64], centers: Centers, plan: Plan, t: int) -> Centers:
    """Make the next centres from the noisy sums and counts, shape (k (d + 1),).

    Notes
    -----
    Sees: the clients. Post-processing of a release: no privacy is spent.
    An empty cluster keeps its centre without noise; see `kmeans.update.move` for noisy counts near zero.
    Source: Alg. 1, lines 18 to 20; `plus.next_state`.
    """
    grid = float(1 << plan.fraction_bits)
    values = noisy.astype(np.float64) / grid
    if centers.state is not None:
        exact, state = next_state(values, centers.grid / grid, centers.state, plan, t)
        return Centers(exact, round_centers(exact, plan.fraction_bits), state.counts, state, noisy)
    noisy_sums, noisy_counts = split(values, plan.rounds[t].clusters, plan.d)
    if plan.relative:
        step = move(noisy_sums, noisy_counts)  # line 19: U / C
        radius = plan.rounds[t].radius
        if plan.clip and radius is not None:
            step = clip_step(step, radius / grid)  # §5.3.5: a centre moves by eta at most
        moved = centers.grid / grid + step  # line 19: from the centre before
    else:
        moved = move(noisy_sums, noisy_counts)
        if not plan.private:
            moved = np.where((noisy_counts > 0)[:, None], moved, centers.grid / grid)
    exact = bring_inside(moved, plan.domain)  # line 20: Fold
    return Centers(exact, round_centers(exact, plan.fraction_bits), noisy_counts, released=noisy)


Floats = NDArray[np.float64]
Groups = tuple[tuple[int, ...], ...]
_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Chosen:
    """The clusters that remain after merging.

    Attributes
    ----------
    merging : Merging
        The KMAX clusters in each of them; costs in the units of the domain.
    exact : float64 array, shape (k, d)
        Their centres, scaled domain.
    grid : int64 array, shape (k, d)
        The same on the grid of 2^-q.
    noisy_counts : float64 array, shape (k,)
    """

    merging: Merging
    exact: Floats
    grid: NDArray[np.int64]
    noisy_counts: Floats


def choose_k(plan: Plan, centers: Centers) -> Chosen | None:
    """Choose the number of clusters from the last centres; None if it was given.

    Notes
    -----
    Sees: the clients. Post-processing of releases.
    """
    if not plan.choose_k:
        return None
    count_noise = plan.noise_deviations(plan.moving - 1)[1]
    merging = merge(centers.exact, centers.noisy_counts, count_noise=count_noise)
    counts = gather(centers.noisy_counts, merging.groups)
    exact = merged(centers, merging.groups)
    return Chosen(merging, exact, round_centers(exact, plan.fraction_bits), counts)


def merged(centers: Centers, groups: Groups) -> Floats:
    """Return the centres of groups of clusters, scaled domain: the means of their records."""
    found: Floats = truncate(gather(shares(centers, groups)[:, None] * centers.exact, groups))
    return found


def shares(centers: Centers, groups: Groups) -> Floats:
    """Return each cluster's share of its group's records, shape (k,); 0 for a cluster in no group."""
    held = np.maximum(centers.noisy_counts, 1.0)
    found = np.zeros(len(held))
    for group, total in zip(groups, gather(held, groups).tolist(), strict=True):
        found[list(group)] = held[list(group)] / total
    return found


@dataclass(frozen=True, slots=True)
class Asked:
    """What the last round asks on the quality of the clusters; public among the clients.

    Attributes
    ----------
    vector : QualityVector or SilhouetteVector
    sets : tuple of float64 arrays, shapes (k, d), or None
        The centres that records are compared with, scaled domain: of the result, or of each number of clusters; None
        for a number that there are not enough clusters for.
    middle : float64 array, shape (d,)
        Of the centres of the result.
    """

    vector: QualityVector | SilhouetteVector
    sets: tuple[Floats | None, ...]
    middle: Floats


def asked(plan: Plan, centers: Centers, chosen: Chosen | None) -> Asked | None:
    """Return what the last round asks, from the last centres; None if there is no such round.

    Notes
    -----
    Sees: the clients. Post-processing of releases.
    """
    vector = asked_quality(plan, plan.d)
    if vector is None:
        return None
    left = centers if chosen is None else chosen
    middle = middle_of(left.exact, left.noisy_counts)
    if isinstance(vector, QualityVector):
        return Asked(QualityVector(len(left.exact), plan.d), (left.exact,), middle)
    count_noise = plan.noise_deviations(plan.moving - 1)[1]
    each = merge_each(centers.exact, centers.noisy_counts, vector.numbers, count_noise=count_noise)
    return Asked(vector, tuple(None if groups is None else merged(centers, groups) for groups in each), middle)


def quality_update(points: GridPoints, question: Asked, plan: Plan) -> NDArray[np.int64]:
    """Return one client's vector of the last round, shape (plan.elements(t),).

    Notes
    -----
    Sees: nobody but the caller, until masked.
    Privacy: see the sensitivity of the vector; the centres follow from earlier releases.
    """
    vector, bits, height = question.vector, plan.fraction_bits, max(1, _BLOCK // plan.d)

    def add(start: int, stop: int) -> tuple[NDArray[np.int64], ...]:
        sums = np.zeros(vector.width, dtype=np.int64)
        for at in range(start, stop, height):
            raw_block = points.raw_coordinates[:, at : min(at + height, stop)].T / float(1 << bits)
            if isinstance(vector, QualityVector):
                (centers,) = question.sets
                sums += vector.add_up(raw_block, np.asarray(centers), question.middle, bits)
            else:
                sums += vector.add_up(raw_block, question.sets, bits)
        return (sums,)

    (raw_sums,) = add_up(points.passes.over(points.n, plan.k, plan.d, add))
    found: NDArray[np.int64] = raw_sums
    return found


def read_quality(noisy: NDArray[np.int64], question: Asked, plan: Plan) -> tuple[Judged, ...] | tuple[OfNumber, ...]:
    """Return what the last round's noisy vector says.

    Notes
    -----
    Sees: the clients. Post-processing.
    """
    values, bits = noisy / float(1 << plan.fraction_bits), plan.fraction_bits
    noise = plan.noise_deviations(plan.moving)[1]
    if isinstance(question.vector, QualityVector):
        return question.vector.read(values, noise=noise, n_total=plan.n_total, fraction_bits=bits)
    return question.vector.read(values, question.sets, noise=noise, fraction_bits=bits)
