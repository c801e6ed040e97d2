"""What is the same at all parties, checked: public parameters, bounds, caps, the public set of a demonstration.

A `ConfigError` depends on public things only. `run/own_records.py` loads what one party alone has.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.link.roster import Roster
from fastlloyd.data.bounds import Bounds, parse_bounds
from fastlloyd.data.categories import Categories
from fastlloyd.data.dataset import Dataset, split_rows
from fastlloyd.data.public.named import dataset_bounds, load_named
from fastlloyd.errors import ConfigError
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.privacy.limits import LEAST_RECORDS
from fastlloyd.report.unit import format_count
from fastlloyd.run.config import RunConfig, public_part
from fastlloyd.version import __version__
from fastlloyd.wire.decode import plain
from fastlloyd.wire.header import PROTOCOL_VERSION
from fastlloyd.wire.values import BUILD, MOST_VALUES_BYTES, canonical

DEFAULT_DATASET = "photo"
_MOST_PARTIES_SENT = 100
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicInputs:
    """What is the same at all parties.

    Attributes
    ----------
    public : dataclass
        The protocol's public parameters.
    bounds : Bounds
        Not matched to features where the server has no data.
    caps : tuple of int
        Public cap on each client's records.
    dataset : Dataset or None
        The public set of a demonstration.
    splits : list of int64 arrays or None
    categories : Categories
        What the columns of categories may hold; their features are in `bounds`.
    """

    public: Any
    bounds: Bounds
    caps: tuple[int, ...]
    dataset: Dataset | None = field(repr=False)
    splits: list[NDArray[np.int64]] | None = field(repr=False)
    categories: Categories = field(default_factory=Categories)

    def agreed_values(self, config: RunConfig, roster: bytes) -> dict[str, Any]:
        """Return everything public that must be equal at all parties, by name; `roster` is the roster's digest."""
        return {
            **public_part(config),
            "version": PROTOCOL_VERSION,
            "results_version": config.row.results,
            "resume": config.resume,
            "public": plain(self.public),
            "caps": self.caps,
            "categories": self.categories.lists,
            "bounds": [self.bounds.lo.tolist(), self.bounds.hi.tolist(), self.bounds.names],
            "roster": roster.hex(),
            "split": None if self.dataset is None else [self.dataset.name, config.split],
        }

    def digest(self, config: RunConfig, roster: bytes) -> bytes:
        """Return 32 bytes over everything public that must be equal at all parties."""
        values = PublicInputs.agreed_values(self, config, roster)
        return hashlib.sha256(json.dumps(values, sort_keys=True, default=list).encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInputs(PublicInputs):
    """What is the same at all parties where the server has its own records.

    Attributes
    ----------
    server_values : float64 array, shape (s, d), or None
        The server's points in a demonstration, original units.
    """

    server_values: NDArray[np.float64] | None = field(default=None, repr=False)


def public_values(config: RunConfig, inputs: PublicInputs, roster: Roster | None) -> dict[str, Any]:
    """Return the public values of a run.

    Parameters
    ----------
    config : RunConfig
        As the protocol's `gather` returned it.
    inputs : PublicInputs
    roster : Roster or None

    Returns
    -------
    dict
        Plain JSON values. `settled` holds what follows from the configuration, defaults filled in.
    """
    agreed = inputs.agreed_values(config, b"" if roster is None else roster.digest())
    del agreed["resume"]  # an interrupted run goes on under the approval that it began with
    settled, version, split = agreed.pop("public"), agreed.pop("version"), agreed.pop("split")
    lo, hi, names = agreed.pop("bounds")
    own_columns = config.row.partition == "vertical" and split is None
    values = {
        **agreed,
        "settled": settled,
        "protocol_version": version,
        "fastlloyd": __version__,
        # With tables split by columns each party states the bounds of its own columns in the run itself.
        "bounds": None if own_columns else _name_bounds(lo, hi, names),
        "public_data_set": split,
        "parties": {
            str(entry.party): {"name": entry.name, "fingerprint": entry.fingerprint}
            for entry in (() if roster is None else roster.entries)
        },
    }
    plain: dict[str, Any] = json.loads(canonical(values))
    return plain


def encode_public(config: RunConfig, inputs: PublicInputs, roster: Roster | None) -> bytes:
    """Return the public values as client and server send them to each other, at most `MOST_VALUES_BYTES`.

    A long roster goes as its digest only: sending M names to M parties is quadratic. Where the rest is too
    long, the values that distinguish builds are sent all the same.
    """
    values = {**public_values(config, inputs, roster), "resume": config.resume}
    if len(values["parties"]) > _MOST_PARTIES_SENT:
        del values["parties"]
    text = canonical(values)
    return text if len(text) <= MOST_VALUES_BYTES else canonical({name: values[name] for name in BUILD})


def _name_bounds(lo: list[float], hi: list[float], names: tuple[str, ...] | None) -> dict[str, Any]:
    """Name the bounds by feature; one pair without names holds for every feature."""
    if names is None:
        names = ("every feature",) if len(lo) == 1 else tuple(f"feature {i + 1}" for i in range(len(lo)))
    return {name: [low, high] for name, low, high in zip(names, lo, hi, strict=True)}


def fill_public(kind: type[T], config: RunConfig, **settled: Any) -> T:
    """Return a protocol's public parameters: what is settled, and all others as the configuration has them by name.

    Parameters
    ----------
    kind : dataclass
    config : RunConfig
    settled : object
        What the configuration alone does not tell, by name.

    Raises
    ------
    ConfigError
        Any that does not fit.
    """
    names = {entry.name for entry in fields(cast(Any, kind))}
    chosen = {entry.name: getattr(config, entry.name) for entry in fields(config) if entry.name in names}
    own = {"settings": config.own_settings} if "settings" in names else {}
    return kind(**{**chosen, **own, **settled})


def settle_clients(config: RunConfig, clients: int) -> dict[str, int]:
    """Return how many clients a round needs and how many may collude with a lying server, as fields of a plan.

    Parameters
    ----------
    config : RunConfig
    clients : int

    Raises
    ------
    ConfigError
        The numbers of threshold masks do not fit each other.
    """
    least, colluding = config.min_clients, config.colluding or 0
    if config.masking == "threshold":
        known = config.known_shares
        settled = Numbers.settle(clients, lying=config.colluding, known=known, threshold=least)
        least, colluding = settled.threshold, settled.lying
    return {"min_clients": clients if least is None else least, "colluding": colluding}


# (config, clients, n_total, k) to the protocol's public parameters, checked.
MakePublic = Callable[[RunConfig, int, int, int], Any]


def gather_horizontal(config: RunConfig, clients: int, make_public: MakePublic) -> tuple[RunConfig, PublicInputs]:
    """Check what is public and the same for all parties, where each client holds its own records.

    Returns
    -------
    config : RunConfig
        With the default data set filled in.
    inputs : PublicInputs

    Raises
    ------
    ConfigError
        Any public parameter that does not fit.
    """
    config, dataset = public_dataset(config)
    public = make_public(config, clients, *settle_size(config, dataset))
    splits, categories = None, Categories()
    if dataset is not None:
        splits = split_rows(dataset.values.shape[0], clients, config.split, config.seed, labels=dataset.labels)
        bounds = dataset_bounds(dataset, config.box)
        caps = tuple(len(rows) for rows in splits)
    else:
        categories, bounds = settle_features(config)
        caps = share_caps(config, clients, public.n_total)
    return config, PublicInputs(
        public=public, bounds=bounds, caps=caps, dataset=dataset, splits=splits, categories=categories
    )


def settle_features(config: RunConfig) -> tuple[Categories, Bounds]:
    """Read the public lists of categories, and the bounds of all features of the parties' own files.

    Raises
    ------
    ConfigError
        One of the files does not fit, or the other.
    """
    if config.categories is None:
        return Categories(), parse_bounds(config.box or "")
    categories = Categories.read(config.categories)
    return categories, categories.bounds(None if config.bounds is None else parse_bounds(config.bounds))


def public_dataset(config: RunConfig) -> tuple[RunConfig, Dataset | None]:
    """Load the public set of a demonstration; without any data asked for, the default one."""
    if config.data is None and config.dataset is None:
        config = dataclasses.replace(config, dataset=DEFAULT_DATASET)
    if config.dataset is None:
        return config, None
    missing = "refuse" if config.missing == "midpoint" else config.missing
    return config, load_named(config.dataset, config.data_dir, columns=config.columns, missing=missing)


def settle_size(config: RunConfig, dataset: Dataset | None) -> tuple[int, int]:
    """Return the public N and k, as configured or as the public data set brings them; k is 1 without clusters.

    Raises
    ------
    ConfigError
        One of them is missing, or the data set has more records than N.
    """
    n_total = config.n_total
    if dataset is not None:
        rows = dataset.values.shape[0]
        if n_total is None and rows not in LEAST_RECORDS:
            raise ConfigError(
                f"--dataset {config.dataset}: expected at least {LEAST_RECORDS.least} records, got {rows}; name a "
                "larger set"
            )
        n_total = rows if n_total is None else n_total
        if rows > n_total:
            raise ConfigError(
                f"--n-total: expected at least the data set's {format_count(rows, 'record')}, got {n_total}"
            )
    if n_total is None:
        raise ConfigError("--n-total: expected a public upper bound on all records, got none")
    k = config.k if config.k is not None else (dataset.k if dataset is not None else None)
    if config.row.finds_bounds:
        k = 1
    if k is None:
        raise ConfigError("--k: expected the number of clusters, got none")
    return n_total, k


def count_features(columns: Sequence[str], bounds: Bounds | None, categories: Categories) -> int | None:
    """Return how many features the public columns, or else the bounds, name; None where neither names any.

    Parameters
    ----------
    columns : sequence of str
        As `--columns` names them; empty: those of the bounds.
    bounds : Bounds or None
        Those of the categories included.
    categories : Categories
    """
    if columns:
        return len(set(columns) - set(categories.columns)) + len(categories.names)
    return None if bounds is None or bounds.names is None else len(bounds.names)


def plan_inputs(config: RunConfig, clients: int, d: int | None, make_public: MakePublic) -> tuple[Any, int]:
    """Return the public parameters and the number of features of a run that is only planned.

    Raises
    ------
    ConfigError
        The number of features is not known.
    """
    dataset = None
    demonstration = config.data is None and config.bounds is None and config.n_total is None
    if d is None and (config.dataset is not None or demonstration):
        config, dataset = public_dataset(config)
        d = len(dataset.names) if dataset is not None else None
    if d is None or d < 1:
        raise ConfigError("--d: expected the number of features, 1 or more (it is not read from private data)")
    return make_public(config, clients, *settle_size(config, dataset)), d


def share_caps(config: RunConfig, clients: int, n_total: int) -> tuple[int, ...]:
    """Return each client's public cap; they sum to at most N."""
    if not config.client_caps:
        return (n_total // clients,) * clients
    if len(config.client_caps) != clients:
        raise ConfigError(
            f"--client-caps: expected one number for each of {format_count(clients, 'client')}, got "
            f"{len(config.client_caps)} (-n counts the server, too)"
        )
    if sum(config.client_caps) > n_total:
        raise ConfigError(
            f"--client-caps: expected a sum of at most --n-total {n_total}, got {sum(config.client_caps)}"
        )
    return config.client_caps
