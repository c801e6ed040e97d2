"""What needs no Linux, on a Python from which the calls that only Linux has are taken away; a Mac is more than that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.test_serve_join import CLIENTS, Sites, parties  # noqa: F401 a fixture
from tests.mpi.support import LIMIT_S, ROOT, read_matrix

TAKEN = '''"""Takes away what macOS does not have."""

import os
import select
import socket
import sys
import sysconfig

sysconfig.get_config_vars()  # scipy asks for them, and they are those of Linux
for module, names in (
    (os, "sched_getaffinity sched_yield memfd_create pidfd_open getrandom GRND_NONBLOCK posix_fallocate O_TMPFILE"),
    (select, "epoll"),
    (socket, "TCP_KEEPIDLE"),
):
    for name in names.split():
        delattr(module, name)
sys.modules["matplotlib"] = sys.modules["jinja2"] = None
sys.platform = "darwin"
'''


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PYTHONPATH with which these calls are not there."""
    folder = tmp_path / "taken"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(TAKEN)
    return f"{folder}{os.pathsep}{ROOT}"


def call(path: str, folder: Path, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *words],
        env=os.environ | {"PYTHONPATH": path},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def test_the_estimator_fits(path, tmp_path):
    pytest.importorskip("sklearn")
    program = (
        "import numpy as np\n"
        "from fastlloyd import FastLloyd\n"
        "rows = np.random.default_rng(0).normal(size=(3000, 2))\n"
        "print(FastLloyd(3, epsilon=2.0, bounds=(-4, 4)).fit(rows).cluster_centers_.shape)\n"
    )
    done = call(path, tmp_path, "-c", program)
    assert (done.returncode, done.stdout) == (0, "(3, 2)\n"), done.stderr


def test_three_sites_and_an_operator(parties, path, tmp_path):  # noqa: F811 a fixture
    with Sites(parties, tmp_path / "sites", fresh=True) as sites:
        sites.environment = {"PYTHONPATH": path}
        sites.start()
        assert sites.codes(*range(CLIENTS + 1)) == [0] * (CLIENTS + 1), sites.said()
    centers = [read_matrix(sites.result(rank) / "centroids.csv") for rank in range(1, CLIENTS + 1)]
    assert all(np.array_equal(other, centers[0]) for other in centers)


def test_run_says_that_it_needs_linux(path, tmp_path):
    done = call(path, tmp_path, "-m", "fastlloyd", "run", "-n", "3")
    assert (done.returncode, done.stdout) == (2, "")
    assert "means of Linux" in done.stderr and "fastlloyd join" in done.stderr and "Traceback" not in done.stderr


def test_the_doctor_looks(path, tmp_path):
    done = call(path, tmp_path, "-m", "fastlloyd", "doctor")
    assert "Traceback" not in done.stderr and "entropy: the system's generator is ready" in done.stdout, done.stderr
