"""The judge: from all that left honest clients, the least unknown noise on anything that can be unmasked.

It knows every secret, so it recognises each share in the bytes of a message, whatever the message says that it is. The
words and tables of all clients are public, and a colluding client's shares and pair keys are known from the start.

A sum of vectors of one round and one history is unmasked if each own mask in it is known, and each pair mask that does
not cancel. Let two honest clients be joined if the key of their pair is unknown: whoever combines masked vectors must
take all vectors of a joined group with the same factor, so the groups are the smallest sums that can be unmasked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fastlloyd.lifecycle.masked_sums import MaskedUpdate
from fastlloyd.lifecycle.threshold.messages import QuickAnswer, SetAnswer, SetVote
from fastlloyd.masking.threshold.parts import Parts
from fastlloyd.masking.threshold.shamir import ELEMENT_BYTES
from fastlloyd.masking.threshold.words import BOX, OWN, PAIRS
from fastlloyd.party.effects import Send
from fastlloyd.wire.header import PartyId
from tests.adversary.threshold.sites import ELEMENTS, RING, Run, Site, draw_parts

_EXCESS_BYTES = ELEMENTS * RING.element_bytes


@dataclass(frozen=True)
class Verdict:
    """What the judge found.

    Attributes
    ----------
    opened : int
        Sums that can be unmasked, over all rounds and histories.
    least : Fraction or None
        The least unknown noise on one of them, in units of s^2; None if there is none.
    faults : tuple of str
        What must not be.
    """

    opened: int
    least: Fraction | None
    faults: tuple[str, ...]


class Judge:
    """Watches what leaves honest clients.

    Parameters
    ----------
    run : Run
    colluding : collection of PartyId

    Attributes
    ----------
    broken : list of str
        Rules that a client broke, whatever can be opened then.
    """

    def __init__(self, run: Run, colluding: Collection[PartyId]) -> None:
        self._run, self._colluding = run, frozenset(colluding)
        self._honest = [party for party in run.everybody if party not in self._colluding]
        self._parts = Parts(run.numbers, Fraction(1), laplace=True)
        self._shares = _all_shares(run)
        self._holders: dict[tuple[int, PartyId, int], set[PartyId]] = defaultdict(set)
        self._vectors: dict[tuple[int, PartyId, bytes], set[bytes]] = defaultdict(set)
        self._taken: dict[tuple[int, PartyId, bytes], set[int]] = defaultdict(set)
        self._decided: set[tuple[int, PartyId]] = set()
        self.broken: list[str] = []
        self._excesses: dict[tuple[int, PartyId, bytes], dict[bytes, int]] = {}

    def watch(self, site: Site, sent: Send) -> None:
        """Take in a message that leaves a client."""
        me, t, history, body = site.me, sent.round, site.history, sent.message.body()
        for start in range(len(body) - ELEMENT_BYTES + 1):
            found = self._shares.get(body[start : start + ELEMENT_BYTES])
            if found is not None:
                round_, dealer, kind, holder = found
                assert holder == me
                self._holders[round_, dealer, kind].add(holder)
        if isinstance(sent.message, MaskedUpdate):
            self._vectors[t, me, history].add(body)
            if (t, me) in self._decided and not site.restored:
                self.broken.append(f"{me} sent its vector of round {t} after it had given something for a set")
        if isinstance(sent.message, SetVote | QuickAnswer | SetAnswer):
            self._decided.add((t, me))
        if isinstance(sent.message, QuickAnswer | SetAnswer):
            for excess, included in self._excesses_of(t, me, history).items():
                if excess in body:
                    self._taken[t, me, history].add(included)

    def _excesses_of(self, t: int, me: PartyId, history: bytes) -> dict[bytes, int]:
        """Return the excess for each size of a set, as it would stand in a message."""
        if (t, me, history) not in self._excesses:
            secrets = self._run.secrets(me)
            shapes = self._parts.shapes
            sources = [secrets.part_random(t, history, j) for j in range(len(shapes))]
            drawn = draw_parts(t, ELEMENTS, shapes, sources)
            numbers = self._run.numbers
            self._excesses[t, me, history] = {
                RING.reduce(np.sum([drawn[j] for j in off], axis=0, dtype=np.int64)).tobytes(): included
                for included in range(numbers.threshold, numbers.clients + 1)
                if (off := self._parts.taken_off(included))
            }
        return self._excesses[t, me, history]

    def knows(self, t: int, dealer: PartyId, kind: int) -> bool:
        """Whether a secret of an honest client can be computed."""
        given = self._holders[t, dealer, kind] - self._colluding
        return len(given) + len(self._colluding) >= self._run.numbers.threshold

    def _groups(self, t: int) -> Iterator[list[PartyId]]:
        """Yield the groups of honest clients whose vectors can only be unmasked together."""
        left = list(self._honest)
        while left:
            group = [left.pop(0)]
            for one in group:
                joined = [o for o in left if not (self.knows(t, one, PAIRS) or self.knows(t, o, PAIRS))]
                group.extend(joined)
                left = [o for o in left if o not in joined]
            yield group

    def _kept(self, t: int, party: PartyId, history: bytes) -> Fraction:
        """Return the variance of a client's noise that cannot be taken off a vector."""
        taken = set(self._taken[t, party, history])
        if self.knows(t, party, BOX):
            taken.add(self._run.numbers.clients)
        off = {j for included in taken for j in self._parts.taken_off(included)}
        return sum((shape for j, shape in enumerate(self._parts.shapes) if j not in off), Fraction(0))

    def verdict(self) -> Verdict:
        """Judge what has left so far."""
        numbers, faults, noises = self._run.numbers, list(self.broken), []
        others = numbers.known - numbers.lying
        for t in range(self._run.rounds):
            for party in self._honest:
                if self.knows(t, party, OWN) and self.knows(t, party, PAIRS):
                    faults.append(f"own mask and pair keys of {party} are both known in round {t}")
            released: set[PartyId] = set()
            for history in {h for (r, _, h) in self._vectors if r == t}:
                for group in self._groups(t):
                    if not all(self.knows(t, one, OWN) and self._vectors[t, one, history] for one in group):
                        continue
                    kept = sorted(self._kept(t, one, history) for one in group)
                    noises.append(sum(kept[: max(1, len(kept) - others)], Fraction(0)))
                    if released & set(group):
                        faults.append(f"two sums of round {t} with vectors of the same client are open")
                    released |= set(group)
        for (t, party, _), bodies in self._vectors.items():
            if len(bodies) > 1:
                faults.append(f"{party} sent two vectors of round {t} under one mask")
        least = min(noises, default=None)
        if least is not None and least < 1:
            faults.append(f"a sum can be opened with noise of {float(least):.3f} s^2 on it")
        return Verdict(len(noises), least, tuple(faults))


def _all_shares(run: Run) -> dict[bytes, tuple[int, PartyId, int, PartyId]]:
    """Return what each share looks like on the wire: to round, dealer, kind and holder."""
    found = {}
    for holder in run.everybody:
        secrets = run.secrets(holder)
        for t in range(run.rounds):
            own_and_box, pairs = secrets.quick(t), secrets.answer(t, ())
            for place, dealer in enumerate((*run.everybody, *run.everybody)):
                kind = OWN if place < len(run.everybody) else BOX
                found[_piece(own_and_box, place)] = t, dealer, kind, holder
            for place, dealer in enumerate(run.everybody):
                found[_piece(pairs, place)] = t, dealer, PAIRS, holder
    return found


def _piece(content: bytes, place: int) -> bytes:
    return content[place * ELEMENT_BYTES : (place + 1) * ELEMENT_BYTES]
