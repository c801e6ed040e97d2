"""What belongs to vertical-dp and vertical-plain, with the paper's values as defaults where it states them.

Source: Vertical DP, Algorithm 1, §5, §6 "Parameter settings".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.sketch.level import GAMMAS
from fastlloyd.privacy.sketch.sketch import GRID_PHANTOMS, MAX_ROWS, PAPER_PHANTOMS
from fastlloyd.protocols.vertical_dp.math.weights import FITS, METHODS

PROTOCOLS = ("vertical-dp", "vertical-plain")
LOCALS = ("lloyd", "dplsf")
ESTIMATORS = ("auto", "likelihood", "basic")
TIGHT, PAPER = "tight", "paper"
COMPOSITIONS = (TIGHT, PAPER)
MAX_LOCAL_CLUSTERS = 64

APPLICABLE: dict[str, tuple[str, ...]] = {
    "vertical-dp": (
        "local",
        "local_clusters",
        "total_share",
        "local_share",
        "tree_share",
        "rows",
        "gamma",
        "weights",
        "estimator",
        "fit",
        "steps",
        "composition",
        "phantoms",
        "share_result",
    ),
    "vertical-plain": ("local_clusters", "share_result"),
}
HELP: dict[str, str] = {
    "local": "local clustering: 'lloyd' (ours: tree of counts, step of Lloyd) or 'dplsf' (means of a tree's leaves)",
    "local_clusters": "k', clusters per party; 'auto' for the rule of §5.2",
    "total_share": "share of epsilon for the number of users, 1 - b of Algorithm 1 (0.02)",
    "local_share": "share of the rest for the local centres of all parties together (0.5)",
    "tree_share": "share of a party's epsilon for the counts in its tree, the rest is for sums (0.5)",
    "rows": "M, rows per sketch (4096)",
    "gamma": "gamma: one level more stands for 1 + gamma times as many users",
    "weights": "'2pest' (Algorithm 5: sketches of every pair of parties) or 'basic' (Algorithm 4: of all parties)",
    "estimator": "tables of pairs by 'likelihood' (ours) or 'basic' (unions, Algorithm 4); 'auto': ours where it fits",
    "fit": "from pairs to the grid: 'entropy' (ours) or 'paper' (additive steps, Algorithm 5)",
    "steps": "T, steps of Algorithm 5",
    "composition": "'tight' (privacy loss distributions) or 'paper' (4 sqrt(M log 1/delta), split over the parties)",
    "phantoms": "'grid' (private), or 'paper' for comparison only: never reported as private",
    "share_result": "tell the parties the final centres too: true or false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Tunables of the protocol.

    Attributes
    ----------
    local : {'lloyd', 'dplsf'}
        Paper: LocCluster.
    local_clusters : int or None
        Paper: k'; None for the rule of §5.2.
    total_share : float
        Paper: 1 - b, epsilon_0 / epsilon.
    local_share : float
        Paper: one half of b epsilon, S epsilon_1 of S (epsilon_1 + epsilon_2).
    tree_share : float
        Of epsilon_1 for the counts of the tree.
    rows : int
        Paper: M.
    gamma : float
        Paper: gamma; it does not state its value.
    weights : {'2pest', 'basic'}
        Paper: WeightEst.
    estimator : {'auto', 'likelihood', 'basic'}
    fit : {'entropy', 'paper'}
    steps : int
        Paper: T; it does not state its value.
    composition : {'tight', 'paper'}
    phantoms : {'grid', 'paper'}
    share_result : bool
        Whether the parties receive the final centres.
    """

    local: str = "lloyd"
    local_clusters: int | None = None
    total_share: float = 0.02
    local_share: float = 0.5
    tree_share: float = 0.5
    rows: int = 4096
    gamma: float = 2.0**-11
    weights: str = "2pest"
    estimator: str = "auto"
    fit: str = "entropy"
    steps: int = 500
    composition: str = TIGHT
    phantoms: str = GRID_PHANTOMS
    share_result: bool = False

    def __post_init__(self) -> None:
        _choice("local", self.local, LOCALS)
        _choice("weights", self.weights, METHODS)
        _choice("estimator", self.estimator, ESTIMATORS)
        _choice("fit", self.fit, FITS)
        _choice("composition", self.composition, COMPOSITIONS)
        _choice("phantoms", self.phantoms, (GRID_PHANTOMS, PAPER_PHANTOMS))
        for name in ("total_share", "local_share", "tree_share"):
            _check(name, getattr(self, name), 0.0 < getattr(self, name) < 1.0, "a number between 0 and 1")
        clusters = self.local_clusters
        good = clusters is None or 2 <= clusters <= MAX_LOCAL_CLUSTERS
        _check("local_clusters", clusters, good, f"'auto' or a whole number from 2 to {MAX_LOCAL_CLUSTERS}")
        _check("rows", self.rows, 1 <= self.rows <= MAX_ROWS, f"a whole number from 1 to {MAX_ROWS}")
        low, high = GAMMAS
        _check("gamma", self.gamma, low <= self.gamma <= high, f"a number from {low:g} to {high:g}")
        _check("steps", self.steps, 1 <= self.steps <= 100_000, "a whole number from 1 to 100000")


def _choice(name: str, value: object, options: tuple[str, ...]) -> None:
    _check(name, value, value in options, " or ".join(map(repr, options)))


def _check(name: str, value: object, good: bool, expected: str) -> None:
    if not good:
        raise ConfigError(f"--set {name}: expected {expected}, got {value!r}")


def settings_from(protocol: str, values: Mapping[str, Any]) -> Settings:
    """Build the settings from `--set` pairs or a TOML table.

    Raises
    ------
    ConfigError
        An unknown protocol or key, or a value of the wrong kind.
    """
    if protocol not in APPLICABLE:
        raise ConfigError(f"--protocol: expected one of {', '.join(PROTOCOLS)} here, got {protocol!r}")
    kinds = {field.name: type(field.default) for field in dataclasses.fields(Settings)}
    chosen: dict[str, Any] = {}
    for key, value in values.items():
        if key not in APPLICABLE[protocol]:
            raise ConfigError(f"{protocol} has no setting {key!r}; it has {', '.join(sorted(APPLICABLE[protocol]))}")
        if key == "local_clusters":
            chosen[key] = None if value in ("auto", None) else _convert(key, value, int)
        else:
            chosen[key] = _convert(key, value, kinds[key])
    return Settings(**chosen)


def _convert(key: str, value: Any, kind: type) -> Any:
    """Accept an int for a float; refuse anything else of another type."""
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ConfigError(f"--set {key}: expected a value of type {kind.__name__}, got {value!r}")
    return value
