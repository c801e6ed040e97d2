"""What may be chosen in FedDP-KMeans, with the paper's recommendations as defaults.

Everything here is public. The scaled domain is [-1, 1]^d; norms are taken there, about the middle of the bounds.

Epsilon is divided from proportions to the noise multiplier of each release. A part eps_i of epsilon is what the release
would spend alone: at the run's delta for Gaussian noise, at delta 0 for Laplace noise, as in the paper. Composition is
better than adding up, so the calibrator multiplies all eps_i by one number until the composed epsilon meets the target;
the proportions stay.

Source: FedDP-KMeans, §3 "Algorithm details", §5 "Evaluation procedure", Alg. 1 and 2; App. G.3 (baselines), G.4 (client
level), H.1 (proportions of the budget).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

from fastlloyd.errors import ConfigError
from fastlloyd.party.option import option, read_settings
from fastlloyd.privacy.calibration import SAMPLER_DELTA, gaussian_noise_multiplier

PROPORTIONS: dict[str, tuple[float, float, float, float]] = {
    "record": (0.2, 0.2, 0.45, 0.15),
    "client": (0.35, 0.1, 0.45, 0.1),
}
"""Shares of epsilon of the outer product, the weights, the sums and the counts (App. H.1)."""
PRIVATE = "private"
"""The start that needs no data of the server."""
_CLIPS = ("outer_clip", "weight_clip", "mean_clip", "count_clip")


def _share(about: str) -> float | None:
    return option(None, f"part of epsilon for {about}", least=0.001, below=1, auto=True)


def _norm(about: str) -> float | None:
    return option(None, about, least=2.0**-6, most=2.0**20, auto=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Tunables of `feddp`; None stands for 'auto'.

    Attributes
    ----------
    privacy_level : {'record', 'client'}
        What neighbours differ in: one record, or all records of one user.
    start : str
        Each is followed by T Lloyd steps.
    norm_bound : float or None
        Paper: Delta. None: the largest norm of the server's points, or sqrt(d) without any; never of clients' records.
    outer_share, weight_share, sum_share, count_share : float or None
        Paper: eps_1, eps_2, eps_3G, eps_3L as parts of eps_init; only their ratios matter.
    lloyd_share : float or None
        Part of all epsilons for Alg. 2; sums and counts divide it as in step 3. None: each step as much as step 3.
    outer_clip, weight_clip, mean_clip, count_clip : float or None
        Paper: B of App. G.4, scaled domain.
    restarts : int
    proxies : int or None
        Of the start 'private'. None: by a rule on public numbers (`proposal.py`).
    server_share : float
        In a demonstration, part of the public set that no client gets.
    users : str or None
        Name of a column only.

    Raises
    ------
    ConfigError
        A clip at record level.
    """

    privacy_level: str = option(
        "record", "'record': one row is protected; 'client': all rows of one user (§5.2)", choices=tuple(PROPORTIONS)
    )
    start: str = option(
        "feddp",
        "'feddp' (Alg. 1); 'private': the same without server data; or a baseline of §5: 'server-kmeans++', "
        "'server-lloyds'; or 'sphere-packing' (FastLloyd's, where §5 has another)",
        choices=("feddp", PRIVATE, "server-kmeans++", "server-lloyds", "sphere-packing"),
    )
    norm_bound: float | None = _norm(
        "Delta, the largest norm of a record, scaled domain; 'auto': of the server data (§5.1)"
    )
    outer_share: float | None = _share("the outer product, step 1; 'auto' for App. H.1")
    weight_share: float | None = _share("the weights, step 2; 'auto' for App. H.1")
    sum_share: float | None = _share("the sums, step 3; 'auto' for App. H.1")
    count_share: float | None = _share("the counts, step 3; 'auto' for App. H.1")
    lloyd_share: float | None = _share("all Lloyd steps together; 'auto': each as much as step 3")
    outer_clip: float | None = _norm("largest norm of a user's outer product (client level); 'auto': Delta^2")
    weight_clip: float | None = _norm("largest sum of a user's weights (client level); 'auto': 1")
    mean_clip: float | None = _norm("largest norm of a user's means (client level); 'auto': Delta / 2")
    count_clip: float | None = _norm("largest sum of a user's counts of clusters (client level); 'auto': sqrt(k)")
    restarts: int = option(
        10, "how often the server clusters its weighted points afresh; the best counts", least=1, most=1000
    )
    proxies: int | None = option(
        None, "start 'private': points in the place of the server's own", least=1, most=1 << 16, auto=True
    )
    server_share: float = option(
        0.05,
        "demonstration (--dataset): part of the rows that are the server's, without --server-data",
        above=0,
        below=1,
    )
    users: str | None = option(None, "column that names the user a row belongs to (client level)", auto=True)

    def __post_init__(self) -> None:
        for name in _CLIPS:
            value = getattr(self, name)
            if self.privacy_level == "record" and value is not None:
                raise ConfigError(f"--set feddp.{name}: expected it left out at record level, got {value!r}")

    @property
    def has_start(self) -> bool:
        """Whether steps 1 to 3 make the start (Alg. 1)."""
        return self.start in ("feddp", PRIVATE)

    @property
    def needs_points(self) -> bool:
        """Whether the server needs points of its own."""
        return self.start not in (PRIVATE, "sphere-packing")

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
    """Return the number of Lloyd steps when none is asked for.

    Notes
    -----
    After Alg. 1: none. In the paper's Tables 4 and 5 at least 80 % of the Pareto-optimal runs took none on ten of
    eleven data sets, 61 % on the other, for step 3 is a Lloyd step already. A baseline has nothing else: two.
    """
    return 0 if settings.has_start else 2


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Read the settings; `read_settings` says what else is refused."""
    return read_settings(Settings(), "feddp", values)


Kind = Literal["outer product", "weights", "centres", "lloyd", "start"]
"""Of a step."""
OUTER: Final = "outer product"
WEIGHTS: Final = "weights"
CENTERS: Final = "centres"
LLOYD: Final = "lloyd"
START: Final = "start"


def steps_of(settings: Settings, rounds: int) -> tuple[Kind, ...]:
    """Return the kinds of the steps of a run in order; only `START` asks nothing of the clients."""
    first: tuple[Kind, ...] = (OUTER, WEIGHTS, CENTERS) if settings.has_start else (START,)
    lloyd: Kind = LLOYD
    return (*first, *(lloyd for _ in range(rounds)))


def epsilon_shares(settings: Settings, rounds: int) -> Mapping[str, tuple[float, float]]:
    """Divide 1 among the steps.

    Parameters
    ----------
    settings : Settings
    rounds : int
        T.

    Returns
    -------
    mapping from kind of step to (part for Gaussian noise, part for Laplace noise)
        Of one step; 0 where the step has no such release. Over all steps they add up to 1.
    """
    outer, weights, sums, counts = settings.proportions
    first = settings.has_start
    each = sums + counts
    start = 1.0 if first else 0.0
    if rounds == 0:
        lloyd = 0.0
    elif not first:
        lloyd = 1.0
    elif settings.lloyd_share is not None:
        lloyd = settings.lloyd_share
    else:
        lloyd = rounds * each / (start + rounds * each)
    start *= 1.0 - lloyd
    step = lloyd / max(rounds, 1) / each
    return {
        OUTER: (start * outer, 0.0),
        WEIGHTS: (0.0, start * weights),
        CENTERS: (start * sums, start * counts),
        LLOYD: (step * sums, step * counts),
        START: (0.0, 0.0),
    }


def multipliers(
    shares: Mapping[str, tuple[float, float]], *, epsilon: float, delta: float, factor: float
) -> Mapping[str, tuple[float, float]]:
    """Return noise scale over sensitivity for each kind of step, all epsilons divided by `factor`; 0 without noise."""
    total = epsilon / factor
    return {
        kind: (
            _gaussian(gauss * total, delta - SAMPLER_DELTA) if gauss > 0 else 0.0,
            1.0 / (laplace * total) if laplace > 0 else 0.0,
        )
        for kind, (gauss, laplace) in shares.items()
    }


@lru_cache(maxsize=256)
def _gaussian(epsilon: float, delta: float) -> float:
    return gaussian_noise_multiplier(epsilon, delta)
