"""Lies drawn by chance from what an honest run sent: any message of any party, changed in any way."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from fastlloyd.lifecycle.closing import Totals
from fastlloyd.lifecycle.hello import Hello, PlanProposal
from fastlloyd.lifecycle.sealed import SealKeys
from tests.adversary.lie import Lie
from tests.adversary.mutate import HEADER_BYTES, is_document

_HEADER = ("version", "type", "round next", "round past", "round final", "round far", "attempt", "empty", "stub")
_LENGTH = ("bare", "cut", "half", "longer", "doubled", "swollen")
_BYTES = ("flip", "edge", "front", "inner", "splice", "random", "ones", "zeros", "recorded")
_DOCUMENT = ("leaf", "leaf", "leaf", "drop", "extra", "odd", "flip", "cut", "bare")
_ORDER = ("twice", "early", "replay", "instead", "garbage record", "many")
# These cost a deadline each.
_SLOW = ("swap", "silent", "late", "exit", "die")
# What such a change says about its sender cannot be read off the bytes, or it is silence.
_UNPROVABLE = {*_BYTES, *_SLOW, "instead", "attempt", "round past"} - {"exit", "die"}
_CONTENT = {*_BYTES, "leaf", "drop", "extra", "odd"} - {"recorded"}
_SLOW_SHARE = 0.03
# Totals cost a line of the report, and nobody looks at the own key in SealKeys.
_MAY_DIFFER = (Totals.TYPE, SealKeys.TYPE)


@dataclass(frozen=True)
class Sent:
    """A message of an honest run: who sent it, its type, which of this type to each receiver it was, to whom, what."""

    rank: int
    type: int
    nth: int
    frames: tuple[tuple[int, bytes], ...]

    @property
    def document(self) -> bool:
        return is_document(self.frames[0][1][HEADER_BYTES:])

    @property
    def common(self) -> bool:
        """Whether several receivers got the same."""
        return len(self.frames) > 1 and len({frame for _, frame in self.frames}) == 1


def material(record: list[dict[str, Any]]) -> list[Sent]:
    """Sort the messages of a recorded run."""
    count: dict[tuple[int, int, int], int] = defaultdict(int)
    found: dict[tuple[int, int, int], list[tuple[int, bytes]]] = defaultdict(list)
    for line in record:
        rank, to, frame = line["rank"], line["to"], line["frame"]
        nth = count[rank, to, frame[0]]
        count[rank, to, frame[0]] += 1
        found[rank, frame[0], nth].append((to, frame))
    return [Sent(*key, tuple(sorted(frames))) for key, frames in sorted(found.items())]


def draw_lie(sent: list[Sent], seed: int, *, slow: bool = True) -> Lie:
    """Draw one lie: first the liar, then the type, then the message, the receivers and the change."""
    draw = random.Random(seed)
    rank = draw.choice(sorted({each.rank for each in sent}))
    type_ = draw.choice(sorted({each.type for each in sent if each.rank == rank}))
    chosen = draw.choice([each for each in sent if (each.rank, each.type) == (rank, type_)])
    acts = _pick_acts(chosen, draw)
    if slow and draw.random() < _SLOW_SHARE:
        acts = _SLOW
    act = draw.choice(acts)
    receivers = [to for to, _ in chosen.frames]
    only = draw.random() < 0.5 and len(receivers) > 1
    to = tuple(sorted(draw.sample(receivers, draw.randrange(1, len(receivers))))) if only else None
    equivocates = rank == 0 and only and chosen.common and act in _CONTENT and type_ not in _MAY_DIFFER
    return Lie(
        rank=rank,
        act=act,
        type=type_,
        nth=chosen.nth,
        to=to,
        seed=seed,
        value=_value(act, chosen, sent, draw),
        provable=_provable(act, chosen, {each.rank for each in sent}),
        equivocates=equivocates and (not chosen.document or type_ == PlanProposal.TYPE),
        name=f"{act}, {seed}",
    )


def _provable(act: str, chosen: Sent, parties: set[int]) -> bool:
    """Whether the bytes themselves say who sent them; which of two clients has the wrong names, nobody can tell."""
    if chosen.type == Hello.TYPE and len(parties) < 4 and act in _CONTENT:
        return False
    return act not in _UNPROVABLE or (chosen.document and act not in (*_SLOW, "attempt", "round past", "instead"))


def _pick_acts(chosen: Sent, draw: random.Random) -> tuple[str, ...]:
    """Choose a family of changes."""
    content = _DOCUMENT if chosen.document else _BYTES
    return draw.choices([content, _HEADER, _LENGTH, _ORDER], weights=[5, 2, 2, 2])[0]


def _value(act: str, chosen: Sent, sent: list[Sent], draw: random.Random) -> Any:
    """What some changes need: sizes, seconds, or another message of the run."""
    if act == "swollen":
        return draw.choice([1, 4, 16, 40])
    if act == "many":
        return 5000
    if act == "late":
        return draw.choice([0.3, 1.0, 9.0])
    if act == "exit":
        return draw.choice([0, 1, 3, 70])
    if act == "recorded":
        same = [each for each in sent if each.type == chosen.type and each is not chosen] or sent
        return draw.choice(draw.choice(same).frames)[1][HEADER_BYTES:].hex()
    return None
