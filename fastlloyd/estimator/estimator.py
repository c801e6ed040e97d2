"""FastLloyd on one machine, as a scikit-learn estimator.

All parties run in this process: a server, and one client per array. They are the coroutines that run under mpirun, with
the same seed agreement, masks, ring and noise; only the network is left out. So whoever holds the whole table gets the
centres under differential privacy, and whoever plans a federated run can try it out beforehand.

Source: FastLloyd, Algorithm 1; docs/estimator.md.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastlloyd.data.bounds import Bounds, scale, unscale
from fastlloyd.errors import ConfigError
from fastlloyd.estimator.parameter import (
    ParameterError,
    check_parameters,
    in_own_words,
    match_bounds,
    public_parameters,
)
from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.life.seed import agree_seed
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import MaskGenerator
from fastlloyd.party.effects import Party
from fastlloyd.privacy.accountant import change_epsilon
from fastlloyd.privacy.delta import large_delta
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.privacy.release import ADD_REMOVE, ZERO_OUT_RECORD
from fastlloyd.protocols.fastlloyd.client import ClientResult, client
from fastlloyd.protocols.fastlloyd.plan import Plan, check_plan, make_plan
from fastlloyd.protocols.fastlloyd.rounds import draw_noise
from fastlloyd.protocols.fastlloyd.server import server
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Simulation
from fastlloyd.wire.header import SERVER, PartyId, clients

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ConfigError(
        f"FastLloyd, the estimator, needs scikit-learn 1.6 or newer ({error}): pip install 'fastlloyd[ml]'"
    ) from error

__all__ = ["FastLloyd", "ParameterError"]

_RUN_ID_BYTES = 16
# A noisy count this near to zero, in standard deviations of its noise, may be that of an empty cluster.
_EMPTY_DEVIATIONS = 2.0


class FastLloyd(  # scikit-learn has no types
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClusterMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Cluster records by k-means under differential privacy.

    Parameters
    ----------
    n_clusters : int
    epsilon : float
        Privacy loss of one fit, from 0.001 to 100; smaller is more private.
    delta : 'auto', 'paper' or float
        'auto' is 1 / (100 N), 'paper' is 1 / (N ln N). Not used by 'sulloyd', which has delta 0. Where N delta is above
        0.01 a warning says so.
    accept_large_delta : bool
        Take a delta above 1 / N: such a promise is kept even where a whole record comes out in each fit.
    bounds : (lo, hi) or Bounds
        Lowest and highest value of each feature: numbers for all features alike or arrays of shape (d,).
        Needed, and never read from X. A value outside counts as the bound, in fit and in every method.
    n_total : int or None
        Public upper bound N on the number of records, stated without counting them. None takes the number of rows,
        which thereby becomes public, and the promise is a weaker one: see Notes.
    protocol : {'fastlloyd', 'fastlloyd-plus', 'glloyd', 'sulloyd', 'lloyd'}
        'fastlloyd-plus' has less error for the same epsilon (docs/fastlloyd-plus.md); 'lloyd' adds no noise: its
        result is not private.
    rounds : 'auto' or int
    random_state : int or None
        Public randomness only: where the centres start. None starts elsewhere at each fit. The noise has no seed, it
        comes from the operating system; so two fits differ whatever stands here.
    ring_bits : {32, 64}
    settings : mapping or None
        The protocol's own settings, such as {'alpha': 0.8}.
    budget : float or None
        Limit on epsilon over all fits in the ledger; a fit that would exceed it is refused.
    ledger : path or None
        File that keeps the releases of all fits, also those of clones and other processes. None
        keeps those of this object's fits, in memory.

    Attributes
    ----------
    cluster_centers_ : float64 array, shape (k, d)
        Released; in the units of X.
    noisy_counts_ : float64 array, shape (k,)
        Released; noisy numbers of records within the radius of each centre in the last round.
    labels_ : int64 array, shape (n,), or list of such arrays after `fit_federated`
        Of the records given to fit. **Not private**: they belong to the owner of the records.
    epsilon_, delta_ : float
        What the last fit spent, for `neighbours_`.
    neighbours_ : str
        What the last fit protects: 'add-remove record', or without `n_total` 'zero-out of one record'.
    epsilon_for_a_change_ : float
        What the last fit spent, at `delta_`, for a change of one record's values.
    epsilon_spent_ : float
        What all releases in `ledger_` spend together, at `delta_` and for `neighbours_`.
    ledger_ : Ledger
        `ledger_.releases`, and `ledger_.epsilon(delta)`.
    plan_ : Plan
        Everything public about the last fit: rounds, radii, noise, fraction bits.
    bounds_ : Bounds
    traffic_ : dict
        Messages and bytes that all parties sent, under the names of `report.json`; link bytes are without encryption.
    n_iter_ : int
        Rounds.
    n_features_in_ : int
    feature_names_in_ : array of str, shape (d,)
        Only where X has column names.

    Notes
    -----
    Distances (`predict`, `transform`, `score`) are taken where the protocol takes them: on data scaled
    per feature by the bounds to [-1, 1].

    There is no `inertia_`: it would be computed from the records without noise. `score` gives it, for the caller.

    Privacy: cluster_centers_, noisy_counts_ and what is computed from these alone are
    (epsilon_, delta_)-differentially private for `neighbours_`. Fits add up: see `epsilon_spent_` and `budget`.

    * With `n_total`, neighbours are tables of at most N rows, one with a row more than the other. Rounds, delta and
      noise follow from N, which both have, so the sensitivities of docs/privacy.md hold for them.
    * Without it they follow from n: tables of n and n - 1 rows get different noise, and nothing is promised for such a
      pair. What holds: n is public, and neighbours differ in whether one of the n rows counts or is left out, at the
      rounds, delta and noise of n. That is the first case at N = n: same sensitivity, same noise, same epsilon.
    * A change of one record's values is leaving one record out and putting another in: each release moves at most
      twice as far, which `epsilon_for_a_change_` composes.

    Source: FastLloyd, Algorithm 1; docs/estimator.md, docs/privacy.md.

    Examples
    --------
    >>> import numpy as np
    >>> from fastlloyd import FastLloyd
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(2, 0.5, (2000, 2)), rng.normal(8, 0.5, (2000, 2))])
    >>> model = FastLloyd(n_clusters=2, epsilon=5.0, bounds=(0, 10), n_total=5000).fit(X)
    >>> np.sort(model.cluster_centers_.round(), axis=0)
    array([[2., 2.],
           [8., 8.]])
    >>> model.epsilon_spent_ <= 5.0
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        accept_large_delta: bool = False,
        bounds: Bounds | Sequence[ArrayLike] | None = None,
        n_total: int | None = None,
        protocol: str = "fastlloyd",
        rounds: int | str = "auto",
        random_state: int | None = 0,
        ring_bits: int = 32,
        settings: Mapping[str, Any] | None = None,
        budget: float | None = None,
        ledger: str | Path | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.accept_large_delta = accept_large_delta
        self.bounds = bounds
        self.n_total = n_total
        self.protocol = protocol
        self.rounds = rounds
        self.random_state = random_state
        self.ring_bits = ring_bits
        self.settings = settings
        self.budget = budget
        self.ledger = ledger

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Cluster the records of one owner: one client and a server, in memory.

        Parameters
        ----------
        X : array, shape (n, d)
        y : ignored

        Raises
        ------
        ParameterError, ValueError
            A parameter or X does not fit.
        BudgetError
            The budget would be exceeded; nothing was released and nothing was recorded.

        Privacy
        -------
        See the class. Every release is in the ledger before it is made.
        """
        check_parameters(self)
        self.labels_: NDArray[np.int64] | list[NDArray[np.int64]]
        (self.labels_,) = self._fit([self._validate(X, reset=True)])
        _warn(self.plan_, self.noisy_counts_)
        return self

    def fit_federated(self, parts: Iterable[ArrayLike]) -> Self:
        """Cluster the records of several owners: one client for each array, and a server, in memory.

        The clients' updates are masked and summed as under mpirun; `labels_` is a list with one array per
        client, in the order given.

        Parameters
        ----------
        parts : list of arrays, shapes (n_i, d)
            The records of each client, all with the same columns.

        Raises
        ------
        ParameterError, BudgetError
            As in `fit`; an array that does not fit is named by its client.
        """
        check_parameters(self)
        if hasattr(parts, "shape") or isinstance(parts, (str, bytes, Mapping)):
            raise ParameterError(
                f"fit_federated: expected a list of arrays, one per client, got one {type(parts).__name__}; "
                "use fit(X), or np.array_split(X, m) to try m clients"
            )
        points: list[NDArray[np.float64]] = []
        for rank, part in enumerate(parts, start=1):
            try:
                points.append(self._validate(part, reset=rank == 1))
            except ValueError as error:
                raise ParameterError(f"fit_federated, {PartyId(rank)}: {error}") from error
        if not points:
            raise ParameterError("fit_federated: expected at least one array, got an empty list")
        self.labels_ = self._fit(points)
        _warn(self.plan_, self.noisy_counts_)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Label records by their nearest centre, in scaled units.

        Parameters
        ----------
        X : array, shape (n, d)

        Returns
        -------
        int64 array, shape (n,)
            Ties go to the lowest label. Not private: it belongs to the owner of X.
        """
        return nearest(*self._scaled(X))[0]

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Give the distance of each record to each centre, in scaled units.

        Parameters
        ----------
        X : array, shape (n, d)

        Returns
        -------
        float64 array, shape (n, k)
            The label that `predict` gives is the column of the least. Not private.
        """
        points, centers = self._scaled(X)
        distances = np.empty((len(points), len(centers)))
        for label, center in enumerate(centers):
            difference = points - center
            distances[:, label] = np.sqrt(np.einsum("ij,ij->i", difference, difference))
        return distances

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Give the negative sum of squared distances to the nearest centres, in scaled units.

        Parameters
        ----------
        X : array, shape (n, d)
        y : ignored

        Returns
        -------
        float
            Computed from X without noise: **not private**, do not publish it for private records. Divided by
            -n it is the `nicv` of the reports.
        """
        points, centers = self._scaled(X)
        return -nearest(points, centers)[1] * len(points)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def _validate(self, X: ArrayLike, *, reset: bool) -> NDArray[np.float64]:
        """Check records the way scikit-learn does."""
        checked: NDArray[np.float64] = validate_data(self, X, reset=reset, dtype=np.float64, order="C")
        return checked

    def _scaled(self, X: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Give records and centres in the scaled domain."""
        check_is_fitted(self, "cluster_centers_")
        return scale(self._validate(X, reset=False), self.bounds_), self._scaled_centers()

    def _scaled_centers(self) -> NDArray[np.float64]:
        """Give the centres in the scaled domain, not clipped: without folding they may lie outside."""
        centers = (self.cluster_centers_ - self.bounds_.middle) / self.bounds_.half_width
        return np.asarray(centers, dtype=np.float64)

    def _fit(self, raw_parts: list[NDArray[np.float64]]) -> list[NDArray[np.int64]]:
        """Plan, account, run, take over what was released, and give each owner's labels."""
        with in_own_words():
            bounds = match_bounds(self.bounds, self.n_features_in_, getattr(self, "feature_names_in_", None))
            names = bounds.names or ()
            public = public_parameters(self, raw_parts)
            plan = make_plan(public, d=len(names), names=names)
            epsilon = check_plan(plan, public, d=len(names), names=names)
            raw_points = [scale(part, bounds) for part in raw_parts]
            run_id = SecretRandom().bytes(_RUN_ID_BYTES)
            neighbours = ADD_REMOVE if self.n_total is not None else ZERO_OUT_RECORD
            ledger = _account(self, plan, run_id, neighbours)
        simulation, result = _run_parties(raw_points, plan, run_id)
        self.cluster_centers_ = unscale(result.centers.exact, bounds)
        self.noisy_counts_ = result.centers.noisy_counts
        self.plan_, self.bounds_, self.ledger_ = plan, bounds, ledger
        self.epsilon_, self.delta_ = epsilon, plan.delta
        self.neighbours_ = neighbours
        self.epsilon_for_a_change_ = change_epsilon(plan.all_releases(), plan.delta)
        self.epsilon_spent_ = ledger.epsilon(plan.delta, neighbours)
        self.traffic_ = simulation.traffic(len(plan.rounds))
        self.n_iter_ = len(plan.rounds)
        self._n_features_out = plan.k
        return [nearest(points, self._scaled_centers())[0] for points in raw_points]


def _account(model: FastLloyd, plan: Plan, run_id: bytes, neighbours: str) -> Ledger:
    """Check the budget and write down all releases of this fit, before any is made.

    They stand there even if the run fails halfway: then too much is counted, never too little.
    """
    run, planned = run_id.hex(), plan.all_releases()
    releases = [dataclasses.replace(release, run=run, neighbours=neighbours) for release in planned]
    with Ledger(None if model.ledger is None else Path(model.ledger)) as ledger:
        if model.ledger is None and hasattr(model, "ledger_"):
            ledger.record(model.ledger_.releases)
        if model.budget is not None:
            ledger.check_budget(releases, plan.delta, float(model.budget))
        ledger.record(releases)
    return ledger


def _run_parties(raw_parts: list[NDArray[np.float64]], plan: Plan, run_id: bytes) -> tuple[Simulation, ClientResult]:
    """Run the server and all clients in this thread; give client 1's result, which all have alike."""
    everybody = clients(plan.clients)
    secret = SecretRandom()
    context = hashlib.sha256(json.dumps(plan.to_json(), sort_keys=True).encode()).digest()

    def one(me: PartyId) -> Party[ClientResult]:
        seed = yield from agree_seed(me, everybody, run_id=run_id, context=context, secret=SecretRandom())
        masks = MaskGenerator(seed, Ring(plan.ring_bits), plan.elements, run_id)
        raw_points = quantise(raw_parts[me.rank - 1], plan.fraction_bits)
        return (yield from client(me, raw_points, plan, masks))

    parties: dict[PartyId, Party[Any]] = {me: one(me) for me in everybody}
    parties[SERVER] = server(plan, lambda t: draw_noise(plan, t, secret))
    simulation = Simulation(parties)
    result: ClientResult = simulation.run()[everybody[0]]
    return simulation, result


def _warn(plan: Plan, noisy_counts: NDArray[np.float64]) -> None:
    """Warn of a large delta, and of centres that the noise may have placed alone; judged by released values only."""
    if (note := large_delta(plan.delta, plan.n_total)) is not None:
        warnings.warn(note, UserWarning, stacklevel=3)
    deviation = plan.rounds[-1].count_scale / (1 << plan.fraction_bits)
    if plan.mechanism == "laplace":
        deviation *= math.sqrt(2.0)
    empty = np.flatnonzero(noisy_counts < max(1.0, _EMPTY_DEVIATIONS * deviation))
    if empty.size:
        warnings.warn(
            f"clusters {', '.join(map(str, empty))}: their noisy numbers of records cannot be told from zero (standard "
            f"deviation of the noise {deviation:.3g}), so these centres may say nothing about the data; take fewer "
            "clusters, more records, a larger epsilon or tighter bounds",
            ConvergenceWarning,
            stacklevel=3,
        )
