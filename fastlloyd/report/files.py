"""Write result files atomically, and find out who shares an output folder.

Several clients may write to one folder (one host) or each to its own (several hosts). Each client leaves a marker at
the start; at the end, the lowest included client with a marker in the folder writes the shared files there. While its
party runs, a marker is locked: another run does not write to the same folder, where their files would be mixed.

Source: docs/protocol.md, "Output".
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import os
import re
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.records import RawRows
from fastlloyd.errors import ConfigError, Reason
from fastlloyd.report.display import csv_cell, csv_text
from fastlloyd.report.quality import Quality
from fastlloyd.wire.header import PartyId
from fastlloyd.wire.regular import read_regular, replace_file

PRIVATE_MODE = 0o600
PUBLIC_MODE = 0o644
_STALE_S = 86_400.0
_BLOCK_ROWS = 1 << 14
_MARKER = re.compile(r"\.fastlloyd-([0-9a-f]{32})-\d+")


def write_atomic(
    path: Path, content: bytes | str | Iterable[str], *, mode: int = PUBLIC_MODE, flag: str = "--output"
) -> None:
    """Write a file aside, sync it, and rename it into place.

    Parameters
    ----------
    path : Path
    content : bytes, str or iterable of str
        Pieces are written one after the other.
    mode : int
    flag : str
        The flag that named the path, for the error.

    Raises
    ------
    ConfigError
        The folder is not writable or the disk is full; the old file, if any, stays as it was.
    """
    pieces = [content] if isinstance(content, bytes | str) else content
    try:
        replace_file(path, (piece.encode() if isinstance(piece, str) else piece for piece in pieces), mode=mode)
    except OSError as error:
        raise ConfigError(
            f"{flag}: {path} cannot be written ({error.strerror}); check path, permissions and free space",
            reason=Reason.OUTPUT,
        ) from error


def centroids_csv(names: Sequence[str], centroids: NDArray[np.float64]) -> str:
    """Return centroids, shape (k, d), as CSV: feature names, then k rows that read back exactly.

    A name that a spreadsheet would run as a formula gets an apostrophe in front (`display.csv_cell`).
    """
    text = io.StringIO()
    _table(text, names).writerow(map(csv_cell, names))
    _table(text).writerows([[repr(float(value)) for value in row] for row in centroids])
    return text.getvalue()


def clusters_csv(
    names: Sequence[str],
    centroids: NDArray[np.float64],
    sizes: Sequence[float] | None,
    quality: Quality,
    bounds: Bounds,
) -> str:
    """Return what is released of each cluster as CSV for people: size and centre, each with the ends of its 95 % range.

    Parameters
    ----------
    names : sequence of str, length d
    centroids : float64 array, shape (k, d)
        In original units.
    sizes : sequence of float, length k, or None
    quality : Quality
        With the ranges; what has none has no columns for them.
    bounds : Bounds
        No value lies outside, so no range goes on there.

    Notes
    -----
    The parties neither sign nor compare this text: it follows from centroids.csv and report.json, and the last digits
    of a range may differ between machines.
    """
    head, columns = ["cluster"], [[str(cluster) for cluster in range(len(centroids))]]

    def add(name: str, values: NDArray[np.float64], low: Any = None, high: Any = None) -> None:
        for title, cells in ((name, values), (f"{name}_low95", low), (f"{name}_high95", high)):
            if cells is not None:
                head.append(csv_cell(title))
                columns.append([repr(float(cell)) for cell in cells])

    if sizes is not None:
        ranges = (None, None) if quality.size_ranges is None else quality.size_ranges.T
        add("noisy_size", np.asarray(sizes, dtype=np.float64), *ranges)
    for column, name in enumerate(names):
        values, lo, hi = centroids[:, column], bounds.lo[column], bounds.hi[column]
        if quality.centre_margins is None:
            add(name, values)
        else:
            margin = quality.centre_margins[:, column]
            add(
                name,
                values,
                np.maximum(values - margin, np.minimum(values, lo)),
                np.minimum(values + margin, np.maximum(values, hi)),
            )
    text = io.StringIO()
    _table(text, head).writerows([head, *zip(*columns, strict=True)])
    return text.getvalue()


def bounds_csv(names: Sequence[str], bounds: Bounds) -> str:
    """Return the bounds of these features as CSV for `data.bounds.parse_bounds`; names as in `centroids_csv`."""
    text = io.StringIO()
    table = _table(text, names)
    table.writerow(("feature", "lo", "hi"))
    sides = zip(bounds.lo.tolist(), bounds.hi.tolist(), strict=True)
    table.writerows((csv_cell(name), repr(lo), repr(hi)) for name, (lo, hi) in zip(names, sides, strict=True))
    return text.getvalue()


def elbow_csv(costs: NDArray[np.float64], chosen: int) -> str:
    """Return the curve of costs by which k was chosen, shape (kmax,), as CSV: k, cost, whether it was chosen."""
    rows = [f"{k},{cost!r},{int(k == chosen)}\n" for k, cost in enumerate(map(float, costs), start=1)]
    return "k,cost,chosen\n" + "".join(rows)


def sizes_csv(sizes: Sequence[int]) -> str:
    """Return exact sizes of clusters as CSV: cluster, size."""
    return "cluster,size\n" + "".join(f"{cluster},{size}\n" for cluster, size in enumerate(sizes))


def labels_csv(
    raw_labels: NDArray[np.int64], raw_rows: RawRows | None = None, names: Mapping[int, str] | None = None
) -> Iterator[str]:
    """Yield a party's own labels as pieces of CSV: the number of each row of its file, its id, and its label.

    Parameters
    ----------
    raw_labels : int64 array, shape (n,)
        Of the records.
    raw_rows : RawRows, optional
        The rows behind them; without, row i is record i. A row that was dropped has no label. Ids, if any, are as in
        the owner's file, so that both can be joined.
    names : mapping from cluster to name, optional
        For a further column.
    """
    rows = RawRows() if raw_rows is None else raw_rows
    text = io.StringIO()
    table = _table(text, () if rows.raw_ids is None else rows.raw_ids)
    table.writerow(("row", *(() if rows.raw_ids is None else ("id",)), "label", *(() if names is None else ("name",))))
    lines = rows.label(raw_labels)
    if names is not None:
        cells: dict[int | str, str] = {cluster: csv_cell(name) for cluster, name in names.items()}
        lines = ((*line, cells.get(line[-1], "")) for line in lines)
    while block := list(islice(lines, _BLOCK_ROWS)):
        table.writerows(block)
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def _table(text: io.StringIO, cells: Iterable[str] = ()) -> Any:
    """Return a writer of CSV for a table with these cells."""
    # QUOTE_MINIMAL leaves a carriage return alone unquoted, and it would end the line.
    quoted = any("\r" in cell for cell in cells)
    return csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL)


def output_folder(template: str, me: PartyId) -> Path:
    """Return a party's output folder; '{client}' becomes its rank."""
    return Path(template.replace("{client}", str(me.rank)))


def refuse_running(folder: Path, own: str | None = None) -> None:
    """Refuse to write into a folder in which a party of another run than `own` is at work.

    Raises
    ------
    ConfigError
        That run has not ended, so the files of both would be mixed.
    """
    for marker in sorted(folder.glob(".fastlloyd-*")):
        named = _MARKER.fullmatch(marker.name)
        if named and named[1] != own and _locked(marker):
            raise ConfigError(
                f"--output {folder}: expected a folder that no other run uses, and run {named[1][:8]}, which has not "
                "ended, will write there: name another folder, or start again when it has ended"
            )


def _locked(marker: Path) -> bool:
    """Return whether the process that made a marker still runs; a file that cannot be read says nothing."""
    try:
        with marker.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


class RunFolder:
    """The output folder of one party's run.

    Parameters
    ----------
    template : str
        As given by `--output`; '{client}' becomes the rank.
    run_id : bytes
    me : PartyId

    Attributes
    ----------
    path : Path
    written : set of str
        Names of the files that this party has written.

    Raises
    ------
    ConfigError
        The folder cannot be made or written, or another run uses it.
    """

    def __init__(self, template: str, run_id: bytes, me: PartyId) -> None:
        self.path = output_folder(template, me)
        self._run = run_id.hex()
        self._me = me
        self.written: set[str] = set()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for leftover in self.path.glob(".fastlloyd-*"):  # of runs that died more than a day ago
                with contextlib.suppress(OSError):
                    old = time.time() - leftover.stat().st_mtime > _STALE_S
                    if old and not leftover.name.endswith(".jsonl") and not _locked(leftover):
                        leftover.unlink()
            self._marker(me).touch(mode=PRIVATE_MODE)
            held = os.open(self._marker(me), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigError(
                f"--output {template}: cannot be made or written ({error.strerror}); check path and permissions",
                reason=Reason.OUTPUT,
            ) from error
        self._close = weakref.finalize(self, os.close, held)  # a party that dies in a thread closes it, too
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(held, fcntl.LOCK_EX)
        try:
            refuse_running(self.path, self._run)
        except ConfigError:
            self.discard()
            raise

    @property
    def ledger_path(self) -> Path:
        """The file of this party's ledger of this run until the run has ended."""
        return self.path / f".fastlloyd-{self._run}-{self._me.rank}.ledger.jsonl"

    def writes_shared(self, included: Sequence[PartyId]) -> bool:
        """Whether this party is the lowest included client with a marker in this folder.

        Ask while all clients are still running, because a client that finishes removes its marker. A client that was
        not included writes only if there is no other marker.
        """
        here = [party for party in included if self._marker(party).exists()]
        return min(here, default=self._me) == self._me

    def write(self, name: str, content: bytes | str | Iterable[str], *, mode: int = PUBLIC_MODE) -> Path:
        """Write one result file and return its path."""
        target = self.path / name
        write_atomic(target, content, mode=mode)
        self.written.add(name)
        return target

    def remove(self, names: Iterable[str]) -> None:
        """Remove files that were written here."""
        for name in names:
            with contextlib.suppress(OSError):
                (self.path / name).unlink(missing_ok=True)
            self.written.discard(name)

    def here(self) -> frozenset[int]:
        """Return the ranks of the parties that write to this folder; ask at the same time as `writes_shared`."""
        start = self._marker(self._me).name.rpartition("-")[0] + "-"
        ranks = (path.name.removeprefix(start) for path in self.path.glob(f"{start}*"))
        return frozenset(int(rank) for rank in ranks if rank.isdecimal())

    def discard(self) -> None:
        """Remove the marker; idempotent."""
        with contextlib.suppress(OSError):
            self._marker(self._me).unlink(missing_ok=True)
        self._close()

    def _marker(self, party: PartyId) -> Path:
        return self.path / f".fastlloyd-{self._run}-{party.rank}"


def read_centroids(path: Path, result: Mapping[str, Any]) -> NDArray[np.float64] | None:
    """Read centroids.csv, float64 array of shape (k, d); None if the protocol reveals none.

    Parameters
    ----------
    path : Path
    result : mapping
        The entry of report.json.

    Raises
    ------
    ConfigError
        The file is not what the run wrote.
    """
    if not path.exists():
        return None
    try:
        header, *rows = csv.reader(io.StringIO(read_regular(path), newline=""))
        centroids = np.array([[float(cell) for cell in row] for row in rows], dtype=np.float64)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: expected a header and rows of numbers ({error}); run it again") from error
    features, sizes = list(result["features"]), result["noisy_sizes"]
    if [csv_text(name) for name in header] != features or centroids.shape[1:] != (len(features),):
        raise ConfigError(f"{path}: expected the features of report.json, got other columns; run it again")
    if sizes is not None and len(sizes) != len(centroids):
        raise ConfigError(f"{path}: expected a row for each size of report.json, got other ones; run it again")
    return centroids
