"""Vertical HE on pooled columns, without encryption or messages, record by record: the reference for tests.

It calls nothing of `math/`, `rounds.py` or the parties. It shares the plan and random words with them; the noise comes
from the caller. The effects of encryption are missing: errors of the size of `plan.scales.flood`, and rounded weights.

Differs from the paper: soft rules replace the comparison, so records are spread over the corners of a grid, or stand at
the nearest of some landmarks (docs/vertical-he.md). Tests replace step (5) by the weighing of
`tests/vectors/make_vertical_he.py`.

Source: Vertical HE, §3, Figure 1; §3.1 "Special Case: k = 2".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.reference import sphere_packing
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

Floats = NDArray[np.float64]
Update = Callable[[Floats, Floats, int], Floats]
"""Maps a round's table, shape (k, d + 1), the previous centres, shape (k, d), and its number to the next centres."""


def reference(
    points: Floats,
    plan: Plan,
    *,
    start: Floats | None = None,
    noise: Callable[[int], NDArray[np.int64]] | None = None,
    update: Update | None = None,
) -> list[Floats]:
    """Run all rounds; return the centres at the start and after each round, shape (k, d) each.

    Parameters
    ----------
    points : float64 array, shape (n, d)
        Scaled to [-1, 1], columns owner by owner.
    plan : Plan
    start : float64 array, shape (k, d), optional
        Centres to start from instead of sphere packing.
    noise : callable, optional
        Maps the round number to the sum of all noise, int64, shape (k (d + 1),), cluster by cluster, first the count.
    update : callable, optional
        Replaces the paper's division in step (5).
    """
    packed = sphere_packing(plan.k, plan.d, plan.seed)
    path = [(0.45 if plan.shrinks else 1.0) * packed if start is None else start]  # "Centroid initialization"
    for t in range(plan.rounds):
        table = opened(points, path[-1], plan, t)  # steps (1) to (3)
        if noise is not None:
            table = table + noise(t).reshape(plan.k, plan.d + 1) / plan.unit  # step (4)
        path.append(update(table, path[-1], t) if update else _divided(table, path[-1], plan))  # step (5)
        if plan.tolerance > 0.0 and np.abs(path[-1] - path[-2]).max() <= plan.tolerance:
            break
    return path


def _divided(table: Floats, before: Floats, plan: Plan) -> Floats:
    """Divide sums by counts, inside the domain; ours: a cluster whose count is below the noise keeps its centre."""
    least = max(1.0, math.sqrt(plan.noises) * plan.count_scale / plan.unit)
    after = before.copy()
    for j, (count, *sums) in enumerate(table.tolist()):
        if count >= least:
            after[j] = [min(max(value / count, -1.0), 1.0) for value in sums]
    return after


def opened(points: Floats, centers: Floats, plan: Plan, t: int = 0) -> Floats:
    """Return T and S of round t (steps (1) to (3)), shape (k, d + 1), by the rule of the plan's scheme.

    The paper's argmin stands in for the pairwise circuit, which approximates it.
    """
    hidden = [column for column in range(plan.d) if column not in plan.columns(plan.computing)]
    if plan.scheme == "linear":
        if plan.stepping:
            return soft_steps(points, centers, hidden=hidden, grid=plan.grid, radius=plan.radius)
        return soft_sums(points, centers, hidden=hidden, grid=plan.grid)
    sums = np.zeros((plan.k, 1 + plan.d))
    if plan.scheme == "landmarks":
        places = landmarks(centers, hidden, plan.seed, count=plan.grid, t=t)
        for point in points:
            j = _nearest(_at_landmark(point, centers, hidden, places), centers)
            added = np.concatenate(([1.0], point))
            for column in plan.stepping:
                away = point[list(plan.stepping)] - centers[j, list(plan.stepping)]
                length = math.sqrt(sum(step * step for step in away.tolist()))
                added[1 + column] = (point[column] - centers[j, column]) / max(length, plan.radius)
            sums[j] += added
        return sums
    for point in points:
        if plan.scheme == "projection":
            share = _share_of_second(point, centers, hidden, plan.grid)
            weights = [1.0 - share, share]
        else:
            weights = [float(j == _nearest(point, centers)) for j in range(plan.k)]  # A_i
        for j, weight in enumerate(weights):
            sums[j] += weight * np.concatenate(([1.0], point))
    return sums


def _share_of_second(point: Floats, centers: Floats, hidden: Sequence[int], grid: int) -> float:
    """Return the part of a record that is nearer to the second centre.

    Its place along the encrypted part of the line between the centres is spread over the two ends of a cell.
    """
    step = centers[1] - centers[0]
    # x is nearer to the second centre where 2 x . step > |c_2|^2 - |c_1|^2.
    own = sum(2.0 * point[h] * step[h] for h in range(len(point)) if h not in hidden)
    needed = (float((centers[1] ** 2).sum() - (centers[0] ** 2).sum()) - own) / 2.0
    spread = sum(abs(step[h]) for h in hidden)
    place = sum(point[h] * step[h] for h in hidden) / spread if spread > 0.0 else 0.0
    cells = (place + 1.0) * grid / 2.0
    low = min(int(cells), grid - 1)
    ends = ((low, low + 1.0 - cells), (low + 1, cells - low))
    return float(sum(share for end, share in ends if (2.0 * end / grid - 1.0) * spread > needed))


def landmarks(centers: Floats, hidden: Sequence[int], seed: int, *, count: int, t: int) -> list[list[float]]:
    """Return the landmarks of round t: the centres' hidden parts, then points around them, centre after centre."""
    words = PublicStream(seed, f"{domains.VERTICAL_HE_LANDMARKS}{t}").uint32(2 * count * len(hidden)).tolist()
    lengths, angles = words[: len(words) // 2], words[len(words) // 2 :]
    normals = iter(
        math.sqrt(-2.0 * math.log((length + 0.5) / 2.0**32)) * math.cos(2.0 * math.pi * (angle + 0.5) / 2.0**32)
        for length, angle in zip(lengths, angles, strict=True)
    )
    found = []
    for mark in range(count):
        center = centers[mark % len(centers), list(hidden)].tolist()
        away = [0.3 * next(normals) * (mark >= len(centers)) for _ in hidden]
        found.append([min(max(place + step, -1.0), 1.0) for place, step in zip(center, away, strict=True)])
    return found


def _at_landmark(point: Floats, centers: Floats, hidden: Sequence[int], places: list[list[float]]) -> Floats:
    """Return a record with its hidden columns at the landmark that is nearest along the differences of centres."""
    apart = centers[:, list(hidden)] - centers[:, list(hidden)].mean(axis=0)
    own = point[list(hidden)]
    best = min(places, key=lambda place: float((((own - np.array(place)) * apart).sum(axis=1) ** 2).sum()))
    moved = point.copy()
    moved[list(hidden)] = best
    return moved


def soft_one_hot(points: Floats, centers: Floats, *, hidden: Sequence[int], grid: int) -> Floats:
    """Return each record's weights, float64, shape (n, k): not negative, summing to 1.

    Parameters
    ----------
    points : float64 array, shape (n, d), scaled to [-1, 1]
    centers : float64 array, shape (k, d)
    hidden : sequence of int
        The columns that are encrypted.
    grid : int
        Cells along each of them.
    """
    weights = np.zeros((len(points), len(centers)))
    for row, point in enumerate(points):
        for share, corner in _spread(point, hidden, grid):
            weights[row, _nearest(corner, centers)] += share
    return weights


def soft_sums(points: Floats, centers: Floats, *, hidden: Sequence[int], grid: int) -> Floats:
    """Return one round's counts and sums without noise: shape (k, d + 1), first the count."""
    sums = np.zeros((len(centers), 1 + centers.shape[1]))
    for point in points:
        for share, corner in _spread(point, hidden, grid):
            sums[_nearest(corner, centers)] += share * np.concatenate(([1.0], corner))
    return sums


def soft_steps(points: Floats, centers: Floats, *, hidden: Sequence[int], grid: int, radius: float) -> Floats:
    """Return the same where all but the hidden columns enter as steps, shortened to the radius and divided by it."""
    found = soft_sums(points, centers, hidden=hidden, grid=grid)
    weights = soft_one_hot(points, centers, hidden=hidden, grid=grid)
    known = [column for column in range(points.shape[1]) if column not in hidden]
    for j, center in enumerate(centers):
        away = points[:, known] - center[known]
        lengths = np.sqrt((away**2).sum(axis=1))
        found[j, [1 + column for column in known]] = weights[:, j] @ (away / np.maximum(lengths, radius)[:, None])
    return found


def _spread(point: Floats, hidden: Sequence[int], grid: int) -> Iterator[tuple[float, Floats]]:
    """Yield the corners of the box that a record lies in, each with the record's share there."""
    width = 2.0 / grid
    lows = [min(int((point[column] + 1.0) / width), grid - 1) for column in hidden]
    for sides in itertools.product((0, 1), repeat=len(hidden)):
        share, corner = 1.0, point.copy()
        for column, low, side in zip(hidden, lows, sides, strict=True):
            inside = (point[column] + 1.0) / width - low
            share *= inside if side else 1.0 - inside
            corner[column] = (low + side) * width - 1.0
        yield share, corner


def _nearest(corner: Floats, centers: Floats) -> int:
    return int(((corner - centers) ** 2).sum(axis=1).argmin())
