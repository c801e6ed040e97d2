"""What all parties of a SecFC run agree on before they compute anything, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlloyd.party.option import read_settings
from fastlloyd.party.plain_plan import RunTerms
from fastlloyd.privacy.limits import check_clusters, check_rounds
from fastlloyd.protocols.secfc.field.prime import MAX_RECORDS
from fastlloyd.protocols.secfc.settings import Settings, settle_code
from fastlloyd.wire.decode import Within

MAX_CLUSTERS = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicParameters(RunTerms):
    """Public parameters of one run.

    Attributes
    ----------
    clients : int
        Paper: n.
    rounds : int or None
        Limit on Lloyd iterations; None: 300.
    """

    rounds: int | None
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        Within(1, MAX_RECORDS - 1).check("--n-total", self.n_total)
        check_clusters(self.k, self.n_total, most=MAX_CLUSTERS)
        check_rounds(self.rounds)
        settle_code(self.chosen, self.clients)

    @property
    def chosen(self) -> Settings:
        """The settings, read and checked."""
        return read_settings(Settings(), "secfc", self.settings)
