"""All parties of a run in one thread, each with its whole run: no process, no socket, no file.

The protocols' own coroutines, with the same checks of what is public, the same messages and the same ledgers as under
mpirun; only links, state directories and output folders are left out.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastlloyd.crypto.link.identity import make_identity
from fastlloyd.net.meter import Meter
from fastlloyd.party.transcript import Transcript
from fastlloyd.privacy.ledger import Ledger, Release
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import PublicInputs
from fastlloyd.run.machine import Host
from fastlloyd.run.outcome import Outcome
from fastlloyd.run.session import Session, find_protocol
from fastlloyd.run.simulation import Simulation, Tap
from fastlloyd.wire.header import SERVER, PartyId, clients

RUN_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class InMemory:
    """How a run in one thread ended.

    Attributes
    ----------
    outcomes : dict from PartyId to Outcome
    ledgers : dict from PartyId to Ledger
    meters : dict from PartyId to Meter
        Of frames; there are no links that add to them.
    transcripts : dict from PartyId to Transcript
        Of what went to several parties, as each compared it with the others.
    """

    outcomes: dict[PartyId, Outcome]
    ledgers: dict[PartyId, Ledger] = field(repr=False)
    meters: dict[PartyId, Meter] = field(repr=False)
    transcripts: dict[PartyId, Transcript] = field(repr=False)


def run_together(
    config: RunConfig,
    n_clients: int,
    *,
    inputs: PublicInputs | None = None,
    owned: Mapping[PartyId, Any] | None = None,
    afford: Callable[[Session, tuple[Release, ...], float], None] | None = None,
    tap: Tap | None = None,
) -> InMemory:
    """Run all parties, from the first message to the last.

    Parameters
    ----------
    config : RunConfig
        The same for all parties.
    n_clients : int
    inputs : PublicInputs, optional
        What is public and the same for all, in the place of what the protocol gathers; `config` is then as it gave it.
    owned : mapping from PartyId to object, optional
        What the parties have, in the place of what the protocol loads.
    afford : callable, optional
        Gets a party's session, the releases that it has planned, before it makes any, and the delta of a budget that is
        set with this run; raises what refuses the run.
    tap : callable, optional
        As in `Simulation`.

    Raises
    ------
    FastLloydError
        Whatever a party raises.
    """
    protocol = find_protocol(config.protocol)
    if inputs is None:
        config, inputs = protocol.gather(config, n_clients)
    run_id = os.urandom(RUN_ID_BYTES)
    digest = hashlib.sha256(run_id + inputs.digest(config, b"")).digest()
    everybody = (SERVER, *clients(n_clients))
    sessions = {}
    for me in everybody:
        own = protocol.load(config, inputs, me) if owned is None else owned.get(me)
        identity = make_identity(str(me), me.rank)
        sessions[me] = Session(
            me=me,
            everybody=everybody[1:],
            config=config,
            inputs=inputs,
            own=own,
            identity=identity,
            run_id=run_id,
            digest=digest,
        )
    hosts = {
        me: Host(session, afford=None if afford is None else partial(afford, session))
        for me, session in sessions.items()
    }
    parties = {me: protocol.serve(one) if me.is_server else protocol.take_part(one) for me, one in sessions.items()}
    meters = {me: session.meter for me, session in sessions.items()}
    outcomes = Simulation(parties, tap, hosts=hosts, meters=meters).run()
    return InMemory(
        outcomes,
        {me: session.ledger for me, session in sessions.items()},
        meters,
        {me: host.transcript for me, host in hosts.items()},
    )
