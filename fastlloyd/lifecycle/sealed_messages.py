"""Messages that two clients seal for each other, inside their link.

A link may be recorded and opened one day, if its keys hang on X25519 alone. So messages from which records follow, and
that no mask or noise protects, are sealed under the secret of the pair besides (`shared_secrets.agree_pairs`)::

    body = ChaCha20-Poly1305(key, nonce 0, the message's own body)
    key  = HKDF(s_ij; run id | u32 sender | u32 receiver | u8 type | u32 round | u32 number)

Number counts the messages of this type and round from one to the other, so each key is used once.

Source: docs/protocol.md, "Secrets of two clients".
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from fastlloyd.crypto.hybrid import seal, unseal
from fastlloyd.masking.pairwise import PairSecrets
from fastlloyd.party.effects import Party, Receive, Send
from fastlloyd.randomness import domains
from fastlloyd.wire.header import Message, PartyId

R = TypeVar("R")
_BOUND = struct.Struct("<IIBII")


def seal_between(party: Party[R], pairs: PairSecrets, kinds: Collection[type[Message]], *, run_id: bytes) -> Party[R]:
    """Run a party, and seal what it sends to clients with whom it has a secret; open what it receives from them.

    Parameters
    ----------
    party : Party
    pairs : PairSecrets
    kinds : collection of type
        The messages to seal; all others pass unchanged. Their `MOST_BYTES` count `TAG_BYTES`.
    run_id : bytes

    Returns
    -------
    What the party returns.

    Notes
    -----
    A message that does not open is malformed: its sender is at fault.
    """
    numbers: Counter[tuple[PartyId, PartyId, int, int]] = Counter()

    def context(sender: PartyId, receiver: PartyId, kind: int, round_: int) -> bytes:
        place = (sender, receiver, kind, round_)
        number = numbers[place]
        numbers[place] += 1
        return run_id + _BOUND.pack(sender.rank, receiver.rank, kind, round_, number)

    def carry(effect: Any) -> Party[Any]:
        if isinstance(effect, Send) and isinstance(effect.message, tuple(kinds)):
            message, body = effect.message, effect.message.body()
            for receiver in effect.to:
                bound = context(pairs.me, receiver, message.TYPE, effect.round)
                sealed = seal(body, pairs.secrets[receiver], domains.SEALED_MESSAGE, bound)
                yield Send((receiver,), _Sealed.of(message, sealed), effect.round)
            return None
        if isinstance(effect, Receive) and effect.type in kinds:
            bound = context(effect.sender, pairs.me, effect.type.TYPE, effect.round)
            opener = _opener(effect.type, pairs.secrets[effect.sender], bound)
            return (yield Receive(effect.sender, opener, effect.round, effect.format, effect.waits))
        return (yield effect)

    try:
        effect = next(party)
        while True:
            try:
                answer = yield from carry(effect)
            except BaseException as error:
                effect = party.throw(error)
            else:
                effect = party.send(answer)
    except StopIteration as end:
        result: R = end.value
        return result


@dataclass(frozen=True, slots=True)
class _Sealed:
    """A sealed message, by the number and name of what it holds."""

    content: bytes
    payload_bytes: int

    @classmethod
    def of(cls, message: Message, content: bytes) -> Any:
        """Return the sealed form of a message."""
        return type(type(message).__name__, (cls,), {"TYPE": message.TYPE})(content, message.payload_bytes)

    def body(self) -> bytes:
        """Return the seal."""
        return self.content


def _opener(kind: type[Message], shared: bytes, bound: bytes) -> Any:
    """Return what reads a sealed message of a kind, by the kind's number and name."""

    def read(body: bytes, format: Any) -> Message:
        return kind.read(unseal(body, shared, domains.SEALED_MESSAGE, bound), format)

    return type(kind.__name__, (), {"TYPE": kind.TYPE, "read": staticmethod(read)})
