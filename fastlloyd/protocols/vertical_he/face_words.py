"""k-means on encrypted columns: who sees what, where data go and in which messages, in words for those who judge a run.

Source: docs/vertical-he-privacy.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlloyd.dossier.shared_messages import BEGINNING, COLUMNS, COUNTERS, PLAN_PROPOSAL, READY
from fastlloyd.errors import format_count
from fastlloyd.protocols.vertical_he.parameters import PAIRWISE, THRESHOLD
from fastlloyd.report.flow import NO_LABELS, Flow, MessageClass
from fastlloyd.report.sight import NOTHING, Sight, Sights
from fastlloyd.wire import numbers


def _contributes(facts: Mapping[str, Any]) -> bool:
    """Whether parties contribute to a shared key: two whose scheme needs no relinearisation key need not."""
    return _threshold(facts) and (_several(facts) or facts.get("scheme") == PAIRWISE)


def _fewer(facts: Mapping[str, Any]) -> bool:
    """Whether fewer parties than all can open."""
    wanted = facts.get("threshold")
    return _opened_in_parts(facts) and wanted is not None and wanted != facts.get("parties")


def _opened_in_parts(facts: Mapping[str, Any]) -> bool:
    """Whether more than two parties share the key."""
    return _threshold(facts) and _several(facts)


def _shared_by_two(facts: Mapping[str, Any]) -> bool:
    """Whether two parties share the key: then neither of them is its holder."""
    return _threshold(facts) and not _several(facts)


def _held(facts: Mapping[str, Any]) -> bool:
    """Whether one party holds the key."""
    return not _threshold(facts)


def _threshold(facts: Mapping[str, Any]) -> bool:
    return bool(facts.get("mode") == THRESHOLD)


def _several(facts: Mapping[str, Any]) -> bool:
    return bool(facts.get("parties", 3) > 2)


_OWN = (
    MessageClass(
        name="PairPublicKey, confirmation",
        about="agree on a secret to compare ids with",
        route="owner to owner",
        server="nothing, unless it holds columns: then as the others",
        others="what makes the pair's secret",
        types=(numbers.PAIR_PUBLIC_KEY, numbers.SEED_CONFIRMATION),
    ),
    MessageClass(
        name="IdTag",
        about="compare the lists of ids",
        route="owner to owner",
        server="nothing, unless it holds columns: then as the others",
        others="whether its ids equal the sender's",
        types=(numbers.ID_TAG,),
    ),
    MessageClass(
        name="BlindedIds, OpenedIds (intersect)",
        about="find the people whom all parties have",
        route="owner to owner",
        server="nothing, unless it holds columns: then as the others",
        others="the common ids",
        types=(numbers.BLINDED_IDS, numbers.OPENED_IDS),
        when=lambda facts: facts.get("align") == "intersect",
    ),
    MessageClass(
        name="Count",
        about="how many records this owner has",
        route="owner to rank 0",
        server="the number of common records",
        others="-",
        types=(numbers.COUNT,),
    ),
    MessageClass(
        name="KeyMaterial",
        about="public keys",
        route="key holder to computing party and owners",
        server="public keys",
        others="public keys",
        types=(numbers.KEY_MATERIAL,),
        when=_held,
    ),
    MessageClass(
        name="KeyMaterial (threshold, two)",
        about="what a shared key begins with, and the common public keys",
        route="each of the two to the other",
        server="public keys",
        others="public keys",
        types=(numbers.KEY_MATERIAL,),
        when=_shared_by_two,
    ),
    MessageClass(
        name="KeyMaterial (threshold, more than two)",
        about="what a shared key begins with, and the common public keys",
        route="computing party to owners",
        server="public keys",
        others="public keys",
        types=(numbers.KEY_MATERIAL,),
        when=_opened_in_parts,
    ),
    MessageClass(
        name="KeyContribution (threshold)",
        about="one party's part of the common keys",
        route="party to computing party",
        server="what looks random without the sender's share of the key",
        others="never sent to them",
        types=(numbers.KEY_CONTRIBUTION,),
        when=_contributes,
    ),
    MessageClass(
        name="KeyPiece (threshold)",
        about="a piece of the key that a group of owners shares, and its noise",
        route="owner to owner of its group",
        server="never sent to it",
        others="the piece and its noise, which are the group's",
        types=(numbers.KEY_PIECE,),
        when=_fewer,
    ),
    MessageClass(
        name="EncryptedBlock",
        about="an owner's columns, encrypted",
        route="owner to computing party",
        server="ciphertexts that the computing party cannot open",
        others="never sent to them (the key holder could open them)",
        types=(numbers.ENCRYPTED_BLOCK,),
        when=_held,
    ),
    MessageClass(
        name="EncryptedBlock (threshold)",
        about="an owner's columns, encrypted",
        route="owner to computing party",
        server="ciphertexts that the computing party cannot open",
        others="never sent to them (as many shares of the key as it takes, put together, could open them)",
        types=(numbers.ENCRYPTED_BLOCK,),
        when=_threshold,
    ),
    MessageClass(
        name="NoisySamples",
        about="the sums of a round, encrypted, with the computing party's noise",
        route="computing party to key holder",
        server="what the computing party made: ciphertexts",
        others="the key holder: sums with the computing party's noise",
        types=(numbers.NOISY_SAMPLES,),
        when=_held,
    ),
    MessageClass(
        name="NoisySamples (threshold, two)",
        about="the sums of a round, opened in part, with the computing party's noise",
        route="computing party to the other",
        server="what the computing party made: ciphertexts",
        others="sums with the computing party's noise",
        types=(numbers.NOISY_SAMPLES,),
        when=_shared_by_two,
    ),
    MessageClass(
        name="NoisySamples (threshold, more than two)",
        about="what the others need to make their parts of opening a round's sums",
        route="computing party to owners",
        server="what the computing party made: ciphertexts",
        others="the vectors of ciphertexts, without the numbers that the sums are in",
        types=(numbers.NOISY_SAMPLES,),
        when=_opened_in_parts,
    ),
    MessageClass(
        name="PartialOpenings (threshold)",
        about="one party's part of opening a round's sums, with its noise",
        route="owner to computing party",
        server="sums with the noise of all others",
        others="never sent to them",
        types=(numbers.PARTIAL_OPENINGS,),
        when=_opened_in_parts,
    ),
    MessageClass(
        name="NoisySums",
        about="the sums of a round, opened, with the noise of both sides",
        route="key holder to all",
        server="sums with both sides' noise, hence with the key holder's alone",
        others="sums with both sides' noise; the key holder: with the computing party's alone",
        types=(numbers.NOISY_SUMS,),
        when=_held,
    ),
    MessageClass(
        name="NoisySums (threshold, two)",
        about="the sums of a round, opened, with the noise of both sides",
        route="the other party to computing party",
        server="sums with both sides' noise, hence with the other party's alone",
        others="sums with both sides' noise, hence with the computing party's alone",
        types=(numbers.NOISY_SUMS,),
        when=_shared_by_two,
    ),
    MessageClass(
        name="NoisySums (threshold, more than two)",
        about="the sums of a round, opened, with the noise of all pieces of the key",
        route="computing party to owners",
        server="sums with all noise, part of which it does not know",
        others="the same",
        types=(numbers.NOISY_SUMS,),
        when=_opened_in_parts,
    ),
    MessageClass(
        name="Present (threshold)",
        about="who helped to open the last round",
        route="computing party to owners",
        server="nothing new",
        others="who is there",
        types=(numbers.PRESENT,),
        when=_opened_in_parts,
    ),
    MessageClass(
        name="Chains (every party)",
        about="compare what all were told, and the result",
        route="party to party",
        server="digests of what the sender was told, and of the result",
        others="the same",
        types=(numbers.CHAINS,),
    ),
)


def who_sees(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    """Return who sees what, the network left out."""
    private = parameters.get("private", True)
    sums = "noisy" if private else "almost exact"
    shared, several = parameters.get("mode") == THRESHOLD, _several(parameters)
    whose = "noise that it does not know" if shared and several else "the other side's noise"
    shield = f"{whose}: this is what the promise is about" if private else NOTHING
    parties = [
        Sight("the computing party", f"its own columns if it has any; ciphertexts; {sums} sums of each round", shield),
        Sight(
            ("each other party" if several else "the other party") if shared else "the key holder",
            f"its own columns; {sums} sums of each round" + "; a share of the key, which opens nothing" * shared,
            shield,
        ),
    ]
    if parameters.get("mode") == "server-aided":
        both = "both sides' noise: this is what the promise is about" if private else NOTHING
        parties.append(Sight("each further owner", f"its own columns; {sums} sums of each round", both))
    holder = ("all parties" if several else "both parties") if shared else "the computing party and the key holder"
    needed = parameters.get("threshold")
    if several and needed and needed != parameters.get("parties"):
        holder = f"the computing party and {format_count(needed - 1, 'other owner')}"
    return Sights(tuple(parties), (Sight(holder, "everything that is encrypted", NOTHING),))


def data_flow(protocol: str, facts: Mapping[str, Any]) -> Flow:
    """Return where data are and go."""
    key, rest = "The key holder's key", "key holder, further owners"
    if _threshold(facts):
        key = "The shares of rank 0 and t - 1 owners together (of all parties unless a threshold t is set)"
        rest = "other parties" if _several(facts) else "other party"
    return Flow(
        records="an owner's columns go to the computing party encrypted, and it cannot open them; what is opened are "
        f"noisy sums of each round. {key} could open the columns. Columns of the computing party itself do not "
        "leave it",
        labels=NO_LABELS,
        result="the released centres: all parties",
        messages=(*BEGINNING, PLAN_PROPOSAL, READY, COLUMNS, *_OWN, COUNTERS),
        readers=("computing party", rest),
    )
