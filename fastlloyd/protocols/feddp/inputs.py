"""Inputs of FedDP-KMeans: the clients' records with their users, and the server's own points.

In a demonstration the server's points are rows of the public set that no client gets, or those that the mixture
generator makes for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds, parse_bounds, scale
from fastlloyd.data.database import Place
from fastlloyd.data.dataset import Dataset, public_permutation, split_rows
from fastlloyd.data.form import DataFile
from fastlloyd.data.public.mixture import MIXTURE, MixtureData, make_mixture, parse_mixture
from fastlloyd.data.public.named import dataset_bounds
from fastlloyd.data.records import OwnRecords
from fastlloyd.data.source import open_source
from fastlloyd.data.table import read_table
from fastlloyd.errors import ConfigError, DataError
from fastlloyd.privacy.calibration import settle_delta
from fastlloyd.privacy.ledger import keyed_digest
from fastlloyd.protocols.feddp.plan import PublicParameters
from fastlloyd.protocols.feddp.settings import PRIVATE, Settings, settings_from
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import (
    ServerInputs,
    fill_public,
    public_dataset,
    settle_clients,
    settle_features,
    settle_size,
    share_caps,
)
from fastlloyd.run.own_records import load_own
from fastlloyd.wire.header import PartyId

_HOLD_OUT = 1 << 40
_PAPER_DELTA = 1e-6  # in all its experiments
_NOBODY = frozenset({"", "na", "nan", "n/a", "null", "none"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FedDPInputs(ServerInputs):
    """Inputs that all parties have the same.

    Attributes
    ----------
    users : int64 array, shape (n,), or None
        The user of each row of a demonstration's data set.
    """

    users: NDArray[np.int64] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPoints:
    """The server's own points, scaled to [-1, 1]; `points` is None if it has none."""

    points: NDArray[np.float64] | None = field(repr=False)
    names: tuple[str, ...] | None

    def needed(self, public: PublicParameters) -> NDArray[np.float64] | None:
        """Return the points if the run's start uses any, else None."""
        return self.points if settings_from(public.settings).needs_points else None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecords(OwnRecords):
    """A client's records and their users.

    Attributes
    ----------
    raw_users : int64 array, shape (n,)
        Which of this client's users each record belongs to.
    """

    raw_users: NDArray[np.int64] = field(repr=False)

    def digest(self, key: bytes) -> str:
        """Return a keyed digest of the records and their users; never sent."""
        return keyed_digest(key, np.column_stack([self.raw_points, self.raw_users.astype(np.float64)]))


def public_parameters(config: RunConfig, clients: int, n_total: int, k: int) -> PublicParameters:
    """Return the public parameters of a run.

    Raises
    ------
    ConfigError
        A parameter is out of range.
    """
    config = settle_masking(config)
    delta = settle_delta(config.delta, n_total=n_total, paper=_PAPER_DELTA, accept_large=config.accept_large_delta)
    terms = settle_clients(config, clients)
    return fill_public(PublicParameters, config, clients=clients, k=k, n_total=n_total, delta=delta, **terms)


def settle_masking(config: RunConfig) -> RunConfig:
    """Return the configuration with pairwise masks for common ones: the server has to see the noisy sums."""
    return replace(config, masking="pairwise") if config.masking == "common" else config


def most_users(config: RunConfig, clients: int, n_total: int) -> int:
    """Return the largest number of users at client level: the records, or the clients if each counts as one user."""
    return n_total if has_users(config) else clients


def has_users(config: RunConfig) -> bool:
    """Return whether records name their users; otherwise each client counts as one user."""
    return settings_from(config.own_settings).users is not None or _is_mixture(config)


def _is_mixture(config: RunConfig) -> bool:
    return config.dataset is not None and config.dataset.partition(":")[0] == MIXTURE


def gather(config: RunConfig, clients: int) -> tuple[RunConfig, FedDPInputs]:
    """Check what is public and the same for all parties.

    Raises
    ------
    ConfigError
        A public parameter is out of range or does not go with another.
    """
    config = settle_masking(config)
    settings = settings_from(config.own_settings)
    if settings.start == PRIVATE and config.server_data is not None:
        raise ConfigError(
            "--server-data does not go with feddp.start 'private', which uses no data of the server: leave one out"
        )
    if settings.users is not None and settings.privacy_level == "record":
        raise ConfigError(
            "--set feddp.users names the user of each record, but feddp.privacy_level is 'record', which protects "
            "single records: add --set feddp.privacy_level=client, or leave feddp.users out"
        )
    if settings.users is not None and config.unit is not None:
        raise ConfigError(
            "--unit merges the rows of a person into one record, and --set feddp.users protects all unmerged rows of a "
            "user: take one of them (--unit with feddp.privacy_level 'record', or feddp.users without --unit)"
        )
    if _is_mixture(config):
        return _gather_mixture(config, clients)
    config, dataset = public_dataset(config)
    if dataset is None:
        public = public_parameters(config, clients, *settle_size(config, None))
        caps = share_caps(config, clients, public.n_total)
        categories, bounds = settle_features(config)
        return config, FedDPInputs(
            public=public, bounds=bounds, caps=caps, dataset=None, splits=None, categories=categories
        )
    return _gather_dataset(config, clients, dataset, settings)


def _gather_dataset(
    config: RunConfig, clients: int, dataset: Dataset, settings: Settings
) -> tuple[RunConfig, FedDPInputs]:
    """Split a public set among the clients; without --server-data, some rows of it are the server's."""
    if settings.users is not None:
        raise ConfigError(
            "--set feddp.users names a column of each client's own file (--data); a demonstration with users is "
            "--dataset mixture:clients=2000,points=50"
        )
    rows = len(dataset.values)
    held = 0
    if config.server_data is None and settings.start != PRIVATE:
        held = math.ceil(settings.server_share * rows)
    if config.server_data is None and rows - held < clients:
        raise ConfigError(f"--set feddp.server_share: {held} of {rows} rows leave too few for {clients} clients")
    kept = np.ones(rows, dtype=bool)
    # Not the split's seed: its order would take all these rows from the first clients.
    kept[public_permutation(rows, config.seed + _HOLD_OUT)[:held]] = False
    splits = [part[kept[part]] for part in split_rows(rows, clients, config.split, config.seed, labels=dataset.labels)]
    idle = [client for client, part in enumerate(splits, 1) if not len(part)]
    if idle:
        raise ConfigError(
            f"--set feddp.server_share {settings.server_share:g}: leaves client {idle[0]} without a record; lower it, "
            "or start fewer clients"
        )
    n_total, k = settle_size(config, dataset)
    if config.n_total is None:
        n_total = int(kept.sum())
    return config, FedDPInputs(
        public=public_parameters(config, clients, n_total, k),
        bounds=dataset_bounds(dataset, config.bounds),
        caps=tuple(len(part) for part in splits),
        dataset=dataset,
        splits=splits,
        server_values=dataset.values[~kept] if held else None,
    )


def _gather_mixture(config: RunConfig, clients: int) -> tuple[RunConfig, FedDPInputs]:
    """Make the paper's mixture and divide its owners among the clients."""
    private = settings_from(config.own_settings).start == PRIVATE
    made = make_mixture(parse_mixture(config.dataset or MIXTURE), config.seed)
    dataset = _mixture_dataset(made)
    splits = made.rank_rows(clients)
    return config, FedDPInputs(
        public=public_parameters(config, clients, *settle_size(config, dataset)),
        bounds=made.mixture.bounds if config.bounds is None else parse_bounds(config.bounds).match(dataset.names),
        caps=tuple(len(part) for part in splits),
        dataset=dataset,
        splits=splits,
        server_values=None if config.server_data is not None or private else made.server_points,
        users=made.owners,
    )


def _mixture_dataset(made: MixtureData) -> Dataset:
    """Return the clients' records as a public data set."""
    return Dataset(
        name=MIXTURE,
        values=made.points,
        names=made.mixture.names,
        labels=made.labels,
        bounds=made.mixture.bounds,
        k=made.mixture.k,
        licence="generated",
    )


def load(config: RunConfig, inputs: FedDPInputs, me: PartyId) -> OwnRecords | ServerPoints:
    """Load this party's own data, scaled to [-1, 1].

    Raises
    ------
    DataError
        A client's records do not fit.
    ConfigError
        The server's file does not fit: the server's points are public to the parties of this protocol.
    """
    settings = settings_from(config.own_settings)
    if me.is_server:
        return _load_server(config, inputs)
    path = config.own_file(me.rank)
    own = load_own(config, inputs, me, texts=() if settings.users is None else (settings.users,), path=path)
    if settings.privacy_level == "record":
        return own
    raw_users = _users(config, inputs, me, own, path)
    return UserRecords(
        raw_points=own.raw_points,
        names=own.names,
        bounds=own.bounds,
        raw_rows=own.raw_rows,
        raw_users=raw_users,
        findings=own.findings,
    )


def _load_server(config: RunConfig, inputs: FedDPInputs) -> ServerPoints:
    """Load the server's points."""
    if inputs.server_values is not None and inputs.dataset is not None:
        return ServerPoints(points=scale(inputs.server_values.copy(), inputs.bounds), names=inputs.dataset.names)
    if config.server_data is None:
        return ServerPoints(points=None, names=None if inputs.dataset is None else inputs.dataset.names)
    columns = config.columns
    if not columns and inputs.dataset is not None:
        columns = inputs.dataset.names
    # In the clients' files, if not here.
    no_features = (settings_from(config.own_settings).users, config.unit, config.id)
    file = DataFile(Path(config.server_data), replace(config.form, rename=()), "--server-data")
    try:
        with open_source(file) as source:
            table = read_table(
                source,
                columns=columns,
                ignore=[name for name in source.names if name in no_features],
                missing=config.missing,
                bounds=inputs.bounds,
                categories=inputs.categories,
            )
    except DataError as error:  # the server's points are not private
        raise ConfigError(f"--server-data: {error}") from error
    matched: Bounds = inputs.bounds.match(table.names)
    return ServerPoints(points=scale(table.values, matched, out=table.values), names=table.names)


def _users(config: RunConfig, inputs: FedDPInputs, me: PartyId, own: OwnRecords, path: Place) -> NDArray[np.int64]:
    """Return the user of each record; without a column of users, a client is one user."""
    settings, rows = settings_from(config.own_settings), len(own.raw_points)
    if inputs.users is not None and inputs.splits is not None:
        return inputs.users[inputs.splits[me.rank - 1]]
    if settings.users is None:
        return np.zeros(rows, dtype=np.int64)
    if config.missing == "drop":
        raise ConfigError("--missing drop does not go with feddp.users: use midpoint, or complete the rows")
    names = own.raw_texts[settings.users]
    blank = [row for row, name in enumerate(names) if name.lower() in _NOBODY]
    if blank:
        raise DataError(
            f"{path}, {path.row(blank[0])}, column {settings.users!r}: expected the user of the record, got nothing "
            f"(and in {len(blank) - 1} more rows); fill it in, for blank users would count as one"
        )
    _, numbers = np.unique(np.array(names), return_inverse=True)
    return numbers.astype(np.int64).reshape(rows)
