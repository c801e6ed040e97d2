"""A supervisor whose ranks notice when it watches all of them, and a program that runs it.

It notes each rank that it watches in the folder FAKE_FOLDER: an empty file, named after the process.
Usage: watching.py ACTS GRACE_S
"""

import os
import sys
from pathlib import Path

from fastlloyd.supervise import supervisor
from fastlloyd.supervise.process import Process

PROGRAM = str(Path(__file__).with_name("fake_rank.py"))


class NotedProcess(Process):
    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        Path(os.environ["FAKE_FOLDER"], str(pid)).touch()


if __name__ == "__main__":
    supervisor.Process = NotedProcess
    sys.exit(supervisor.supervise(3, [sys.argv[1]], program=[PROGRAM], grace_s=float(sys.argv[2])))
