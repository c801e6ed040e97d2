"""What all parties of a k-FED run must agree on, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.protocols.kfed.settings import settings_from


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicParameters:
    """Public parameters of one run.

    Attributes
    ----------
    clients : int
    min_clients : int or None
        The server goes on without clients that are late, down to this number; None: all.
    k : int
    n_total : int
        Public upper bound N on all records together.
    seed : int

    Raises
    ------
    ConfigError
        A parameter is out of range.
    """

    protocol: str = "kfed"
    clients: int
    min_clients: int | None = None
    k: int
    n_total: int
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise ConfigError("expected at least one client, got none; start with -n 2 or more (rank 0 serves)")
        if self.min_clients is not None and not 1 <= self.min_clients <= self.clients:
            raise ConfigError(f"--min-clients: expected 1 to {self.clients} (the clients), got {self.min_clients}")
        if not 1 <= self.k <= min(self.n_total, 10_000):
            raise ConfigError(
                f"--k: expected 1 to 10000 clusters, at most the public N = {self.n_total}, got {self.k}; lower --k or "
                "check --n-total"
            )
        settings_from(self.settings)

    @property
    def least_clients(self) -> int:
        """How many clients' centres the server needs."""
        return self.clients if self.min_clients is None else self.min_clients
