"""Runs the rounds of FastLloyd and its relatives in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.link.identity import Credentials
from fastlloyd.kmeans.grid import GridPoints, quantise
from fastlloyd.lifecycle.masked_sums import server
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.lifecycle.threshold.client import ClientOpening, DrawParts, ThresholdMasks
from fastlloyd.lifecycle.threshold.group import Group
from fastlloyd.lifecycle.threshold.server import ServerOpening
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import MaskGenerator, Masks
from fastlloyd.masking.pairwise import PairSecrets, PairwiseMasks
from fastlloyd.party.effects import Party
from fastlloyd.protocols.fastlloyd.client import ClientResult, client
from fastlloyd.protocols.fastlloyd.plan import Plan, make_plan
from fastlloyd.protocols.fastlloyd.plus_reference import plus_update
from fastlloyd.protocols.fastlloyd.rounds import (
    Centers,
    draw_noise,
    draw_share,
    first_centers,
    local_update,
    post_process,
)
from fastlloyd.protocols.fastlloyd.settings import PublicParameters
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Simulation, Tap
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.dealt import deal, fixed

RUN_ID = bytes(range(16))
DrawOne = Callable[[int, Fraction, SecretRandom], NDArray[np.int64]]


def parameters(n: int, k: int, **changes: Any) -> PublicParameters:
    """Public parameters with the defaults of a test."""
    values: dict[str, Any] = {
        "protocol": "fastlloyd",
        "clients": 2,
        "k": k,
        "n_total": n,
        "epsilon": 1.0,
        "delta": None,
        "rounds": None,
        "seed": 0,
        "ring_bits": 32,
        "settings": {},
        "masking": "common",
        "known_shares": 1,
        **changes,
    }
    values.setdefault("min_clients", values["clients"])
    return PublicParameters(**values)


def plan_for(points: NDArray[np.float64], k: int, **changes: Any) -> Plan:
    """A plan for these points."""
    n, d = points.shape
    return make_plan(parameters(n, k, **changes), d=d, names=tuple(f"x{i + 1}" for i in range(d)))


@dataclass
class Run:
    """The result of simulated rounds."""

    simulation: Simulation
    results: Mapping[PartyId, Any]

    @property
    def first(self) -> ClientResult:
        result: ClientResult = self.results[PartyId(1)]
        return result


def common_masks(m: int, seed: bytes | None = None) -> dict[PartyId, Masks]:
    """Masks of m clients with this seed or a fresh one, of any shape: a round cuts them to its own."""
    return dict.fromkeys(clients(m), MaskGenerator(seed or SecretRandom().bytes(32), Ring(32), 1, RUN_ID))


def fresh_pairs(m: int) -> dict[PartyId, PairSecrets]:
    """Fresh secrets of the pairs of m clients, without the exchange."""
    everybody, secret = clients(m), SecretRandom()
    shared = {frozenset((a, b)): secret.bytes(32) for a in everybody for b in everybody if a < b}
    return {
        me: PairSecrets(me, {other: shared[frozenset((me, other))] for other in everybody if other != me})
        for me in everybody
    }


def pairwise_masks(pairs: Mapping[PartyId, PairSecrets]) -> dict[PartyId, PairwiseMasks]:
    """Masks from these secrets, of any shape."""
    return {me: PairwiseMasks(own, Ring(32), 1, RUN_ID) for me, own in pairs.items()}


def group_of(plan: Any) -> Group:
    """What the statements of a run with dealt secrets are about; nothing is signed."""
    return Group(plan.numbers, RUN_ID, fixed("context"), fixed("keys"), Credentials())


def of_length(draw: DrawOne) -> DrawParts:
    """Draw parts one by one, of the length that the round's plan gives them."""
    return lambda t, elements, shares, secrets: np.stack([draw(t, *one) for one in zip(shares, secrets, strict=True)])


def opened_masks(
    plan: Any, draw: Callable[[PartyId], DrawOne], *, run: str = "run", seed: bytes | None = None
) -> tuple[dict[PartyId, Masks], ServerOpening]:
    """Threshold masks from fixed keys over common ones, and what opens them at the server.

    Parameters
    ----------
    plan : Plan
        With `numbers`, `rounds` and `ring_bits`.
    draw : callable
        From a client to what draws one part of its noise of a round, from round, share and source.
    run : str
        Another run has other keys.
    seed : bytes, optional
    """
    dealt, group = deal(plan.numbers, len(plan.rounds), run), group_of(plan)
    common = MaskGenerator(seed or fixed(f"{run}: seed"), Ring(plan.ring_bits), 1, RUN_ID)
    masks: dict[PartyId, Masks] = {
        me: ThresholdMasks(common, ClientOpening(group, me, own, of_length(draw(me))))
        for me, own in dealt.secrets.items()
    }
    return masks, ServerOpening(group, dealt.words)


def no_noise(plan: Plan) -> Callable[[int], NDArray[np.int64]]:
    return lambda t: np.zeros(plan.elements(t), dtype=np.int64)


def run(
    points: NDArray[np.float64],
    plan: Plan,
    *,
    parts: Sequence[NDArray[np.int64]] | None = None,
    masks: Mapping[PartyId, Masks] | None = None,
    noise: Callable[[int], NDArray[np.int64]] | None = None,
    share: Callable[[PartyId, int], NDArray[np.int64]] | None = None,
    start: NDArray[np.float64] | None = None,
    stored: Mapping[PartyId, StoredRounds] | None = None,
    replies: Mapping[int, bytes] | None = None,
    tap: Tap | None = None,
    opening: ServerOpening | None = None,
) -> Run:
    """Run the rounds of FastLloyd, or of a relative, on a split of the points, without set-up and closing exchange.

    For tests that choose what no whole run lets them choose: a plan with other noise or other rounds, the masks, the
    noise, the first centres, what is stored; and for those of thousands of runs, of which a whole run takes ten times
    as long. What comes before and after the rounds is tested with `run_together`.

    Parameters
    ----------
    points : float64 array, shape (n, d)
        Scaled to [-1, 1].
    plan : Plan
    parts : sequence of int64 arrays, optional
        Rows of each client; by default blocks.
    masks : mapping from client to Masks, optional
        By default from fresh secrets.
    noise, share : callable, optional
        The server's noise of a round, and with pairwise masks a client's share of it; by default as planned.
    start : float64 array, shape (k, d), optional
    stored : mapping from client to StoredRounds, optional
        What clients kept of an interrupted run; the server knows how many replies each has.
    replies : mapping from round to bytes, optional
        What the server kept.
    tap : callable, optional
        As in `Simulation`.
    opening : ServerOpening, optional
        With threshold masks, from `opened_masks`.
    """
    everybody, stored, secret = clients(plan.clients), stored or {}, SecretRandom()
    shared = plan.masking == "pairwise"
    if masks is None:
        masks = pairwise_masks(fresh_pairs(plan.clients)) if shared else common_masks(plan.clients)
    if share is None:
        drawn = {me: SecretRandom() for me in everybody}
        share = lambda me, t: draw_share(plan, t, plan.share, drawn[me])  # noqa: E731
    if parts is None:
        parts = np.array_split(np.arange(len(points)), plan.clients)
    parties: dict[PartyId, Party[Any]] = {
        me: client(
            me,
            quantise(points[rows], plan.fraction_bits),
            plan,
            masks[me],
            share=partial(share, me) if shared else None,
            stored=stored.get(me),
            start=start,
        )
        for me, rows in zip(everybody, parts, strict=True)
    }
    done = {me: len(own.replies) for me, own in stored.items()}
    fixed = StoredRounds(replies=replies or {}, clients_done=done)
    parties[SERVER] = server(plan, noise or (lambda t: draw_noise(plan, t, secret)), stored=fixed, opening=opening)
    simulation = Simulation(parties, tap)
    return Run(simulation, simulation.run())


def central_plus(points: NDArray[np.float64], plan: Plan, noise: Callable[[int], NDArray[np.int64]]) -> Centers:
    """fastlloyd-plus on pooled data: the reference's updates, and what the clients make of noisy answers."""
    centers = first_centers(plan)
    for t in range(len(plan.rounds)):
        assert centers.state is not None
        update = plus_update(points, plan, t, centers=centers.grid, spread=centers.state.spread)
        centers = post_process(update + noise(t), centers, plan, t)
    return centers


def generator_noise(plan: Plan, rng: np.random.Generator) -> Callable[[int], NDArray[np.int64]]:
    """Noise of the plan's distribution from numpy's generator, so that a statistical test repeats itself."""
    draw = {"gaussian": rng.normal, "laplace": rng.laplace}[plan.mechanism]

    def noise(t: int) -> NDArray[np.int64]:
        scales = np.repeat([plan.rounds[t].sum_scale, plan.rounds[t].count_scale], plan.lengths(t))
        return np.rint(draw(0.0, scales)).astype(np.int64)

    return noise


def simulate(points: GridPoints, plan: Plan, noise: Callable[[int], NDArray[np.int64]]) -> Centers:
    """All rounds on pooled records."""
    centers = first_centers(plan)
    for t in range(len(plan.rounds)):
        centers = post_process(local_update(points, centers, plan, t) + noise(t), centers, plan, t)
    return centers


def blobs(n: int, k: int, d: int, seed: int = 0, spread: float = 0.08) -> NDArray[np.float64]:
    """Gaussian blobs inside [-1, 1]^d."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-0.8, 0.8, (k, d))
    return np.clip(centers[rng.integers(0, k, n)] + rng.normal(0, spread, (n, d)), -1, 1)
