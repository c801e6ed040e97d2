"""Choose the scheme and each party's role by estimated cost, from public shapes alone.

Source: Vertical HE, §3.2 ("it is preferable for the party with more features to play the role of Alice"), §4.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from fastlloyd.errors import ConfigError, format_count
from fastlloyd.protocols.vertical_he.math import circuit
from fastlloyd.protocols.vertical_he.math.cost import LINEAR_RING, Shape
from fastlloyd.protocols.vertical_he.math.grid import MOST_AXES, count_cells
from fastlloyd.protocols.vertical_he.math.landmarks import count_landmarks
from fastlloyd.protocols.vertical_he.parameters import (
    LANDMARKS,
    LINEAR,
    PAIRWISE,
    PROJECTION,
    TWO_PARTY,
    PublicParameters,
)

_LINEAR_NUMBER_BYTES = 7.0
_CIRCUIT_NUMBER_BYTES = 5.0
_NEEDS = {
    LINEAR: "the linear scheme needs two owners, of whom the one that does not compute has one or two columns",
    PROJECTION: "projection needs two owners, two clusters and several columns at the owner that does not compute",
    LANDMARKS: "landmarks need two owners with three or more columns each, and three clusters or more",
    PAIRWISE: "the pairwise scheme needs two clusters or more, and with three parties or more rank 0 computes",
}
# A byte's cost relative to a second of computing, for the choice only: 100 Mbit/s.
_BYTES_PER_SECOND = 12.5e6


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemeChoice:
    """A scheme with its roles and its estimated cost.

    Attributes
    ----------
    round_seconds : float
        Processor seconds of one round, of both sides, on the machine of the benchmarks.
    setup_bytes, round_bytes : int
    grid, corners : int
        Cells of the grid along each of its columns, and its corners; for landmarks both are their number; else 0.
    """

    scheme: str
    computing: int
    holder: int
    round_seconds: float
    setup_bytes: int
    round_bytes: int
    grid: int = 0
    corners: int = 0

    def total_seconds(self, rounds: int) -> float:
        """Add time and bytes, at 100 Mbit/s; the set-up's bytes take as long to receive as to send."""
        return rounds * self.round_seconds + (2 * self.setup_bytes + rounds * self.round_bytes) / _BYTES_PER_SECOND

    def line(self, rounds: int, factor: float = 1.0) -> str:
        """Describe the choice in one line, for a machine that takes `factor` times as long."""
        total = self.setup_bytes + rounds * self.round_bytes
        opens = f", rank {self.holder} opens" if self.holder != self.computing else " and opens, with all others,"
        return (
            f"scheme {self.scheme}: rank {self.computing} computes{opens} the sums; about "
            f"{factor * self.round_seconds:.2g} processor seconds a round and {total / 1e6:.3g} MB in "
            f"{format_count(rounds, 'round')}"
        )


def options(public: PublicParameters, widths: tuple[int, ...]) -> tuple[SchemeChoice, ...]:
    """List the possible choices, cheapest first.

    The circuit is last under a shared key and where landmarks are possible: its bounds are heuristic, and a record
    moves its sums by sqrt(2) times as much.

    Parameters
    ----------
    public : PublicParameters
    widths : tuple of int
        Number of columns of each owner, in the order of their ranks.
    """
    if public.parties > 2:
        aided = public.mode == "server-aided"
        encrypted = sum(widths) if aided else sum(widths[1:])
        # With a shared key the computing party opens, with the parts of all others, as in the paper.
        several = _pairwise(public, widths, computing=0, holder=1 if aided else 0, encrypted=encrypted)
        return (several,) if public.k >= 2 else ()
    found = []
    for computing in (0, 1):
        holder = 1 - computing
        if widths[holder] <= MOST_AXES:
            found.append(_summing(public, widths, LINEAR, computing=computing, holder=holder))
        if public.k == 2 and widths[holder] > 1:  # with one column it is the linear scheme
            found.append(_summing(public, widths, PROJECTION, computing=computing, holder=holder))
        if public.k > 2 and min(widths) > MOST_AXES:  # else one of the two above is cheaper, and finer
            found.append(_summing(public, widths, LANDMARKS, computing=computing, holder=holder))
        if public.k >= 2:
            found.append(_pairwise(public, widths, computing=computing, holder=holder, encrypted=widths[holder]))
    rounds = public.count_rounds
    last = public.keys > 1 or any(choice.scheme == LANDMARKS for choice in found)
    return tuple(sorted(found, key=lambda choice: (last and choice.scheme == PAIRWISE, choice.total_seconds(rounds))))


def allowed_options(public: PublicParameters, widths: tuple[int, ...]) -> tuple[SchemeChoice, ...]:
    """List the options that the settings allow, cheapest first; at least one.

    Raises
    ------
    ConfigError
        There is none; says which changes would make one possible.
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
        f"{_changes(public, widths)}"
    )


def planned_option(public: PublicParameters, widths: tuple[int, ...], scheme: str, computing: int) -> SchemeChoice:
    """Return the option that a plan chose."""
    (found,) = _among(options(public, widths), scheme, computing)
    return found


def _among(found: tuple[SchemeChoice, ...], scheme: str, computing: int) -> tuple[SchemeChoice, ...]:
    """Keep the choices that fit two settings, either of which may be automatic."""
    return tuple(
        choice for choice in found if scheme in ("auto", choice.scheme) and computing in (-1, choice.computing)
    )


def _changes(public: PublicParameters, widths: tuple[int, ...]) -> str:
    """Name the changes after which some choice is possible; each was tried."""
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
        "let one of the owners have one or two columns": options(public, (1, *widths[1:])),
    }
    working = [words for words, choices in changes.items() if choices]
    fixed = settings.scheme != "auto" or settings.computing != -1
    return ("leave scheme and computing at 'auto', and " if fixed else "") + ", or ".join(working)


def _summing(
    public: PublicParameters, widths: tuple[int, ...], scheme: str, *, computing: int, holder: int
) -> SchemeChoice:
    """Return an option that needs no products of ciphertexts: `linear`, `projection` or `landmarks`."""
    k, encrypted, once = public.k, widths[holder], scheme == LINEAR
    axes, degree = encrypted if once else 1, public.chosen.degree
    grid = count_landmarks(degree, k) if scheme == LANDMARKS else count_cells(degree, axes)
    corners = grid if scheme == LANDMARKS else (grid + 1) ** axes
    ciphertexts = corners * (1 if once else 1 + encrypted)
    shape = Shape(
        scheme=scheme,
        n=public.n_total,
        k=k,
        ring=LINEAR_RING,
        corners=corners,
        own=widths[computing],
        encrypted=encrypted,
        seeded=public.mode == TWO_PARTY,
    )
    sent = _encrypted_bytes(public, ciphertexts)
    return SchemeChoice(
        scheme=scheme,
        computing=computing,
        holder=holder,
        round_seconds=shape.round,
        setup_bytes=sent if once else 0,
        round_bytes=k * (1 + sum(widths)) * (4 * (LINEAR_RING + 1) + 8) + (0 if once else sent),
        grid=grid,
        corners=corners,
    )


def _encrypted_bytes(public: PublicParameters, ciphertexts: int) -> int:
    """Estimate the bytes of this number of ciphertexts for each block."""
    halves = 1 if public.mode == TWO_PARTY else 2  # without the key both halves of a ciphertext travel
    return round(math.ceil(public.n_total / LINEAR_RING) * ciphertexts * LINEAR_RING * _LINEAR_NUMBER_BYTES * halves)


def _pairwise(
    public: PublicParameters, widths: tuple[int, ...], *, computing: int, holder: int, encrypted: int
) -> SchemeChoice:
    k = public.k
    ring = circuit.likely_ring(k)
    blocks = math.ceil(public.n_total / (ring // 2))
    primes = circuit.depth(k) + 2
    columns = blocks * encrypted * primes * (1 if public.mode == TWO_PARTY else 2)
    # The two keys; a shared one is sent back and forth, see `messages`.
    keys = primes * (primes + 2) * (1 if public.keys == 1 else 5 * (public.keys - 1))
    numbers = ring * (columns + keys)
    shape = Shape(
        scheme=PAIRWISE,
        n=public.n_total,
        k=k,
        ring=ring,
        corners=0,
        own=sum(widths) - encrypted,
        encrypted=encrypted,
        seeded=public.mode == TWO_PARTY,
    )
    return SchemeChoice(
        scheme=PAIRWISE,
        computing=computing,
        holder=holder,
        round_seconds=shape.round,
        setup_bytes=round(numbers * _CIRCUIT_NUMBER_BYTES),
        round_bytes=k * (1 + sum(widths)) * (4 * (ring + 1) * max(1, public.keys - 1) + 8),
    )
