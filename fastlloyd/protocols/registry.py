"""The protocols: one row each.

A row names the package that holds a protocol's code, so that nothing is imported that a run does not need. Other
distributions add a row by an entry point of the group `fastlloyd.protocols`, whose name is the protocol's and whose
value leads to a `Row`. They are looked up only when somebody asks for a name that is not of this package, or for all.

Source: docs/adding-a-protocol.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fastlloyd.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "fastlloyd.protocols"


@dataclass(frozen=True, slots=True)
class Row:
    """One protocol.

    Attributes
    ----------
    name : str
        As in `--protocol` and run files.
    package : str
        Python package with the module `face`; several protocols may share one.
    partition : {'horizontal', 'vertical'}
        Whether the parties hold records of their own, or columns of the same records.
    summary : str
        What it is, in one line.
    """

    name: str
    package: str
    partition: Literal["horizontal", "vertical"]
    summary: str


_HERE = "fastlloyd.protocols"
ROWS = (
    Row("fastlloyd", f"{_HERE}.fastlloyd", "horizontal", "FastLloyd: masked sums, noise in each round"),
    Row(
        "fastlloyd-plus",
        f"{_HERE}.fastlloyd",
        "horizontal",
        "FastLloyd that surveys all records first: less error",
    ),
    Row("glloyd", f"{_HERE}.fastlloyd", "horizontal", "Gaussian noise on plain sums and counts, a baseline"),
    Row("sulloyd", f"{_HERE}.fastlloyd", "horizontal", "Laplace noise on plain sums and counts, a baseline"),
    Row("lloyd", f"{_HERE}.fastlloyd", "horizontal", "masked sums without noise: nobody's record is protected"),
    Row("feddp", f"{_HERE}.feddp", "horizontal", "FedDP-KMeans: starts from records that the server has"),
    Row("kfed", f"{_HERE}.kfed", "horizontal", "k-FED: one exchange of local centres in the clear"),
    Row("secfc", f"{_HERE}.secfc", "horizontal", "SecFC: exact k-means over coded shares, without noise"),
    Row("vertical-dp", f"{_HERE}.vertical_dp", "vertical", "private sketches, one message from each party"),
    Row("vertical-plain", f"{_HERE}.vertical_dp", "vertical", "the same without privacy, a baseline"),
    Row(
        "vertical-he",
        f"{_HERE}.vertical_he",
        "vertical",
        "k-means on encrypted columns, noise on what is opened",
    ),
)
PROTOCOLS = tuple(row.name for row in ROWS)
"""The names of this package's own."""

_BY_NAME = {row.name: row for row in ROWS}


def find(name: str) -> Row:
    """Return a protocol's row.

    Raises
    ------
    ConfigError
        No protocol has this name, or the distribution that adds it is at fault.
    """
    row = _BY_NAME.get(name) or next((row for row in _outside(name)), None)
    if row is None:
        raise ConfigError(f"--protocol: expected one of {', '.join(names())}, got {name!r}")
    return row


def knows(name: str) -> bool:
    """Whether a protocol has this name; imports none."""
    return name in _BY_NAME or name in _outside_names()


def names() -> tuple[str, ...]:
    """Give the names of all protocols, this package's first; imports none."""
    return (*PROTOCOLS, *_outside_names())


def rows() -> tuple[Row, ...]:
    """Give the rows of all protocols, this package's first."""
    return (*ROWS, *_outside())


def _entry_points() -> Iterator[EntryPoint]:
    """Give what other distributions add."""
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.name not in _BY_NAME:
            yield point


def _outside_names() -> tuple[str, ...]:
    return tuple(point.name for point in _entry_points())


def _outside(name: str | None = None) -> Iterator[Row]:
    """Load the rows of other distributions, or the one with this name."""
    for point in _entry_points():
        if name in (None, point.name):
            try:
                row = point.load()
            except Exception as error:
                raise _refuse(point, f"it cannot be imported ({type(error).__name__}: {error})") from error
            if not isinstance(row, Row) or row.name != point.name:
                raise _refuse(point, f"expected a Row named {point.name!r}, got {row!r}")
            yield row


def _refuse(point: EntryPoint, why: str) -> ConfigError:
    owner = "a distribution" if point.dist is None else f"the distribution {point.dist.name!r}"
    return ConfigError(f"--protocol {point.name}: {owner} adds it as {point.value!r}, but {why}; mend or remove it")
