"""One network profile: what a host's way out does to each packet."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .failure import UsageError

DEFAULT_FILE = Path(__file__).resolve().parent.parent / "profiles.toml"
MTU_BYTES = 1500
ETHERNET_HEADER_BYTES = 14
# From this rate on, and where no loss is asked for, TCP hands over trains of segments as it does to
# network cards: a packet at a time costs more processor time than two cores have. A train lasts 0.1 ms
# at the most.
_TRAIN_FROM_MBIT = 500
_TRAIN_MS = 0.1
_LONGEST_TRAIN_BYTES = 65_536
# tc's own default bucket is one packet, which a timer that fires 20 us late cannot keep filled.
DEFAULT_BURST_MS = 0.25
UNLIMITED_QUEUE_PACKETS = 100_000

_BOUNDS = {
    "delay_ms": (0.0, 10_000.0),
    "jitter_ms": (0.0, 10_000.0),
    "loss_percent": (0.0, 100.0),
    "rate_mbit": (0.1, 100_000.0),
    "burst_kbyte": (2, 100_000),
    "quantum_bytes": (1000, 200_000),
    "r2q": (1, 100_000),
    "queue_packets": (1, 1_000_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A link's properties, one way; the keys are explained at the top of `profiles.toml`.

    Raises
    ------
    UsageError
        When a value is out of range, or the jitter exceeds the delay.
    """

    name: str
    description: str
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss_percent: float = 0.0
    rate_mbit: float | None = None
    burst_kbyte: float | None = None
    quantum_bytes: int | None = None
    r2q: int | None = None
    queue_packets: int | None = None

    def __post_init__(self) -> None:
        for key, (low, high) in _BOUNDS.items():
            value = getattr(self, key)
            if value is None and key in _OPTIONAL:
                continue
            kinds = (int,) if key in _WHOLE else (int, float)
            if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
                raise UsageError(
                    f"profile {self.name}: expected {key} between {low:g} and {high:g}, got {value!r}; correct the file"
                )
        if self.jitter_ms > self.delay_ms:
            raise UsageError(
                f"profile {self.name}: expected a jitter of at most the delay of {self.delay_ms:g} ms, "
                f"got {self.jitter_ms:g} ms: no packet can arrive before it is sent; lower jitter_ms"
            )

    @property
    def rate_bytes_s(self) -> float | None:
        """The rate in bytes per second; None when not limited."""
        return None if self.rate_mbit is None else self.rate_mbit * 125_000

    @property
    def burst_bytes(self) -> int:
        """The size of the rate limiter's bucket, two of the longest packets at least."""
        if self.burst_kbyte is not None:
            return int(self.burst_kbyte * 1024)
        largest = self.train_bytes or MTU_BYTES
        return max(2 * (largest + ETHERNET_HEADER_BYTES), int((self.rate_bytes_s or 0) * DEFAULT_BURST_MS / 1000))

    @property
    def queue_limit(self) -> int:
        """How many packets one host may have on their way."""
        if self.queue_packets is not None:
            return self.queue_packets
        if self.rate_bytes_s is None:
            return UNLIMITED_QUEUE_PACKETS
        in_flight = self.rate_bytes_s * (self.delay_ms + self.jitter_ms) / 1000 + self.burst_bytes
        return max(1000, int(2 * in_flight / MTU_BYTES))

    @property
    def train_bytes(self) -> int | None:
        """The longest train of TCP segments that is delayed as one; None when each goes alone."""
        if self.rate_bytes_s is None or self.rate_bytes_s < _TRAIN_FROM_MBIT * 125_000 or self.loss_percent:
            return None
        return min(_LONGEST_TRAIN_BYTES, int(self.rate_bytes_s * _TRAIN_MS / 1000))

    @property
    def interface_options(self) -> str:
        """What `ip link set` needs to know of it; without, the kernel would shape trains of 64 kB as one packet."""
        return "gso_max_segs 1" if self.train_bytes is None else f"gso_max_size {self.train_bytes}"


_OPTIONAL = {"rate_mbit", "burst_kbyte", "quantum_bytes", "r2q", "queue_packets"}
_WHOLE = {"quantum_bytes", "r2q", "queue_packets"}
_KEYS = {field.name for field in fields(Profile)} - {"name"}


def load_profiles(path: Path = DEFAULT_FILE) -> dict[str, Profile]:
    """Read a profile file.

    Raises
    ------
    UsageError
        When the file cannot be read, is not TOML, or has an unknown or wrong key.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"expected a TOML file of profiles at {path}, got: {error}; see --profiles") from error
    return {name: _profile(name, table) for name, table in tables.items()}


def _profile(name: str, table: Any) -> Profile:
    """Make one profile from its TOML table."""
    if not isinstance(table, Mapping):
        raise UsageError(f"expected a table [{name}] with a profile's keys, got {table!r}; correct the file")
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise UsageError(f"profile {name}: unknown {', '.join(unknown)}; the keys are {', '.join(sorted(_KEYS))}")
    return Profile(**{"description": "", **table, "name": name})


def find_profile(name: str, path: Path = DEFAULT_FILE) -> Profile:
    """Return the profile called so.

    Raises
    ------
    UsageError
        When there is none of that name.
    """
    profiles = load_profiles(path)
    if name not in profiles:
        raise UsageError(f"expected one of the profiles {', '.join(profiles)}, got {name!r}; see `netem list`")
    return profiles[name]
