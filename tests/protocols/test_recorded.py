"""Whoever has recorded a run and one half of every private key later opens neither the seed nor a pair's secret.

The recording holds all bytes of all messages, as somebody has them who broke the links' TLS. The decoder below works
from the documents and gets private keys of all parties: the X25519 halves, the ML-KEM halves, or both. With both it
opens everything, so a failure to open means something. It also opens everything with one half if the parties combine
keys in a wrong way.

With threshold masks clients open each sum to the server, so a recording opens it too: masked by the seed, or noisy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

import fastlloyd.run.horizontal as horizontal
from fastlloyd.crypto.hybrid import HybridKey
from fastlloyd.lifecycle.masked_sums import MaskedUpdate
from fastlloyd.lifecycle.rounds import ClientRounds
from fastlloyd.lifecycle.same_secret import EqualityTag
from fastlloyd.lifecycle.sealed import SealedSeed, SealKey
from fastlloyd.lifecycle.shared_secrets import PairCiphertext, PairPublicKey, SeedConfirmation, SeedContribution
from fastlloyd.lifecycle.threshold.messages import DealtCiphers, DealtWords, QuickAnswer, RunKey
from fastlloyd.masking.pairwise import PairSecrets
from fastlloyd.masking.threshold.secrets import ClientSecrets
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
Recorded = Callable[[str, str], "Recording"]


@dataclass
class Recording:
    """All messages of a run, what is public in it, and the private keys that come to light later."""

    run_id: bytes = b""
    context: bytes = b""
    messages: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    x25519: dict[tuple[bytes, int], bytes] = field(default_factory=dict)
    mlkem: dict[tuple[bytes, int], bytes] = field(default_factory=dict)
    """By what a key is for, and the client that made it."""
    truth: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """The pairs' secrets, which only the parties have."""
    plan: Any = None
    exact: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    """Each client's vector of round 0, and below its threshold mask of that round: only the client has them."""
    masks: dict[int, Any] = field(default_factory=dict)

    def of(self, kind: Any) -> dict[tuple[int, int], bytes]:
        """The first message of a type from each sender to each receiver."""
        found: dict[tuple[int, int], bytes] = {}
        for number, sender, receiver, body in self.messages:
            if number == kind.TYPE:
                found.setdefault((sender, receiver), body)
        return found

    def to_server(self, kind: Any) -> dict[int, bytes]:
        """The first message of a type from each client to the server."""
        return {sender: body for (sender, receiver), body in self.of(kind).items() if receiver == 0}


class EnoughError(Exception):
    """All that is asked for has been sent."""


def record(
    protocol: str, masking: str, *, clients: int = CLIENTS, last: tuple[Any, int] | None = None, **more: Any
) -> Recording:
    """Run all parties in memory and note everything that they send; no more than so many messages of the last kind."""
    kept = Recording()
    make, pairs_of, context_of = HybridKey.__init__, PairSecrets.__init__, horizontal.Begun.agreement
    deal, mask_of, masked = ClientSecrets.deal, ClientSecrets.vector_mask, ClientRounds.masked

    def noted(key: HybridKey, raw: bytes, me: PartyId, *, purpose: bytes, run_id: bytes) -> None:
        make(key, raw, me, purpose=purpose, run_id=run_id)
        kept.run_id, kept.x25519[purpose, me.rank], kept.mlkem[purpose, me.rank] = run_id, raw[:32], raw[32:]

    def noted_pairs(pairs: PairSecrets, me: PartyId, secrets: dict[PartyId, bytes]) -> None:
        pairs_of(pairs, me, secrets)
        kept.truth |= {(me.rank, other.rank): secret for other, secret in secrets.items()}

    def noted_deal(numbers: Any, me: PartyId, pairs: dict[PartyId, bytes], *given: Any) -> Any:
        kept.truth |= {(me.rank, other.rank): secret for other, secret in pairs.items()}
        return deal(numbers, me, pairs, *given)

    def noted_mask(secrets: ClientSecrets, round_: int, *given: Any, **shape: Any) -> Any:
        made = mask_of(secrets, round_, *given, **shape)
        kept.masks.setdefault(secrets.me.rank, made)
        return made

    def noted_vector(rounds: ClientRounds, t: int, up: Any, vector: Callable[[], Any], *given: Any, **more: Any) -> Any:
        def exact() -> NDArray[np.int64]:
            made = vector()
            kept.exact.setdefault(rounds._me.rank, made)
            return made

        return masked(rounds, t, up, exact, *given, **more)

    def noted_context(begun: Any, start: bytes = b"") -> Any:
        agreement = context_of(begun, start)
        kept.context, kept.plan = agreement.context, begun.plan
        return agreement

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        kept.messages.append((header.type, sender.rank, receiver.rank, body))
        if last is not None and len(kept.of(last[0])) == last[1]:
            raise EnoughError
        return body

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HybridKey, "__init__", noted)
        patch.setattr(PairSecrets, "__init__", noted_pairs)
        patch.setattr(ClientSecrets, "deal", noted_deal)
        patch.setattr(ClientSecrets, "vector_mask", noted_mask)
        patch.setattr(ClientRounds, "masked", noted_vector)
        patch.setattr(horizontal.Begun, "agreement", noted_context)
        with contextlib.suppress(EnoughError):
            run_together(dataclasses.replace(config(protocol), masking=masking, **more), clients, tap=tap)
    assert len(kept.x25519) >= clients
    return kept


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    """Runs of parties that follow the protocol, each made once."""
    return functools.cache(record)


def candidates(
    kept: Recording, purpose: bytes, keys: dict[int, bytes], pair: tuple[int, int], made: bytes, have: str
) -> Iterator[bytes]:
    """Every secret of a pair that follows from the private keys that came to light: `pair` is sender and receiver."""
    low, high = sorted(pair)
    shared = X25519PrivateKey.from_private_bytes(kept.x25519[purpose, low]).exchange(
        X25519PublicKey.from_public_bytes(keys[high][:32])
    )
    secret = MLKEM768PrivateKey.from_seed_bytes(kept.mlkem[purpose, pair[1]]).decapsulate(made)
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


PRIME = 2**255 - 19
OWN, PAIRS, BOX = range(3)


def stream(key: bytes, length: int, nonce: bytes = bytes(12)) -> bytes:
    """The first bytes of a ChaCha20 key stream."""
    return Cipher(ChaCha20(key, bytes(4) + nonce), mode=None).encryptor().update(bytes(length))


def elements(kept: Recording, content: bytes) -> NDArray[Any]:
    """Ring elements of round 0."""
    return np.frombuffer(content, f"<u{kept.plan.ring_of(0) // 8}")


def signed(kept: Recording, content: NDArray[Any]) -> NDArray[np.int64]:
    """Integers of ring elements of round 0."""
    return content.astype(f"<i{kept.plan.ring_of(0) // 8}").astype(np.int64)


def mask_stream(kept: Recording, secret: bytes, purpose: bytes, context: bytes, length: int) -> bytes:
    """The key stream of masks in round 0, before which there are no replies."""
    nonce_key = derive(secret, purpose + b" nonce", context)
    nonce = hashlib.blake2b(struct.pack("<III", 0, 0, 0), key=nonce_key, digest_size=12).digest()
    return stream(derive(secret, purpose, context), length, nonce)


def pad(secret: bytes, dealer: int, holder: int, kind: int) -> int:
    """What hides a share of round 0 from everybody but dealer and holder."""
    first = derive(secret, b"fastlloyd threshold round")
    key = derive(first, b"fastlloyd threshold pad", struct.pack("<IIB", dealer, holder, kind))
    return int.from_bytes(stream(key, 64), "little") % PRIME


def decode_threshold(kept: Recording, have: str) -> dict[tuple[int, int], bytes]:
    """The pairs' secrets that pads in the clients' answers confirm."""
    keys = {sender: body[:1216] for sender, body in kept.to_server(RunKey).items()}
    answers, found = kept.to_server(QuickAnswer), {}
    for sender, body in kept.to_server(DealtCiphers).items():
        for place, start in enumerate(range(0, len(body), 1088 + 64)):
            pair, made = (sender, sender + 1 + place), body[start : start + 1088]
            given = int.from_bytes(answers[pair[1]][32 * (sender - 1) : 32 * sender], "little")
            for secret in candidates(kept, b"fastlloyd threshold pair", keys, pair, made, have):
                if pad(secret, *pair, OWN) == given:
                    found[pair] = secret
    return found


def open_secret(kept: Recording, dealer: int, kind: int) -> bytes:
    """A secret of round 0, from words and answers of all clients: everybody who has recorded the run has them."""
    words = kept.to_server(DealtWords)[dealer][64:]
    total = 0
    for holder, answer in kept.to_server(QuickAnswer).items():
        at = 32 * (dealer - 1 + (kind == BOX) * CLIENTS)
        share = int.from_bytes(answer[at : at + 32], "little")
        if holder != dealer:
            at = 32 * (kind * (CLIENTS - 1) + holder - 1 - (holder > dealer))
            share += int.from_bytes(words[at : at + 32], "little")
        others = [other for other in range(1, CLIENTS + 1) if other != holder]
        top, bottom = (np.prod(factors, dtype=object) for factors in (others, [o - holder for o in others]))
        total += share * int(top) * pow(int(bottom), -1, PRIME)
    return (total % PRIME).to_bytes(32, "little")


def without_own_mask(kept: Recording, kind: Any, client: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """A client's vector of round 0 without its own mask, and the excess in its box."""
    sent = np.split(elements(kept, kept.to_server(kind)[client]), 2)
    masks = [
        mask_stream(kept, open_secret(kept, client, of), purpose, b"", sent[0].nbytes)
        for of, purpose in ((OWN, b"fastlloyd threshold own mask"), (BOX, b"fastlloyd threshold box mask"))
    ]
    vector, box = (content - elements(kept, mask) for content, mask in zip(sent, masks, strict=True))
    return vector, box


def decode_sum(kept: Recording, kind: Any) -> NDArray[Any]:
    """What the server opens in round 0: the sum of all vectors, without the noise that nobody needs."""
    opened = [without_own_mask(kept, kind, client) for client in kept.to_server(kind)]
    return np.sum([vector - excess for vector, excess in opened], axis=0, dtype=opened[0][0].dtype)


def decode_vector(kept: Recording, kind: Any, client: int, pairs: dict[tuple[int, int], bytes]) -> NDArray[Any]:
    """One client's vector of round 0, with its noise: what nobody else may have."""
    found, _ = without_own_mask(kept, kind, client)
    for (low, high), secret in pairs.items():
        if client in (low, high):
            key = derive(derive(secret, b"fastlloyd threshold round"), b"fastlloyd threshold mask")
            mask = elements(kept, mask_stream(kept, key, b"fastlloyd threshold pair mask", b"", found.nbytes))
            found = found - mask if client == low else found + mask
    return found


def common_mask(kept: Recording, seed: bytes, length: int) -> NDArray[Any]:
    """All common masks of round 0 together: r_1 - r_(M + 1)."""
    blocks = -(-length // 64) * 64
    content = mask_stream(kept, seed, b"fastlloyd mask", kept.run_id, blocks * (CLIENTS + 1))
    return elements(kept, content[:length]) - elements(kept, content[blocks * CLIENTS :][:length])


def planned_noise(kept: Recording, protocol: str) -> NDArray[np.float64]:
    """The standard deviation of all noise on each element of the sum of round 0."""
    first = kept.plan.rounds[0]
    if protocol == "feddp":
        return np.full(kept.plan.elements(0), first.sigma * kept.plan.all_noise)
    return np.repeat([first.sum_scale, first.count_scale], kept.plan.lengths(0)) * kept.plan.all_noise


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
def test_a_recorded_seed_stays_closed_with_one_half_of_every_key(have: str, recorded: Recorded) -> None:
    kept = recorded("fastlloyd", "common")
    assert len(kept.of(MaskedUpdate)) == CLIENTS
    assert decode_seed(kept, have) is None
    seed = decode_seed(kept, BOTH)
    assert seed is not None
    assert {body[:32] for body in kept.of(EqualityTag).values()} == {same_seed_tag(kept, seed)}


@pytest.mark.parametrize("have", [X25519, MLKEM])
@pytest.mark.parametrize("protocol,vector", [("fastlloyd", MaskedUpdate), ("feddp", MaskedStatistic)])
def test_recorded_secrets_of_pairs_stay_closed_with_one_half_of_every_key(
    protocol: str, vector: Any, have: str, recorded: Recorded
) -> None:
    kept = recorded(protocol, "pairwise")
    assert len(kept.of(vector)) == CLIENTS
    assert decode_pairs(kept, have) == {}
    pairs = {pair: secret for pair, secret in kept.truth.items() if pair[0] < pair[1]}
    assert len(pairs) == CLIENTS * (CLIENTS - 1) // 2
    assert decode_pairs(kept, BOTH) == pairs


@pytest.mark.parametrize("have", [X25519, MLKEM])
def test_a_seed_agreed_over_recorded_links_stays_closed(have: str, recorded: Recorded) -> None:
    kept = recorded("secfc", "common")
    assert decode_linked_seed(kept, have) is None
    seed = decode_linked_seed(kept, BOTH)
    assert seed is not None
    content = kept.run_id + struct.pack("<I", 1) + kept.context
    tag = derive(seed, b"fastlloyd confirm", content)
    assert (SeedConfirmation.TYPE, 1, 2, tag) in kept.messages


@pytest.mark.parametrize(
    "protocol,settings,kind,count,clients",
    [
        ("secfc", {}, DataShares, 12, 4),
        ("vertical-he", {"mode": "threshold", "threshold": 2}, KeyPiece, 2, 3),
    ],
)
def test_recorded_shares_and_pieces_of_keys_stay_sealed(
    protocol: str, settings: dict[str, Any], kind: Any, count: int, clients: int
) -> None:
    """From all shares, or pieces of a key, the records would follow; the pairs' secrets open them."""
    more: dict[str, Any] = {}
    if settings:
        more = {"k": 2, "rounds": 1, "dataset": "vertical-mixture:n=60,d=4,k=2", "bounds": None}
    settings_ = {"settings": {protocol: settings}} if settings else {}
    kept = record(protocol, "common", clients=clients, last=(kind, count), **settings_, **more)
    bodies = kept.of(kind)
    assert len(bodies) == count
    for pair, body in bodies.items():
        bound = kept.run_id + struct.pack("<IIBII", *pair, kind.TYPE, 0xFFFFFFFF, 0)
        plain = opened(body, derive(kept.truth[pair], b"fastlloyd sealed message", bound))
        assert plain is not None and len(plain) == len(body) - 16
        assert plain[:8] not in body


@pytest.mark.parametrize("have", [X25519, MLKEM])
@pytest.mark.parametrize("protocol,vector", [("fastlloyd", MaskedUpdate), ("feddp", MaskedStatistic)])
def test_with_threshold_masks_a_recording_shows_a_masked_or_noisy_sum_and_no_single_vector(
    protocol: str, vector: Any, have: str, recorded: Recorded
) -> None:
    """Fixed draws: no false alarm."""
    kept = recorded(protocol, "threshold")
    assert len(kept.to_server(vector)) == len(kept.exact) == CLIENTS
    assert decode_threshold(kept, have) == {}
    assert protocol == "feddp" or decode_seed(kept, have) is None
    # With both halves of every key each vector of a single client opens.
    pairs = decode_threshold(kept, BOTH)
    assert pairs == {pair: secret for pair, secret in kept.truth.items() if pair[0] < pair[1]}
    assert len(pairs) == CLIENTS * (CLIENTS - 1) // 2
    for client, sent in kept.to_server(vector).items():
        single = np.split(elements(kept, sent), 2)[0] - kept.masks[client]
        assert (decode_vector(kept, vector, client, pairs) == single).all()
    # What the server opens has the planned noise on it, and where the server does not work on it a mask.
    total, exact = decode_sum(kept, vector), np.sum(list(kept.exact.values()), axis=0)
    assert len(total) >= 10
    if protocol == "fastlloyd":
        masked = np.abs(signed(kept, total) - exact) / 2 ** (kept.plan.ring_bits - 1)
        assert 0.3 < masked.mean() < 0.7
        seed = decode_seed(kept, BOTH)
        assert seed is not None
        total = total - common_mask(kept, seed, total.nbytes)
    scores = (signed(kept, total) - exact) / planned_noise(kept, protocol)
    assert 0.6 < np.sqrt((scores**2).mean()) < 1.4


@pytest.mark.parametrize("half", [X25519, MLKEM])
def test_the_decoder_opens_what_hangs_on_one_half(half: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HybridKey, "_combine", forgetful(half))
    assert decode_seed(record("fastlloyd", "common"), half) is not None
    every = CLIENTS * (CLIENTS - 1) // 2
    assert len(decode_pairs(record("feddp", "pairwise"), half)) == every
    with_threshold = record("fastlloyd", "threshold")
    assert len(decode_threshold(with_threshold, half)) == every
    assert decode_seed(with_threshold, half) is not None
