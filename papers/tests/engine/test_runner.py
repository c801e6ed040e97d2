"""The flags of a run, and programs that end well, fail, or do not end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fastlloyd.cli.options import parse_run_options
from fastlloyd.client import parser
from fastlloyd.errors import ConfigError
from fastlloyd.supervise.process import marked_processes
from fastlloyd_papers.engine.generate import Shares
from fastlloyd_papers.engine.runner import Job, run_program


def test_a_jobs_flags_are_a_run(tmp_path: Path) -> None:
    job = Job(shares=Shares(template="x-{client}.npy", caps=(3, 4)), k=2, rounds=5, ring_bits=64, delay_s=0.00025)
    config, _ = parse_run_options(parser(), job.flags(tmp_path))
    assert job.ranks == 3
    assert (config.data, config.bounds, config.n_total, config.client_caps) == ("x-{client}.npy", "-1,1", 7, (3, 4))
    assert (config.k, config.rounds, config.epsilon, config.ring_bits, config.delay) == (2, 5, 0.1, 64, 0.00025)
    assert (config.transport, config.output, config.quiet) == ("tcp", str(tmp_path), True)


def test_a_program_that_ends_well_gives_its_words_and_has_one_thread(tmp_path: Path) -> None:
    code = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['MINE'], os.getcwd())"
    said = run_program([sys.executable, "-c", code], {"MINE": "x"}, what="it", cwd=tmp_path)
    assert said.split() == ["1", "x", str(tmp_path)]


def test_a_program_that_fails_is_quoted() -> None:
    code = "import sys; print('first'); print('last words', file=sys.stderr); sys.exit(3)"
    with pytest.raises(ConfigError, match="the thing ended with code 3: .*last words"):
        run_program([sys.executable, "-c", code], {}, what="the thing")
    with pytest.raises(ConfigError, match="cannot start /nowhere/mpirun"):
        run_program(["/nowhere/mpirun"], {}, what="the thing")


def test_a_program_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    child = "import signal; signal.pause()"
    code = f"import subprocess, sys, signal; subprocess.Popen([sys.executable, '-c', {child!r}]); signal.pause()"
    with pytest.raises(ConfigError, match=r"was not done after 0\.5 s"):
        run_program([sys.executable, "-c", code], {"BENCH_TEST": str(tmp_path)}, what="it", limit_s=0.5)
    assert marked_processes(f"BENCH_TEST={tmp_path}") == []


def test_orphans_are_killed_not_waited_for(tmp_path: Path) -> None:
    child = "import signal; signal.pause()"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]); print('done')"
    said = run_program([sys.executable, "-c", code], {"BENCH_TEST": str(tmp_path)}, what="it", limit_s=60.0)
    assert said == "done\n"
    assert marked_processes(f"BENCH_TEST={tmp_path}") == []
