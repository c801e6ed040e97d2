"""Small whole runs in memory, with public records and fixed "secret" bits: what each comes to, as one hash.

A run draws from `os.urandom`, which a run of this module answers from a cipher stream: two builds that draw, round and
move centres in the same way come to the same figures, and others hardly ever do. Keys of links are OpenSSL's and
the seed of CKKS is SEAL's: no figure depends on the former, and figures of CKKS are compared roughly (`APPROXIMATE`).

Source: docs/adding-a-protocol.md, "The version of its results".
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from fastlloyd.crypto import hybrid
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Outcome
from fastlloyd.run.run_file import with_values
from fastlloyd.run.session import find_protocol
from fastlloyd.run.simulation import run_together
from tests.vectors import mlkem768

DECIMALS = 6
"""How many digits after the point count: the last bits of a logarithm or of a sum differ from machine to machine."""
APPROXIMATE = ("vertical-he",)
"""Protocols whose results have errors of CKKS, some 0.002 here, new each time: their figures are kept, not a hash."""
TOLERANCE = 0.02
"""How far such a figure may be from the one that is kept; columns go from 0 to 220."""
Found = str | list[float]
"""What a case comes to: a hash, or the figures."""
BOUNDS = "feature,lo,hi\nage,0,100\npressure,60,220\n"
_NUMBER = re.compile(r"-?\d+\.\d+(e-?\d+)?")
_RECORDS = 60
FINISHED = Path(__file__).with_name("finished")
_PARTIES = 5


def _horizontal(protocol: str, clients: int = 2, **values: Any) -> tuple[int, dict[str, Any]]:
    own = {"data": "rows_{client}.csv", "bounds": "bounds.csv", "n_total": 400, "k": 3, "epsilon": 20.0}
    return clients, {"protocol": protocol, **own, **values}


def _describe(clients: int = 2, quality: float = 0.0, **values: Any) -> tuple[int, dict[str, Any]]:
    """Describe the clusters of a run that is kept: `finished` has the files of it that a description reads."""
    columns = [{"name": "age", "lo": 0, "hi": 100, "bins": 4}, {"name": "pressure", "edges": [60, 100, 140, 220]}]
    own: dict[str, Any] = {"columns": json.dumps(columns) if quality < 1.0 else "", "quality": quality}
    own["run"] = json.loads((FINISHED / "report.json").read_text())["run"]
    return _horizontal("describe", clients, described=FINISHED.name, describe=own, **values)


def _vertical(protocol: str, clients: int = 2, **values: Any) -> tuple[int, dict[str, Any]]:
    own = {"data": "columns_{client}.csv", "bounds": "0,220", "n_total": 80, "k": 2, "epsilon": 40.0}
    return clients, {"protocol": protocol, **own, **values}


CASES: Mapping[str, Mapping[str, tuple[int, dict[str, Any]]]] = {
    "fastlloyd": {
        "common masks": _horizontal("fastlloyd"),
        "pairwise masks": _horizontal("fastlloyd", 3, masking="pairwise"),
    },
    "fastlloyd-plus": {
        "common masks": _horizontal("fastlloyd-plus"),
        "pairwise masks": _horizontal("fastlloyd-plus", 3, masking="pairwise"),
        "chosen k": _horizontal("fastlloyd-plus", k="auto:4"),
        "quality": _horizontal("fastlloyd-plus", quality=0.2),
        "several k": _horizontal("fastlloyd-plus", 3, k="2..4", masking="pairwise"),
    },
    "glloyd": {"defaults": _horizontal("glloyd")},
    "sulloyd": {"defaults": _horizontal("sulloyd")},
    "lloyd": {"defaults": _horizontal("lloyd")},
    "feddp": {"defaults": _horizontal("feddp", server_data="rows_5.csv", rounds=2)},
    "kfed": {"defaults": _horizontal("kfed")},
    "secfc": {"defaults": _horizontal("secfc", 4, rounds=2)},
    "vertical-dp": {
        "defaults": _vertical("vertical-dp"),
        "common ids": _vertical("vertical-dp", vertical={"align": "intersect"}),
    },
    "describe": {
        "common masks": _describe(),
        "pairwise masks": _describe(3, masking="pairwise"),
        "threshold masks": _describe(3, masking="threshold"),
        "quality alone": _describe(quality=1.0),
        "with quality": _describe(3, masking="threshold", quality=0.2),
    },
    "private-bounds": {
        "pairwise masks": _horizontal("private-bounds", 3, k=None, masking="pairwise"),
        "threshold masks": _horizontal("private-bounds", bounds=None, k=None, masking="threshold"),
    },
    "vertical-plain": {"defaults": _vertical("vertical-plain")},
    "vertical-he": {
        "defaults": _vertical("vertical-he", rounds=1),
        "three parties": _vertical("vertical-he", 3, rounds=1),
        "landmarks": _vertical(
            "vertical-he", 1, data="wide_{client}.csv", k=3, rounds=1, **{"vertical-he": {"degree": 4}}
        ),
    },
}


def write_records(folder: Path) -> None:
    """Write the public records of all parties: integers in three groups, from a linear congruence."""
    state = 1

    def draw(below: int) -> int:
        nonlocal state
        state = (state * 1103515245 + 12345) % 2**31
        return (state >> 8) % below

    shutil.copytree(FINISHED, folder / FINISHED.name)
    groups = ((20, 110), (50, 130), (75, 160))
    (folder / "bounds.csv").write_text(BOUNDS)
    ids = [f"p{i:03}" for i in range(_RECORDS)]
    for party in range(1, _PARTIES + 1):
        rows = [(a + draw(13), p + draw(19)) for a, p in (groups[draw(3)] for _ in range(_RECORDS))]
        (folder / f"rows_{party}.csv").write_text("age,pressure\n" + "".join(f"{a},{p}\n" for a, p in rows))
        own = [f"{name},{groups[i % 3][party % 2] + draw(13)}\n" for i, name in enumerate(ids)]
        (folder / f"columns_{party}.csv").write_text(f"id,x{party}\n" + "".join(own))
    for party in range(2):
        table = [[groups[i % 3][h % 2] + draw(13) for h in range(3)] for i in range(_RECORDS)]
        lines = [",".join([name, *map(str, row)]) for name, row in zip(ids, table, strict=True)]
        (folder / f"wide_{party}.csv").write_text("\n".join([f"id,a{party},b{party},c{party}", *lines, ""]))


@contextmanager
def fixed_bits(name: str) -> Iterator[None]:
    """Answer `os.urandom`, and what OpenSSL draws for ML-KEM, from streams that belong to a name."""
    bits, keys = (
        Cipher(algorithms.ChaCha20(hashlib.sha256(each.encode()).digest(), bytes(16)), mode=None).encryptor()
        for each in (name, f"{name}, ML-KEM")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", lambda count: bits.update(bytes(count)))
        patch.setattr(hybrid, "_encapsulate", lambda public: mlkem768.encapsulate(public, keys.update(bytes(32))))
        yield


def run_case(protocol: str, case: str, folder: Path) -> Found:
    """Run all parties of a case in a folder that has the records, and return what those with a result came to."""
    clients, values = CASES[protocol][case]
    find_protocol(protocol)  # a module may draw when it is first imported, as multiprocessing does
    with pytest.MonkeyPatch.context() as patch, fixed_bits(f"{protocol}, {case}"):
        patch.chdir(folder)
        ended = run_together(with_values(RunConfig(), values), clients)
    figures = [[str(party), *_figures(one)] for party, one in sorted(ended.outcomes.items())]
    assert any(len(own) > 1 for own in figures), "nobody has a result"
    if protocol in APPROXIMATE:
        return [float(text) for own in figures for text in own[1:]]
    return hashlib.sha256(json.dumps(figures).encode()).hexdigest()


def same(one: Found, other: Found) -> bool:
    """Whether two runs of a case came to the same."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return len(one) == len(other) and all(abs(a - b) < TOLERANCE for a, b in zip(one, other, strict=True))


def _figures(outcome: Outcome) -> Iterator[str]:
    """Write what a party has: centres, sizes, further files, its own labels."""
    if (result := outcome.result) is not None:
        if result.centroids is not None:
            yield from map(_text, result.centroids.ravel())
        yield from map(_text, result.noisy_sizes or ())
        sizes = {name: text for name, text in result.files.items() if name == "sizes.csv"}
        for name, text in sorted({**result.extra, **sizes}.items()):
            yield f"{name}: {_NUMBER.sub(lambda found: _text(float(found[0])), text)}"
    if outcome.raw_labels is not None:
        yield from map(str, outcome.raw_labels.tolist())


def _text(value: float) -> str:
    return f"{round(float(value), DECIMALS) + 0.0:.{DECIMALS}f}"
