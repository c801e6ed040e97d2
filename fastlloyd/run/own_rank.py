"""Which party this is, and how it proves it: from the roster and its own key, or from a rank that it was given.

A `ConfigError` depends on public things and on this party's own key only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastlloyd.crypto.link.identity import Identity, load_key, make_identity, parse_certificate
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.errors import ConfigError
from fastlloyd.run.config import RunConfig
from fastlloyd.wire.header import PartyId

if TYPE_CHECKING:
    from fastlloyd.net.tcp.admission import Keys

CARRIER = "serve/join"
CONNECTION = ("plain TCP: without --roster and --key nobody proves who it is", "TLS 1.3, keys of the roster")


def load_identity(config: RunConfig, me: PartyId, clients: int) -> tuple[Identity, Roster | None]:
    """Return this party's identity, and the roster.

    Without a roster: a fresh key; certificates are exchanged unauthenticated.

    Raises
    ------
    ConfigError
        Roster or key do not fit.
    """
    config.check_links()
    if config.roster is None or config.key is None:
        return make_identity(str(me), me.rank), None
    roster = Roster.load(Path(config.roster))
    roster.check_complete(clients)
    key = load_key(Path(config.key.replace("{client}", str(me.rank))), config.passphrase_file)
    return roster.identity(me, key), roster


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRank:
    """Where a party stands among sites that no launcher has numbered.

    Attributes
    ----------
    me : PartyId
    clients : int or None
        How many the roster has; None without one.
    identity : Identity or None
        None without a roster.
    certificates : mapping from PartyId to DER bytes
        Of the others, from the roster.
    """

    me: PartyId
    clients: int | None = None
    identity: Identity | None = None
    certificates: Mapping[PartyId, bytes] = field(default_factory=dict, repr=False)


def find_own_rank(config: RunConfig, rank: int | None) -> OwnRank:
    """Find out which party this is: by its key where there is a roster, else by the rank that was given.

    Parameters
    ----------
    config : RunConfig
    rank : int or None
        0 for the server; what `--rank` says for a client.

    Raises
    ------
    ConfigError
        Roster, key and rank do not fit together, or say too little.
    """
    config.check_links()
    if config.roster is None or config.key is None:
        if rank is None:
            raise ConfigError("--rank: expected this client's number, 1 or more, or --roster and --key, which tell it")
        return OwnRank(me=PartyId(rank))
    roster = Roster.load(Path(config.roster))
    roster.check_complete()
    _check_subjects(roster)
    if rank is None and "{client}" in config.key:
        raise ConfigError(
            "--key: '{client}' stands for the rank, which the key is to tell; name the file, or add --rank"
        )
    key = load_key(Path(config.key.replace("{client}", str(rank))), config.passphrase_file)
    if rank is None:
        owner = roster.owner(key)
        if owner is None:
            raise ConfigError(
                "--key: this key is not in the roster: give this party's own key, or add its certificate "
                "with `fastlloyd roster add`, at all parties"
            )
        rank = owner.rank
    me = PartyId(rank)
    return OwnRank(
        me=me,
        clients=len(roster.entries) - 1,
        identity=roster.identity(me, key),
        certificates={party: der for party, der in roster.certificates().items() if party != me},
    )


def _check_subjects(roster: Roster) -> None:
    """Refuse equal subjects: of two such certificates OpenSSL finds the first only."""
    seen: dict[Any, str] = {}
    for entry in roster.entries:
        subject = parse_certificate(entry.certificate_der).subject
        if subject in seen:
            raise ConfigError(
                f"--roster: the certificates of {seen[subject]!r} and {entry.name!r} have the same subject, and one of "
                "them would be refused: make them with `fastlloyd keygen`"
            )
        seen[subject] = entry.name


def connection_keys(place: OwnRank) -> Keys | None:
    """Return what the connection needs where there is a roster: a client trusts the server, the server all clients.

    The server also trusts its own certificate, which its aggregators show.
    """
    if place.identity is None:
        return None
    from fastlloyd.crypto.link.tls import pinned_context
    from fastlloyd.net.tcp.admission import Keys

    trusted = {der: party for party, der in place.certificates.items() if place.me.is_server or party.is_server}
    if place.me.is_server:
        trusted[place.identity.certificate_der] = place.me
    return Keys(pinned_context(place.identity, trusted, server_side=place.me.is_server), trusted)
