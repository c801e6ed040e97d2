"""`fastlloyd run --network PROFILE`: each rank on its own host in a shaped network.

The hosts are network namespaces made by `scripts/netem/netem`, which is part of the source checkout and needs root.
Bytes are read from the hosts' interface counters; afterwards no process is left on any of them.

Source: scripts/netem/README.md; docs/operations.md, "Shaped networks".
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.net.mpi.launcher import Mpirun, mpirun_command

_COMMAND_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class ShapedHosts:
    """Hosts under a network profile.

    Attributes
    ----------
    tool : Path
        The netem command.
    name, profile : str
    backend : {'netem', 'emulator'}
        The kernel's own shaping, or the user-space emulator.
    addresses : tuple of str
        One per rank.
    interface : str
    """

    tool: Path
    name: str
    profile: str
    backend: str
    addresses: tuple[str, ...]
    interface: str

    def command(self, mpirun: Mpirun, n: int, argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """Build the command that starts one rank on each host, from the first host; and its environment."""
        command, env = mpirun_command(mpirun, n, argv, transport="tcp", interface=self.interface, hosts=self.addresses)
        agent = str(self.tool.with_name("nsrsh"))
        if mpirun.vendor == "openmpi":
            extra = ["--prtemca", "plm_ssh_agent", agent, "--map-by", "ppr:1:node"]
        else:
            extra = ["-launcher", "rsh", "-launcher-exec", agent]
        command[1:1] = extra
        return [str(self.tool), "exec", "h1", "--name", self.name, "--", *command], env

    def sent_bytes(self) -> int:
        """Return the bytes that left all hosts' interfaces so far, Ethernet headers included."""
        document = json.loads(_call(self.tool, "counters", "--name", self.name, "--json"))
        return sum(int(host["tx_bytes"]) for host in document["hosts"])


@contextlib.contextmanager
def shaped_hosts(profile: str, count: int) -> Iterator[ShapedHosts]:
    """Make `count` hosts under a profile, and remove them afterwards in any case.

    Raises
    ------
    ConfigError
        No source checkout, not root, an unknown profile, or two hosts with one address.
    """
    tool = Path(__file__).parents[2] / "scripts" / "netem" / "netem"
    if not tool.is_file():
        raise ConfigError(
            "--network needs scripts/netem from a source checkout, expected beside the package; run from a clone "
            "(make demo sets one up), or shape the network yourself and leave --network out"
        )
    if os.geteuid() != 0:
        raise ConfigError("--network makes network namespaces and needs root; run it as root")
    name = f"fl{os.getpid()}"
    try:
        made: dict[str, Any] = json.loads(_call(tool, "up", profile, "--hosts", str(count), "--name", name, "--json"))
        addresses = tuple(str(host["address"]) for host in made["hosts"])
        if len(set(addresses)) != count:
            raise ConfigError(f"--network: expected {count} hosts with an address each, got {', '.join(addresses)}")
        yield ShapedHosts(tool, name, profile, str(made["backend"]), addresses, str(made["hosts"][0]["interface"]))
    finally:
        with contextlib.suppress(ConfigError):
            _call(tool, "down", "--name", name)


def _call(tool: Path, *words: str) -> str:
    """Run the netem command; raise its own sentence on failure."""
    try:
        done = subprocess.run(
            [str(tool), *words],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"--network: {tool} {words[0]} did not answer: {error}; try it manually") from error
    if done.returncode != 0:
        sentence = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise ConfigError(f"--network: {sentence[0]}")
    return done.stdout


def note_wire_bytes(folder: Path, wire_bytes: int) -> None:
    """Add the bytes read from the interfaces to the reports of a finished run, except to signed ones.

    Bytes that the parties' own connections do not explain are the launcher's.
    """
    from fastlloyd.report.document import WIRE_PARTS, encode, load
    from fastlloyd.report.files import write_atomic

    for name, definition in (("report.json", "report"), ("server.json", "server")):
        path = folder / name
        if path.is_file():
            document = load(path, definition)
            signatures, traffic = document.get("signatures"), document["traffic"]
            if signatures is not None and signatures["writer"]["signature"] is not None:
                continue
            parts = dict(traffic.get("wire") or dict.fromkeys(WIRE_PARTS))
            known = [value for part, value in parts.items() if part in WIRE_PARTS and part != "launcher_bytes"]
            if None not in known:
                parts["launcher_bytes"] = max(0, wire_bytes - traffic["link_bytes"] - sum(known))
            traffic["wire_bytes"], traffic["wire"] = wire_bytes, {**parts, "counted": "interfaces"}
            write_atomic(path, encode(document), mode=path.stat().st_mode & 0o777)
