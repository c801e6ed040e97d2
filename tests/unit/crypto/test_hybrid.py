"""The secret of two parties hangs on X25519 and on ML-KEM-768, and on every bit that it was made from."""

from __future__ import annotations

import copy
import os
import pickle
from typing import Any

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.crypto import hybrid
from fastlloyd.crypto.hybrid import (
    CIPHERTEXT_BYTES,
    PUBLIC_BYTES,
    RAW_BYTES,
    HybridKey,
    require_hybrid,
    seal,
    unseal,
)
from fastlloyd.errors import ConfigError, SecurityError
from fastlloyd.randomness.prg import derive
from fastlloyd.wire.header import PartyId

RUN, PURPOSE = bytes(range(16)), b"test"
ONE, TWO = PartyId(1), PartyId(2)
RAW = {ONE: bytes(range(96)), TWO: bytes(range(100, 196))}


def key(me: PartyId, raw: bytes | None = None, **changes: Any) -> HybridKey:
    return HybridKey(RAW[me] if raw is None else raw, me, **({"purpose": PURPOSE, "run_id": RUN} | changes))


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("sender,receiver", [(ONE, TWO), (TWO, ONE)])
def test_both_have_one_secret_whoever_encapsulates(sender: PartyId, receiver: PartyId) -> None:
    own, other = key(sender), key(receiver)
    ciphertext, secret = own.encapsulate(receiver, other.public)
    assert other.decapsulate(sender, own.public, ciphertext) == secret
    assert (len(own.public), len(ciphertext), len(secret)) == (PUBLIC_BYTES, CIPHERTEXT_BYTES, 32)
    again, fresh = own.encapsulate(receiver, other.public)
    assert again != ciphertext and fresh != secret


def test_the_secret_is_what_the_page_says() -> None:
    one, two = key(ONE), key(TWO)
    ciphertext, secret = two.encapsulate(ONE, one.public)
    by_mlkem = MLKEM768PrivateKey.from_seed_bytes(RAW[ONE][32:]).decapsulate(ciphertext)
    by_x25519 = X25519PrivateKey.from_private_bytes(RAW[TWO][:32]).exchange(
        X25519PublicKey.from_public_bytes(one.public[:32])
    )
    context = bytes([1, 0, 0, 0, 2, 0, 0, 0]) + one.public + two.public + ciphertext
    assert derive(by_mlkem + by_x25519, PURPOSE, context, salt=RUN) == secret


@pytest.mark.parametrize("half", ["X25519", "ML-KEM-768"])
@pytest.mark.parametrize("of", [ONE, TWO])
def test_one_of_the_two_private_keys_is_not_enough(half: str, of: PartyId) -> None:
    """Somebody has recorded everything, and comes to one half of a private key; with both halves it opens."""
    one, two = key(ONE), key(TWO)
    ciphertext, secret = one.encapsulate(TWO, two.public)
    wrong = os.urandom(RAW_BYTES)
    known = RAW[TWO][:32] + wrong[32:] if half == "X25519" else wrong[:32] + RAW[TWO][32:]
    thief = key(TWO, known)
    thief.public = two.public
    assert thief.decapsulate(ONE, one.public, ciphertext) != secret
    assert key(TWO, RAW[TWO]).decapsulate(ONE, one.public, ciphertext) == secret
    if half == "X25519":  # the other's as well: X25519's secret follows from either
        with_first = key(ONE, RAW[ONE][:32] + wrong[32:])
        with_first.public = one.public
        assert with_first.encapsulate(TWO, two.public)[1] != secret


@given(bit=st.integers(0, 8 * CIPHERTEXT_BYTES - 1))
def test_every_bit_of_the_ciphertext_counts(bit: int) -> None:
    one, two = key(ONE), key(TWO)
    ciphertext, secret = one.encapsulate(TWO, two.public)
    assert two.decapsulate(ONE, one.public, flipped(ciphertext, bit)) != secret


@given(bit=st.integers(0, 8 * PUBLIC_BYTES - 1))
def test_every_bit_of_the_public_keys_counts(bit: int) -> None:
    """The bit of X25519's coordinate that its arithmetic ignores, too."""
    one, two = key(ONE), key(TWO)
    ciphertext, secret = one.encapsulate(TWO, two.public)
    try:
        assert two.decapsulate(ONE, flipped(one.public, bit), ciphertext) != secret
    except SecurityError as error:
        assert error.rank == 1
    try:
        changed, other = one.encapsulate(TWO, flipped(two.public, bit))
    except SecurityError as error:
        assert error.rank == 2
    else:
        assert two.decapsulate(ONE, one.public, changed) != other


def test_run_purpose_and_ranks_count() -> None:
    one, two = key(ONE), key(TWO)
    ciphertext, secret = one.encapsulate(TWO, two.public)
    others = [
        key(TWO, run_id=RUN[::-1]).decapsulate(ONE, one.public, ciphertext),
        key(TWO, purpose=b"other").decapsulate(ONE, one.public, ciphertext),
        key(PartyId(3), RAW[TWO]).decapsulate(ONE, one.public, ciphertext),
        two.decapsulate(PartyId(3), one.public, ciphertext),
    ]
    assert len({secret, *others}) == 5


ZEROS, ONES = bytes(32), (1).to_bytes(32, "little")


@pytest.mark.parametrize(
    "change",
    [
        lambda public: ZEROS + public[32:],
        lambda public: ONES + public[32:],
        lambda public: public[:32] + b"\xff" * 1184,
        lambda public: public[:-1],
        lambda public: public + b"\0",
        lambda public: b"",
    ],
    ids=["of order 4", "of order 1", "beyond the modulus", "short", "long", "empty"],
)
def test_a_key_that_no_honest_party_makes_is_refused_by_name(change: Any) -> None:
    one, two = key(ONE), key(TWO)
    ciphertext, _ = one.encapsulate(TWO, two.public)
    with pytest.raises(SecurityError, match="client 2 sent a key that yields no secret, expected") as caught:
        one.encapsulate(TWO, change(two.public))
    assert caught.value.rank == 2
    with pytest.raises(SecurityError, match="client 1 sent a key that yields no secret, expected") as caught:
        two.decapsulate(ONE, change(one.public), ciphertext)
    assert caught.value.rank == 1


@pytest.mark.parametrize("size", [0, CIPHERTEXT_BYTES - 1, CIPHERTEXT_BYTES + 1])
def test_a_ciphertext_of_another_length_is_refused_by_name(size: int) -> None:
    with pytest.raises(SecurityError, match="client 1 sent a ciphertext that yields no secret") as caught:
        key(TWO).decapsulate(ONE, key(ONE).public, bytes(size))
    assert caught.value.rank == 1


def test_a_key_shows_and_copies_nothing() -> None:
    own = key(ONE)
    assert repr(own) == "HybridKey(client 1)"
    for act in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or stored"):
            act(own)
    with pytest.raises(ValueError, match="expected 96 bytes, got 32"):
        key(ONE, bytes(32))


@pytest.mark.parametrize("lacks", ["the module", "the algorithm"])
def test_a_build_without_ml_kem_is_refused_in_a_sentence(lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require_hybrid()

    class Unsupported:
        @staticmethod
        def from_seed_bytes(seed: bytes) -> None:
            raise UnsupportedAlgorithm("ML-KEM-768 is not supported by this version of OpenSSL")

    class Module:
        MLKEM768PrivateKey = Unsupported

    monkeypatch.setattr(hybrid, "_mlkem", None if lacks == "the module" else Module)
    for act in (require_hybrid, lambda: key(ONE)):
        with pytest.raises(ConfigError, match=r"need ML-KEM-768.* expected version 48 .*pip install 'crypto") as caught:
            act()
        assert caught.value.exit_code == 2


@given(plain=st.binary(max_size=80), bit=st.integers(0, 127))
def test_a_seal_opens_under_its_secret_purpose_and_context_only(plain: bytes, bit: int) -> None:
    sealed = seal(plain, bytes(32), b"purpose", b"context")
    assert unseal(sealed, bytes(32), b"purpose", b"context") == plain
    for wrong in (
        (flipped(sealed, bit), bytes(32), b"purpose", b"context"),
        (sealed, bytes(31) + b"\1", b"purpose", b"context"),
        (sealed, bytes(32), b"purpos", b"econtext"),
        (sealed, bytes(32), b"purpose", b"contexts"),
    ):
        with pytest.raises(ValueError, match="does not open"):
            unseal(*wrong)
