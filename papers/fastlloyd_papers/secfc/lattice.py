"""The lattice attack on what a SecFC server decodes: records from exact integers.

Source: Lenstra, Lenstra, Lovasz, "Factoring polynomials with rational coefficients" (1982).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd_papers.secfc.view import View

Row = list[Any]
_MORE_RECORDS = 12


def reduce_basis(basis: list[Row], gram: list[Row] | None = None) -> list[Row]:
    """Reduce a basis of a lattice by LLL, delta = 3/4.

    Parameters
    ----------
    basis : list of rows
        Python integers or fractions, linearly independent.
    gram : list of rows, optional
        Of the quadratic form on the rows' coordinates; left out: the usual one.
    """
    basis = [list(row) for row in basis]
    n = len(basis)

    def inner(u: Row, v: Row) -> Any:
        if gram is None:
            return sum(a * b for a, b in zip(u, v, strict=True))
        return sum(a * sum(g * b for g, b in zip(row, v, strict=True)) for a, row in zip(u, gram, strict=True) if a)

    mu = [[Fraction(0)] * n for _ in range(n)]
    norms = [Fraction(0)] * n
    products = [[Fraction(inner(basis[i], basis[j])) for j in range(i + 1)] for i in range(n)]
    for i in range(n):
        rest = [Fraction(0)] * (i + 1)
        for j in range(i + 1):
            rest[j] = products[i][j] - sum((mu[j][k] * rest[k] for k in range(j)), Fraction(0))
            if j < i:
                mu[i][j] = rest[j] / norms[j]
        norms[i] = rest[i]
    k = 1
    while k < n:
        for j in range(k - 1, -1, -1):
            times = round(mu[k][j])
            if times:
                basis[k] = [a - times * b for a, b in zip(basis[k], basis[j], strict=True)]
                for i in range(j):
                    mu[k][i] -= times * mu[j][i]
                mu[k][j] -= times
        if norms[k] >= (Fraction(3, 4) - mu[k][k - 1] ** 2) * norms[k - 1]:
            k += 1
            continue
        _swap(basis, mu, norms, k)
        k = max(1, k - 1)
    return basis


def _swap(basis: list[Row], mu: list[list[Fraction]], norms: list[Fraction], k: int) -> None:
    """Swap rows k and k - 1, and bring the orthogonalisation up to date."""
    old, n = mu[k][k - 1], len(basis)
    fresh = norms[k] + old**2 * norms[k - 1]
    mu[k][k - 1] = old * norms[k - 1] / fresh
    norms[k], norms[k - 1] = norms[k - 1] * norms[k] / fresh, fresh
    basis[k], basis[k - 1] = basis[k - 1], basis[k]
    for j in range(k - 1):
        mu[k][j], mu[k - 1][j] = mu[k - 1][j], mu[k][j]
    for i in range(k + 1, n):
        above = mu[i][k]
        mu[i][k] = mu[i][k - 1] - old * above
        mu[i][k - 1] = above + mu[k][k - 1] * mu[i][k]


def find_basis(rows: list[Row]) -> list[Row]:
    """Return a basis of the lattice that rows of fractions generate, in echelon form."""
    rest = [list(row) for row in rows]
    basis = []
    for column in range(len(rows[0])):
        active = [row for row in rest if row[column]]
        while len(active) > 1:
            active.sort(key=lambda row: abs(row[column]))
            least = active[0]
            for row in active[1:]:
                times = round(Fraction(row[column]) / Fraction(least[column]))
                for i, value in enumerate(least):
                    row[i] -= times * value
            active = [row for row in active if row[column]]
        if active:
            basis.append(active[0])
            rest = [row for row in rest if row is not active[0]]
    return basis


def solve(matrix: list[Row], right: list[Row]) -> list[Row] | None:
    """Solve matrix X = right in fractions; None for a singular matrix."""
    n = len(matrix)
    work = [[Fraction(v) for v in (*a, *b)] for a, b in zip(matrix, right, strict=True)]
    for i in range(n):
        pivot = next((j for j in range(i, n) if work[j][i]), None)
        if pivot is None:
            return None
        work[i], work[pivot] = work[pivot], work[i]
        work[i] = [v / work[i][i] for v in work[i]]
        for j in range(n):
            if j != i and work[j][i]:
                work[j] = [a - work[j][i] * b for a, b in zip(work[j], work[i], strict=True)]
    return [row[n:] for row in work]


def rebuild_records(views: Sequence[View], d: int) -> NDArray[Any] | None:
    """Take the values for exact integers, and rebuild all records relative to the first one.

    Differences of two records' values are inner products with differences of centres, and means of these over known
    members are inner products of centres. So all Gram matrices are known, and the records' lattice is Z^d.

    Parameters
    ----------
    views : sequence of View
        The order of the values is taken for that of the run.
    d : int

    Returns
    -------
    array of fractions, shape (m, d), or None
        Columns in any order and of any sign, if the values are what they are taken for; None: they do not span.
    """
    columns, pairs = [], []
    for view in views:
        for row, (h, g) in enumerate(view.pairs):
            members = [np.flatnonzero(view.labels == cluster) for cluster in (h, g)]
            twice = -2 * math.lcm(len(members[0]), len(members[1])) ** 2
            values = view.values[row]
            columns.append([Fraction(int(v - values[0]), twice) for v in values])
            pairs.append((members[1], members[0]))
    records = len(views[0].labels)

    def product(column: list[Fraction], pair: tuple[NDArray[np.int64], NDArray[np.int64]]) -> Fraction:
        one, other = (sum((column[i] for i in rows), Fraction(0)) / max(1, len(rows)) for rows in pair)
        return one - other

    chosen: list[int] = []
    gram: list[Row] = []
    for j in range(len(columns)):
        trial = [*chosen, j]
        wider = [[product(columns[a], pairs[b]) for b in trial] for a in trial]
        if solve(wider, [[Fraction(0)]] * len(trial)) is not None:
            chosen, gram = trial, wider
        if len(chosen) == d:
            break
    if len(chosen) < d:
        return None
    right = [[columns[j][i] for i in range(records)] for j in chosen]
    solved = solve(gram, right)
    assert solved is not None
    places = [list(row) for row in zip(*solved, strict=True)]
    basis = find_basis(places[: d + 1 + _MORE_RECORDS])
    if len(basis) < d:
        return None
    symmetric = [[(gram[a][b] + gram[b][a]) / 2 for b in range(d)] for a in range(d)]
    try:
        reduced = reduce_basis(basis, symmetric)
    except ZeroDivisionError:
        return None
    coordinates = solve([list(row) for row in zip(*reduced, strict=True)], [list(r) for r in zip(*places, strict=True)])
    assert coordinates is not None
    return np.array(coordinates, dtype=object).T


def count_columns(found: NDArray[Any] | None, records: NDArray[np.int64]) -> int:
    """Count the columns of the records, relative to the first one, that were found but for their sign."""
    if found is None:
        return 0
    truth = (records - records[0]).astype(object)
    return sum(
        any((found[:, j] == truth[:, h]).all() or (found[:, j] == -truth[:, h]).all() for j in range(found.shape[1]))
        for h in range(truth.shape[1])
    )
