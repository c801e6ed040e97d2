"""What leaves a party, in which form, and who can read it: one row for each class of messages of each protocol.

The tables "Who sees what" of the documents have the same rows, and a test compares them word by word. Another test lets
every protocol run and looks at each message that is sent.

Source: docs/security.md and the protocols' own pages, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastlloyd.wire import numbers

_SECURITY, _FEDDP, _SECFC = "security.md", "feddp.md", "secfc.md"
_VERTICAL_DP, _VERTICAL_HE = "vertical-dp.md", "vertical-he-privacy.md"
_FAMILY = ("fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "lloyd")
_PRIVATE_FAMILY = _FAMILY[:-1]
_SKETCHES = ("vertical-dp", "vertical-plain")
_HORIZONTAL = (*_FAMILY, "feddp", "kfed", "secfc")
_VERTICAL = (*_SKETCHES, "vertical-he")
_ALL = (*_HORIZONTAL, *_VERTICAL)
_UP, _DOWN, _ACROSS = "client to server", "server to clients", "client to client"
_OWNERS = "party to party"


def _always(facts: Mapping[str, Any]) -> bool:
    return True


def _pairwise(facts: Mapping[str, Any]) -> bool:
    return facts.get("masking") == "pairwise"


def _common(facts: Mapping[str, Any]) -> bool:
    return not _pairwise(facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One class of messages.

    Attributes
    ----------
    name : str
        As the protocol's pages call it.
    about : str
        What it is for, in plain words.
    route : str
        From whom to whom.
    server : str
        What the server (rank 0) can read in it; in vertical-he the computing party.
    others : str
        What another party can read in it; in vertical-he the key holder and further owners.
    types : tuple of int
        Its numbers in `wire.numbers`; empty for frames that are no message of a protocol.
    page : str
        The document that has this row.
    protocols : tuple of str
    when : callable
        Whether it is sent at all, from the run's public facts.
    """

    name: str
    about: str
    route: str
    server: str
    others: str
    types: tuple[int, ...] = ()
    page: str = _SECURITY
    protocols: tuple[str, ...] = _ALL
    when: Callable[[Mapping[str, Any]], bool] = field(default=_always, repr=False)


def messages(protocol: str, facts: Mapping[str, Any]) -> Iterator[Message]:
    """Yield the messages of a run.

    Parameters
    ----------
    protocol : str
    facts : mapping
        The parameters of the report, with `masking`, `roster` (whether there is one) and `align` added.
    """
    return (one for one in MESSAGES if protocol in one.protocols and one.when(facts))


MESSAGES = (
    Message(
        name="START, VERDICT, ABORT, DONE",
        about="who is ready, and how the run ended",
        route="client, server",
        server="rank, reason, code, run id",
        others="the verdict: rank, reason, code",
    ),
    Message(
        name="CERTIFICATE (no roster)",
        about="the keys of a demonstration, which nobody has checked",
        route="any pair",
        server="the certificate",
        others="the certificate",
        when=lambda facts: not facts.get("roster"),
    ),
    Message(
        name="confirmation",
        about="that both ends have the same public values",
        route="any pair",
        server="digest of the public configuration",
        others="the same",
    ),
    Message(
        name="Hello",
        about="introduces a client",
        route=_UP,
        server="feature names, rounds done",
        others="- (the names come back in the plan)",
        types=(numbers.HELLO,),
        protocols=_HORIZONTAL,
    ),
    Message(
        name="PlanProposal",
        about="the plan of the run",
        route=_DOWN,
        server="public plan",
        others="public plan",
        types=(numbers.PLAN_PROPOSAL,),
    ),
    Message(
        name="SeedContribution, SeedConfirmation",
        about="agree on the seed of the masks",
        route=_ACROSS,
        server="nothing",
        others="32 bytes each, hence the seed",
        types=(numbers.SEED_CONTRIBUTION, numbers.SEED_CONFIRMATION),
        protocols=(*_FAMILY, "secfc"),
        when=_common,
    ),
    Message(
        name="PairPublicKey, its confirmation (pairwise)",
        about="agree on the masks of each pair of clients",
        route=_ACROSS,
        server="nothing",
        others="a public key and a tag each, hence their pair's secret and no other pair's",
        types=(numbers.PAIR_PUBLIC_KEY, numbers.SEED_CONFIRMATION),
        protocols=(*_FAMILY, "feddp"),
        when=_pairwise,
    ),
    Message(
        name="Ready",
        about="the set-up is done",
        route=_UP,
        server="that it is ready",
        others="-",
        types=(numbers.READY,),
    ),
    Message(
        name="Go",
        about="all have prepared what they send",
        route=_DOWN,
        server="that all are ready",
        others="the same",
        types=(numbers.GO,),
        protocols=_SKETCHES,
    ),
    Message(
        name="MaskedUpdate",
        about="this site's contribution to a round: sums over its records, under a mask",
        route=_UP,
        server="uniform random ring elements",
        others="never sent to them",
        types=(numbers.MASKED_UPDATE,),
        protocols=_FAMILY,
    ),
    Message(
        name="NoisyMaskedSum",
        about="the sum over all sites, with noise, still under masks",
        route=_DOWN,
        server="what it computed: uniform random",
        others="after unmasking: noisy sums and counts",
        types=(numbers.NOISY_MASKED_SUM,),
        protocols=_PRIVATE_FAMILY,
        when=_common,
    ),
    Message(
        name="NoisyMaskedSum (pairwise)",
        about="the noisy sum over all sites",
        route=_DOWN,
        server="the noisy sums and counts, hence the centroids",
        others="the same",
        types=(numbers.NOISY_MASKED_SUM,),
        protocols=_PRIVATE_FAMILY,
        when=_pairwise,
    ),
    Message(
        name="NoisyMaskedSum (lloyd)",
        about="the sum over all sites, without noise, still under masks",
        route=_DOWN,
        server="what it computed: uniform random",
        others="after unmasking: exact sums and counts",
        types=(numbers.NOISY_MASKED_SUM,),
        protocols=("lloyd",),
        when=_common,
    ),
    Message(
        name="NoisyMaskedSum (lloyd, pairwise)",
        about="the sum over all sites, without noise",
        route=_DOWN,
        server="the exact sums and counts, hence the centroids",
        others="the same",
        types=(numbers.NOISY_MASKED_SUM,),
        protocols=("lloyd",),
        when=_pairwise,
    ),
    Message(
        name="LocalCenters (kfed)",
        about="the centres of this site's own records",
        route=_UP,
        server="means of the client's records",
        others="never sent to them",
        types=(numbers.LOCAL_CENTERS,),
        protocols=("kfed",),
    ),
    Message(
        name="MergedCenters (kfed)",
        about="the result",
        route=_DOWN,
        server="what it computed",
        others="the merged centres",
        types=(numbers.MERGED_CENTERS,),
        protocols=("kfed",),
    ),
    Message(
        name="MaskedStatistic",
        about="this site's contribution to a step: sums over its records with a share of noise, under a mask",
        route=_UP,
        server="uniform random ring elements; of all clients together the noisy sums of the step",
        others="never sent to them",
        types=(numbers.MASKED_STATISTIC,),
        page=_FEDDP,
        protocols=("feddp",),
    ),
    Message(
        name="ProjectionMessage",
        about="the directions in which the records differ most",
        route=_DOWN,
        server="what it computed",
        others="the projection, the server's points projected",
        types=(numbers.PROJECTION_MESSAGE,),
        page=_FEDDP,
        protocols=("feddp",),
        when=lambda facts: facts.get("start", "feddp") == "feddp",
    ),
    Message(
        name="ProjectedCentersMessage",
        about="first centres, projected",
        route=_DOWN,
        server="what it computed",
        others="projected centres; with a choice of k the costs that it was chosen by",
        types=(numbers.PROJECTED_CENTERS_MESSAGE,),
        page=_FEDDP,
        protocols=("feddp",),
        when=lambda facts: facts.get("start", "feddp") == "feddp",
    ),
    Message(
        name="CentersMessage",
        about="the centres after a step",
        route=_DOWN,
        server="what it computed",
        others="centres and noisy counts",
        types=(numbers.CENTERS_MESSAGE,),
        page=_FEDDP,
        protocols=("feddp",),
    ),
    Message(
        name="Size",
        about="how many records this site brings",
        route=_UP,
        server="number of records of each client, or its public padded size",
        others="the same, in the plan",
        types=(numbers.SIZE,),
        page=_SECFC,
        protocols=("secfc",),
    ),
    Message(
        name="LayerPublicKey, SealedTags, Union (membership)",
        about="hide whose a record is",
        route=_ACROSS,
        server="nothing",
        others="random tags of all records, in no client's order; the last client: how many are padding",
        types=(numbers.LAYER_PUBLIC_KEY, numbers.SEALED_TAGS, numbers.UNION),
        page=_SECFC,
        protocols=("secfc",),
        when=lambda facts: bool(facts.get("membership")),
    ),
    Message(
        name="DataShares",
        about="a secret share of every record of this site, another one for each client",
        route=_ACROSS,
        server="nothing",
        others="one share of each record, as good as random for any t clients together",
        types=(numbers.DATA_SHARES,),
        page=_SECFC,
        protocols=("secfc",),
    ),
    Message(
        name="Shared",
        about="the shares are there",
        route=_UP,
        server="number of records of all clients",
        others="-",
        types=(numbers.SHARED,),
        page=_SECFC,
        protocols=("secfc",),
    ),
    Message(
        name="CodedValues",
        about="comparisons of distances, computed on shares, masked, blurred and in a secret order",
        route=_UP,
        server="with the others: how close comparisons are, but for a factor of up to 2^17, of records and clusters "
        "that it cannot tell; how many clusters are in use",
        others="never sent to them",
        types=(numbers.CODED_VALUES,),
        page=_SECFC,
        protocols=("secfc",),
    ),
    Message(
        name="Signs",
        about="the outcome of the comparisons",
        route=_DOWN,
        server="fair coins",
        others="who won each comparison, hence the cluster of every record, in every iteration",
        types=(numbers.SIGNS,),
        page=_SECFC,
        protocols=("secfc",),
    ),
    Message(
        name="Finished",
        about="the last assignment came",
        route=_UP,
        server="that it came",
        others="-",
        types=(numbers.FINISHED,),
        page=_SECFC,
        protocols=("secfc",),
    ),
    Message(
        name="Assignment (start=separated)",
        about="the first groups",
        route=_DOWN,
        server="what it computed from exact distances",
        others="which records were chosen, the first groups",
        types=(numbers.ASSIGNMENT,),
        page=_SECFC,
        protocols=("secfc",),
        when=lambda facts: facts.get("start") == "separated",
    ),
    Message(
        name="Roll, CenterShares (reveal)",
        about="open the final centres to the clients",
        route="server; client to client",
        server="who was there",
        others="the sums, hence the centres, of the final clusters",
        types=(numbers.ROLL, numbers.CENTER_SHARES),
        page=_SECFC,
        protocols=("secfc",),
        when=lambda facts: bool(facts.get("reveal_centers")),
    ),
    Message(
        name="Columns",
        about="names and bounds of this party's columns",
        route="party to server",
        server="names and bounds of its columns",
        others="the same, in the plan",
        types=(numbers.COLUMNS,),
        page=_VERTICAL_DP,
        protocols=_VERTICAL,
    ),
    Message(
        name="PairPublicKey, confirmation; SeedContribution",
        about="agree on the keys of each pair of parties",
        route=_OWNERS,
        server="nothing",
        others="what makes the pair's secret (with weights=basic: the common seed)",
        types=(numbers.PAIR_PUBLIC_KEY, numbers.SEED_CONFIRMATION, numbers.SEED_CONTRIBUTION),
        page=_VERTICAL_DP,
        protocols=_SKETCHES,
    ),
    Message(
        name="IdTag",
        about="compare the lists of ids",
        route=_OWNERS,
        server="nothing, but that the run ends if ids differ",
        others="whether its ids equal the sender's",
        types=(numbers.ID_TAG,),
        page=_VERTICAL_DP,
        protocols=_SKETCHES,
    ),
    Message(
        name="BlindedIds, OpenedIds (intersect)",
        about="find the people whom all parties have",
        route=_OWNERS,
        server="nothing: not even the number of common ids",
        others="the common ids (see below)",
        types=(numbers.BLINDED_IDS, numbers.OPENED_IDS),
        page=_VERTICAL_DP,
        protocols=_SKETCHES,
        when=lambda facts: facts.get("align") == "intersect",
    ),
    Message(
        name="Synopsis",
        about="this party's one message about its columns",
        route="party to server",
        server="noisy local centres, private sketches, from party 1 the noisy number of users",
        others="never sent to them",
        types=(numbers.SYNOPSIS,),
        page=_VERTICAL_DP,
        protocols=("vertical-dp",),
    ),
    Message(
        name="Synopsis (vertical-plain)",
        about="this party's one message about its columns",
        route="party to server",
        server="local centres without noise, and every person's local cluster",
        others="never sent to them",
        types=(numbers.SYNOPSIS,),
        page=_VERTICAL_DP,
        protocols=("vertical-plain",),
    ),
    Message(
        name="FinalCenters",
        about="the result",
        route="server to parties",
        server="what it computed",
        others="nothing; with share_result the final centres",
        types=(numbers.FINAL_CENTERS,),
        page=_VERTICAL_DP,
        protocols=_SKETCHES,
    ),
    Message(
        name="PairPublicKey, confirmation",
        about="agree on a secret to compare ids with",
        route="owner to owner",
        server="nothing, unless it holds columns: then as the others",
        others="what makes the pair's secret",
        types=(numbers.PAIR_PUBLIC_KEY, numbers.SEED_CONFIRMATION),
        page=_VERTICAL_HE,
        protocols=("vertical-he",),
    ),
    Message(
        name="IdTag",
        about="compare the lists of ids",
        route="owner to owner",
        server="nothing, unless it holds columns: then as the others",
        others="whether its ids equal the sender's",
        types=(numbers.ID_TAG,),
        page=_VERTICAL_HE,
        protocols=("vertical-he",),
    ),
    Message(
        name="BlindedIds, OpenedIds (intersect)",
        about="find the people whom all parties have",
        route="owner to owner",
        server="nothing, unless it holds columns: then as the others",
        others="the common ids",
        types=(numbers.BLINDED_IDS, numbers.OPENED_IDS),
        page=_VERTICAL_HE,
        protocols=("vertical-he",),
        when=lambda facts: facts.get("align") == "intersect",
    ),
    Message(
        name="Count",
        about="how many records this owner has",
        route="owner to rank 0",
        server="the number of common records",
        others="the same, in the plan",
        types=(numbers.COUNT,),
        page=_VERTICAL_HE,
        protocols=("vertical-he",),
    ),
    Message(
        name="KeyMaterial",
        about="public keys",
        route="key holder to computing party and owners",
        server="public keys",
        others="public keys",
        types=(numbers.KEY_MATERIAL,),
        page=_VERTICAL_HE,
        protocols=("vertical-he",),
    ),
    Message(
        name="EncryptedBlock",
        about="an owner's columns, encrypted",
        route="owner to computing party",
        server="ciphertexts that the computing party cannot open",
        others="never sent to them (the key holder could open them)",
        types=(numbers.ENCRYPTED_BLOCK,),
        page=_VERTICAL_HE,
        protocols=("vertical-he",),
    ),
    Message(
        name="NoisySamples",
        about="the sums of a round, encrypted, with the computing party's noise",
        route="computing party to key holder",
        server="what the computing party made: ciphertexts",
        others="the key holder: sums with the computing party's noise",
        types=(numbers.NOISY_SAMPLES,),
        page=_VERTICAL_HE,
        protocols=("vertical-he",),
    ),
    Message(
        name="NoisySums",
        about="the sums of a round, opened, with the noise of both sides",
        route="key holder to all",
        server="sums with both sides' noise, hence with the key holder's alone",
        others="sums with both sides' noise; the key holder: with the computing party's alone",
        types=(numbers.NOISY_SUMS,),
        page=_VERTICAL_HE,
        protocols=("vertical-he",),
    ),
    Message(
        name="Chains (every party)",
        about="compare what all were told",
        route="party to party",
        server="digests of what the sender was told",
        others="the same",
        types=(numbers.CHAINS,),
        page=_VERTICAL_HE,
        protocols=("vertical-he",),
    ),
    Message(
        name="Chains",
        about="compare what all were told",
        route=_ACROSS,
        server="nothing",
        others="digests of what the sender was told",
        types=(numbers.CHAINS,),
        protocols=(*_HORIZONTAL, *_SKETCHES),
    ),
    Message(
        name="Counters, Totals",
        about="who sent how much, and the signatures of all",
        route="client, server",
        server="traffic counts and signatures of all parties",
        others="the same",
        types=(numbers.COUNTERS, numbers.TOTALS),
    ),
)
