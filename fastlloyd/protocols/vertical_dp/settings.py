"""Settings of vertical-dp and vertical-plain, with the paper's values as defaults where it states them.

Source: Vertical DP, Algorithm 1, §5, §6 "Parameter settings".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.party.option import option, read_settings
from fastlloyd.protocols.vertical_dp.local_plan import BOX_TREE, SHORTENED
from fastlloyd.protocols.vertical_dp.math.weights import FITS, METHODS
from fastlloyd.protocols.vertical_dp.sketch.level import GAMMAS
from fastlloyd.protocols.vertical_dp.sketch.sketch import GRID_PHANTOMS, MAX_ROWS, PAPER_PHANTOMS

PROTOCOLS = ("vertical-dp", "vertical-plain")
TIGHT, PAPER = "tight", "paper"
MAX_LOCAL_CLUSTERS = 64
_DP = PROTOCOLS[:1]
# Shares of the local clusterings, and of the tree in each; those of 'shortened' were tuned on generated sets.
_SHARES = {SHORTENED: (0.65, 0.2), "lloyd": (0.5, 0.5), BOX_TREE: (0.5, 0.5)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Tunables of the protocol.

    Attributes
    ----------
    local : {'auto', 'shortened', 'lloyd', 'box-tree'}
        Paper: LocCluster; all methods are ours, and the paper's DPLSF, an LSH forest, is not among them.
    local_clusters : int or None
        Paper: k'; None for the rule of §5.2.
    total_share : float
        Paper: 1 - b, epsilon_0 / epsilon.
    local_share : float or None
        Paper: one half of b epsilon, S epsilon_1 of S (epsilon_1 + epsilon_2). None for the local method's default; for
        'shortened' a share of 1 / sigma^2.
    tree_share : float or None
        Share of epsilon_1 (for 'shortened': of its square) for the counts of the tree. None for the local method's
        default.
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

    local: str = option(
        "auto",
        "local clustering: 'shortened' (ours: tree of counts, then shortened steps of Lloyd, Gaussian noise), 'lloyd' "
        "(ours: tree, one step, Laplace noise), 'box-tree' (ours: means of a box tree's leaves, where the paper has an "
        "LSH forest) or 'auto': shortened, or lloyd with the paper's composition or phantoms",
        choices=("auto", SHORTENED, "lloyd", BOX_TREE),
        renamed=(("dplsf", BOX_TREE),),
        of=_DP,
    )
    local_clusters: int | None = option(
        None, "k', clusters per party; 'auto' for a rule of public numbers", least=2, most=MAX_LOCAL_CLUSTERS, auto=True
    )
    total_share: float = option(
        0.02, "share of epsilon for the number of users, 1 - b of Algorithm 1 (0.02)", above=0, below=1, of=_DP
    )
    local_share: float | None = option(
        None,
        "share of the rest for the local centres of all parties together; 'auto': 0.65 of 1 / sigma^2 with local = "
        "shortened, otherwise 0.5 of epsilon",
        above=0,
        below=1,
        auto=True,
        of=_DP,
    )
    tree_share: float | None = option(
        None,
        "share of a party's part for the counts in its tree, the rest is for sums; 'auto': 0.2 with local = shortened, "
        "otherwise 0.5",
        above=0,
        below=1,
        auto=True,
        of=_DP,
    )
    rows: int = option(4096, "M, rows per sketch (4096)", least=1, most=MAX_ROWS, of=_DP)
    gamma: float = option(
        2.0**-11,
        "gamma: one level more stands for 1 + gamma times as many users",
        least=GAMMAS[0],
        most=GAMMAS[1],
        of=_DP,
    )
    weights: str = option(
        "2pest",
        "'2pest' (Algorithm 5: sketches of every pair of parties) or 'basic' (Algorithm 4: of all parties)",
        choices=METHODS,
        of=_DP,
    )
    estimator: str = option(
        "auto",
        "tables of pairs by 'likelihood' (ours) or 'basic' (unions, Algorithm 4); 'auto': ours where it fits",
        choices=("auto", "likelihood", "basic"),
        of=_DP,
    )
    fit: str = option(
        "entropy",
        "from pairs to the grid: 'entropy' (ours) or 'paper' (additive steps, Algorithm 5)",
        choices=FITS,
        of=_DP,
    )
    steps: int = option(500, "T, steps of Algorithm 5", least=1, most=100_000, of=_DP)
    composition: str = option(
        TIGHT,
        "'tight' (privacy loss distributions) or 'paper' (4 sqrt(M log 1/delta), split over the parties)",
        choices=(TIGHT, PAPER),
        of=_DP,
    )
    phantoms: str = option(
        GRID_PHANTOMS,
        "'grid' (private), or 'paper' for comparison only: never reported as private",
        choices=(GRID_PHANTOMS, PAPER_PHANTOMS),
        of=_DP,
    )
    share_result: bool = option(False, "send the final centres to the parties too: true or false")


def settings_from(protocol: str, values: Mapping[str, Any]) -> Settings:
    """Read the settings of one protocol.

    Returns
    -------
    Settings
        With the local method's default shares where none are given.

    Raises
    ------
    ConfigError
        No protocol of this package, a local method that the composition does not support, or as `read_settings`.
    """
    if protocol not in PROTOCOLS:
        raise ConfigError(f"--protocol: expected one of {', '.join(PROTOCOLS)} here, got {protocol!r}")
    return _settled(read_settings(Settings(), protocol, values))


def _settled(read: Settings) -> Settings:
    """Choose the local method and its shares where they are automatic."""
    # The paper's composition adds epsilons, and Gaussian noise has no pure epsilon.
    ours = read.composition == TIGHT and read.phantoms == GRID_PHANTOMS
    if read.local == SHORTENED and not ours:
        raise ConfigError(
            "vertical-dp.local = shortened has Gaussian noise: expected composition = tight and phantoms = grid beside "
            "it; leave them out, or choose --set vertical-dp.local=lloyd"
        )
    local = read.local if read.local != "auto" else SHORTENED if ours else "lloyd"
    local_share, tree_share = _SHARES[local]
    return replace(
        read,
        local=local,
        local_share=local_share if read.local_share is None else read.local_share,
        tree_share=tree_share if read.tree_share is None else read.tree_share,
    )
