"""One rank of the transport contract: prints from rank 0 how many cases passed."""

import sys

import pytest

from fastlloyd.errors import InternalError
from fastlloyd.net.mpi.transport import MpiTransport
from fastlloyd.wire.header import SERVER
from tests.contracts import transport as contract

transport = MpiTransport(transport=sys.argv[1])
cases = contract.run(transport)
if transport.me == SERVER:
    print(f"passed {cases}", flush=True)
contract.too_long_refused(transport)
contract.closed_refuses(transport)
with pytest.raises(InternalError, match="one MPI transport per process"):
    MpiTransport()
