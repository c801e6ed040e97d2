"""The plan of one run: roles, parameters of the encryption, noise, releases.

Source: Vertical HE, §3 ("Differential Privacy"); docs/vertical-he-privacy.md.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fastlloyd.party.plain_plan import PlainPlan
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.vertical_he.he.lattice import Parameters
from fastlloyd.protocols.vertical_he.math.hints import HINT_SHARE
from fastlloyd.protocols.vertical_he.parameters import (
    LANDMARKS,
    LINEAR,
    PAIRWISE,
    PROJECTION,
    THRESHOLD,
    AgreedTerms,
    Scales,
    count_pieces,
)

ZERO_OUT = "zero-out of one user's row"
MIDDLE = "one user's values, at one party or all, replaced by the middle of their bounds"


@dataclass(frozen=True, kw_only=True)
class Plan(AgreedTerms, PlainPlan):
    """Everything public that one run needs; the same on all parties.

    Attributes
    ----------
    threshold : int
        Parties it takes to open, including the computing one; 0 where no key is shared.
    computing, holder : int
        Ranks of the computing party and of the party that opens the sums: the same one where more than two parties
        share the key.
    owners : tuple of int
        Ranks that hold columns, in the order of the centres' columns.
    names : tuple of tuple of str
        Per owner.
    private : bool
        Whether the noise gives differential privacy; if not, it only floods.
    grid : int
        Cells of the grid along each of its columns, or the number of landmarks; 0 for the pairwise circuit.
    cell : float
        k^(-1/d) where noisy centres are weighed with what is known (`rounds`), else 0.
    radius : float
        The longest step, scaled domain, where the computing party's columns enter as steps from the centres; else 0.
    scales : Scales
    count_scale, sum_scale : float
        Standard deviation of each side's noise on a count and on a sum, in integer units (`unit` to one count).
    step_scale : float
        The same on a sum of steps, in integer units (`unit` to one radius); 0 without them.
    """

    mode: str
    scheme: str
    threshold: int
    computing: int
    holder: int
    owners: tuple[int, ...]
    names: tuple[tuple[str, ...], ...]
    delta: float
    rounds: int
    tolerance: float
    private: bool
    grid: int
    cell: float
    radius: float
    scales: Scales
    count_scale: float
    sum_scale: float
    step_scale: float

    @property
    def clients(self) -> int:
        """Parties but rank 0."""
        return self.parties - 1

    @cached_property
    def d(self) -> int:
        """Columns of all owners together."""
        return sum(map(len, self.names))

    @property
    def shrinks(self) -> bool:
        """Whether noisy centres and counts are weighed with what is known."""
        return self.cell > 0.0

    @property
    def stepping(self) -> tuple[int, ...]:
        """Columns whose sums are of steps from the centres: those of the computing party, or none."""
        return self.columns(self.computing) if self.radius > 0.0 else ()

    @property
    def noises(self) -> int:
        """Independent noises of the full scale in every output: those of two sides, or one for each piece."""
        return 1 + count_pieces(self.parties, self.threshold)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Ranks that hold each piece of a key that more than two share; any t - 1 of them have a member in each."""
        return tuple(itertools.combinations(self.openers, self.parties - self.threshold + 1)) if self.openers else ()

    def held(self, rank: int) -> tuple[int, ...]:
        """Return the numbers of the groups that a party belongs to; every party has equally many."""
        return tuple(number for number, group in enumerate(self.groups) if rank in group)

    @property
    def digits(self) -> int:
        """Count the parts of the relinearisation key; 0 where none is needed."""
        return self.encryption.digits if self.scheme == PAIRWISE else 0

    @property
    def outputs(self) -> int:
        """Integers per round: k (d + 1), cluster by cluster, first the count."""
        return self.k * (self.d + 1)

    @property
    def unit(self) -> float:
        """Integers to one count."""
        return self.scales.unit

    @property
    def movement(self) -> float:
        """How far one neighbour moves the counts in L2, except for rounding; see `movement`."""
        return movement(self.scheme)

    @property
    def encryption(self) -> Parameters:
        """Ring degree and primes."""
        return Parameters(self.scales.ring, self.scales.prime_bits)

    @property
    def block_size(self) -> int:
        """Records of one block: all coefficients, or all slots."""
        return self.scales.ring // 2 if self.scheme == PAIRWISE else self.scales.ring

    @property
    def blocks(self) -> int:
        """Blocks of each owner, at most."""
        return self.blocks_of(self.n_total)

    def blocks_of(self, n: int) -> int:
        """Count the blocks of n records."""
        return -(-n // self.block_size)

    def rows(self, block: int) -> slice:
        """Return the places of one block; of the last one, the last records have the first."""
        return slice(block * self.block_size, (block + 1) * self.block_size)

    def parts(self, rank: int) -> int:
        """Count the ciphertexts of an owner's block: corners or landmarks, or two for each column."""
        columns = len(self.columns(rank))
        if self.scheme == PAIRWISE:
            return 2 * columns
        return self.corners if self.scheme == LINEAR else self.corners * (1 + columns)

    @property
    def axes(self) -> int:
        """Columns of the grid: those that are encrypted, or a projection's one."""
        return 1 if self.scheme == PROJECTION else len(self.columns(self.holder))

    @property
    def corners(self) -> int:
        """Number of corners of the grid, or of landmarks."""
        return self.grid if self.scheme == LANDMARKS else int((self.grid + 1) ** self.axes)

    @property
    def openers(self) -> tuple[int, ...]:
        """Ranks whose parts the opening party needs: all others, where more than two share the key."""
        shared = self.owners if self.mode == THRESHOLD else ()
        return tuple(rank for rank in shared if rank not in (self.computing, self.holder))

    @property
    def encrypting(self) -> tuple[int, ...]:
        """Ranks whose columns are encrypted."""
        return tuple(rank for rank in self.owners if rank != self.computing)

    def columns(self, rank: int) -> tuple[int, ...]:
        """Return the numbers of an owner's columns among all; none for a party without data."""
        start = 0
        for owner, own in zip(self.owners, self.names, strict=True):
            if owner == rank:
                return tuple(range(start, start + len(own)))
            start += len(own)
        return ()

    def releases(self, t: int, *, seen_by: str) -> tuple[Release, ...]:
        """Return what round t releases to another party: counts and sums over all clusters.

        Privacy: a record enters with weights that are not negative and sum to at most 1, so the counts move by at
        most `movement` and the sums by sqrt(d) times that in L2, times 1 + b for rounding. Only one side's noise
        counts, less the part that floods the encryption's errors.

        With a radius R the sums of the computing party's a columns are of w_j u_j / R for each cluster j: w_j the
        record's weights, and u_j its vector from centre j in these columns, shortened to R. Whatever the centres are,
        |u_j| <= R, so the L2 norm over all clusters is at most (sum of w_j^2)^(1/2) <= 1. Rounding and errors move each
        of k a outputs by at most b / sqrt(k), as they do a count: sqrt(a) b in all. Then "soft sums" are those of the
        other columns. R is fixed before the first round; centres are made of earlier releases, which adaptive
        composition allows.
        """
        common: dict[str, Any] = {
            "round": t,
            "mechanism": "gaussian" if self.private else "none",
            "norm": "l2",
            "unit": f"1/{self.unit:.6g} of a record",
            "neighbours": MIDDLE if self.scheme == PAIRWISE else ZERO_OUT,
            "seen_by": seen_by,
        }
        one = self.movement * self.unit * (1.0 + self.scales.error)
        counted = math.sqrt(1.0 - HINT_SHARE) if self.private else 0.0
        steps = len(self.stepping)
        found = [
            Release(name="soft counts", sensitivity=one, noise_scale=self.count_scale * counted, **common),
            Release(
                name="soft sums",
                sensitivity=one * math.sqrt(self.d - steps),
                noise_scale=self.sum_scale * counted,
                **common,
            ),
        ]
        if steps:
            whole = self.unit * (1.0 + math.sqrt(steps) * self.scales.error)
            found.append(Release(name="soft steps", sensitivity=whole, noise_scale=self.step_scale * counted, **common))
        return tuple(found)

    def charged(self, t: int, *, seen_by: str) -> tuple[Release, ...]:
        """Return the releases that the ledger must hold before round t: its own, or those of all rounds.

        With a tolerance, the releases decide when the run stops. Epsilon was calibrated for a fixed number of rounds,
        and stopping early is post-processing of these. So all of them are charged, and at once: a run that ends earlier
        has charged too much, never too little.
        """
        return self.all_releases(seen_by=seen_by) if self.tolerance > 0.0 else self.releases(t, seen_by=seen_by)

    def charged_releases(self, done: int) -> tuple[Release, ...]:
        """Return the releases that a run of `done` rounds has charged."""
        return tuple(release for release in self.all_releases() if self.tolerance > 0.0 or release.round < done)

    def all_releases(self, *, seen_by: str = "another party") -> tuple[Release, ...]:
        """Return the releases of all rounds in order."""
        return tuple(release for t in range(self.rounds) for release in self.releases(t, seen_by=seen_by))


def movement(scheme: str) -> float:
    """Return how far one row moves the counts of a round, in L2.

    Linear scheme, projection, landmarks: a row that is replaced by nothing, at either party, adds nothing at all,
    since all its shares are encrypted: 1. Pairwise circuit: the record stays and is assigned by its remaining values;
    two vectors that are not negative and sum to at most 1 differ by at most sqrt(2). Its sums differ by at most sqrt(2)
    per column that stays and 1 per column that is replaced.
    """
    return math.sqrt(2.0) if scheme == PAIRWISE else 1.0
