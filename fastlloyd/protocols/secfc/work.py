"""What a run of secfc computes at most, for `plan`: sharing, and an iteration of client and server on made-up shares.

The records decide when a start repeats an assignment, which ends it; the plan says how many iterations there are at
most.

Compared with runs: tests/unit/run/test_work.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from fastlloyd.kmeans.grid import quantise
from fastlloyd.party.effects import Effect, Gather, Publish, Receive, Send
from fastlloyd.protocols.secfc.client import client
from fastlloyd.protocols.secfc.math.onion import CONTENT_BYTES, LayerKey, seal
from fastlloyd.protocols.secfc.messages import ArrayFormat, CodedValues, DataShares, Signs
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.protocols.secfc.server import server
from fastlloyd.protocols.secfc.sharing import Shares
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.work import Work, measured_linear
from fastlloyd.wire.header import PartyId

_SAMPLE_NUMBERS = 1 << 20
"""Field elements of comparisons or shares that a sample takes about."""
_SAMPLE_TAGS = 200
_ONE = PartyId(1)


def estimate_work(plan: Plan) -> Work:
    """Estimate what a run of N records computes at most."""
    n, primes = plan.n_total, len(plan.primes)
    sample = max(1, min(n, _SAMPLE_NUMBERS // (primes * (plan.k + plan.clients * plan.width))))
    made_up = _MadeUp(plan)
    shared = measured_linear(made_up.shared, sample).of(n)
    setup, setup_wait = shared, shared / plan.clients
    if plan.membership:
        # Each client shares a vector for every record that there may be, and opens a layer of every tag in its turn.
        made, opened = (measured_linear(job, _SAMPLE_TAGS) for job in (made_up.sealed, made_up.opened))
        mixed = plan.clients * opened.of(sum(plan.sizes))
        setup = plan.clients * shared + sum(made.of(size) for size in plan.sizes) + mixed
        setup_wait = shared + made.of(max(plan.sizes)) + mixed
    own, decoded = (measured_linear(job, sample).of(n) for job in (made_up.iterated, made_up.decoded))
    together = float(len(plan.passes[0]))
    if plan.start == "separated":
        together *= max(1.0, 2 / (plan.k - 1))  # a seed takes two comparisons of each record, an iteration k - 1
    return Work(
        rounds=plan.rounds,
        setup=setup,
        round=together * (plan.clients * own + decoded),
        setup_wait=setup_wait,
        round_wait=together * (own + decoded),
        because="mostly to mix tags that hide whose records are whose"
        if plan.membership and setup > 2 * shared
        else "",
        most="the records decide how many iterations each start takes",
    )


class _MadeUp:
    """Shares that a client may hold, to measure steps on."""

    def __init__(self, plan: Plan) -> None:
        # One start whose first step is an iteration; the field stays as it is.
        self._plan = dataclasses.replace(plan, start="random", starts=1, extra_answers=0, membership=False)
        self._random = np.random.default_rng(0)

    def _of(self, n: int) -> Plan:
        return dataclasses.replace(self._plan, sizes=(n, *[0] * (self._plan.clients - 1)))

    def shared(self, n: int) -> Callable[[], object]:
        """Return what makes n records' shares for all clients, and writes and reads them."""
        plan, secret = self._of(n), SecretRandom()
        code, field, most = plan.code, plan.field, 1 << plan.fraction_bits
        rows = self._random.integers(-most, most, (n, plan.d))
        shape = ArrayFormat(field, (n, plan.width), 0)

        def share() -> None:
            made = code.share(field.encode(rows), secret)
            for j in range(1, plan.clients):
                DataShares.read(DataShares(made[:, j], field, 0).body(), shape)

        return share

    def sealed(self, n: int) -> Callable[[], object]:
        """Return what puts the layers of all clients around n tags."""
        secret = SecretRandom()
        keys = [LayerKey(secret).public for _ in self._plan.everybody]
        return lambda: [seal(bytes(CONTENT_BYTES), keys, run_id=bytes(16), secret=secret) for _ in range(n)]

    def opened(self, n: int) -> Callable[[], object]:
        """Return what opens one layer of n tags."""
        secret = SecretRandom()
        key = LayerKey(secret)
        tag = seal(bytes(CONTENT_BYTES), [key.public], run_id=bytes(16), secret=secret)
        return lambda: [key.open(tag, layer=0, run_id=bytes(16)) for _ in range(n)]

    def iterated(self, n: int) -> Callable[[], list[CodedValues]]:
        """Return an iteration of a client on n records."""
        plan = self._of(n)
        elements = self._random.integers(-1000, 1000, (len(plan.primes), n, plan.width)).astype(np.float32)
        shares, none = Shares(elements, np.arange(n)), quantise(np.zeros((0, plan.d)), plan.fraction_bits)

        def iterate() -> list[CodedValues]:
            party = client(_ONE, shares, none, plan, rotation=np.eye(plan.d), seed=bytes(32), run_id=bytes(16))
            sent: list[CodedValues] = []
            effect: Effect = next(party)
            while not isinstance(effect, Publish):
                answer = None
                if isinstance(effect, Send) and isinstance(effect.message, CodedValues):
                    sent.append(effect.message)
                elif isinstance(effect, Receive):
                    signs = self._random.random(effect.format.values) < 0.5
                    answer = Signs(signs, plan.everybody[: plan.needed_answers], effect.format)
                effect = party.send(answer)
            party.close()
            return sent

        return iterate

    def decoded(self, n: int) -> Callable[[], object]:
        """Return the server's part of an iteration on n records."""
        plan, sent = self._of(n), self.iterated(n)()

        def decode() -> None:
            party, answers = server(plan), iter(sent)
            effect: Effect = next(party)
            while not isinstance(effect, Publish):
                answer = None
                if isinstance(effect, Gather):
                    answer = dict.fromkeys(plan.everybody[: plan.needed_answers], next(answers))
                effect = party.send(answer)
            party.close()

        return decode
