"""Names that people chose for clusters, from a public file.

They are chosen after looking, so a finished run takes them.

::

    0 = "young, few visits"
    1 = "frail"

A cluster without a line keeps its number alone. Names are read strictly, for they stand in pages and spreadsheets.

Source: docs/report.md, "Names of clusters".
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from fastlloyd.errors import ConfigError, format_count
from fastlloyd.report.display import csv_cell
from fastlloyd.wire.toml import read_toml

MOST_CHARACTERS = 60
DESCRIBED_NAMES = "described_names"
"""The public parameter of a description whose parties agreed on names."""
_NUMBER = re.compile(r"0|[1-9]\d{0,5}")


class ClusterNames(dict[int, str]):
    """Names by the number of their cluster; empty where nobody chose any."""

    @classmethod
    def read(cls, path: str | Path, k: int | None = None) -> Self:
        """Read a file of names.

        Parameters
        ----------
        path : str or Path
            TOML.
        k : int, optional
            How many clusters there are.

        Raises
        ------
        ConfigError
            It cannot be read, names a cluster that is not there, or a name does not fit.
        """
        where = f"--names {path}"
        return cls.check(read_toml(Path(path), where, "docs/report.md"), where, k)

    @classmethod
    def check(cls, values: Mapping[str, object], where: str, k: int | None = None) -> Self:
        """Return the names of decoded values; errors call them `where`."""
        names, meant = cls(), dict[str, str]()
        if not values:
            raise ConfigError(f'{where}: expected a line such as 0 = "name" for a cluster, got none')
        for key, name in values.items():
            if not _NUMBER.fullmatch(key) or (k is not None and int(key) >= k):
                most = "" if k is None else f" from 0 to {k - 1}" if k > 1 else " 0"
                raise ConfigError(f"{where}: expected the number of a cluster{most} as key, got {key!r}")
            if not isinstance(name, str) or not _fits(name):
                raise ConfigError(
                    f"{where}, cluster {key}: expected a name of 1 to {MOST_CHARACTERS} characters that print, without "
                    f"blanks at its ends and no number alone, got {_shown(name)}"
                )
            same = unicodedata.normalize("NFKC", name).casefold()
            if same in meant:
                raise ConfigError(f"{where}: clusters {meant[same]} and {key} have the same name; give each its own")
            meant[same] = key
            names[int(key)] = name
        return names

    @classmethod
    def agreed(cls, parameters: Mapping[str, Any]) -> Self:
        """Return the names that the parties of a run agreed on, by its report's parameters; without them none."""
        values = parameters.get(DESCRIBED_NAMES)
        return cls.check(values, f"report.json, {DESCRIBED_NAMES}") if isinstance(values, dict) else cls()

    def to_json(self) -> dict[str, str]:
        """Return plain values; `check` is the inverse."""
        return {str(cluster): name for cluster, name in sorted(self.items())}

    def short(self, cluster: int) -> str:
        """Return what a table calls a cluster: `frail (1)`, or its number."""
        return f"{self[cluster]} ({cluster})" if cluster in self else str(cluster)

    def mention(self, cluster: int) -> str:
        """Return what a text calls a cluster: `frail (cluster 1)`, or `cluster 1`."""
        return f"{self[cluster]} (cluster {cluster})" if cluster in self else f"cluster {cluster}"

    def heading(self, cluster: int) -> str:
        """Return what a heading calls a cluster: `frail (cluster 1)`, or `Cluster 1`."""
        return self.mention(cluster) if cluster in self else f"Cluster {cluster}"

    def into(self, profile: str) -> str:
        """Return profile.csv with a column `name` behind that of clusters; a column that is there is replaced.

        Raises
        ------
        ConfigError
            The text is another table.
        """
        header, *rows = csv.reader(io.StringIO(profile, newline=""))
        if not header or header[0] != "cluster" or not all(row and _NUMBER.fullmatch(row[0]) for row in rows):
            raise ConfigError("profile.csv: expected the lines of a description, got another table")
        first = 2 if header[1:2] == ["name"] else 1
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(("cluster", "name", *header[first:]))
        table.writerows((row[0], csv_cell(self.get(int(row[0]), "")), *row[first:]) for row in rows)
        return text.getvalue()


def _fits(name: str) -> bool:
    return (
        1 <= len(name) <= MOST_CHARACTERS
        and name.isprintable()
        and name == name.strip()
        and not unicodedata.normalize("NFKC", name).isdecimal()
    )


def _shown(name: object) -> str:
    return (
        repr(name)
        if isinstance(name, str) and len(name) <= MOST_CHARACTERS
        else (
            format_count(len(name), "character") if isinstance(name, str) else f"a value of type {type(name).__name__}"
        )
    )
