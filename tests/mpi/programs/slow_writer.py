"""Client 1 takes two seconds over its files; MPI would wait half a second for it at the end."""

import sys
import threading

from fastlloyd.client import main
from fastlloyd.net.mpi.transport import MpiTransport
from fastlloyd.run.files import ResultFiles
from fastlloyd.wire.header import PartyId

start, write = MpiTransport.__init__, ResultFiles.write


def impatient(self, **options) -> None:
    start(self, **options, close_deadline_s=0.5)
    if self.me == PartyId(1):
        ResultFiles.write = slow


def slow(self, outcome) -> None:
    threading.Event().wait(2.0)
    write(self, outcome)


MpiTransport.__init__ = impatient
sys.exit(main())
