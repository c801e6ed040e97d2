"""A malicious server, client and relay, as real processes over TCP, and what the honest do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.lifecycle.closing import Totals
from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum
from fastlloyd.lifecycle.same_secret import EqualityTag
from fastlloyd.lifecycle.sealed import SealedParts, SealedSeed
from fastlloyd.protocols.feddp.messages import CentersMessage, MaskedStatistic
from fastlloyd.protocols.kfed.messages import LocalCenters, MergedCenters
from fastlloyd.protocols.secfc.messages import Shared, Signs, Size
from fastlloyd.protocols.vertical_dp.messages import FinalResult, Synopsis
from fastlloyd.protocols.vertical_he.messages import EncryptedBlock, NoisySamples
from tests import forks
from tests.adversary.campaign import load
from tests.adversary.lie import Lie

ROOT = Path(__file__).parents[2]
LIMIT_S = 110.0

# What a liar of each protocol says, the server first: cut, and so refused by whoever reads it.
CUT: dict[str, tuple[Lie, ...]] = {
    "fastlloyd": (Lie(rank=0, act="cut", type=NoisyMaskedSum.TYPE), Lie(rank=1, act="cut", type=MaskedUpdate.TYPE)),
    "fastlloyd-plus": (Lie(rank=0, act="longer", type=NoisyMaskedSum.TYPE, nth=1),),
    "glloyd": (Lie(rank=1, act="garbage record", type=MaskedUpdate.TYPE, nth=1),),
    "sulloyd": (Lie(rank=2, act="version", type=MaskedUpdate.TYPE),),
    "lloyd": (Lie(rank=0, act="stub", type=NoisyMaskedSum.TYPE), Lie(rank=1, act="exit", type=MaskedUpdate.TYPE)),
    "pairwise": (Lie(rank=0, act="empty", type=NoisyMaskedSum.TYPE), Lie(rank=3, act="cut", type=MaskedUpdate.TYPE)),
    "feddp": (Lie(rank=0, act="cut", type=CentersMessage.TYPE), Lie(rank=1, act="cut", type=MaskedStatistic.TYPE)),
    "kfed": (Lie(rank=0, act="ones", type=MergedCenters.TYPE), Lie(rank=1, act="cut", type=LocalCenters.TYPE)),
    "secfc": (Lie(rank=0, act="cut", type=Signs.TYPE), Lie(rank=1, act="cut", type=Shared.TYPE)),
    # Sizes are public there: the server knows at once who told another one.
    "secfc-membership": (Lie(rank=1, act="zeros", type=Size.TYPE),),
    "vertical-plain": (
        Lie(rank=0, act="longer", type=FinalResult.TYPE),
        Lie(rank=2, act="version", type=Synopsis.TYPE),
    ),
    "vertical-he": (Lie(rank=0, act="cut", type=NoisySamples.TYPE), Lie(rank=1, act="half", type=EncryptedBlock.TYPE)),
}
CASES = [("tcp", "directed", play, lie) for play, lies in CUT.items() for lie in lies]
# The hub that forwards what the clients say to each other, under a roster.
CASES += [
    ("tcp", "hub", play, Lie(rank=0, act=act, type=0, seed=seed, provable=False))
    for play, act, seed in (("pairwise", "flip", 1), ("secfc", "cut", 2), ("vertical-plain", "empty", 3))
]
# The common seed, which passes through the server.
CASES += [
    ("tcp", "directed", "fastlloyd", Lie(rank=0, act="flip", type=SealedSeed.TYPE, provable=False)),
    ("tcp", "directed", "fastlloyd", Lie(rank=1, act="flip", type=SealedParts.TYPE, provable=False)),
    ("tcp", "directed", "fewer", Lie(rank=2, act="zeros", type=EqualityTag.TYPE)),
]
CASES += [
    ("mpi", "directed", "kfed", Lie(rank=0, act="cut", type=MergedCenters.TYPE)),
    ("mpi", "directed", "fastlloyd", Lie(rank=1, act="cut", type=MaskedUpdate.TYPE)),
]
# A server that tells the last client something else than the others; `without` is the sum less one client's update.
EQUIVOCATIONS = [
    ("tcp", "directed", play, Lie(rank=0, act=act, type=type_, to=to, value=value, equivocates=True))
    for play, act, type_, to, value in (
        ("fewer", "without", NoisyMaskedSum.TYPE, (2,), 3),
        ("fastlloyd-plus", "flip", NoisyMaskedSum.TYPE, (2,), None),
        ("pairwise", "flip", NoisyMaskedSum.TYPE, (3,), None),
        ("feddp", "zeros", CentersMessage.TYPE, (3,), None),
        ("kfed", "zeros", MergedCenters.TYPE, (1,), None),
    )
]
CASES += EQUIVOCATIONS
# A server whose last message is no message: the clients have their result by then, and the name is the server's.
LAST = [
    ("tcp", "directed", play, Lie(rank=0, act="garbage record", type=Totals.TYPE)) for play in ("fastlloyd", "kfed")
]
CASES += LAST
NAMES = [f"{transport}-{kind}-{play}-{lie.rank}-{lie.act}" for transport, kind, play, lie in CASES]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Run all cases in one process that has imported everything, and give what was kept of each."""
    folder = tmp_path_factory.mktemp("adversary")
    listed = [
        {"play": play, "transport": transport, "kind": kind, "lie": json.loads(lie.to_json())}
        for transport, kind, play, lie in CASES
    ]
    (folder / "cases.json").write_text(json.dumps(listed))
    words = ["--listed", str(folder / "cases.json"), "--out", str(folder), "--workers", "4"]
    command = [sys.executable, "-m", "tests.adversary.campaign", *words]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | forks.environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    found = sorted(load(folder), key=lambda each: each["case"])
    assert len(found) == len(CASES), done.stdout + done.stderr
    return found


def problem(found: dict[str, Any], *, server_is_named: bool, without_result: bool) -> str | None:
    """What is wrong with the end of a run."""
    honest = {code for rank, code in enumerate(found["codes"]) if rank != found["liar"]}
    if found["faults"] or not found["told"]:
        return "a fault, or the lie was not told"
    if honest != {3}:
        return "the honest do not end alike"
    if server_is_named and not any("the server" in text for said in found["said"].values() for text in said):
        return "nobody names the server"
    return "a result was written" if without_result and any(found["results"]) else None


def test_the_honest_end_alike_and_name_the_liar(kept: list[dict[str, Any]]) -> None:
    # One test, so that two workers do not run all cases twice.
    wrong = {}
    for name, case, found in zip(NAMES, CASES, kept, strict=True):
        named = case in EQUIVOCATIONS or case in LAST
        seen = problem(found, server_is_named=named, without_result=case not in LAST)
        if seen is not None:
            wrong[name] = (seen, found)
    assert not wrong
