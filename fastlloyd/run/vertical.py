"""What the systems have in common whose parties hold different columns of the same records.

Source: docs/protocol.md, "Vertical tables" and "Alignment".
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.blinding import Blinding, hash_to_point
from fastlloyd.data.bounds import Bounds, parse_bounds, scale
from fastlloyd.data.database import names_client
from fastlloyd.data.dataset import Dataset
from fastlloyd.data.findings import Findings, find
from fastlloyd.data.form import Cap
from fastlloyd.data.public.mixture import gaussian_mixture, read_numbers
from fastlloyd.data.public.named import dataset_bounds
from fastlloyd.data.vertical import ID_COLUMN, PartyFeatures, VerticalTable, read_vertical, split_dataset
from fastlloyd.errors import ConfigError, DataError
from fastlloyd.lifecycle.align.ids import check_listed
from fastlloyd.party.option import describe_settings, option, read_settings
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.unit import format_count
from fastlloyd.run.config import VERTICAL, RunConfig
from fastlloyd.run.inputs import MakePublic, PublicInputs, public_dataset, settle_size
from fastlloyd.run.work import measured
from fastlloyd.wire.header import PartyId

VERTICAL_MIXTURE = "vertical-mixture"
_SAMPLE = 32
_LIST_COST = 1.15
"""Sorting, sending and comparing lists, over the time of their multiplications."""
_WIDTHS = re.compile("[1-9][0-9]{0,4}([+][1-9][0-9]{0,4})*")
_MIXTURE: dict[str, type] = {"n": int, "d": int, "k": int, "spread": float}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How records are identified and brought into one order: `--set vertical.KEY=VALUE`."""

    align: str = option(
        "check",
        "'check' that all parties hold the same ids, or keep those they all hold: 'intersect'",
        choices=("check", "intersect"),
    )
    id: str = option(ID_COLUMN, f"column that names the records ('{ID_COLUMN}')")
    widths: str = option("", "how many columns each owner brings, in the order of ranks, such as 2+3: public")

    def __post_init__(self) -> None:
        if not self.id:
            raise ConfigError("--set vertical.id: expected the name of a column, got ''")
        if self.widths and not _WIDTHS.fullmatch(self.widths):
            raise ConfigError(
                f"--set vertical.widths: expected each owner's number of columns, such as 2+3, got {self.widths!r}"
            )

    @property
    def columns(self) -> tuple[int, ...]:
        """How many columns each owner brings; empty where it was not said."""
        return tuple(map(int, self.widths.split("+"))) if self.widths else ()


HELP = describe_settings(Alignment, VERTICAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerticalInputs(PublicInputs):
    """What is the same at all parties.

    Attributes
    ----------
    tables : tuple of VerticalTable
        Each party's columns in a demonstration; empty with own files.
    alignment : Alignment
    owners : tuple of PartyId
        Who holds columns, in their order.
    """

    tables: tuple[VerticalTable, ...] = field(default=(), repr=False)
    alignment: Alignment = field(default_factory=Alignment)
    owners: tuple[PartyId, ...] = ()

    def agreed_values(self, config: RunConfig, roster: bytes) -> dict[str, Any]:
        """Return everything public that must be equal at all parties; columns are each party's own."""
        return {**PublicInputs.agreed_values(self, replace(config, columns=()), roster), VERTICAL: self._chosen()}

    def digest(self, config: RunConfig, roster: bytes) -> bytes:
        """Return 32 bytes over everything public that must be equal at all parties; columns are each party's own."""
        plain = PublicInputs.digest(self, replace(config, columns=()), roster)
        return hashlib.sha256(plain + json.dumps(self._chosen(), sort_keys=True).encode()).digest()

    def _chosen(self) -> dict[str, str]:
        widths = {"widths": self.alignment.widths} if self.alignment.widths else {}
        return {"align": self.alignment.align, "id_column": self.alignment.id, **widths}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnColumns:
    """A party's columns.

    Attributes
    ----------
    table : VerticalTable
        Original units, in the order of the ids.
    features : PartyFeatures
        What it tells about them.
    """

    table: VerticalTable = field(repr=False)
    features: PartyFeatures

    @property
    def findings(self) -> Findings:
        """What to say to the owner of the records, and to nobody else."""
        return find([self.table.raw_values], self.features.bounds, self.features.names, self.table.intake)

    def points(self, common_ids: tuple[str, ...]) -> NDArray[np.float64]:
        """Return the records with these ids, scaled to [-1, 1], in the order of the ids; shape (n, d_i)."""
        kept = self.table.restrict(common_ids)
        return scale(kept.raw_values.copy(), self.features.bounds)


def gather_vertical(
    config: RunConfig, parties: tuple[PartyId, ...], clients: int, make_public: MakePublic
) -> tuple[RunConfig, VerticalInputs]:
    """Check what is public and the same for all parties.

    Parameters
    ----------
    parties : tuple of PartyId
        Who holds columns.
    clients : int
        Ranks but the server.

    Raises
    ------
    ConfigError
        A public parameter does not fit.
    """
    alignment = read_alignment(config)
    if len(alignment.columns) not in (0, len(parties)):
        raise ConfigError(
            f"--set vertical.widths={alignment.widths}: expected {format_count(len(parties), 'number')}, one for each "
            f"owner of columns, got {len(alignment.columns)}"
        )
    dataset = None
    if config.data is None:
        config, dataset = _demonstration(config)
        if dataset is None:
            raise ConfigError(
                "--data or --dataset: expected one of them, got neither; give each party's own file, or a public set "
                "to try the protocol with"
            )
    public = make_public(config, clients, *settle_aligned(config, dataset))
    bounds = Bounds(np.array([-1.0]), np.array([1.0]))  # with own files each party has its own bounds
    tables: tuple[VerticalTable, ...] = ()
    if dataset is not None:
        bounds = dataset_bounds(dataset, config.bounds)
        tables = split_dataset(dataset, len(parties), "even" if config.split == "iid" else config.split)
    return config, VerticalInputs(
        public=public,
        bounds=bounds,
        caps=(),
        dataset=dataset,
        splits=None,
        tables=tables,
        alignment=alignment,
        owners=parties,
    )


def read_alignment(config: RunConfig) -> Alignment:
    """Return how records are identified.

    Raises
    ------
    ConfigError
        A setting of it does not fit, or one that makes records of rows: here the parties' tables are about the same
        people, one row for each.
    """
    for name, remedy in (
        ("id", f"name it with --set {VERTICAL}.id=COLUMN"),
        ("unit", "merge the rows of an id in each table first"),
        ("categories", "make features of 0 and 1 of the columns first"),
    ):
        if getattr(config, name) is not None:
            raise ConfigError(
                f"--{name} is for parties that hold different people; {config.protocol} aligns tables by a column of "
                f"ids: {remedy}"
            )
    return read_settings(Alignment(), VERTICAL, config.settings.get(VERTICAL, {}))


def settle_aligned(config: RunConfig, dataset: Dataset | None) -> tuple[int, int]:
    """Return the public N and k as `settle_size` does, if lists of N ids can be sent where they are intersected.

    Raises
    ------
    ConfigError
        They cannot, or N or k does not fit.
    """
    n_total, k = settle_size(config, dataset)
    if read_alignment(config).align == "intersect":
        check_listed(n_total)
    return n_total, k


def alignment_seconds(config: RunConfig, parties: int, n_total: int) -> tuple[float, float]:
    """Return the processor seconds of finding the common ids, measured now: of all parties, and of one after another.

    Parameters
    ----------
    parties : int
        That hold columns.
    n_total : int
        Public N; as many ids are common.

    Notes
    -----
    Each party hashes a list and blinds every list; then all unblind the list of the common ids, one after the other.
    """
    if read_alignment(config).align != "intersect":
        return 0.0, 0.0
    blinding, points = Blinding(SecretRandom()), [hash_to_point(str(name), b"") for name in range(_SAMPLE)]
    hashing = measured(lambda: [hash_to_point(str(name), b"") for name in range(_SAMPLE)]) / _SAMPLE
    blinded = _LIST_COST * measured(lambda: blinding.blind(points)) / _SAMPLE
    path = n_total * (2.0 * hashing + 2.0 * parties * blinded)
    return n_total * ((parties + 1) * hashing + parties * (parties + 1) * blinded), path


def plan_widths(config: RunConfig, owners: int, d: int | None) -> tuple[int, ...]:
    """Return how many columns each owner has, as far as public numbers say: as set, or d divided evenly.

    Raises
    ------
    ConfigError
        Neither is known, or they do not fit together.
    """
    stated = read_alignment(config).columns
    if stated and (len(stated) != owners or d not in (None, sum(stated))):
        raise ConfigError(
            f"--set vertical.widths={'+'.join(map(str, stated))}: expected {owners} numbers"
            + (f" that add up to --d {d}" if d is not None else "")
        )
    if not stated and (d is None or d < owners):
        raise ConfigError(f"--d: expected the number of columns of all {owners} owners together, {owners} or more")
    return stated or tuple(map(len, np.array_split(np.arange(d or 0), owners)))


def assumed_widths(config: RunConfig, d: int | None) -> str:
    """Say what `plan_widths` assumes, where it is used and nothing was stated; empty: nothing."""
    demonstration = config.data is None and (config.dataset is not None or d is None)
    if demonstration or read_alignment(config).widths:
        return ""
    return 'assumed: the columns are divided evenly among their owners; [vertical] widths = "1+3" says how they are'


def _demonstration(config: RunConfig) -> tuple[RunConfig, Dataset | None]:
    """Load or make the public set."""
    if (config.dataset or "").partition(":")[0] != VERTICAL_MIXTURE:
        return public_dataset(config)
    return config, gaussian_mixture(**read_numbers(config.dataset or "", _MIXTURE), seed=config.seed)


def load_vertical(config: RunConfig, inputs: VerticalInputs, place: int, number: int | None = None) -> OwnColumns:
    """Load the columns of the party at `place`, from 0; opens that party's file and no other.

    Parameters
    ----------
    number : int, optional
        What '{client}' stands for in its file names; `place` + 1 by default.

    Raises
    ------
    DataError
        The file or its records do not fit, or there are more than the public N.
    ConfigError
        The bounds do not fit the columns.
    """
    if inputs.tables and inputs.dataset is not None:
        table, names = inputs.tables[place], inputs.dataset.names
        bounds = inputs.bounds.match(names)
        rows = [names.index(name) for name in table.names]
        own = Bounds(bounds.lo[rows], bounds.hi[rows], table.names)
        return OwnColumns(table=table, features=PartyFeatures(names=table.names, bounds=own))
    own_columns = _load_file(config, inputs, str(place + 1 if number is None else number))
    stated = inputs.alignment.columns
    if stated and stated[place] != len(own_columns.features.names):
        raise DataError(
            f"{config.data}: vertical.widths says that this party brings {format_count(stated[place], 'column')}, got "
            f"{len(own_columns.features.names)}: name them with --columns, or agree on other widths"
        )
    return own_columns


def _load_file(config: RunConfig, inputs: VerticalInputs, number: str) -> OwnColumns:
    """Load a party's own file; `{client}` in file names becomes its number."""
    path = config.own_file(number, inputs.alignment.id)
    bounds = parse_bounds((config.bounds or "").replace("{client}", number))
    cap = Cap(inputs.public.n_total, "the public N; agree on a larger --n-total")
    table = read_vertical(
        path, id_column=inputs.alignment.id, columns=config.columns, missing=config.missing, bounds=bounds, cap=cap
    )
    cap.check(path, len(table.raw_ids), counted=True)
    return OwnColumns(table=table, features=PartyFeatures(names=table.names, bounds=bounds.match(table.names)))


def refuse_one_file(config: RunConfig, inputs: PublicInputs, clients: int) -> None:
    """Refuse one file of records for several parties: on one host, the same path is the same records.

    Raises
    ------
    ConfigError
        The name of the file has no '{client}' in it.
    """
    holders = len(inputs.owners) if isinstance(inputs, VerticalInputs) else clients
    if config.data is not None and holders > 1 and not names_client(config.data, config.query, config.table):
        raise ConfigError(
            f"--data {config.data}: all {holders} parties with records run on this host and would read this one file, "
            "so each record would count several times; name one file for each, with '{client}' in the place of its "
            "number (--data 'hospital_{client}.csv'), also where mpirun has separate flags for each rank, or split a "
            "public set with --dataset"
        )
