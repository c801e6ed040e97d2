"""One noisy release, as it stands in the ledger.

Source: docs/privacy.md, "The ledger".
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Self

from fastlloyd.errors import ConfigError
from fastlloyd.wire.decode import decode, load_json, show

GAUSSIAN_SHARES = "discrete gaussian shares"
LAPLACE_SHARES = "discrete laplace shares"
SHARED = (GAUSSIAN_SHARES, LAPLACE_SHARES)
SKETCH_ROWS = "sketch rows"
MECHANISMS = ("gaussian", "laplace", "none", *SHARED, SKETCH_ROWS)
NORM_OF = {"gaussian": "l2", "laplace": "l1", GAUSSIAN_SHARES: "l2", LAPLACE_SHARES: "l1", SKETCH_ROWS: "pure"}
MAX_SKETCH_ROWS = 1 << 24
LEAST_SHARE = 5.0
"""Least standard deviation of one share, or least scale of the sum of Polya shares, in grid units."""
MAX_CLIENTS = 100_000
MULTIPLIERS = (1e-6, 1e12)
ADD_REMOVE = "add-remove record"
ADD_REMOVE_USER = "add-remove user"
ZERO_OUT_RECORD = "zero-out of one record"
"""One of n records counts or does not, n public: all that is left of `ADD_REMOVE` where N is the number of records."""
_ENCODER = json.JSONEncoder(allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One noisy release: its content, its sensitivity, and its noise.

    Attributes
    ----------
    run : str
        Lower-case hexadecimal name of the run; empty while the release is only planned.
    round : int
    name : str
        What is released, such as 'relative sums'.
    mechanism : str
        One of `MECHANISMS`; 'none' means that it carries no noise and is not private.
    sensitivity : float
        Largest change by one neighbour, in the norm `norm`: 'l2' for Gaussian, 'l1' for Laplace noise, 'pure' for
        rows of sketches, where it is the number of users that differ.
    noise_scale : float
        Standard deviation (Gaussian) or scale b (Laplace), in the unit of `sensitivity`; 0 for 'none'. Of
        shares: of those m - t together that the observer does not know, in units of the grid they lie on. Of
        sketches: 1 / epsilon', epsilon' the pure epsilon of one row for one user.
    clients, known : int
        m and t of noise in shares; 0 for other mechanisms, and then not written.
    rows : int
        Rows of all sketches together; 0 for other mechanisms, and then not written.
    unit : str
        What 1 means in the two figures above, such as 'grid of 2^-12'.
    neighbours : str
        The neighbouring relation that the sensitivity is for.
    seen_by : str
        Who receives the release.
    data : str
        Keyed digest of the records behind it (`keyed_digest`), or empty.

    Raises
    ------
    ConfigError
        A field is not finite, negative or does not fit the mechanism.
    """

    run: str = ""
    round: int
    name: str
    mechanism: str
    sensitivity: float
    norm: str
    noise_scale: float
    unit: str = "1"
    neighbours: str = ADD_REMOVE
    seen_by: str = "clients"
    data: str = ""
    clients: int = 0
    known: int = 0
    rows: int = 0

    def __post_init__(self) -> None:
        problem = _type_problem(self) or _value_problem(self)
        if problem:
            raise ConfigError(f"release {self.name!r} cannot be accounted for: {problem}")

    @property
    def key(self) -> tuple[str, int, str]:
        """What identifies the release: run, round and name."""
        return (self.run, self.round, self.name)

    @property
    def noise_multiplier(self) -> float:
        """Noise scale over sensitivity; 0 without noise."""
        return self.noise_scale / self.sensitivity if self.noise_scale > 0.0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and the noise multiplier; numbers of shares only if there are shares."""
        content = {name: getattr(self, name) for name in _TYPES}
        content["noise_multiplier"] = self.noise_multiplier
        if self.mechanism not in SHARED:
            del content["clients"], content["known"]
        if self.mechanism != SKETCH_ROWS:
            del content["rows"]
        return content

    def to_json(self) -> str:
        """Return one line of JSON, without the line's end."""
        return _ENCODER.encode(self.to_dict())

    @classmethod
    def from_json(cls, line: str, where: str = "the release") -> Self:
        """Decode the output of `to_json`.

        Parameters
        ----------
        line : str
        where : str
            Name of the line for the error's text.

        Raises
        ------
        ConfigError
            Not JSON, unknown, missing or repeated keys, a wrong type, a value that is not finite or
            negative, or a noise multiplier that is not noise scale over sensitivity.
        """
        try:
            return cls._from_content(load_json(line))
        except ValueError as error:
            raise ConfigError(
                f"{where}: expected a release as fastlloyd writes it, got another text ({error}); "
                "restore the file from its newest copy; a line that is taken out is budget that nobody counts"
            ) from None

    @classmethod
    def _from_content(cls, content: Any) -> Self:
        """Check decoded JSON, and that its noise multiplier is noise scale over sensitivity."""
        if not isinstance(content, dict) or "noise_multiplier" not in content:
            raise ValueError("expected an object with a noise_multiplier")
        claimed = content.pop("noise_multiplier")
        release = decode(cls, content, "")
        if type(claimed) not in (int, float) or not math.isclose(claimed, release.noise_multiplier, rel_tol=1e-12):
            raise ValueError(
                f"its noise multiplier is {show(claimed)}, noise over sensitivity {release.noise_multiplier!r}"
            )
        return release


_NUMBERS: dict[str, type] = {
    **dict.fromkeys(("round", "clients", "known", "rows"), int),
    **dict.fromkeys(("sensitivity", "noise_scale"), float),
}
_HEX = frozenset("0123456789abcdef")
_TYPES: dict[str, type] = {field.name: _NUMBERS.get(field.name, str) for field in fields(Release)}
_VALUES = attrgetter(*_TYPES)
_EXACT_TYPES = tuple(_TYPES.values())


def _type_problem(release: Release) -> str:
    """Describe a field of the wrong type; empty if there is none."""
    if tuple(map(type, _VALUES(release))) == _EXACT_TYPES:  # four releases a round: worth a fast path
        return ""
    for name, expected in _TYPES.items():
        value = getattr(release, name)
        if type(value) is not expected and (not isinstance(value, expected) or isinstance(value, bool)):
            return f"expected {name} as {expected.__name__}, got {type(value).__name__}"
    return ""


def _value_problem(release: Release) -> str:
    """Describe a value that does not fit; empty if there is none."""
    scale, sensitivity = release.noise_scale, release.sensitivity
    if not _HEX.issuperset(release.run):
        return "expected run as lower-case hexadecimal digits"
    if not release.name or not 0 <= release.round < 2**32:
        return f"expected a name and a round from 0 to 2^32 - 1, got {release.name!r} and {release.round}"
    if release.mechanism not in MECHANISMS:
        return f"expected one of the mechanisms {MECHANISMS}, got {release.mechanism!r}"
    if release.norm != NORM_OF.get(release.mechanism, release.norm) or release.norm not in ("l1", "l2", "pure"):
        return f"{release.mechanism} noise does not go with the norm {release.norm!r}"
    if not (math.isfinite(scale) and math.isfinite(sensitivity)):
        return f"expected finite figures, got sensitivity {sensitivity} and noise scale {scale}"
    if release.mechanism == "none":
        bare = scale == 0.0 and sensitivity >= 0.0
        return _share_problem(release) if bare else "a release without noise has noise scale 0"
    if scale <= 0.0 or sensitivity <= 0.0:
        return f"expected positive figures, got sensitivity {sensitivity} and noise scale {scale}"
    low, high = MULTIPLIERS
    if not low <= scale / sensitivity <= high:
        return f"expected noise scale over sensitivity from {low:g} to {high:g}, got {scale / sensitivity:g}"
    return _share_problem(release)


def _share_problem(release: Release) -> str:
    """Describe what does not fit about shares or rows; empty if all fits."""
    clients, known = release.clients, release.known
    if not (1 <= release.rows <= MAX_SKETCH_ROWS if release.mechanism == SKETCH_ROWS else release.rows == 0):
        return f"expected 1 to {MAX_SKETCH_ROWS} rows of sketches and 0 of anything else, got {release.rows}"
    if release.mechanism not in SHARED:
        return "" if clients == known == 0 else f"{release.mechanism} noise has no shares, got {clients} clients"
    if not 1 <= known < clients <= MAX_CLIENTS:
        return f"expected shares of up to {MAX_CLIENTS} clients, from 1 to all but one known, got {known} of {clients}"
    parts = clients - known if release.mechanism == GAUSSIAN_SHARES else 1
    if release.noise_scale < LEAST_SHARE * math.sqrt(parts):
        return f"expected shares of at least {LEAST_SHARE:g} grid units, got {release.noise_scale / math.sqrt(parts):g}"
    if release.mechanism == LAPLACE_SHARES and not release.sensitivity.is_integer():
        return f"expected a whole number of grid units as sensitivity, got {release.sensitivity}"
    return ""
