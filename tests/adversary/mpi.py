"""Runs under mpirun with a liar among the ranks."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from tests.adversary.arena import Ended, _text, read_told, written
from tests.adversary.lie import Lie
from tests.adversary.play import Play
from tests.adversary.rank import FOLDER, LIE
from tests.mpi.support import run as run_job


def run(play: Play, stage: Path, folder: Path, lie: Lie) -> Ended:
    """Run to the end, or to the play's limit."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started = time.monotonic()
    output = folder / "out-{client}"
    flags = [*play.words(1, stage, output)]
    server = [word.replace("STAGE", str(stage)) for word in play.server]
    ended = run_job(
        folder,
        flags,
        n=play.clients + 1,
        only={0: server} if server else None,
        program=("-m", "tests.adversary.rank"),
        env={LIE: lie.to_json(), FOLDER: str(folder)},
    )
    outputs = [folder / f"out-{rank}" for rank in range(play.clients + 1)]
    return Ended(
        # A rank that mpirun ended with the others says no code: mpirun's own stands for it.
        codes=tuple(ended.code if rank.code is None else rank.code for rank in ended.ranks),
        out=tuple(rank.out for rank in ended.ranks),
        said=tuple(rank.err for rank in ended.ranks),
        results=tuple(written(output) for output in outputs),
        centers=tuple(_text(output / "centroids.csv") for output in outputs),
        told=read_told(folder),
        left=len(ended.left),
        seconds=time.monotonic() - started,
    )
