"""Clients of a run with threshold masks that die at a chosen step of a round, over TCP, and parties that come back.

A client dies by SIGKILL before it has stored a step, between storing and sending it, or once it is sent. The others
must come to a result. Source: docs/protocol.md, "Threshold masks: a round".
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum
from fastlloyd.lifecycle.threshold.messages import QuickAnswer, RoundSet, SetAnswer, SetVote, SetVotes
from fastlloyd.party.effects import Effect, Save, Send
from fastlloyd.run.driver import Driver
from tests.adversary.play import Play, build

BEFORE, IN, AFTER = MOMENTS = ("before", "in", "after")
VECTOR, QUICK, VOTE, ANSWER = STEPS = (MaskedUpdate, QuickAnswer, SetVote, SetAnswer)
ROUNDS, OF_ROUND = 3, 1
_SERVER_STEPS = (RoundSet, SetVotes, NoisyMaskedSum)


@dataclass(frozen=True)
class Death:
    """One party dies at one step of a round.

    Attributes
    ----------
    rank : int
    step : type
        Of a message.
    moment : {'before', 'in', 'after'}
        Before it is stored, before it is sent, once it is sent.
    t : int
    number : int
        The signal; after SIGTERM it says that it leaves.
    """

    rank: int
    step: type
    moment: str
    t: int = OF_ROUND
    number: int = signal.SIGKILL

    def install(self) -> None:
        """Prepare this process for its end."""
        perform: Callable[[Driver, Effect], Any] = Driver._perform

        def deadly(driver: Driver, effect: Effect) -> Any:
            here = isinstance(effect, Send) and effect.round == self.t and type(effect.message) is self.step
            if (self.moment == BEFORE and self._is_stored(effect)) or (self.moment == IN and here):
                os.kill(os.getpid(), self.number)
            result = perform(driver, effect)
            if self.moment == AFTER and here:
                os.kill(os.getpid(), self.number)
            return result

        Driver._perform = deadly  # type: ignore[method-assign]

    @property
    def in_sum(self) -> bool:
        """Whether the client's vector has left."""
        return self.step is not VECTOR or self.moment == AFTER

    def _is_stored(self, effect: Effect) -> bool:
        if not isinstance(effect, Save):
            return False
        if self.step is MaskedUpdate:
            return effect.name == f"uplink-{self.t}"
        if self.step is NoisyMaskedSum:
            return effect.name == f"reply-{self.t}"
        answered = self.step is not SetVote
        return effect.name == f"set-{self.t}" and (self.step in _SERVER_STEPS or bool(effect.content[0]) == answered)


def copy_state(state: Path, rank: int, name: str) -> Callable[[], None]:
    """Return what makes a client copy its state folder just before it stores a file, the last time that it does."""
    return functools.partial(_copy, state / f"client-{rank}", state / f"old-{rank}", name)


def _copy(own: Path, old: Path, name: str) -> None:
    perform: Callable[[Driver, Effect], Any] = Driver._perform

    def copying(driver: Driver, effect: Effect) -> Any:
        if isinstance(effect, Save) and effect.name == name:
            shutil.rmtree(old, ignore_errors=True)
            shutil.copytree(own, old)
        return perform(driver, effect)

    Driver._perform = copying  # type: ignore[method-assign]


def set_back(state: Path, rank: int) -> None:
    """Put the copy in the place of a client's state."""
    shutil.rmtree(state / f"client-{rank}")
    (state / f"old-{rank}").rename(state / f"client-{rank}")


def deaths(m: int) -> Iterator[tuple[Death, ...]]:
    """Each combination of one and two clients of m that can die in one round, and in what moments."""
    one, other = 2, m
    early = [(VECTOR, BEFORE), (VECTOR, IN)]
    sent = [(VECTOR, AFTER)]
    quick = [(QUICK, moment) for moment in MOMENTS]
    late = [(step, moment) for step in (VOTE, ANSWER) for moment in MOMENTS]
    for single in (*early, *sent, *quick):
        yield (Death(one, *single),)
    # All vectors are there: the round is opened for everybody.
    for pair in itertools.combinations_with_replacement([*sent, *quick], 2):
        yield Death(one, *pair[0]), Death(other, *pair[1])
    # One vector is not: votes and answers.
    for first, second in itertools.product(early, [*early, *sent, *late]):
        yield Death(one, *first), Death(other, *second)


def play(name: str, m: int, lying: int, *, deadline: int = 3, epsilon: float = 5.0) -> Play:
    """Return a run of m clients with threshold masks."""
    flags = (
        *("--protocol", name, "--k", "3", "--bounds", "0,100", "--n-total", "400", "--rounds", str(ROUNDS)),
        *("--epsilon", str(epsilon), "--masking", "threshold", "--colluding", str(lying)),
        *("--setup-deadline", "30", "--deadline", str(deadline)),
    )
    return Play(f"threshold-{m}", m, flags, "site_{client}.csv")


def stage(folder: Path) -> Path:
    """Write the records of up to six clients."""
    build(folder)
    for rank in (5, 6):
        shutil.copy(folder / f"site_{rank - 4}.csv", folder / f"site_{rank}.csv")
    return folder
