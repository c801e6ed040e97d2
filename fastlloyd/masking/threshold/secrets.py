"""What one client holds: chains of secrets from which it masks, answers, and draws its noise, round by round.

Every client has a root, drawn from the system, and a secret with each other client. Both run forward by HKDF, one step
a round; what is left behind cannot be computed again. From the root of a round come the client's secrets (their shares
are dealt at set-up, as words) and the streams of its parts of the noise; from the secret of a pair come the pair's mask
and the pads of the shares that the two deal to each other.

Source: docs/protocol.md, "Threshold masks: numbers, parts, secrets"; Bonawitz et al. (2017), "double-masking".
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from fastlloyd.errors import InternalError
from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.masking.mask import MaskStream
from fastlloyd.masking.threshold import shamir
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.shamir import ELEMENT_BYTES, WIDE_BYTES
from fastlloyd.masking.threshold.words import BOX, KINDS, OWN, PAIRS, Words, check_of, hide_table
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import KEY_BYTES, NONCE_BYTES, Derivation, derive, keystream
from fastlloyd.randomness.secret import KeyedRandom, SecretRandom
from fastlloyd.wire.header import PartyId, clients

_NO_NONCE = bytes(NONCE_BYTES)
_HEAD = struct.Struct("<III")


class _Round:
    """What one client holds in one round, and what follows from it alone, computed when it is first asked for."""

    def __init__(self, root: bytes, pairs: Mapping[PartyId, bytes]) -> None:
        self.root, self.pairs = root, dict(pairs)
        self.from_root = Derivation(root)
        self.from_pairs = {other: Derivation(pair) for other, pair in pairs.items()}
        self.quick: bytes | None = None

    def next(self) -> _Round:
        """Return the next round's."""
        keys = {other: pair.derive(domains.THRESHOLD_NEXT) for other, pair in self.from_pairs.items()}
        return _Round(self.from_root.derive(domains.THRESHOLD_NEXT), keys)

    def pair_key(self, other: PartyId) -> bytes:
        """Return k_ij, from which the mask of a pair comes."""
        return self.from_pairs[other].derive(domains.THRESHOLD_PAIR_KEY)

    @cached_property
    def own_stream(self) -> MaskStream:
        """The stream of this client's own mask."""
        return own_stream(_secret(self.from_root, OWN))

    @cached_property
    def box_stream(self) -> MaskStream:
        """The stream that covers this client's box."""
        return box_stream(_secret(self.from_root, BOX))

    @cached_property
    def pair_streams(self) -> dict[PartyId, MaskStream]:
        """The stream of the mask of each pair."""
        return {other: pair_stream(self.pair_key(other)) for other in self.pairs}


class ClientSecrets:
    """The secrets of one client of a run; never shown.

    Attributes
    ----------
    numbers : Numbers
    me : PartyId
    rounds : int
        R of the set-up.
    first : int
        The first round whose secrets are still here.
    """

    __slots__ = ("_own", "_pairs", "_ready", "_root", "first", "me", "numbers", "rounds")

    def __init__(
        self,
        numbers: Numbers,
        me: PartyId,
        *,
        rounds: int,
        first: int,
        root: bytes,
        pairs: Mapping[PartyId, bytes],
        own: list[bytes],
    ) -> None:
        self.numbers, self.me, self.rounds, self.first = numbers, me, rounds, first
        self._root = root
        self._pairs = {other: pairs[other] for other in sorted(pairs)}
        self._own = own  # from round `first` on: this client's share of each of its own secrets
        self._ready: dict[int, _Round] = {}

    def __repr__(self) -> str:
        return f"ClientSecrets({self.me}, from round {self.first})"

    @classmethod
    def deal(
        cls, numbers: Numbers, me: PartyId, pairs: Mapping[PartyId, bytes], rounds: int, secret: SecretRandom
    ) -> tuple[Self, Words]:
        """Draw the secrets of all rounds, and share them.

        Parameters
        ----------
        numbers : Numbers
        me : PartyId
        pairs : mapping from PartyId to bytes of length 32
            s_ij with each other client, bound to this run.
        rounds : int
            R.
        secret : SecretRandom

        Returns
        -------
        secrets : ClientSecrets
        words : Words
            For everybody.
        """
        mine = cls(
            numbers,
            me,
            rounds=rounds,
            first=0,
            root=secret.bytes(KEY_BYTES),
            pairs={other: derive(pair, domains.THRESHOLD_ROUND) for other, pair in pairs.items()},
            own=[],
        )
        this, content = _Round(mine._root, mine._pairs), []
        for round_ in range(rounds):
            published, own = mine._deal_round(round_, this, secret)
            content.append(published)
            mine._own.append(own)
            this = this.next()
        return mine, Words(me, numbers.clients, rounds, b"".join(content))

    def _deal_round(self, round_: int, this: _Round, random: SecretRandom) -> tuple[bytes, bytes]:
        """Share a round's secrets: return words, table and checks, and this client's own shares."""
        me, numbers = self.me, self.numbers
        secrets = {kind: _secret(this.from_root, kind) for kind in KINDS}
        words, checks, own = [], [], []
        for kind, shared in secrets.items():
            shares = shamir.split(shared, numbers.threshold, numbers.clients, random)
            for other, pair in this.from_pairs.items():
                words.append(shamir.to_bytes((shares[other.rank - 1] - _pad(pair, me, other, kind)) % shamir.PRIME))
            own.append(shamir.to_bytes(shares[me.rank - 1]))
            checks.append(check_of(me, round_, kind, shared))
        keys = {me: bytes(KEY_BYTES)} | {other: this.pair_key(other) for other in this.pairs}
        table = hide_table(b"".join(keys[party] for party in sorted(keys)), secrets[PAIRS])
        end = me.rank * KEY_BYTES
        # This client has no key with itself: its place would show bytes of the stream.
        return b"".join((*words, table[: end - KEY_BYTES], table[end:], *checks)), b"".join(own)

    def prepare_masks(self, round_: int) -> None:
        """Make ready what covers the vector and box of a round, if it exists: before its history is known."""
        if self.first <= round_ < self.rounds:
            this = self._at(round_)
            _ = this.own_stream, this.box_stream, this.pair_streams

    def vector_mask(self, round_: int, history: bytes, *, ring: Ring, elements: int) -> RingArray:
        """Return what covers the vector of a round: the own mask, and one with each other client.

        Parameters
        ----------
        round_ : int
        history : bytes
            Of all replies before the round (`masking/mask.py`).
        ring : Ring
        elements : int

        Returns
        -------
        uint32 or uint64 array, shape (elements,)

        Raises
        ------
        InternalError
            The secrets of this round are forgotten, or were never dealt.
        """
        this = self._at(round_)
        streams = [this.own_stream, *this.pair_streams.values()]
        masks = read_masks(streams, round_, history, ring=ring, elements=elements)
        # The own one, then those of pairs by rank: with lower ranks, then with higher ones.
        lower, higher = (
            part.sum(axis=0, dtype=ring.dtype) for part in (masks[1 : self.me.rank], masks[self.me.rank :])
        )
        result: RingArray = masks[0] + higher - lower
        return result

    def box_mask(self, round_: int, history: bytes, *, ring: Ring, elements: int) -> RingArray:
        """Return what covers the sealed excess of a round; parameters and errors as for `vector_mask`."""
        mask: RingArray = read_masks([self._at(round_).box_stream], round_, history, ring=ring, elements=elements)[0]
        return mask

    def part_random(self, round_: int, history: bytes, part: int) -> KeyedRandom:
        """Return the source from which one part of a round's noise is drawn: the same bits each time.

        Parameters
        ----------
        round_ : int
        history : bytes
        part : int
            j; each part has its stream. All releases of the round draw from it one after the other, always in the same
            order.

        Raises
        ------
        InternalError
            As for `vector_mask`.
        """
        root, context = self._at(round_).from_root, struct.pack("<II", part, round_) + history
        return KeyedRandom(
            *(root.derive(label, context) for label in (domains.THRESHOLD_PART, domains.THRESHOLD_FURTHER))
        )

    def quick(self, round_: int) -> bytes:
        """Return the answer that opens a round for the set of everybody, 64 M bytes.

        For each client by rank the pad of its secret OWN, or for this client its share; then the same of BOX.

        Raises
        ------
        InternalError
            As for `vector_mask`.
        """
        this = self._at(round_)
        if this.quick is None:
            this.quick = self._answer(round_, [OWN] * self.numbers.clients + [BOX] * self.numbers.clients)
        return this.quick

    def answer(self, round_: int, included: Collection[PartyId]) -> bytes:
        """Return the answer that opens a round for a set, 32 M bytes.

        For each client by rank the pad of its secret OWN if it is in the set, else PAIRS; for this client its share.

        Raises
        ------
        InternalError
            As for `vector_mask`.
        """
        inside = frozenset(included)
        return self._answer(round_, [OWN if one in inside else PAIRS for one in clients(self.numbers.clients)])

    def _answer(self, round_: int, kinds: list[int]) -> bytes:
        """Return a pad or share for each kind, of the clients by rank, again and again."""
        pairs = self._at(round_).from_pairs
        own, M = self._own[round_ - self.first], self.numbers.clients
        parts = []
        for place, kind in enumerate(kinds):
            dealer = PartyId(place % M + 1)
            if dealer == self.me:
                parts.append(own[kind * ELEMENT_BYTES : (kind + 1) * ELEMENT_BYTES])
            else:
                parts.append(shamir.to_bytes(_pad(pairs[dealer], dealer, self.me, kind)))
        return b"".join(parts)

    def forget_before(self, round_: int) -> None:
        """Run the chains forward and delete what belongs to older rounds; nothing if they are gone already.

        Raises
        ------
        InternalError
            The round lies beyond the end of the set-up.
        """
        if round_ <= self.first:
            return
        if round_ > self.rounds:
            raise InternalError(f"expected a round up to {self.rounds}, got {round_}")
        this = self._walk(round_)
        self._root, self._pairs = this.root, this.pairs
        self._ready = {later: ready for later, ready in self._ready.items() if later >= round_}
        del self._own[: round_ - self.first]
        self.first = round_

    def to_bytes(self) -> bytes:
        """Encode what is left for the state folder: no secret of a forgotten round is in it, nor follows from it."""
        head = _HEAD.pack(self.me.rank, self.rounds, self.first)
        return b"".join((head, self._root, *self._pairs.values(), *self._own))

    @classmethod
    def from_bytes(cls, numbers: Numbers, me: PartyId, content: bytes) -> Self:
        """Decode the output of `to_bytes`.

        Raises
        ------
        ValueError
            It is another client's, or its length or a share does not fit.
        """
        if len(content) < _HEAD.size:
            raise ValueError(f"expected the secrets of {me}, got {len(content)} bytes")
        rank, rounds, first = _HEAD.unpack_from(content)
        others = [other for other in clients(numbers.clients) if other != me]
        row = len(KINDS) * ELEMENT_BYTES
        keys_end = _HEAD.size + KEY_BYTES * (1 + len(others))
        if rank != me.rank or first > rounds or len(content) != keys_end + row * (rounds - first):
            raise ValueError(
                f"expected the secrets of {me}, got {len(content)} bytes of client {rank}, round {first} of {rounds}"
            )
        for at in range(keys_end, len(content), ELEMENT_BYTES):
            shamir.from_bytes(content[at : at + ELEMENT_BYTES])
        keys = [content[at : at + KEY_BYTES] for at in range(_HEAD.size, keys_end, KEY_BYTES)]
        own = [content[at : at + row] for at in range(keys_end, len(content), row)]
        pairs = dict(zip(others, keys[1:], strict=True))
        return cls(numbers, me, rounds=rounds, first=first, root=keys[0], pairs=pairs, own=own)

    def _at(self, round_: int) -> _Round:
        """Return what a round that is not over has; it is kept until the round is."""
        if not self.first <= round_ < self.rounds:
            raise InternalError(
                f"the threshold secrets of round {round_} are not here: expected a round from {self.first} to below "
                f"{self.rounds}"
            )
        if round_ not in self._ready:
            self._ready[round_] = self._walk(round_)
        return self._ready[round_]

    def _walk(self, round_: int) -> _Round:
        """Run root and pair secrets forward to a round."""
        at = max((ready for ready in self._ready if ready <= round_), default=self.first)
        this = self._ready.get(at) or _Round(self._root, self._pairs)
        for _ in range(round_ - at):
            this = this.next()
        return this


def _secret(root: Derivation, kind: int) -> int:
    """Return g(r, kind), an integer below p."""
    key = root.derive(domains.THRESHOLD_SECRET, bytes([kind]))
    return shamir.reduce_wide(keystream(key, _NO_NONCE, WIDE_BYTES))


def _pad(pair: Derivation, dealer: PartyId, holder: PartyId, kind: int) -> int:
    """Return the pad of the share that one client of a pair deals to the other."""
    key = pair.derive(domains.THRESHOLD_PAD, struct.pack("<IIB", dealer.rank, holder.rank, kind))
    return shamir.reduce_wide(keystream(key, _NO_NONCE, WIDE_BYTES))


def own_stream(secret: int) -> MaskStream:
    """Return the stream of a client's own mask, from its secret of kind OWN."""
    return MaskStream(shamir.to_bytes(secret), domains.THRESHOLD_OWN_MASK, b"")


def box_stream(secret: int) -> MaskStream:
    """Return the stream of what covers a client's sealed excess, from its secret of kind BOX."""
    return MaskStream(shamir.to_bytes(secret), domains.THRESHOLD_BOX_MASK, b"")


def pair_stream(key: bytes) -> MaskStream:
    """Return the stream of the mask of a pair, from k_ij(r), 32 bytes: the lower rank adds it."""
    return MaskStream(key, domains.THRESHOLD_PAIR_MASK, b"")


def read_masks(streams: Sequence[MaskStream], round_: int, history: bytes, *, ring: Ring, elements: int) -> RingArray:
    """Return the mask of each stream in a round, nonce from round and history; shape (len(streams), elements)."""
    content = b"".join([stream.read(round_, history, elements * ring.element_bytes) for stream in streams])
    return np.frombuffer(content, ring.dtype).reshape(len(streams), elements)


def own_mask(secret: int, round_: int, history: bytes, *, ring: Ring, elements: int) -> RingArray:
    """Return a client's own mask, from its secret of kind OWN; array, shape (elements,)."""
    mask: RingArray = read_masks([own_stream(secret)], round_, history, ring=ring, elements=elements)[0]
    return mask


def pair_mask(key: bytes, round_: int, history: bytes, *, ring: Ring, elements: int) -> RingArray:
    """Return the mask of a pair, from k_ij(r), 32 bytes: the lower rank adds it; array, shape (elements,)."""
    mask: RingArray = read_masks([pair_stream(key)], round_, history, ring=ring, elements=elements)[0]
    return mask
