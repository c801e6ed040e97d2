"""What the server computes: secrets from T answers, and from the secrets what covers the sum of a set.

Each answer makes shares of words. The shares of T clients are combined with the same weights for all secrets and
compared with the dealers' checks. Where that fails, other answers are tried; the polynomial that fits its check shows
which answers are wrong.

Source: docs/protocol.md, "Threshold masks: numbers, parts, secrets"; Bonawitz et al. (2017), Fig. 4, round 4.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, islice

import numpy as np

from fastlloyd.errors import PeerError, Reason, name_some
from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.masking.threshold import shamir
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.secrets import box_stream, own_mask, own_stream, pair_mask, read_masks
from fastlloyd.masking.threshold.shamir import ELEMENT_BYTES
from fastlloyd.masking.threshold.words import BOX, OWN, PAIRS, Words, check_of, hide_table
from fastlloyd.randomness.prg import KEY_BYTES
from fastlloyd.wire.header import SERVER, PartyId, clients

MOST_TRIALS = 2_000
"""Sets of T answers that are tried for one secret."""

_log = logging.getLogger(__name__)


class Board:
    """The words of all clients, and what T answers open of them.

    Parameters
    ----------
    numbers : Numbers
    words : mapping from PartyId to Words
        Of all M clients.

    Attributes
    ----------
    wrong : dict from PartyId to str
        Clients whose answer held a wrong share, though others opened the secret, and the sentence that says so, as the
        log does. Their answers are used last from then on.
    """

    __slots__ = ("_numbers", "_ready", "_words", "wrong")

    def __init__(self, numbers: Numbers, words: Mapping[PartyId, Words]) -> None:
        self._numbers, self._words = numbers, dict(words)
        self._ready: tuple[int, list[list[int]]] = (-1, [])
        self.wrong: dict[PartyId, str] = {}

    def prepare(self, round_: int) -> None:
        """Read the words that open a round for the set of everybody, before there are answers."""
        self._ready = (round_, self._rows(round_, self._quick))

    @property
    def _quick(self) -> list[tuple[PartyId, int]]:
        """Dealer and kind of the secrets of the set of everybody, in the order of an answer."""
        return [(dealer, kind) for kind in (OWN, BOX) for dealer in clients(self._numbers.clients)]

    def quick_masks(
        self, round_: int, answers: Mapping[PartyId, bytes], history: bytes, *, ring: Ring, elements: int
    ) -> tuple[RingArray, RingArray]:
        """Open a round for the set of everybody.

        Parameters
        ----------
        round_ : int
        answers : mapping from PartyId to bytes
            From `ClientSecrets.quick`, of T clients or more.
        history : bytes
        ring : Ring
        elements : int

        Returns
        -------
        masks : array, shape (elements,)
            What remains on the sum of all vectors: the sum of all own masks. Pair masks cancel.
        boxes : array, shape (M, elements)
            What covers the box of each client, by rank.

        Raises
        ------
        PeerError
            An answer has another length (its client is at fault), or a secret cannot be opened with these answers.
        """
        if self._ready[0] != round_:
            self.prepare(round_)
        opened, M = self._open(round_, self._quick, answers, self._ready[1]), self._numbers.clients
        own = [own_stream(secret) for secret in opened[:M]]
        boxes = [box_stream(secret) for secret in opened[M:]]
        masks = read_masks(own, round_, history, ring=ring, elements=elements).sum(axis=0, dtype=ring.dtype)
        return masks, read_masks(boxes, round_, history, ring=ring, elements=elements)

    def masks(
        self,
        round_: int,
        included: Collection[PartyId],
        answers: Mapping[PartyId, bytes],
        history: bytes,
        *,
        ring: Ring,
        elements: int,
    ) -> RingArray:
        """Open a round for a set.

        Parameters
        ----------
        round_ : int
        included : collection of PartyId
            The set.
        answers : mapping from PartyId to bytes
            From `ClientSecrets.answer` for this set, of T clients or more, in the set or not.
        history : bytes
        ring : Ring
        elements : int

        Returns
        -------
        array, shape (elements,)
            What remains on the sum of the vectors of the set: own masks, and pair masks with those outside.

        Raises
        ------
        PeerError
            As for `quick_masks`.
        """
        everybody, inside = clients(self._numbers.clients), frozenset(included)
        wanted = [(dealer, OWN if dealer in inside else PAIRS) for dealer in everybody]
        opened = self._open(round_, wanted, answers, self._rows(round_, wanted))
        total = np.zeros(elements, ring.dtype)
        for dealer, secret in zip(everybody, opened, strict=True):
            if dealer in inside:
                total += own_mask(secret, round_, history, ring=ring, elements=elements)
                continue
            keys = hide_table(self._words[dealer].table(round_), secret)
            for member in inside:
                key = keys[(member.rank - 1) * KEY_BYTES : member.rank * KEY_BYTES]
                mask = pair_mask(key, round_, history, ring=ring, elements=elements)
                if member < dealer:
                    total += mask
                else:
                    total -= mask
        return total

    def _rows(self, round_: int, wanted: Sequence[tuple[PartyId, int]]) -> list[list[int]]:
        """Return the words of each secret, given by dealer and kind, by holder."""
        return [self._words[dealer].row(round_, kind) for dealer, kind in wanted]

    def _open(
        self,
        round_: int,
        wanted: Sequence[tuple[PartyId, int]],
        answers: Mapping[PartyId, bytes],
        rows: Sequence[Sequence[int]],
    ) -> list[int]:
        """Return the wanted secrets; answers have a share for each, in this order, and rows a word of each holder."""
        for holder in sorted(answers):
            _check_length(holder, answers[holder], len(wanted))
        terms, opened = self._terms(answers), []
        for i, ((dealer, kind), row) in enumerate(zip(wanted, rows, strict=True)):
            secret = sum(weight * (pads[i] + row[place]) for weight, pads, place in terms) % shamir.PRIME
            if check_of(dealer, round_, kind, secret) != self._words[dealer].check(round_, kind):
                secret = self._open_one(round_, dealer, kind, {h: _read(answers[h])[i] for h in sorted(answers)})
                terms = self._terms(answers)  # an answer may have turned out to be wrong
            opened.append(secret)
        return opened

    def _terms(self, answers: Mapping[PartyId, bytes]) -> list[tuple[int, list[int], int]]:
        """Return weight, pads and place of the clients whose answers are used first, the same for all secrets."""
        first = self._order(answers)[: self._numbers.threshold]
        weights = _weights(tuple(holder.rank for holder in first))
        return [(weights[holder.rank], _read(answers[holder]), holder.rank - 1) for holder in first]

    def _order(self, answers: Collection[PartyId]) -> list[PartyId]:
        """Return the clients in the order in which their answers are used."""
        return sorted(answers, key=lambda holder: (holder in self.wrong, holder))

    def _open_one(self, round_: int, dealer: PartyId, kind: int, pads: Mapping[PartyId, int]) -> int:
        """Return one secret, and note whose share of it was wrong."""
        words = self._words[dealer]
        check = words.check(round_, kind)
        order = self._order(pads)
        for chosen in _choices(order, self._numbers.threshold):
            shares = {h.rank: (pads[h] + words.word(round_, kind, h)) % shamir.PRIME for h in chosen}
            secret = shamir.combine(_weights(tuple(shares)), shares)
            if check_of(dealer, round_, kind, secret) == check:
                if chosen != order[: len(chosen)]:
                    self._note(round_, dealer, kind, pads, shares)
                return secret
        raise PeerError(
            f"the {len(pads)} answers of round {round_} do not open the secret of {dealer}, expected "
            f"{self._numbers.threshold} right ones: one of the clients {name_some([h.rank for h in order])} sent a "
            f"wrong answer, or {dealer} dealt wrong words; ask more clients, or start again without the one at fault",
            rank=SERVER.rank,
            reason=Reason.CONTRADICTION,
        )

    def _note(
        self, round_: int, dealer: PartyId, kind: int, pads: Mapping[PartyId, int], shares: Mapping[int, int]
    ) -> None:
        """Note each client whose share does not lie on the polynomial of these T shares, which gave the secret."""
        for holder, pad in pads.items():
            if holder in self.wrong:
                continue
            expected = shamir.combine(shamir.weights(shares, at=holder.rank), shares)
            if (pad + self._words[dealer].word(round_, kind, holder)) % shamir.PRIME != expected:
                self.wrong[holder] = (
                    f"{holder} sent a wrong share of a secret of {dealer} in round {round_}, or {dealer} dealt it a "
                    "wrong word; the answers of others opened the secret"
                )
                _log.warning("%s", self.wrong[holder])


_weights = lru_cache(maxsize=256)(shamir.weights)


def _check_length(sender: PartyId, answer: bytes, count: int) -> None:
    if len(answer) != count * ELEMENT_BYTES:
        raise PeerError(
            f"{sender} sent an answer of {len(answer)} bytes, expected {count * ELEMENT_BYTES}; check its version",
            rank=sender.rank,
        )


def _read(answer: bytes) -> list[int]:
    """Return the elements of an answer."""
    return [int.from_bytes(answer[at : at + ELEMENT_BYTES], "little") for at in range(0, len(answer), ELEMENT_BYTES)]


def _choices(order: Sequence[PartyId], threshold: int) -> Iterator[Sequence[PartyId]]:
    """Yield sets of T clients, the first ones first: all sets if they are few, else some that differ."""
    if len(order) < threshold:
        return
    yield order[:threshold]
    if math.comb(len(order), threshold) <= MOST_TRIALS:
        yield from islice(combinations(order, threshold), 1, None)
        return
    shuffle = np.random.default_rng(0)  # which ones is no secret
    for _ in range(MOST_TRIALS):
        yield [order[place] for place in np.sort(shuffle.permutation(len(order))[:threshold])]
