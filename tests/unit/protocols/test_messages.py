"""Every message of the protocols, byte by byte: type number, body, payload, and what is refused in which words.

The bodies were written down from the first version that two parties could run: whoever changes one changes the
protocol (docs/protocol.md) and its version number.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastlloyd.lifecycle.align.ids import BlindedIds, OpenedIds
from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum, VectorFormat
from fastlloyd.lifecycle.same_secret import EqualityProof, EqualityTag, Tag
from fastlloyd.lifecycle.sealed import Box, SealedPart, SealedParts, SealedSeed, SealKey, SealKeys
from fastlloyd.lifecycle.shared_secrets import PairCiphertext, PairPublicKey, SeedConfirmation, SeedContribution
from fastlloyd.lifecycle.threshold.messages import (
    DealtCiphers,
    DealtWords,
    GivenState,
    GivenStates,
    QuickAnswer,
    ReturnNonce,
    ReturnNonces,
    RoundSet,
    RunCiphers,
    RunKey,
    RunKeys,
    SetAnswer,
    SetVote,
    SetVotes,
    SignedCipher,
)
from fastlloyd.masking.fixed import Ring
from fastlloyd.protocols.feddp.math.projection import Projection
from fastlloyd.protocols.feddp.math.stage import Centers, ProjectedCenters
from fastlloyd.protocols.feddp.messages import (
    CentersMessage,
    MaskedStatistic,
    ProjectedCentersMessage,
    ProjectionMessage,
    StatisticFormat,
)
from fastlloyd.protocols.kfed.messages import LocalCenters, MergedCenters, encode_centers
from fastlloyd.protocols.secfc.field.prime import Field
from fastlloyd.protocols.secfc.messages import (
    ArrayFormat,
    CenterShares,
    CodedValues,
    DataShares,
    Finished,
    LayerPublicKey,
    Roll,
    SealedTags,
    Shared,
    Signs,
    SignsFormat,
    Size,
    TagFormat,
    Union,
    ValuesFormat,
)
from fastlloyd.protocols.vertical_dp.messages import FinalResult, Synopsis, SynopsisFormat
from fastlloyd.protocols.vertical_he.messages import (
    EncryptedBlock,
    KeyContribution,
    KeyMaterial,
    KeyPiece,
    NoisySamples,
    NoisySums,
    PartialOpenings,
    Present,
)
from fastlloyd.wire.header import Message, PartyId

P1, P3 = PartyId(1), PartyId(3)
RING = Ring(32)
VECTOR = VectorFormat(RING, 3, 3)
ELEMENTS = np.array([1, -2, 3], dtype=np.int64).astype(RING.dtype)
CENTERS = np.array([[0.5, -1.0]])
LOCAL: Any = SimpleNamespace(local_k=2, k=1, d=2, clients=3)
FIELD = Field((13, 251))
SHARES = np.array([[[1.0, 12.0]], [[2.0, 250.0]]])
SHAPE = ArrayFormat(FIELD, (1, 2), block=7)
FEDDP = SimpleNamespace(
    rank=1, d=2, n_server=2, projected_bits=4, projected_limit=100, k=2, choose_k=True, masking="pairwise"
)
THRESHOLD = SimpleNamespace(**{**vars(FEDDP), "masking": "threshold", "clients": 3})
SYNOPSIS = SynopsisFormat(clusters=2, d=1, with_total=True, sketches=0, shape=None, users=3)
PLAIN_RESULT = {"k": 1, "d": 2, "n_total": 3, "share_result": True, "protocol": "vertical-plain"}
RESULT: Any = SimpleNamespace(**PLAIN_RESULT)
PIECE = SimpleNamespace(rounds=1, outputs=2, scales=SimpleNamespace(ring=3, wire_bits=4))
POINTS = (bytes(range(32)), bytes(range(1, 33)))
SEALED, SIGNATURE = bytes(range(100, 148)), bytes(range(64))
KEYS = (bytes(range(256)) * 4 + bytes(192), bytes(192) + bytes(range(256)) * 4)
CIPHERTEXT = bytes(range(64)) * 17
RUN_KEY = RunKey(KEYS[0], SIGNATURE)
SIGNED_CIPHER = SignedCipher(CIPHERTEXT, SIGNATURE)
GIVEN = GivenState(2, (P1, P3), POINTS[0], SIGNATURE, 3, 3, SIGNATURE)
BOX = Box(CIPHERTEXT, SEALED, SIGNATURE)


def sums(outputs: int) -> SimpleNamespace:
    """What a plan says of sums of at most 2."""
    return SimpleNamespace(outputs=outputs, scales=SimpleNamespace(prime_bits=(1,)))


GOLDEN: dict[str, tuple[Message, Any, int, str, int]] = {
    "masked update": (MaskedUpdate(ELEMENTS.tobytes()), VECTOR, 32, "01000000feffffff03000000", 12),
    "noisy masked sum": (NoisyMaskedSum(ELEMENTS.tobytes(), (P1, P3), 3), VECTOR, 33, "0501000000feffffff03000000", 12),
    "run key of threshold masks": (RUN_KEY, None, 25, (KEYS[0] + SIGNATURE).hex(), 0),
    "run keys of threshold masks": (RunKeys((RUN_KEY,)), 1, 26, (KEYS[0] + SIGNATURE).hex(), 0),
    "dealt ciphertexts": (DealtCiphers((SIGNED_CIPHER,)), 1, 27, (CIPHERTEXT + SIGNATURE).hex(), 0),
    "run ciphertexts": (RunCiphers((SIGNED_CIPHER,)), 1, 28, (CIPHERTEXT + SIGNATURE).hex(), 0),
    "dealt words": (DealtWords(SIGNATURE, b"ab"), 2, 29, (SIGNATURE + b"ab").hex(), 0),
    "nonce of a return": (ReturnNonce(POINTS[0]), None, 30, POINTS[0].hex(), 0),
    "nonces of a return": (ReturnNonces((ReturnNonce(POINTS[0]),)), 1, 31, POINTS[0].hex(), 0),
    "set of a round": (RoundSet(POINTS[0], (P1, P3), 3, SIGNATURE), 3, 34, (POINTS[0] + b"\5" + SIGNATURE).hex(), 0),
    "quick answer with shares": (QuickAnswer(SIGNATURE), 1, 35, SIGNATURE.hex(), 0),
    "vote": (SetVote(SIGNATURE), None, 36, SIGNATURE.hex(), 0),
    "votes": (SetVotes({P3: SIGNATURE}, 3), 3, 37, (b"\4" + SIGNATURE).hex(), 0),
    "answer with shares": (SetAnswer(POINTS[0], b"abcd"), (1, 4), 38, (POINTS[0] + b"abcd").hex(), 4),
    "given state": (GIVEN, 3, 39, GIVEN.body().hex(), 0),
    "given states": (GivenStates((GIVEN, GIVEN, GIVEN)), 3, 40, GIVEN.body().hex() * 3, 0),
    "masked statistic": (
        MaskedStatistic(ELEMENTS.tobytes()),
        StatisticFormat(RING, 3),
        48,
        "01000000feffffff03000000",
        12,
    ),
    "projection": (
        ProjectionMessage(Projection(np.array([[1, -2]], np.int32), np.array([[3], [-4]]), 4)),
        FEDDP,
        49,
        "01000000feffffff03000000fcffffff",
        16,
    ),
    "projected centres": (
        ProjectedCentersMessage(ProjectedCenters(np.array([[5]]), np.array([2.0, 0.5]))),
        FEDDP,
        50,
        "01000000050000000000000000000040000000000000e03f",
        20,
    ),
    "centres of feddp": (
        CentersMessage(Centers(CENTERS, np.array([9.0]))),
        FEDDP,
        51,
        "01000000000000000000e03f000000000000f0bf0000000000002240",
        24,
    ),
    "centres of feddp, threshold": (
        CentersMessage(Centers(CENTERS, np.array([9.0])), included=(P1, P3), silent=(P3,), clients=3),
        THRESHOLD,
        51,
        "050401000000000000000000e03f000000000000f0bf0000000000002240",
        24,
    ),
    "local centres": (LocalCenters(encode_centers(CENTERS)), LOCAL, 64, "000000000000e03f000000000000f0bf", 16),
    "merged centres": (
        MergedCenters(encode_centers(CENTERS), (P1, P3), 3),
        LOCAL,
        65,
        "05000000000000e03f000000000000f0bf",
        16,
    ),
    "size": (Size(258), 1000, 72, "0201000000000000", 0),
    "layer key": (
        LayerPublicKey(POINTS[0]),
        None,
        73,
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        0,
    ),
    "sealed tags": (SealedTags((b"ab", b"cd")), TagFormat(2, 2), 74, "61626364", 4),
    "union": (Union((b"abc",)), TagFormat(None, 3, most=2), 75, "616263", 0),
    "data shares": (DataShares(SHARES, FIELD, 7), SHAPE, 76, "0700000001020cfa", 4),
    "shared": (Shared(3), 3, 77, "0300000000000000", 0),
    "coded values": (CodedValues(FIELD.to_bytes(SHARES), "last"), ValuesFormat(FIELD, 2), 78, "0101020cfa", 4),
    "signs": (Signs(np.array([True, False, True]), (P1, P3), SignsFormat(3, 3)), SignsFormat(3, 3), 83, "0505", 0),
    "finished": (Finished(), None, 80, "", 0),
    "roll": (Roll((P1, P3), 3), 3, 81, "05", 0),
    "centre shares": (CenterShares(SHARES, FIELD), SHAPE, 82, "01020cfa", 4),
    "blinded ids": (
        BlindedIds(POINTS[:1]),
        1,
        98,
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        0,
    ),
    "opened ids": (OpenedIds(POINTS[1:]), 1, 99, "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20", 0),
    "synopsis": (
        Synopsis.write(np.array([[1], [-65536]]), SYNOPSIS, noisy_total=2.5, plain_labels=np.array([0, 1])),
        SYNOPSIS,
        104,
        "010000000000ffff8002000000000000020000000001",
        22,
    ),
    "final centres": (
        FinalResult(encode_centers(CENTERS)),
        RESULT,
        106,
        "000000000000e03f000000000000f0bf",
        16,
    ),
    "noisy result": (
        FinalResult(np.array([0.5, -1.0, 3.0, 0.25, 0.0, 0.0, 2.0, 1.0]).tobytes()),
        SimpleNamespace(**{**PLAIN_RESULT, "protocol": "vertical-dp"}),
        106,
        "000000000000e03f000000000000f0bf0000000000000840000000000000d03f"
        "000000000000000000000000000000000000000000000040000000000000f03f",
        64,
    ),
    "no result": (FinalResult(b""), SimpleNamespace(**{**PLAIN_RESULT, "share_result": False}), 106, "", 0),
    "keys": (KeyMaterial((b"a", b"bc")), (1, 2), 120, "616263", 3),
    "block": (EncryptedBlock((b"abc",)), (3,), 121, "616263", 3),
    "samples": (NoisySamples(b"1234567"), 7, 122, "31323334353637", 7),
    "key contribution": (KeyContribution((b"a", b"bc")), (1, 2), 124, "616263", 3),
    "parts of openings": (PartialOpenings(b"1234"), 4, 125, "31323334", 4),
    "key piece": (
        KeyPiece(np.array([-1, 0, 1]), np.array([[5, -6]])),
        PIECE,
        126,
        "ff0001" + "0500000000000000faffffffffffffff",
        0,
    ),
    "present": (Present((P1, P3), 3), 3, 127, "05", 0),
    "noisy sums": (NoisySums.of(np.array([-1, 2])), sums(2), 123, "ffffffffffffffff0200000000000000", 16),
    "seed": (
        SeedContribution(SEALED),
        None,
        16,
        SEALED.hex(),
        0,
    ),
    "pair key": (PairPublicKey(KEYS[0]), None, 18, KEYS[0].hex(), 0),
    "pair ciphertext": (PairCiphertext(CIPHERTEXT), None, 15, CIPHERTEXT.hex(), 0),
    "seal key": (SealKey(KEYS[0], SIGNATURE), None, 19, KEYS[0].hex() + SIGNATURE.hex(), 0),
    "seal keys": (
        SealKeys((SealKey(KEYS[0], SIGNATURE), SealKey(KEYS[1], SIGNATURE))),
        2,
        20,
        KEYS[0].hex() + SIGNATURE.hex() + KEYS[1].hex() + SIGNATURE.hex(),
        0,
    ),
    "sealed parts": (
        SealedParts(*POINTS, (BOX, Box(CIPHERTEXT[::-1], SEALED[::-1], SIGNATURE))),
        3,
        21,
        b"".join((*POINTS, CIPHERTEXT, SEALED, SIGNATURE, CIPHERTEXT[::-1], SEALED[::-1], SIGNATURE)).hex(),
        0,
    ),
    "sealed seed": (
        SealedSeed((SealedPart(KEYS[0], *POINTS, CIPHERTEXT, SEALED, SIGNATURE),)),
        1,
        22,
        b"".join((KEYS[0], *POINTS, CIPHERTEXT, SEALED, SIGNATURE)).hex(),
        0,
    ),
    "alike tag": (EqualityTag((Tag(*POINTS),)), 1, 23, POINTS[0].hex() + POINTS[1].hex(), 0),
    "alike proof": (
        EqualityProof((P1, P3), 3, (2, 0), POINTS),
        (3, 2),
        24,
        "0502000000" + POINTS[0].hex() + "00000000" + POINTS[1].hex(),
        0,
    ),
    "seed tag": (
        SeedConfirmation(POINTS[0]),
        None,
        17,
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        0,
    ),
}

# A class, a body, the format, and the whole sentence it is refused with.
FLOATS = np.array([0.5, 1.5]).tobytes()
REFUSED: dict[str, tuple[type[Message], bytes, Any, str]] = {
    "update of two": (MaskedUpdate, b"\0" * 8, VECTOR, "expected 12 payload bytes, got 8"),
    "statistic of four": (MaskedStatistic, b"\0" * 16, StatisticFormat(RING, 3), "expected 12 payload bytes, got 16"),
    "sum over nobody": (NoisyMaskedSum, b"\0" * 13, VECTOR, "a sum over no client"),
    "sum over a stranger": (NoisyMaskedSum, b"\x08" + b"\0" * 12, VECTOR, "the bitmap names clients beyond client 3"),
    "no sum": (NoisyMaskedSum, b"", VECTOR, "expected a bitmap of 1 bytes, got 0"),
    "short sum": (NoisyMaskedSum, b"\x01" + b"\0" * 8, VECTOR, "expected 12 payload bytes, got 8"),
    "three rows": (LocalCenters, b"\0" * 48, LOCAL, "expected up to 2 rows of 2 numbers, got 48 bytes"),
    "half a row": (LocalCenters, b"\0" * 8, LOCAL, "expected up to 2 rows of 2 numbers, got 8 bytes"),
    "far centre": (LocalCenters, FLOATS, LOCAL, "expected centres within [-1, 1]"),
    "no number": (LocalCenters, encode_centers(np.array([np.nan, 0.0])), LOCAL, "expected centres within [-1, 1]"),
    "merged of nobody": (MergedCenters, b"\0" * 17, LOCAL, "centres of no client"),
    "two merged": (MergedCenters, b"\1" + b"\0" * 32, LOCAL, "expected 1 rows of 2 numbers, got 32 bytes"),
    "far merged": (MergedCenters, b"\1" + FLOATS, LOCAL, "expected centres within [-1, 1]"),
    "short number": (Size, b"\0" * 7, 10, "expected 8 bytes, got 7"),
    "large number": (Size, b"\x0b" + b"\0" * 7, 10, "expected a number of at most 10, got 11"),
    "short key": (LayerPublicKey, b"\0" * 31, None, "expected 32 bytes, got 31"),
    "three tags": (SealedTags, b"\0" * 6, TagFormat(2, 2), "expected 2 tags of 2 bytes, got 6 bytes"),
    "half a tag": (Union, b"\0" * 4, TagFormat(None, 3, most=2), "expected 2 tags of 3 bytes, got 4 bytes"),
    "another block": (DataShares, b"\x08\0\0\0" + b"\0" * 4, SHAPE, "expected block 7"),
    "short shares": (DataShares, b"\x07\0\0\0" + b"\0" * 3, SHAPE, "expected 4 payload bytes, got 3"),
    "short values": (
        CodedValues,
        b"\0" * 4,
        ValuesFormat(FIELD, 2),
        "expected 0 to 2 times 2 payload bytes, and none at the end, got 3",
    ),
    "a residue": (CenterShares, b"\x0d\0\0\0", SHAPE, "expected residues below 13, got 13"),
    "something": (Finished, b"\0", None, "expected 0 bytes, got 1"),
    "short point": (BlindedIds, b"\0" * 31, 1, "expected 1 points of 32 bytes, got 31 bytes"),
    "equal points": (OpenedIds, b"\0" * 64, 2, "a blinded id is repeated"),
    "short synopsis": (Synopsis, b"\0" * 15, SYNOPSIS, "expected 20 bytes of centres and sketches, got 15"),
    "shared nothing": (
        FinalResult,
        b"",
        RESULT,
        "expected 16 bytes of centres, weights and errors, got 0",
    ),
    "far result": (FinalResult, FLOATS, RESULT, "a centre lies outside [-1, 1]"),
    "short piece": (KeyPiece, bytes(18), PIECE, "expected 19 bytes of a piece of the key, got 18"),
    "large piece": (
        KeyPiece,
        bytes([2] * 3) + bytes(16),
        PIECE,
        "expected a piece of the key with coefficients -1, 0 and 1, got another number",
    ),
    "large noise": (
        KeyPiece,
        bytes(3) + bytes([9] + [0] * 15),
        PIECE,
        "expected noise from -8 to 8, got a larger one",
    ),
    "short parts": (PartialOpenings, b"123", 4, "expected 4 bytes, got 3"),
    "short samples": (NoisySamples, b"123456", 7, "expected 7 bytes, got 6"),
    "large sum": (NoisySums, b"\3" + b"\0" * 7, sums(1), "expected integers from -2 to 2, got a larger one"),
    "low sum": (NoisySums, b"\xfd" + b"\xff" * 7, sums(1), "expected integers from -2 to 2, got a larger one"),
    "lowest sum": (
        NoisySums,
        b"\0" * 7 + b"\x80",
        sums(1),
        "expected integers from -2 to 2, got a larger one",
    ),
    "short sums": (NoisySums, b"\0" * 8, sums(2), "expected 2 integers of 8 bytes, got 8 bytes"),
    "short keys": (KeyMaterial, b"ab", (1, 2), "expected 3 bytes of 2 ciphertexts or keys, got 2"),
    "long block": (EncryptedBlock, b"abcd", (3,), "expected 3 bytes of 1 ciphertexts or keys, got 4"),
}


@pytest.mark.parametrize(("message", "form", "number", "body", "payload"), GOLDEN.values(), ids=GOLDEN)
def test_the_bytes_on_the_wire_stay(message: Message, form: Any, number: int, body: str, payload: int) -> None:
    assert number == type(message).TYPE
    assert message.body().hex() == body
    assert message.payload_bytes == payload
    again = type(message).read(bytes.fromhex(body), form)
    assert type(again) is type(message)
    assert (again.body(), again.payload_bytes) == (message.body(), payload)


@pytest.mark.parametrize(("kind", "body", "form", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_is_malformed_is_refused_in_these_words(
    kind: type[Message], body: bytes, form: Any, sentence: str
) -> None:
    with pytest.raises(ValueError) as caught:
        kind.read(body, form)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("message", [entry[0] for entry in GOLDEN.values()], ids=GOLDEN)
def test_no_message_can_be_changed(message: Message) -> None:
    assert not hasattr(message, "__dict__")
    with pytest.raises((AttributeError, TypeError)):
        message.TYPE2 = 1  # type: ignore[attr-defined]


SECRET = ("masked", "noisy", "centres", "local", "tags", "shares", "values", "ids", "synopsis", "keys", "seed", "sums")


@pytest.mark.parametrize("name", [name for name in GOLDEN if any(word in name for word in SECRET)])
def test_no_bytes_stand_in_repr(name: str) -> None:
    message = GOLDEN[name][0]
    shown = repr(message)
    assert "b'" not in shown and "array" not in shown


def test_numbers_come_back() -> None:
    update = MaskedUpdate.read(ELEMENTS.tobytes(), VECTOR)
    assert update.elements(VECTOR).tolist() == [1, 2**32 - 2, 3]
    reply = NoisyMaskedSum.read(b"\5" + ELEMENTS.tobytes(), VECTOR)
    assert reply.elements(VECTOR).tolist() == [1, 2**32 - 2, 3]
    assert reply.included == (P1, P3)
    statistic = MaskedStatistic.read(ELEMENTS.tobytes(), StatisticFormat(RING, 3))
    assert statistic.elements(StatisticFormat(RING, 3)).tolist() == [1, 2**32 - 2, 3]
    assert LocalCenters.read(encode_centers(CENTERS), LOCAL).centers(2).tolist() == CENTERS.tolist()
    assert MergedCenters.read(b"\5" + encode_centers(CENTERS), LOCAL).centers(2).tolist() == CENTERS.tolist()
    result = FinalResult.read(encode_centers(CENTERS), RESULT).result(RESULT)
    assert (
        result is not None
        and np.array_equal(result.centers, CENTERS)
        and result.weights is None
        and result.spread is None
    )
    assert FinalResult(b"").result(SimpleNamespace(**{**PLAIN_RESULT, "share_result": False})) is None
    assert NoisySums.of(np.array([-1, 2])).integers().tolist() == [-1, 2]
