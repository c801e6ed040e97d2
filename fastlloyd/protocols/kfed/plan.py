"""Settings, public parameters and plan of one k-FED run: the server proposes the plan, each client checks it.

Source: Dennis, Li, Smith (2021), Algorithm 2, as used in FedDP-KMeans, §5 "Baselines", and SecFC, §3.2 and §5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastlloyd.masking.fixed import choose_fraction_bits
from fastlloyd.party.option import option, read_settings
from fastlloyd.party.plain_plan import PlainPlan, RunTerms, same_named
from fastlloyd.privacy.limits import check_clients, check_clusters
from fastlloyd.privacy.release import Release


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
        """The least number of clients whose centres the server needs."""
        return self.clients if self.min_clients is None else self.min_clients


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(RunTerms, PlainPlan):
    """Everything public that one run needs; the same on all parties.

    Attributes
    ----------
    fraction_bits : int
        Records lie on the grid of 2^-q.
    local_k : int
        Paper: k'.
    """

    min_clients: int
    d: int
    names: tuple[str, ...]
    fraction_bits: int
    local_k: int
    restarts: int

    @property
    def private(self) -> bool:
        """False: local centres are means of records, sent without noise."""
        return False

    @property
    def most_elements(self) -> int:
        """Numbers in the longest uplink: k' d."""
        return self.local_k * self.d

    def releases(self, t: int) -> tuple[Release, ...]:
        """Return what the only round releases.

        Notes
        -----
        Privacy: none. One record may move every centre of its client, hence every merged one, across the whole domain,
        whose diagonal is 2 sqrt(d).
        """
        diagonal = 2.0 * math.sqrt(self.d)
        common: dict[str, Any] = {"round": t, "mechanism": "none", "norm": "l2", "noise_scale": 0.0}
        local, merged = diagonal * math.sqrt(self.local_k), diagonal * math.sqrt(self.k)
        return (
            Release(name="local centres", sensitivity=local, seen_by="server", **common),
            Release(name="centres", sensitivity=merged, seen_by="server and clients", **common),
        )

    def all_releases(self) -> tuple[Release, ...]:
        """Return the releases of the run."""
        return self.releases(0)


def make_plan(public: PublicParameters, *, d: int, names: tuple[str, ...]) -> Plan:
    """Make the plan of a run; run by the server, and by each client to check the server's.

    Raises
    ------
    RangeError
        Too many features for exact distances.
    """
    settings = public.chosen
    return Plan(
        **same_named(Plan, public, settings, but=("min_clients", "local_k")),
        min_clients=public.least_clients,
        d=d,
        names=names,
        # No sum travels in a ring: the grid only has to keep labels exact.
        fraction_bits=choose_fraction_bits(ring_bits=64, n_total=1, d=d, largest_coordinate=1.0, tail=0.0),
        local_k=public.k if settings.local_k is None else settings.local_k,
    )


def check_plan(plan: Plan, public: PublicParameters, *, d: int, names: tuple[str, ...]) -> float:
    """Check a plan against a client's own configuration.

    Returns
    -------
    float
        Infinity: the run is not private.

    Raises
    ------
    ValueError
        The plan differs: the server is at fault.
    """
    plan.compare(make_plan(public, d=d, names=names).values())
    return math.inf
