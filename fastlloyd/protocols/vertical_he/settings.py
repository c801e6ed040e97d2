"""What belongs to vertical-he alone, checked.

Source: Vertical HE, §3 and §4; docs/vertical-he-privacy.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlloyd.errors import ConfigError

MODES = ("auto", "two-party", "server-aided", "threshold")
SCHEMES = ("auto", "linear", "projection", "pairwise")
NOISES = ("dp", "flooding")

HELP: dict[str, str] = {
    "mode": "'two-party' (-n 2), 'server-aided' (-n 3 or more: rank 0 computes without data), "
    "'threshold' (-n 2, nobody holds the key; not with the pairwise scheme), or 'auto'",
    "scheme": "'linear' (one feature at the key holder), 'projection' (two clusters), 'pairwise' (any number of both), "
    "or 'auto': the cheapest one",
    "noise": "'dp', or 'flooding': as little as protects the key; then the result is not private",
    "degree": "degree of the polynomials that stand for a step, not for the pairwise scheme (62)",
    "computing": "rank that computes on the encrypted data, or 'auto': the cheaper choice",
    "tolerance": "stop once no coordinate of a centre moves farther than this (scaled to [-1, 1]); the privacy "
    "of all planned rounds is charged all the same; 0: never",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of vertical-he; see `HELP`.

    Attributes
    ----------
    computing : int
        Rank; -1 for automatic.
    """

    mode: str = "auto"
    scheme: str = "auto"
    noise: str = "dp"
    degree: int = 62
    computing: int = -1
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        _check("mode", self.mode, self.mode in MODES, f"one of {', '.join(MODES)}")
        _check("scheme", self.scheme, self.scheme in SCHEMES, f"one of {', '.join(SCHEMES)}")
        _check("noise", self.noise, self.noise in NOISES, f"one of {', '.join(NOISES)}")
        _check("degree", self.degree, 4 <= self.degree <= 510, "an integer from 4 to 510")
        _check("computing", self.computing, self.computing in (-1, 0, 1), "'auto', 0 or 1")
        _check("tolerance", self.tolerance, 0 <= self.tolerance < 2, "a number in [0, 2)")


def _check(name: str, value: object, good: bool, expected: str) -> None:
    if not good:
        raise ConfigError(f"--set vertical-he.{name}: expected {expected}, got {value!r}")


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Build the settings from `--set` pairs or a TOML table.

    Raises
    ------
    ConfigError
        An unknown key or a value of the wrong kind.
    """
    defaults = Settings()
    chosen: dict[str, Any] = {}
    for key, value in values.items():
        if key not in HELP:
            raise ConfigError(f"vertical-he has no setting {key!r}; it has {', '.join(sorted(HELP))}")
        plain: Any = -1 if key == "computing" and value == "auto" else value
        kind = type(getattr(defaults, key))
        if kind is float and type(plain) is int:
            plain = float(plain)
        if type(plain) is not kind:
            raise ConfigError(f"--set vertical-he.{key}: expected a value of type {kind.__name__}, got {value!r}")
        chosen[key] = plain
    return dataclasses.replace(defaults, **chosen)
