"""Sketches of columns: who sees what, and the data flow, in words for people who judge a run.

Source: docs/vertical-dp.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlloyd.protocols.vertical_dp.messages import MESSAGES
from fastlloyd.report.flow import NO_LABELS, Flow
from fastlloyd.report.sight import NOISE, NOTHING, Sight, Sights


def who_sees(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    """Return who sees what, without the network."""
    private = protocol == "vertical-dp"
    columns = Sight(
        "each other party",
        "its own columns; names and bounds of all columns, which people all parties have and how many"
        + f"; {_shown(private)}" * bool(parameters.get("share_result")),
        "no message about another party's columns reaches it",
    )
    if not private:
        plain = "each party's local centres and every person's local cluster, hence the final centres"
        return Sights((Sight("the server", plain, NOTHING), columns), ())
    return Sights(
        (
            Sight(
                "the server",
                "noisy local centres and noisy sketches of each party, a noisy number of people; hence the final "
                "centres",
                NOISE,
            ),
            columns,
        ),
        (
            Sight(
                "the server and any one party",
                "with that party's keys, the possible local clusters of a person at another party",
                "nothing, for the sketches of these pairs; the noise, for the local centres",
                bare=True,
            ),
            Sight(
                "several parties without the server",
                "where ids were intersected, which of their own ids another party holds",
                "no message about another party's columns reaches them",
            ),
        ),
    )


def data_flow(protocol: str, facts: Mapping[str, Any]) -> Flow:
    """Return the data flow."""
    private = protocol == "vertical-dp"
    one_message = "in one message of this party to the server: "
    return Flow(
        records=one_message
        + (
            "noisy centres of its own columns and noisy sketches of its own clusters"
            if private
            else "centres of its own columns and, of every person, the local cluster, without noise"
        ),
        labels=NO_LABELS if private else "the server learns every person's local cluster at each party",
        result=f"{_shown(private)}: the server" + " and all parties" * bool(facts.get("share_result")),
        messages=MESSAGES,
        readers=("server", "other parties"),
    )


def _shown(private: bool) -> str:
    """Return the parts of the result."""
    return "the final centres" + ", estimated sizes, and how far off both may be" * private
