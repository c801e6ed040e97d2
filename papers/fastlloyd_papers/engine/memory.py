"""All parties of one run in this thread, timed: for more clients than a machine can hold as processes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import quantise
from fastlloyd.lifecycle.masked_sums import server
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import MaskGenerator
from fastlloyd.party.effects import Party
from fastlloyd.protocols.fastlloyd.client import client
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.rounds import draw_noise
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Simulation
from fastlloyd.wire.header import SERVER, Header, PartyId, clients

_SEED_BYTES = 32
_RUN_ID_BYTES = 16


def run_in_memory(points: NDArray[np.float64], plan: Plan) -> dict[str, Any]:
    """Run server and clients over the rounds of a plan and return time and bytes of a round.

    The clients get a common seed here instead of agreeing on one: that comes before the first round, which is not what
    is timed. Nor is the start of each client. Whole runs (`run_together`) would take six times as long with a thousand
    clients, and their ledgers a tenth of each round.

    Parameters
    ----------
    points : float64 array, shape (n, d)
        Scaled to [-1, 1]; dealt out in blocks.
    plan : Plan
        Of two rounds or more.

    Returns
    -------
    dict
        `seconds`: of all parties together, from one round's reply to the next one's; `bytes_per_round`;
        `setup_seconds` (0).
    """
    secret = SecretRandom()
    seed, run_id = secret.bytes(_SEED_BYTES), secret.bytes(_RUN_ID_BYTES)
    ring = Ring(plan.ring_bits)
    everybody = clients(plan.clients)
    blocks = np.array_split(points, plan.clients)
    parties: dict[PartyId, Party[Any]] = {SERVER: server(plan, lambda t: draw_noise(plan, t, secret))}
    for me, block in zip(everybody, blocks, strict=True):
        masks = MaskGenerator(seed, ring, plan.elements(0), run_id)
        parties[me] = client(me, quantise(block, plan.fraction_bits), plan, masks)
    closed: dict[int, float] = {}

    def note(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if sender == SERVER:
            closed.setdefault(header.round, time.perf_counter())
        return body

    simulation = Simulation(parties, note)
    simulation.run()
    payload = sum(meter.total_sent().payload_bytes for meter in simulation.meters.values())
    rounds = len(plan.rounds)
    return {
        "seconds": (closed[rounds - 1] - closed[0]) / (rounds - 1),
        "bytes_per_round": payload / rounds,
        "setup_seconds": 0.0,
    }
