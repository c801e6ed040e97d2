"""What belongs to vertical-dp and vertical-plain, with the paper's values as defaults where it states them.

Source: Vertical DP, Algorithm 1, §5, §6 "Parameter settings".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.party.settings import read_settings, setting
from fastlloyd.privacy.sketch.level import GAMMAS
from fastlloyd.privacy.sketch.sketch import GRID_PHANTOMS, MAX_ROWS, PAPER_PHANTOMS
from fastlloyd.protocols.vertical_dp.math.weights import FITS, METHODS

PROTOCOLS = ("vertical-dp", "vertical-plain")
TIGHT, PAPER = "tight", "paper"
MAX_LOCAL_CLUSTERS = 64
_DP = PROTOCOLS[:1]


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

    local: str = setting(
        "lloyd",
        "local clustering: 'lloyd' (ours: tree of counts, step of Lloyd) or 'dplsf' (means of a tree's leaves)",
        choices=("lloyd", "dplsf"),
        of=_DP,
    )
    local_clusters: int | None = setting(
        None, "k', clusters per party; 'auto' for the rule of §5.2", least=2, most=MAX_LOCAL_CLUSTERS, auto=True
    )
    total_share: float = setting(
        0.02, "share of epsilon for the number of users, 1 - b of Algorithm 1 (0.02)", above=0, below=1, of=_DP
    )
    local_share: float = setting(
        0.5, "share of the rest for the local centres of all parties together (0.5)", above=0, below=1, of=_DP
    )
    tree_share: float = setting(
        0.5,
        "share of a party's epsilon for the counts in its tree, the rest is for sums (0.5)",
        above=0,
        below=1,
        of=_DP,
    )
    rows: int = setting(4096, "M, rows per sketch (4096)", least=1, most=MAX_ROWS, of=_DP)
    gamma: float = setting(
        2.0**-11,
        "gamma: one level more stands for 1 + gamma times as many users",
        least=GAMMAS[0],
        most=GAMMAS[1],
        of=_DP,
    )
    weights: str = setting(
        "2pest",
        "'2pest' (Algorithm 5: sketches of every pair of parties) or 'basic' (Algorithm 4: of all parties)",
        choices=METHODS,
        of=_DP,
    )
    estimator: str = setting(
        "auto",
        "tables of pairs by 'likelihood' (ours) or 'basic' (unions, Algorithm 4); 'auto': ours where it fits",
        choices=("auto", "likelihood", "basic"),
        of=_DP,
    )
    fit: str = setting(
        "entropy",
        "from pairs to the grid: 'entropy' (ours) or 'paper' (additive steps, Algorithm 5)",
        choices=FITS,
        of=_DP,
    )
    steps: int = setting(500, "T, steps of Algorithm 5", least=1, most=100_000, of=_DP)
    composition: str = setting(
        TIGHT,
        "'tight' (privacy loss distributions) or 'paper' (4 sqrt(M log 1/delta), split over the parties)",
        choices=(TIGHT, PAPER),
        of=_DP,
    )
    phantoms: str = setting(
        GRID_PHANTOMS,
        "'grid' (private), or 'paper' for comparison only: never reported as private",
        choices=(GRID_PHANTOMS, PAPER_PHANTOMS),
        of=_DP,
    )
    share_result: bool = setting(False, "tell the parties the final centres too: true or false")


def settings_from(protocol: str, values: Mapping[str, Any]) -> Settings:
    """Read the settings of one protocol; `read_settings` says what else is refused.

    Raises
    ------
    ConfigError
        No protocol of this folder.
    """
    if protocol not in PROTOCOLS:
        raise ConfigError(f"--protocol: expected one of {', '.join(PROTOCOLS)} here, got {protocol!r}")
    return read_settings(Settings(), protocol, values)
