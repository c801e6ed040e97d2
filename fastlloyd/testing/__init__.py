"""Tests that a protocol of any package must pass, and what they run it with; needs pytest.

===============  ===============================================================================================
`contract.py`    `ProtocolContract`: a class of tests, to derive from
`whole_run.py`   whole runs of all parties: in one thread, over TCP, under mpirun, as processes that can be killed
===============  ===============================================================================================

::

    from fastlloyd.run.config import RunConfig
    from fastlloyd.testing import ProtocolContract

    class TestKMedians(ProtocolContract):
        config = RunConfig(protocol="kmedians", dataset="iris", bounds="0,8", k=3, epsilon=20.0, rounds=6)
"""

from fastlloyd.testing.contract import ProtocolContract

__all__ = ["ProtocolContract"]
