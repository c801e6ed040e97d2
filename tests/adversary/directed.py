"""Lies told on purpose, one by one: what each protocol's messages must not be allowed to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fastlloyd.errors import Reason
from fastlloyd.lifecycle.align.columns import Columns, RecordCount
from fastlloyd.lifecycle.closing import Counters, Totals
from fastlloyd.lifecycle.hello import Hello, PlanProposal, Ready
from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum
from fastlloyd.lifecycle.shared_secrets import PairCiphertext, PairPublicKey
from fastlloyd.net.link.frame import FrameKind, Notice
from fastlloyd.protocols.feddp.messages import CentersMessage, ProjectedCentersMessage, ProjectionMessage
from fastlloyd.protocols.kfed.messages import MergedCenters
from fastlloyd.protocols.secfc.messages import LayerPublicKey, Roll, SealedTags, Shared, Signs, Size
from fastlloyd.protocols.vertical_dp.messages import Synopsis
from tests.adversary.lie import CONTROL, Lie
from tests.adversary.play import PLAYS

NUMBERS = ("NaN", "Infinity", "-1", "1e400", "3.0", "true", "null", '"3"', "[]", "1" + "0" * 400)
_COUNTERS = {
    "empty": "{}",
    "a part": '{"messages":1}',
    "text": '{"messages":"x","payload_bytes":"y","link_bytes":"z","setup_bytes":"q"}',
    "a list": '{"messages":[1],"payload_bytes":1,"link_bytes":1,"setup_bytes":1}',
    "huge": '{"messages":1%s,"payload_bytes":1,"link_bytes":1,"setup_bytes":1}' % ("0" * 300),
    "infinite": '{"messages":Infinity,"payload_bytes":1,"link_bytes":1,"setup_bytes":1}',
    "negative": '{"messages":-1000,"payload_bytes":-5,"link_bytes":-1,"setup_bytes":-1}',
    "null": '{"messages":null,"payload_bytes":1,"link_bytes":1,"setup_bytes":1}',
    "true": '{"messages":true,"payload_bytes":1,"link_bytes":1,"setup_bytes":1}',
}
_TOTALS = {"empty": "{}", "text": '{"0":"x"}', "a number": '{"0":5}', "a part": '{"0":{}}', "nobody": '{"99":{}}'}
_HELLOS: dict[str, dict[str, Any]] = {
    "5 rounds": {"rounds_done": 5},
    "-1 rounds": {"rounds_done": -1},
    "too many rounds": {"rounds_done": 10**30},
    "true rounds": {"rounds_done": True},
    "other names": {"names": ["z", "b"]},
    "more names": {"names": ["a", "b", "c"]},
    "nested names": {"names": [["a"], {"b": 1}]},
    "no names": {"names": []},
    "an escape sequence": {"names": ["\x1b[2J\x1b[31mX", "b"]},
    "a line break": {"names": ["a\nfastlloyd: client 2 is gone", "b"]},
    "many names": {"names": ["x"] * 100000},
}
_HORIZONTAL = ("fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "lloyd", "pairwise")


def directed(play: str, plan: dict[str, Any]) -> Iterator[Lie]:
    """Yield the directed lies about one protocol, whose honest plan message is `plan`."""
    yield from _final(play)
    yield from _plans(play, plan)
    yield from _control(play)
    yield from _equivocations(play)
    yield from _special(play)


def _final(play: str) -> Iterator[Lie]:
    for name, text in _COUNTERS.items():
        yield Lie(rank=1, act="replace", type=Counters.TYPE, value=f'{{"accounts":{text}}}', name=f"Counters: {name}")
    for name, text in _TOTALS.items():
        yield Lie(rank=0, act="replace", type=Totals.TYPE, value=f'{{"accounts":{text}}}', name=f"Totals: {name}")


def _plans(play: str, plan: dict[str, Any]) -> Iterator[Lie]:
    """Numbers of a plan replaced by numbers that are none."""
    for key, value in plan["plan"].items():
        if isinstance(value, int | float) and value is not None:
            for text in ("3.0", "NaN") if isinstance(value, int) else ("NaN", "-1"):
                yield _leaf(0, ("plan", key), text)
    for text in NUMBERS:
        yield _leaf(0, ("rounds_done",), text)
    for path, text in {
        ("plan", "epsilon"): "0.5",
        ("plan", "n_total"): "100",
        ("plan", "masking"): '"pairwise"' if plan["plan"].get("masking") == "common" else '"common"',
        ("plan", "mechanism"): '"none"',
        ("plan", "fraction_bits"): "60",
        ("plan", "rounds", 0, "sum_scale"): "1.5",
        ("plan", "rounds", 0, "radius"): "1" + "0" * 400,
        ("plan", "rounds", 0, "cells"): "16",
    }.items():
        if _has(plan, path):
            yield _leaf(0, path, text)


def _has(document: Any, path: tuple[Any, ...]) -> bool:
    """Whether a document has a value at a path."""
    for key in path:
        try:
            document = document[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _leaf(rank: int, path: tuple[Any, ...], text: str) -> Lie:
    where = ".".join(map(str, path))
    return Lie(rank=rank, act="leaf", type=PlanProposal.TYPE, value=(path, text), name=f"plan {where}: {text[:20]}")


def _control(play: str) -> Iterator[Lie]:
    """Frames beside the links, before the parties' first message."""
    count = PLAYS[play].clients + 1
    for rank in (0, 1):
        victim = 2 if count > 2 else 1 - rank
        for code, reason in ((2, Reason.BAD_INPUT), (3, Reason.PROTOCOL), (4, Reason.BUDGET), (70, Reason.INTERNAL)):
            notice = bytes([FrameKind.ABORT]) + Notice(victim, reason, code).encode()
            yield _injected(rank, notice.hex(), f"ABORT: {code} by client {victim}", provable=rank == 1)
        bodies = {
            "ABORT of rank 60000": bytes([FrameKind.ABORT]) + b"\x60\xea\x0b\x46\x00\x00\x00",
            "ABORT with code 0": bytes([FrameKind.ABORT]) + b"\x01\x00\x0b\x00\x00\x00\x00",
            "ABORT, short": bytes([FrameKind.ABORT]) + b"\x01",
            "ABORT with reason 99": bytes([FrameKind.ABORT]) + b"\x01\x00\x63\x03\x00\x00\x00",
            "kind 99": b"\x63",
            "an empty frame": b"",
            "START again": bytes([FrameKind.START]) + bytes(10),
            "VERDICT again": bytes([FrameKind.VERDICT]) + bytes(31),
            "DONE too early": bytes([FrameKind.DONE]),
            "an ABORT_ACK": bytes([FrameKind.ABORT_ACK]),
            "a certificate again": bytes([FrameKind.CERTIFICATE]) + b"\x30\x00",
            "an empty record": bytes([FrameKind.RECORD]),
            "a handshake again": bytes([FrameKind.HANDSHAKE]) + bytes.fromhex("1603010005010000010000"),
        }
        for name, frame in bodies.items():
            yield _injected(rank, frame.hex(), name)
        yield Lie(rank=rank, act="garbage record", type=_first(rank, play), name="a record of random bytes")
    for body in ("", "00", "63" + "00" * 9, "ff" * 10, "0046" + "00" * 8, "00" * 11):
        yield Lie(rank=1, act="frame", type=CONTROL + FrameKind.START, value=f"04{body}", name=f"START {body[:8]}")
    yield Lie(rank=1, act="silent", type=CONTROL + FrameKind.DONE, name="no DONE")
    yield Lie(rank=1, act="body", type=CONTROL + FrameKind.DONE, value="00", name="DONE with a byte")
    for body in ("", "00" * 30, "ff" * 31, "00" * 16 + "ffff0b46010000" + "00" * 8):
        yield Lie(rank=0, act="body", type=CONTROL + FrameKind.VERDICT, value=body, name=f"VERDICT {body[:8]}")
    yield Lie(rank=1, act="body", type=CONTROL + FrameKind.CERTIFICATE, value="3000", name="no certificate")
    yield Lie(
        rank=1, act="flip", type=CONTROL + FrameKind.HANDSHAKE, name="a handshake that was changed", provable=False
    )


def _injected(rank: int, frame: str, name: str, *, provable: bool = True) -> Lie:
    return Lie(rank=rank, act="inject", type=PlanProposal.TYPE if rank == 0 else Ready.TYPE, value=frame, name=name,
               provable=provable)  # fmt: skip


def _first(rank: int, play: str) -> int:
    return PlanProposal.TYPE if rank == 0 else Ready.TYPE


def _equivocations(play: str) -> Iterator[Lie]:
    """Different things to the last client where all must have the same."""
    last = (PLAYS[play].clients,)
    if last == (1,):
        return
    replies = {
        "feddp": (ProjectionMessage.TYPE, ProjectedCentersMessage.TYPE, CentersMessage.TYPE),
        "kfed": (MergedCenters.TYPE,),
        "secfc": (Signs.TYPE, Roll.TYPE),
        "secfc-membership": (Signs.TYPE,),
    }.get(play, (NoisyMaskedSum.TYPE,) if play in (*_HORIZONTAL, "fewer") else ())
    for type_ in replies:
        for act in ("flip", "zeros", "random", "edge", "front"):
            for nth in (0, 1):
                yield Lie(rank=0, act=act, type=type_, nth=nth, to=last, seed=nth, equivocates=True, provable=False,
                          name=f"other message {type_} to one: {act} {nth}")  # fmt: skip
    if play == "fewer":
        for nth in (0, 1):
            yield Lie(rank=0, act="without", type=NoisyMaskedSum.TYPE, nth=nth, to=(2,), value=3, equivocates=True,
                      provable=False, name=f"the sum without client 3 to client 2, round {nth}")  # fmt: skip
    yield Lie(
        rank=0, act="leaf", type=PlanProposal.TYPE, to=last, value=(("rounds_done",), "1"), name="other plan to one"
    )
    yield Lie(rank=0, act="flip", type=CONTROL + FrameKind.VERDICT, to=last, name="other run id to one", provable=False)


def _special(play: str) -> Iterator[Lie]:
    """What only some protocols have."""
    if play in (*_HORIZONTAL, "feddp", "kfed", "secfc"):
        for name, change in _HELLOS.items():
            value = json.dumps({"names": ["a", "b"], "rounds_done": 0} | change)
            # Which of two names is the wrong one, two clients cannot tell.
            provable = PLAYS[play].clients > 2 or name in (
                "5 rounds",
                "-1 rounds",
                "too many rounds",
                "true rounds",
                "nested names",
                "no names",
            )
            yield Lie(rank=1, act="replace", type=Hello.TYPE, value=value, provable=provable, name=f"Hello: {name}")
        value = json.dumps({"names": ["z", "b"], "rounds_done": 0})
        yield Lie(rank=2, act="replace", type=Hello.TYPE, value=value, provable=PLAYS[play].clients > 2,
                  name="Hello: other names, client 2")  # fmt: skip
    if play in _HORIZONTAL:
        for act in ("random", "ones", "zeros", "cut", "longer", "twice", "early", "round far", "attempt", "silent"):
            yield Lie(rank=1, act=act, type=MaskedUpdate.TYPE, name=f"update: {act}", provable=act in ("cut", "longer"))
        yield Lie(rank=1, act="many", type=MaskedUpdate.TYPE, value=100000, name="100000 messages ahead of time")
        yield Lie(rank=1, act="swollen", type=MaskedUpdate.TYPE, value=64, name="an update of 64 MiB")
        yield Lie(rank=1, act="swollen", type=Hello.TYPE, value=15, name="a Hello of 15 MiB")
    if play in ("pairwise", "feddp", "vertical-dp", "vertical-he"):
        yield Lie(rank=1, act="zeros", type=PairPublicKey.TYPE, name="a pair key of zeros")
        yield Lie(rank=1, act="random", type=PairPublicKey.TYPE, name="a pair key of nobody", provable=False)
        for act in ("zeros", "random"):
            yield Lie(rank=1, act=act, type=PairCiphertext.TYPE, name=f"a pair's ciphertext: {act}", provable=False)
    if play.startswith("secfc"):
        for number in (0, 1, 10**6, 2**63, 2**64 - 1):
            for type_ in (Size.TYPE, Shared.TYPE):
                value = number.to_bytes(8, "little").hex()
                yield Lie(rank=1, act="body", type=type_, value=value, name=f"number {type_}: {number}")
        yield Lie(rank=0, act="zeros", type=Roll.TYPE, name="an empty Roll")
        yield Lie(rank=0, act="ones", type=Roll.TYPE, name="a Roll of clients that are none")
        yield Lie(rank=1, act="random", type=SealedTags.TYPE, name="sealed tags of random bytes")
        yield Lie(rank=1, act="zeros", type=LayerPublicKey.TYPE, name="a layer key of zeros")
    if play.startswith("vertical"):
        for path in (("lo", 0), ("hi", 0), ("names", 0), ("lo",), ("names",)):
            for text in (*NUMBERS, '"\\u001b[31mX"'):
                yield Lie(rank=1, act="leaf", type=Columns.TYPE, value=(path, text),
                          name=f"Columns {path}: {text[:20]}")  # fmt: skip
        for text in NUMBERS:
            yield Lie(rank=1, act="leaf", type=RecordCount.TYPE, value=(("n",), text), name=f"Count: {text[:20]}")
        yield Lie(rank=1, act="cut", type=Synopsis.TYPE, name="a synopsis one byte short")
