"""What all parties of a k-FED run must agree on, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastlloyd.party.option import read_settings
from fastlloyd.party.plain_plan import RunTerms
from fastlloyd.privacy.limits import check_clients, check_clusters
from fastlloyd.protocols.kfed.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicParameters(RunTerms):
    """Public parameters of one run.

    Attributes
    ----------
    min_clients : int or None
        The server goes on without clients that are late, down to this number; None: all.

    Raises
    ------
    ConfigError
        A parameter is out of range.
    """

    min_clients: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_clients(self.clients, self.min_clients)
        check_clusters(self.k, self.n_total)
        _ = self.chosen  # refuses settings that do not fit

    @property
    def chosen(self) -> Settings:
        """The settings, read and checked."""
        return read_settings(Settings(), "kfed", self.settings)

    @property
    def least_clients(self) -> int:
        """How many clients' centres the server needs."""
        return self.clients if self.min_clients is None else self.min_clients
