"""The protocols: one row each.

A row names the folder that holds a protocol's code, so that nothing is imported that a run does not need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Row:
    """One protocol.

    Attributes
    ----------
    name : str
        As in `--protocol` and run files.
    folder : str
        Of this package; several protocols may share one.
    partition : {'horizontal', 'vertical'}
        Whether the parties hold records of their own, or columns of the same records.
    summary : str
        What it is, in one line.
    """

    name: str
    folder: str
    partition: Literal["horizontal", "vertical"]
    summary: str


ROWS = (
    Row("fastlloyd", "fastlloyd", "horizontal", "FastLloyd: masked sums, noise in each round"),
    Row(
        "fastlloyd-plus",
        "fastlloyd",
        "horizontal",
        "FastLloyd that surveys all records first: less error",
    ),
    Row("glloyd", "fastlloyd", "horizontal", "Gaussian noise on plain sums and counts, a baseline"),
    Row("sulloyd", "fastlloyd", "horizontal", "Laplace noise on plain sums and counts, a baseline"),
    Row("lloyd", "fastlloyd", "horizontal", "masked sums without noise: nobody's record is protected"),
    Row("feddp", "feddp", "horizontal", "FedDP-KMeans: starts from records that the server has"),
    Row("kfed", "kfed", "horizontal", "k-FED: one exchange of local centres in the clear"),
    Row("secfc", "secfc", "horizontal", "SecFC: exact k-means over coded shares, without noise"),
    Row("vertical-dp", "vertical_dp", "vertical", "private sketches, one message from each party"),
    Row("vertical-plain", "vertical_dp", "vertical", "the same without privacy, a baseline"),
    Row("vertical-he", "vertical_he", "vertical", "k-means on encrypted columns (CKKS), noise on what is opened"),
)
PROTOCOLS = tuple(row.name for row in ROWS)


def find(name: str) -> Row:
    """Return a protocol's row.

    Raises
    ------
    KeyError
        No protocol has this name; a configuration is checked before.
    """
    return _BY_NAME[name]


_BY_NAME = {row.name: row for row in ROWS}
