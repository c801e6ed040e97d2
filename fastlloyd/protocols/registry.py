"""The protocols: one row each.

A row names the package that holds a protocol's code, so that nothing is imported that a run does not need. Other
distributions add a row by an entry point of the group `fastlloyd.protocols`, whose name is the protocol's and whose
value leads to a `Row`. They are looked up only when somebody asks for a name that is not of this package, or for all.

Source: docs/adding-a-protocol.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from functools import cache
from importlib import import_module
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args

from fastlloyd.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "fastlloyd.protocols"
RESERVED = ("vertical",)
"""Names of tables in a run file that are no protocol's."""
Partition = Literal["horizontal", "vertical"]
_NAME = re.compile("[a-z][a-z0-9-]*")
_ALMOST = 0.8
"""From what likeness on a function counts as one whose name is misspelled."""
F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Row:
    """One protocol.

    Attributes
    ----------
    name : str
        As in `--protocol` and run files.
    package : str
        Python package with the module `face` (`read_face`); several protocols may share one.
    partition : {'horizontal', 'vertical'}
        Whether the parties hold records of their own, or columns of the same records.
    summary : str
        What it is, in one line.
    chooses_k : bool
        Whether it can choose the number of clusters, up to a largest one (`--k auto:KMAX`).
    resumes : bool
        Whether an interrupted run can go on (`--resume`).
    streams : bool
        Whether a client's records may be more than memory holds (`--memory`).
    pure : bool
        Whether it promises epsilon alone, without a delta.
    server_data : bool
        Whether its server may have records of its own (`--server-data`).
    workers : bool
        Whether one of its parties computes in several processes (`--workers`).
    results : int
        Version of its results, 1 or more: raised whenever the same records, public values and random bits come to
        another result. Parties with different ones refuse each other.
    """

    name: str
    package: str
    partition: Partition
    summary: str
    chooses_k: bool = False
    resumes: bool = True
    streams: bool = False
    pure: bool = False
    server_data: bool = False
    workers: bool = False
    results: int = 1


_HERE = "fastlloyd.protocols"
ROWS = (
    Row("fastlloyd", f"{_HERE}.fastlloyd", "horizontal", "FastLloyd: masked sums, noise in each round", streams=True),
    Row(
        "fastlloyd-plus",
        f"{_HERE}.fastlloyd",
        "horizontal",
        "FastLloyd that looks at all records first: less error",
        chooses_k=True,
        streams=True,
    ),
    Row(
        "glloyd",
        f"{_HERE}.fastlloyd",
        "horizontal",
        "Gaussian noise on plain sums and counts, a baseline",
        streams=True,
    ),
    Row(
        "sulloyd",
        f"{_HERE}.fastlloyd",
        "horizontal",
        "Laplace noise on plain sums and counts, a baseline",
        streams=True,
        pure=True,
    ),
    Row(
        "lloyd",
        f"{_HERE}.fastlloyd",
        "horizontal",
        "masked sums without noise: nobody's record is protected",
        streams=True,
    ),
    Row(
        "feddp",
        f"{_HERE}.feddp",
        "horizontal",
        "FedDP-KMeans: starts from records that the server has",
        chooses_k=True,
        server_data=True,
    ),
    Row("kfed", f"{_HERE}.kfed", "horizontal", "k-FED: one exchange of local centres in the clear"),
    Row(
        "secfc",
        f"{_HERE}.secfc",
        "horizontal",
        "SecFC: exact k-means over coded shares, without noise",
        resumes=False,
        results=2,
    ),
    Row(
        "vertical-dp",
        f"{_HERE}.vertical_dp",
        "vertical",
        "private sketches, one message from each party",
        resumes=False,
    ),
    Row("vertical-plain", f"{_HERE}.vertical_dp", "vertical", "the same without privacy, a baseline", resumes=False),
    Row(
        "vertical-he",
        f"{_HERE}.vertical_he",
        "vertical",
        "k-means on encrypted columns, noise on what is opened",
        resumes=False,
        workers=True,
    ),
)
PROTOCOLS = tuple(row.name for row in ROWS)
"""The names of this package's own."""
DEFAULT = "fastlloyd-plus"
"""The protocol of a run that names none."""

_BY_NAME = {row.name: row for row in ROWS}


def find(name: str) -> Row:
    """Return a protocol's row.

    Raises
    ------
    ConfigError
        No protocol has this name, or the distribution that adds it is at fault.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    points = [point for point in _entry_points() if point.name == name]
    if not points:
        known = names()
        raise ConfigError(f"--protocol: expected one of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}")
    if len(points) > 1:
        raise _refuse(points[0], f"{_owner(points[1])} adds another of this name")
    return _load(points[0])


def read_face(name: str, kind: type[F]) -> F:
    """Return what a protocol's face offers; no other protocol is imported.

    The module `face` of its package says it as one value, `FACE`. Another distribution's may have functions of these
    names in its place: they are put together here, once.

    Parameters
    ----------
    name : str
    kind : type
        A dataclass of functions; what has no default must be offered.

    Raises
    ------
    ConfigError
        As for `find`; or another distribution's face cannot be imported, lacks a function, or misspells one.
    """
    module = f"{find(name).package}.face"
    if name in _BY_NAME:
        return cast(F, import_module(module).FACE)
    point = next(point for point in _entry_points() if point.name == name)
    face: ModuleType = _guarded(point, lambda: import_module(module))
    offers: Any = kind
    return cast(F, _read_strange(point, face, offers))


@cache
def _read_strange(point: EntryPoint, module: ModuleType, kind: Any) -> Any:
    """Return what another distribution's face offers, as `FACE` or as functions."""
    there = vars(module)
    if "FACE" in there:
        if not isinstance(there["FACE"], kind):
            raise _refuse(point, f"expected {module.__name__}.FACE to be a {kind.__name__}, got {there['FACE']!r}")
        return there["FACE"]
    offered = {entry.name: there[entry.name] for entry in fields(kind) if callable(there.get(entry.name))}
    missing = [entry.name for entry in fields(kind) if entry.name not in offered]
    lacking = [entry.name for entry in fields(kind) if entry.default is MISSING and entry.name in missing]
    if lacking:
        raise _refuse(point, f"{module.__name__} has no {', '.join(lacking)}")
    _refuse_misspelled(point, module, {entry.name for entry in fields(kind)}, missing)
    return kind(**offered)


def _refuse_misspelled(point: EntryPoint, module: ModuleType, known: set[str], missing: list[str]) -> None:
    """Refuse a public function of the module whose name is almost one that it may offer, and does not."""
    from difflib import get_close_matches

    for name, value in vars(module).items():
        if name in known or name.startswith("_") or not isinstance(value, FunctionType):
            continue
        if value.__module__ == module.__name__ and (close := get_close_matches(name, missing, n=1, cutoff=_ALMOST)):
            why = f"{module.__name__}.{name} looks like {close[0]} misspelled: name it so, or begin it with '_'"
            raise _refuse(point, why)


def knows(name: str) -> bool:
    """Whether a protocol has this name; imports none."""
    return name in _BY_NAME or name in names()


def names() -> tuple[str, ...]:
    """Return the names of all protocols, this package's first; imports none."""
    return tuple(dict.fromkeys((*PROTOCOLS, *(point.name for point in _entry_points()))))


def summaries() -> Iterator[tuple[str, str]]:
    """Yield name and one line of each protocol; of one that cannot be used, that it cannot."""
    for name in names():
        try:
            yield name, find(name).summary
        except ConfigError:
            yield name, "cannot be used; `fastlloyd plan --protocol` says why"


def results_versions() -> Iterator[tuple[str, int]]:
    """Yield name and version of the results of each protocol that can be used."""
    for name in names():
        try:
            yield name, find(name).results
        except ConfigError:
            continue


def _entry_points() -> Iterator[EntryPoint]:
    """Yield what other distributions add."""
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.name not in _BY_NAME:
            yield point


def _load(point: EntryPoint) -> Row:
    """Load another distribution's row, and check it."""
    row = _guarded(point, point.load)
    if not isinstance(row, Row) or row.name != point.name:
        raise _refuse(point, f"expected a Row named {point.name!r}, got {row!r}")
    if not _NAME.fullmatch(row.name) or row.name in RESERVED:
        raise _refuse(point, "its name is not made of small letters, digits and dashes, or is taken")
    if type(row.results) is not int or row.results < 1:
        raise _refuse(point, f"expected an integer of 1 or more as the version of its results, got {row.results!r}")
    if row.partition not in get_args(Partition):
        raise _refuse(point, f"expected the partition {' or '.join(get_args(Partition))}, got {row.partition!r}")
    return row


def _guarded(point: EntryPoint, work: Callable[[], Any]) -> Any:
    """Import what is not this package's: whatever goes wrong is a sentence about its distribution."""
    try:
        return work()
    except (Exception, SystemExit) as error:
        raise _refuse(point, f"it cannot be imported ({type(error).__name__}: {error})") from error


def _owner(point: EntryPoint) -> str:
    return "a distribution" if point.dist is None else f"the distribution {point.dist.name!r}"


def _refuse(point: EntryPoint, why: str) -> ConfigError:
    return ConfigError(
        f"--protocol {point.name}: {_owner(point)} adds it as {point.value!r}, but {why}; mend or remove it"
    )
