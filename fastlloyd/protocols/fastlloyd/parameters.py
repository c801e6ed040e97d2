"""What all parties of a run must agree on before anything is computed, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.merging import LEAST, MOST
from fastlloyd.party.plain_plan import SumsTerms
from fastlloyd.privacy.limits import check_clients, check_clusters, check_masking, check_numbers, check_rounds
from fastlloyd.privacy.release import GAUSSIAN_SHARES, LAPLACE_SHARES
from fastlloyd.protocols.fastlloyd.settings import PLUS, settings_from

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
    """

    choose_k: bool = False

    @property
    def in_shares(self) -> bool:
        """Whether the clients add noise, in shares."""
        return self.masking == "pairwise" and MECHANISMS[self.protocol] != "none"


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
        check_masking(self.masking, self.clients, self.min_clients, self.known_shares, noisy=self.mechanism != "none")
        check_clusters(self.k, self.n_total)
        _check_choice(self)
        check_numbers(n_total=self.n_total, epsilon=self.epsilon, delta=self.delta)
        check_rounds(self.rounds)
        settings_from(self.protocol, self.settings)

    @property
    def mechanism(self) -> str:
        """What adds noise: the server, or with pairwise masking the clients in shares."""
        alone = MECHANISMS[self.protocol]
        return _IN_SHARES[alone] if self.in_shares else alone


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
