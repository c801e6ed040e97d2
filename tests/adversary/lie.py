"""One lie: who tells it, about which message, to whom, and how; told by patching the liar's own process.

The package has no hook for this. Everything a party says inside its links passes `SecureLinks.send`, everything
beside them `SecureLinks.post`; these two are wrapped, in the liar's process only.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.adversary.mutate import ACTS, HEADER_BYTES, Moment

# Types of lies about control frames: 1000 + the frame's kind.
CONTROL = 1000
# Acts that end the process, and acts that leave the message itself as it was.
_LAST_WORDS = ("exit", "die")
_ASIDE = ("inject", "garbage record", "late")


@dataclass(frozen=True, kw_only=True)
class Lie:
    """One lie, as data: it travels to the liar's process as JSON.

    Attributes
    ----------
    rank : int
        Who lies.
    act : str
        How: a key of `mutate.ACTS`.
    type : int
        The type of the message that is changed; `CONTROL` + kind for a frame outside the encryption.
    nth : int
        Which message of this type to each receiver is the first one changed.
    times : int
        How many in a row; 0 for all from there on.
    to : tuple of int, or None
        Which receivers are lied to; None for all.
    seed : int
    value : Any
        What the act needs besides.
    provable : bool
        The bytes themselves say who sent them: whoever else is named is named wrongly.
    equivocates : bool
        Receivers get different things where all must have the same: nobody may write a result.
    name : str
        For people.
    """

    rank: int
    act: str
    type: int
    nth: int = 0
    times: int = 1
    to: tuple[int, ...] | None = None
    seed: int = 0
    value: Any = None
    provable: bool = True
    equivocates: bool = False
    name: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Lie:
        values = json.loads(text)
        return cls(**values | {"to": None if values["to"] is None else tuple(values["to"])})


class Teller:
    """Decides, message for message, what the liar sends.

    Parameters
    ----------
    lie : Lie
    told : Path
        Gets a line for every lie that was told.
    """

    def __init__(self, lie: Lie, told: Path | None = None) -> None:
        self._lie = lie
        self._told = told
        self._seen: Counter[tuple[int, int]] = Counter()
        self._earlier: dict[int, list[bytes]] = defaultdict(list)
        self._held: dict[int, list[bytes]] = defaultdict(list)
        self._heard: dict[tuple[int, int, int], bytes] = {}

    def hear(self, peer: int, frame: bytes) -> None:
        """Remember what came from a peer."""
        if len(frame) >= HEADER_BYTES:
            self._heard[peer, frame[0], int.from_bytes(frame[4:8], "little")] = frame[HEADER_BYTES:]

    def frames(self, peer: int, type_: int, frame: bytes, head: int, raw: Callable[[bytes], None]) -> list[bytes]:
        """Return what goes to `peer` in place of a frame."""
        lie = self._lie
        nth = self._seen[peer, type_]
        self._seen[peer, type_] += 1
        here = type_ == lie.type and nth >= lie.nth and (not lie.times or nth < lie.nth + lie.times)
        held = self._held.pop(peer, [])
        if not here or (lie.to is not None and peer not in lie.to):
            self._earlier[peer].append(frame)
            return [frame, *held]
        moment = Moment(
            frame=frame,
            head=head,
            value=lie.value,
            draw=random.Random(f"{lie.seed} {peer if lie.equivocates else ''} {nth}"),
            earlier=self._earlier[peer],
            heard=self._heard,
            raw=raw,
        )
        if lie.act in _LAST_WORDS:
            self._note(peer, type_, nth)
        sent = ACTS[lie.act](moment)
        if sent != [frame] or lie.act in _ASIDE:
            self._note(peer, type_, nth)
        self._held[peer] = moment.held
        self._earlier[peer].append(frame)
        return [*sent, *held]

    def _note(self, peer: int, type_: int, nth: int) -> None:
        if self._told is not None:
            with self._told.open("a") as file:
                file.write(json.dumps({"to": peer, "type": type_, "nth": nth}) + "\n")


def install(lie: Lie, told: Path) -> None:
    """Make this process a liar, if it is the lie's rank."""
    from fastlloyd.net.link.secure import SecureLinks

    teller = Teller(lie, told)
    send, post, receive = SecureLinks.send, SecureLinks.post, SecureLinks.receive

    def lying_send(self: Any, peer: Any, message: Any, **options: Any) -> None:
        if self.me.rank != lie.rank:
            send(self, peer, message, **options)
            return
        frame = bytes(message)
        for each in teller.frames(
            peer.rank, frame[0], frame, HEADER_BYTES, lambda raw: self._transport.send(peer, raw)
        ):
            send(self, peer, each, **options)

    def lying_post(self: Any, peer: Any, kind: Any, body: bytes, *rest: Any, **options: Any) -> None:
        if self.me.rank != lie.rank or lie.type != CONTROL + kind:
            post(self, peer, kind, body, *rest, **options)
            return
        frame = bytes([kind]) + body
        for each in teller.frames(peer.rank, CONTROL + kind, frame, 1, lambda raw: self._transport.send(peer, raw)):
            self._transport.send(peer, each)

    def hearing_receive(self: Any, timeout_s: float) -> Any:
        arrived = receive(self, timeout_s)
        if arrived is not None and self.me.rank == lie.rank:
            teller.hear(arrived[0].rank, arrived[1])
        return arrived

    SecureLinks.receive = hearing_receive  # type: ignore[method-assign]
    SecureLinks.send = lying_send  # type: ignore[method-assign]
    SecureLinks.post = lying_post  # type: ignore[method-assign]


def install_recorder(path: Path) -> None:
    """Write down every message that this process sends: the material of mutations."""
    from fastlloyd.net.link.secure import SecureLinks

    send = SecureLinks.send

    def recording_send(self: Any, peer: Any, message: Any, **options: Any) -> None:
        line = {"rank": self.me.rank, "to": peer.rank, "frame": bytes(message).hex()}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        send(self, peer, message, **options)

    SecureLinks.send = recording_send  # type: ignore[method-assign]
