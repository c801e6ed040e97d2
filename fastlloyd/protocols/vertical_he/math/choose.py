"""Which scheme, and who plays which part: by estimated cost, from public shapes alone.

Source: Vertical HE, §3.2 ("it is preferable for the party with more features to play the role of Alice"), §4.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from fastlloyd.errors import ConfigError, format_count
from fastlloyd.protocols.vertical_he.math import circuit
from fastlloyd.protocols.vertical_he.parameters import LINEAR, PAIRWISE, PROJECTION, THRESHOLD, PublicParameters

# Measured: encoding weights, multiplying and adding, and the bytes of one number on the way.
_LINEAR_PRODUCT_S = 2.5e-5
_LINEAR_NUMBER_BYTES = 7.0
# Measured: encrypting one ciphertext of the linear scheme and taking it in.
_LINEAR_CIPHERTEXT_S = 1.4e-3
_CIRCUIT_NUMBER_BYTES = 5.0
_LINEAR_RING = 2048
_NEEDS = {
    LINEAR: "the linear scheme needs two owners, of whom the one that does not compute has a single column",
    PROJECTION: "projection needs two owners, two clusters and several columns at the owner that does not compute",
    PAIRWISE: "the pairwise scheme needs two clusters or more and a mode other than threshold",
}
# What a byte costs beside a second of computing, for the choice only: 100 Mbit/s.
_BYTES_PER_SECOND = 12.5e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A scheme with its parts and what it is estimated to cost.

    Attributes
    ----------
    round_seconds : float
        Processor seconds of the computing party in one round.
    setup_bytes, round_bytes : int
    """

    scheme: str
    computing: int
    holder: int
    round_seconds: float
    setup_bytes: int
    round_bytes: int

    def total_seconds(self, rounds: int) -> float:
        """Put time and bytes together, at 100 Mbit/s."""
        return rounds * self.round_seconds + (self.setup_bytes + rounds * self.round_bytes) / _BYTES_PER_SECOND

    def line(self, rounds: int) -> str:
        """Say the choice in one line."""
        total = self.setup_bytes + rounds * self.round_bytes
        return (
            f"scheme {self.scheme}: rank {self.computing} computes, rank {self.holder} opens the sums; about "
            f"{self.round_seconds:.2g} processor seconds a round and {total / 1e6:.3g} MB in "
            f"{format_count(rounds, 'round')}"
        )


def options(public: PublicParameters, widths: tuple[int, ...]) -> tuple[Choice, ...]:
    """List what is possible, cheapest first.

    Parameters
    ----------
    public : PublicParameters
    widths : tuple of int
        Number of columns of each owner, in the order of their ranks.
    """
    if public.mode == "server-aided":
        aided = _pairwise(public, widths, computing=0, holder=1, encrypted=sum(widths))
        return (aided,) if public.k >= 2 else ()
    found = []
    for computing in (0, 1):
        holder = 1 - computing
        if widths[holder] == 1:
            found.append(_linear(public, widths, computing=computing, holder=holder))
        elif public.k == 2:
            found.append(_projection(public, widths, computing=computing, holder=holder))
        if public.mode != THRESHOLD and public.k >= 2:
            found.append(_pairwise(public, widths, computing=computing, holder=holder, encrypted=widths[holder]))
    return tuple(sorted(found, key=lambda choice: choice.total_seconds(public.count_rounds)))


def allowed_options(public: PublicParameters, widths: tuple[int, ...]) -> tuple[Choice, ...]:
    """List the options that the settings allow, cheapest first; at least one.

    Raises
    ------
    ConfigError
        There is none; says what would be.
    """
    settings = public.chosen
    found = _among(options(public, widths), settings.scheme, settings.computing)
    if found:
        return found
    raise ConfigError(
        f"vertical-he.scheme = {settings.scheme} with mode {public.mode}, {public.k} clusters and "
        f"{' + '.join(map(str, widths))} columns is not possible"
        f"{' where rank ' + str(settings.computing) + ' computes' if settings.computing >= 0 else ''}: "
        f"{'; '.join(need for scheme, need in _NEEDS.items() if settings.scheme in ('auto', scheme))}; to run it, "
        f"{_mends(public, widths)}"
    )


def planned_option(public: PublicParameters, widths: tuple[int, ...], scheme: str, computing: int) -> Choice:
    """Return the option that a plan has chosen."""
    (found,) = _among(options(public, widths), scheme, computing)
    return found


def _among(found: tuple[Choice, ...], scheme: str, computing: int) -> tuple[Choice, ...]:
    """Keep what fits settings, either of which may be automatic."""
    return tuple(
        choice for choice in found if scheme in ("auto", choice.scheme) and computing in (-1, choice.computing)
    )


def _mends(public: PublicParameters, widths: tuple[int, ...]) -> str:
    """Name the changes after which something is possible, each of them tried."""
    settings, found = public.chosen, options(public, widths)
    relaxed = {
        "leave scheme at 'auto'": _among(found, "auto", settings.computing),
        "leave computing at 'auto'": _among(found, settings.scheme, -1),
    }
    working = [words for words, choices in relaxed.items() if choices]
    if found:
        return ", or ".join(working or ["leave scheme and computing at 'auto'"])
    changes = {
        "ask for two clusters (--k 2)": options(dataclasses.replace(public, k=2), widths),
        "let one of the owners have a single column": options(public, (1, *widths[1:])),
    }
    if public.mode == THRESHOLD:
        two_party = dataclasses.replace(public, settings={**public.settings, "mode": "two-party"})
        changes = {"set mode = two-party": options(two_party, widths), **changes}
    working = [words for words, choices in changes.items() if choices]
    fixed = settings.scheme != "auto" or settings.computing != -1
    return ("leave scheme and computing at 'auto', and " if fixed else "") + ", or ".join(working)


def linear_seconds(n: int, k: int, degree: int, own_columns: int, *, steps: bool = False) -> float:
    """Estimate the processor seconds of one round of the linear scheme; `steps`: own columns as steps from centres."""
    outputs = 2 * max(k - 1, 1) + own_columns * (k if steps else max(k - 1, 1))
    return math.ceil(n / _LINEAR_RING) * (degree + 2) * outputs * _LINEAR_PRODUCT_S


def encryption_seconds(n: int, ciphertexts: int) -> float:
    """Estimate the processor seconds of encrypting so many ciphertexts of each block, and of taking them in."""
    return math.ceil(n / _LINEAR_RING) * ciphertexts * _LINEAR_CIPHERTEXT_S


def _projection(public: PublicParameters, widths: tuple[int, ...], *, computing: int, holder: int) -> Choice:
    once = _linear(public, widths, computing=computing, holder=holder)
    ciphertexts = (public.chosen.degree + 1) * (1 + widths[holder])
    each = once.setup_bytes * ciphertexts / (public.chosen.degree + 2)
    return Choice(
        scheme=PROJECTION,
        computing=computing,
        holder=holder,
        round_seconds=once.round_seconds + encryption_seconds(public.n, ciphertexts),
        setup_bytes=0,
        round_bytes=once.round_bytes + round(each),
    )


def _linear(public: PublicParameters, widths: tuple[int, ...], *, computing: int, holder: int) -> Choice:
    degree, k = public.chosen.degree, public.k
    blocks = math.ceil(public.n / _LINEAR_RING)
    halves = 2 if public.mode == THRESHOLD else 1  # without the key both halves of a ciphertext travel
    return Choice(
        scheme=LINEAR,
        computing=computing,
        holder=holder,
        round_seconds=linear_seconds(public.n, k, degree, widths[computing]),
        setup_bytes=round(blocks * (degree + 2) * _LINEAR_RING * _LINEAR_NUMBER_BYTES * halves),
        round_bytes=k * (1 + sum(widths)) * (4 * (_LINEAR_RING + 1) + 8),
    )


def _pairwise(
    public: PublicParameters, widths: tuple[int, ...], *, computing: int, holder: int, encrypted: int
) -> Choice:
    ring, k = circuit.RINGS[0], public.k
    blocks = math.ceil(public.n / (ring // 2))
    primes = circuit.depth(k) + 2
    columns = blocks * encrypted * primes * (2 if public.mode == "server-aided" else 1)
    numbers = ring * (columns + primes * (primes + 2))  # and the two keys
    return Choice(
        scheme=PAIRWISE,
        computing=computing,
        holder=holder,
        round_seconds=circuit.seconds(public.n, k),
        setup_bytes=round(numbers * _CIRCUIT_NUMBER_BYTES),
        round_bytes=k * (1 + sum(widths)) * (4 * (ring + 1) + 8),
    )
