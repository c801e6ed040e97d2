"""A client that dies while a round is open: client 2 does not send its vector of round 3, but ends by SIGKILL.

By then client 1 has stored its own vector, whose sum will never come.
"""

import os
import signal
import sys
import time
from pathlib import Path

from fastlloyd.client import main
from fastlloyd.lifecycle.masked_sums import MaskedUpdate
from fastlloyd.net.link.secure import SecureLinks
from fastlloyd.wire.header import Header, PartyId

DYING, OTHER, ROUND = PartyId(2), "client-1", 3
seal = SecureLinks.send


def send(self, peer: PartyId, message: bytes, **options) -> None:
    header = Header.decode(bytes(message))
    if self.me == DYING and (header.type, header.round) == (MaskedUpdate.TYPE, ROUND):
        while not Path("state", OTHER, "run", f"uplink-{ROUND}").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    seal(self, peer, message, **options)


SecureLinks.send = send
sys.exit(main())
