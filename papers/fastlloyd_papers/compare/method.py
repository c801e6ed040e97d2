"""What is compared: protocols of this and other packages, baselines of the league, and estimators of the user's."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, did_you_mean
from fastlloyd.estimator.estimator import FastLloyd
from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.privacy.calibration import paper_delta
from fastlloyd.protocols.registry import ROWS, find, names
from fastlloyd_papers.baselines.table import BASELINES, OPTIMUM_NAME
from fastlloyd_papers.engine.cells import Cell, seed_of
from fastlloyd_papers.utility.run import generator_noise, plan_run, simulate

Points = NDArray[np.float64]
Factory = Callable[..., Any]
DEFAULTS = (OPTIMUM_NAME, "lloyd", "sulloyd", "glloyd", "fastlloyd", "fastlloyd-plus")
_SIMULATED = ("lloyd", "sulloyd", "glloyd", "fastlloyd", "fastlloyd-plus")
_NOT_PRIVATE = ("lloyd", "kfed", "secfc", "vertical-plain", OPTIMUM_NAME)
# No server has data of its own here.
_SETTINGS = {"feddp": {"start": "private"}}
_DRAWS_NOTHING = ("kfed", "secfc", "vertical-plain")


@dataclass(frozen=True, slots=True)
class Method:
    """One method.

    Attributes
    ----------
    name : str
        Of a protocol or baseline; of an own estimator, as the user calls it.
    own : str or callable or None
        MODULE:FACTORY, or the factory itself: called with n_clusters, epsilon, delta and random_state, it gives an
        object with fit, and with cluster_centers_ or predict.
    private : bool
        Whether its results depend on epsilon.
    """

    name: str
    own: str | Factory | None = None
    private: bool = True


def choose_methods(words: Sequence[str], own: Mapping[str, str | Factory]) -> list[Method]:
    """Return the methods of some names; 'all' is every protocol that clusters.

    Raises
    ------
    ConfigError
        A name is unknown or stands twice, or an own estimator cannot be imported.
    """
    protocols = [row.name for row in ROWS if not row.finds_bounds and row.name in names()]
    known = [*BASELINES, *protocols]
    chosen = [name for word in words for name in (protocols if word == "all" else [word])]
    for name in chosen:
        if name not in known:
            try:
                find(name)
            except ConfigError:
                raise ConfigError(
                    f"--protocols: no method {name!r}{did_you_mean(name, known)}; known are {', '.join(known)}, all, "
                    "and protocols of installed packages; own estimators go to --own NAME=MODULE:FACTORY"
                ) from None
    for name, target in own.items():
        if name in chosen or name in known:
            raise ConfigError(f"--own {name}: a method has this name already; give another one")
        factory_of(target)
    found = [Method(name, private=name not in _NOT_PRIVATE) for name in dict.fromkeys(chosen)]
    return [*found, *(Method(name, target) for name, target in own.items())]


def factory_of(target: str | Factory) -> Factory:
    """Return what MODULE:FACTORY names; the working directory is searched, too.

    Raises
    ------
    ConfigError
        It is not there.
    """
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    try:
        found: Factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"--own {target}: expected MODULE:FACTORY that can be imported ({error})") from error
    return found


def check_seeded(methods: Sequence[Method]) -> None:
    """Refuse a seed for methods whose noise has none.

    Raises
    ------
    ConfigError
        Names them.
    """
    fixed = (*_SIMULATED, *_DRAWS_NOTHING, *BASELINES)
    if free := [method.name for method in methods if method.own is None and method.name not in fixed]:
        raise ConfigError(
            f"--seed: {', '.join(free)} draws its noise from the operating system alone; leave out --seed or these"
        )


def loss_of(method: Method, points: Points, cell: Cell) -> float:
    """Run a method once; the mean squared distance of a record to the nearest centre, on [-1, 1].

    Parameters
    ----------
    method : Method
    points : float64 array, shape (n, d), scaled to [-1, 1]
    cell : mapping
        k, epsilon (None without privacy), repeat, clients, and seed (None: noise from the operating system).

    Raises
    ------
    ConfigError
        The method does not fit the table.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _judge(points, *_run(method, points, cell))


def _run(method: Method, points: Points, cell: Cell) -> tuple[Points | None, NDArray[np.int64] | None]:
    """Return centres, or labels where a method shows no centres."""
    k, epsilon, seed = cell["k"], cell["epsilon"] or 1.0, cell["seed"]
    rng = np.random.default_rng(None if seed is None else seed_of(cell))
    delta = paper_delta(len(points))
    if method.own is not None:
        made = factory_of(method.own)(
            n_clusters=k, epsilon=epsilon, delta=delta, random_state=int(rng.integers(1 << 31))
        ).fit(points)
        centers = getattr(made, "cluster_centers_", None)
        return (None, np.asarray(made.predict(points))) if centers is None else (np.asarray(centers), None)
    if method.name in BASELINES:
        return BASELINES[method.name](points, k, rng, epsilon=epsilon, delta=delta), None
    if seed is not None and method.name in _SIMULATED:
        plan = plan_run(method.name, epsilon, k=k, d=points.shape[1], n=len(points), settings={})
        return simulate(quantise(points, plan.fraction_bits), plan, generator_noise(plan, rng)).exact, None
    return _fit_protocol(method.name, points, cell, epsilon)


def _fit_protocol(
    protocol: str, points: Points, cell: Cell, epsilon: float
) -> tuple[Points | None, NDArray[np.int64] | None]:
    """Run a protocol's parties in memory; vertical ones get the columns in blocks."""
    vertical = find(protocol).partition == "vertical"
    clients = min(cell["clients"], points.shape[1]) if vertical else cell["clients"]
    parts = np.array_split(points, clients, axis=1 if vertical else 0)
    model = FastLloyd(
        cell["k"],
        epsilon=epsilon,
        delta="paper",
        accept_large_delta=True,
        bounds=(-1.0, 1.0),
        n_total=len(points),
        protocol=protocol,
        random_state=cell["repeat"],
        settings=_SETTINGS.get(protocol),
    ).fit_federated(parts)
    centers = model.cluster_centers_
    if centers is not None and np.isfinite(centers).all():
        return centers, None
    labels = model.labels_
    return None, np.concatenate(labels) if isinstance(labels, list) else labels


def _judge(points: Points, centers: Points | None, labels: NDArray[np.int64] | None) -> float:
    if centers is not None:
        return float(nearest(points, centers)[1])
    assert labels is not None
    means = np.stack([points[labels == label].mean(axis=0) for label in np.unique(labels)])
    return float(nearest(points, means)[1])
