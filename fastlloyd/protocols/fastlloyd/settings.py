"""What the parties of a run agree on: public parameters, settings, and the paper's symbols and formulas.

Everything here depends on public quantities only. The scaled domain is [-B, B]^d with B = 1.

Source: FastLloyd, §5.5, §5.6, App. B.1; SuLloyd's split: Su et al. (2016), §4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.merging import LEAST, MOST
from fastlloyd.party.option import option, read_settings
from fastlloyd.party.plain_plan import SumsTerms
from fastlloyd.privacy.calibration import EXPECTED_NORM, laplace_ratio
from fastlloyd.privacy.limits import check_clients, check_clusters, check_numbers, check_rounds
from fastlloyd.privacy.release import GAUSSIAN_SHARES, LAPLACE_SHARES
from fastlloyd.wire.decode import Within

PLUS = "fastlloyd-plus"
SURVEY_SHARE = 0.15
GRID_SHARE = 0.5
PLUS_ROUNDS = 10
LEAST_QUALITY, MOST_QUALITY = 0.001, 0.5
QUALITY_SHARE = 0.05
"""Share of the quality where a range of k asks for it and no share is given."""
_PAPER = ("fastlloyd",)
_PLUS = (PLUS,)
_BASELINES = ("glloyd", "sulloyd")
_FORMULA = (*_PAPER, *_BASELINES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What belongs to one of the five protocols, with the paper's values as defaults.

    Attributes
    ----------
    alpha : float
        Paper: alpha, Eq. 26.
    radius : {'step', 'constant'}
        Paper: the "Step" and "Constant" approach, §5.6.
    clip : bool
        Paper: "Radius Clipping", §5.1.
    rho : float
        Su et al.'s rho; used by glloyd and sulloyd.
    start, grid, survey, reach, far, shrink, swap
        Of fastlloyd-plus: see docs/fastlloyd-plus.md; None for an automatic reach.
    domain : {'fold', 'truncate', 'none'}
        Paper: §5.3.5; the baselines use none.
    min_rounds, max_rounds : int
        The clamp [2, 7] on T.
    step_error : float
    count_ratio : float or None
        sigma_C / sigma_R; None for the split that minimises the error analysis.
    """

    alpha: float = option(
        0.8, "scale of the radius eta = alpha * beta / (2 k^(1/d)), Eq. 26", above=0, most=10, of=_PAPER
    )
    radius: str = option(
        "step",
        "'step': beta/2 in round 0, then eta; 'constant': eta throughout (§5.6)",
        choices=("step", "constant"),
        of=_PAPER,
    )
    clip: bool = option(True, "radius clipping of each centre's step (§5.1): true or false", of=_PAPER)
    rho: float = option(
        EXPECTED_NORM,
        "expected norm of the centres in Su et al.'s error analysis (0.225)",
        above=0,
        most=1,
        of=_BASELINES,
    )
    start: str = option(
        "auto",
        "round 0: a 'survey' of all records together, or a histogram on a 'grid' (up to 3 features); 'auto' takes the "
        "histogram where N, k and the noise suggest it, and neither where the survey would be mostly noise",
        choices=("auto", "survey", "grid"),
        of=_PLUS,
    )
    grid: float = option(
        GRID_SHARE, "share of the budget for the histogram in round 0; 0 for none", least=0, most=0.9, of=_PLUS
    )
    survey: float = option(
        SURVEY_SHARE,
        "share of the budget for the survey in round 0: middle, spread and number of all records; 0 for none",
        least=0,
        most=0.5,
        of=_PLUS,
    )
    wide: float | None = option(
        None,
        "clusters of the first four rounds over k, merged to k after them; 1 for none, 'auto' for 2, or for 3 that are "
        "merged step by step, where N, k and the noise suggest it",
        least=1,
        most=8,
        auto=True,
        of=_PLUS,
    )
    reach: float | None = option(
        None,
        "scale of the radius that follows from the spread; 'auto' for what the public noise, N and k suggest",
        least=0.01,
        most=10,
        auto=True,
        of=_PLUS,
    )
    far: str = option(
        "shorten",
        "records beyond the radius: 'shorten' their vectors to it, or 'drop' them",
        choices=("shorten", "drop"),
        of=_PLUS,
    )
    shrink: bool = option(
        True, "weigh each noisy step and count against what is known by then: true or false", of=_PLUS
    )
    swap: bool = option(
        True, "merge the two clusters that lose least by it and split another that gains more: true or false", of=_PLUS
    )
    domain: str = option(
        "fold",
        "how centres are kept in the domain: 'fold', 'truncate' or 'none' (§5.3.5)",
        choices=("fold", "truncate", "none"),
        of=_FORMULA,
    )
    min_rounds: int = option(2, "least number of rounds when --rounds is auto", least=1, most=1000, of=_FORMULA)
    max_rounds: int = option(7, "largest number of rounds when --rounds is auto", least=1, most=1000)
    step_error: float = option(
        0.004,
        "error per round that the formula for the number of rounds allows (0.004, §5.5)",
        above=0,
        below=100,
        of=_FORMULA,
    )
    count_ratio: float | None = option(
        None,
        "noise multiplier of the counts over that of the sums; 'auto' for the paper's split",
        least=0.01,
        most=100,
        auto=True,
        of=(*_FORMULA, PLUS),
    )

    def __post_init__(self) -> None:
        if self.min_rounds > self.max_rounds:
            raise ConfigError(
                f"--set max_rounds: expected at least min_rounds = {self.min_rounds}, got {self.max_rounds}"
            )


_DEFAULTS = {"fastlloyd": Settings(), PLUS: Settings(domain="truncate", max_rounds=PLUS_ROUNDS)}


def settings_from(protocol: str, values: Mapping[str, Any]) -> Settings:
    """Read the settings of one protocol; `read_settings` says what else is refused."""
    return read_settings(_DEFAULTS.get(protocol, Settings(domain="none")), protocol, values)


def cluster_radius(k: int, d: int, alpha: float) -> float:
    """Return eta = alpha * beta / (2 k^(1/d)), beta = 2 sqrt(d) the domain's diagonal (Eq. 26)."""
    return alpha * 2.0 * math.sqrt(d) / (2.0 * math.pow(k, 1.0 / d))


def radius_of_round(t: int, k: int, d: int, settings: Settings) -> float:
    """Return round t's radius: beta / 2 in round 0 under 'step', else eta (§5.6).

    A radius beyond the diagonal beta never binds, so it is cut there.
    """
    diagonal = 2.0 * math.sqrt(d)
    if settings.radius == "step" and t == 0:
        return diagonal / 2.0
    return min(cluster_radius(k, d, settings.alpha), diagonal)


def count_ratio(protocol: str, d: int, settings: Settings) -> float:
    """Return sigma_C / sigma_R that minimises the error analysis (Eq. 20; App. B.1 for glloyd)."""
    if settings.count_ratio is not None:
        return settings.count_ratio
    if protocol in ("fastlloyd", PLUS):
        return math.pow(4.0 * d, 0.25)
    if protocol == "glloyd":
        return math.sqrt(math.sqrt(d) / (2.0 * settings.rho))
    return laplace_ratio(d, settings.rho)


def split_gaussian(sigma: float, ratio: float) -> tuple[float, float]:
    """Split a noise multiplier: (sigma_R, sigma_C) with 1/sigma_R^2 + 1/sigma_C^2 = 1/sigma^2 (Eq. 7, 18)."""
    sigma_sums = sigma * math.sqrt(1.0 + 1.0 / ratio**2)
    return sigma_sums, ratio * sigma_sums


def automatic_rounds(protocol: str, *, k: int, d: int, n: int, epsilon: float, sigma: float, settings: Settings) -> int:
    """Return T from the public formula, clamped to [min_rounds, max_rounds].

    Parameters
    ----------
    n : int
        The public N.
    sigma : float
        Noise multiplier of the whole run (1/sigma-GDP); not used by sulloyd and lloyd.

    Notes
    -----
    Source: fastlloyd §5.5 (Eq. 23); glloyd App. B.1, whose T on both sides is a misprint:
    T <= 0.004 N^2 / (k^3 d sigma^2 (2 rho + sqrt d)^2); sulloyd Su et al. (2016), whose 500 k^3 / N^2 is
    2 / 0.004; lloyd and fastlloyd-plus: the largest number.
    """
    error, rho = settings.step_error, settings.rho
    if protocol in ("lloyd", PLUS):
        return settings.max_rounds
    if protocol == "fastlloyd":
        eta = cluster_radius(k, d, settings.alpha)
        rounds = 4.0 * n**2 * error / (k**3 * eta**2 * sigma**2 * (1.0 + math.sqrt(4.0 * d)) ** 2)
    elif protocol == "glloyd":
        rounds = n**2 * error / (k**3 * d * sigma**2 * (2.0 * rho + math.sqrt(d)) ** 2)
    else:
        least = math.sqrt(2.0 / error * k**3 / n**2 * (d + (4.0 * d * rho**2) ** (1.0 / 3.0)) ** 3)
        rounds = epsilon / least
    return int(max(min(rounds, settings.max_rounds), settings.min_rounds))


MECHANISMS = {
    "fastlloyd": "gaussian",
    "fastlloyd-plus": "gaussian",
    "glloyd": "gaussian",
    "sulloyd": "laplace",
    "lloyd": "none",
}
_IN_SHARES = {"gaussian": GAUSSIAN_SHARES, "laplace": LAPLACE_SHARES}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreedTerms(SumsTerms):
    """What the public parameters and the plan have in common.

    Attributes
    ----------
    choose_k : bool
        Let the clients choose k from the last centres (fastlloyd-plus).
    quality : float
        Share of 1/sigma^2 for a last round on how good the clusters are; 0 for none.
    least_k : int
        With `choose_k`, that round asks for the silhouettes of this number of clusters to k; 0: for the quality of the
        clusters that are chosen.
    """

    choose_k: bool = False
    quality: Annotated[float, Within(0.0, MOST_QUALITY)] = 0.0
    least_k: Annotated[int, Within(0, MOST)] = 0

    @property
    def in_shares(self) -> bool:
        """Whether the clients add noise, in shares."""
        return self.masking != "common" and MECHANISMS[self.protocol] != "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicParameters(AgreedTerms):
    """Public parameters of one run.

    Attributes
    ----------
    delta : float or None
        None: the default, 1 / (100 N).
    rounds : int or None
        None: the protocol's formula.
    """

    delta: float | None
    rounds: int | None
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_clients(self.clients, self.min_clients)
        self.check_masking(noisy=self.mechanism != "none")
        check_clusters(self.k, self.n_total)
        _check_choice(self)
        _check_quality(self)
        check_numbers(n_total=self.n_total, epsilon=self.epsilon, delta=self.delta)
        check_rounds(self.rounds)
        settings_from(self.protocol, self.settings)

    @property
    def mechanism(self) -> str:
        """What adds noise: the server, or without common masks the clients in shares."""
        alone = MECHANISMS[self.protocol]
        return _IN_SHARES[alone] if self.in_shares else alone


def _check_quality(public: PublicParameters) -> None:
    """Refuse a share for the quality that is impossible, and a range of k that is none."""
    if public.quality and not LEAST_QUALITY <= public.quality <= MOST_QUALITY:
        raise ConfigError(
            f"--quality: expected 0, or a share of the budget from {LEAST_QUALITY:g} to {MOST_QUALITY:g}, got "
            f"{public.quality:g}"
        )
    if public.least_k and not (public.choose_k and 2 <= public.least_k < public.k and public.quality):
        raise ConfigError(
            f"--k {public.least_k}..{public.k}: expected a range of numbers of clusters from 2 on, such as 2..8"
        )


def _check_choice(public: PublicParameters) -> None:
    """Refuse a choice of k that the protocol does not support; the error says how to fix it."""
    if not public.choose_k:
        return
    if public.protocol != PLUS:
        raise ConfigError(f"--k auto:{public.k}: {public.protocol} does not choose the number of clusters; give --k")
    if not LEAST <= public.k <= MOST:
        raise ConfigError(
            f"--k auto:{public.k}: expected a largest number of clusters from {LEAST} to {MOST}; give another one, or "
            "--k alone"
        )
