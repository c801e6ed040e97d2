"""Sites with different builds of the program: those that come to different results refuse each other, over TCP."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

import fastlloyd
from fastlloyd.protocols.registry import find
from fastlloyd.wire.header import PROTOCOL_VERSION
from tests.e2e.test_serve_join import CLIENTS, Sites, parties  # noqa: F401 a fixture
from tests.mpi.support import QUICK, read_matrix, report

HERE = Path(fastlloyd.__file__).parent
CHANGES = {
    # Another number of every protocol's results.
    "results": (
        "protocols/registry.py",
        "    if name in _BY_NAME:\n        return _BY_NAME[name]\n",
        "    if name in _BY_NAME:\n        from dataclasses import replace\n\n        row = _BY_NAME[name]\n"
        "        return replace(row, results=row.results + 1)\n",
    ),
    # Another version of the messages.
    "messages": ("wire/header.py", f"PROTOCOL_VERSION = {PROTOCOL_VERSION}", "PROTOCOL_VERSION = 8"),
    # Another build that comes to the same.
    "same": ("version.py", '__version__ = "', '__version__ = "9.'),
}


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Copies of the package with one change each; what to put into PYTHONPATH."""
    found = {"this": QUICK}
    for name, (file, before, after) in CHANGES.items():
        copy = tmp_path_factory.mktemp(name) / "fastlloyd"
        shutil.copytree(HERE, copy)  # with what is compiled already: times are kept, so that only the change is new
        text = (copy / file).read_text()
        assert text.count(before) == 1
        (copy / file).write_text(text.replace(before, after))
        found[name] = f"{copy.parent}:{QUICK}"
    return found


def start(sites: Sites, builds: dict[str, str], *which: str, flags: tuple[str, ...] = ()) -> None:
    """Start the server and its clients, each with its build: a fresh interpreter for another than this one."""
    for rank, build in enumerate(which):
        sites.fresh = build != "this"
        sites.environment = {"PYTHONPATH": builds[build]}
        if rank == 0:
            sites.serve(*flags)
        else:
            sites.join(rank, *flags)


def states(folder: Path) -> tuple[str, ...]:
    """Flags for state directories below a folder, one for each party."""
    return ("--state-dir", str(folder / "state-{client}"))


def ledgers(folder: Path) -> dict[str, str]:
    """What each client has spent."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.glob("*/*/ledger.jsonl")}


@pytest.mark.parametrize("odd", [0, 2])
def test_builds_with_different_results_refuse_each_other_before_anything_is_released(
    builds: dict[str, str],
    parties: Path,  # noqa: F811 a fixture
    tmp_path: Path,
    odd: int,
) -> None:
    which = ["results" if rank == odd else "this" for rank in range(CLIENTS + 1)]
    with Sites(parties, tmp_path) as sites:
        start(sites, builds, *which, flags=(*states(tmp_path), "--new-state"))
        assert sites.codes(*range(CLIENTS + 1)) == [3] * (CLIENTS + 1), sites.said()
        words = (
            "runs with another public configuration: its build of fastlloyd has version {} of the results of "
            "fastlloyd-plus, this one has version {}, and they compute different results; install the same build at "
            "all parties"
        )
        number = find("fastlloyd-plus").results
        ours, theirs = words.format(number + 1, number), words.format(number, number + 1)
        if odd:
            assert f"client 2 (clinic south) {ours}" in sites.err(0)
            assert theirs in sites.err(odd)
        else:
            assert any(f"the server (operator) {ours}" in sites.err(rank) for rank in range(1, CLIENTS + 1)), (
                sites.said()
            )
        left = [path for rank in range(CLIENTS + 1) for path in sites.result(rank).rglob("*") if path.is_file()]
        assert {path.name for path in left} <= {"ledger.jsonl"} and not any(path.read_text() for path in left), left
    assert not any(ledgers(tmp_path).values())


def test_a_site_with_another_version_of_the_messages_is_named_at_once(
    builds: dict[str, str],
    parties: Path,  # noqa: F811 a fixture
    tmp_path: Path,
) -> None:
    with Sites(parties, tmp_path) as sites:
        start(sites, builds, "this", "this", "messages", "this")
        assert sites.codes(*range(CLIENTS + 1)) == [3] * (CLIENTS + 1), sites.said()
        how = "install the same fastlloyd at all parties"
        ours = f"client 2 (clinic south) speaks version 8 of the messages, this server {PROTOCOL_VERSION}: {how}"
        assert ours in sites.err(0)
        assert f"the server does not speak version 8: {how}" in sites.err(2)
        for rank in (1, 3):
            assert f"client 2 (clinic south) speaks another version of the messages: {how}" in sites.err(rank)


def test_builds_with_the_same_results_work_together(
    builds: dict[str, str],
    parties: Path,  # noqa: F811 a fixture
    tmp_path: Path,
) -> None:
    with Sites(parties, tmp_path) as sites:
        start(sites, builds, "this", "this", "same", "this")
        assert sites.codes(*range(CLIENTS + 1)) == [0] * (CLIENTS + 1), sites.said()
        centers = [read_matrix(sites.result(rank) / "centroids.csv").tolist() for rank in (1, 2)]
        assert centers[0] == centers[1]
        found = [report(sites.result(rank)) for rank in (1, 2)]
    assert [one["results_version"] for one in found] == [find("fastlloyd-plus").results] * 2
    assert found[1]["version"].startswith("9.") and not found[0]["version"].startswith("9.")


def test_a_run_is_resumed_by_builds_with_the_same_results_and_by_no_others(
    builds: dict[str, str],
    parties: Path,  # noqa: F811 a fixture
    tmp_path: Path,
) -> None:
    # Enough rounds to be in the middle of, few enough to be done at once without the delay.
    flags = (*states(tmp_path), "--protocol", "lloyd", "--rounds", "120", "--delay", "0.05")
    with Sites(parties, tmp_path / "first") as sites:
        start(sites, builds, *["this"] * (CLIENTS + 1), flags=(*flags, "--new-state"))
        sites.until(lambda: "round 3 of 120" in sites.out(0))
        sites.processes[2].send_signal(signal.SIGTERM)
        assert 0 not in sites.codes(*range(CLIENTS + 1)), sites.said()
    spent, number = ledgers(tmp_path), find("lloyd").results
    assert spent
    with Sites(parties, tmp_path / "refused") as sites:
        start(sites, builds, *["results"] * (CLIENTS + 1), flags=(*flags, "--resume"))
        assert sites.codes(*range(CLIENTS + 1)) == [2] * (CLIENTS + 1), sites.said()
        for rank in range(CLIENTS + 1):
            assert (
                f"--resume: the interrupted run was begun with version {number} of the results of lloyd, this build "
                f"has version {number + 1}; resume with the build that began it, or start anew without --resume"
            ) in sites.err(rank), sites.said()
    assert ledgers(tmp_path) == spent
    with Sites(parties, tmp_path / "resumed") as sites:
        start(sites, builds, *["same"] * (CLIENTS + 1), flags=(*flags, "--resume", "--delay", "0"))
        assert sites.codes(*range(CLIENTS + 1)) == [0] * (CLIENTS + 1), sites.said()
