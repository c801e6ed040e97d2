"""From public parameters to the plan of one run: clusters, noise, sketches, releases.

The server makes the plan once the parties have described their columns; each party makes it again from its own
configuration, compares, and recomputes epsilon before it takes part.

Paper: epsilon_0 = (1 - b) epsilon, epsilon_1 = epsilon_2 = b epsilon / (2 S) and delta_2 = delta / S for each party,
and epsilon' = epsilon_2 / (4 sqrt(M log(1 / delta_2))) for each row.

Tight: the shares are the paper's, but the sketches' is not split over the parties (their rows are one mechanism, see
`sketch/sketch.py`), and all releases together are composed by their privacy loss distributions; then all noise
shrinks by one factor until the total is epsilon. `local = shortened` has Gaussian noise, so its share of local
clusterings and sketches is one of 1 / sigma^2.

Source: Vertical DP, Algorithm 1, §5.2; docs/vertical-dp-privacy.md.
Division of epsilon and delta: Algorithm 3 line 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastlloyd.errors import ConfigError, InternalError, ProcessesError, RangeError
from fastlloyd.lifecycle.align.columns import PartyFeatures, features_of
from fastlloyd.party.plain_plan import ACCOUNTING_SLACK, PlainPlan, RunTerms, check_epsilon, same_named
from fastlloyd.privacy.accountant import SAMPLER_DELTA, spent
from fastlloyd.privacy.calibration import calibrate, gaussian_noise_multiplier, stated_delta
from fastlloyd.privacy.limits import check_clusters, check_numbers
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.vertical_dp.local_plan import SHORTENED, LocalPlan, automatic_levels, check_width
from fastlloyd.protocols.vertical_dp.math.estimate import basic_error
from fastlloyd.protocols.vertical_dp.math.fit import MAX_CELLS
from fastlloyd.protocols.vertical_dp.math.pair import MAX_GAMMA, likelihood_error
from fastlloyd.protocols.vertical_dp.math.weights import Group, count_release, groups_of
from fastlloyd.protocols.vertical_dp.settings import MAX_LOCAL_CLUSTERS, PAPER, TIGHT, Settings, settings_from
from fastlloyd.protocols.vertical_dp.sketch.level import MAX_PHANTOMS, phantoms_for
from fastlloyd.protocols.vertical_dp.sketch.sketch import (
    GRID_PHANTOMS,
    PAPER_PHANTOMS,
    ZERO_OUT,
    SketchShape,
    change_release,
    paper_phantoms,
    sketch_release,
)

MAX_PARTIES = 64
PLAIN = "vertical-plain"
USERS = "number of users"
PLAIN_NOTE = "vertical-plain sends local centres and each user's local cluster to the server: not private"
PAPER_NOTE = (
    "phantoms = 'paper' is for comparison: the parties hash a user with one key, so their sketches are one mechanism, "
    "and the paper's Theorem 4 does not hold; no (epsilon, delta) is claimed"
)
SCOPE = (
    "towards the server and the public, not between the parties: whoever knows the hash keys, that is each party, can "
    "test in the other's sketches what a user's cluster may be"
)
_SPLIT_SLACK = 1e-6
_HEARD_POWER = 0.4
# What the calibration changes.
_TIGHTENED = frozenset({"total_scale", "local_epsilon", "phantoms"})
# Values that differ from those of the public parameters and settings.
_SETTLED = ("delta", "local_clusters", "phantoms", "estimator")

# A whole number of phantoms may leave the total this far below epsilon; Laplace noise uses the rest.
_LOOSE = 0.996


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The share of each part.

    Attributes
    ----------
    total_epsilon : float
        Paper: epsilon_0.
    local_epsilon : float
        Paper: epsilon_1, of each party; for 'shortened' one over its noise multiplier.
    row_epsilon : float
        Paper: epsilon', of each joint row; the target for `phantoms`.
    phantoms : int
        Paper: n_p.
    """

    total_epsilon: float
    local_epsilon: float
    row_epsilon: float
    phantoms: int

    def scaled(self, factor: float) -> Split:
        """Return the same with `factor` times the noise."""
        row = self.row_epsilon / factor
        phantoms = min(phantoms_for(row), MAX_PHANTOMS)
        return Split(
            total_epsilon=self.total_epsilon / factor,
            local_epsilon=self.local_epsilon / factor,
            row_epsilon=row,
            phantoms=phantoms,
        )


Build = Callable[[Split, bool], Sequence[Release]]
"""From a split to all releases; true: with its exact epsilon', false: with that of the whole number of phantoms."""


def first_split(settings: Settings, *, parties: int, groups: int, epsilon: float, delta: float) -> Split:
    """Divide like the paper, or with the same shares but without its split of the sketches over the parties.

    Parameters
    ----------
    settings : Settings
    parties : int
        S.
    groups : int
        Number of groups of parties with separate sketches.
    epsilon, delta : float

    Raises
    ------
    ConfigError
        Epsilon is too small for the number of rows.
    """
    rest = (1.0 - settings.total_share) * epsilon
    local_share = 0.5 if settings.local_share is None else settings.local_share
    sketches, local = (1.0 - local_share) * rest, local_share * rest / parties
    if settings.local == SHORTENED:
        mu = 1.0 / gaussian_noise_multiplier(rest, delta - SAMPLER_DELTA)
        row = mu * math.sqrt((1.0 - local_share) / (settings.rows * groups))
        phantoms, local = phantoms_for(row), mu * math.sqrt(local_share / parties)
    elif settings.composition == PAPER:
        phantoms = paper_phantoms(settings.rows * groups, sketches / parties, delta / parties)
        row = math.log1p(1.0 / phantoms)
    else:
        multiplier = gaussian_noise_multiplier(sketches, delta - SAMPLER_DELTA)
        row = 1.0 / (multiplier * math.sqrt(settings.rows * groups))
        phantoms = phantoms_for(row)
    if phantoms > MAX_PHANTOMS:
        raise ConfigError(
            f"epsilon {epsilon:g} for {settings.rows * groups} rows of sketches needs {phantoms} phantoms per cell, at "
            f"most {MAX_PHANTOMS} are possible; choose a larger --epsilon or fewer rows (--set vertical-dp.rows)"
        )
    return Split(
        total_epsilon=settings.total_share * epsilon,
        local_epsilon=local,
        row_epsilon=row,
        phantoms=phantoms,
    )


def tighten(split: Split, build: Build, *, epsilon: float, delta: float) -> Split:
    """Shrink all noise until the composed total is epsilon.

    Returns
    -------
    Split
        A split whose releases spend epsilon, or up to 0.5 % less.
    """
    factor, _ = calibrate(lambda candidate: build(split.scaled(candidate), True), epsilon, delta, 0.9)
    found = split.scaled(factor)
    while (total := spent(build(found, False), delta)) > epsilon:
        found = replace(found, phantoms=found.phantoms + 1)
    if total >= _LOOSE * epsilon:
        return found

    def laplace(candidate: float) -> Split:
        return replace(found.scaled(candidate), row_epsilon=found.row_epsilon, phantoms=found.phantoms)

    factor, _ = calibrate(lambda candidate: build(laplace(candidate), False), epsilon, delta, 0.99)
    return laplace(factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreedTerms(RunTerms):
    """Terms of both the public parameters and the plan.

    Attributes
    ----------
    clients : int
        Paper: S, the parties that hold columns.
    n_total : int
        Public upper bound N on the number of users. The parties know the number, the server does not.
    """

    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicParameters(AgreedTerms):
    """Public parameters of one run.

    Attributes
    ----------
    delta : float or None
        None: the default, 1 / (100 N).
    """

    delta: float | None
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not 2 <= self.clients <= MAX_PARTIES:
            problem = f"{self.protocol} joins the columns of 2 to {MAX_PARTIES} parties, got {self.clients}"
            raise ProcessesError(problem, 3, serves=True)
        check_clusters(self.k, self.n_total)
        check_numbers(n_total=self.n_total, epsilon=self.epsilon, delta=self.delta)
        settings_from(self.protocol, self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(AgreedTerms, PlainPlan):
    """Everything public that one run needs; the same on all parties.

    Attributes
    ----------
    names, lo, hi : one tuple per party
        Its columns and their bounds.
    total_scale : float
        Scale of the Laplace noise on the number of users.
    local_epsilon : float
        Paper: epsilon_1; for 'shortened' one over the noise multiplier of a party's local releases.
    levels : int
        Of each party's tree.
    phantoms : int
        Paper: n_p.
    """

    names: tuple[tuple[str, ...], ...]
    lo: tuple[tuple[float, ...], ...]
    hi: tuple[tuple[float, ...], ...]
    delta: float
    local: str
    local_clusters: int
    levels: int
    local_epsilon: float
    tree_share: float
    total_scale: float
    rows: int
    gamma: float
    phantoms: int
    scheme: str
    weights: str
    estimator: str
    fit: str
    steps: int
    share_result: bool

    @property
    def private(self) -> bool:
        """Whether the releases are differentially private as claimed."""
        return self.protocol != PLAIN and self.scheme == GRID_PHANTOMS

    @property
    def note(self) -> str:
        """Why there is no claim, or towards whom it holds."""
        if self.protocol == PLAIN:
            return PLAIN_NOTE
        return PAPER_NOTE if self.scheme == PAPER_PHANTOMS else SCOPE

    @property
    def features(self) -> tuple[PartyFeatures, ...]:
        """The parties' columns."""
        return tuple(map(features_of, self.names, self.lo, self.hi))

    @property
    def d(self) -> int:
        """Columns of all parties together."""
        return sum(len(own) for own in self.names)

    @property
    def key_groups(self) -> tuple[Group, ...]:
        """Groups of parties (numbered from 0) that share a key for their sketches."""
        if self.protocol == PLAIN:
            return ()
        if self.scheme == PAPER_PHANTOMS:
            return (tuple(range(self.clients)),)
        return groups_of(self.clients, self.weights)

    @property
    def table_groups(self) -> tuple[Group, ...]:
        """Groups of parties whose tables the server estimates; the paper's sketches serve every pair."""
        return groups_of(self.clients, self.weights) if self.key_groups else ()

    @property
    def shape(self) -> SketchShape:
        """The shape of each sketch."""
        return SketchShape(
            rows=self.rows,
            clusters=self.local_clusters,
            parties=len(self.table_groups[0]),
            gamma=self.gamma,
            phantoms=self.phantoms,
            scheme=self.scheme,
        )

    def local_plan(self, place: int) -> LocalPlan:
        """Return the local clustering of party `place`, from 0."""
        return LocalPlan(
            method="plain" if self.protocol == PLAIN else self.local,
            clusters=self.local_clusters,
            d=len(self.names[place]),
            n=self.n_total,
            epsilon=self.local_epsilon,
            tree_share=self.tree_share,
            levels=self.levels,
            seed=self.seed,
            party=place + 1,
        )

    def all_releases(self) -> tuple[Release, ...]:
        """Return the releases of all parties in order.

        Notes
        -----
        Privacy: all parties' rows describe the same users, so each party's ledger holds the releases of all
        parties, and its total is the loss of its users.
        """
        local = [release for place in range(self.clients) for release in self.local_plan(place).releases()]
        if self.protocol == PLAIN:
            plain = Release(
                round=0, name="local clusters of all users", mechanism="none", sensitivity=1.0, norm="l1",
                noise_scale=0.0, neighbours=ZERO_OUT, seen_by="server",
            )  # fmt: skip
            return (*local, plain)
        return (count_release(self.total_scale), *local, sketch_release(self.shape, len(self.key_groups)))

    def change_epsilon(self) -> float:
        """Return epsilon at delta for neighbours that differ in the values of one user's row (n stays)."""
        moved = [release for release in self.all_releases() if release.name != USERS]
        return spent([change_release(release) for release in moved], self.delta)


def make_plan(public: PublicParameters, features: Sequence[PartyFeatures], *, tight: bool = True) -> Plan:
    """Make the plan of a run; run by the server.

    Parameters
    ----------
    public : PublicParameters
    features : sequence of PartyFeatures, one per party
    tight : bool
        Whether to search for the least noise, as every run does; otherwise the plan is quick and has more noise.

    Raises
    ------
    ConfigError
        Epsilon is too small for the number of rows, or the parties' columns are wrong.
    """
    settings = settings_from(public.protocol, public.settings)
    draft, split = _untightened(public, settings, features)
    if split is None or not tight:
        return draft
    if settings.composition == TIGHT and draft.private:

        def build(candidate: Split, exact: bool) -> tuple[Release, ...]:
            return _releases(draft, candidate, exact)

        split = tighten(split, build, epsilon=public.epsilon, delta=draft.delta)
    plan = _with_split(draft, split)
    total = spent(plan.all_releases(), plan.delta) if plan.private else 0.0
    if total > public.epsilon * (1.0 + ACCOUNTING_SLACK):
        raise InternalError(f"the plan spends epsilon {total:.6g}, expected at most {public.epsilon:g}")
    return plan


def _untightened(
    public: PublicParameters, settings: Settings, features: Sequence[PartyFeatures]
) -> tuple[Plan, Split | None]:
    """Return the plan with the first split, and that split; None for vertical-plain."""
    draft = _draft(public, settings, features)
    if public.protocol == PLAIN:
        clusters = settings.local_clusters or min(max(public.k, 2), MAX_LOCAL_CLUSTERS)
        return replace(draft, local_clusters=clusters), None
    groups = len(draft.key_groups)
    split = first_split(settings, parties=public.clients, groups=groups, epsilon=public.epsilon, delta=draft.delta)
    draft = _with_split(draft, split)
    draft = replace(draft, levels=automatic_levels(public.n_total, split.local_epsilon, draft.local))
    return replace(draft, local_clusters=settings.local_clusters or automatic_clusters(draft)), split


def _draft(public: PublicParameters, settings: Settings, features: Sequence[PartyFeatures]) -> Plan:
    """Return the plan with everything that needs no budget."""
    if len(features) != public.clients:
        raise ConfigError(f"expected the columns of {public.clients} parties, got {len(features)}")
    for own in features:
        check_width(len(own.names))
    pairs = settings.weights == "2pest" or public.clients == 2
    fine = pairs and settings.phantoms == GRID_PHANTOMS and settings.gamma <= MAX_GAMMA
    if settings.estimator == "likelihood" and not fine:
        raise ConfigError(
            "--set vertical-dp.estimator: 'likelihood' is for pairs (weights = '2pest'), phantoms = 'grid' and "
            "gamma <= 2^-8; take 'auto' or 'basic'"
        )
    return Plan(
        **same_named(Plan, public, settings, but=_SETTLED),
        names=tuple(own.names for own in features),
        lo=tuple(tuple(own.bounds.lo.tolist()) for own in features),
        hi=tuple(tuple(own.bounds.hi.tolist()) for own in features),
        delta=stated_delta(public.delta, public.n_total),
        local_clusters=2,
        levels=1,
        local_epsilon=0.0,
        total_scale=0.0,
        phantoms=1,
        scheme=settings.phantoms,
        estimator="basic" if settings.estimator == "basic" or not fine else "likelihood",
    )


def _with_split(plan: Plan, split: Split) -> Plan:
    return replace(
        plan, total_scale=1.0 / split.total_epsilon, local_epsilon=split.local_epsilon, phantoms=split.phantoms
    )


def _releases(plan: Plan, split: Split, exact: bool) -> tuple[Release, ...]:
    """Return the releases for a split, with its target epsilon' if `exact`."""
    releases = _with_split(plan, split).all_releases()
    if not exact:
        return releases
    return (*releases[:-1], replace(releases[-1], noise_scale=1.0 / split.row_epsilon))


def automatic_clusters(plan: Plan) -> int:
    """Choose k' from public numbers, limited by the weights of the grid and by the local noise.

    Notes
    -----
    The weights allow k_0, the least number with 2 sigma >= N / k_0^2, sigma the error of such a cell, and at least
    k^(1/S). Differs from the paper: N is the public bound, sigma that of the estimator in use with the corrected
    phantoms, and the grid may have at most 65,536 cells. `shortened` has at most the root of k x^0.4 as well, with
    x = N mu / sqrt(d), mu one over the noise multiplier of a party and d its mean number of columns: fitted on
    generated sets, see docs/vertical-dp.md.

    Source: Vertical DP, §5.2.
    """
    n, parties = float(plan.n_total), plan.clients
    most = min(MAX_LOCAL_CLUSTERS, int(math.pow(MAX_CELLS, 1.0 / parties) + 1e-9))
    if plan.local == SHORTENED:
        heard = n * plan.local_epsilon / math.sqrt(plan.d / parties)
        most = min(most, max(2, round(math.sqrt(plan.k * math.pow(heard, _HEARD_POWER)))))
    error = likelihood_error if plan.estimator == "likelihood" else basic_error
    found = 2
    while found < most:
        weight = n / found**2
        shape = replace(plan, local_clusters=found).shape
        if 2.0 * error(n, weight, shape) >= weight:
            break
        found += 1
    return max(2, found, math.ceil(math.pow(plan.k, 1.0 / parties) - 1e-9))


def check_plan(plan: Plan, public: PublicParameters, *, place: int, own: PartyFeatures) -> float:
    """Check a plan against a party's own configuration and columns; run by each party.

    Parameters
    ----------
    plan : Plan
        As the server sent it.
    public : PublicParameters
    place : int
        From 0.
    own : PartyFeatures

    Returns
    -------
    float
        Epsilon of all planned releases (infinite where none is claimed).

    Raises
    ------
    ValueError
        The plan differs from the configuration or spends more than epsilon: the server is at fault.
    """
    try:
        features = plan.features
    except (TypeError, ConfigError) as error:
        raise ValueError(f"the plan's columns are inconsistent: {error}") from error
    if len(features) != public.clients:
        raise ValueError(f"the plan has {len(features)} parties, expected {public.clients}")
    sent = features[place]
    same = (sent.bounds.lo == own.bounds.lo).all() and (sent.bounds.hi == own.bounds.hi).all()
    if sent.names != own.names or not same:
        raise ValueError("the plan describes this party's columns differently from the party itself")
    settings = settings_from(public.protocol, public.settings)
    try:
        expected, _ = _untightened(public, settings, features)
    except (ConfigError, RangeError) as error:
        raise ValueError(f"no such plan can be made: {error}") from error
    free = _TIGHTENED if expected.private and settings.composition == TIGHT else frozenset()
    plan.compare({name: value for name, value in expected.values().items() if name not in free})
    # One factor on all noise: the division between the parts is the configuration's.
    if plan.private and not math.isclose(
        plan.total_scale * plan.local_epsilon, expected.total_scale * expected.local_epsilon, rel_tol=_SPLIT_SLACK
    ):
        raise ValueError("the plan divides epsilon differently from the configuration")
    return check_epsilon(plan.all_releases, plan.delta, most=public.epsilon, private=plan.private)
