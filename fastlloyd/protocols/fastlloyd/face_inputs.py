"""What a run of FastLloyd or a baseline is given: its public parameters, and a client's own records."""

from __future__ import annotations

from fastlloyd.privacy.delta import paper_delta, settle_delta
from fastlloyd.protocols.fastlloyd.parameters import MECHANISMS, PublicParameters
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import Common, OwnRecords, gather_horizontal, load_own
from fastlloyd.wire.header import PartyId


def public_parameters(config: RunConfig, clients: int, n_total: int, k: int) -> PublicParameters:
    """Give the public parameters of a run.

    Raises
    ------
    ConfigError
        Any that does not fit.
    """
    return PublicParameters(
        protocol=config.protocol,
        clients=clients,
        min_clients=clients if config.min_clients is None else config.min_clients,
        k=k,
        n_total=n_total,
        epsilon=config.epsilon,
        delta=settle_delta(
            config.delta, n_total=n_total, paper=paper_delta(n_total), accept_large=config.accept_large_delta
        )
        if MECHANISMS[config.protocol] == "gaussian"
        else None,
        rounds=config.rounds,
        seed=config.seed,
        ring_bits=config.ring_bits,
        masking=config.masking,
        known_shares=config.known_shares,
        settings=config.own_settings,
    )


def gather(config: RunConfig, clients: int) -> tuple[RunConfig, Common]:
    """Check what is public and alike for all parties."""
    return gather_horizontal(config, clients, public_parameters)


def load(config: RunConfig, common: Common, me: PartyId) -> OwnRecords | None:
    """Load a client's own records; the server has none."""
    return None if me.is_server else load_own(config, common, me)
