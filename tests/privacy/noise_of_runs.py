"""Looks at the noise that real parties add in whole runs in memory: what left them less what it would be without.

Each function lets all parties live once, from the first message to the last, as under mpirun, and gives the noise of
every number that was released, by tensor, turned into standard normals by the law that the ledger states.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum, vector_format
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import NO_HISTORY, continue_history
from fastlloyd.privacy.release import GAUSSIAN_SHARES, LAPLACE_SHARES, Release
from fastlloyd.protocol import masked as masked_base
from fastlloyd.protocols.fastlloyd import protocol as lloyd_module
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.rounds import first_centers, local_update, post_process
from fastlloyd.protocols.feddp import protocol as feddp_protocol
from fastlloyd.protocols.feddp.client import _Client, statistics_of
from fastlloyd.protocols.feddp.messages import CentersMessage, MaskedStatistic
from fastlloyd.protocols.feddp.server import REPLIES
from fastlloyd.protocols.feddp.settings import START
from fastlloyd.run.config import RunConfig
from fastlloyd.run.simulation import run_together
from fastlloyd.wire.header import SERVER, Header, PartyId
from tests.privacy.joint import uniform_scores
from tests.privacy.stage_noise import Integers, normal_scores, polya_scores

Floats = NDArray[np.float64]
PartyEnd = dict[str, Floats]
"""Tensor to its noise in one life, as standard normals; shape (numbers,)."""
Bodies = dict[tuple[int, int, PartyId], bytes]
"""What each party sent: type, round and sender to the body."""


@dataclass
class Role:
    """What a role in a whole run was given, and what it came to."""

    given: tuple[Any, ...]
    options: dict[str, Any]
    result: Any = None


@contextlib.contextmanager
def noting(module: object, role: str) -> Iterator[list[Role]]:
    """Note what a role of a whole run is given and comes to, and change nothing of it."""
    roles: list[Role] = []
    real = getattr(module, role)

    def noted(*given: Any, **options: Any) -> Any:
        roles.append(role_ := Role(given, options))
        role_.result = yield from real(*given, **options)
        return role_.result

    with mock.patch.object(module, role, noted):
        yield roles


def bodies_into(bodies: Bodies) -> Callable[[PartyId, PartyId, Header, bytes], bytes]:
    """Return a tap that notes every message and passes it on."""

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        bodies[header.type, header.round, sender] = body
        return body

    return tap


def share_scores(release: Release, noise: Integers, coins: np.random.Generator) -> Floats:
    """Turn one client's share of a release's noise into standard normals."""
    shares = release.clients - release.known
    if release.mechanism == GAUSSIAN_SHARES:
        return noise * np.sqrt(shares) / release.noise_scale
    assert release.mechanism == LAPLACE_SHARES
    return polya_scores(1.0 / shares, release.noise_scale, noise, coins)


def server_noise(config: RunConfig, clients: int, coins: np.random.Generator) -> PartyEnd:
    """FastLloyd and its relatives with common masks: the server's reply less the vectors that it received."""
    bodies, found = Bodies(), PartyEnd()
    with noting(masked_base, "server") as served:
        run_together(config, clients, tap=bodies_into(bodies))
    plan: Plan = served[0].given[0]
    for t in range(len(plan.rounds)):
        form = vector_format(plan, t)
        reply = NoisyMaskedSum.read(bodies[NoisyMaskedSum.TYPE, t, SERVER], form)
        received = [form.ring.from_bytes(bodies[MaskedUpdate.TYPE, t, me], form.elements) for me in reply.included]
        noise = form.ring.decode(reply.elements(form) - np.add.reduce(received))
        found |= _by_release(plan.releases(t), plan.lengths(t), noise, "", lambda *of: normal_scores(*of, coins))
    return found


def client_noise(config: RunConfig, clients: int, coins: np.random.Generator) -> PartyEnd:
    """The same with pairwise masks: what each client sent less its mask and the exact update of its records."""
    bodies, found = Bodies(), PartyEnd()
    with noting(lloyd_module, "client") as lived:
        run_together(config, clients, tap=bodies_into(bodies))
    for me, points, plan, masks in (role.given for role in lived):
        centers, history = first_centers(plan), NO_HISTORY
        for t in range(len(plan.rounds)):
            form = vector_format(plan, t)
            sent = form.ring.from_bytes(bodies[MaskedUpdate.TYPE, t, me], form.elements)
            rest = form.ring.decode(sent - masks.shaped(form.ring, form.elements).mask(t, me, history))
            noise = rest - local_update(points, centers, plan, t)
            found |= _by_release(
                plan.releases(t), plan.lengths(t), noise, f"{me}'s share of ", lambda *of: share_scores(*of, coins)
            )
            reply = bodies[NoisyMaskedSum.TYPE, t, SERVER]
            noisy = form.ring.decode(NoisyMaskedSum.read(reply, form).elements(form))
            centers, history = post_process(noisy, centers, plan, t), continue_history(history, reply)
    return found


def feddp_noise(config: RunConfig, clients: int, coins: np.random.Generator) -> PartyEnd:
    """FedDP-KMeans: what each client sent less its mask and the exact statistic of its records."""
    bodies, found = Bodies(), PartyEnd()
    with noting(feddp_protocol, "client") as lived:
        run_together(config, clients, tap=bodies_into(bodies))
    for role in lived:
        me, points, plan, masks = role.given
        state = _Client(plan=plan, make=partial(statistics_of, points, plan, role.options["raw_users"]))
        history = NO_HISTORY
        for t, step in enumerate(plan.rounds):
            if step.kind != START:
                ring, size = Ring(plan.ring_of(t)), plan.elements(t, state.k)
                sent = ring.from_bytes(bodies[MaskedStatistic.TYPE, t, me], size)
                rest = ring.decode(sent - masks.shaped(ring, size).mask(t, me, history)) - state.statistic(t)
                releases = plan.releases(t)
                lengths = (size,) if len(releases) == 1 else (state.k * plan.d, state.k)
                found |= _by_release(releases, lengths, rest, f"{me}'s share of ", lambda *of: share_scores(*of, coins))
            kind = REPLIES.get(step.kind, CentersMessage)
            reply = bodies[kind.TYPE, t, SERVER]
            state.take(kind.read(reply, plan))
            history = continue_history(history, reply)
    return found


def masked_vectors(config: RunConfig, clients: int, coins: np.random.Generator) -> PartyEnd:
    """FastLloyd: what the server receives from each client, of pairwise masks but the last, as uniform numbers."""
    bodies, found = Bodies(), PartyEnd()
    with noting(masked_base, "server") as served:
        run_together(config, clients, tap=bodies_into(bodies))
    plan: Plan = served[0].given[0]
    for rank in range(1, clients + (plan.masking == "common")):
        for t in range(len(plan.rounds)):
            body = bodies[MaskedUpdate.TYPE, t, PartyId(rank)]
            found[f"client {rank}, round {t}"] = ring_scores(Ring(plan.ring_bits), body)
    return found


def masked_statistics(config: RunConfig, clients: int, coins: np.random.Generator) -> PartyEnd:
    """The same of FedDP-KMeans."""
    bodies, found = Bodies(), PartyEnd()
    with noting(feddp_protocol, "server") as served:
        run_together(config, clients, tap=bodies_into(bodies))
    plan = served[0].given[0]
    for type_, t, me in sorted(bodies):
        if type_ == MaskedStatistic.TYPE and me.rank < clients:
            found[f"{me}, step {t}"] = ring_scores(Ring(plan.ring_of(t)), bodies[type_, t, me])
    return found


def ring_scores(ring: Ring, body: bytes) -> Floats:
    """Turn ring elements, if they are uniform, into standard normals."""
    elements = np.frombuffer(body, ring.dtype).astype(np.float64)
    return uniform_scores((elements + 0.5) / 2.0**ring.bits)


def _by_release(
    releases: Sequence[Release],
    lengths: Sequence[int],
    noise: Integers,
    whose: str,
    scores: Callable[[Release, Integers], Floats],
) -> PartyEnd:
    """Cut a vector's noise into its releases, and turn each into standard normals."""
    ends = np.cumsum([length for length in lengths if length])
    assert ends[-1] == noise.size
    parts = np.split(noise, ends[:-1])
    return {
        f"{whose}{release.name} of round {release.round}": scores(release, part)
        for release, part in zip(releases, parts, strict=True)
    }
