"""A soak: services of sites over many runs, with kills, full disks and cut flows.

`SOAK_RUNS=200 SOAK_SEED=7 SOAK_OUT=/somewhere` makes it longer; what stands in `SOAK_OUT` is gone on with.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ss", "iptables", "ip"))),
    reason="needs root, for a network, disks and processes that are its alone, and iproute2 and iptables",
)
@pytest.mark.parametrize("sites", [2, 3])
def test_services_survive_what_happens_to_them_in_a_year(tmp_path: Path, sites: int) -> None:
    out = Path(os.environ.get("SOAK_OUT", str(tmp_path))) / str(sites)
    runs, seed = os.environ.get("SOAK_RUNS", "4"), os.environ.get("SOAK_SEED", "1")
    words = ["--out", str(out), "--runs", runs, "--seed", seed, "--sites", str(sites)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.adversary.soak", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    months = [json.loads(line) for line in (out / "soak.jsonl").read_text().splitlines()]
    assert len(months) == int(runs) and any(session["faults"] for month in months for session in month["sessions"])
    first = [month["first"] for month in months]
    assert len({one["pid"] for one in first}) == 1, "the service of the first site was never killed"
    assert first[-1]["files"] <= first[0]["files"] + 2, "a socket and a file, if it is just asking"
    assert first[-1]["rss"] <= first[len(first) // 4]["rss"] * 1.05 + 1024
