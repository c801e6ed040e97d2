"""What may be chosen in k-FED.

Source: Dennis, Li, Smith, "Heterogeneity for the win: one-shot federated clustering" (2021), Algorithm 2, as used in
FedDP-KMeans, §5 "Baselines", and SecFC, §3.2 and §5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fastlloyd.errors import ConfigError

HELP: dict[str, str] = {
    "local_k": "k', clusters that each client makes of its own records; 'auto': k",
    "restarts": "how often a client clusters its records afresh; the best counts",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Tunables of `kfed`.

    Attributes
    ----------
    local_k : int or None
        Paper: k'. None for k: no assumption on how many clusters one client's records come from.
    restarts : int

    Raises
    ------
    ConfigError
        A value is out of range.
    """

    local_k: int | None = None
    restarts: int = 10

    def __post_init__(self) -> None:
        _check("local_k", self.local_k, self.local_k is None or 1 <= self.local_k <= 10_000, "'auto' or 1 to 10000")
        _check("restarts", self.restarts, 1 <= self.restarts <= 1000, "a whole number from 1 to 1000")


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Build the settings from `--set` pairs or a TOML table.

    Raises
    ------
    ConfigError
        An unknown key or a value of the wrong kind or range.
    """
    known = {entry.name for entry in fields(Settings)}
    chosen: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"kfed has no setting {key!r}; it has {', '.join(sorted(known))}")
        automatic = key == "local_k" and value in ("auto", None)
        if not automatic and type(value) is not int:
            raise ConfigError(f"--set {key}: expected a whole number, got {value!r}")
        chosen[key] = None if automatic else value
    return Settings(**chosen)


def _check(name: str, value: object, good: bool, expected: str) -> None:
    if not good:
        raise ConfigError(f"--set {name}: expected {expected}, got {value!r}")
