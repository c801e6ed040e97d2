r"""Wrong answers among those to a coded question: found and named.

The true answers are values of polynomials of degree at most 2 (l + t - 1), so R = 2l + 2t - 1 of them fix the others:
a Reed-Solomon code. With s = (number of answers) - R of slack, up to s wrong clients are noticed, and up to
floor(s / 2) are named, however the wrong answers were chosen and wherever they are wrong. With more wrong clients
than floor(s / 2) an honest one might be named; with slack 0 nothing can be noticed.

Notation: v_j = 1 / prod_{i != j} (alpha_j - alpha_i); the syndromes sum_j v_j alpha_j^i y_j, i = 0..s - 1, vanish for
all entries if and only if the answers y are consistent. The syndromes of a wrong entry are a sum of powers of the
alpha of the wrong clients, whence the shortest recurrence that they satisfy (Berlekamp and Massey) has these as roots.

Source: SecFC names no check; MacWilliams and Sloane, "The theory of error-correcting codes", ch. 9, 10;
docs/secfc.md, "The arithmetic, byte by byte".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.field.lagrange import Code, barycentric
from fastlloyd.protocols.secfc.field.prime import Elements


class Unlocated(ValueError):
    """The answers contradict each other, and there are too few to find the wrong ones.

    Attributes
    ----------
    responders : tuple of int
        The clients among which the wrong ones are.
    slack : int
        Answers beyond those needed.
    """

    def __init__(self, responders: tuple[int, ...], slack: int) -> None:
        names = ", ".join(map(str, responders))
        super().__init__(
            f"the answers of clients {names} contradict each other; with {slack} more answers than needed at most "
            f"{slack // 2} wrong ones can be named: expected answers of one polynomial; look at these clients' "
            "versions and machines, or lower l or t, which leaves more answers to compare"
        )
        self.responders = responders
        self.slack = slack


def locate_wrong(code: Code, answers: Elements, responders: Sequence[int]) -> tuple[int, ...]:
    """Return the clients whose answers are wrong, if these are at most half the slack.

    Parameters
    ----------
    code : Code
    answers : array, shape (primes, answers, ...)
        Residues, centred or in 0..p - 1; in the order of the responders, at least 2l + 2t - 1.
    responders : sequence of int

    Returns
    -------
    tuple of int
        In ascending order; empty if the answers agree. The other answers agree among each other.

    Raises
    ------
    Unlocated
        The answers contradict each other and no choice of at most half the slack explains it.
    """
    numbers = code.checked(responders, code.recovery)
    slack = len(numbers) - code.recovery
    kept, wrong = list(range(len(numbers))), set[int]()
    while True:
        rest = tuple(numbers[i] for i in kept)
        chosen = answers if len(kept) == len(numbers) else answers[:, kept]
        flat = chosen.reshape(*chosen.shape[:2], math.prod(chosen.shape[2:]))
        syndromes = code.field.matmul(_checks(code, rest), flat, centred=False)
        bad = np.flatnonzero(syndromes.any(axis=(0, 1)))
        if not bad.size:
            return tuple(sorted(wrong))
        named = _explain(code, syndromes[:, :, bad[0]], rest)
        wrong |= named
        if not named or 2 * len(wrong) > slack:
            raise Unlocated(numbers, slack)
        kept = [i for i in kept if numbers[i] not in wrong]


@lru_cache(maxsize=64)
def _checks(code: Code, responders: tuple[int, ...]) -> Elements:
    """Return the parity checks, shape (primes, slack, answers)."""
    points = code.points(responders)
    slack = len(points) - code.recovery
    rows = np.zeros((len(code.field.primes), slack, len(points)))
    for i, p in enumerate(code.field.primes):
        for j, (point, weight) in enumerate(zip(points, barycentric(p, points), strict=True)):
            for power in range(slack):
                rows[i, power, j] = weight * pow(point, power, p) % p
    matrix = code.field.reduce(rows)
    matrix.flags.writeable = False
    return matrix


def _explain(code: Code, syndromes: NDArray[np.float64], responders: tuple[int, ...]) -> set[int]:
    """Return the clients that explain one entry's syndromes, shape (primes, slack); none if too many do."""
    named: set[int] = set()
    for p, row in zip(code.field.primes, syndromes, strict=True):
        values = [int(value) % p for value in row]
        if any(values):
            locator = _shortest_recurrence(values, p)
            errors = len(locator) - 1
            roots = {j for j in responders if _evaluate(locator, code.points((j,))[0], p) == 0}
            if len(roots) != errors or 2 * errors > len(values):
                return set()
            named |= roots
    return named


def _evaluate(recurrence: list[int], point: int, p: int) -> int:
    """Evaluate the polynomial with these coefficients, highest power first."""
    value = 0
    for coefficient in recurrence:
        value = (value * point + coefficient) % p
    return value


def _shortest_recurrence(values: list[int], p: int) -> list[int]:
    """Return c, c_0 = 1, of least length L + 1 with sum_i c_i values[n - i] = 0 for all n >= L."""
    current, previous, length, gap, last = [1], [1], 0, 1, 1
    for n in range(len(values)):
        miss = sum(c * values[n - i] for i, c in enumerate(current) if i <= n) % p
        if miss == 0:
            gap += 1
            continue
        factor = miss * pow(last, -1, p) % p
        updated = current + [0] * max(0, gap + len(previous) - len(current))
        for i, c in enumerate(previous):
            updated[i + gap] = (updated[i + gap] - factor * c) % p
        if 2 * length <= n:
            previous, length, last, gap = current, n + 1 - length, miss, 1
        else:
            gap += 1
        current = updated
    return (current + [0] * (length + 1 - len(current)))[: length + 1]
