#!/usr/bin/env python3
"""Compute the sign polynomials of the pairwise circuit and print fastlloyd/protocols/vertical_he/math/coefficients.py.

Two odd polynomials in a row: the first, of degree 15, is as near to 1 as such a polynomial can be on [delta, 1]; the
second, of degree 7, on the range of the first. Each is found by Remez' exchange and factored as

    p(x) = s u (u^2 + g) prod (u^4 + a u^2 + b),   u = kappa x,   s = +1 or -1,

so that no coefficient needs a multiplication of its own. Run: `python scripts/he_coefficients.py > coefficients.py`.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.polynomial import polynomial as poly

DELTA = 0.04
DEGREES = (15, 7)
GRID = 200_001


def minimax(degree: int, low: float, high: float) -> tuple[np.ndarray, float]:
    """Return the odd polynomial nearest to 1 on [low, high] (coefficients of x, x^3, ..) and its largest error."""
    count = (degree + 1) // 2
    powers = 2 * np.arange(count) + 1
    # Points of x^2, spread like Chebyshev's, to start with.
    spread = np.cos(np.pi * np.arange(count + 1) / count)[::-1]
    points = np.sqrt((low**2 + high**2) / 2 + spread * (high**2 - low**2) / 2)
    fine = np.sqrt(np.linspace(low**2, high**2, GRID))
    for _ in range(100):
        signs = (-1.0) ** np.arange(count + 1)
        system = np.column_stack([(points[:, None] / high) ** powers, signs])
        solution = np.linalg.solve(system, np.ones(count + 1))
        scaled, level = solution[:count], abs(solution[count])
        error = ((fine[:, None] / high) ** powers) @ scaled - 1.0
        turns = np.flatnonzero(np.diff(np.sign(np.diff(error)))) + 1
        candidates = np.unique(np.concatenate([[0], turns, [GRID - 1]]))
        chosen = _alternate(candidates, error, count + 1)
        points = fine[chosen]
        if np.abs(error).max() <= level * (1 + 1e-9):
            break
    return scaled / high**powers, float(np.abs(error).max())


def _alternate(candidates: np.ndarray, error: np.ndarray, wanted: int) -> list[int]:
    """Keep the largest error of each run of one sign, then drop the lesser ends."""
    kept: list[int] = []
    for place in candidates:
        if kept and np.sign(error[kept[-1]]) == np.sign(error[place]):
            if abs(error[place]) > abs(error[kept[-1]]):
                kept[-1] = int(place)
        else:
            kept.append(int(place))
    while len(kept) > wanted:
        kept.pop(0 if abs(error[kept[0]]) < abs(error[kept[-1]]) else -1)
    return kept


def factor(odd: np.ndarray) -> tuple[float, float, float, list[tuple[float, float]]]:
    """Return kappa, sign, gamma and the pairs (alpha, beta) of the monic factors, in u."""
    degree = 2 * odd.size - 1
    leading = odd[-1]
    kappa = abs(leading) ** (1.0 / degree)
    roots = poly.polyroots(odd) * kappa**2  # in u^2: p = s u prod (u^2 - root)
    real = sorted(root.real for root in roots if abs(root.imag) < 1e-9)
    pairs = [(-2.0 * root.real, abs(root) ** 2) for root in roots if root.imag > 1e-9]
    gamma = -real.pop(0 if len(real) % 2 else -1)
    while real:
        first, second = real.pop(0), real.pop(0)
        pairs.append((-(first + second), first * second))
    return float(kappa), float(np.sign(leading)), float(gamma), [(float(a), float(b)) for a, b in pairs]


def evaluate(odd: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Evaluate an odd polynomial."""
    return x * poly.polyval(x * x, odd)


def build(delta: float = DELTA) -> dict[str, object]:
    """Compute everything that the product needs."""
    low, high = delta, 1.0
    chain, largest = [], 0.0
    x = np.linspace(0.0, 1.0, GRID)
    y = x
    for degree in DEGREES:
        odd, error = minimax(degree, low, high)
        chain.append(factor(odd))
        y = evaluate(odd, y)
        low, high = 1.0 - error, 1.0 + error
        largest = float(y.max())
    slope = float(np.abs(np.diff(y)).max() * (GRID - 1))
    return {"delta": delta, "error": error, "largest": largest * (1.0 + 1e-6), "slope": slope, "chain": chain}


def main() -> None:
    """Print the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delta", type=float, default=DELTA)
    found = build(parser.parse_args().delta)
    print('"""Coefficients of the sign polynomials, made by scripts/he_coefficients.py: do not edit.')
    print()
    print('Source: Lee et al., "Minimax approximation of sign function by composite polynomial" (2021).')
    print('"""')
    print()
    print("from __future__ import annotations")
    print()
    for name in ("delta", "error", "largest", "slope"):
        print(f"{name.upper()} = {found[name]!r}")
    print("CHAIN = (")
    for kappa, sign, gamma, pairs in found["chain"]:  # type: ignore[attr-defined]
        print(f"    ({kappa!r}, {sign!r}, {gamma!r}, (")
        for pair in pairs:
            print(f"        {pair!r},")
        print("    )),")
    print(")")


if __name__ == "__main__":
    main()
