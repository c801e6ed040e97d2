"""Elements from streams: the same for everybody who has the key."""

from __future__ import annotations

import numpy as np
import pytest

from fastlloyd.protocols.secfc.field.pack import Expansion
from fastlloyd.protocols.secfc.field.prime import Field
from fastlloyd.randomness.prg import KeyStream, keystream

REAL = Field((16777213, 16777199, 65521))


@pytest.mark.parametrize("field", [Field((7,)), Field((13, 251)), REAL], ids=str)
@pytest.mark.parametrize("count", [0, 1, 5, 1000])
def test_a_key_expands_to_the_words_below_the_prime(field: Field, count: int) -> None:
    key, nonce = bytes(range(32)), bytes(range(12))
    stream = keystream(key, nonce, 40 * (count + 20) * len(field.primes))
    at, expected = 0, []
    for p in field.primes:
        row: list[int] = []
        while len(row) < count:
            word = int.from_bytes(stream[at : at + 4], "little") % (1 << p.bit_length())
            at += 4
            if word < p:
                row.append(word)
        expected.append(row)
    keys = KeyStream(key)
    assert field.uniform_from(keys, nonce, (count,)).tolist() == expected
    if count == 1000:
        assert (field.uniform_from(keys, bytes(12), (count,)) != np.array(expected)).any()


def test_a_stream_much_longer_than_expected_stays_the_same() -> None:
    # 7 of 8 words pass on average; 40 draws of one element need more than the first reading now and then.
    field = Field((7,))
    for i in range(40):
        nonce = i.to_bytes(12, "little")
        long = field.uniform_from(KeyStream(bytes(32)), nonce, (2000,))
        assert (field.uniform_from(KeyStream(bytes(32)), nonce, (3,)) == long[:, :3]).all()


def test_reading_beyond_what_was_expected_goes_on_with_the_same_stream() -> None:
    stream = Expansion(KeyStream(bytes(32)), bytes(12), expected=10)
    read = b"".join(stream.read(count) for count in (4, 5, 6, 0, 100))
    assert read == keystream(bytes(32), bytes(12), 115)
