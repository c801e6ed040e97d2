"""The messages that several protocols share.

Source: docs/security.md, "Who sees what".
"""

from __future__ import annotations

from dataclasses import replace

from fastlloyd.report.flow import ACROSS, DOWN, UP, MessageClass, common, pairwise
from fastlloyd.wire import numbers

START = MessageClass(
    name="START, VERDICT, ABORT, DONE",
    about="who is ready, and how the run ended",
    route="client, server",
    server="rank, reason, code, run id",
    others="the verdict: rank, reason, code",
)
CERTIFICATE = MessageClass(
    name="CERTIFICATE (no roster)",
    about="the keys of a demonstration, which nobody has checked",
    route="any pair",
    server="the certificate",
    others="the certificate",
    when=lambda facts: not facts.get("roster"),
)
CONFIRMATION = MessageClass(
    name="confirmation",
    about="that both ends have the same public values",
    route="any pair",
    server="the client's public configuration",
    others="its digest, and the server's public configuration",
)
HELLO = MessageClass(
    name="Hello",
    about="introduces a client",
    route=UP,
    server="feature names, rounds done",
    others="- (the names come back in the plan)",
    types=(numbers.HELLO,),
)
PLAN_PROPOSAL = MessageClass(
    name="PlanProposal",
    about="the plan of the run",
    route=DOWN,
    server="public plan",
    others="public plan",
    types=(numbers.PLAN_PROPOSAL,),
)
SEED = MessageClass(
    name="SeedContribution, SeedConfirmation",
    about="agree on the seed of the masks",
    route=ACROSS,
    server="nothing",
    others="32 bytes each, hence the seed",
    types=(numbers.SEED_CONTRIBUTION, numbers.SEED_CONFIRMATION),
    when=common,
)
SEALED_UP = MessageClass(
    name="SealKey, SealedParts",
    about="agree on the seed of the masks: keys of this run, and parts sealed for the other clients",
    route=UP,
    server="public keys, and parts that it cannot open",
    others="- (they come back in SealKeys and SealedSeed)",
    types=(numbers.SEAL_KEY, numbers.SEALED_PARTS),
    when=common,
)
SEALED_DOWN = MessageClass(
    name="SealKeys, SealedSeed",
    about="the same, passed on to the clients that they are for",
    route=DOWN,
    server="public keys, and parts that it cannot open",
    others="32 bytes from each that contributes, hence the seed",
    types=(numbers.SEAL_KEYS, numbers.SEALED_SEED),
    when=common,
)
ALIKE = MessageClass(
    name="AlikeTag, AlikeProof",
    about="find out that all clients have the same seed, and in the end that all were told, and have, the same",
    route="client, server",
    server="random numbers: whether the clients have the same seed, were told the same, and have the same result",
    others="that all have the same, or who differs as the server says",
    types=(numbers.ALIKE_TAG, numbers.ALIKE_PROOF),
    when=common,
)
PAIRS = MessageClass(
    name="PairPublicKey, its confirmation (pairwise)",
    about="agree on the masks of each pair of clients",
    route=ACROSS,
    server="nothing",
    others="a public key and a tag each, hence their pair's secret and no other pair's",
    types=(numbers.PAIR_PUBLIC_KEY, numbers.SEED_CONFIRMATION),
    when=pairwise,
)
READY = MessageClass(
    name="Ready",
    about="the set-up is done",
    route=UP,
    server="that it is ready",
    others="-",
    types=(numbers.READY,),
)
COLUMNS = MessageClass(
    name="Columns",
    about="names and bounds of this party's columns",
    route="party to server",
    server="names and bounds of its columns",
    others="the same, in the plan",
    types=(numbers.COLUMNS,),
)
CHAINS = MessageClass(
    name="Chains",
    about="compare what all were told, and the result",
    route=ACROSS,
    server="nothing",
    others="digests of what the sender was told, and of the result, with what opens its signature",
    types=(numbers.CHAINS,),
)
CHAINS_OF_ALL = replace(
    CHAINS,
    name="Chains (the server has the result)",
    route="any pair",
    server="digests of what it sent, and of the result that it has",
)
"""Of a protocol whose server has the result as well."""
CHAINS_OF_PAIRS = replace(CHAINS, when=pairwise)
"""Of a protocol that compares through the server where masks are common."""
COUNTERS = MessageClass(
    name="Counters, Totals",
    about="who sent how much, and the signatures of all",
    route="client, server",
    server="traffic counts and signatures of all parties, which tell it nothing of a result that it has not",
    others="the same",
    types=(numbers.COUNTERS, numbers.TOTALS),
)
BEGINNING = (START, CERTIFICATE, CONFIRMATION)
"""What links of every protocol carry first."""
