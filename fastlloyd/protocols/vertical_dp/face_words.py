"""Sketches of columns: who sees what, where data go and in which messages, in words for those who judge a run.

Source: docs/vertical-dp.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastlloyd.dossier.shared_messages import BEGINNING, CHAINS, CHAINS_OF_ALL, COLUMNS, COUNTERS, PLAN_PROPOSAL, READY
from fastlloyd.report.flow import DOWN, NO_LABELS, Flow, MessageClass
from fastlloyd.report.sight import NOISE, NOTHING, Sight, Sights
from fastlloyd.wire import numbers

_GO = MessageClass(
    name="Go",
    about="all have prepared what they send",
    route=DOWN,
    server="that all are ready",
    others="the same",
    types=(numbers.GO,),
)
_BEFORE = (
    MessageClass(
        name="PairPublicKey, confirmation; SeedContribution",
        about="agree on the keys of each pair of parties",
        route="party to party",
        server="nothing",
        others="what makes the pair's secret (with weights=basic: the common seed)",
        types=(numbers.PAIR_PUBLIC_KEY, numbers.SEED_CONFIRMATION, numbers.SEED_CONTRIBUTION),
    ),
    MessageClass(
        name="IdTag",
        about="compare the lists of ids",
        route="party to party",
        server="nothing, but that the run ends if ids differ",
        others="whether its ids equal the sender's",
        types=(numbers.ID_TAG,),
    ),
    MessageClass(
        name="BlindedIds, OpenedIds (intersect)",
        about="find the people whom all parties have",
        route="party to party",
        server="nothing; all lists have N points, so not the number of common ids either",
        others="the common ids (see below)",
        types=(numbers.BLINDED_IDS, numbers.OPENED_IDS),
        when=lambda facts: facts.get("align") == "intersect",
    ),
)
_SYNOPSIS = MessageClass(
    name="Synopsis",
    about="this party's one message about its columns",
    route="party to server",
    server="noisy local centres, private sketches, from party 1 the noisy number of users",
    others="never sent to them",
    types=(numbers.SYNOPSIS,),
)
_PLAIN_SYNOPSIS = MessageClass(
    name="Synopsis (vertical-plain)",
    about="this party's one message about its columns",
    route="party to server",
    server="local centres without noise, and every person's local cluster",
    others="never sent to them",
    types=(numbers.SYNOPSIS,),
)
_FINAL = MessageClass(
    name="FinalResult",
    about="the result",
    route="server to parties",
    server="what it computed",
    others="nothing; with share_result the result",
    types=(numbers.FINAL_RESULT,),
)


def who_sees(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    """Return who sees what, the network left out."""
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
                "with that party's keys, in which local cluster of another party a person may be",
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
    """Return where data are and go."""
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
        messages=(
            *BEGINNING,
            PLAN_PROPOSAL,
            READY,
            _GO,
            COLUMNS,
            *_BEFORE,
            _SYNOPSIS if private else _PLAIN_SYNOPSIS,
            _FINAL,
            replace(CHAINS, when=lambda facts: not facts.get("share_result")),
            replace(CHAINS_OF_ALL, when=lambda facts: bool(facts.get("share_result"))),
            COUNTERS,
        ),
        readers=("server", "other parties"),
    )


def _shown(private: bool) -> str:
    """Say what the result is made of."""
    return "the final centres" + ", estimated sizes, and how far off both may be" * private
