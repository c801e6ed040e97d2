"""The base of protocols whose rounds are noisy masked sums: masks, noise, messages, and who sees what.

A protocol says what stands in its plan, what noise its rounds have, and what its clients compute. The server adds up
masked vectors and noise. With pairwise masking the clients add the noise, in shares.

Source: FastLloyd, §5.3.4, Figure 1; docs/protocol.md, "Masks"; docs/security.md, "Who sees what".
"""

from __future__ import annotations

import typing
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastlloyd.lifecycle.masked_sums import MESSAGES, MaskedPlan, NoisyMaskedSum, Served, bounds, server, vector_format
from fastlloyd.lifecycle.rounds import Draw, StoredRounds
from fastlloyd.lifecycle.threshold.client import DrawParts, ThresholdMasks
from fastlloyd.lifecycle.threshold.server import ServerOpening
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import MaskGenerator, Masks
from fastlloyd.masking.pairwise import PairwiseMasks
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.party.declaration import MessageBounds, pairwise, threshold
from fastlloyd.party.effects import Party
from fastlloyd.party.message import recall
from fastlloyd.privacy.accountant import SAMPLER_DELTA
from fastlloyd.privacy.calibration import gaussian_noise_multiplier, paper_delta, settle_delta
from fastlloyd.privacy.shares import zcdp_noise_multiplier
from fastlloyd.protocol.horizontal import Horizontal
from fastlloyd.protocol.threshold import threshold_against, threshold_condition, threshold_lines, threshold_sights
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.claim import Claim
from fastlloyd.report.outlook import PlanLine
from fastlloyd.report.sight import (
    BOTH_KEYS,
    NOISE,
    NOTHING,
    OWN_LABELS,
    RELEASED,
    Flow,
    Sight,
    Sights,
    operator_words,
    recorded,
    see_shares,
)
from fastlloyd.run.config import RunConfig
from fastlloyd.run.horizontal import Begun, HorizontalPlan, MaskAgreement, relay_threshold
from fastlloyd.run.inputs import fill_public, settle_clients
from fastlloyd.run.session import Session
from fastlloyd.wire.header import PartyId

_AGAINST = (
    "any single other client, over all messages to it (not against the server: it gets masked vectors, but knows the "
    "noise, and can take it off where a client's masks or the result reach it)"
)
_PUBLISHED = (
    "the exact sums of the last round, where the result shows the noisy ones and the server kept the noise that it drew"
)


class NoisyPlan(HorizontalPlan, MaskedPlan, typing.Protocol):
    """What the plan of noisy masked sums says besides."""

    @property
    def delta(self) -> float:
        """Of the whole run; 0 for pure epsilon."""

    @property
    def epsilon(self) -> float:
        """Of the whole run."""

    @property
    def fraction_bits(self) -> int:
        """Numbers lie on the grid of 2^-q."""

    @property
    def known_shares(self) -> int:
        """Without common masks, of how many clients an observer may know the shares of noise."""

    @property
    def numbers(self) -> Numbers | None:
        """With threshold masks: how many clients open a round, may be lost, and may collude."""

    @property
    def share(self) -> Fraction:
        """The part of the planned variance in one client's share of the noise."""

    @property
    def noise_price(self) -> float:
        """All noise over what a server would add alone for the same epsilon; 1 without shares."""


S = TypeVar("S", bound=NoisyPlan)


class Masked(Horizontal[S]):
    """A protocol of noisy masked sums."""

    records_ahead = True
    opens_rounds = True

    @abstractmethod
    def noise(self, plan: S, t: int, secret: SecretRandom) -> NDArray[np.int64]:
        """Draw the server's noise of round t in grid units, shape (plan.elements(t),); zeros where it adds none."""

    @abstractmethod
    def noise_parts(
        self, plan: S, t: int, shares: Sequence[Fraction], secrets: Sequence[SecretRandom]
    ) -> NDArray[np.int64]:
        """Draw parts of one client's share of round t's noise in grid units, shape (len(shares), plan.elements(t)).

        Zeros where the server adds the noise. `shares` are their parts of the variance of each release's planned noise:
        1 / (m - t) alone with pairwise masks, several with threshold masks. Each part has its own source.
        """

    def shared_start(self, plan: S) -> bytes:
        """Return what the clients must have in common besides the plan when they agree on masks: the first centres."""
        return b""

    def delta(self, config: RunConfig, n_total: int) -> float | None:
        """Return the delta that a run may have; None for the default.

        Raises
        ------
        ConfigError
            It is large, and nobody accepted that.
        """
        large = config.accept_large_delta
        return settle_delta(config.delta, n_total=n_total, paper=paper_delta(n_total), accept_large=large)

    def public_parameters(self, config: RunConfig, clients: int, n_total: int, k: int) -> Any:
        """Return the public parameters of a run."""
        terms, delta = settle_clients(config, clients), self.delta(config, n_total)
        return fill_public(self.public_type, config, clients=clients, k=k, n_total=n_total, delta=delta, **terms)

    def links_clients(self, config: RunConfig) -> bool:
        """Say whether clients need links to each other: with a common seed they agree through the server."""
        return config.masking == "pairwise"

    def adds_up(self, config: RunConfig) -> bool:
        """Say whether aggregators can add up: only common masks need nothing from a single client after its vector."""
        return config.masking == "common"

    def relays_seed(self, plan: S) -> bool:
        """Say whether the clients agree on a common seed through the server."""
        return plan.masking != "pairwise"

    def bounds(self, plan: S) -> MessageBounds:
        """Return the bounds of what a peer may send once the plan is known."""
        return bounds(plan)

    def included(self, plan: S, t: int, reply: bytes) -> tuple[PartyId, ...]:
        """Name the clients whose updates are in the stored reply of round t."""
        return recall(NoisyMaskedSum, reply, vector_format(plan, t), f"reply-{t}").included

    def agree(self, session: Session, begun: Begun[S]) -> Party[tuple[Any, bytes | None]]:
        """Agree with the other clients on masks, and on a common seed where the server does not see the sums."""
        plan = begun.plan

        def draw(
            t: int, elements: int, shares: Sequence[Fraction], secrets: Sequence[SecretRandom]
        ) -> NDArray[np.int64]:
            return self.noise_parts(plan, t, shares, secrets)

        return make_masks(begun.agreement(self.shared_start(plan)), plan, draw, begun.stored)

    def relay(self, session: Session, plan: S) -> Party[ServerOpening | None]:
        """Relay what the clients agree on; with threshold masks, return what opens their sums."""
        yield from super().relay(session, plan)
        return (yield from relay_threshold(session, plan)) if plan.masking == "threshold" else None

    def silent(self, end: Any) -> tuple[tuple[PartyId, ...], ...]:
        """Name the clients in each round that left more of their noise in it; only with threshold masks."""
        served: Served = end
        return served.silent

    def server_secret(self) -> SecretRandom:
        """Return what the server draws its noise from."""
        return SecretRandom()

    def play_server(self, session: Session, plan: S, secret: Any, stored: StoredRounds) -> Party[Served]:
        """Add up masked vectors and noise."""
        if isinstance(secret, ServerOpening):
            return server(plan, None, stored=stored, opening=secret)
        return server(plan, lambda t: self.noise(plan, t, secret), stored=stored)

    def own_share(self, plan: S) -> Draw | None:
        """Return what draws this client's shares of the noise, where they are not drawn in parts."""
        if plan.masking != "pairwise":
            return None
        secret = SecretRandom()
        return lambda t: self.noise_parts(plan, t, [plan.share], [secret])[0]

    def claim(self, config: RunConfig, plan: S) -> Claim:
        """Return what a run of the agreed plan will claim; with threshold masks it depends on whether keys are checked.

        Without a roster nothing holds against a server that breaks the rules.
        """
        claim = super().claim(config, plan)
        if plan.numbers is None or claim.unit is None:
            return claim
        against = threshold_against(plan.numbers, roster=config.roster is not None)
        return replace(claim, against=against, conditions=(*claim.conditions, threshold_condition(plan.numbers)))

    def against(self, plan: S) -> str:
        """Say from whom the claim protects."""
        if plan.numbers is not None:
            return threshold_against(plan.numbers, roster=False)
        if plan.masking != "pairwise":
            return _AGAINST
        known = "one client" if plan.known_shares == 1 else f"up to {plan.known_shares} clients together"
        return (
            f"{known}, the server, or both together, over all messages to them (each client adds a share of the noise; "
            "the server sees the noisy sums)"
        )

    def parameters(self, plan: S, rounds: int) -> dict[str, Any]:
        """Return the public parameters for the report."""
        price = {} if plan.masking == "common" else {"noise_price": plan.noise_price}
        return {**super().parameters(plan, rounds), **price}

    def privacy_lines(self, config: RunConfig, plan: S) -> list[PlanLine]:
        """Say what a run promises, and between sites with common masks what the operator could compute."""
        private, roster = self.privacy_unit(config) is not None, config.roster is not None
        words = operator_words(masking=plan.masking, authenticated=roster, private=private)
        return [*super().privacy_lines(config, plan), *([PlanLine("operator", words)] if words else [])]

    def noise_lines(self, plan: S) -> list[PlanLine]:
        """Say what it costs that the clients add the noise in shares, where they do."""
        if plan.masking == "common" or plan.noise_price == 1.0:
            return []
        counted = plan.clients - plan.known_shares
        lines = [
            PlanLine(
                "shares",
                f"each client adds one, and the guarantee rests on {counted} of {plan.clients} (an observer may know "
                f"{plan.known_shares}); {plan.noise_price - 1.0:.1%} more noise in all than a server alone would add",
            )
        ]
        if plan.delta > 0.0:
            delta = plan.delta - SAMPLER_DELTA
            zcdp = zcdp_noise_multiplier(plan.epsilon, delta) / gaussian_noise_multiplier(plan.epsilon, delta)
            words = f"accounted as the Gaussian that dominates them; by zCDP it would be {zcdp - 1.0:.1%} on top"
            lines.append(PlanLine("", f"  ({words})"))
        return lines if plan.numbers is None else [*lines, *threshold_lines(plan.numbers)]

    def cost_lines(self, config: RunConfig, plan: S) -> list[PlanLine]:
        """Say how many rounds there are, in which numbers they count, and how many bytes they send."""
        return [
            PlanLine("rounds", f"{len(plan.rounds)}"),
            PlanLine("arithmetic", f"ring Z_2^{plan.ring_bits}, {plan.fraction_bits} fraction bits"),
            payload_line(plan),
        ]


def payload_line(plan: MaskedPlan) -> PlanLine:
    """Say how many bytes of vectors all parties send in a round, and in which rounds it is another number."""
    # Up, down, and with threshold masks a box up, while nobody is lost.
    ways = 3 if plan.masking == "threshold" and plan.min_clients < plan.clients else 2
    each = [ways * plan.clients * plan.elements(t) * plan.ring_bits // 8 for t in range(len(plan.rounds))]
    others = ""
    for size, found in groupby(range(len(each)), each.__getitem__):
        others += f", {size:,} in {name_rounds(*found)}" if size != each[-1] else ""
    return PlanLine("payload", f"{each[-1]:,} bytes a round{others}, all parties together")


def name_rounds(first: int, *others: int) -> str:
    """Name a round, or rounds in a row."""
    return f"rounds {first + 1} to {others[-1] + 1}" if others else f"round {first + 1}"


def masked_sights(
    parameters: Mapping[str, Any], *, sums: str, learns: str = "", published: str = _PUBLISHED, private: bool = True
) -> Sights:
    """Return who sees what of masked sums, the network left out.

    Parameters
    ----------
    parameters : mapping
        Public, `masking` among them.
    sums : str
        What the clients see of them.
    learns : str
        The same, and what they see besides; empty: nothing.
    published : str
        What the server can make of the noise that it drew and the published result.
    private : bool
        Whether there is noise.
    """
    shield, learns = NOISE if private else NOTHING, learns or sums
    clients = Sight("each client", f"its own records; {learns}", shield)
    if parameters["masking"] == "pairwise":
        return Sights(
            (Sight("the server", f"who was included; {learns}", shield), clients),
            see_shares(parameters, sums),
            recorded(f"what the server sees: {learns}; no client's own vector", shield),
        )
    if threshold(parameters):
        return threshold_sights(parameters, sums=sums, clients=clients)
    server = Sight(
        "the server",
        "who was included; masked sums, which are random numbers to it",
        "the masks, as long as no client's masks or results reach it" + (": it knows the noise" if private else ""),
    )
    result = Sight("the server and the published result", published, NOTHING, public=True)
    return Sights(
        (server, clients),
        (
            Sight("the server and any one client", "each client's exact sums of each round", NOTHING),
            *([result] if private else ()),
            Sight(
                "several clients",
                sums + "; with two clients in all, one can take its own sums away" * (not private),
                shield,
            ),
        ),
        recorded("what the server sees: masked sums, which are random numbers", f"the masks, under {BOTH_KEYS}"),
    )


def masked_flow(
    facts: Mapping[str, Any], *, private: bool = True, released: str = RELEASED, labels: str = OWN_LABELS
) -> Flow:
    """Return where data are and go where sums are masked.

    Parameters
    ----------
    facts : mapping
    private : bool
        Whether there is noise.
    released : str
        What is released with it.
    labels : str
        Who learns the clusters of records.
    """
    in_pairs, in_parts = pairwise(facts), threshold(facts)
    noise = " and with a share of noise" if private and (in_pairs or in_parts) else ""
    result = released if private else "the exact centroids and sizes of the clusters"
    reader = (
        "to the server this vector is random numbers; added to those of the others it gives the sums over all sites"
        if in_pairs
        else "to the server this vector is random numbers, of which clients open the sum over all that are in the "
        "round, still under a mask that only clients know"
        if in_parts
        else "to the server this vector is random numbers, and other clients never get it"
    )
    return Flow(
        records=f"only inside one vector a round, of sums over this site's records under a mask{noise}; {reader}",
        labels=labels,
        result=f"{result}: all clients"
        + ("; the server sees the sums that they follow from" if in_pairs else "; no message shows it to the server"),
        messages=MESSAGES,
        server_noise=private and not (in_pairs or in_parts),
    )


def make_masks(
    agreement: MaskAgreement, plan: NoisyPlan, draw: DrawParts, stored: StoredRounds
) -> Party[tuple[Masks, bytes | None]]:
    """Agree with the other clients on the masks that the plan asks for, of the shape of round 0, and on a common seed.

    Parameters
    ----------
    agreement : MaskAgreement
    plan : NoisyPlan
    draw : callable
        With threshold masks: draws the parts of a round's noise.
    stored : StoredRounds
        Of an interrupted run.

    Returns
    -------
    Masks, bytes or None
        The seed is None with pairwise masks.
    """
    ring, run_id = Ring(plan.ring_bits), agreement.session.run_id
    if plan.masking == "pairwise":
        return PairwiseMasks((yield from agreement.pairs()), ring, plan.elements(0), run_id), None
    seed = yield from agreement.seed()
    masks: Masks = MaskGenerator(seed, ring, plan.elements(0), run_id)
    if plan.masking == "threshold":
        masks = ThresholdMasks(masks, (yield from agreement.opening(plan, draw, stored)))
    return masks, seed
