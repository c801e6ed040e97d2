"""Whoever has recorded a run and one half of every private key later opens neither the seed nor a pair's secret.

The recording holds all bytes of all messages, as somebody has them who broke the links' TLS. The decoder below works
from the documents and gets private keys of all parties: the X25519 halves, the ML-KEM halves, or both. With both it
opens everything, so a failure to open means something. It also opens everything with one half if the parties combine
keys in a wrong way.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

import fastlloyd.run.horizontal as horizontal
from fastlloyd.crypto.hybrid import HybridKey
from fastlloyd.lifecycle.masked_sums import MaskedUpdate
from fastlloyd.lifecycle.same_secret import EqualityTag
from fastlloyd.lifecycle.sealed import SealedSeed, SealKey
from fastlloyd.lifecycle.shared_secrets import PairCiphertext, PairPublicKey, SeedConfirmation, SeedContribution
from fastlloyd.masking.pairwise import PairSecrets
from fastlloyd.protocols.feddp.messages import MaskedStatistic
from fastlloyd.protocols.secfc.messages import DataShares
from fastlloyd.protocols.vertical_he.messages import KeyPiece
from fastlloyd.randomness.prg import derive
from fastlloyd.run.simulation import run_together
from fastlloyd.wire.header import Header, PartyId
from tests.contracts.whole_run import config

CLIENTS = 4
PART = struct.Struct("<1216s32s32s1088s48s64s")
X25519, MLKEM, BOTH = "X25519", "ML-KEM-768", "both"


@dataclass
class Recording:
    """All messages of a run, what is public in it, and the private keys that come to light later."""

    run_id: bytes = b""
    context: bytes = b""
    messages: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    x25519: dict[int, bytes] = field(default_factory=dict)
    mlkem: dict[int, bytes] = field(default_factory=dict)
    truth: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """The pairs' secrets, which only the parties have."""

    def of(self, kind: Any) -> dict[tuple[int, int], bytes]:
        """The first message of a type from each sender to each receiver."""
        found: dict[tuple[int, int], bytes] = {}
        for number, sender, receiver, body in self.messages:
            if number == kind.TYPE:
                found.setdefault((sender, receiver), body)
        return found


def record(
    protocol: str, masking: str, monkeypatch: pytest.MonkeyPatch, *, clients: int = CLIENTS, **more: Any
) -> Recording:
    """Run all parties in memory and note everything that they send."""
    kept = Recording()
    make, pairs_of, context_of = HybridKey.__init__, PairSecrets.__init__, horizontal.Begun.agreement

    def noted(key: HybridKey, raw: bytes, me: PartyId, *, purpose: bytes, run_id: bytes) -> None:
        make(key, raw, me, purpose=purpose, run_id=run_id)
        kept.run_id, kept.x25519[me.rank], kept.mlkem[me.rank] = run_id, raw[:32], raw[32:]

    def noted_pairs(pairs: PairSecrets, me: PartyId, secrets: dict[PartyId, bytes]) -> None:
        pairs_of(pairs, me, secrets)
        kept.truth |= {(me.rank, other.rank): secret for other, secret in secrets.items()}

    def noted_context(begun: Any, start: bytes = b"") -> Any:
        agreement = context_of(begun, start)
        kept.context = agreement.context
        return agreement

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        kept.messages.append((header.type, sender.rank, receiver.rank, body))
        return body

    with monkeypatch.context() as patch:
        patch.setattr(HybridKey, "__init__", noted)
        patch.setattr(PairSecrets, "__init__", noted_pairs)
        patch.setattr(horizontal.Begun, "agreement", noted_context)
        run_together(dataclasses.replace(config(protocol), masking=masking, **more), clients, tap=tap)
    assert len(kept.x25519) >= clients
    return kept


def candidates(
    kept: Recording, purpose: bytes, keys: dict[int, bytes], pair: tuple[int, int], made: bytes, have: str
) -> Iterator[bytes]:
    """Every secret of a pair that follows from the private keys that came to light: `pair` is sender and receiver."""
    low, high = sorted(pair)
    shared = X25519PrivateKey.from_private_bytes(kept.x25519[low]).exchange(
        X25519PublicKey.from_public_bytes(keys[high][:32])
    )
    secret = MLKEM768PrivateKey.from_seed_bytes(kept.mlkem[pair[1]]).decapsulate(made)
    guesses = [bytes(32), b"", hashlib.sha256(made).digest(), hashlib.sha3_256(keys[pair[1]][32:]).digest()]
    materials = {
        X25519: [*(guess + shared for guess in guesses), shared],
        MLKEM: [*(secret + guess for guess in guesses), secret],
        BOTH: [secret + shared],
    }[have]
    ranks = struct.pack("<II", low, high)
    contexts = [ranks + keys[low] + keys[high] + made]
    if have != BOTH:  # and as if something were not bound
        contexts += [ranks + keys[low] + keys[high], ranks + keys[low][:32] + keys[high][:32], ranks, b""]
    for material, context in itertools.product(materials, contexts):
        yield derive(material, purpose, context, salt=kept.run_id)


def opened(sealed: bytes, key: bytes) -> bytes | None:
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), sealed, None)
    except InvalidTag:
        return None


def decode_seed(kept: Recording, have: str) -> bytes | None:
    """The seed from what the server relayed, or None."""
    keys = {sender: body[:1216] for (sender, _), body in kept.of(SealKey).items()}
    parts: dict[int, bytes] = {}
    for (_, receiver), body in kept.of(SealedSeed).items():
        senders = [c for c in (1, 2, 3) if c != receiver]
        for sender, (public, context, digest, made, sealed, _) in zip(senders, PART.iter_unpack(body), strict=True):
            assert public == keys[sender] and context == kept.context
            bound = struct.pack("<I", sender) + context + digest
            for secret in candidates(kept, b"fastlloyd seal secret", keys, (sender, receiver), made, have):
                plain = opened(sealed, derive(secret, b"fastlloyd seed seal", bound))
                if plain is not None:
                    parts[sender] = plain
    if not parts:
        return None
    return derive(b"".join(parts[c] for c in (1, 2, 3)), b"fastlloyd common seed", kept.run_id)


def decode_pairs(kept: Recording, have: str) -> dict[tuple[int, int], bytes]:
    """The pairs' secrets that tags on the links confirm."""
    keys = {sender: body for (sender, _), body in kept.of(PairPublicKey).items()}
    tags = kept.of(SeedConfirmation)
    found = {}
    for pair, made in kept.of(PairCiphertext).items():
        assert pair[0] < pair[1]
        content = kept.run_id + struct.pack("<I", pair[0]) + kept.context
        for secret in candidates(kept, b"fastlloyd pair secret 2", keys, pair, made, have):
            if derive(secret, b"fastlloyd pair confirm", content) == tags[pair]:
                found[pair] = secret
    return found


def decode_linked_seed(kept: Recording, have: str) -> bytes | None:
    """The seed that clients agreed on over their links, or None."""
    pairs, parts = decode_pairs(kept, have), {}
    for (sender, receiver), sealed in kept.of(SeedContribution).items():
        secret = pairs.get((min(sender, receiver), max(sender, receiver)))
        if secret is not None:
            bound = kept.run_id + struct.pack("<I", sender)
            parts[sender] = opened(sealed, derive(secret, b"fastlloyd seed contribution", bound))
    if len(parts) < CLIENTS:
        return None
    return derive(b"".join(parts[i] or b"" for i in sorted(parts)), b"fastlloyd common seed", kept.run_id)


def forgetful(half: str) -> Callable[..., bytes]:
    """A combiner that hangs on one half only: the mistake that these tests must see."""
    honest = HybridKey._combine

    def combine(key: HybridKey, other: PartyId, public: bytes, ciphertext: bytes, secret: bytes) -> bytes:
        if half == X25519:
            return honest(key, other, public, ciphertext, b"")
        low, high = sorted((key._me, other))
        keys = {key._me: key.public, other: public}
        context = struct.pack("<II", low.rank, high.rank) + keys[low] + keys[high] + ciphertext
        return derive(secret, key._purpose, context, salt=key._run_id)

    return combine


def same_seed_tag(kept: Recording, seed: bytes) -> bytes:
    """The tag that a client with this seed sent in the set-up."""
    key = derive(seed, b"fastlloyd seed alike", kept.run_id + kept.context)
    return Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(32))


@pytest.mark.parametrize("have", [X25519, MLKEM])
def test_a_recorded_seed_stays_closed_with_one_half_of_every_key(have: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = record("fastlloyd", "common", monkeypatch)
    assert len(kept.of(MaskedUpdate)) == CLIENTS
    assert decode_seed(kept, have) is None
    seed = decode_seed(kept, BOTH)
    assert seed is not None
    assert {body[:32] for body in kept.of(EqualityTag).values()} == {same_seed_tag(kept, seed)}


@pytest.mark.parametrize("have", [X25519, MLKEM])
@pytest.mark.parametrize("protocol,vector", [("fastlloyd", MaskedUpdate), ("feddp", MaskedStatistic)])
def test_recorded_secrets_of_pairs_stay_closed_with_one_half_of_every_key(
    protocol: str, vector: Any, have: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = record(protocol, "pairwise", monkeypatch)
    assert len(kept.of(vector)) == CLIENTS
    assert decode_pairs(kept, have) == {}
    pairs = {pair: secret for pair, secret in kept.truth.items() if pair[0] < pair[1]}
    assert len(pairs) == CLIENTS * (CLIENTS - 1) // 2
    assert decode_pairs(kept, BOTH) == pairs


@pytest.mark.parametrize("have", [X25519, MLKEM])
def test_a_seed_agreed_over_recorded_links_stays_closed(have: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = record("secfc", "common", monkeypatch)
    assert decode_linked_seed(kept, have) is None
    seed = decode_linked_seed(kept, BOTH)
    assert seed is not None
    content = kept.run_id + struct.pack("<I", 1) + kept.context
    tag = derive(seed, b"fastlloyd confirm", content)
    assert (SeedConfirmation.TYPE, 1, 2, tag) in kept.messages


@pytest.mark.parametrize(
    "protocol,settings,kind,clients",
    [
        ("secfc", {}, DataShares, 4),
        ("vertical-he", {"mode": "threshold", "threshold": 2}, KeyPiece, 3),
    ],
)
def test_recorded_shares_and_pieces_of_keys_stay_sealed(
    protocol: str, settings: dict[str, Any], kind: Any, clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From all shares, or pieces of a key, the records would follow; the pairs' secrets open them."""
    more: dict[str, Any] = {}
    if settings:
        more = {"k": 2, "rounds": 1, "dataset": "vertical-mixture:n=60,d=4,k=2", "bounds": None}
    settings_ = {"settings": {protocol: settings}} if settings else {}
    kept = record(protocol, "common", monkeypatch, clients=clients, **settings_, **more)
    bodies = kept.of(kind)
    assert len(bodies) >= 2
    for pair, secret in kept.truth.items():
        if pair not in bodies:
            continue
        bound = kept.run_id + struct.pack("<IIBII", *pair, kind.TYPE, 0xFFFFFFFF, 0)
        plain = opened(bodies[pair], derive(secret, b"fastlloyd sealed message", bound))
        assert plain is not None and len(plain) == len(bodies[pair]) - 16
        assert plain[:8] not in bodies[pair]


@pytest.mark.parametrize("half", [X25519, MLKEM])
def test_the_decoder_opens_what_hangs_on_one_half(half: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HybridKey, "_combine", forgetful(half))
    assert decode_seed(record("fastlloyd", "common", monkeypatch), half) is not None
    assert len(decode_pairs(record("feddp", "pairwise", monkeypatch), half)) == CLIENTS * (CLIENTS - 1) // 2
