"""`fastlloyd serve --parent`: an aggregator, between some of the clients and the server of the run."""

from __future__ import annotations

import gc
import logging
import os
from typing import TYPE_CHECKING

from fastlloyd.errors import EXIT_OK, ConfigError, FastLloydError, format_count
from fastlloyd.net.tcp.address import Address, listen
from fastlloyd.run.config import RunConfig
from fastlloyd.run.own_rank import OwnRank, connection_keys
from fastlloyd.run.rank import catch_signals
from fastlloyd.wire.header import SERVER

if TYPE_CHECKING:
    from fastlloyd.crypto.link.identity import Identity
    from fastlloyd.net.tcp.aggregator import Aggregator
    from fastlloyd.net.tcp.stream import Stream
    from fastlloyd.report.announcer import Announcer
    from fastlloyd.report.lines import Journal

_log = logging.getLogger(__name__)


def aggregate(
    config: RunConfig, parent: Address, address: Address, place: OwnRank, *, events: bool, journal: Journal
) -> int:
    """Connect to the parent, admit clients as it decides, and pass frames on to the end; return the exit code.

    Parameters
    ----------
    config : RunConfig
    parent : Address
        Where the server, or another aggregator, listens.
    address : Address
        Where to listen.
    place : OwnRank
        The server's.
    events : bool
        Write machine-readable events for `fastlloyd run` instead of text.
    journal : Journal
        Destination of its log.

    Raises
    ------
    ConfigError
        Roster or key is wrong, a port is not available, or the parent takes no aggregators.
    PeerError
        No parent admitted this aggregator.
    """
    from fastlloyd.net.link.sums import Adder
    from fastlloyd.net.tcp.aggregator import Aggregator, BranchTransport
    from fastlloyd.net.tcp.door import allow_files, close_all
    from fastlloyd.report.announcer import Announcer

    keys = connection_keys(place)
    if keys is None or place.identity is None or place.clients is None:
        raise ConfigError(
            "--parent: an aggregator needs --roster and --key, the server's: what it passes up must be "
            "authenticated and encrypted, even in a demonstration"
        )
    catch_signals()
    announcer = Announcer(SERVER, events=events, quiet=config.quiet, own_terminal=True, journal=journal)
    allow_files(place.clients)
    listeners = listen(address)
    try:
        stream, offer = _join_parent(
            parent, place, place.identity, deadline_s=config.setup_deadline, announcer=announcer
        )
    except BaseException:
        close_all(listeners)
        raise
    adder = Adder()
    with BranchTransport(
        listeners,
        stream,
        place.clients,
        keys=keys,
        note=announcer.note,
        warn=_log.warning,
        joined_here=adder.join,
        stall_s=config.deadline / 2,
        offer=offer,
    ) as transport:
        at = Address(address.host, listeners[0].getsockname()[1])
        announcer.note(f"listening at {at} as an aggregator of the server at {parent}; clients join here as there")
        gc.freeze()
        code = _run(Aggregator(transport, adder, place.identity, place.certificates), announcer)
        transport.close(lost=code != EXIT_OK)
    announcer.note(
        f"added up {format_count(adder.added, 'update')} in {format_count(adder.sums, 'sum')}; "
        f"{transport.sent_up_bytes:,} bytes sent up"
    )
    return code


def _join_parent(
    parent: Address, place: OwnRank, identity: Identity, *, deadline_s: float, announcer: Announcer
) -> tuple[Stream, bytes]:
    """Connect to the parent, which must have this roster's clients; return the connection, and its offer to sites."""
    from fastlloyd.crypto.link.tls import pinned_context
    from fastlloyd.net.tcp import admission
    from fastlloyd.net.tcp.proxy import find_proxy
    from fastlloyd.net.tcp.route import Route
    from fastlloyd.net.tcp.spoke import reach

    own = identity.certificate_der
    keys = admission.Keys(pinned_context(identity, (own,), server_side=False), {own: SERVER})
    route = Route(parent, SERVER.rank, keys, find_proxy(parent, os.environ))
    stream, welcome = reach(route, deadline_s=deadline_s, note=announcer.note)
    if place.clients != welcome.parties - 1:
        raise ConfigError(
            f"--roster: it names {place.clients} clients, and the parent's run has {welcome.parties - 1}: give all the "
            "same"
        )
    return stream, route.ask()


def _run(aggregator: Aggregator, announcer: Announcer) -> int:
    """Pass frames on to the end; report a failure."""
    try:
        aggregator.run()
    except FastLloydError as error:
        announcer.complain(str(error))
        return error.exit_code
    return EXIT_OK
