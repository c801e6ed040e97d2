"""What a run of vertical k-means under CKKS is given: public parameters, and a party's own columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlloyd.privacy.delta import settle_delta
from fastlloyd.protocols.vertical_he.parameters import PublicParameters
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import fill_public
from fastlloyd.run.vertical import OwnColumns, VerticalCommon, gather_vertical, load_vertical
from fastlloyd.wire.header import PartyId


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParameters:
    """What is public, as it was stated; `settled` makes `PublicParameters` of it."""

    parties: int
    k: int
    n_total: int
    epsilon: float
    delta: float | str | None
    accept_large_delta: bool
    rounds: int | None
    seed: int
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.settled()

    def settled(self) -> PublicParameters:
        """Return the parameters, checked; delta is a number."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        accepted = values.pop("accept_large_delta")
        values["delta"] = settle_delta(
            self.delta, n_total=self.n_total, paper=1.0 / self.n_total, accept_large=accepted
        )
        return PublicParameters(**values)

    @property
    def owners(self) -> tuple[PartyId, ...]:
        """Who holds columns."""
        first = 1 if self.settled().mode == "server-aided" else 0
        return tuple(PartyId(rank) for rank in range(first, self.parties))


def run_parameters(config: RunConfig, clients: int, n_total: int, k: int) -> RunParameters:
    """Return what is public before the records are aligned."""
    return fill_public(RunParameters, config, parties=clients + 1, k=k, n_total=n_total)


def gather(config: RunConfig, clients: int) -> tuple[RunConfig, VerticalCommon]:
    """Check what is public and alike for all parties.

    Raises
    ------
    ConfigError
        A parameter does not fit, or an interrupted run is to be resumed.
    """
    # So few records that no delta is too large for them: their number is not known yet.
    probe = run_parameters(config, clients, config.n_total or max(3, config.k or 2), config.k or 2)
    return gather_vertical(config, probe.owners, clients, run_parameters)


def load(config: RunConfig, common: VerticalCommon, me: PartyId) -> OwnColumns | None:
    """Load a party's columns; a server without data has none."""
    owners = common.public.owners
    return load_vertical(config, common, owners.index(me), me.rank) if me in owners else None
