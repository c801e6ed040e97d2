"""What the parties of FedDP-KMeans agree on, and the plan of a run: grids, bounds, noise and releases of every step.

The server makes the plan and sends it; each client checks it against its own configuration and recomputes epsilon
from the planned releases before it takes part. Noise scales and sensitivities are in grid units, where they hold
exactly: whatever norm bound the server proposes, records are cut to it before anything is computed from them.

Source: FedDP-KMeans, Alg. 1 and 2, App. G.4; docs/privacy.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastlloyd.errors import ConfigError, ProcessesError
from fastlloyd.party.plain_plan import RoundsPlan, SumsTerms
from fastlloyd.privacy.limits import check_clusters, check_numbers, check_rounds
from fastlloyd.privacy.release import ADD_REMOVE, ADD_REMOVE_USER, GAUSSIAN_SHARES, LAPLACE_SHARES, Release
from fastlloyd.protocols.feddp.math.projection import projected_limit
from fastlloyd.protocols.feddp.settings import CENTERS, OUTER, PRIVATE, START, WEIGHTS, Kind, settings_from
from fastlloyd.wire.decode import Amount, Within

LIFT = 0.5
"""The constant beside each record in the start 'private', over Delta."""
PROXY_DIRECTIONS = 3
"""The largest number of directions along which the proxy points of the start 'private' differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreedTerms(SumsTerms):
    """What the public parameters and the plan have in common.

    Attributes
    ----------
    clients : int
        m, the parties that hold records; at client level each may hold many users.
    k : int
        Number of clusters; with `choose_k` the largest number, k' of App. H.3.
    choose_k : bool
        Let the server choose k by the elbow of the weighted server data.
    """

    choose_k: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicParameters(AgreedTerms):
    """Public parameters of one run.

    Attributes
    ----------
    delta : float or None
        None: the default, 1 / (100 N).
    rounds : int or None
        Paper: T, Lloyd steps after the start; None: see `settings.default_rounds`.

    Raises
    ------
    ConfigError
        A parameter is out of range.
    """

    masking: str = "pairwise"
    delta: float | None = None
    rounds: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.clients < 2:
            raise ProcessesError(f"feddp: expected at least 2 clients, got {self.clients}", 3)
        if self.masking == "common":
            raise ConfigError(
                "--masking: feddp expects 'pairwise' or 'threshold', since its server works on the noisy sums, got "
                "'common'"
            )
        self.check_masking()
        check_clusters(self.k, self.n_total)
        check_numbers(n_total=self.n_total, epsilon=self.epsilon, delta=self.delta)
        settings = settings_from(self.settings)
        check_rounds(self.rounds, least=0 if settings.has_start else 1, what=" of Lloyd steps")
        if self.choose_k and settings.start != "feddp":
            raise ConfigError(
                f"--k auto: the elbow needs the server's own points and steps 1 and 2, and the start "
                f"{settings.start!r} does without them; give --k"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One step's noise, in the grid units of its releases; of the m - t shares that count.

    Attributes
    ----------
    kind : Kind
        'outer product', 'weights', 'centres', 'lloyd', or 'start' (nothing is asked of the clients).
    sigma : float
        Standard deviation of the Gaussian release; 0 if there is none.
    scale : float
        Scale b of the Laplace release; 0 if there is none.
    """

    kind: Kind
    sigma: Amount
    scale: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(AgreedTerms, RoundsPlan):
    """Everything public that one run needs; the same on all parties.

    Attributes
    ----------
    n_server : int
        Number of the server's points, or of proxy points in their place; 0 where no step needs them.
    norm_bound : float
        Delta, scaled domain.
    outer_clip, weight_clip, mean_clip, count_clip : float
        Bounds on one user's statistics, scaled domain; 0 at record level.
    fraction_bits, outer_bits, projected_bits : int
        q, p and g of `math/projection.py`.
    rounds : tuple of StepPlan
        One exchange each.
    """

    d: int
    names: tuple[str, ...]
    n_server: int
    delta: float
    privacy_level: str
    start: str
    norm_bound: float
    outer_clip: float
    weight_clip: float
    mean_clip: float
    count_clip: float
    fraction_bits: int
    outer_bits: int
    projected_bits: int
    rounds: Annotated[tuple[StepPlan, ...], Within(1, 2000)]

    private = True
    mechanism = "discrete gaussian shares, discrete laplace shares"

    @property
    def rank(self) -> int:
        """Rows of the projection."""
        return min(self.k, self.d)

    @property
    def by_user(self) -> bool:
        """Whether neighbours differ in one user's records."""
        return self.privacy_level == "client"

    @property
    def norm_limit(self) -> int:
        """R = floor(Delta 2^q): the largest norm of a record on the grid."""
        return math.floor(self.norm_bound * (1 << self.fraction_bits))

    @property
    def lift(self) -> int:
        """C of the start 'private' on the grid of 2^-p: a constant beside each record in step 1; 0 for none."""
        return max(math.floor(LIFT * self.norm_bound * (1 << self.outer_bits)), 1) if self.start == PRIVATE else 0

    @property
    def outer_limit(self) -> int:
        """The largest coordinate on the grid of 2^-p, the constant included."""
        return max(min(1 << self.outer_bits, self.norm_limit), self.lift)

    @property
    def projected_limit(self) -> int:
        """L: the largest norm of a projected point on its grid."""
        return projected_limit(self.norm_bound, self.rank, self.projected_bits)

    def limit_of(self, clip: float, bits: int) -> int:
        """Return floor(clip 2^bits): a bound on a user's statistic in grid units."""
        return math.floor(clip * (1 << bits))

    def ring_of(self, t: int) -> int:
        """Return the ring width of step t: 64 for the outer product."""
        return 64 if self.rounds[t].kind == OUTER else self.ring_bits

    def elements(self, t: int, k: int | None = None) -> int:
        """Return the ring elements that each client sends in step t, with k clusters."""
        kind = self.rounds[t].kind
        if kind == OUTER:
            width = self.d + (self.lift > 0)
            return width * (width + 1) // 2
        if kind == WEIGHTS:
            return self.n_server
        return 0 if kind == START else (self.k if k is None else k) * (self.d + 1)

    @property
    def longest_bytes(self) -> int:
        """The bytes of the longest vector, and of its box."""
        boxed = self.masking == "threshold" and self.min_clients < self.clients
        return max(self.elements(t) * self.ring_of(t) // 8 for t in range(len(self.rounds))) * (2 if boxed else 1)

    def releases(self, t: int) -> tuple[Release, ...]:
        """Return what step t releases; see `sensitivities` for why one neighbour moves it by no more."""
        step, gauss, laplace = self.rounds[t], *self.sensitivities(t)
        mean = "means" if self.by_user else "sums"
        names = {OUTER: ("outer product", ""), WEIGHTS: ("", "weights"), CENTERS: (mean, "counts")}
        first, second = names.get(step.kind, (mean, "counts"))
        bits = 2 * self.outer_bits if step.kind == OUTER else self.fraction_bits
        neighbours = ADD_REMOVE_USER if self.by_user else ADD_REMOVE
        parts = ((first, gauss, GAUSSIAN_SHARES, step.sigma), (second, laplace, LAPLACE_SHARES, step.scale))
        return tuple(
            self.noisy_sum(
                t,
                mechanism=mechanism,
                bits=bits,
                name=name,
                sensitivity=float(moved),
                noise_scale=scale,
                neighbours=neighbours,
                seen_by="server",
            )
            for name, moved, mechanism, scale in parts
            if moved
        )

    def sensitivities(self, t: int) -> tuple[int, int]:
        """Return how far one neighbour moves step t's Gaussian (L2) and Laplace (L1) vector, in grid units.

        Notes
        -----
        Privacy, record level, R = floor(Delta 2^q), x the record on the grid, |x|_2 <= R:

        * outer product: the record adds the entries y_i y_j, i <= j, of y = x / 2^(q - p) truncated towards zero. Their
          squares add up to at most sum_ij y_i^2 y_j^2 = |y|^4 (the Frobenius norm), and |y|^2 is an integer of at most
          R^2 / 4^(q - p). So L2 <= floor(R^2 / 4^(q - p)); with p = q that is floor(Delta 2^q)^2. In the start
          'private' y has the constant c as one more entry, so that L2 <= floor(R^2 / 4^(q - p)) + c^2.
        * weights: its label depends on itself and public values only; it adds 2^q to one count.
        * sums, counts: it adds x to one row, and 2^q to one count: L2 <= R, L1 <= 2^q.

        Client level: each user's vector is cut to its bound in integers and checked afterwards (`user.py`).
        Source: Alg. 1 lines 6, 15 and 23; App. G.4.
        """
        kind, q = self.rounds[t].kind, self.fraction_bits
        if kind == START:
            return 0, 0
        if not self.by_user:
            outer = (self.norm_limit**2 >> 2 * (q - self.outer_bits)) + self.lift**2
            return {OUTER: (outer, 0), WEIGHTS: (0, 1 << q)}.get(kind, (self.norm_limit, 1 << q))
        if kind == OUTER:
            return self.limit_of(self.outer_clip, 2 * self.outer_bits), 0
        if kind == WEIGHTS:
            return 0, self.limit_of(self.weight_clip, q)
        return self.limit_of(self.mean_clip, q), self.limit_of(self.count_clip, q)
