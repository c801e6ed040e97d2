"""One clustering of a benchmark's columns by one method: loss, V-score, error of the grid weights.

The private method runs the parties' own steps (local clusters, the server's estimate, the final k-means) without the
messages between them; its sketches are drawn as an ideal hash function gives them, see `ideal.py`.

Source: Vertical DP, §6 "Evaluation Metric", "Compared methods".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.vertical import PartyFeatures
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.protocols.vertical_dp.client import noise_for
from fastlloyd.protocols.vertical_dp.local_plan import LocalPlan, automatic_levels
from fastlloyd.protocols.vertical_dp.math.fit import GridCells, fit_tables
from fastlloyd.protocols.vertical_dp.math.grid import cluster_cells
from fastlloyd.protocols.vertical_dp.math.local import GRID, LocalClusters, cluster_locally
from fastlloyd.protocols.vertical_dp.math.weights import noisy_count
from fastlloyd.protocols.vertical_dp.plan import Plan, PublicParameters, make_plan
from fastlloyd.protocols.vertical_dp.server import plain_cells, weigh
from fastlloyd.protocols.vertical_dp.sketch.sketch import Levels, make_sketch
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd_papers.engine.cells import stream_of
from fastlloyd_papers.vertical_dp.baselines import (
    central_box_tree,
    central_kmeans,
    ind_lap_cells,
    ldp_agg_cells,
    ldp_supports,
)
from fastlloyd_papers.vertical_dp.data import DRAWN_ANEW, Array, K, Problem, Source, load_problem
from fastlloyd_papers.vertical_dp.ideal import MOST_CELLS, draw_group

Labels = NDArray[np.int64]

SKETCH, HISTOGRAM, REPORTS, REPORT_PAIRS = "sketch", "histogram", "reports", "report pairs"
EXACT, EXACT_PAIRS = "exact", "exact pairs"
CENTRAL, CENTRAL_PRIVATE = "central", "central private"
TOTAL_SHARE, TREE_SHARE = 0.02, 0.5
# Settings that no noise depends on: a record moves a release as far whatever they are.
_AFTER_NOISE = frozenset({"local_clusters", "estimator", "fit", "steps"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way to centres.

    Attributes
    ----------
    name : str
    weights : str
        How the grid weights come about, or 'central', 'central private'.
    settings : mapping
        Of vertical-dp.
    plain_local : bool
        Local centres without noise.
    claim : bool
        Whether (epsilon, delta) is claimed.
    by_epsilon : bool
        Whether the result depends on epsilon.
    local_clusters : int or None
        Paper: k'; None for the automatic one.
    """

    name: str
    weights: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    plain_local: bool = False
    claim: bool = True
    by_epsilon: bool = True
    local_clusters: int | None = K


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustered:
    """What is measured of one clustering.

    Attributes
    ----------
    loss : float
        Mean squared distance of a record, scaled to [-1, 1], to the nearest centre.
    v_score : float
        1: the clusters are the labels'.
    error : float or None
        Sum over the grid of |weight - true weight| over n, the true one for the same local clusters.
    local_clusters, phantoms : int or None
        Paper: k', n_p.
    """

    loss: float
    v_score: float
    error: float | None = None
    local_clusters: int | None = None
    phantoms: int | None = None


class Workbench:
    """Keeps the records of the last source.

    Parameters
    ----------
    data_dir : str or None
    """

    def __init__(self, data_dir: str | None) -> None:
        self._data_dir = data_dir
        self._problem: tuple[tuple[Source, int | None], Problem] | None = None

    def problem(self, source: Source, run: int) -> Problem:
        """Return the records of one repetition; the same for all of a set that is not drawn or dealt anew."""
        key = (source, run if source.name in DRAWN_ANEW else None)
        if self._problem is None or self._problem[0] != key:
            self._problem = None  # two large sets do not stand beside each other
            self._problem = (key, load_problem(source, self._data_dir, run))
        return self._problem[1]

    def measure(self, source: Source, run: int, method: Method, epsilon: float) -> dict[str, Any]:
        """Run one method once; plain values of a `Clustered`."""
        secret = stream_of({"name": source.label, "run": run, "method": method.name, "epsilon": epsilon})
        return asdict(run_method(self.problem(source, run), method, epsilon, run, secret))


def run_method(
    problem: Problem, method: Method, epsilon: float, seed: int, secret: SecretRandom | None = None
) -> Clustered:
    """Cluster with one method; delta is 1/n (paper, §6); fresh noise unless a stream is given."""
    points, secret = problem.points, secret or SecretRandom()
    if method.weights == CENTRAL:
        return _judge(problem, central_kmeans(points, K, seed=seed))
    if method.weights == CENTRAL_PRIVATE:
        return _judge(problem, central_box_tree(points, K, epsilon, tree_share=TREE_SHARE, seed=seed, secret=secret))
    plan = plan_of(problem, method, epsilon, seed)
    local = local_clusters(problem, method, plan, epsilon, secret)
    labels = [found.raw_labels for found in local]
    cells = grid_cells(labels, method, plan, epsilon, secret)
    centers = cluster_cells(cells, [found.noisy_centers / GRID for found in local], K, seed=seed).centers
    return _judge(
        problem,
        centers,
        error=weight_error(cells, plain_cells(labels), plan.local_clusters, problem.n),
        local_clusters=plan.local_clusters,
        phantoms=plan.phantoms if method.weights == SKETCH else None,
    )


def plan_of(problem: Problem, method: Method, epsilon: float, seed: int) -> Plan:
    """Return the plan of vertical-dp (of baselines: for its number of local clusters)."""
    settings = {**method.settings, "local_clusters": method.local_clusters or "auto"}
    widths = tuple(own.shape[1] for own in problem.columns)
    return replace(_plan(problem.n, widths, epsilon, tuple(sorted(settings.items()))), seed=seed)


# All repetitions have the same but for the seed.
@lru_cache(maxsize=512)
def _plan(n: int, widths: tuple[int, ...], epsilon: float, settings: tuple[tuple[str, Any], ...]) -> Plan:
    """Return a run's plan, its noise from one that differs in what follows after the noise alone."""
    before = tuple((name, value) for name, value in settings if name not in _AFTER_NOISE)
    noise = _tight(n, widths, epsilon, before)
    return replace(
        make_plan(_public(n, widths, epsilon, dict(settings)), _features(widths), tight=False),
        total_scale=noise.total_scale,
        local_epsilon=noise.local_epsilon,
        phantoms=noise.phantoms,
    )


# More than one method and figure has the same: it takes a while to tighten.
@lru_cache(maxsize=512)
def _tight(n: int, widths: tuple[int, ...], epsilon: float, settings: tuple[tuple[str, Any], ...]) -> Plan:
    return make_plan(_public(n, widths, epsilon, {**dict(settings), "local_clusters": 2}), _features(widths))


def _public(n: int, widths: tuple[int, ...], epsilon: float, settings: Mapping[str, Any]) -> PublicParameters:
    return PublicParameters(
        protocol="vertical-dp",
        clients=len(widths),
        k=K,
        n_total=n,
        epsilon=epsilon,
        delta=1.0 / n,
        seed=0,
        settings=settings,
    )


def _features(widths: tuple[int, ...]) -> list[PartyFeatures]:
    return [party_features(party, width) for party, width in enumerate(widths, 1)]


def party_features(party: int, width: int) -> PartyFeatures:
    """Name one party's columns, which lie in [-1, 1]."""
    names = tuple(f"p{party}x{h + 1}" for h in range(width))
    return PartyFeatures(names=names, bounds=Bounds(-np.ones(width), np.ones(width), names))


def local_clusters(
    problem: Problem, method: Method, plan: Plan, epsilon: float, secret: SecretRandom
) -> list[LocalClusters]:
    """Cluster each party's columns."""
    found = []
    for place, columns in enumerate(problem.columns):
        if method.plain_local:
            own = _local_plan(plan, place, "plain", 1.0)
        elif method.weights in (HISTOGRAM, REPORTS, REPORT_PAIRS):
            own = _local_plan(plan, place, "lloyd", baseline_epsilon(method, epsilon, plan.clients))
        else:
            own = plan.local_plan(place)
        found.append(cluster_locally(columns, own, noise_for(own, secret)))
    return found


def baseline_epsilon(method: Method, epsilon: float, parties: int) -> float:
    """Return epsilon_1 = epsilon_2 of a baseline: b epsilon / (2 S); b = 1 for reports, which count the users too."""
    share = 1.0 - TOTAL_SHARE if method.weights == HISTOGRAM else 1.0
    return share * epsilon / (2.0 * parties)


def _local_plan(plan: Plan, place: int, how: str, epsilon: float) -> LocalPlan:
    return LocalPlan(
        method=how,
        clusters=plan.local_clusters,
        d=len(plan.names[place]),
        n=plan.n_total,
        epsilon=epsilon,
        tree_share=TREE_SHARE,
        levels=automatic_levels(plan.n_total, epsilon, how),
        seed=plan.seed,
        party=place + 1,
    )


def grid_cells(labels: Sequence[Labels], method: Method, plan: Plan, epsilon: float, secret: SecretRandom) -> GridCells:
    """Weigh the grid as the method does."""
    clusters, n = plan.local_clusters, len(labels[0])
    if method.weights == SKETCH:
        noisy_total = noisy_count(n, plan.total_scale, secret)
        return weigh(draw_sketches(labels, plan, secret), max(noisy_total, 1.0), plan)
    if method.weights == HISTOGRAM:
        noisy_total = max(noisy_count(n, 1.0 / (TOTAL_SHARE * epsilon), secret), 1.0)
        own = baseline_epsilon(method, epsilon, plan.clients)
        return ind_lap_cells(labels, clusters, noisy_total, own, secret)
    if method.weights in (REPORTS, REPORT_PAIRS):
        own = baseline_epsilon(method, epsilon, plan.clients)
        supports = [ldp_supports(party, clusters, own, secret) for party in labels]
        return ldp_agg_cells(supports, pairs=method.weights == REPORT_PAIRS, steps=plan.steps, seed=plan.seed)
    if method.weights == EXACT_PAIRS and len(labels) > 2:
        pairs = {(i, j): _table(labels[i], labels[j], clusters) for i, j in combinations(range(len(labels)), 2)}
        return fit_tables(pairs, float(n), seed=plan.seed)
    return plain_cells(labels)


def make_sketches(labels: Sequence[Labels], plan: Plan, secret: SecretRandom) -> list[list[Levels]]:
    """Make all parties' sketches with fresh keys; party by party, as `weigh` expects them."""
    keys = {group: secret.bytes(32) for group in plan.key_groups}
    return [
        [
            make_sketch(own, group.index(place) if plan.private else 0, key, plan.shape, secret)
            for group, key in keys.items()
            if place in group
        ]
        for place, own in enumerate(labels)
    ]


def draw_sketches(labels: Sequence[Labels], plan: Plan, secret: SecretRandom) -> list[list[Levels]]:
    """Draw what `make_sketches` makes, as of an ideal hash function; groups with a large grid are hashed."""
    if any(plan.local_clusters ** len(group) > MOST_CELLS for group in plan.key_groups):
        return make_sketches(labels, plan, secret)
    drawn = {group: iter(draw_group([labels[i] for i in group], plan.shape, secret)) for group in plan.key_groups}
    return [[next(drawn[group]) for group in plan.key_groups if place in group] for place in range(len(labels))]


def _table(first: Labels, second: Labels, clusters: int) -> Array:
    return np.bincount(first * clusters + second, minlength=clusters**2).astype(np.float64).reshape(clusters, clusters)


def weight_error(found: GridCells, truth: GridCells, clusters: int, n: int) -> float:
    """Return the sum over the grid of |weight - true weight|, over n (paper, §6.2)."""
    powers = clusters ** np.arange(found.places.shape[1], dtype=np.int64)
    places = np.concatenate([found.places @ powers, truth.places @ powers])
    cells, where = np.unique(places, return_inverse=True)
    difference = np.bincount(where, np.concatenate([found.weights, -truth.weights]), len(cells))
    return float(np.abs(difference).sum() / n)


def v_score(labels: Labels, truth: Labels) -> float:
    """Return the V-measure: the harmonic mean of homogeneity and completeness (Rosenberg and Hirschberg, 2007)."""
    table = np.zeros((int(truth.max()) + 1, int(labels.max()) + 1))
    np.add.at(table, (truth, labels), 1.0)
    joint, classes, clusters = (_entropy(part) for part in (table.ravel(), table.sum(axis=1), table.sum(axis=0)))
    if classes + clusters == 0.0:
        return 1.0
    return 2.0 * (classes + clusters - joint) / (classes + clusters)


def _entropy(counts: Array) -> float:
    shares = counts[counts > 0.0] / counts.sum()
    return max(0.0, -math.fsum((shares * np.log(shares)).tolist()))


def _judge(problem: Problem, centers: Array, **more: Any) -> Clustered:
    labels, loss = nearest(problem.points, centers)
    return Clustered(loss=loss, v_score=v_score(labels, problem.labels), **more)
