"""The empirical audit of threshold masks: a server and a client together, with all that is opened to them.

The server adds up what it receives, opens masks and excesses, and tells client 1. Client 1 takes the common mask and
the parts of its noise off, and attacks with and without the excesses of the others (`audit.py`). Client 2 has all
records. Everybody is in the sums, or client 3 is lost. Fixed keys: no false alarm.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum, vector_format
from fastlloyd.masking.mask import NO_HISTORY, continue_history
from fastlloyd.masking.threshold.parts import Parts
from fastlloyd.privacy.calibration import gaussian_noise_multiplier
from fastlloyd.protocols.fastlloyd.plan import make_plan
from fastlloyd.protocols.fastlloyd.rounds import draw_share
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import PartyId, clients
from tests.privacy.audit import ATTACKER, Scene, Trials, _attack, epsilon_bound, gaussian_bound
from tests.privacy.test_audit import ALARM, DELTA, EPSILON, ends, lattice
from tests.protocols.support import opened_masks, parameters, run

M, LOST = 3, PartyId(3)
MU = 1.0 / gaussian_noise_multiplier(EPSILON, DELTA)
DrawAll = Callable[[Any, PartyId, int, Fraction, SecretRandom], NDArray[np.int64]]


def in_parts(scene: Scene) -> Scene:
    """The same scene for three clients with threshold masks: one may be lost, one may be the server's."""
    plan = scene.plan
    public = parameters(
        plan.n_total,
        plan.k,
        clients=M,
        min_clients=M - 1,
        protocol=plan.protocol,
        epsilon=EPSILON,
        delta=None if plan.protocol == "sulloyd" else DELTA,
        rounds=len(plan.rounds),
        settings={"radius": "constant", "alpha": 0.6} if plan.protocol == "fastlloyd" else {},
        masking="threshold",
        ring_bits=64,
    )
    shared = make_plan(public, d=plan.d, names=plan.names)
    shift = shared.fraction_bits - plan.fraction_bits
    assert shift >= 0 and [r.radius for r in shared.rounds] == [
        None if r.radius is None else r.radius << shift for r in plan.rounds
    ]
    return dataclasses.replace(scene, plan=shared)


def honest(plan: Any, me: PartyId, t: int, share: Fraction, secret: SecretRandom) -> NDArray[np.int64]:
    """Draw a part as in a run."""
    return draw_share(plan, t, share, secret)


def quieter() -> DrawAll:
    """Draw parts that forget t, as if nobody's noise were known to anybody: 1 / M, and what is lacking to 1 / T."""
    drawn: dict[tuple[PartyId, int], int] = defaultdict(int)

    def draw(plan: Any, me: PartyId, t: int, share: Fraction, secret: SecretRandom) -> NDArray[np.int64]:
        drawn[me, t] += 1
        return draw_share(plan, t, Fraction(1, M) if drawn[me, t] % 2 else Fraction(1, M - 1) - Fraction(1, M), secret)

    return draw


def dependent() -> DrawAll:
    """Let the second part be the first: each has the noise that is due."""
    first: dict[tuple[PartyId, int], NDArray[np.int64]] = {}

    def draw(plan: Any, me: PartyId, t: int, share: Fraction, secret: SecretRandom) -> NDArray[np.int64]:
        if (me, t) in first:
            return first.pop((me, t))
        return first.setdefault((me, t), draw_share(plan, t, share, secret))

    return draw


def attack(scene: Scene, runs: int, draw: DrawAll, *, lost: bool, name: str) -> Trials:
    """Run the rounds and attack them, `runs` times."""
    plan, coins = scene.plan, np.random.default_rng(5)
    parts = Parts(plan.numbers, Fraction(1), laplace=True)
    off = parts.taken_off(M - lost)
    others = [one for one in clients(M - lost) if one != ATTACKER]
    present = coins.random((runs, plan.k)) < 0.5
    scores, combined = [], []
    for i in range(runs):
        drawn: dict[tuple[PartyId, int], list[NDArray[np.int64]]] = defaultdict(list)

        def noted(me: PartyId, drawn: Any = drawn) -> Any:
            def one(t: int, share: Fraction, secret: SecretRandom) -> NDArray[np.int64]:
                drawn[me, t].append(draw(plan, me, t, share, secret))
                return drawn[me, t][-1]

            return one

        masks, opening = opened_masks(plan, noted, run=f"{name} {i}")
        points = np.concatenate([np.repeat(scene.sites, scene.anchors, axis=0), scene.canaries[present[i]]])

        def tap(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes | None:
            return None if lost and sender == LOST and header.type == MaskedUpdate.TYPE else body

        rows = [np.arange(0), np.arange(len(points)), np.arange(0)]
        saved = run(
            points, plan, parts=rows, start=scene.start, masks=masks, noise=_silent(plan), opening=opening, tap=tap
        ).simulation.saved
        released, history = [], NO_HISTORY
        for t in range(len(plan.rounds)):
            shape = vector_format(plan, t)
            reply = NoisyMaskedSum.read(saved[ATTACKER, f"reply-{t}"], shape)
            assert (LOST in reply.included) == (not lost)
            mask = masks[ATTACKER].shaped(shape.ring, shape.elements).total(t, reply.included, history)
            released.append(shape.ring.decode(reply.elements(shape) - mask))
            history = continue_history(history, reply.body())

        def known(t: int, drawn: Any = drawn) -> NDArray[np.int64]:
            return np.sum([part for j, part in enumerate(drawn[ATTACKER, t]) if j not in off], axis=0)

        def opened(t: int, drawn: Any = drawn) -> NDArray[np.int64]:
            return known(t) + sum((drawn[one, t][j] for one in others for j in off), np.zeros_like(released[t]))

        plain, views = _attack(scene, released, known)
        with_excess, _ = _attack(scene, released, opened)
        scores.append(plain)
        combined.append(np.concatenate([views, with_excess.sum(axis=(1, 2))[:, None]], axis=1))
    return Trials(np.concatenate(scores), present.ravel(), np.concatenate(combined))


def _silent(plan: Any) -> Callable[[int], NDArray[np.int64]]:
    return lambda t: np.zeros(plan.elements(t), np.int64)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("scene,runs", [(lattice, 150), (ends, 150)])
def test_server_and_client_together_stay_below_epsilon(scene: Callable[[], Scene], runs: int, lost: bool) -> None:
    setting = in_parts(scene())
    trials = attack(setting, runs, honest, lost=lost, name="honest")
    assert 0.05 < epsilon_bound(trials, setting.plan.delta, ALARM) <= EPSILON


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("scene", [lattice, ends])
def test_long_attacks_of_server_and_client_stay_below_epsilon(scene: Callable[[], Scene], lost: bool) -> None:
    setting = in_parts(scene())
    trials = attack(setting, 4_000, honest, lost=lost, name="honest, long")
    assert 0.4 < epsilon_bound(trials, setting.plan.delta, ALARM) <= EPSILON
    if setting.plan.protocol != "sulloyd":
        assert 0.7 * MU < gaussian_bound(trials, ALARM) <= MU


def test_a_t_that_is_ignored_is_caught() -> None:
    setting = in_parts(lattice())
    trials = attack(setting, 300, quieter(), lost=True, name="quieter")
    assert gaussian_bound(trials, ALARM) > MU


def test_parts_that_depend_on_each_other_are_caught() -> None:
    setting = in_parts(lattice())
    trials = attack(setting, 20, dependent(), lost=False, name="dependent")
    assert epsilon_bound(trials, setting.plan.delta, ALARM) > EPSILON
    # What is published does not show it: one must know what was taken off.
    assert epsilon_bound(Trials(trials.scores, trials.present), setting.plan.delta, ALARM) <= EPSILON
