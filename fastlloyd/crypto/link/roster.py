"""The roster: who takes part, by name, role, rank and certificate.

All parties hold the same roster; its digest enters the confirmation of every link. As a file it is
TOML::

    [[party]]
    name = "clinic north"
    role = "client"
    rank = 1
    certificate = '''-----BEGIN CERTIFICATE----- ...'''

Source: docs/protocol.md, "Links".
"""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fastlloyd.crypto.link.identity import (
    NOT_READABLE,
    Identity,
    certificate_bytes,
    check_name,
    ed25519_key,
    fingerprint,
    look,
    parse_certificate,
    read_text,
    visible,
    write_atomically,
)
from fastlloyd.errors import ConfigError, format_count, name_some
from fastlloyd.randomness import domains
from fastlloyd.wire.decode import decode, show
from fastlloyd.wire.header import MAX_CLIENTS, PartyId
from fastlloyd.wire.toml import parse_toml

ROLES = ("server", "client")
_ROSTER_MODE = 0o644
WARN_DAYS = 30
"""From how many days before a certificate expires on people are warned."""
MOST_BYTES = 1 << 24
"""Longest file: that of some 20,000 parties."""


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One party.

    Attributes
    ----------
    name : str
    role : str
        'server' (rank 0) or 'client' (rank 1 to `MAX_CLIENTS`).
    rank : int
    certificate : str
        PEM.

    Raises
    ------
    ConfigError
        A field is invalid, role and rank disagree, or the certificate is not a party's.
    """

    name: str
    role: str
    rank: int
    certificate: str

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.role not in ROLES:
            raise ConfigError(f"{self.name!r}: expected the role 'server' or 'client', got {self.role!r}")
        if not 0 <= self.rank <= MAX_CLIENTS or (self.role == "server") != (self.rank == 0):
            raise ConfigError(
                f"{self.name!r}: the server has rank 0 and clients have ranks from 1 to {MAX_CLIENTS}, got a "
                f"{self.role} with rank {show(self.rank)}; give the rank that this party has in the run"
            )
        _check_certificate(parse_certificate(self.certificate_der), self.name)

    @property
    def party(self) -> PartyId:
        """Its place in a run."""
        return PartyId(self.rank)

    @property
    def certificate_der(self) -> bytes:
        """The certificate as bytes."""
        return _parsed(self.certificate, f"the roster entry of {self.name!r}")

    @property
    def fingerprint(self) -> str:
        """The fingerprint that people compare."""
        return fingerprint(self.certificate_der)

    @property
    def valid(self) -> tuple[datetime, datetime]:
        """From when and until when the certificate is valid, UTC."""
        certificate = parse_certificate(self.certificate_der)
        return certificate.not_valid_before_utc, certificate.not_valid_after_utc


@dataclass(frozen=True, slots=True)
class Roster:
    """The parties, in rank order and without contradictions; `check_complete` requires all of them.

    Raises
    ------
    ConfigError
        Two parties share a rank, a name as people see it, a certificate or a key; or their names look the same.
    """

    entries: tuple[RosterEntry, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", tuple(sorted(self.entries, key=lambda entry: entry.rank)))
        _check_unique("rank", ((str(entry.rank), entry) for entry in self.entries))
        _check_unique("name, as people see it", ((visible(entry.name).casefold(), entry) for entry in self.entries))
        # Beyond that, letters of other scripts.
        _check_unique("name by the look of its letters", ((look(entry.name), entry) for entry in self.entries))
        # With one key, two parties could impersonate each other; this covers equal certificates.
        _check_unique("key", ((_public_key(entry), entry) for entry in self.entries))

    @classmethod
    def parse(cls, text: str, source: str = "the roster") -> Self:
        """Read TOML text.

        Raises
        ------
        ConfigError
            Names the place and the problem.
        """
        try:
            document = parse_toml(text.encode(), MOST_BYTES)
        except ValueError as error:
            raise ConfigError(f"{source} is not TOML: {error}; `fastlloyd roster add` writes one") from error
        parties = document.pop("party", [])
        if document or not isinstance(parties, list):
            raise ConfigError(f"{source}: expected [[party]] tables only, got {name_some(document) or 'party'}")
        try:
            return cls(tuple(decode(RosterEntry, table, f"{source}, party {i + 1}") for i, table in enumerate(parties)))
        except ValueError as error:
            raise ConfigError(str(error)) from error

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a roster file; it may still be incomplete.

        Raises
        ------
        ConfigError
            Names the place and the problem.
        """
        return cls.parse(read_text(path, "roster", MOST_BYTES), str(path))

    def check_complete(self, clients: int | None = None) -> None:
        """Refuse a roster without a server, with a gap, or for another number of clients.

        Raises
        ------
        ConfigError
            Names the ranks that are missing.
        """
        ranks = {entry.rank for entry in self.entries}
        count = max(ranks, default=0) if clients is None else clients
        missing = sorted(set(range(max(count, 1) + 1)) - ranks)
        if missing:
            names = name_some([PartyId(rank) for rank in missing])
            raise ConfigError(f"the roster lacks {names}: add with `fastlloyd roster add`")
        if len(ranks) != count + 1:
            raise ConfigError(
                f"the roster names {format_count(len(ranks) - 1, 'client')}, this run has {count}: start one "
                "process for each party of the roster"
            )

    def check_dates(self, now: datetime | None = None) -> tuple[str, ...]:
        """Return a sentence for each certificate that expires within `WARN_DAYS`.

        Parameters
        ----------
        now : datetime, optional
            With a time zone; default: this machine's clock.

        Raises
        ------
        ConfigError
            One has expired or is not valid yet: every link with its party would be refused.
        """
        now = now or datetime.now(UTC)
        soon = []
        for entry in self.entries:
            first, last = entry.valid
            whose = f"the certificate of {entry.party} ({entry.name})"
            if now < first:
                raise ConfigError(
                    f"this machine's clock says {now:%Y-%m-%d %H:%M} UTC, and {whose} is valid from "
                    f"{first:%Y-%m-%d %H:%M} on: set the clock; only if it is right, that party makes a new key with "
                    "`fastlloyd keygen`, and all parties replace its entry with `fastlloyd roster add --replace`"
                )
            if now > last:
                raise ConfigError(
                    f"{whose} has expired on {last:%Y-%m-%d}, and this machine's clock says {now:%Y-%m-%d %H:%M} UTC: "
                    "correct the clock if it is wrong; otherwise that party makes a new key with `fastlloyd keygen`, "
                    "and all parties replace its entry with `fastlloyd roster add --replace`"
                )
            if (left := (last - now).days) < WARN_DAYS:
                soon.append(
                    f"{whose} expires on {last:%Y-%m-%d}, in {format_count(left, 'day')}: make a new key with "
                    "`fastlloyd keygen`, and replace the entry at all parties with `fastlloyd roster add --replace`"
                )
        return tuple(soon)

    def add(self, entry: RosterEntry, *, replace: bool = False) -> Roster:
        """Return a roster with one more party; with `replace` it takes over its rank.

        Raises
        ------
        ConfigError
            It contradicts an entry.
        """
        kept = (other for other in self.entries if not (replace and other.rank == entry.rank))
        return Roster((*kept, entry))

    def remove(self, rank: int) -> Roster:
        """Return a roster without a client; the client with the highest rank takes over its rank: there are no gaps.

        Raises
        ------
        ConfigError
            No client has this rank.
        """
        if rank < 1 or all(entry.rank != rank for entry in self.entries):
            raise ConfigError(
                f"the roster has no client of rank {show(rank)} to remove; `fastlloyd roster show` lists them (the "
                "server is replaced with `fastlloyd roster add --replace`)"
            )
        *kept, last = (entry for entry in self.entries if entry.rank != rank)
        return Roster((*kept, replace(last, rank=rank) if last.rank > rank else last))

    def text(self) -> str:
        """Return the roster as TOML."""
        # Encoded again from DER, so that nothing else in a .pem file (a private key) becomes public.
        return "\n".join(
            f"[[party]]\nname = {json.dumps(entry.name, ensure_ascii=False)}\n"
            f'role = "{entry.role}"\nrank = {entry.rank}\n'
            f'certificate = """\n{ssl.DER_cert_to_PEM_cert(entry.certificate_der)}"""\n'
            for entry in self.entries
        )

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        write_atomically(path, self.text().encode(), _ROSTER_MODE)

    def digest(self) -> bytes:
        """Return a digest of 32 bytes that depends only on the content."""
        sha = hashlib.sha256(domains.ROSTER)
        for entry in self.entries:
            for part in (entry.name.encode(), entry.role.encode(), entry.certificate_der):
                sha.update(len(part).to_bytes(4, "little") + part)
            sha.update(entry.rank.to_bytes(4, "little"))
        return sha.digest()

    def certificates(self) -> dict[PartyId, bytes]:
        """Return every party's certificate, DER."""
        return {entry.party: entry.certificate_der for entry in self.entries}

    def name(self, party: PartyId) -> str:
        """Return the name of a party; its rank if it is not in the roster."""
        return next((entry.name for entry in self.entries if entry.party == party), str(party))

    def owner(self, key: Ed25519PrivateKey) -> RosterEntry | None:
        """Return the party with this key, or None."""
        public = key.public_key().public_bytes_raw()
        return next((entry for entry in self.entries if _public_key(entry) == public), None)

    def identity(self, me: PartyId, key: Ed25519PrivateKey) -> Identity:
        """Combine this party's key with its certificate from the roster.

        Raises
        ------
        ConfigError
            The key is not in the roster, or belongs to another party.
        """
        entry = self.owner(key)
        if entry is None:
            raise ConfigError(
                f"the --key of {me} is not in the roster: add its certificate with "
                "`fastlloyd roster add`, at all parties"
            )
        if entry.party != me:
            raise ConfigError(
                f"this process is {me}, but its --key belongs to {entry.party} ({entry.name!r}) in "
                "the roster: give each party its own key ({client} in --key becomes its rank)"
            )
        return Identity(entry.name, entry.certificate_der, key)


@lru_cache(maxsize=1 << 12)
def _parsed(pem: str, source: str) -> bytes:
    """Parse a certificate; cached, because those of a thousand parties are read again and again."""
    return certificate_bytes(pem, source)


def _check_certificate(certificate: x509.Certificate, name: str) -> None:
    """Refuse a certificate that is not self-signed by an Ed25519 key, or that may sign others."""
    key = ed25519_key(certificate)
    if key is None:
        raise ConfigError(f"the certificate of {name!r} has no Ed25519 key: make one with `fastlloyd keygen`")
    try:
        authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (*NOT_READABLE, x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        authority = True
    if authority:
        raise ConfigError(
            f"the certificate of {name!r} may sign other certificates, which would be accepted: "
            "make one with `fastlloyd keygen`"
        )
    try:
        certificate.verify_directly_issued_by(certificate)
    except (*NOT_READABLE, InvalidSignature) as error:
        raise ConfigError(
            f"the certificate of {name!r} is not signed by its own key: make one with `fastlloyd keygen`"
        ) from error


def _check_unique(what: str, pairs: Iterable[tuple[str | bytes, RosterEntry]]) -> None:
    """Refuse two entries that share a value."""
    seen: dict[str | bytes, RosterEntry] = {}
    for value, entry in pairs:
        if value in seen:
            raise ConfigError(
                f"{seen[value].name!r} (rank {seen[value].rank}) and {entry.name!r} (rank {entry.rank}) have "
                f"the same {what}: every party needs its own (`roster add --replace` changes an entry)"
            )
        seen[value] = entry


def _public_key(entry: RosterEntry) -> bytes:
    """Return the 32 bytes of an entry's public key."""
    key = ed25519_key(parse_certificate(entry.certificate_der))
    return b"" if key is None else key.public_bytes_raw()
