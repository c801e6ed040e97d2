"""Who sees what in a run, in words, from public facts alone: for pages and for people who must approve a run.

A protocol says what it reveals (`who_sees`); the network, computers and launchers are the same for all.

Besides, of one protocol: what stays at a site, what leaves it in which message, and who has the result.

Source: docs/security.md and the protocols' own pages, "Who sees what"; docs/operations.md, "What a run writes".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fastlloyd.errors import ConfigError
from fastlloyd.party.declaration import Messages, Seen, rows_of
from fastlloyd.protocols.registry import read_protocol

T = TypeVar("T")
_log = logging.getLogger(__name__)

NOISE = "the noise: this is what the promise is about"
NOTHING = "nothing"
BOTH_KEYS = "keys that were agreed by X25519 and ML-KEM-768 together"
GUESSED_IDS = "; where ids are intersected, which of the ids that it can guess each party holds"
_OPERATOR = (
    "masks are common, so the operator knows the noise: with the published result it can compute the exact sizes of "
    "the last round, and with any one client the exact sums of every round; --masking threshold prevents both"
)
_NETWORK_SEES = "who talks to whom, when and how much; why a run ended"
_LINKS = "links are encrypted (TLS 1.3)"
_UNCHECKED = "links are encrypted, but nobody checked the keys: whoever could change traffic at the start could read it"

NO_LABELS = "no message carries the cluster of a person"
OWN_LABELS = (
    "each client labels its own records, in a file that only its owner can read (mode 0600). Labels are computed from "
    "the records themselves: they are not private and are sent to nobody"
)
RELEASED = "the released centroids and noisy sizes of the clusters"

LINKS = (
    Seen(
        "client, server",
        "who is ready, and how the run ended",
        server="rank, reason, code, run id",
        others="the verdict: rank, reason, code",
        network="the same, in clear",
        frames="START, VERDICT, ABORT, DONE",
    ),
    Seen(
        "any pair",
        "the keys of a demonstration, which nobody has checked",
        server="the certificate",
        others="the certificate",
        network="the certificate",
        frames="CERTIFICATE",
        variant="no roster",
        when=lambda facts: not facts.get("roster"),
    ),
    Seen(
        "any pair",
        "that both ends have the same public values",
        server="the client's public configuration",
        others="its digest, and the server's public configuration",
        frames="confirmation",
    ),
)
"""The first messages on the links of every protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The data flow in a run of one protocol.

    Attributes
    ----------
    records : str
        The form in which anything of a record leaves its owner.
    labels : str
        Who learns the clusters of records.
    result : str
        Who has the result.
    messages : tuple
        All messages, roughly in order (`party/declaration.py`).
    readers : tuple of str
        The parties of `Seen.server` and `Seen.others`.
    further : tuple of (str, str)
        Further data, and where they go.
    server_noise : bool
        Whether only the server draws the noise.
    """

    records: str
    labels: str
    result: str
    messages: Messages
    readers: tuple[str, str] = ("server", "other clients")
    further: tuple[tuple[str, str], ...] = ()
    server_noise: bool = False

    @property
    def rows(self) -> tuple[Seen, ...]:
        """All rows of messages, those of links first."""
        return (*LINKS, *rows_of(self.messages))

    def sent(self, facts: Mapping[str, Any]) -> Iterator[Seen]:
        """Yield the rows of a run with these public facts."""
        return (one for one in self.rows if one.when(facts))


@dataclass(frozen=True, slots=True)
class Sight:
    """What one party, or several together, see.

    Attributes
    ----------
    who : str
    sees : str
    protection : str
        What protects the records: `NOISE`, `NOTHING`, or other words.
    bare : bool
        Whether these words say that nothing protects a part of it.
    weaker : bool
        Whether less noise than promised protects it.
    public : bool
        Whether one party sees it with published values alone, so that no agreement can prevent it.
    """

    who: str
    sees: str
    protection: str
    bare: bool = False
    weaker: bool = False
    public: bool = False

    @property
    def open(self) -> bool:
        """Whether nothing protects what is seen, or a part of it."""
        return self.bare or self.protection == NOTHING


@dataclass(frozen=True, slots=True)
class Sights:
    """What each kind of party sees alone, and what some see together.

    Attributes
    ----------
    alone, together : tuple of Sight
    later : Sight or None
        What `recorded` returns; None: not stated.
    """

    alone: tuple[Sight, ...]
    together: tuple[Sight, ...]
    later: Sight | None = None


def recorded(sees: str, protection: str) -> Sight:
    """Return what the links show to somebody who has recorded them, once X25519 can be broken.

    Parameters
    ----------
    sees : str
    protection : str
        Of what is seen: `BOTH_KEYS` does not fall with X25519.
    """
    return Sight(
        "whoever records the network today and breaks X25519 one day (a quantum computer), if the links' keys are "
        "agreed by X25519 alone",
        sees,
        protection,
    )


class ProtocolWords:
    """What a protocol may say about a run to people, from public facts alone; `run.session.Adapter` adds the rest."""

    def who_sees(self, protocol: str, parameters: Mapping[str, Any]) -> Sights | None:
        """Return who sees what, without the network; None: not stated.

        Parameters
        ----------
        protocol : str
        parameters : mapping
            Those of the report, with `masking` and `roster` added.
        """
        return None

    def about_ranges(self, protocol: str) -> str | None:
        """Return what the ranges of sizes and centres describe; None: what the last step counted."""
        return None

    def in_this_mode(self, protocol: str, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        """Return words about a run with these settings that take the place of the protocol's general ones.

        Parameters
        ----------
        protocol : str
        parameters : mapping
            Those of the report.

        Returns
        -------
        mapping
            `summary`: what the protocol does; a name of the parameters: what it means.
        """
        return {}

    def data_flow(self, protocol: str, facts: Mapping[str, Any]) -> Flow | None:
        """Return the data flow; None: not stated.

        Parameters
        ----------
        protocol : str
        facts : mapping
            The parameters of the report, with `masking`, `roster` and `align` added.
        """
        return None


def who_sees(
    protocol: str, parameters: Mapping[str, Any], *, masking: str | None = None, authenticated: bool = True
) -> Sights | None:
    """Return who sees what; None if the protocol is not installed here, does not state it, or fails.

    Parameters
    ----------
    protocol : str
    parameters : mapping
        As in report.json, or the protocol's settings; missing ones have their defaults.
    masking : {'common', 'pairwise', 'threshold'} or None
    authenticated : bool
        Whether the links use a roster.
    """
    asked = {**parameters, "masking": masking, "roster": authenticated}
    found = _ask(protocol, "who sees what", lambda words: words.who_sees(protocol, asked))
    if found is None:
        return None
    network = Sight("the network", _NETWORK_SEES, _LINKS if authenticated else _UNCHECKED)
    host = Sight(
        "people who start the processes or control a party's computer",
        "all that this party sees, its records too",
        "nothing: launcher and computers are trusted",
    )
    later = found.later or recorded("what crosses the links", "what the protocol says of its messages")
    return Sights((*found.alone, network, later), (*found.together, host), later)


def operator_words(*, masking: str | None, authenticated: bool, private: bool) -> str | None:
    """Say what the operator of a server between sites could compute where it draws the noise, and name the flag.

    Parameters
    ----------
    masking : {'common', 'pairwise', 'threshold'} or None
    authenticated : bool
        Whether there is a roster: without one the run is a demonstration.
    private : bool
        Whether there is noise.

    Returns
    -------
    str or None
        None where it could not.
    """
    return _OPERATOR if masking == "common" and authenticated and private else None


def words_in_mode(protocol: str, parameters: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the words of `ProtocolWords.in_this_mode`; none if the protocol is not installed here."""
    return _ask(protocol, "what it does", lambda words: words.in_this_mode(protocol, parameters)) or {}


def about_ranges(protocol: str) -> str | None:
    """Return what the ranges of a result describe; None if the protocol adds nothing."""
    return _ask(protocol, "what its ranges are about", lambda words: words.about_ranges(protocol))


def _ask(protocol: str, what: str, ask: Callable[[ProtocolWords], T | None]) -> T | None:
    """Ask a protocol; None if it is not installed here, does not state it, or fails."""
    try:
        return ask(read_protocol(protocol, ProtocolWords))
    except ConfigError:
        return None
    except Exception:  # a protocol of another distribution: a page without its words is better than none
        _log.warning("%s cannot say %s", protocol, what, exc_info=True)
        return None


def see_shares(parameters: Mapping[str, Any], sums: str) -> tuple[Sight, ...]:
    """Return what some see together if the clients add the noise in shares."""
    known = parameters.get("known_shares", 1)
    few = "one client" if known == 1 else f"up to {known} clients"
    return (
        Sight(f"the server and {few}", sums, NOISE),
        Sight(
            f"more than {known} of the clients, with or without the server",
            "the same, and more shares of the noise than was planned for",
            "less noise than promised; with all clients but one, one share of it",
            weaker=True,
        ),
    )
