"""What all parties of a run must agree on before anything is computed, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlloyd.errors import ProcessesError
from fastlloyd.party.plain_plan import RunTerms
from fastlloyd.privacy.limits import check_clusters, check_numbers
from fastlloyd.protocols.vertical_dp.settings import settings_from

MAX_PARTIES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreedTerms(RunTerms):
    """What the public parameters and the plan have in common.

    Attributes
    ----------
    clients : int
        Paper: S, the parties that hold columns.
    n_total : int
        Public upper bound N on the number of users. The parties know the number itself, the server does not.
    """

    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicParameters(AgreedTerms):
    """Public parameters of one run.

    Attributes
    ----------
    delta : float or None
        None: the default, 1 / (100 N).
    """

    delta: float | None
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not 2 <= self.clients <= MAX_PARTIES:
            problem = f"{self.protocol} joins the columns of 2 to {MAX_PARTIES} parties, got {self.clients}"
            raise ProcessesError(problem, 3, serves=True)
        check_clusters(self.k, self.n_total)
        check_numbers(n_total=self.n_total, epsilon=self.epsilon, delta=self.delta)
        settings_from(self.protocol, self.settings)
