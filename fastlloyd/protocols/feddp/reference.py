"""FedDP-KMeans on pooled data, without messages, record by record: what the parties are tested against.

Written from the paper, plainly and slowly. It calls nothing of `math/`, `client.py` or `server.py`, so it does not
repeat their mistakes. Its k-means, start and merging are the plain ones of `kmeans/reference.py`. It shares with the
parties the plan with its numbers, and public draws. The noise comes from the caller.

The parties compute the same bits. Integers are exact on both sides. A float decides an integer only where a vector is
shortened, and there the order of operations is the same. The one exception is the norm of a user's outer product, which
is exact here: the parties' norm is larger by a part of 10^-13 at most, and a test would show a changed entry.

Source: FedDP-KMeans, Algorithms 1 and 2; §5.1 (norm bound), App. G.3 (baselines), G.4 (client level), H.3 (elbow).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.reference import cluster, clusters_left, on_grid, seed_centers, sphere_packing
from fastlloyd.protocols.feddp.plan import Plan
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

Noise = Callable[[int, int], NDArray[np.int64]]
"""From step and number of clusters to the sum of all clients' shares, int64, shape (plan.elements(t, k),)."""
Row = list[int]
Rows = list[Row]

_MATRIX_BITS = 16


@dataclass(frozen=True, slots=True)
class ReferenceResult:
    """What the server would have at the end.

    Attributes
    ----------
    centers : float64 array, shape (k, d)
    noisy_counts : float64 array, shape (k,)
    costs : float64 array, shape (kmax,) or (0,)
    matrix, pi_q, xi : list of lists of int
        Pi, the projected server points and the projected centres, on their grids; empty for the baselines.
    """

    centers: NDArray[np.float64]
    noisy_counts: NDArray[np.float64]
    costs: NDArray[np.float64]
    matrix: Rows
    pi_q: Rows
    xi: Rows


def run_reference(
    points: NDArray[np.float64],
    server_points: NDArray[np.float64] | None,
    plan: Plan,
    noise: Noise,
    *,
    users: NDArray[np.int64] | None = None,
    restarts: int = 10,
) -> ReferenceResult:
    """Run the algorithm centrally.

    Parameters
    ----------
    points : float64 array, shape (n, d)
        All clients' records, scaled.
    server_points : float64 array, shape (n_server, d), or None
        Scaled.
    plan : Plan
    noise : callable
        All clients' shares together.
    users : int64 array, shape (n,), optional
        Client level: numbers that are unique over all clients.
    restarts : int
        As for the server.
    """
    owners = users.tolist() if plan.by_user and users is not None else [0] * len(points)
    people: dict[int, Rows] = {}  # at record level all records lie in one heap, and nothing of the heap is cut
    for owner, record in zip(owners, _rounded(points, plan), strict=True):
        people.setdefault(owner, []).append(record)
    everybody, costs = list(people.values()), np.zeros(0)
    matrix: Rows = []
    pi_q: Rows = []
    xi: Rows = []
    lloyd_steps = range(1, len(plan.rounds))
    if plan.start in ("feddp", "private"):
        noisy = _outer_product(everybody, plan) + noise(0, plan.k)  # Alg. 1, lines 3 to 6
        if plan.start == "private" or server_points is None:
            matrix, pi_q = _private_start(noisy, plan)
        else:
            matrix = _projection(noisy, plan)  # line 7
            pi_q = [_project(record, matrix, plan) for record in _rounded(server_points, plan)]  # line 10

        def seen(record: Row) -> Row:
            return _project(record, matrix, plan)

        noisy_weights = _weights(everybody, seen, pi_q, plan) + noise(1, plan.k)  # lines 11 to 15
        xi, costs = _cluster(noisy_weights, pi_q, plan, restarts)  # line 17
        noisy = _sums_and_counts(everybody, seen, xi, plan) + noise(2, len(xi))  # lines 18 to 23
        centers, noisy_counts = _divide(noisy, len(xi), plan)  # line 24
        lloyd_steps = range(3, len(plan.rounds))
    else:
        centers, noisy_counts = _start(plan, server_points, restarts), np.zeros(plan.k)  # App. G.3
    for t in lloyd_steps:  # Alg. 2, line 2
        nu: Rows = np.rint(centers * 2.0**plan.fraction_bits).astype(np.int64).tolist()  # line 4
        noisy = _sums_and_counts(everybody, list, nu, plan) + noise(t, len(nu))  # lines 5 to 10
        centers, noisy_counts = _divide(noisy, len(nu), plan)  # line 11
    return ReferenceResult(centers, noisy_counts, costs, matrix, pi_q, xi)


def _rounded(points: NDArray[np.float64], plan: Plan) -> Rows:
    """Round to the grid and shorten to norm Delta (§5.1), towards zero."""
    rows: Rows = on_grid(points, plan.fraction_bits).tolist()
    limit = plan.norm_limit
    for i, row in enumerate(rows):
        factor = limit / math.sqrt(max(_square(row), 1))
        while _square(rows[i]) > limit * limit:
            rows[i] = [math.trunc(x * factor) for x in row]
            factor *= 1.0 - 2.0**-30
    return rows


def _outer_product(people: Sequence[Rows], plan: Plan) -> NDArray[np.int64]:
    """Add up x x^T on the grid of 2^-p; the entries on and above the diagonal (Alg. 1, line 4; App. G.4)."""
    width = plan.d + (plan.start == "private")
    total = np.zeros((width, width), dtype=np.int64)
    for own in people:
        coarse = [[math.trunc(Fraction(x, 1 << plan.fraction_bits - plan.outer_bits)) for x in row] for row in own]
        if plan.start == "private":  # c = Delta / 2 beside each record
            coarse = [[*row, max(math.floor(plan.norm_bound * 2**plan.outer_bits / 2), 1)] for row in coarse]
        if plan.by_user:
            coarse = _cut_outer(coarse, math.floor(plan.outer_clip * 4**plan.outer_bits))
        for row in coarse:
            total += np.outer(row, row)
    return np.array([total[i, j] for i in range(width) for j in range(i, width)])


def _cut_outer(rows: Rows, limit: int) -> Rows:
    """Shorten one user's records until the Frobenius norm of their outer product is at most `limit`."""
    found, factor = rows, 1.0
    while True:
        x = np.array(found, dtype=object)
        norm = math.sqrt(sum(int(entry) ** 2 for entry in (x.T @ x).ravel()))
        if norm <= limit:
            return found
        factor *= limit / norm * (1.0 if found is rows else 1.0 - 2.0**-20)
        found = [[math.trunc(value * math.sqrt(factor)) for value in row] for row in rows]


def _projection(noisy: NDArray[np.int64], plan: Plan) -> Rows:
    """Make the rows of Pi from the eigenvectors of the largest eigenvalues (line 7), on the grid of 2^-16."""
    return _eigenvectors(_unpacked(noisy, plan.d), plan)


def _unpacked(noisy: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    """Put the entries on and above the diagonal back into a matrix."""
    matrix, entries = np.zeros((width, width)), iter(noisy.tolist())
    for i in range(width):
        for j in range(i, width):
            matrix[i, j] = matrix[j, i] = next(entries)
    return matrix


def _eigenvectors(matrix: NDArray[np.float64], plan: Plan) -> Rows:
    """Return those of the largest eigenvalues, as rows on the grid of 2^-16."""
    values, vectors = np.linalg.eigh(matrix)
    largest = sorted(range(plan.d), key=lambda i: float(values[i]), reverse=True)
    rows = []
    for i in largest[: min(plan.k, plan.d)]:
        row: list[float] = vectors[:, i].tolist()
        sign = 1.0 if max(row, key=abs) > 0.0 else -1.0
        rows.append([round(sign * value * 2**_MATRIX_BITS) for value in row])
    return rows


def _private_start(noisy: NDArray[np.int64], plan: Plan) -> tuple[Rows, Rows]:
    """Make Pi from the noisy covariance, and proxy points spread as the records are (docs/feddp.md)."""
    d, grid = plan.d, 4.0**plan.outer_bits
    whole = _unpacked(noisy, d + 1) / grid
    constant = max(math.floor(plan.norm_bound * 2**plan.outer_bits / 2), 1) / 2**plan.outer_bits
    noise = plan.rounds[0].sigma * math.sqrt(plan.clients / (plan.clients - plan.known_shares)) / grid
    records = min(max(whole[d, d] / constant**2, noise / constant**2, 1.0), float(plan.n_total))
    middle = [min(max(x / (constant * records), -1.0), 1.0) for x in whole[:d, d].tolist()]
    covariance = np.array([[whole[i, j] / records - middle[i] * middle[j] for j in range(d)] for i in range(d)])
    matrix = _eigenvectors(covariance, plan)
    rows = [[x / 2**_MATRIX_BITS for x in row] for row in matrix]
    s = min(len(rows), 3)
    variances = [float(np.array(row) @ covariance @ np.array(row)) - math.sqrt(d) * noise / records for row in rows[:s]]
    least = 0.02 * max(*variances, 0.01)
    wide = [min(max(v, least), plan.norm_bound**2) * (s + 2) / s for v in variances]
    step = 2.0  # the root of x^(s + 1) = x + 1, whose powers spread points evenly
    for _ in range(64):
        step = (1.0 + step) ** (1.0 / (s + 1))
    points = []
    for i in range(1, plan.n_server + 1):
        place = [sum(a * x for a, x in zip(row, middle, strict=True)) for row in rows]
        for h in range(s):
            even = (0.5 + i * step ** -(h + 1.0)) % 1.0
            place[h] += math.sqrt(wide[h]) * NormalDist().inv_cdf(min(max(even, 1e-6), 1.0 - 1e-6))
        shorter = min(1.0, plan.norm_bound / max(math.sqrt(sum(x * x for x in place)), plan.norm_bound))
        points.append([round(x * shorter * 2**plan.projected_bits) for x in place])
    return matrix, points


def _project(record: Row, matrix: Rows, plan: Plan) -> Row:
    """Return Pi x on the grid of 2^-g, half to even."""
    unit = 2 ** (_MATRIX_BITS + plan.fraction_bits)
    products = [sum(a * x for a, x in zip(row, record, strict=True)) for row in matrix]
    return [round(Fraction(product * 2**plan.projected_bits, unit)) for product in products]


def _weights(people: Sequence[Rows], seen: Callable[[Row], Row], pi_q: Rows, plan: Plan) -> NDArray[np.int64]:
    """Count the records nearest to each server point (line 12); a user's counts add up to a bound (App. G.4)."""
    one, total = 1 << plan.fraction_bits, [0] * len(pi_q)
    limit = math.floor(plan.weight_clip * one)
    for own in people:
        counts = [0] * len(pi_q)
        for record in own:
            counts[_nearest(seen(record), pi_q)] += 1
        cut = plan.by_user and len(own) * one > limit
        for q, count in enumerate(counts):
            total[q] += count * limit // len(own) if cut else count * one
    return np.array(total)


def _cluster(noisy: NDArray[np.int64], pi_q: Rows, plan: Plan, restarts: int) -> tuple[Rows, NDArray[np.float64]]:
    """Cluster the projected server points by their weights (line 17); k by elbow or merging, if it is open (H.3)."""
    unit = 2.0**plan.projected_bits
    noise = math.sqrt(2 * plan.clients / (plan.clients - plan.known_shares)) * plan.rounds[1].scale
    held = [max(weight, 0) for weight in noisy.tolist()]
    if plan.start == "private" and sum(weight > 2.0 * noise for weight in held) >= plan.k:
        held = [weight if weight > 2.0 * noise else 0 for weight in held]
    weights = np.array(held) / 2.0**plan.fraction_bits
    found = [
        cluster(
            np.array(pi_q) / unit, k, PublicStream(plan.seed, f"{domains.FEDDP_KMEANS}{k}"), weights=weights,
            restarts=restarts,
        )
        for k in range(1 if plan.choose_k else plan.k, plan.k + 1)
    ]  # fmt: skip
    costs = [each.cost for each in found]
    place = 0
    if plan.choose_k:
        place, clear = _elbow(costs)
        if not clear:
            sizes, points = [0] * plan.k, [0] * plan.k
            for label, weight in zip(found[-1].labels, noisy.tolist(), strict=True):
                sizes[label] += weight
                points[label] += 1
            held = [
                size / 2.0**plan.fraction_bits if size > 2.0 * (noise * math.sqrt(count)) else 0.0
                for size, count in zip(sizes, points, strict=True)
            ]
            place = clusters_left(found[-1].centers, np.array(held), count_noise=0.0) - 1
    centers = found[place].centers
    return np.rint(centers * unit).astype(np.int64).tolist(), np.array(costs if plan.choose_k else [])


def _elbow(costs: list[float]) -> tuple[int, bool]:
    """Find where ln cost lies deepest below the line between its ends, else the last place; and whether it is clear."""
    last = len(costs) - 1
    if last < 2 or costs[0] <= 0.0:
        return last, False
    logs = [math.log(max(cost / costs[0], 1e-4)) for cost in costs]
    below = [logs[last] * i / last - log for i, log in enumerate(logs)]
    if max(below) <= 1e-12:
        return last, False
    deepest, next_one = sorted(below)[:-3:-1]
    return below.index(deepest), deepest - next_one >= 0.045


def _sums_and_counts(
    people: Sequence[Rows], seen: Callable[[Row], Row], centers: Rows, plan: Plan
) -> NDArray[np.int64]:
    """Add up records and 2^q by the nearest centre (lines 20 and 21; Alg. 2, lines 6 and 7)."""
    one = 1 << plan.fraction_bits
    sums, counts = np.zeros((len(centers), plan.d), dtype=np.int64), np.zeros(len(centers), dtype=np.int64)
    for own in people:
        groups: dict[int, Rows] = {}
        for record in own:
            groups.setdefault(_nearest(seen(record), centers), []).append(record)
        if not plan.by_user:
            for r, members in groups.items():
                sums[r], counts[r] = np.sum(members, axis=0), one * len(members)
            continue
        # App. G.4: a user contributes the mean of each of its clusters, and one unit for each.
        means = [
            [math.trunc(Fraction(sum(x), len(x))) for x in zip(*members, strict=True)] for members in groups.values()
        ]
        means, unit = _cut_means(means, plan)
        for r, mean in zip(groups, means, strict=True):
            sums[r] += mean
            counts[r] += unit
    return np.concatenate([sums.ravel(), counts])


def _cut_means(means: Rows, plan: Plan) -> tuple[Rows, int]:
    """Multiply a user's means and units by one factor, until both keep their bounds."""
    one = 2.0**plan.fraction_bits
    longest, most = math.floor(plan.mean_clip * one), math.floor(plan.count_clip * one)
    factor = min(1.0, most / (len(means) * one))
    while True:
        cut = [[math.trunc(x * factor) for x in mean] for mean in means]
        unit, square = math.floor(factor * one), sum(_square(mean) for mean in cut)
        if square <= longest * longest and unit * len(means) <= most:
            return cut, unit
        factor *= min(1.0, longest / math.sqrt(max(square, 1))) * (1.0 - 2.0**-20)


def _divide(noisy: NDArray[np.int64], k: int, plan: Plan) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Divide sums by counts, at least 1 (line 24); bring what noise moved out of the domain or of norm Delta back."""
    values: list[float] = (noisy / 2.0**plan.fraction_bits).tolist()
    counts, centers = values[k * plan.d :], []
    for r in range(k):
        center = [min(max(x / max(counts[r], 1.0), -1.0), 1.0) for x in values[r * plan.d : (r + 1) * plan.d]]
        length = math.sqrt(sum(x * x for x in center))
        centers.append([x * (plan.norm_bound / length) if length > plan.norm_bound else x for x in center])
    return np.array(centers), np.array(counts)


def _start(plan: Plan, server_points: NDArray[np.float64] | None, restarts: int) -> NDArray[np.float64]:
    """Return a baseline's start (§5): k-means of the server's points, its seeding alone, or our packed spheres."""
    if plan.start == "sphere-packing" or server_points is None:
        reach = 1.0 if server_points is None else min(1.0, max(abs(x) for row in server_points.tolist() for x in row))
        return sphere_packing(plan.k, plan.d, plan.seed) * reach
    inside, stream = np.clip(server_points, -1.0, 1.0), PublicStream(plan.seed, f"{domains.FEDDP_START}{plan.start}")
    if plan.start == "server-kmeans++":
        return seed_centers(inside, plan.k, stream)
    return cluster(inside, plan.k, stream, restarts=restarts).centers


def _nearest(point: Row, centers: Rows) -> int:
    """Find the nearest centre in exact integers; the first on ties."""
    squares = [_square([x - c for x, c in zip(point, center, strict=True)]) for center in centers]
    return squares.index(min(squares))


def _square(row: Row) -> int:
    return sum(x * x for x in row)
