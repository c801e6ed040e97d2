from __future__ import annotations

import os
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlloyd.protocols.vertical_he.he.residues import Halves
from fastlloyd.protocols.vertical_he.he.seal import HEADER, SealForm, compressed_part

FORM = SealForm((1, 2, 3, 2**64 - 1), 8, 2, b"\4\3", scale=0.5)
ROWS = np.arange(32, dtype=np.int64).reshape(2, 2, 8)
SEED = bytes(range(64))


def body(*, seeded: bool) -> bytes:
    return FORM.write(Halves(ROWS[0], SEED if seeded else ROWS[1]))[HEADER.size :]


def test_the_layout_stays() -> None:
    members = "010000000000000002000000000000000300000000000000ffffffffffffffff010200000000000000"
    members += "08000000000000000200000000000000000000000000e03f0100000000000000"
    array = "5ea110040300000098000000000000001000000000000000" + ROWS[0].astype("<u8").tobytes().hex()
    seed = "5ea1100403000000510000000000000001" + SEED.hex()
    assert body(seeded=True).hex() == members + array + seed
    size = struct.pack("<Q", 16 + len(body(seeded=True))).hex()
    assert FORM.write(Halves(ROWS[0], SEED))[: HEADER.size].hex() == "5ea1100403000000" + size


@pytest.mark.parametrize("seeded", [True, False])
def test_what_is_written_is_read(seeded: bool) -> None:
    halves = FORM.read(body(seeded=seeded), seeded=seeded)
    np.testing.assert_array_equal(halves.first, ROWS[0])
    np.testing.assert_array_equal(halves.second, SEED if seeded else ROWS[1])
    keys = [Halves(ROWS[0], SEED), Halves(ROWS[1], SEED[::-1])]
    again = FORM.read_keys(FORM.write_keys(keys)[HEADER.size :], 2)
    assert [part.second for part in again] == [SEED, SEED[::-1]]
    np.testing.assert_array_equal(np.stack([part.first for part in again]), ROWS)


@settings(max_examples=200, deadline=None)
@given(st.booleans(), st.integers(0, 10**6), st.integers(1, 255))
def test_a_change_outside_of_numbers_and_seed_is_noticed(seeded: bool, place: int, change: int) -> None:
    good = body(seeded=seeded)
    start, stop = 73 + 24, 73 + 24 + 8 * (16 if seeded else 32)
    frame = [*range(start), *range(stop, len(good) - 64)] if seeded else range(start)
    at = frame[place % len(frame)]
    wrong = good[:at] + bytes([good[at] ^ change]) + good[at + 1 :]
    with pytest.raises(ValueError, match="another form"):
        FORM.read(wrong, seeded=seeded)


def test_a_key_with_other_dimensions_is_noticed() -> None:
    good = FORM.write_keys([Halves(ROWS[0], SEED)] * 2)[HEADER.size :]
    for at in (0, 32, 40, 48, 53):
        with pytest.raises(ValueError, match="another form"):
            FORM.read_keys(good[:at] + bytes([good[at] ^ 3]) + good[at + 1 :], 2)
    for parts, content in ((1, good), (3, good), (2, good[:-1]), (2, b"")):
        with pytest.raises(ValueError, match="another length"):
            FORM.read_keys(content, parts)
    with pytest.raises(ValueError, match="another length"):
        FORM.read(good, seeded=True)


def test_a_file_that_is_not_compressed_as_the_library_does_is_noticed() -> None:
    good = HEADER.pack(0xA15E, 16, 4, 3, 2, 0, 20) + b"1234"
    assert compressed_part(good) == (b"\4\3", b"1234")
    for wrong in (b"", good[:15], good[:-1], *(good[:at] + b"\x09" + good[at + 1 :] for at in (0, 2, 5, 8))):
        with pytest.raises(ValueError):
            compressed_part(wrong)


@cache
def library_files(folder: Path) -> dict[str, bytes]:
    """Files that the library wrote itself."""
    pytest.importorskip("tenseal")
    from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder
    from fastlloyd.protocols.vertical_he.he.lattice import Parameters

    context = Context(Parameters(8192, (50, 40, 50)))
    holder = KeyHolder(context)
    plain = context.encode_slots(0.5, 2.0**20, context.level(2))
    things = {
        "cipher": holder._encryptor.encrypt_symmetric(plain),
        "key": holder._encryptor.encrypt_zero_symmetric(context.seal.key_parms_id()),
        "relin": holder._generator.create_relin_keys(),
    }
    files = {}
    for name, thing in things.items():
        thing.save(str(folder / name))
        files[name] = (folder / name).read_bytes()
    return files


@pytest.mark.parametrize("name", ["cipher", "key", "relin"])
def test_a_file_of_the_library_is_no_message(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The crafted files that ended the receiving process are files; a message has no place for one."""
    content = library_files(tmp_path_factory.getbasetemp())[name]
    from fastlloyd.protocols.vertical_he.he.ckks import Context
    from fastlloyd.protocols.vertical_he.he.lattice import Parameters

    context = Context(Parameters(8192, (50, 40, 50)))
    right = {
        "cipher": context.parameters.ciphertext_bytes(2, seeded=True),
        "key": context.parameters.public_key_bytes,
        "relin": 2 * context.parameters.public_key_bytes,
    }[name]
    load = {
        "cipher": context.load_ciphertext,
        "key": context.load_public_key,
        "relin": context.load_relin_key,
    }[name]
    for wrong in (content, content[:right] + os.urandom(max(0, right - len(content)))):
        with pytest.raises(ValueError, match="ciphertext or key|relinearisation key"):
            load(wrong)


LITTLE = """
import resource
from fastlloyd.errors import ConfigError
from fastlloyd.protocols.vertical_he.he.seal import Exchange, library
resource.setrlimit(resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
for use in (lambda: Exchange().version(), lambda: Exchange().load(library().Plaintext(), None, bytes(100))):
    try:
        use()
    except ConfigError as error:
        print(error)
"""


def test_a_file_in_memory_that_may_not_grow_is_a_sentence() -> None:
    """A limit of files counts those in memory, too; SEAL may say nothing, and a part of a file is no version."""
    pytest.importorskip("tenseal")
    done = subprocess.run([sys.executable, "-c", LITTLE], capture_output=True, text=True, check=True, timeout=60)
    first, second = done.stdout.splitlines()
    assert first.startswith("a file of ciphertexts in memory cannot be written (it ends after 16 bytes): allow this")
    assert second.startswith("a file of ciphertexts in memory cannot be written (File too large): allow this process")
