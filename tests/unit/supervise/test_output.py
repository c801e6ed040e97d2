import pytest

from fastlloyd.supervise.output import BannerFilter

MPICH = """
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 4788 RUNNING AT host
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
This typically refers to a problem with your application.
Please see the FAQ page for debugging suggestions
"""
OPENMPI = """--------------------------------------------------------------------------
prterun noticed that process rank 1 with PID 4854 on node host exited on
signal 9 (Killed).
--------------------------------------------------------------------------
"""
OPENMPI_CODE = """--------------------------------------------------------------------------
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-host-4880@1,2]
   Exit code:    3
--------------------------------------------------------------------------
"""
SLOTS = """--------------------------------------------------------------------------
There are not enough slots available in the system to satisfy the 3
slots that were requested by the application:
--------------------------------------------------------------------------
"""


def sift(text):
    banner = BannerFilter()
    shown = [line for part in text.splitlines(keepends=True) for line in banner.feed(part)]
    return "".join(shown + banner.flush()), banner


ABORT = "Abort(3) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 3) - process 1\n"


@pytest.mark.parametrize("text", [MPICH, OPENMPI, OPENMPI_CODE, MPICH + OPENMPI, ABORT, OPENMPI + " \n\n"])
def test_launchers_words_are_hidden_and_kept(text):
    shown, banner = sift("before\n" + text + "after\n")
    assert shown == "before\nafter\n"
    assert "".join(banner.hidden) == text


@pytest.mark.parametrize(
    "text",
    [
        SLOTS,
        "=" * 83 + "\na heading of a rank\n" + "=" * 83 + "\n",
        "-" * 74 + "\na table of a rank\n",
        "-" * 74 + "\n" + "row\n" * 60,
        "\n\n\nempty lines\n\n",
        "plain\n",
    ],
)
def test_all_else_passes_unchanged(text):
    shown, banner = sift(text)
    assert shown == text
    assert banner.hidden == []


def test_signal_is_read_from_either_launcher():
    assert sift(MPICH)[1].signal == 9
    assert sift(OPENMPI)[1].signal == 9
    assert sift(OPENMPI_CODE)[1].signal is None


def test_the_host_of_a_killed_rank_is_read_from_either_launcher():
    assert sift(MPICH)[1].host == "host"
    assert sift(OPENMPI)[1].host == "host"
    assert sift(OPENMPI_CODE)[1].host is None
