r"""Lagrange codes: a vector in l segments and t random ones, as points of one polynomial; one point for each client.

A record x in l segments x_1..x_l and t uniform vectors z_{l+1}..z_{l+t} fix the polynomial f of degree l + t - 1 with
f(beta_u) = x_u for u <= l and f(beta_u) = z_u for u > l. Client j gets the share f(alpha_j).

For distinct points modulo each prime:

- any t shares are uniform and independent of the record: for fixed segments the t shares are an invertible affine map
  of the t uniform vectors (Lagrange's basis at t points alpha, divided by a common non-zero factor for each, is a
  Cauchy matrix);
- any l + t shares give the record;
- an inner product of two such polynomials has degree 2 (l + t - 1), so 2l + 2t - 1 of its values give its values
  at beta_1..beta_l, and their sum is one weighted sum of those values: the weights are computed once for each set
  of clients.

All parties derive the same points from the field, l, t and n: beta_u = u and alpha_j = l + t + j, moved up together
where `zero_sum.py` needs it.

Clients are numbered 1..n, as their ranks are on the wire. Arrays of field elements have the primes as first axis
(`protocols/secfc/field/prime.py`).

Wrong answers among those to a coded question are found and named.
The true answers are values of polynomials of degree at most 2 (l + t - 1), so R = 2l + 2t - 1 of them fix the others:
a Reed-Solomon code. With s = (number of answers) - R of slack, up to s wrong clients are noticed, and up to
floor(s / 2) are named, however the wrong answers were chosen and wherever they are wrong. With more wrong clients
than floor(s / 2) an honest one might be named; with slack 0 nothing can be noticed.

Notation: v_j = 1 / prod_{i != j} (alpha_j - alpha_i); the syndromes sum_j v_j alpha_j^i y_j, i = 0..s - 1, vanish for
all entries if and only if the answers y are consistent. The syndromes of a wrong entry are a sum of powers of the
alpha of the wrong clients, whence the shortest recurrence that they satisfy (Berlekamp and Massey) has these as roots.

Source: SecFC, §4.1, Eq. 2, Alg. 1; Yu et al., "Lagrange coded computing" (2019), Theorem 1; docs/secfc.md.
Wrong answers: SecFC names no check; MacWilliams and Sloane, "The theory of error-correcting codes", ch. 9, 10.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, InternalError
from fastlloyd.protocols.secfc.field.prime import Elements, Field
from fastlloyd.randomness.secret import SecretRandom


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


@dataclass(frozen=True, slots=True)
class Code:
    """The code of one run.

    Parameters
    ----------
    field : Field
    segments : int
        l, at least 1.
    threshold : int
        t, the number of clients that together learn nothing from their shares; at least 1.
    clients : int
        n, at least 2l + 2t - 1.

    Attributes
    ----------
    betas : tuple of int, length l + t
        Where the polynomial takes the segments, then the random vectors.
    alphas : tuple of int, length n
        Where the clients' shares are taken: client j's is alphas[j - 1].

    Raises
    ------
    ConfigError
        Too few clients for l and t, or primes too small for all points.
    """

    field: Field
    segments: int
    threshold: int
    clients: int
    betas: tuple[int, ...] = dataclasses.field(init=False, compare=False)
    alphas: tuple[int, ...] = dataclasses.field(init=False, compare=False)

    def __post_init__(self) -> None:
        l, t, n = self.segments, self.threshold, self.clients  # noqa: E741
        if min(l, t) < 1:
            raise ConfigError(f"expected at least one segment and a threshold of at least 1, got l = {l}, t = {t}")
        if n < 2 * l + 2 * t - 1:
            raise ConfigError(
                f"l = {l} segments and a threshold of t = {t} need at least 2l + 2t - 1 = {2 * l + 2 * t - 1} clients, "
                f"got {n}; lower l or t so that l + t <= {(n + 1) // 2}, or add clients"
            )
        betas = tuple(range(1, l + t + 1))
        smallest = min(self.field.primes)
        for first in range(l + t + 1, smallest - n + 1):
            alphas = tuple(range(first, first + n))
            if all(_masks_determine(p, betas[:l], alphas[: 2 * (l + t - 1)]) for p in self.field.primes):
                object.__setattr__(self, "betas", betas)
                object.__setattr__(self, "alphas", alphas)
                return
        raise ConfigError(f"{n + l + t} distinct points do not fit the prime {smallest}; choose larger primes")

    @property
    def degree(self) -> int:
        """Degree of a shared polynomial: l + t - 1."""
        return self.segments + self.threshold - 1

    @property
    def reveal(self) -> int:
        """Shares that give a shared vector: l + t."""
        return self.degree + 1

    @property
    def recovery(self) -> int:
        """Answers that give a sum: 2l + 2t - 1."""
        return 2 * self.degree + 1

    def width(self, d: int) -> int:
        """Coordinates in one segment of d: d / l, rounded up."""
        return -(-d // self.segments)

    def split(self, elements: Elements) -> Elements:
        """Cut vectors into segments, the last filled with zeros.

        Parameters
        ----------
        elements : array, shape (primes, m, d)

        Returns
        -------
        array, shape (primes, l, m, width(d))
        """
        primes, m, d = elements.shape
        width = self.width(d)
        padded = np.zeros((primes, m, self.segments * width), dtype=elements.dtype)
        padded[..., :d] = elements
        return np.ascontiguousarray(padded.reshape(primes, m, self.segments, width).transpose(0, 2, 1, 3))

    def join(self, segments: Elements, d: int) -> Elements:
        """Join segments: shape (primes, l, m, width(d)) to (primes, m, d)."""
        primes, _, m, width = segments.shape
        return segments.transpose(0, 2, 1, 3).reshape(primes, m, self.segments * width)[..., :d]

    def share(self, raw_elements: Elements, secret: SecretRandom) -> Elements:
        """Make the shares of vectors for all clients, by one matrix product.

        Parameters
        ----------
        raw_elements : array, shape (primes, m, d)
        secret : SecretRandom
            Source of the t random vectors of each record, uniform on the field.

        Returns
        -------
        float64 array, shape (primes, n, m, width(d))
            Row j - 1 is for client j.

        Notes
        -----
        Privacy: any t rows are uniform and independent of the vectors; any l + t rows give them.
        """
        primes, m, d = raw_elements.shape
        width = self.width(d)
        coded = np.empty((primes, self.reveal, m, width))
        coded[:, : self.segments] = self.split(raw_elements)
        coded[:, self.segments :] = self.field.uniform((self.threshold, m, width), secret)
        flat = coded.reshape(primes, self.reveal, m * width)
        return self.field.matmul(self.encoding_matrix(), flat).reshape(primes, self.clients, m, width)

    def encoding_matrix(self) -> Elements:
        """Return the matrix from segments and random vectors to shares, shape (primes, n, l + t)."""
        return _interpolation(self.field, self.betas, self.alphas)

    def decode_sums(self, answers: Elements, responders: Sequence[int]) -> Elements:
        """Return the sum over beta_1..beta_l of polynomials of degree at most 2 (l + t - 1).

        Parameters
        ----------
        answers : array, shape (primes, answers, ...)
            Residues, centred or in 0..p - 1, in the order of the responders; only the first 2l + 2t - 1 are used.
        responders : sequence of int

        Returns
        -------
        float64 array, shape (primes, ...)

        Raises
        ------
        InternalError
            Too few responders, twice the same, or not 1..n.
        """
        weights = sum_weights(self, self.checked(responders, self.recovery)[: self.recovery])
        flat = answers[:, : self.recovery].reshape(len(answers), self.recovery, math.prod(answers.shape[2:]))
        return self.field.matmul(weights[:, None, :], flat, centred=False).reshape(len(answers), *answers.shape[2:])

    def decode_segments(self, shares: Elements, responders: Sequence[int], degree: int | None = None) -> Elements:
        """Return the values at beta_1..beta_l of polynomials.

        Parameters
        ----------
        shares : array, shape (primes, at least degree + 1, ...)
            In the order of the responders; only the first degree + 1 are used.
        responders : sequence of int
        degree : int, optional
            l + t - 1 if left out: that of shared vectors and of their sums.

        Returns
        -------
        float64 array, shape (primes, l, ...)

        Notes
        -----
        Privacy: this opens a secret. A run only opens sums over final clusters, to clients, if it reveals centres.
        """
        needed = (self.degree if degree is None else degree) + 1
        chosen = self.checked(responders, needed)[:needed]
        matrix = _interpolation(self.field, self.points(chosen), self.betas[: self.segments])
        flat = shares[:, :needed].reshape(len(shares), needed, math.prod(shares.shape[2:]))
        return self.field.matmul(matrix, flat).reshape(len(shares), self.segments, *shares.shape[2:])

    def points(self, clients: Sequence[int]) -> tuple[int, ...]:
        """Return the points of clients."""
        return tuple(self.alphas[j - 1] for j in clients)

    def checked(self, responders: Sequence[int], needed: int) -> tuple[int, ...]:
        """Return the responders; raise InternalError if fewer than `needed`, not distinct or not clients."""
        numbers = tuple(int(j) for j in responders)
        if len(set(numbers) & set(range(1, self.clients + 1))) != len(numbers) or len(numbers) < needed:
            raise InternalError(f"expected at least {needed} distinct clients of 1..{self.clients}, got {numbers}")
        return numbers


def _masks_determine(p: int, betas: Sequence[int], alphas: Sequence[int]) -> bool:
    """Return whether values at the first 2l + 2t - 2 clients fix a polynomial with zero sum over beta_1..beta_l.

    Two such polynomials differ by a multiple of prod_j (x - alpha_j), whose own sum must therefore not be 0.
    """
    return sum(_product(p, (beta - alpha for alpha in alphas)) for beta in betas) % p != 0


def _product(p: int, factors: Iterable[int]) -> int:
    """Multiply modulo a prime."""
    result = 1
    for factor in factors:
        result = result * factor % p
    return result


@lru_cache(maxsize=256)
def _interpolation(field: Field, sources: tuple[int, ...], targets: tuple[int, ...]) -> Elements:
    """Return the matrix from values at the sources to those at the targets: (primes, targets, sources)."""
    rows = [[_lagrange_row(p, sources, target) for target in targets] for p in field.primes]
    return _frozen(field, rows)


def _lagrange_row(p: int, sources: tuple[int, ...], target: int) -> list[int]:
    """Return the values at one point of Lagrange's basis polynomials, by barycentric weights."""
    if target in sources:
        return [int(source == target) for source in sources]
    whole = _product(p, (target - source for source in sources))
    return [whole * pow(target - s, -1, p) * w % p for s, w in zip(sources, barycentric(p, sources), strict=True)]


@lru_cache(maxsize=256)
def barycentric(p: int, sources: tuple[int, ...]) -> tuple[int, ...]:
    """Return 1 / prod over other points of the differences, for each point."""
    return tuple(pow(_product(p, (s - other for other in sources if other != s)), -1, p) for s in sources)


@lru_cache(maxsize=256)
def sum_weights(code: Code, responders: tuple[int, ...]) -> Elements:
    """Return the weights of 2l + 2t - 1 answers in the sum of the polynomial over beta_1..beta_l, read-only.

    They are the sums of the rows of the interpolation at beta_1..beta_l: float64 array, shape (primes, responders).
    """
    matrix = _interpolation(code.field, code.points(responders), code.betas[: code.segments])
    weights = code.field.reduce(matrix.sum(axis=1))
    weights.flags.writeable = False
    return weights


@lru_cache(maxsize=16)
def completion_matrix(code: Code) -> Elements:
    """Return the matrix that completes a polynomial of degree 2 (l + t - 1) whose sum over beta_1..beta_l is 0.

    It maps the values at the points of the first D = 2l + 2t - 2 clients to those at the others': read-only float64
    array, shape (primes, n - D, D). Each row solves the zero sum of the first D answers and one more for that one.
    """
    first = code.recovery - 1
    rows: list[list[list[int]]] = [[] for _ in code.field.primes]
    for client in range(first + 1, code.clients + 1):
        weights = sum_weights(code, (*range(1, first + 1), client))
        for i, p in enumerate(code.field.primes):
            own = -pow(int(weights[i, -1]), -1, p)
            rows[i].append([own * int(weight) % p for weight in weights[i, :-1]])
    return _frozen(code.field, rows)


def _frozen(field: Field, rows: list[list[list[int]]]) -> Elements:
    """Make a read-only matrix of elements from residues."""
    matrix = field.reduce(np.array(rows, dtype=np.float64))
    matrix.flags.writeable = False
    return matrix
