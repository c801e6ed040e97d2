"""What may be chosen in k-FED.

Source: Dennis, Li, Smith, "Heterogeneity for the win: one-shot federated clustering" (2021), Algorithm 2, as used in
FedDP-KMeans, §5 "Baselines", and SecFC, §3.2 and §5.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastlloyd.party.option import option


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Tunables of `kfed`.

    Attributes
    ----------
    local_k : int or None
        Paper: k'. None for k: no assumption on how many clusters one client's records come from.
    restarts : int
    """

    local_k: int | None = option(
        None, "k', clusters that each client makes of its own records; 'auto': k", least=1, most=10_000, auto=True
    )
    restarts: int = option(
        10, "how often a client clusters its projected records afresh; the best counts", least=1, most=1000
    )
