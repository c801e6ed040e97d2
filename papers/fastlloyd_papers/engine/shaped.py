"""Runs ranks in network namespaces whose links scripts/netem shapes: packets are delayed, nobody sleeps.

Only as root, in a source checkout: the package alone does not hold the scripts.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.net.mpi.launcher import Mpirun
from fastlloyd_papers.engine.runner import Hosts

TOOL = Path(__file__).resolve().parents[3] / "scripts" / "netem" / "netem"
_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedNetwork:
    """A set-up that is up.

    Attributes
    ----------
    name : str
    backend : {'netem', 'emulator'}
        Who delays the packets: the kernel, or a process of scripts/netem.
    addresses : tuple of str
        In rank order.
    interface : str
        Of each host.
    """

    name: str
    backend: str
    addresses: tuple[str, ...]
    interface: str

    def hosts(self, mpirun: Mpirun) -> Hosts:
        """Return what `run_job` needs to start one rank on each host."""
        shell = str(TOOL.with_name("nsrsh"))
        if mpirun.vendor == "mpich":
            launcher = ["-launcher", "rsh", "-launcher-exec", shell]
        else:
            launcher = ["--prtemca", "plm_ssh_agent", shell, "--map-by", "ppr:1:node"]
        prefix = [sys.executable, str(TOOL), "exec", "--name", self.name, "1", "--"]
        return Hosts(prefix=prefix, addresses=self.addresses, interface=self.interface, launcher=launcher)

    def sent_bytes(self) -> int:
        """Return the bytes that all hosts have sent so far, Ethernet headers counted."""
        document = json.loads(_netem("counters", "--name", self.name, "--json"))
        return sum(int(host["tx_bytes"]) for host in document["hosts"])


def why_not(tool: Path = TOOL) -> str | None:
    """Say why there can be no shaped network here; None if there can."""
    if not tool.is_file():
        return "scripts/netem is not there: shaped networks need a source checkout"
    if os.geteuid() != 0:
        return "network namespaces need root"
    return None


@contextmanager
def shaped_network(profile: str, hosts: int) -> Iterator[ShapedNetwork]:
    """Make hosts under a profile, and remove them however the block ends.

    Raises
    ------
    ConfigError
        scripts/netem cannot make them; ends with its own words.
    """
    name = f"bench{secrets.token_hex(4)}"
    document: dict[str, Any] = json.loads(_netem("up", profile, "--hosts", str(hosts), "--name", name, "--json"))
    try:
        yield ShapedNetwork(
            name=name,
            backend=document["backend"],
            addresses=tuple(host["address"] for host in document["hosts"]),
            interface=document["hosts"][0]["interface"],
        )
    finally:
        _netem("down", "--name", name)


def _netem(*words: str) -> str:
    """Run the tool and give its output."""
    try:
        done = subprocess.run(
            [sys.executable, str(TOOL), *words], capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"scripts/netem {words[0]} did not answer within {_LIMIT_S:g} s; try it by hand") from error
    if done.returncode:
        raise ConfigError(f"scripts/netem {words[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
