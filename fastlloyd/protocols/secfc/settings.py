"""The paper's symbols for SecFC, with the defaults for M clients.

Source: SecFC, §4.1 (l, t, n >= 2l + 2t - 1), §5 (centre separation), §6 (membership privacy).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlloyd.errors import ConfigError

MIN_CLIENTS = 3
DEFAULT_ITERATIONS = 300
STARTS = ("random", "separated")
HELP: dict[str, str] = {
    "segments": "l, into how many segments a point is cut: more make shares smaller; 'auto' or 1 and more",
    "threshold": "t, how many colluding clients learn nothing from their shares; 'auto' or 1 and more",
    "start": "'random' clustering from the public seed, or 'separated' groups (§5; shows k distances)",
    "membership": "hide which client owns a point (§6): true or false",
    "reveal_centers": "l + t clients together reveal the final centres to all clients: true or false",
    "least_revealed": "records that a cluster must have for its centre to be revealed, 1 and more",
    "extra_answers": "answers to wait for beyond the 2l + 2t - 1 needed: 1 shows a wrong one, 2 name its sender",
    "fraction_bits": "bits of the grid that points are rounded to, 8 to 16",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What belongs to SecFC.

    Attributes
    ----------
    segments : int or None
        Paper: l. None: (M + 1) // 2 - t.
    threshold : int or None
        Paper: t. None: max(1, (M + 1) // 4).
    start : {'random', 'separated'}
    membership, reveal_centers : bool
    least_revealed : int
        Clusters of fewer records keep their centre: that of one record is the record.
    extra_answers : int
    fraction_bits : int
        Paper: the scaling factor lambda of App. A is 2^fraction_bits.
    """

    segments: int | None = None
    threshold: int | None = None
    start: str = "random"
    membership: bool = False
    reveal_centers: bool = False
    least_revealed: int = 5
    extra_answers: int = 0
    fraction_bits: int = 16

    def __post_init__(self) -> None:
        for name in ("segments", "threshold"):
            value = getattr(self, name)
            _check(name, value, value is None or value >= 1, "'auto' or a whole number, 1 or more")
        _check("start", self.start, self.start in STARTS, "'random' or 'separated'")
        _check("least_revealed", self.least_revealed, self.least_revealed >= 1, "a whole number, 1 or more")
        _check("extra_answers", self.extra_answers, self.extra_answers >= 0, "a whole number, 0 or more")
        _check("fraction_bits", self.fraction_bits, 8 <= self.fraction_bits <= 16, "8 to 16")


def _check(name: str, value: object, good: bool, expected: str) -> None:
    if not good:
        raise ConfigError(f"--set secfc.{name}: expected {expected}, got {value!r}")


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Build the settings from `--set` pairs or a TOML table.

    Raises
    ------
    ConfigError
        An unknown key, or a value of the wrong kind.
    """
    defaults = Settings()
    chosen: dict[str, Any] = {}
    for key, value in values.items():
        if key not in HELP:
            raise ConfigError(f"secfc has no setting {key!r}; it has {', '.join(sorted(HELP))}")
        if key in ("segments", "threshold"):
            chosen[key] = _convert(key, value, int) if value not in ("auto", None) else None
        else:
            chosen[key] = _convert(key, value, type(getattr(defaults, key)))
    return dataclasses.replace(defaults, **chosen)


def _convert(key: str, value: Any, kind: type) -> Any:
    """Refuse a value of another type."""
    if type(value) is not kind:
        raise ConfigError(f"--set secfc.{key}: expected a value of type {kind.__name__}, got {value!r}")
    return value


def settle_code(settings: Settings, clients: int) -> tuple[int, int]:
    """Give l and t for M clients: as set, or the defaults t = max(1, (M + 1) // 4), l = (M + 1) // 2 - t.

    Raises
    ------
    ConfigError
        Fewer than 3 clients, or 2l + 2t - 1 + extra_answers is more than there are; names the mend.
    """
    if clients < MIN_CLIENTS:
        raise ConfigError(
            f"secfc: expected at least {MIN_CLIENTS} clients, got {clients}: with fewer no client's share can hide a "
            "point; start with -n 4 or more (rank 0 serves)"
        )
    most = (clients + 1 - settings.extra_answers) // 2
    threshold = max(1, (clients + 1) // 4) if settings.threshold is None else settings.threshold
    segments = max(1, most - threshold) if settings.segments is None else settings.segments
    if segments + threshold > most:
        needed = 2 * (segments + threshold) - 1 + settings.extra_answers
        raise ConfigError(
            f"secfc: l = {segments} segments and threshold t = {threshold} need 2l + 2t - 1 + extra_answers = {needed} "
            f"clients, got {clients}; lower --set secfc.segments, secfc.threshold or secfc.extra_answers, or start "
            "more clients"
        )
    return segments, threshold
