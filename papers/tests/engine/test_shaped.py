"""How ranks reach the hosts of a shaped network, and when there can be none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.net.mpi.launcher import Mpirun
from fastlloyd_papers.engine import shaped
from fastlloyd_papers.engine.shaped import ShapedNetwork, shaped_network, why_not

NETWORK = ShapedNetwork(name="bench1", backend="netem", addresses=("10.77.0.1", "10.77.0.2"), interface="eth0")


@pytest.mark.parametrize(("vendor", "word"), [("mpich", "-launcher-exec"), ("openmpi", "plm_ssh_agent")])
def test_each_mpi_reaches_the_hosts_by_the_scripts_shell(vendor: str, word: str) -> None:
    hosts = NETWORK.hosts(Mpirun(Path("mpirun"), vendor, "5.0"))  # type: ignore[arg-type]
    place = hosts.launcher.index(word)
    assert Path(hosts.launcher[place + 1]).name == "nsrsh"
    assert list(hosts.prefix[-5:]) == ["exec", "--name", "bench1", "1", "--"]
    assert (hosts.addresses, hosts.interface) == (("10.77.0.1", "10.77.0.2"), "eth0")


def test_it_says_why_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "source checkout" in (why_not(tmp_path / "netem") or "")
    (tmp_path / "netem").write_text("")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "root" in (why_not(tmp_path / "netem") or "")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert why_not(tmp_path / "netem") is None


def test_a_tool_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "netem"
    tool.write_text("import sys; sys.exit('netem: no room')")
    monkeypatch.setattr(shaped, "TOOL", tool)
    with pytest.raises(ConfigError, match="scripts/netem up failed: netem: no room"), shaped_network("lan", 3):
        raise AssertionError("there is no network")


def test_a_network_is_removed_however_its_use_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "netem"
    tool.write_text(
        "import json, pathlib, sys\n"
        f"with pathlib.Path({str(tmp_path / 'log')!r}).open('a') as log: log.write(sys.argv[1] + '\\n')\n"
        "host = {'address': '10.77.0.1', 'interface': 'eth0', 'tx_bytes': 7}\n"
        "print(json.dumps({'backend': 'emulator', 'hosts': [host, host]}))\n"
    )
    monkeypatch.setattr(shaped, "TOOL", tool)
    with pytest.raises(KeyboardInterrupt), shaped_network("lan", 2) as network:
        assert network.backend == "emulator"
        assert network.sent_bytes() == 14
        raise KeyboardInterrupt
    assert (tmp_path / "log").read_text().split() == ["up", "counters", "down"]
