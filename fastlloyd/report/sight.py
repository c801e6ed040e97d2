"""Who sees what in a run, in words, from public facts alone: for pages and for those who must approve a run.

A protocol says what is special to it (`who_sees`); the network, computers and launchers are the same for all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fastlloyd.errors import ConfigError
from fastlloyd.protocols.registry import read_protocol
from fastlloyd.report.flow import Flow

T = TypeVar("T")
_log = logging.getLogger(__name__)

NOISE = "the noise: this is what the promise is about"
NOTHING = "nothing"
_NETWORK_SEES = "who talks to whom, when and how much; why a run ended"
_LINKS = "links are encrypted (TLS 1.3)"
_UNCHECKED = "links are encrypted, but nobody checked the keys: whoever could change traffic at the start could read it"


@dataclass(frozen=True, slots=True)
class Sight:
    """What one party, or several together, see.

    Attributes
    ----------
    who : str
    sees : str
    protection : str
        What stands between that and the records: `NOISE`, `NOTHING`, or other words.
    bare : bool
        Whether these words say that nothing protects a part of it.
    weaker : bool
        Whether less noise than promised stands there.
    public : bool
        Whether it takes one party and what is published, so that no agreement can prevent it.
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
    """What each kind of party sees alone, and what some see who put together what they have."""

    alone: tuple[Sight, ...]
    together: tuple[Sight, ...]


class Words:
    """What a protocol may say of a run to people, from public facts alone; `run.session.Adapter` is the rest of it."""

    def who_sees(self, protocol: str, parameters: Mapping[str, Any]) -> Sights | None:
        """Return who sees what, the network left out; `masking` is among the parameters. None: it does not say."""
        return None

    def about_ranges(self, protocol: str) -> str | None:
        """Say what the ranges of sizes and centres are about; None: what the last step counted."""
        return None

    def data_flow(self, protocol: str, facts: Mapping[str, Any]) -> Flow | None:
        """Return where data are and go; None: it does not say.

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
    """Return who sees what; None where the protocol is not installed here, does not say, or fails to.

    Parameters
    ----------
    protocol : str
    parameters : mapping
        As in report.json, or the protocol's settings: what is missing counts as the default.
    masking : {'common', 'pairwise'} or None
    authenticated : bool
        Whether the links use a roster.
    """
    asked = {**parameters, "masking": masking}
    found = _ask(protocol, "who sees what", lambda words: words.who_sees(protocol, asked))
    if found is None:
        return None
    network = Sight("the network", _NETWORK_SEES, _LINKS if authenticated else _UNCHECKED)
    host = Sight(
        "whoever starts the processes or rules a party's computer",
        "all that this party sees, its records too",
        "nothing: launcher and computers are trusted",
    )
    return Sights((*found.alone, network), (*found.together, host))


def about_ranges(protocol: str) -> str | None:
    """Return what the ranges of a result are about; None where the protocol has nothing to add."""
    return _ask(protocol, "what its ranges are about", lambda words: words.about_ranges(protocol))


def _ask(protocol: str, what: str, ask: Callable[[Words], T | None]) -> T | None:
    """Ask a protocol; None where it is not installed here, does not say, or fails to."""
    try:
        return ask(read_protocol(protocol, Words))
    except ConfigError:
        return None
    except Exception:  # of another distribution: a page without its words is better than none
        _log.warning("%s cannot say %s", protocol, what, exc_info=True)
        return None


def see_shares(parameters: Mapping[str, Any], sums: str) -> tuple[Sight, ...]:
    """Return what some see together where the clients add the noise in shares."""
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
