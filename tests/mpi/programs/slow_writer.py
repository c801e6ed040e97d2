"""Client 1 takes two seconds over its files; MPI would wait half a second for it at the end."""

import sys
import threading

from fastlloyd.client import main
from fastlloyd.net.mpi.transport import MpiTransport
from fastlloyd.protocols.fastlloyd.face import ClientOutcome
from fastlloyd.wire.header import PartyId

start, write = MpiTransport.__init__, ClientOutcome.write


def impatient(self, **options) -> None:
    start(self, **options, close_deadline_s=0.5)
    if self.me == PartyId(1):
        ClientOutcome.write = slow


def slow(self) -> None:
    threading.Event().wait(2.0)
    write(self)


MpiTransport.__init__ = impatient
sys.exit(main())
