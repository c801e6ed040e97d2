"""Key derivation: HKDF-SHA256 as RFC 5869 has it, from HMAC as RFC 2104 has it. Public streams."""

from __future__ import annotations

import hmac
import struct

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fastlloyd.randomness import prg
from fastlloyd.randomness.prg import Derivation, PublicStream, derive
from tests.dealt import fixed


def test_hkdf_has_the_values_of_rfc_5869() -> None:
    # Appendix A.1: the first 32 bytes of the output are its first block.
    secret, salt, info = bytes([0x0B]) * 22, bytes(range(13)), bytes(range(0xF0, 0xFA))
    extracted = prg._Hmac(salt).digest(secret)
    assert extracted.hex() == "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5"
    expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
    assert prg._Hmac(extracted).digest(info + b"\1").hex() == expected


@pytest.mark.parametrize("length", [0, 1, 32, 63, 64, 65, 200])
def test_hmac_is_the_library_s_for_every_length_of_key(length: int) -> None:
    key, content = (fixed("key") * 7)[:length], fixed("content") * 5
    assert prg._Hmac(key).digest(content) == hmac.digest(key, content, "sha256")


@pytest.mark.parametrize("salt", [b"", b"run", bytes(16), bytes(range(100))])
@pytest.mark.parametrize("context", [b"", b"\x01\x02", bytes(1200)])
def test_keys_are_the_library_s(salt: bytes, context: bytes) -> None:
    secret, purpose = fixed("secret"), b"a purpose"
    info = struct.pack("<I", len(purpose)) + purpose + context
    expected = HKDF(algorithm=SHA256(), length=32, salt=salt or None, info=info).derive(secret)
    one = Derivation(secret, salt)
    assert one.derive(b"another") != expected
    assert one.derive(purpose, context) == derive(secret, purpose, context, salt) == expected


@pytest.mark.parametrize("before,skipped", [(0, 0), (0, 1), (3, 13), (16, 16), (5, 1000), (100, 0)])
def test_a_public_stream_goes_on_behind_what_is_skipped(before: int, skipped: int) -> None:
    whole, stream = PublicStream(1, "a test").uint32(before + skipped + 40), PublicStream(1, "a test")
    stream.uint32(before)
    stream.skip(skipped)
    assert stream.uint32(17).tolist() == whole[before + skipped :][:17].tolist()
    stream.skip(2)
    assert stream.uint32(3).tolist() == whole[before + skipped :][19:22].tolist()


def test_a_public_stream_goes_on_behind_the_first_2_38_bytes() -> None:
    """The cipher's counter of 32 bits ended there, in a traceback."""
    one, other = PublicStream(1, "a test"), PublicStream(1, "a test")
    one.skip(1 << 36)
    other.skip((1 << 36) - 16)
    other.skip(16)
    assert one.uint32(8).tolist() == other.uint32(8).tolist() != PublicStream(1, "a test").uint32(8).tolist()
