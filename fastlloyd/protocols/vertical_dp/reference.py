"""Vertical DP on pooled columns, without messages, line by line: the reference for tests of the parties.

It is simple and slow, written from the paper and from the differences that the modules state; it calls nothing of
`math/`, `client.py` or `server.py`. Sketches are made record by record and phantom by phantom, from the definition of
the hash; k-means of released points is that of `kmeans/reference.py`. It shares with the parties the plan with its
numbers (with the tables of levels), key streams and public draws, and the samplers of the noise, whose secret words
come from the caller.

A party's messages are identical bit for bit. The server's estimates are floats that are added in another order here and
found by bisection: they agree to some 10^-15 of n-hat, and tests allow 10^-9.

Source: Vertical DP, Algorithms 1 and 3; `reference_weights.py` for Algorithms 4 and 5.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.reference import cluster, in_order, on_grid
from fastlloyd.privacy.noise.sampler import round_laplace, round_normal
from fastlloyd.protocols.vertical_dp.local_plan import BOX_TREE, LocalPlan
from fastlloyd.protocols.vertical_dp.plan import Plan
from fastlloyd.protocols.vertical_dp.reference_weights import Group, weight_estimate
from fastlloyd.protocols.vertical_dp.sketch.sketch import Levels
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream, derive, keystream
from fastlloyd.randomness.secret import SecretRandom

Floats = NDArray[np.float64]
Row = list[int]

_BITS = 16
_ONE = 1 << _BITS


@dataclass(frozen=True, slots=True)
class ReferenceResult:
    """What the parties send, and the server's result.

    Attributes
    ----------
    noisy_centers : per party, int64 array, shape (k', d_i)
        On the grid of 2^-16.
    sketches : mapping from Group to the sketches of its parties, in order
    noisy_total : float
        Paper: n-hat, before it is clipped to 1 .. N.
    table : float64 array, shape (k', ..., k')
        Weights of the grid of all parties.
    centers : float64 array, shape (k, d)
    weights : float64 array, shape (k,)
    """

    noisy_centers: tuple[NDArray[np.int64], ...]
    sketches: Mapping[Group, Sequence[Levels]]
    noisy_total: float
    table: Floats
    centers: Floats
    weights: Floats


def reference(
    raw_columns: Sequence[Floats], plan: Plan, keys: Mapping[Group, bytes], secrets: Sequence[SecretRandom]
) -> ReferenceResult:
    """Run the algorithm centrally, with phantoms of the grid.

    Parameters
    ----------
    raw_columns : per party, float64 array, shape (n, d_i), scaled
    plan : Plan
    keys : mapping from Group to its key
    secrets : per party, the source of its noise
    """
    local: list[list[Row]] = []
    sketches: dict[Group, list[Levels]] = {group: [] for group in keys}
    noisy_total = 0.0
    for place, columns in enumerate(raw_columns):
        x: list[Row] = on_grid(columns, _BITS).tolist()
        local.append(_loc_cluster(x, plan.local_plan(place), secrets[place]))  # line 1 (a)
        labels = [_nearest(row, local[place]) for row in x]  # line 2 (a); Alg. 3, line 2
        for group, key in keys.items():
            if place in group:
                sketches[group].append(_dpfmps_gen(labels, group, group.index(place), plan, key))
        if place == 0:  # line 3 (a): party 1 answers, in steps of 2^-8
            noisy_total = len(x) + int(round_laplace(plan.total_scale * 256, 1, secrets[0])[0]) / 256
    n_hat = min(max(noisy_total, 1.0), float(plan.n_total))
    table = weight_estimate(sketches, plan, n_hat)  # line 3 (d)
    centers, weights = _final(table, [np.array(own) / _ONE for own in local], plan)  # line 4
    return ReferenceResult(tuple(np.array(own) for own in local), sketches, noisy_total, table, centers, weights)


@dataclass(slots=True)
class _Box:
    """A box of the tree: borders, who is inside, its noisy size, and whether it may hold two useful ones."""

    low: Row
    high: Row
    members: list[Row]
    noisy_size: float
    open: bool


def _loc_cluster(x: list[Row], plan: LocalPlan, secret: SecretRandom) -> list[Row]:
    """Return one party's k' noisy centres on the grid (§3.5)."""
    boxes = _tree(x, plan, secret)
    weights = np.array([max(box.noisy_size, 1.0) for box in boxes])
    stream = PublicStream(plan.seed, f"{domains.VERTICAL_LOCAL}{plan.party}")
    if plan.method == BOX_TREE:
        places = _noisy_means(boxes, plan, secret)
    else:
        places = np.array([[(a + b) / 2 for a, b in zip(box.low, box.high, strict=True)] for box in boxes]) / _ONE
    found = cluster(places, plan.clusters, stream, weights=weights).centers
    if plan.method == "lloyd":
        found = _noisy_step(x, np.rint(found * _ONE).astype(np.int64).tolist(), plan, secret)
    if plan.method == "shortened":
        apart = _part(found.tolist(), plan, stream)
        found = _shortened_steps(
            x, boxes, [[round(value * _ONE) for value in center] for center in apart], plan, secret
        )
    again = PublicStream(plan.seed, f"{domains.VERTICAL_LOCAL}{plan.party}")
    return [[round(value * _ONE) for value in center] for center in _part(found.tolist(), plan, again)]


def _part(centers: list[list[float]], plan: LocalPlan, stream: PublicStream) -> list[list[float]]:
    """Move a repeated centre to a public random place."""
    reach = int(0.8 * _ONE)
    for j in range(1, len(centers)):
        if centers[j] in centers[:j]:
            centers[j] = [int(value) / _ONE for value in stream.integers(-reach, reach, plan.d)]
    return centers


def _tree(x: list[Row], plan: LocalPlan, secret: SecretRandom) -> list[_Box]:
    """Halve boxes of [-1, 1]^d level by level; a half is followed if its noisy count is large enough."""
    boxes = [_Box([-_ONE] * plan.d, [_ONE] * plan.d, x, float(plan.n), True)]
    words = PublicStream(plan.seed, f"{domains.VERTICAL_AXES}{plan.party}").uint32(plan.d).tolist()
    order = sorted(range(plan.d), key=lambda h: int(words[h]))
    for level in range(plan.levels):
        h = order[level % plan.d]
        draw = round_normal if plan.method == "shortened" else round_laplace
        noise = draw(plan.level_scale, 2 * len(boxes), secret).tolist()
        kept: list[_Box] = []
        halves: list[_Box] = []
        for number, box in enumerate(boxes):
            middle = (box.low[h] + box.high[h]) // 2
            children = []
            for side in (0, 1) if box.open else ():
                members = [row for row in box.members if (row[h] > middle) == bool(side)]
                size = float(len(members) + noise[2 * number + side])
                low, high = list(box.low), list(box.high)
                (low if side else high)[h] = middle
                if size >= plan.least_leaf:
                    children.append(_Box(low, high, members, size, size >= 2 * plan.least_leaf))
            halves += children
            if not children:
                box.open = False
                kept.append(box)
        boxes = kept + halves
    return boxes


def _noisy_means(boxes: list[_Box], plan: LocalPlan, secret: SecretRandom) -> Floats:
    """Return the noisy mean of each leaf, cut to its box."""
    noise = iter(round_laplace(plan.sum_scale, len(boxes) * plan.d, secret).tolist())
    means = []
    for box in boxes:
        mean = []
        for h in range(plan.d):
            noisy_sum = (sum(row[h] for row in box.members) + next(noise)) / _ONE
            mean.append(min(max(noisy_sum / max(box.noisy_size, 1.0), box.low[h] / _ONE), box.high[h] / _ONE))
        means.append(mean)
    return np.array(means)


def _noisy_step(x: list[Row], start: list[Row], plan: LocalPlan, secret: SecretRandom) -> Floats:
    """Make one step of Lloyd with noise (§3.5, DPLloyd); a cluster whose noisy size is small keeps its centre."""
    groups: list[list[Row]] = [[] for _ in start]
    for row in x:
        groups[_nearest(row, start)].append(row)
    sum_noise = iter(round_laplace(plan.sum_scale, len(start) * plan.d, secret).tolist())
    noisy_sums = [[(sum(row[h] for row in group) + next(sum_noise)) / _ONE for h in range(plan.d)] for group in groups]
    size_noise = round_laplace(plan.size_scale, len(start), secret).tolist()
    centers = []
    for j, center in enumerate(start):
        size = float(len(groups[j]) + size_noise[j])
        moved = [min(max(value / max(size, 1.0), -1.0), 1.0) for value in noisy_sums[j]]
        centers.append(moved if size >= plan.least_cluster else [value / _ONE for value in center])
    return np.array(centers)


def _shortened_steps(
    x: list[Row], boxes: list[_Box], start: list[Row], plan: LocalPlan, secret: SecretRandom
) -> Floats:
    """Make four noisy steps with vectors no longer than a radius (ours; docs/vertical-dp.md, "Shortened steps")."""
    k, d, centers = plan.clusters, plan.d, start
    weights = [max(box.noisy_size, 1.0) for box in boxes]
    total = in_order(weights)
    share = min(total, float(plan.n)) / k
    radius = max(int(_spread(boxes, weights, d) * math.pow(k, -1 / d) * _ONE), 1)
    reach = radius / _ONE
    doubt, sizes, size_doubt = [(1.2 * reach) ** 2 / d] * k, [share] * k, [(share / 2) ** 2] * k
    for _ in range(4):
        sums, counts = [[0] * d for _ in range(k)], [0] * k
        for row in x:
            j = _nearest(row, centers)
            counts[j] += 1
            for h, value in enumerate(_short([a - c for a, c in zip(row, centers[j], strict=True)], radius)):
                sums[j][h] += value
        sum_noise = iter(round_normal(plan.step_scale * radius, k * d, secret).tolist())
        noisy = [[(value + next(sum_noise)) / _ONE for value in own] for own in sums]
        size_noise = round_normal(plan.size_scale, k, secret).tolist()
        moved = []
        for j in range(k):
            gain = size_doubt[j] / (size_doubt[j] + plan.size_scale**2)
            sizes[j] += gain * (counts[j] + size_noise[j] - sizes[j])
            size_doubt[j] = size_doubt[j] * (1 - gain) + (0.1 * share) ** 2
            divisor = max(sizes[j], 0.2 * share)
            gain = doubt[j] / (doubt[j] + (plan.step_scale * reach / divisor) ** 2)
            doubt[j] = doubt[j] * (1 - gain) + (0.2 * reach) ** 2 / d
            steps = [gain * (value / divisor) for value in noisy[j]]
            moved.append([min(max(c / _ONE + s, -1.0), 1.0) for c, s in zip(centers[j], steps, strict=True)])
        centers = [[round(value * _ONE) for value in center] for center in moved]
    return np.array(centers) / _ONE


def _short(vector: Row, radius: int) -> Row:
    """Cut a vector to the radius, every coordinate toward zero, in whole numbers."""
    squared = sum(v * v for v in vector)
    if squared <= radius * radius:
        return vector
    return [(1 if v > 0 else -1) * math.isqrt(v * v * radius * radius // squared) for v in vector]


def _spread(boxes: list[_Box], weights: list[float], d: int) -> float:
    """Return the root of the boxes' variance, at least 0.02 d; within a box take half of a uniform variance."""
    total, squared = in_order(weights), 0.0
    for h in range(d):
        middles = [(box.low[h] + box.high[h]) / 2 / _ONE for box in boxes]
        lengths = [(box.high[h] - box.low[h]) / _ONE for box in boxes]
        mean = in_order([w / total * m for w, m in zip(weights, middles, strict=True)])
        own = [(m - mean) * (m - mean) + 0.5 / 12 * s * s for m, s in zip(middles, lengths, strict=True)]
        squared += in_order([w / total * v for w, v in zip(weights, own, strict=True)])
    return math.sqrt(max(squared, 0.02 * d))


def _dpfmps_gen(labels: list[int], group: Group, position: int, plan: Plan, key: bytes) -> Levels:
    """Enter users and phantoms one after the other (Algorithm 3, lines 3 to 6, with phantoms of the grid)."""
    shape = plan.shape
    levels = np.full((shape.rows, shape.clusters), shape.floor, dtype=np.int64)
    for record, label in enumerate(labels):
        own = _levels(_user_words(record, shape.rows, key), shape.user_levels.totals)
        levels[:, label] = np.maximum(levels[:, label], own)
    words = _phantom_words(shape.rows, shape.cells, key)
    for number, cell in enumerate(np.ndindex(*[shape.clusters] * len(group))):
        a = cell[position]
        levels[:, a] = np.maximum(levels[:, a], _levels(words[number :: shape.cells], shape.phantom_levels.totals))
    return levels


def _user_words(record: int, rows: int, key: bytes) -> Row:
    """Return a record's word of each row: 4 bytes each, all rows of one record after the other, 256 to a nonce."""
    nonce, place = (record // 256).to_bytes(8, "little") + bytes(4), record % 256
    stream = keystream(derive(key, domains.SKETCH_USERS), nonce, 4 * rows * (place + 1))[4 * rows * place :]
    return [int.from_bytes(stream[at : at + 4], "little") for at in range(0, 4 * rows, 4)]


def _phantom_words(rows: int, cells: int, key: bytes) -> Row:
    """Return the words of the phantoms: 8 bytes for each row and grid cell, row after row."""
    stream = keystream(derive(key, domains.SKETCH_PHANTOMS), bytes(12), 8 * rows * cells)
    return [int.from_bytes(stream[at : at + 8], "little") for at in range(0, len(stream), 8)]


def _levels(words: Row, totals: Sequence[int]) -> Row:
    """Return the least level a from 1 with word < T_a, of each word (`protocols/vertical_dp/sketch/level.py`)."""
    return [bisect_right(totals, word, lo=1) for word in words]


def _final(table: Floats, local: Sequence[Floats], plan: Plan) -> tuple[Floats, Floats]:
    """Run weighted k-means on the grid's points (line 4): the best of ten starts; centres and their weights."""
    cells = [cell for cell in np.ndindex(table.shape) if table[cell] > 0.0]
    points = np.array([np.concatenate([own[a] for own, a in zip(local, cell, strict=True)]) for cell in cells])
    weights = np.array([table[cell] for cell in cells])
    found = cluster(points, plan.k, PublicStream(plan.seed, domains.VERTICAL_KMEANS), weights=weights)
    sizes = [sum(weights[i] for i, label in enumerate(found.labels) if label == j) for j in range(plan.k)]
    return found.centers, np.array(sizes)


def _nearest(point: Row, centers: list[Row]) -> int:
    """Find the nearest centre in exact integers; the first on ties."""
    squares = [sum((x - c) ** 2 for x, c in zip(point, center, strict=True)) for center in centers]
    return squares.index(min(squares))
