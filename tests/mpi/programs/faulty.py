"""A client whose frames go wrong on purpose: `faulty.py HOW FLAGS...`; all other ranks run as they are.

The fault begins with the last client's first masked update: its links are up by then.
"""

import sys
from collections.abc import Callable

from fastlloyd.client import main
from fastlloyd.lifecycle.masked_sums import MaskedUpdate
from fastlloyd.net.link.frame import FrameKind
from fastlloyd.net.link.secure import SecureLinks
from fastlloyd.net.mpi.transport import MpiTransport
from fastlloyd.wire.header import HEADER_BYTES, SERVER, Header, PartyId

FAULTY = PartyId(2)
HOW = sys.argv.pop(1)


def to_server(original: Callable, spoil: Callable[[bytes], bytes]) -> Callable:
    """Wrap a `send` so that the faulty client's messages to the server are corrupted."""

    def send(self, peer: PartyId, frame: bytes, **options) -> None:
        original(self, peer, spoil(bytes(frame)) if (self.me, peer) == (FAULTY, SERVER) else frame, **options)

    return send


def corrupt(frame: bytes) -> bytes:
    """Change one bit in the middle of an encrypted update, as an attacker on the wire would."""
    if frame[0] != FrameKind.RECORD or len(frame) != UPDATE_BYTES:
        return frame
    middle = len(frame) // 2
    return frame[:middle] + bytes([frame[middle] ^ 1]) + frame[middle + 1 :]


def nonsense(frame: bytes) -> bytes:
    """Send a kind of frame that does not exist."""
    return bytes([255]) + frame[1:] if frame[0] == FrameKind.RECORD and len(frame) == UPDATE_BYTES else frame


def short(message: bytes) -> bytes:
    """Send an update that lacks its last element, in a good record."""
    return message[:-4] if _is_update(message) else message


def later(message: bytes) -> bytes:
    """Claim that the update belongs to the round after."""
    if not _is_update(message):
        return message
    header = Header.decode(message)
    return Header(header.type, header.round + 1, header.step).encode() + message[HEADER_BYTES:]


def _is_update(message: bytes) -> bool:
    return Header.decode(message).type == MaskedUpdate.TYPE


# Kind, TLS, length, header and 24 bytes of payload (k = d = 2 in the 32-bit ring): no other record is that long.
UPDATE_BYTES = 1 + 22 + 4 + HEADER_BYTES + 24
if HOW in ("corrupt", "nonsense"):
    MpiTransport.send = to_server(MpiTransport.send, globals()[HOW])
else:
    SecureLinks.send = to_server(SecureLinks.send, globals()[HOW])
sys.exit(main())
