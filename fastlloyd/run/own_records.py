"""A party's own records, loaded and checked, and the share of the machine that they may take.

Everything that depends on records is found before the party joins the run; a `DataError` stays on its owner's standard
error.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from fastlloyd.data.bounds import scale
from fastlloyd.data.database import Place
from fastlloyd.data.findings import find
from fastlloyd.data.form import Cap
from fastlloyd.data.merge import Unit
from fastlloyd.data.missing import GAPS
from fastlloyd.data.reading import Wanted
from fastlloyd.data.records import ClientRecords, OwnRecords, RawRows, StoredRecords
from fastlloyd.data.table import MemoryLimit, Table, read_table, read_table_within
from fastlloyd.net.cores import cores
from fastlloyd.net.mpi.launcher import detect
from fastlloyd.report.files import output_folder
from fastlloyd.run.config import RunConfig, read_bytes
from fastlloyd.run.inputs import PublicInputs
from fastlloyd.run.state import own_folder
from fastlloyd.wire.header import PartyId

_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def load_client(config: RunConfig, inputs: PublicInputs, me: PartyId) -> OwnRecords | None:
    """Load a client's own records; the server has none."""
    return None if me.is_server else load_own(config, inputs, me)


def load_large(config: RunConfig, inputs: PublicInputs, me: PartyId) -> ClientRecords | None:
    """Load a client's own records, into a file if they need more than `own_memory`; the server has none.

    Raises
    ------
    DataError
        As for `load_own`, or what is asked needs all records in memory.
    """
    if me.is_server:
        return None
    if inputs.dataset is not None:
        return load_own(config, inputs, me)
    path, wanted = config.own_file(me.rank), _wanted(config, inputs, me)
    folder = output_folder(config.output, me) if config.state_dir is None else own_folder(config.state_dir, me)
    limit = MemoryLimit(own_memory(config), folder)
    table = read_table_within(path, limit, **wanted)
    if isinstance(table, Table):
        return _own_records(config, inputs, me, path, table)
    _cap(inputs, me).check(path, len(table.rows), counted=True)
    bounds = inputs.bounds.match(table.names)
    return StoredRecords(
        stored=table.rows,
        limit=limit,
        names=table.names,
        bounds=bounds,
        findings=find(table.rows.blocks(), bounds, table.names, table.intake),
        raw_rows=RawRows(raw_kept=table.raw_kept, raw_ids=table.raw_texts.get(config.id or "")),
        threads=own_threads(config),
    )


def load_own(
    config: RunConfig,
    inputs: PublicInputs,
    me: PartyId,
    *,
    texts: tuple[str, ...] = (),
    beside: tuple[str, ...] = (),
    path: Place | None = None,
    gaps: bool = False,
) -> OwnRecords:
    """Load and scale a client's own records; opens that client's file and no other, once.

    Parameters
    ----------
    texts : tuple of str
        Columns that are no features, and are given as text.
    beside : tuple of str
        Columns that are given as text as well, whether they are features or not.
    path : Place, optional
        That file, where the caller names its rows too: a database is asked once for each.
    gaps : bool
        Whether a value that `--missing midpoint` would fill stays missing (NaN): the caller counts it nowhere.

    Raises
    ------
    DataError
        The file or its records do not fit, or there are more than the public cap.
    """
    if inputs.dataset is not None and inputs.splits is not None:
        dataset, part = inputs.dataset, inputs.splits[me.rank - 1]
        raw_values = dataset.values[part]
        return OwnRecords(
            raw_points=scale(raw_values, inputs.bounds, out=raw_values),
            names=dataset.names,
            bounds=inputs.bounds.match(dataset.names),
            raw_rows=RawRows(raw_numbers=part + 1 if dataset.numbers is None else dataset.numbers[part]),
            threads=own_threads(config),
        )
    path = config.own_file(me.rank) if path is None else path
    wanted = _wanted(config, inputs, me, texts, beside)
    if gaps and config.missing == "midpoint":
        wanted["missing"] = GAPS
    return _own_records(config, inputs, me, path, read_table(path, **wanted), gaps=gaps)


def _wanted(
    config: RunConfig,
    inputs: PublicInputs,
    me: PartyId,
    texts: tuple[str, ...] = (),
    beside: tuple[str, ...] = (),
) -> Wanted:
    """Return what a table is read with; what its owner calls the rows is read with the records."""
    names = config.id or config.unit
    return {
        "columns": config.columns,
        "ignore": (*texts, *(() if config.id is None else (config.id,))),
        "missing": config.missing,
        "bounds": inputs.bounds,
        "unit": None if config.unit is None else Unit(config.unit, config.per_unit),
        "categories": inputs.categories,
        "texts": (*texts, *(() if names is None else (names,))),
        "beside": beside,
        "cap": _cap(inputs, me),
    }


def _own_records(
    config: RunConfig, inputs: PublicInputs, me: PartyId, path: Place, table: Table, *, gaps: bool = False
) -> OwnRecords:
    """Scale the records of a table in place."""
    _cap(inputs, me).check(path, len(table.values), counted=True)
    bounds = inputs.bounds.match(table.names)
    findings = find([table.values], bounds, table.names, table.intake)
    return OwnRecords(
        findings=findings,
        raw_points=scale(table.values, bounds, out=table.values, gaps=gaps),
        names=table.names,
        bounds=bounds,
        raw_rows=RawRows(raw_records=table.raw_records, raw_ids=table.raw_texts.get(config.id or config.unit or "")),
        raw_texts=table.raw_texts,
        threads=own_threads(config),
    )


def _cap(inputs: PublicInputs, me: PartyId) -> Cap:
    """Return the public cap on a client's records."""
    why = f"the public cap of {me}; agree on a larger --n-total or on --client-caps, or use fewer records"
    return Cap(inputs.caps[me.rank - 1], why)


def own_threads(config: RunConfig) -> int:
    """Return how many threads this party's passes over its records take: as configured, or its share of the cores."""
    if config.threads is not None:
        return config.threads
    return max(1, cores() // _clients_here())


def own_workers(config: RunConfig) -> int:
    """Return how many processes compute for this party: as configured, or one for each core."""
    return config.workers or cores()


def own_memory(config: RunConfig) -> int:
    """Return how many bytes this party's records may take: as configured, or its share of a quarter of the machine."""
    if config.memory is not None:
        return read_bytes(config.memory)
    return machine_memory(_CONTROL_GROUPS) // (4 * _clients_here())


def machine_memory(control_groups: Path) -> int:
    """Return how many bytes of memory there are for this process: the machine's, or its container's if that has less.

    Parameters
    ----------
    control_groups : Path
        Where the system shows the limits of the container, in either version; what is not there limits nothing.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # "max" is no number: no limit
            memory = min(memory, int((control_groups / name).read_text()))
    return memory


def _clients_here() -> int:
    """Return how many clients share this host, as far as is known.

    Clients that a launcher has started on one host share it evenly; the server, which has no records, counts where it
    is known to be among them.
    """
    launch = detect()
    return max(1, (launch.local_size or 1) - (1 if launch.on_one_host else 0))
