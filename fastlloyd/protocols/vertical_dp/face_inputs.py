"""What a run of vertical DP clustering is given: its public parameters, and a party's own columns."""

from __future__ import annotations

from fastlloyd.privacy.delta import settle_delta
from fastlloyd.protocols.vertical_dp.parameters import PublicParameters
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import fill_public
from fastlloyd.run.vertical import OwnColumns, VerticalCommon, gather_vertical, load_vertical
from fastlloyd.wire.header import PartyId
from fastlloyd.wire.header import clients as name_clients


def public_parameters(config: RunConfig, clients: int, n_total: int, k: int) -> PublicParameters:
    """Return the public parameters of a run.

    Raises
    ------
    ConfigError
        Any that does not fit.
    """
    delta = settle_delta(config.delta, n_total=n_total, paper=1.0 / n_total, accept_large=config.accept_large_delta)
    return fill_public(PublicParameters, config, clients=clients, k=k, n_total=n_total, delta=delta)


def gather(config: RunConfig, clients: int) -> tuple[RunConfig, VerticalCommon]:
    """Check what is public and alike for all parties.

    Raises
    ------
    ConfigError
        A parameter does not fit, or an interrupted run is to be resumed.
    """
    return gather_vertical(config, name_clients(clients), clients, public_parameters)


def load(config: RunConfig, common: VerticalCommon, me: PartyId) -> OwnColumns | None:
    """Load a party's columns; the server has none."""
    return None if me.is_server else load_vertical(config, common, me.rank - 1)
