"""The inputs of the parties of a fit: the configuration of a run, and each owner's part of the data.

A fit is set up like a demonstration on a public data set, which the protocol splits among the parties; here the set is
the caller's, and each part is read only by its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.dataset import Dataset
from fastlloyd.data.vertical import VerticalTable
from fastlloyd.errors import ConfigError
from fastlloyd.estimator.parameter import read_parameters
from fastlloyd.estimator.words import ParameterError
from fastlloyd.protocols.registry import find
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import PublicInputs, ServerInputs
from fastlloyd.run.run_file import with_values
from fastlloyd.run.session import Adapter, find_protocol
from fastlloyd.run.vertical import VerticalInputs
from fastlloyd.wire.header import PartyId

_SOURCE = "memory"
_NO_DEADLINE_S = 86_400.0


def is_vertical(model: Any) -> bool:
    """Whether the parties of the model's protocol hold columns of the same records."""
    return find(model.protocol).partition == "vertical"


def validate_parts(model: Any, parts: Iterable[Any]) -> list[NDArray[np.float64]]:
    """Check the records or columns of each owner, and note the columns of all of them.

    Parameters
    ----------
    model : FastLloyd
    parts : iterable of arrays
        As for `fit_federated`.

    Raises
    ------
    ParameterError
        There is none, or one does not fit; the error names its owner.
    """
    if hasattr(parts, "shape") or isinstance(parts, (str, bytes, Mapping)):
        raise ParameterError(
            f"fit_federated: expected a list of arrays, one per client, got one {type(parts).__name__}; "
            "use fit(X), or np.array_split(X, m) to try m clients"
        )
    vertical = is_vertical(model)
    raw_parts: list[NDArray[np.float64]] = []
    names: list[str] = []
    for rank, part in enumerate(parts, start=1):
        owner = f"owner {rank}" if vertical else str(PartyId(rank))
        try:
            raw_parts.append(model._validate(part, reset=vertical or rank == 1))
        except ValueError as error:
            raise ParameterError(f"fit_federated, {owner}: {error}") from error
        names.extend(getattr(model, "feature_names_in_", ()))
        if vertical and len(raw_parts[-1]) != len(raw_parts[0]):
            raise ParameterError(
                f"fit_federated, {owner}: expected the same {len(raw_parts[0])} records as owner 1 in the same "
                f"order, got {len(raw_parts[-1])}; {model.protocol!r} takes blocks of columns"
            )
    if not raw_parts:
        raise ParameterError("fit_federated: expected at least one array, got an empty list")
    if vertical:  # validation handles one owner at a time; these are the columns of all, side by side
        model.n_features_in_ = sum(part.shape[1] for part in raw_parts)
        if len(names) == model.n_features_in_:
            model.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(model, "feature_names_in_"):
            del model.feature_names_in_
    return raw_parts


def common_terms(model: Any, n: int) -> dict[str, Any]:
    """Return the values of a run in memory of n records that follow from the parameters.

    Raises
    ------
    ParameterError
        There are more records than `n_total`.
    """
    n_total = n if model.n_total is None else int(model.n_total)
    if n_total < max(n, 3):
        raise ParameterError(
            f"n_total: expected at least 3 and at least the number of records, got n_total={n_total} with n_samples={n}"
        )
    return {
        **read_parameters(model),
        "data": _SOURCE,
        "bounds": "-1,1",  # replaced by those of the features
        "n_total": n_total,
        "deadline": _NO_DEADLINE_S,
    }


def prepare(
    model: Any,
    raw_parts: list[NDArray[np.float64]],
    bounds: Bounds,
    server_points: NDArray[np.float64] | None,
    epsilon: float | None = None,
) -> tuple[RunConfig, int, PublicInputs]:
    """Prepare the inputs of the parties.

    Parameters
    ----------
    model : FastLloyd
    raw_parts : list of float64 arrays
        Records of each client; columns of each owner for a vertical protocol.
    bounds : Bounds
        Named, of all features.
    server_points : float64 array, shape (s, d), or None
    epsilon : float, optional
        By default that of the model.

    Returns
    -------
    config : RunConfig
    n_clients : int
    inputs : PublicInputs
        With all parts in it.

    Raises
    ------
    ConfigError
        A parameter does not fit the protocol or the data.
    """
    vertical = is_vertical(model)
    terms = common_terms(model, len(raw_parts[0]) if vertical else sum(map(len, raw_parts)))
    if epsilon is not None:
        terms["epsilon"] = epsilon
    config = with_values(RunConfig(), {**terms, model.protocol: dict(model.settings or {})})
    if config.k is not None and terms["n_total"] < config.k:
        raise ParameterError(f"n_clusters: expected at most n_total={terms['n_total']}, got {model.n_clusters}")
    if server_points is not None:
        config = replace(config, server_data=_SOURCE)
    if vertical:
        config, n_clients, public = _gather_vertical(config, raw_parts, bounds)
    else:
        n_clients = len(raw_parts)
        config, public = gather_records(config, raw_parts, bounds)
    if server_points is not None:
        if not isinstance(public, ServerInputs):
            raise ParameterError(f"server_data: expected None, since the server of {model.protocol!r} has no data")
        public = replace(public, server_values=server_points)
    if (people := find_protocol(config.protocol).people(config)) is not None:
        raise ConfigError(f"{people} names a column of a file: of arrays, each is one user; leave it out")
    return config, n_clients, public


def gather_records(
    config: RunConfig, raw_parts: list[NDArray[np.float64]], bounds: Bounds, protocol: Adapter | None = None
) -> tuple[RunConfig, PublicInputs]:
    """Return the configuration, and what is public with the records of each client; the protocol is the one that runs.

    Parameters
    ----------
    config : RunConfig
    raw_parts : list of float64 arrays, shapes (n_i, d)
    bounds : Bounds
        Named, of all features.
    protocol : Adapter, optional
        By default that of the configuration.
    """
    sizes = tuple(map(len, raw_parts))
    protocol = find_protocol(config.protocol) if protocol is None else protocol
    config, public = protocol.gather(replace(config, client_caps=sizes), len(sizes))
    splits = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return config, replace(public, bounds=bounds, dataset=_dataset(np.concatenate(raw_parts), bounds), splits=splits)


def _gather_vertical(
    config: RunConfig, raw_parts: list[NDArray[np.float64]], bounds: Bounds
) -> tuple[RunConfig, int, PublicInputs]:
    """Return the columns of each owner, of the same records in the same order."""
    config, n_clients, public = _find_owners(config, len(raw_parts))
    width = len(str(len(raw_parts[0])))
    raw_ids = tuple(f"{row:0{width}d}" for row in range(len(raw_parts[0])))
    names = np.split(np.array(bounds.names, dtype=object), np.cumsum([part.shape[1] for part in raw_parts])[:-1])
    tables = tuple(
        VerticalTable(raw_ids=raw_ids, raw_values=part, names=tuple(own), source=f"columns of {owner}")
        for part, own, owner in zip(raw_parts, names, public.owners, strict=True)
    )
    dataset = _dataset(np.empty((0, len(bounds))), bounds)
    return config, n_clients, replace(public, bounds=bounds, dataset=dataset, tables=tables)


def _find_owners(config: RunConfig, parts: int) -> tuple[RunConfig, int, VerticalInputs]:
    """Determine from protocol and settings whether one of the owners is the server, or all are clients."""
    if parts < 2:
        raise ParameterError(
            f"fit_federated: {config.protocol!r} joins columns: expected at least 2 arrays, got {parts}"
        )
    refused = ConfigError(f"{config.protocol}: expected another number of owners, got {parts}")
    for n_clients in (parts - 1, parts):
        try:
            gathered, public = find_protocol(config.protocol).gather(config, n_clients)
        except ConfigError as error:
            refused = error
            continue
        if isinstance(public, VerticalInputs) and len(public.owners) == parts:
            return gathered, n_clients, public
    raise refused


def _dataset(raw_values: NDArray[np.float64], bounds: Bounds) -> Dataset:
    return Dataset(name=_SOURCE, values=raw_values, names=bounds.names or ())
