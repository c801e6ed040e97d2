"""What may be chosen in FedDP-KMeans, with the paper's recommendations as defaults.

Everything here is public. The scaled domain is [-1, 1]^d; norms are taken there, about the middle of the bounds.

Source: FedDP-KMeans, Alg. 1 and 2; App. G.3 (baselines), G.4 (client level), H.1 (proportions of the budget).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlloyd.errors import ConfigError

LEVELS = ("record", "client")
STARTS = ("feddp", "server-kmeans++", "server-lloyds", "sphere-packing")
PROPORTIONS: dict[str, tuple[float, float, float, float]] = {
    "record": (0.2, 0.2, 0.45, 0.15),
    "client": (0.35, 0.1, 0.45, 0.1),
}
"""Shares of epsilon of the outer product, the weights, the sums and the counts (App. H.1)."""

HELP: dict[str, str] = {
    "privacy_level": "'record': one row is protected; 'client': all rows of one user (§5.2)",
    "start": "'feddp' (Alg. 1), or a baseline of §5: 'server-kmeans++', 'server-lloyds', 'sphere-packing'",
    "norm_bound": "Delta, the largest norm of a record, scaled domain; 'auto': of the server data (§5.1)",
    "outer_share": "part of epsilon for the outer product, step 1; 'auto' for App. H.1",
    "weight_share": "part of epsilon for the weights, step 2; 'auto' for App. H.1",
    "sum_share": "part of epsilon for the sums, step 3; 'auto' for App. H.1",
    "count_share": "part of epsilon for the counts, step 3; 'auto' for App. H.1",
    "lloyd_share": "part of epsilon for all Lloyd steps together; 'auto': each as much as step 3",
    "outer_clip": "largest norm of a user's outer product (client level); 'auto': Delta^2",
    "weight_clip": "largest sum of a user's weights (client level); 'auto': 1",
    "mean_clip": "largest norm of a user's means (client level); 'auto': Delta / 2",
    "count_clip": "largest sum of a user's counts of clusters (client level); 'auto': sqrt(k)",
    "restarts": "how often the server clusters its weighted points afresh; the best counts",
    "server_share": "demonstration (--dataset): part of the rows that are the server's, without --server-data",
    "users": "column that names the user a row belongs to (client level)",
}
_AUTOMATIC = (
    "norm_bound",
    "outer_share",
    "weight_share",
    "sum_share",
    "count_share",
    "lloyd_share",
    "outer_clip",
    "weight_clip",
    "mean_clip",
    "count_clip",
    "users",
)
_TEXTS = ("privacy_level", "start", "users")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Tunables of `feddp`; None stands for 'auto'.

    Attributes
    ----------
    privacy_level : {'record', 'client'}
        What neighbours differ in: one record, or all records of one user.
    start : str
        One of `STARTS`; each is followed by T Lloyd steps.
    norm_bound : float or None
        Paper: Delta. None: the largest norm of the server's points, or sqrt(d) without any; never of clients' records.
    outer_share, weight_share, sum_share, count_share : float or None
        Paper: eps_1, eps_2, eps_3G, eps_3L as parts of eps_init; only their ratios matter.
    lloyd_share : float or None
        Part of all epsilons for Alg. 2; sums and counts divide it as in step 3. None: each step as much as step 3.
    outer_clip, weight_clip, mean_clip, count_clip : float or None
        Paper: B of App. G.4, scaled domain.
    restarts : int
    server_share : float
        In a demonstration, part of the public set that no client gets.
    users : str or None
        Name of a column only.

    Raises
    ------
    ConfigError
        A value is out of range.
    """

    privacy_level: str = "record"
    start: str = "feddp"
    norm_bound: float | None = None
    outer_share: float | None = None
    weight_share: float | None = None
    sum_share: float | None = None
    count_share: float | None = None
    lloyd_share: float | None = None
    outer_clip: float | None = None
    weight_clip: float | None = None
    mean_clip: float | None = None
    count_clip: float | None = None
    restarts: int = 10
    server_share: float = 0.05
    users: str | None = None

    def __post_init__(self) -> None:
        _check("privacy_level", self.privacy_level, self.privacy_level in LEVELS, "'record' or 'client'")
        _check("start", self.start, self.start in STARTS, f"one of {', '.join(map(repr, STARTS))}")
        for name in ("outer_share", "weight_share", "sum_share", "count_share", "lloyd_share"):
            value = getattr(self, name)
            _check(name, value, value is None or 0.001 <= value < 1.0, "'auto' or a number in [0.001, 1)")
        for name in ("norm_bound", "outer_clip", "weight_clip", "mean_clip", "count_clip"):
            value = getattr(self, name)
            good = value is None or (math.isfinite(value) and 2.0**-6 <= value <= 2.0**20)
            _check(name, value, good, "'auto' or a number in [2^-6, 2^20]")
        _check("server_share", self.server_share, 0.0 < self.server_share < 1.0, "a number between 0 and 1")
        _check("restarts", self.restarts, 1 <= self.restarts <= 1000, "a whole number from 1 to 1000")
        if self.privacy_level == "record":
            for name in ("outer_clip", "weight_clip", "mean_clip", "count_clip"):
                _check(name, getattr(self, name), getattr(self, name) is None, "it left out at record level")

    @property
    def proportions(self) -> tuple[float, float, float, float]:
        """Shares of the outer product, weights, sums and counts of step 1 to 3; they add up to 1."""
        given = (self.outer_share, self.weight_share, self.sum_share, self.count_share)
        default = PROPORTIONS[self.privacy_level]
        chosen = [value if share is None else share for share, value in zip(given, default, strict=True)]
        total = math.fsum(chosen)
        outer, weights, sums, counts = (share / total for share in chosen)
        return outer, weights, sums, counts


def default_rounds(settings: Settings) -> int:
    """Give the number of Lloyd steps when none is asked for.

    Notes
    -----
    After Alg. 1: none. In the paper's Tables 4 and 5 at least 80 % of the Pareto-optimal runs took none on ten of
    eleven data sets, 61 % on the other, for step 3 is a Lloyd step already. A baseline has nothing else: two.
    """
    return 0 if settings.start == "feddp" else 2


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Build the settings from `--set` pairs or a TOML table.

    Raises
    ------
    ConfigError
        An unknown key or a value of the wrong kind or range.
    """
    chosen: dict[str, Any] = {}
    known = {field.name for field in dataclasses.fields(Settings)}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"feddp has no setting {key!r}; it has {', '.join(sorted(known))}")
        chosen[key] = None if key in _AUTOMATIC and value == "auto" else _convert(key, value)
    return Settings(**chosen)


def _convert(key: str, value: Any) -> Any:
    """Accept an int for a float and None where 'auto' is allowed; refuse anything else of another type."""
    if value is None and key in _AUTOMATIC:
        return None
    kind: type = str if key in _TEXTS else int if key == "restarts" else float
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        raise ConfigError(f"--set {key}: expected a value of type {kind.__name__}, got {value!r}")
    return value


def _check(name: str, value: object, good: bool, expected: str) -> None:
    if not good:
        raise ConfigError(f"--set {name}: expected {expected}, got {value!r}")
