"""All protocols on one machine, as a scikit-learn estimator.

All parties run in this process, from hello to closing exchange: the same coroutines as under mpirun, with the same
plan, checks, masks and noise, but without a network. So the owner of a whole table gets centres under differential
privacy, and a federated run can be tried out beforehand.

A fit takes effect completely or not at all, and no display shows its private values.

Source: docs/estimator.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastlloyd.data.bounds import Bounds, scale
from fastlloyd.errors import ConfigError
from fastlloyd.estimator.account import Budget, SharedAccount, Spending, block_of
from fastlloyd.estimator.caution import warn_beforehand, warn_of_result
from fastlloyd.estimator.description import Description, describe_clusters
from fastlloyd.estimator.finding import find_bounds, wants_bounds
from fastlloyd.estimator.fitting import Counted, complete_rows, count_intake, fill, fit_together, scaled_centers
from fastlloyd.estimator.inputs import is_vertical, validate_parts
from fastlloyd.estimator.parameter import check_parameters, feature_names, match_bounds, refuse_weights
from fastlloyd.estimator.showing import as_html, draw, write_page
from fastlloyd.estimator.words import ParameterError, in_own_words
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.protocols.registry import DEFAULT
from fastlloyd.report.quality import Quality
from fastlloyd.run.budget_terms import Limit

try:
    from sklearn import get_config
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
    from sklearn.utils import estimator_html_repr
    from sklearn.utils.validation import check_is_fitted

    from fastlloyd.estimator.records import read_records
except ImportError as error:
    raise ConfigError(
        f"FastLloyd, the estimator, needs scikit-learn 1.6 or newer ({error}): pip install 'fastlloyd[ml]'"
    ) from error

__all__ = ["Budget", "Description", "FastLloyd", "ParameterError"]

Model = TypeVar("Model")
Records = ArrayLike | Mapping[str, ArrayLike | Sequence[Any]] | str | Path

_OF_A_FIT = ("_labels", "_intake", "_n_features_out", "_run", "_shown")
_UNLISTED = ("labels_", "clipped_", "missing_", "_counted")
_OF_THE_OWNER = ("_labels", "_intake", "ledger_", "epsilon_spent_", "budget_")


@dataclass(frozen=True, slots=True)
class Private:
    """A value computed from records without noise: its owner reads it; no display shows it or its size."""

    value: Any = field(repr=False)


@contextmanager
def whole(model: Model) -> Iterator[Model]:
    """Yield an unfitted copy; the model becomes that copy in one step if nothing was raised.

    An interrupt comes before or after this step, so the model is unchanged or fitted. Parameters that another thread
    sets meanwhile stay.
    """
    fresh = _twin(model, _unfitted(model))
    before = dict(vars(fresh))
    yield fresh
    fitted = {name: value for name, value in vars(fresh).items() if name not in before or before[name] is not value}
    model.__dict__ = {**_unfitted(model), **fitted}


def _twin(model: Model, values: Mapping[str, Any]) -> Model:
    """Return an object of the same class with these attributes; a copy would be bound to the `with` block around it."""
    twin = type(model).__new__(type(model))
    twin.__dict__ = dict(values)
    return twin


def _unfitted(model: object) -> dict[str, Any]:
    """Return the attributes of a model without those of a fit."""
    return {name: value for name, value in vars(model).items() if not name.endswith("_") and name not in _OF_A_FIT}


class FastLloyd(  # scikit-learn has no types
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClusterMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Cluster records by k-means under differential privacy.

    Parameters
    ----------
    n_clusters : int or 'auto:KMAX'
        'auto:KMAX' lets a protocol that can choose the number, at most KMAX; `cluster_centers_` has the k chosen.
    epsilon : float
        Privacy loss of one fit, from 0.001 to 100; smaller is more private.
    delta : 'auto', 'paper' or float
        'auto' is 1 / (100 N), 'paper' what the protocol's own paper takes, such as 1 / (N ln N). Not used by 'sulloyd',
        which has delta 0. Where N delta is above 0.01 a warning says so.
    accept_large_delta : bool
        Take a delta above 1 / N: such a promise is kept even where a whole record comes out in each fit.
    bounds : (lo, hi), mapping, DataFrame, Bounds or 'private'
        Lowest and highest value of each feature: numbers for all features or arrays of shape (d,). What has names (a
        mapping from each column to its (lo, hi), two Series, a DataFrame with the columns lo and hi) is matched by
        name. Two pairs that may also be read as one for each of two features are refused.
        Needed, and never read from X. A value outside counts as the bound, in fit and in every method.
        'private' finds them with noise first, in a release that has a share of `epsilon`: 0.1 of 1/sigma^2, or as
        'private:SHARE' says. Each fit finds them anew, and both releases are in its `epsilon_`.
    n_total : int or None
        Public upper bound N on the number of records, stated without counting them. None takes the number of rows,
        which thereby becomes public, and the promise is a weaker one: see Notes.
    protocol : str
        Any that `fastlloyd run --help` lists. 'fastlloyd-plus' has less error for the same epsilon
        (docs/fastlloyd-plus.md). 'feddp' and 'secfc' need several owners, those whose names begin with 'vertical'
        blocks of columns: see `fit_federated`. 'lloyd', 'kfed', 'secfc' and 'vertical-plain' are not private.
    rounds : 'auto' or int
    max_iter : int or None
        Another name for `rounds`, as scikit-learn has it; give one of them.
    random_state : int, RandomState or None
        Public randomness only: where the centres start. None starts elsewhere at each fit, a RandomState gives
        each fit its next number. The noise has no seed, it comes from the operating system; so two fits differ whatever
        stands here.
    ring_bits : {32, 64}
    min_size : int
        Leave out each cluster whose noisy size is below it, after the fit: its records get the label of the nearest
        centre that stays. Where none stays, `cluster_centers_` is None and every label is -1. 0 leaves out none.
    quality : float
        Share of 1/sigma^2 that a last round has for how good the clusters are, up to 0.5; 0 for no such round.
        'fastlloyd', 'fastlloyd-plus' and 'glloyd' have one; after a fit by another one, call `describe(X, None)`.
    settings : mapping or None
        The protocol's own settings, such as {'alpha': 0.8}.
    budget : Budget, float, (epsilon, delta) or None
        Limit on everything in the ledger: a `Budget`, which models share, or its numbers, for the copies of this object
        alone, or all that use the file. A fit that would exceed it is refused, and so is one in a process that this
        object came to by pickling or a fork, where there is no file.
    ledger : path or None
        File that keeps the releases of all fits, also those of other objects and processes. None keeps, in memory,
        those of this object and of its copies: clones, folds of a search, threads.
    server_data : array, shape (s, d), or None
        Public points that the server of 'feddp' starts from. **Not protected.**
    missing : {'refuse', 'drop', 'midpoint'}
        What NaN, None, NA and masked values mean: an error, that the row does not count and has the label -1, or the
        middle of the bounds. A value of other records, such as a mean, would be a release without noise.
    na : sequence of float
        Numbers that stand for a missing value, such as (-999, 9999).
    verbose : int
        1 prints a line when a round begins, of protocols that plan their rounds.

    Attributes
    ----------
    cluster_centers_ : float64 array, shape (k, d), or None
        Released; in the units of X. 'secfc' shows them only with {'reveal_centers': True}: else None, and NaN where a
        cluster has too few records.
    noisy_counts_ : float64 array, shape (k,), or None
        Released; with 'fastlloyd', noisy numbers of records within the radius of each centre in the last round.
    quality_ : Quality
        How much of the result is signal: `verdict`, `sentence`, `warnings`, ranges of sizes and centres. Released.
    measures_ : tuple of dict
        With `quality`, how good the clusters are: the lines of quality.csv (docs/describe.md), as
        `Description.quality` has them; else empty. Released.
    labels_ : int64 array, shape (n,), or list of such arrays where `fit_federated` had owners of records
        Of the records given to fit: the nearest centre, or what the protocol said where it does not show all
        centres. **Not private**: they belong to the owner of the records, and no display shows them.
    clipped_, missing_ : dict from column to int
        Values of the records given to fit that lay outside the bounds, and that were missing; columns with none are
        not there. **Not private**, as `labels_`.
    epsilon_, delta_ : float
        What the last fit spent, for `neighbours_`; infinite where the protocol claims nothing.
    neighbours_ : str
        What the last fit protects: 'add-remove record', or without `n_total` 'zero-out of one record'; 'add-remove
        user' of 'feddp' with {'privacy_level': 'client'}; of vertical protocols something about one person's row.
    epsilon_for_a_change_ : float
        What the last fit spent at most, at `delta_`, for a change of one record's values.
    epsilon_spent_ : float
        What all releases in `ledger_` spend together, for `neighbours_` and at the delta of the budget, or else at
        `delta_`.
    budget_ : Limit or None
        The budget of the last fit, `budget_.epsilon` at `budget_.delta`.
    ledger_ : Ledger
        `ledger_.releases`, and `ledger_.epsilon(delta)`.
    plan_ : Plan
        Everything public about the last fit, as the protocol has it: rounds, radii, noise, fraction bits.
    bounds_ : Bounds
    traffic_ : dict
        Messages and bytes that all parties sent before the closing exchange, named as in `report.json`; link bytes are
        without encryption.
    n_iter_ : int
        Rounds.
    n_features_in_ : int
    feature_names_in_ : array of str, shape (d,)
        Only where X has column names.

    Notes
    -----
    Distances (`predict`, `transform`, `score`) are taken where the protocol takes them: on data scaled
    per feature by the bounds to [-1, 1].

    A fit that is refused, fails or is interrupted leaves the object as it was; what it has written into its account
    before it broke off stays counted.

    There is no `inertia_`: it would be computed from the records without noise. `score` gives it, for the caller.

    Privacy: `cluster_centers_`, `noisy_counts_` and what is computed from these alone are
    (`epsilon_`, `delta_`)-differentially private for `neighbours_`. Fits add up: see `epsilon_spent_` and `budget`.

    * With `n_total`, neighbours are tables of at most N rows, one with a row more than the other. Rounds, delta and
      noise follow from N, which both have, so the sensitivities of docs/privacy.md hold for them.
    * Without it they follow from n: tables of n and n - 1 rows get different noise, and nothing is promised for such a
      pair. What holds: n is public, and neighbours differ in whether one of the n rows counts or is left out, at the
      rounds, delta and noise of n. That is the first case at N = n: same sensitivity, same noise, same epsilon.
    * With vertical protocols n is the same for neighbours, and `neighbours_` says what they differ in, with `n_total`
      or without. Whole users ('add-remove user') are protected with `n_total` only; without it such a fit is refused.
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

    cluster_centers_: NDArray[np.float64]
    noisy_counts_: NDArray[np.float64] | None
    quality_: Quality
    measures_: tuple[dict[str, Any], ...]
    epsilon_: float
    delta_: float
    neighbours_: str
    epsilon_for_a_change_: float
    epsilon_spent_: float
    budget_: Limit | None
    ledger_: Ledger
    plan_: Any
    bounds_: Bounds
    traffic_: dict[str, float]
    n_iter_: int
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    def __init__(
        self,
        n_clusters: int | str = 8,
        *,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        accept_large_delta: bool = False,
        bounds: Bounds | ArrayLike | Sequence[ArrayLike] | Mapping[str, ArrayLike] | None = None,
        n_total: int | None = None,
        protocol: str = DEFAULT,
        rounds: int | str = "auto",
        max_iter: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
        ring_bits: int = 32,
        min_size: int = 0,
        quality: float = 0.0,
        settings: Mapping[str, Any] | None = None,
        budget: float | tuple[float, float] | Budget | None = None,
        ledger: str | Path | None = None,
        server_data: ArrayLike | None = None,
        missing: str = "refuse",
        na: Sequence[float] = (),
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.accept_large_delta = accept_large_delta
        self.bounds = bounds
        self.n_total = n_total
        self.protocol = protocol
        self.rounds = rounds
        self.max_iter = max_iter
        self.random_state = random_state
        self.ring_bits = ring_bits
        self.min_size = min_size
        self.quality = quality
        self.settings = settings
        self.budget = budget
        self.ledger = ledger
        self.server_data = server_data
        self.missing = missing
        self.na = na
        self.verbose = verbose
        self._account = SharedAccount()
        self._block: Budget | None = None

    def fit(self, X: Records, y: object = None, **refused: object) -> Self:
        """Cluster the records of one owner: one client and a server, in memory.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d), mapping or path
            A mapping from each column to its values, or a file as `fastlloyd run --data` reads one: CSV, npy or
            Parquet. Names of columns are kept.
        y : ignored
        **refused
            There are no further arguments; a sample weight is refused with the reason.

        Raises
        ------
        ParameterError, ValueError
            A parameter or X does not fit.
        TypeError
            There is another argument, such as a sample weight.
        BudgetError
            The budget would be exceeded; nothing was released and nothing was recorded.

        Privacy
        -------
        See the class. Every release is in the ledger before it is made.
        """
        refuse_weights(refused)
        with whole(self) as model:
            check_parameters(model)
            raw_points = model._validate(X, reset=True)
            if is_vertical(model):
                raise ParameterError(
                    f"fit: {model.protocol!r} joins the columns of several owners: give fit_federated a list of arrays "
                    "with the same records in the same order, such as np.array_split(X, 2, axis=1)"
                )
            (model.labels_,) = model._fit([raw_points])
        warn_of_result(self)
        return self

    def fit_federated(self, parts: Iterable[Records]) -> Self:
        """Cluster the data of several owners: a party for each array, in memory.

        The parties are those of a run under mpirun, with the same messages.

        Parameters
        ----------
        parts : list, each as the X of `fit`, shapes (n_i, d)
            The records of each client, all with the same columns; `labels_` is then a list with one array per client,
            in the order given. For a vertical protocol of shapes (n, d_i): the columns of each owner, at least two
            owners, all with the same records in the same order; X is then all columns side by side.

        Raises
        ------
        ParameterError, BudgetError
            As in `fit`; an array that does not fit is named by its client.
        """
        with whole(self) as model:
            check_parameters(model)
            labels = model._fit(validate_parts(model, parts))
            model.labels_ = labels[0] if is_vertical(model) else labels
        warn_of_result(self)
        return self

    def describe(
        self,
        X: Records,
        columns: str | Path | Mapping[str, Mapping[str, Any]] | None,
        values: Any = None,
        *,
        epsilon: float | None = None,
        total: float | None = None,
        quality: float = 0.0,
    ) -> Description:
        """Describe the clusters by columns, with noise: a further release, which counts in the model's ledger.

        Parameters
        ----------
        X : array, shape (n, d)
            The records that were clustered, of all owners together.
        columns : path, mapping or None
            The public columns (docs/describe.md): a TOML file, or for each column what stands in its table. None for
            the quality of the clusters alone.
        values : mapping or DataFrame, optional
            For each column that is no feature, a value for each record; None or NaN where missing.
        epsilon : float, optional
            Of this release alone.
        total : float, optional
            Of everything in the ledger, this release included. One of the two is needed.
        quality : float
            Share of 1/sigma^2 for how good the clusters are; 0 for none. Without columns it has all.

        Returns
        -------
        Description

        Raises
        ------
        ParameterError, ValueError
            A parameter, X or a value does not fit, or the fit shows no centres.
        BudgetError
            The budget would be exceeded; nothing was released and nothing was recorded.

        Notes
        -----
        Privacy: the description is (`epsilon`, `delta`)-differentially private, as it says of itself, for the same
        neighbours as a fit of these records; with the fits it adds up in `epsilon_spent_`, which is updated.
        """
        self._scaled(X)  # refuses what is not fitted, and X that does not fit
        raw_values = self._complete(X)
        if np.isnan(raw_values).any():
            raise ParameterError(
                "X: expected complete rows, got rows that missing='drop' leaves out; leave them out of X and of values"
            )
        return describe_clusters(self, raw_values, columns, values, epsilon=epsilon, total=total, quality=quality)

    def predict(self, X: Records) -> NDArray[np.int64]:
        """Label records by their nearest centre, in scaled units.

        Parameters
        ----------
        X : array, shape (n, d)

        Returns
        -------
        int64 array, shape (n,)
            Ties go to the lowest label; -1 where `missing='drop'` leaves a row out. Not private: it belongs to the
            owner of X.
        """
        points, centers = self._scaled(X)
        shown, rows = np.flatnonzero(np.isfinite(centers).all(axis=1)), ~np.isnan(points).any(axis=1)
        labels = np.full(len(points), -1)
        if rows.any():
            labels[rows] = shown[nearest(points[rows], centers[shown])[0]]
        return labels

    def transform(self, X: Records) -> NDArray[np.float64]:
        """Return the distance of each record to each centre, in scaled units.

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

    def score(self, X: Records, y: object = None) -> float:
        """Return the negative sum of squared distances to the nearest centres, in scaled units.

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
        points = points[~np.isnan(points).any(axis=1)]
        if not len(points):
            return 0.0
        return -nearest(points, centers[np.isfinite(centers).all(axis=1)])[1] * len(points)

    def public(self) -> Self:
        """Return a copy to hand over: fitted, without what belongs to the owner of the records alone.

        Returns
        -------
        FastLloyd
            Without `labels_`, the account (`ledger_`, `epsilon_spent_`, `budget_`) and the parameters `ledger`,
            `budget` and `server_data`. It predicts, and can be pickled; its next fit starts an account anew.

        Raises
        ------
        NotFittedError
            There is nothing to hand over yet.

        Notes
        -----
        Privacy: what stays is released or public; the fits that came before count for the owner as they did.
        """
        check_is_fitted(self, "cluster_centers_")
        kept = {name: value for name, value in vars(self).items() if name not in _OF_THE_OWNER}
        alone = {"ledger": None, "budget": None, "server_data": None, "_account": SharedAccount(), "_block": None}
        return _twin(self, {**kept, **alone})

    def report(self, path: str | Path, *, title: str | None = None, names: Mapping[int, str] | None = None) -> Path:
        """Write the page of the last fit: the `report.html` of a run, with what it promises, for people.

        Parameters
        ----------
        path : path
            A file there is replaced. Mode 0600.
        title : str, optional
        names : mapping from cluster to name, optional

        Returns
        -------
        Path
            The file.

        Raises
        ------
        NotFittedError, ConfigError
            There is nothing to show, jinja2 is not installed, or the file cannot be written.

        Notes
        -----
        Privacy: released values and public facts; no label, and with `n_total` no number of records.
        """
        check_is_fitted(self, "cluster_centers_")
        with in_own_words():
            return write_page(self, path, title, names)

    def plot(self, kind: str | None = None) -> Any:
        """Draw the centres, as in the figures that a run writes.

        Parameters
        ----------
        kind : {'centroids', 'profiles', 'plane', 'elbow'}, optional
            By default the plane where there are two features, else all centroids as one table of colours. 'profiles':
            a panel for each of at most 20 clusters. 'elbow': the costs by which the number of clusters was chosen.

        Returns
        -------
        matplotlib.figure.Figure
            `savefig` writes it. Released values and public facts only.

        Raises
        ------
        NotFittedError, ParameterError, ConfigError
            There is nothing to draw, or matplotlib is not installed.
        """
        check_is_fitted(self, "cluster_centers_")
        with in_own_words():
            return draw(self, kind)

    def _html_repr(self) -> str:
        """Return a notebook's display: of a fitted model what was released, without what is private."""
        shown = as_html(self) if hasattr(self, "cluster_centers_") else None
        return str(estimator_html_repr(self)) if shown is None else shown

    _repr_html_inner = _html_repr

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Return the displays of a notebook, as scikit-learn's setting `display` asks."""
        shown = {"text/html": self._html_repr()} if get_config()["display"] == "diagram" else {}
        return {"text/plain": repr(self), **shown}

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy, which shares the account: its fits count against the same budget."""
        copied: Self = super().__sklearn_clone__()
        copied._account, copied._block = self._account, self._block
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle keeps: a model that is sent to another process counts in the block it comes from.

        But a public copy, which has no ledger, takes nothing of the owner's account along.
        """
        public = hasattr(self, "cluster_centers_") and not hasattr(self, "ledger_")
        return {**super().__getstate__(), "_block": None if public else block_of(self)}

    def set_params(self, **params: Any) -> Self:
        """Set all given parameters, or none if one of them does not exist.

        Raises
        ------
        ValueError
            There is no such parameter.
        """
        changed = _twin(self, vars(self))
        super(FastLloyd, changed).set_params(**params)
        self.__dict__ = dict(vars(changed))
        return self

    @property
    def labels_(self) -> Any:
        """Labels of the records given to the last fit; not private, and in no display."""
        if "_labels" not in vars(self):
            raise AttributeError("labels_: this FastLloyd has none: it is not fitted yet, or they were deleted")
        return self._labels.value

    @labels_.setter
    def labels_(self, labels: NDArray[np.int64] | list[NDArray[np.int64]]) -> None:
        self._labels = Private(labels)

    @labels_.deleter
    def labels_(self) -> None:
        del self._labels

    @property
    def clipped_(self) -> dict[str, int]:
        """Values of each column that lay outside the bounds in the last fit; not private, and in no display."""
        return self._counted.clipped

    @property
    def missing_(self) -> dict[str, int]:
        """Missing values of each column in the last fit; not private, and in no display."""
        return self._counted.missing

    @property
    def _counted(self) -> Counted:
        if "_intake" not in vars(self):
            raise AttributeError("clipped_, missing_: this FastLloyd has none: it is not fitted yet, or a public copy")
        counted: Counted = self._intake.value
        return counted

    def __dir__(self) -> list[str]:
        # A display of fitted attributes lists these names and shows their values; a notebook saves what it shows.
        return [name for name in super().__dir__() if name not in _UNLISTED]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = self.missing != "refuse"
        return tags

    def _validate(self, X: Records, *, reset: bool) -> NDArray[np.float64]:
        """Read records in any of their forms."""
        return read_records(self, X, reset=reset)

    def _fit(self, raw_parts: list[NDArray[np.float64]]) -> list[NDArray[np.int64]]:
        """Cluster the parts of the owners; return the labels of each, or of all people; -1 for rows left out."""
        columns, spending = getattr(self, "feature_names_in_", None), Spending(self)
        epsilon, raw_given = None, raw_parts
        raw_parts, kept = complete_rows(self, raw_parts)
        with in_own_words():
            if wants_bounds(self.bounds):
                names = feature_names(self.n_features_in_, columns)
                self.bounds_, epsilon = find_bounds(self, raw_parts, names, spending)
            else:
                self.bounds_ = match_bounds(self.bounds, self.n_features_in_, columns)
        self._intake = Private(count_intake(self, raw_given))
        raw_parts = fill(self, raw_parts)
        warn_beforehand(self, [np.concatenate(raw_parts, axis=1)] if is_vertical(self) else raw_parts)
        labels = fit_together(self, raw_parts, self._server_points(), spending, epsilon)
        if kept is None:
            return labels
        spread = [np.full(len(rows), -1) for rows in kept]
        for all_rows, rows, own in zip(spread, kept, labels, strict=True):
            all_rows[rows] = own
        return spread

    def _complete(self, X: Records) -> NDArray[np.float64]:
        """Read records, with missing values filled in where the rule says so; else they are NaN."""
        return fill(self, [self._validate(X, reset=False)])[0]

    def _scaled(self, X: Records) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return records and centres in the scaled domain."""
        check_is_fitted(self, "cluster_centers_")
        if self.cluster_centers_ is None or not np.isfinite(self.cluster_centers_).all(axis=1).any():
            if self.min_size and self.cluster_centers_ is None:
                raise ParameterError(
                    f"the last fit has no cluster of the size min_size={self.min_size} or more, so there is no centre: "
                    "lower it, or n_clusters, and fit again"
                )
            raise ParameterError(
                f"the last fit has shown no centre, since {self.protocol!r} as set keeps them hidden: use labels_, or "
                "look at settings"
            )
        raw_values = self._complete(X)
        rows, points = ~np.isnan(raw_values).any(axis=1), np.full(raw_values.shape, np.nan)
        if rows.any():
            points[rows] = scale(raw_values[rows], self.bounds_)
        return points, scaled_centers(self)

    def _server_points(self) -> NDArray[np.float64] | None:
        """Return the server's own points, in the units of X."""
        if self.server_data is None:
            return None
        try:
            return read_records(self, self.server_data, reset=False, missing="refuse")
        except ValueError as error:
            raise ParameterError(f"server_data: {error}") from error
