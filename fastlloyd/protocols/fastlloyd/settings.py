"""The paper's symbols and formulas for FastLloyd, GLloyd, SuLloyd and Lloyd, and the settings of fastlloyd-plus.

Everything here depends on public quantities only. The scaled domain is [-B, B]^d with B = 1.

Source: FastLloyd, §5.5, §5.6, App. B.1; SuLloyd's split: Su et al. (2016), §4.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.split import EXPECTED_NORM, laplace_ratio

PLUS = "fastlloyd-plus"
SURVEY_SHARE = 0.15
PLUS_ROUNDS = 10
_COMMON = ("domain", "min_rounds", "max_rounds", "step_error", "count_ratio")
APPLICABLE: dict[str, tuple[str, ...]] = {
    "fastlloyd": ("alpha", "radius", "clip", *_COMMON),
    "glloyd": ("rho", *_COMMON),
    "sulloyd": ("rho", *_COMMON),
    "lloyd": ("max_rounds",),
    "fastlloyd-plus": ("survey", "reach", "far", "shrink", "swap", "max_rounds", "count_ratio"),
}
HELP: dict[str, str] = {
    "alpha": "scale of the radius eta = alpha * beta / (2 k^(1/d)), Eq. 26",
    "radius": "'step': beta/2 in round 0, then eta; 'constant': eta throughout (§5.6)",
    "clip": "radius clipping of each centre's step (§5.1): true or false",
    "domain": "how centres are kept in the domain: 'fold', 'truncate' or 'none' (§5.3.5)",
    "min_rounds": "least number of rounds when --rounds is auto",
    "max_rounds": "largest number of rounds when --rounds is auto",
    "step_error": "error per round that the formula for the number of rounds allows (0.004, §5.5)",
    "count_ratio": "noise multiplier of the counts over that of the sums; 'auto' for the paper's split",
    "survey": "share of the budget for the survey in round 0: middle, spread and number of all records; 0 for none",
    "reach": "scale of the radius that follows from the spread; 'auto' for what the public noise, N and k suggest",
    "far": "records beyond the radius: 'shorten' their vectors to it, or 'drop' them",
    "shrink": "weigh each noisy step and count against what is known by then: true or false",
    "swap": "merge the two clusters that lose least by it and split another that gains more: true or false",
    "rho": "expected norm of the centres in Su et al.'s error analysis (0.225)",
}


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
    domain : {'fold', 'truncate', 'none'}
        Paper: §5.3.5; the baselines use none.
    count_ratio : float or None
        sigma_C / sigma_R; None for the split that minimises the error analysis.
    step_error : float
    min_rounds, max_rounds : int
        The clamp [2, 7] on T.
    rho : float
        Su et al.'s rho; used by glloyd and sulloyd.
    survey, reach, far, shrink, swap
        Of fastlloyd-plus: see `HELP` and docs/fastlloyd-plus.md; None for an automatic reach.
    """

    alpha: float = 0.8
    radius: str = "step"
    clip: bool = True
    domain: str = "fold"
    count_ratio: float | None = None
    step_error: float = 0.004
    min_rounds: int = 2
    max_rounds: int = 7
    rho: float = EXPECTED_NORM
    survey: float = SURVEY_SHARE
    reach: float | None = None
    far: str = "shorten"
    shrink: bool = True
    swap: bool = True

    def __post_init__(self) -> None:
        _check("alpha", self.alpha, 0 < self.alpha <= 10, "a number in (0, 10]")
        _check("radius", self.radius, self.radius in ("step", "constant"), "'step' or 'constant'")
        _check("domain", self.domain, self.domain in ("fold", "truncate", "none"), "'fold', 'truncate' or 'none'")
        ratio = self.count_ratio
        _check("count_ratio", ratio, ratio is None or 0.01 <= ratio <= 100, "'auto' or a number in [0.01, 100]")
        _check("step_error", self.step_error, 0 < self.step_error < 100, "a positive number")
        _check("survey", self.survey, 0 <= self.survey <= 0.5, "a number in [0, 0.5]")
        _check("reach", self.reach, self.reach is None or 0.01 <= self.reach <= 10, "'auto' or a number in [0.01, 10]")
        _check("far", self.far, self.far in ("shorten", "drop"), "'shorten' or 'drop'")
        _check("rho", self.rho, 0 < self.rho <= 1, "a number in (0, 1]")
        rounds = 1 <= self.min_rounds <= self.max_rounds <= 1000
        _check("min_rounds, max_rounds", (self.min_rounds, self.max_rounds), rounds, "1 <= min <= max <= 1000")


def _check(name: str, value: object, good: bool, expected: str) -> None:
    if not good:
        raise ConfigError(f"--set {name}: expected {expected}, got {value!r}")


_AUTOMATIC = ("count_ratio", "reach")
_DEFAULTS = {"fastlloyd": Settings(), PLUS: Settings(domain="truncate", max_rounds=PLUS_ROUNDS)}


def settings_from(protocol: str, values: Mapping[str, Any]) -> Settings:
    """Build the settings of one protocol from `--set` pairs or a TOML table.

    Raises
    ------
    ConfigError
        An unknown key, a key of another protocol, or a value of the wrong kind.
    """
    defaults = _DEFAULTS.get(protocol, Settings(domain="none"))
    known = {field.name: field for field in dataclasses.fields(Settings)}
    chosen: dict[str, Any] = {}
    for key, value in values.items():
        if key not in APPLICABLE[protocol]:
            raise ConfigError(f"{protocol} has no setting {key!r}; it has {', '.join(sorted(APPLICABLE[protocol]))}")
        plain = None if key in _AUTOMATIC and value == "auto" else value
        chosen[key] = _convert(key, plain, type(getattr(defaults, known[key].name)))
    return dataclasses.replace(defaults, **chosen)


def _convert(key: str, value: Any, kind: type) -> Any:
    """Accept an int for a float; refuse anything else of another type."""
    if key in _AUTOMATIC:
        kind = float if value is not None else type(None)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        raise ConfigError(f"--set {key}: expected a value of type {kind.__name__}, got {value!r}")
    return value


def cluster_radius(k: int, d: int, alpha: float) -> float:
    """Give eta = alpha * beta / (2 k^(1/d)), beta = 2 sqrt(d) the domain's diagonal (Eq. 26)."""
    return alpha * 2.0 * math.sqrt(d) / (2.0 * math.pow(k, 1.0 / d))


def radius_of_round(t: int, k: int, d: int, settings: Settings) -> float:
    """Give round t's radius: beta / 2 in round 0 under 'step', else eta (§5.6).

    A radius beyond the diagonal beta never binds, so it is cut there.
    """
    diagonal = 2.0 * math.sqrt(d)
    if settings.radius == "step" and t == 0:
        return diagonal / 2.0
    return min(cluster_radius(k, d, settings.alpha), diagonal)


def count_ratio(protocol: str, d: int, settings: Settings) -> float:
    """Give sigma_C / sigma_R that minimises the error analysis (Eq. 20; App. B.1 for glloyd)."""
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
    """Give T from the public formula, clamped to [min_rounds, max_rounds].

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
