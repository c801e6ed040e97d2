"""What a run of FastLloyd or a baseline is given: its public parameters, and a client's own records."""

from __future__ import annotations

from fastlloyd.privacy.delta import paper_delta, settle_delta
from fastlloyd.protocols.fastlloyd.parameters import MECHANISMS, PublicParameters
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import CommonInputs, fill_public, gather_horizontal
from fastlloyd.run.own_records import load_large


def public_parameters(config: RunConfig, clients: int, n_total: int, k: int) -> PublicParameters:
    """Return the public parameters of a run.

    Raises
    ------
    ConfigError
        Any that does not fit.
    """
    delta = None
    if MECHANISMS[config.protocol] == "gaussian":
        paper = paper_delta(n_total)
        delta = settle_delta(config.delta, n_total=n_total, paper=paper, accept_large=config.accept_large_delta)
    return fill_public(
        PublicParameters,
        config,
        clients=clients,
        min_clients=clients if config.min_clients is None else config.min_clients,
        k=k,
        n_total=n_total,
        delta=delta,
    )


def gather(config: RunConfig, clients: int) -> tuple[RunConfig, CommonInputs]:
    """Check what is public and alike for all parties."""
    return gather_horizontal(config, clients, public_parameters)


load = load_large
