"""A rank without MPI, for the supervisor's tests: writes its events and then follows its instructions.

Usage: fake_rank.py ACT, one word per rank, joined by commas: `ok`, `exit:CODE` (done, then ends),
`crash:CODE` (ends without a word), `kill` (kill -9 of itself), `stop` (stops itself), `wait` (until the
others end it, a SIGTERM is obeyed with code 3), `mute` (never starts). Whatever it does after its start, it does
once the supervisor watches all ranks: see `watching.py`.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from fastlloyd.supervise.lifeline import hold_lifelines

RANKS = 3
RANK = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("FAKE_RANK", "0"))))


def say(event: str, **facts: object) -> None:
    os.write(1, f"@fastlloyd {json.dumps({'event': event, **facts})}\n".encode())


def leave(code: int) -> None:
    say("done", rank=RANK, code=code)
    os._exit(code)


def obey(number: int, _frame: object) -> None:
    os.write(2, f"rank {RANK} got signal {number}\n".encode())
    leave(3)


def wait_until_all_are_watched() -> None:
    folder = Path(os.environ["FAKE_FOLDER"])
    while len(list(folder.iterdir())) < RANKS:
        time.sleep(0.01)


def main(acts: list[str]) -> None:
    act, _, argument = acts[min(RANK, len(acts) - 1)].partition(":")
    if act == "mute":
        os._exit(int(argument))
    signal.signal(signal.SIGTERM, obey)
    signal.signal(signal.SIGINT, obey)
    hold_lifelines(RANK)
    say("started", rank=RANK, pid=os.getpid(), host=socket.gethostname())
    wait_until_all_are_watched()
    if RANK == 0:
        say("setup", seconds=0.01)
        say("round", round=0, rounds=2, clients=2, seconds=0.004, bytes=96)
        os.write(1, b"text of a rank\n")
    if act == "ok":
        leave(0)
    if act == "exit":
        leave(int(argument))
    if act == "crash":
        os._exit(int(argument))
    if act == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)


main(sys.argv[1].split(","))
