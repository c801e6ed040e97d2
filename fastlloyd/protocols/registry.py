"""The protocols: one row each.

A row names the package that holds a protocol's code, so that nothing is imported that a run does not need. Other
distributions add a row by an entry point of the group `fastlloyd.protocols`, whose name is the protocol's and whose
value leads to a `Row`. They are looked up only when somebody asks for a name that is not of this package, or for all.

Source: docs/adding-a-protocol.md.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
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
_NEW_NAMES = {"claim_of": "claim"}
F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Row:
    """One protocol.

    Attributes
    ----------
    name : str
        As in `--protocol` and run files.
    package : str
        Python package with the module `protocol` (`read_protocol`); several protocols may share one.
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
    sizes : bool
        Whether all that have its result know the sizes of the clusters, noisy or exact (`--min-size`).
    finds_bounds : bool
        Whether it releases bounds: it makes no clusters, and needs no bounds but a box in which all values lie.
    judges : bool
        Whether it has a last round on the quality of the clusters (`--quality`).
    unused : tuple of str
        Options of a run that mean nothing in it, as `RunConfig` names them: whoever gives one is refused.
    paper : str
        Key of the paper that it comes from in `report/papers.bib`; empty where none of them is.
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
    sizes: bool = False
    finds_bounds: bool = False
    judges: bool = False
    unused: tuple[str, ...] = ()
    paper: str = ""
    results: int = 1


_HERE = "fastlloyd.protocols"
_MASKS = ("masking", "known_shares", "colluding")
_SITES = ("client_caps", "min_clients", *_MASKS)
ROWS = (
    Row(
        "fastlloyd",
        f"{_HERE}.fastlloyd",
        "horizontal",
        "FastLloyd: masked sums, noise in each round",
        streams=True,
        sizes=True,
        judges=True,
        paper="fastlloyd",
    ),
    Row(
        "fastlloyd-plus",
        f"{_HERE}.fastlloyd",
        "horizontal",
        "FastLloyd that looks at all records first: less error",
        chooses_k=True,
        streams=True,
        sizes=True,
        judges=True,
        paper="fastlloyd",
    ),
    Row(
        "glloyd",
        f"{_HERE}.fastlloyd",
        "horizontal",
        "Gaussian noise on plain sums and counts, a baseline",
        streams=True,
        sizes=True,
        judges=True,
        paper="fastlloyd",
    ),
    Row(
        "sulloyd",
        f"{_HERE}.fastlloyd",
        "horizontal",
        "Laplace noise on plain sums and counts, a baseline",
        streams=True,
        pure=True,
        sizes=True,
        paper="fastlloyd",
    ),
    Row(
        "lloyd",
        f"{_HERE}.fastlloyd",
        "horizontal",
        "masked sums without noise: nobody's record is protected",
        streams=True,
        sizes=True,
        paper="fastlloyd",
    ),
    Row(
        "feddp",
        f"{_HERE}.feddp",
        "horizontal",
        "FedDP-KMeans: starts from points of the server, or drawn",
        chooses_k=True,
        server_data=True,
        sizes=True,
        paper="feddp",
        results=2,
    ),
    Row(
        "kfed",
        f"{_HERE}.kfed",
        "horizontal",
        "k-FED: one exchange of local centres in the clear",
        unused=("rounds", *_MASKS),
        paper="kfed",
    ),
    Row(
        "secfc",
        f"{_HERE}.secfc",
        "horizontal",
        "SecFC: exact k-means over coded shares, without noise",
        resumes=False,
        sizes=True,
        unused=("min_clients", *_MASKS),
        paper="secfc",
        results=2,
    ),
    Row(
        "vertical-dp",
        f"{_HERE}.vertical_dp",
        "vertical",
        "private sketches, one message from each party",
        resumes=False,
        sizes=True,
        unused=("rounds", *_SITES),
        paper="vertical-dp",
        results=3,
    ),
    Row(
        "vertical-plain",
        f"{_HERE}.vertical_dp",
        "vertical",
        "the same without privacy, a baseline",
        resumes=False,
        unused=("rounds", *_SITES),
        paper="vertical-dp",
    ),
    Row(
        "vertical-he",
        f"{_HERE}.vertical_he",
        "vertical",
        "k-means on encrypted columns, noise on what is opened",
        resumes=False,
        workers=True,
        sizes=True,
        unused=_SITES,
        paper="vertical-he",
        results=3,
    ),
)
FOLLOWING = (
    Row(
        "describe",
        f"{_HERE}.describe",
        "horizontal",
        "what the clusters of a finished run are",
        results=2,
        unused=("rounds", "evaluate"),
        sizes=True,
    ),
    Row(
        "private-bounds",
        f"{_HERE}.private_bounds",
        "horizontal",
        "bounds of columns that nobody knows",
        finds_bounds=True,
        unused=("rounds", "evaluate", "k", "categories"),
        results=3,
    ),
)
"""Protocols that make no clusters, but go before or after a run that does: no list of protocols to choose from names
them."""
PROTOCOLS = tuple(row.name for row in ROWS)
"""The names of this package's own, of those that make clusters."""
DEFAULT = "fastlloyd-plus"
"""The protocol of a run that names none."""

_BY_NAME = {row.name: row for row in (*ROWS, *FOLLOWING)}


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


def read_protocol(name: str, kind: type[F]) -> F:
    """Return what runs a protocol: `PROTOCOL` of the module `protocol` of its package; no other protocol is imported.

    Parameters
    ----------
    name : str
    kind : type
        What it must be an instance of; of an old package, what its functions are put together to.

    Raises
    ------
    ConfigError
        As for `find`; or another distribution's module cannot be imported, or its `PROTOCOL` is something else.
    """
    package = find(name).package
    if name in _BY_NAME:
        return cast(F, import_module(f"{package}.protocol").PROTOCOL)
    point = next(point for point in _entry_points() if point.name == name)
    if _guarded(point, lambda: find_spec(f"{package}.protocol")) is None:
        face = _guarded(point, lambda: import_module(f"{package}.face"))
        asked: Any = kind
        return cast(F, _put_together(point, face, asked))
    module: ModuleType = _guarded(point, lambda: import_module(f"{package}.protocol"))
    offered = getattr(module, "PROTOCOL", None)
    if not isinstance(offered, kind):
        raise _refuse(point, f"expected {module.__name__}.PROTOCOL to be a protocol, an instance, got {offered!r}")
    known = {name for base in type(offered).__bases__ for name in dir(base)}
    _refuse_misspelled(point, f"{module.__name__}.{type(offered).__name__}", vars(type(offered)), known)
    return offered


@cache
def _put_together(point: EntryPoint, module: ModuleType, kind: Any) -> Any:
    """Return what a package for fastlloyd 0.1 offers in its module `face`, as `FACE` or as functions."""
    there = vars(module)["FACE"].__dict__ if hasattr(vars(module).get("FACE"), "__dict__") else vars(module)
    known = {name for name in dir(kind) if not name.startswith("_")}
    functions = {_NEW_NAMES.get(name, name): value for name, value in there.items() if callable(value)}
    offered = {name: value for name, value in functions.items() if name in known}
    if lacking := sorted(getattr(kind, "__abstractmethods__", frozenset()) - offered.keys()):
        raise _refuse(point, f"{module.__name__} has no {', '.join(lacking)}")
    own = {name: value for name, value in functions.items() if value.__module__ == module.__name__}
    _refuse_misspelled(point, module.__name__, own, known)
    warnings.warn(
        f"{_owner(point)} adds the protocol {point.name!r} by a module 'face', which the next version of fastlloyd "
        f"no longer reads: derive a class from fastlloyd.protocol and name an instance of it PROTOCOL in "
        f"{module.__package__}.protocol (docs/adding-a-protocol.md)",
        FutureWarning,
        stacklevel=2,
    )
    return type(kind.__name__, (kind,), {name: staticmethod(value) for name, value in offered.items()})()


def _refuse_misspelled(point: EntryPoint, where: str, there: Mapping[str, object], known: set[str]) -> None:
    """Refuse a public function whose name is almost one that fastlloyd asks for, and is not there."""
    from difflib import get_close_matches

    for name, value in there.items():
        if name in known or name.startswith("_") or not callable(value):
            continue
        if close := get_close_matches(name, known - there.keys(), n=1, cutoff=_ALMOST):
            why = f"{where}.{name} looks like {close[0]} misspelled: name it so, or begin it with '_'"
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
        f"--protocol {point.name}: {_owner(point)} adds it as {point.value!r}, but {why}; fix or remove it"
    )
