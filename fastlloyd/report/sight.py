"""Who sees what in a run, in words, from public facts alone: for pages and for those who must approve a run.

Says in few words what the tables of docs/security.md and of the protocols' own pages say in full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_NOISE = "the noise: this is what the promise is about"
_NOTHING = "nothing"
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
        What stands between that and the records.
    """

    who: str
    sees: str
    protection: str


@dataclass(frozen=True, slots=True)
class Sights:
    """What each kind of party sees alone, and what some see who put together what they have."""

    alone: tuple[Sight, ...]
    together: tuple[Sight, ...]


def who_sees(
    protocol: str, parameters: Mapping[str, Any], *, masking: str | None = None, authenticated: bool = True
) -> Sights | None:
    """Return who sees what; None for a protocol of another distribution.

    Parameters
    ----------
    protocol : str
    parameters : mapping
        As in report.json, or the protocol's settings: what is missing counts as the default.
    masking : {'common', 'pairwise'} or None
    authenticated : bool
        Whether the links use a roster.
    """
    if protocol not in _SIGHTS:
        return None
    found = _SIGHTS[protocol](protocol, {**parameters, "masking": masking})
    network = Sight("the network", _NETWORK_SEES, _LINKS if authenticated else _UNCHECKED)
    host = Sight(
        "whoever starts the processes or rules a party's computer",
        "all that this party sees, its records too",
        "nothing: launcher and computers are trusted",
    )
    return Sights((*found.alone, network), (*found.together, host))


def _masked_sums(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    """FastLloyd and its relatives."""
    private = protocol != "lloyd"
    kind, shield = ("noisy", _NOISE) if private else ("exact", _NOTHING)
    sums = f"{kind} sums and counts of each cluster in each round, hence the centroids"
    survey = "; before that a noisy mean and spread of each feature, and a noisy number of records"
    learns = sums + (survey if protocol == "fastlloyd-plus" else "")
    clients = Sight("each client", f"its own records; {learns}", shield)
    if parameters["masking"] == "pairwise":
        return Sights((Sight("the server", f"who was included; {learns}", shield), clients), _shares(parameters, sums))
    server = Sight(
        "the server",
        "who was included; masked sums, which are random numbers to it",
        "the masks, as long as no client's masks or results reach it" + (": it knows the noise" if private else ""),
    )
    published = Sight(
        "the server and the published result",
        "the exact counts of the last round, if the server kept the noise that it drew; perhaps exact sums",
        _NOTHING,
    )
    return Sights(
        (server, clients),
        (
            Sight("the server and any one client", "each client's exact sums of each round", _NOTHING),
            *([published] if private else ()),
            Sight(
                "several clients",
                sums + "; with two clients in all, one can take its own sums away" * (not private),
                shield,
            ),
        ),
    )


def _shares(parameters: Mapping[str, Any], sums: str) -> tuple[Sight, ...]:
    """Noise in shares by the clients."""
    known = parameters.get("known_shares", 1)
    few = "one client" if known == 1 else f"up to {known} clients"
    return (
        Sight(f"the server and {few}", sums, _NOISE),
        Sight(
            f"more than {known} of the clients, with or without the server",
            "the same, and more shares of the noise than was planned for",
            "less noise than promised; with all clients but one, one share of it",
        ),
    )


def _feddp(_: str, parameters: Mapping[str, Any]) -> Sights:
    return Sights(
        (
            Sight("the server", "its own points; the noisy sums of each step, hence the centres", _NOISE),
            Sight(
                "each client",
                "its own records; the projection, the server's points projected, the centres of each step",
                "the noise, for the clients' records; nothing, for the server's points",
            ),
        ),
        _shares(parameters, "the noisy sums of each step"),
    )


def _kfed(_: str, __: Mapping[str, Any]) -> Sights:
    return Sights(
        (
            Sight("the server", "each client's own centres, each a mean of records of that client", _NOTHING),
            Sight("each client", "its own records; the merged centres", _NOTHING),
        ),
        (),
    )


def _secfc(_: str, parameters: Mapping[str, Any]) -> Sights:
    separated = parameters.get("start") == "separated"
    owners = "" if parameters.get("membership") else " and whose they are"
    centres = "; the final centres" if parameters.get("reveal_centers") else ""
    t, needed = parameters.get("threshold", "t"), "l + t"
    if isinstance(t, int) and isinstance(parameters.get("segments"), int):
        needed = str(parameters["segments"] + t)
    return Sights(
        (
            Sight(
                "the server",
                "how many records there are and how many clusters are in use; of comparisons whose record, clusters "
                "and outcome it cannot tell, how close they are, blurred by a factor of up to 2^17"
                + "; exact distances of all records from k of them"
                * separated,
                "the masks, which any client can take off",
            ),
            Sight(
                "each client",
                f"the cluster of every record in every iteration, how many records there are{owners}{centres}",
                "secret shares, for the records; nothing, for their clusters",
            ),
        ),
        (
            Sight("the server and any one client", "count all records as known", _NOTHING),
            Sight(
                "one client" if t == 1 else f"up to {t} clients",
                "what each sees alone",
                "secret shares, whatever the computing power",
            ),
            Sight(f"{needed} clients", "all records", _NOTHING),
        ),
    )


def _vertical_dp(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    private = protocol == "vertical-dp"
    columns = Sight(
        "each other party",
        "its own columns; names and bounds of all columns, which people all parties have and how many"
        + "; the final centres" * bool(parameters.get("share_result")),
        "no message about another party's columns reaches it",
    )
    if not private:
        plain = "each party's local centres and every person's local cluster, hence the final centres"
        return Sights((Sight("the server", plain, _NOTHING), columns), ())
    return Sights(
        (
            Sight(
                "the server",
                "noisy local centres and noisy sketches of each party, a noisy number of people; hence the final "
                "centres",
                _NOISE,
            ),
            columns,
        ),
        (
            Sight(
                "the server and any one party",
                "with that party's keys, in which local cluster of another party a person may be",
                "nothing, for the sketches of these pairs; the noise, for the local centres",
            ),
            Sight(
                "several parties without the server",
                "where ids were intersected, which of their own ids another party holds",
                "no message about another party's columns reaches them",
            ),
        ),
    )


def _vertical_he(_: str, parameters: Mapping[str, Any]) -> Sights:
    private = parameters.get("private", True)
    sums = "noisy" if private else "almost exact"
    shield = "the other side's noise: this is what the promise is about" if private else _NOTHING
    shared = parameters.get("mode") == "threshold"
    parties = [
        Sight("the computing party", f"its own columns if it has any; ciphertexts; {sums} sums of each round", shield),
        Sight(
            "the other party" if shared else "the key holder",
            f"its own columns; {sums} sums of each round" + "; a share of the key, which opens nothing" * shared,
            shield,
        ),
    ]
    if parameters.get("mode") == "server-aided":
        both = "both sides' noise: this is what the promise is about" if private else _NOTHING
        parties.append(Sight("each further owner", f"its own columns; {sums} sums of each round", both))
    holder = "both parties" if shared else "the computing party and the key holder"
    return Sights(tuple(parties), (Sight(holder, "everything that is encrypted", _NOTHING),))


_SIGHTS: dict[str, Callable[[str, Mapping[str, Any]], Sights]] = {
    **dict.fromkeys(("fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "lloyd"), _masked_sums),
    "feddp": _feddp,
    "kfed": _kfed,
    "secfc": _secfc,
    "vertical-dp": _vertical_dp,
    "vertical-plain": _vertical_dp,
    "vertical-he": _vertical_he,
}
