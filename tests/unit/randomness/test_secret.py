"""Secret randomness: from the operating system only, never repeated, never shown."""

from __future__ import annotations

import copy
import os
import pickle

import numpy as np
import pytest

from fastlloyd.randomness import secret
from fastlloyd.randomness.secret import KeyedRandom, SecretRandom

# RFC 8439, A.1, test vector 1: key, nonce and counter all zero.
ZERO_KEY_STREAM = bytes.fromhex(
    "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
)


class Entropy:
    """Stands in for os.urandom: hands out keys one by one and counts them."""

    def __init__(self, *keys: bytes) -> None:
        self.keys = list(keys)

    def __call__(self, count: int) -> bytes:
        key = self.keys.pop(0)
        assert len(key) == count
        return key


def test_bits_are_chacha20_under_the_key_of_the_operating_system(monkeypatch):
    monkeypatch.setattr(os, "urandom", Entropy(bytes(32)))
    stream = SecretRandom()
    assert stream.bytes(10) + stream.bytes(0) + stream.bytes(54) == ZERO_KEY_STREAM


def test_words_are_the_little_endian_bytes(monkeypatch):
    monkeypatch.setattr(os, "urandom", Entropy(bytes(32)))
    words = SecretRandom().uint64(8)
    assert words.dtype == np.uint64
    assert words.tobytes() == ZERO_KEY_STREAM


def test_a_new_key_is_taken_before_the_stream_is_used_up(monkeypatch):
    monkeypatch.setattr(secret, "_BYTES_PER_KEY", 64)
    entropy = Entropy(bytes(32), b"\x01" * 32, b"\x02" * 32)
    monkeypatch.setattr(os, "urandom", entropy)
    stream = SecretRandom()
    drawn = stream.bytes(40) + stream.bytes(100)
    assert entropy.keys == []
    assert drawn[:64] == ZERO_KEY_STREAM
    assert len(drawn) == 140
    assert len({drawn[:64], drawn[64:128]}) == 2


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_does_not_repeat_its_parent():
    stream = SecretRandom()
    stream.bytes(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, stream.bytes(32))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)
    assert len(theirs) == 32
    assert theirs != stream.bytes(32)


def test_two_streams_differ():
    assert SecretRandom().bytes(32) != SecretRandom().bytes(32)


def test_there_is_no_way_to_seed_copy_or_store_it():
    for arguments in ((1,), (b"seed",), (np.random.default_rng(1),)):
        with pytest.raises(TypeError):
            SecretRandom(*arguments)
    with pytest.raises(TypeError):
        SecretRandom(seed=1)
    stream = SecretRandom()
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            duplicate(stream)


def test_it_shows_nothing_and_is_no_numpy_generator(monkeypatch):
    monkeypatch.setattr(os, "urandom", Entropy(b"K" * 32))
    stream = SecretRandom()
    assert repr(stream) == str(stream) == "SecretRandom()"
    assert not hasattr(stream, "__dict__")
    public = {name for name in dir(np.random.default_rng(1)) if not name.startswith("_")}
    ours = {name for name in dir(stream) if not name.startswith("_")}
    assert ours == {"bytes", "uint64", "further"}
    assert "uint64" not in public


def test_a_negative_number_of_bytes_is_refused():
    with pytest.raises(ValueError, match="number of bytes"):
        SecretRandom().bytes(-1)


def test_a_keyed_stream_is_chacha20_under_its_key_and_repeats():
    stream = KeyedRandom(bytes(32), b"\1" * 32)
    assert stream.bytes(10) + stream.bytes(0) + stream.bytes(54) == ZERO_KEY_STREAM
    assert KeyedRandom(bytes(32), b"\2" * 32).uint64(8).tobytes() == ZERO_KEY_STREAM
    further = KeyedRandom(b"\1" * 32, bytes(32))
    assert further.further().to_bytes(8, "little") + further.further().to_bytes(8, "little") == ZERO_KEY_STREAM[:16]
    assert further.bytes(8) == KeyedRandom(b"\1" * 32, b"\3" * 32).bytes(8)
    assert "1" not in repr(further)
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.copy(further)


def test_further_bits_of_the_system_s_stream_are_the_next_ones(monkeypatch):
    monkeypatch.setattr(os, "urandom", Entropy(bytes(32)))
    stream = SecretRandom()
    assert stream.further().to_bytes(8, "little") + stream.bytes(8) == ZERO_KEY_STREAM[:16]
