"""What stays at a site, what leaves it and who has the result, for each protocol in a sentence.

Source: docs/security.md and the protocols' own pages, "Who sees what"; docs/operations.md, "What a run writes".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CENTRES = "the released centroids and noisy sizes of the clusters"
_OWN_LABELS = (
    "each client labels its own records, in a file that only its owner can read (mode 0600). Labels are computed from "
    "the "
    "records themselves: they are not private and are sent to nobody"
)
_NO_LABELS = "no message carries the cluster of a person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nature:
    """Where data are and go.

    Attributes
    ----------
    records : str
        In which form anything of a record leaves its owner.
    labels : str
        Who comes to know the clusters of records.
    result : str
        Who has the result.
    """

    records: str
    labels: str
    result: str


def nature(protocol: str, facts: Mapping[str, Any]) -> Nature | None:
    """Return where data are and go; None for a protocol of another distribution.

    Parameters
    ----------
    protocol : str
    facts : mapping
        As for `messages`.
    """
    if protocol in ("fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "lloyd"):
        return _family(protocol, facts)
    plain = _OTHERS.get(protocol)
    if plain is None:
        return None
    if protocol == "secfc" and facts.get("reveal_centers"):
        return Nature(
            records=plain.records, labels=plain.labels, result=f"{plain.result}; the final centres: all clients"
        )
    if protocol in ("vertical-dp", "vertical-plain") and facts.get("share_result"):
        return Nature(
            records=plain.records, labels=plain.labels, result="the final centres: the server and all parties"
        )
    return plain


def _family(protocol: str, facts: Mapping[str, Any]) -> Nature:
    pairwise = facts.get("masking") == "pairwise"
    noise = "" if protocol == "lloyd" or not pairwise else " and with a share of noise"
    result = _CENTRES if protocol != "lloyd" else "the exact centroids and sizes of the clusters"
    reader = (
        "to the server this vector is random numbers; added to those of the others it gives the sums over all sites"
        if pairwise
        else "to the server this vector is random numbers, and other clients never get it"
    )
    return Nature(
        records=f"only inside one vector a round, of sums over this site's records under a mask{noise}; {reader}",
        labels=_OWN_LABELS,
        result=f"{result}: all clients"
        + (
            "; the server sees the sums that they follow from"
            if pairwise
            else "; the server gets none of it from the run"
        ),
    )


_OTHERS = {
    "feddp": Nature(
        records="only inside one vector a step, of sums over this site's records under a mask and with a share of "
        "noise. The "
        "server's own points are not protected: all clients see them, projected",
        labels=_OWN_LABELS,
        result=f"{_CENTRES}: the server and all clients",
    ),
    "kfed": Nature(
        records="as means of this site's records, without noise or mask, readable by the server; a mean of one record "
        "is that "
        "record",
        labels=_OWN_LABELS,
        result="the merged centres: the server and all clients",
    ),
    "secfc": Nature(
        records="every record leaves as secret shares, another share to each client; what is computed on shares goes "
        "to "
        ""
        ""
        ""
        ""
        ""
        "the "
        "server, masked",
        labels="every client learns the cluster of every record of all clients, in every iteration",
        result="exact sizes of the clusters: all clients",
    ),
    "vertical-dp": Nature(
        records="in one message of this party to the server: noisy centres of its own columns and noisy sketches of "
        "its "
        ""
        ""
        ""
        ""
        ""
        "own "
        "clusters",
        labels=_NO_LABELS,
        result="the final centres: the server",
    ),
    "vertical-plain": Nature(
        records="in one message of this party to the server: centres of its own columns and, of every person, the "
        "local "
        ""
        ""
        ""
        ""
        ""
        ""
        "cluster, without noise",
        labels="the server learns every person's local cluster at each party",
        result="the final centres: the server",
    ),
    "vertical-he": Nature(
        records="an owner's columns go to the computing party encrypted, and it cannot open them; what is opened are "
        "noisy sums "
        "of each round. The key holder's key (in threshold mode: both parties' shares together) could open the "
        "columns. "
        ""
        ""
        ""
        ""
        ""
        ""
        "Columns of the computing party itself do not leave it",
        labels=_NO_LABELS,
        result="the released centres: all parties",
    ),
}
