"""Changes messages of vertical-he and says how the runs end; a program, for what it tries has ended processes before.

`python -m tests.protocols.vertical_he.hostile FIRST COUNT` plays COUNT cases, numbered from FIRST, and writes one line
of JSON: how many runs went through, and how many ended with the sender's name. It ends with 1 at any other end.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fastlloyd.errors import PeerError
from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder
from fastlloyd.protocols.vertical_he.he.seal import HEADER
from fastlloyd.protocols.vertical_he.messages import (
    EncryptedBlock,
    KeyContribution,
    KeyMaterial,
    NoisySamples,
    NoisySums,
    PartialOpenings,
)
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.wire.header import Header, PartyId
from tests.protocols.vertical_he.support import blobs, names, parameters, simulate

TYPES = (KeyMaterial.TYPE, EncryptedBlock.TYPE, NoisySamples.TYPE, NoisySums.TYPE)
SETTINGS = (
    ({"scheme": "linear", "degree": 4}, (1, 1)),
    ({"scheme": "linear", "degree": 4, "mode": "threshold"}, (1, 1)),
    ({"scheme": "projection", "degree": 4}, (1, 2)),
    ({"scheme": "projection", "degree": 4, "mode": "threshold"}, (1, 2)),
    ({"scheme": "landmarks", "degree": 4}, (3, 3)),
)
CIRCUITS = (({"scheme": "pairwise"}, (1, 2)), ({"mode": "threshold"}, (1, 1, 1)))
N = 40


@cache
def plan_of(number: int) -> Plan:
    settings, widths = (*SETTINGS, *CIRCUITS)[number]
    k = 3 if settings.get("scheme") == "landmarks" else 2
    return make_plan(parameters(N, k, parties=len(widths), rounds=1, **settings), names(*widths))


@cache
def library_file(number: int) -> bytes:
    """What the library itself writes for a key, with changed counts or compression: it ended whoever read it."""
    context = Context(plan_of(number).encryption)
    holder = KeyHolder(context)
    fresh = holder._encryptor.encrypt_zero_symmetric(context.seal.key_parms_id())
    if number >= len(SETTINGS):
        fresh = holder._generator.create_relin_keys()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        fresh.save(str(path))
        return path.read_bytes()


def change(body: bytes, rng: np.random.Generator, number: int) -> bytes:
    """Change a message in one of ten ways."""
    at, length = int(rng.integers(0, len(body))), int(rng.integers(1, 64))
    raw = bytearray(body)
    match int(rng.integers(0, 10)):
        case 0:
            raw[at] ^= 1 << int(rng.integers(0, 8))
        case 1:
            raw[at : at + length] = b"\xff" * len(raw[at : at + length])
        case 2:
            raw[at : at + length] = bytes(len(raw[at : at + length]))
        case 3:
            del raw[at : at + length]
        case 4:
            raw[at:at] = rng.bytes(length)
        case 5:
            raw = bytearray(len(raw))
        case 6:
            raw = bytearray(rng.bytes(len(raw)))
        case 7:
            raw = raw[len(raw) // 2 :] + raw[: len(raw) // 2]
        case 8:
            raw = bytearray(rng.bytes(length)) if length > 8 else bytearray()
        case _:
            file = bytearray(library_file(number))
            for place in rng.integers(0, 2 * HEADER.size, 3):
                file[int(place)] = int(rng.integers(0, 4))
            raw = (file + bytes(len(body)))[: len(body)] if length % 2 else file
    return bytes(raw)


def play(case: int) -> str:
    """Change one message of one run; gives how it ended."""
    rng = np.random.default_rng(case)
    # The circuits' keys are large: a case in 25.
    number = len(SETTINGS) + case // 25 % len(CIRCUITS) if case % 25 == 24 else case % len(SETTINGS)
    plan = plan_of(number)
    types = (*TYPES, KeyContribution.TYPE, PartialOpenings.TYPE) if plan.openers else TYPES
    kind = types[int(rng.integers(0, len(types)))]
    occurrence, seen, liars = int(rng.integers(0, 2)), 0, []

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        nonlocal seen
        if header.type != kind or liars:
            return body
        seen += 1
        if seen <= occurrence and kind in (KeyMaterial.TYPE, EncryptedBlock.TYPE) and plan.mode == "threshold":
            return body
        liars.append(sender.rank)
        return change(body, rng, number)

    points, start = blobs(N, plan.k, plan.d, seed=case)
    try:
        simulate(plan, points, start, tap)
    except PeerError as error:
        # In threshold mode a changed first key comes back to its sender, who sees that it is not its own.
        back = kind == KeyMaterial.TYPE and "not made from this party" in str(error)
        if error.rank not in liars and not back:
            return f"wrong name: {error}"
        return "named"
    return "went through"


def main() -> int:
    first, count = map(int, sys.argv[1:3])
    ends = Counter(play(case) for case in range(first, first + count))
    print(json.dumps(ends))
    return int(not ends.keys() <= {"named", "went through"})


if __name__ == "__main__":
    sys.exit(main())
