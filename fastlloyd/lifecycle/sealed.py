"""Agreement on the clients' common seed through the server, which cannot read it: M messages for M clients.

::

    client i                                             server
      SealKey      key of this run, signed        ------>
    the first three clients
                   <------  SealKeys     of all clients
      SealedParts  32 random bytes, sealed for
                   each other client, signed      ------>
    client i
                   <------  SealedSeed   the parts that were sealed for it
      seed = HKDF(part_1 | part_2 | part_3; run id)

A contributor sends all clients the same digest of its part, so it cannot seal different parts unnoticed. Every key
and every sealed part is signed with its sender's roster key, together with the run, the roster and the keys of both:
the server cannot change, swap or replay any of them. An honest server refuses a wrong signature itself, so a client
that receives one knows that the server is dishonest. The keys are made for this run and discarded after it.

A part is sealed under a secret of two clients by X25519 and ML-KEM-768 together (`crypto/hybrid.py`), so that recorded
messages do not open if only one of the two is broken one day. The sender encapsulates.

Without a roster the signatures are zeros and prove nothing: a malicious server could read the seed.

Source: FastLloyd, §3 ("clients share a common secret"), Fig. 1; docs/protocol.md, "Seed".
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from fastlloyd.crypto.hybrid import CIPHERTEXT_BYTES, PUBLIC_BYTES, RAW_BYTES, TAG_BYTES, HybridKey, seal, unseal
from fastlloyd.crypto.link.identity import SIGNATURE_BYTES, Credentials
from fastlloyd.errors import SecurityError
from fastlloyd.lifecycle.same_secret import NotEqual, collect_tags, prove_equality
from fastlloyd.lifecycle.signed import check_passed_on, check_sent
from fastlloyd.party.declaration import DOWN, UP, OfPlan, Seen, common
from fastlloyd.party.effects import Gather, Party, Receive, Send
from fastlloyd.party.message import FixedBytes, NoPayload, Several, check_size
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import KEY_BYTES, derive
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SERVER, SETUP_ROUND, PartyId

CONTRIBUTORS = 3
"""The first clients contribute: none of them alone chooses the seed, and one good source of bits is enough."""
_SIGNED_KEY = (PUBLIC_BYTES, SIGNATURE_BYTES)
_DIGESTS = (KEY_BYTES, KEY_BYTES)
_SIGNED_BOX = (CIPHERTEXT_BYTES, KEY_BYTES + TAG_BYTES, SIGNATURE_BYTES)


def sealed_parts_bytes(clients: int) -> int:
    """Return the length of what one contributor sends."""
    return sum(_DIGESTS) + sum(_SIGNED_BOX) * (clients - 1)


@dataclass(frozen=True, slots=True)
class SealKey(FixedBytes):
    """A client's key of this run, which the server relays to the contributors.

    Attributes
    ----------
    public : bytes of length 1216
        Key of this run: `HybridKey.public`.
    signature : bytes of length 64
        Zeros without a roster.
    """

    TYPE = 19
    SIZES = _SIGNED_KEY
    SEEN = Seen(
        UP,
        "agree on the seed of the masks: keys of this run, and parts sealed for the other clients",
        server="public keys, and parts that it cannot open",
        others="- (they come back in SealKeys and SealedSeed)",
        when=common,
    )
    public: bytes = field(repr=False)
    signature: bytes = field(repr=False)


class SealKeys(Several[SealKey]):
    """The keys of all clients, in the order of ranks."""

    __slots__ = ()
    TYPE = 20
    PIECE = SealKey
    MOST_BYTES = OfPlan(lambda plan: SealKey.MOST_BYTES * plan.clients)
    SEEN = Seen(
        DOWN,
        "the same, passed on to the clients that they are for",
        server="public keys, and parts that it cannot open",
        others="32 bytes from each that contributes, hence the seed",
        when=common,
    )


@dataclass(frozen=True, slots=True)
class Box(FixedBytes):
    """One sealed part, for one client: a piece of a message.

    Attributes
    ----------
    ciphertext : bytes of length 1088
        What the receiver needs for the secret that the part is sealed under.
    sealed : bytes of length 48
    signature : bytes of length 64
        The sender's; zeros without a roster.
    """

    SIZES = _SIGNED_BOX
    ciphertext: bytes = field(repr=False)
    sealed: bytes = field(repr=False)
    signature: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SealedParts(NoPayload):
    """What one client contributes, sealed: the server relays each part to its receiver.

    Attributes
    ----------
    context : bytes of length 32
        Digest of the public set-up, as the sender knows it.
    digest : bytes of length 32
        Keyed digest of the sender's part: the same for all.
    boxes : tuple of Box
        For the other clients, in the order of ranks.
    """

    TYPE = 21
    MOST_BYTES = OfPlan(lambda plan: sealed_parts_bytes(plan.clients))
    SEEN = ()
    context: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    boxes: tuple[Box, ...] = field(repr=False)

    def body(self) -> bytes:
        """Return context, digest and boxes."""
        return self.context + self.digest + b"".join(box.body() for box in self.boxes)

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Decode what one of `format` clients sends."""
        check_size(body, sealed_parts_bytes(format))
        start = sum(_DIGESTS)
        return cls(body[:KEY_BYTES], body[KEY_BYTES:start], Box.read_all(body[start:], format - 1))


@dataclass(frozen=True, slots=True)
class SealedPart(FixedBytes):
    """A part of the seed as its receiver gets it: a piece of a message, whose place says who sent it."""

    SIZES = (PUBLIC_BYTES, *_DIGESTS, *_SIGNED_BOX)
    public: bytes = field(repr=False)
    context: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    ciphertext: bytes = field(repr=False)
    sealed: bytes = field(repr=False)
    signature: bytes = field(repr=False)


class SealedSeed(Several[SealedPart]):
    """The parts that the other contributors sealed for one client, in the order of ranks."""

    __slots__ = ()
    TYPE = 22
    PIECE = SealedPart
    MOST_BYTES = SealedPart.MOST_BYTES * CONTRIBUTORS
    SEEN = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealing:
    """One client's side of the agreement.

    Attributes
    ----------
    me : PartyId
    clients : tuple of PartyId
        All clients in the order of ranks, `me` among them.
    run_id : bytes
    run : bytes of length 32
        Digest of run id, roster and public parameters: what the links were confirmed with.
    context : bytes
        Digest of `run`, the plan and the initial centres.
    credentials : Credentials
    hidden : bytes
        What must be equal at all clients and the server must not see; enters only the comparison that the seed keys.
    """

    me: PartyId
    clients: tuple[PartyId, ...]
    run_id: bytes
    run: bytes
    context: bytes
    credentials: Credentials
    hidden: bytes = field(default=b"", repr=False)

    def agree(self, secret: SecretRandom) -> Party[bytes]:
        """Agree on the common seed; run by every client.

        Returns
        -------
        bytes of length 32

        Raises
        ------
        SecurityError
            A message is not what its sender signed, sealed or sent to all clients; names the culprit.

        Notes
        -----
        Sees: each client learns the seed; the server, which relays every message, learns nothing of it.
        """
        parts: dict[PartyId, bytes] = {}
        contributors = self.clients[:CONTRIBUTORS]
        if self.me in contributors:
            parts[self.me] = secret.bytes(KEY_BYTES)
        if len(self.clients) > 1:
            key = HybridKey(secret.bytes(RAW_BYTES), self.me, purpose=domains.SEAL_SECRET, run_id=self.run_id)
            signature = self.credentials.sign(_key_statement(self.run, self.me, key.public), domains.SEAL_KEY)
            yield Send((SERVER,), SealKey(key.public, signature), SETUP_ROUND)
            if self.me in contributors:
                keys: SealKeys = yield Receive(SERVER, SealKeys, SETUP_ROUND, len(self.clients))
                yield Send((SERVER,), self._seal(key, parts[self.me], keys), SETUP_ROUND)
            others = tuple(party for party in contributors if party != self.me)
            # The server waits for keys and then for parts before it sends anything to the other clients.
            waits = 1 if self.me in contributors else 2
            seed: SealedSeed = yield Receive(SERVER, SealedSeed, SETUP_ROUND, len(others), waits)
            parts |= {party: self._open(key, party, part) for party, part in zip(others, seed.pieces, strict=True)}
        agreed = derive(b"".join(parts[party] for party in contributors), domains.SEED, self.run_id)
        yield from self.confirm(agreed)
        return agreed

    def confirm(self, seed: bytes) -> Party[None]:
        """Check that all clients have this seed and the same public set-up; on resume, of the stored seed.

        Raises
        ------
        SecurityError
            They do not; names the client that differs from most, if the server names one.
        """
        try:
            yield from prove_equality(
                self.me,
                self.clients,
                self.clients,
                secret=seed,
                things={domains.SAME_SEED: self.run_id + self.context + self.hidden},
                round_=SETUP_ROUND,
            )
        except NotEqual as error:
            also = ", and the results that each party has of the run that is described" if self.hidden else ""
            on = "on the common seed or on the public set-up"
            if error.odd.is_server:
                who = f"the clients do not all agree {on}, or one of them or the server misstates it"
            elif error.odd == self.me:
                who = f"the server says that {self.me}, this party, does not agree with the others {on}"
            else:
                who = f"{error.odd} does not agree with the others {on}, as the server says"
            raise SecurityError(
                f"{who}; compare rosters, configurations, versions and, on --resume, the state directories{also}",
                # A party does not accuse itself: it has only the server's word for it.
                rank=SERVER.rank if error.odd == self.me else error.rank,
            ) from error

    @property
    def _doubt(self) -> str:
        """Return who else may be at fault if nothing is signed."""
        return "" if self.credentials.authentic else " (or the server changed it: without a roster nobody can tell)"

    @contextmanager
    def _doubted(self) -> Iterator[None]:
        """Add to an error who else may be at fault."""
        try:
            yield
        except SecurityError as error:
            raise SecurityError(f"{error}{self._doubt}", rank=error.rank) from error

    def _seal(self, key: HybridKey, part: bytes, keys: SealKeys) -> SealedParts:
        """Seal this client's part for each other client."""
        digest = _digest(part, self.me, self.context)
        boxes = []
        for party, theirs in zip(self.clients, keys.pieces, strict=True):
            if party == self.me:
                continue
            check_passed_on(
                self.credentials,
                party,
                _key_statement(self.run, party, theirs.public),
                theirs.signature,
                label=domains.SEAL_KEY,
                what=f"a key of {party} for the common seed",
            )
            with self._doubted():
                ciphertext, shared = key.encapsulate(party, theirs.public)
            sealed = seal(part, shared, domains.SEED_SEAL, _seal_context(self.me, self.context, digest))
            public = SealedPart(key.public, self.context, digest, ciphertext, sealed, b"")
            statement = _part_statement(self.run, self.me, party, theirs.public, public)
            boxes.append(Box(ciphertext, sealed, self.credentials.sign(statement, domains.SEALED_PART)))
        return SealedParts(self.context, digest, tuple(boxes))

    def _open(self, key: HybridKey, sender: PartyId, part: SealedPart) -> bytes:
        """Open what another client sealed for this one."""
        statement = _part_statement(self.run, sender, self.me, key.public, part)
        check_passed_on(
            self.credentials,
            sender,
            statement,
            part.signature,
            label=domains.SEALED_PART,
            what=f"a part of the common seed by {sender}",
        )
        if part.context != self.context:
            raise SecurityError(
                f"{self.me} and {sender} do not agree on the public set-up: expected the same plan and initial centres "
                f"on both sides; compare the rosters, configurations and versions of the two{self._doubt}",
                rank=sender.rank,
            )
        with self._doubted():
            shared = key.decapsulate(sender, part.public, part.ciphertext)
        try:
            plain = unseal(part.sealed, shared, domains.SEED_SEAL, _seal_context(sender, self.context, part.digest))
        except ValueError as error:
            raise SecurityError(
                f"the part of the common seed that {sender} sealed for {self.me} does not open: expected one that was "
                f"sealed for this run and this client's key{self._doubt}",
                rank=sender.rank,
            ) from error
        if not hmac.compare_digest(_digest(plain, sender, self.context), part.digest):
            raise SecurityError(
                f"{sender} sealed a different part of the common seed for {self.me} than its digest for all says; "
                "the masks would not cancel",
                rank=sender.rank,
            )
        return plain


def relay_seed(clients: tuple[PartyId, ...], *, run: bytes, credentials: Credentials, resumed: bool) -> Party[None]:
    """Relay keys and sealed parts, then collect the tags that prove that all seeds are equal; run by the server.

    Parameters
    ----------
    clients : tuple of PartyId
        All, in the order of ranks.
    run : bytes of length 32
        As in `Sealing`.
    credentials : Credentials
    resumed : bool
        The clients have a seed and only compare it.

    Raises
    ------
    SecurityError
        A client did not sign what it sent; names it.

    Notes
    -----
    Sees: public keys, and parts that it cannot open; whether all clients have the same seed.
    """
    if len(clients) > 1 and not resumed:
        keys: Mapping[PartyId, SealKey] = yield Gather(clients, SealKey, SETUP_ROUND, len(clients))
        for party, key in keys.items():
            statement = _key_statement(run, party, key.public)
            check_sent(
                credentials,
                party,
                statement,
                key.signature,
                label=domains.SEAL_KEY,
                what="its key for the common seed",
            )
        contributors = clients[:CONTRIBUTORS]
        yield Send(contributors, SealKeys(tuple(keys[party] for party in clients)), SETUP_ROUND)
        sent: Mapping[PartyId, SealedParts] = yield Gather(
            contributors, SealedParts, SETUP_ROUND, len(contributors), len(clients)
        )
        found: dict[PartyId, list[SealedPart]] = {party: [] for party in clients}
        for sender in contributors:
            said = sent[sender]
            others = [party for party in clients if party != sender]
            for party, box in zip(others, said.boxes, strict=True):
                part = SealedPart(
                    keys[sender].public, said.context, said.digest, box.ciphertext, box.sealed, box.signature
                )
                statement = _part_statement(run, sender, party, keys[party].public, part)
                check_sent(
                    credentials,
                    sender,
                    statement,
                    box.signature,
                    label=domains.SEALED_PART,
                    what=f"the part of the common seed that it sealed for {party}",
                )
                found[party].append(part)
        for party, parts in found.items():
            yield Send((party,), SealedSeed(tuple(parts)), SETUP_ROUND)
    yield from collect_tags(clients, clients, (), SETUP_ROUND)


def _digest(part: bytes, sender: PartyId, context: bytes) -> bytes:
    """Return the digest of a part that all clients receive; it reveals nothing about 32 random bytes."""
    return derive(part, domains.SEED_PART, struct.pack("<I", sender.rank) + context)


def _seal_context(sender: PartyId, context: bytes, digest: bytes) -> bytes:
    """Bind a seal to its sender, the public set-up and the digest sent to all; the secret binds keys and run."""
    return struct.pack("<I", sender.rank) + context + digest


def _key_statement(run: bytes, party: PartyId, public: bytes) -> bytes:
    return run + struct.pack("<I", party.rank) + public


def _part_statement(run: bytes, sender: PartyId, receiver: PartyId, key: bytes, part: SealedPart) -> bytes:
    """Return the bytes that the sender of a part signs; `key` is the receiver's."""
    ranks = struct.pack("<II", sender.rank, receiver.rank)
    return run + ranks + part.public + key + part.context + part.digest + part.ciphertext + part.sealed
