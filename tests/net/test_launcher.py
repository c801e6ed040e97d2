from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.net.mpi import launcher
from fastlloyd.net.mpi.launcher import (
    Launch,
    Mpirun,
    check_library,
    check_world,
    detect,
    find_mpirun,
    launcher_ports,
    local_transport_env,
    mpirun_command,
)

MPICH = Mpirun(Path("/opt/m/mpirun"), "mpich", "5.0")
OPENMPI = Mpirun(Path("/opt/o/mpirun"), "openmpi", "5.0")
MPICH_ENV = {"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALNRANKS": "3"}
OPENMPI_ENV = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
    "PMIX_RANK": "1",
}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, Launch(None, None, None)),
        (MPICH_ENV, Launch("mpich", 1, 3, 3)),
        (OPENMPI_ENV, Launch("openmpi", 1, 3, 3)),
        ({"PMIX_RANK": "2"}, Launch("slurm/pmix", 2, None)),
        (
            {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "PMIX_RANK": "1"},
            Launch("slurm/pmix", 1, 4),
        ),
        (
            {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "1"},
            Launch("slurm/pmix", 1, 4, 4),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "4", "SLURM_STEP_NUM_NODES": "1"}, Launch("mpich", 1, 4, 4)),
        (MPICH_ENV | {"MPI_LOCALNRANKS": "1", "SLURM_STEP_NUM_NODES": "1"}, Launch("mpich", 1, 3, 1)),
        # A batch script has a SLURM_PROCID without having been launched as a rank.
        ({"SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}, Launch(None, None, None)),
        ({"FLUX_TASK_RANK": "0"}, Launch("other", None, None)),
        ({"PMI_RANK": "one", "PMI_SIZE": "-3"}, Launch("mpich", None, None)),
    ],
)
def test_detect(env: dict[str, str], expected: Launch) -> None:
    assert detect(env) == expected


def test_detect_reads_this_process_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OMPI_", "PMI", "SLURM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PMI_RANK", "5")
    assert detect().rank == 5


def test_one_host_is_known_only_when_all_ranks_are_here() -> None:
    assert detect(MPICH_ENV).on_one_host
    assert not detect(MPICH_ENV | {"MPI_LOCALNRANKS": "1"}).on_one_host
    assert not detect({"PMIX_RANK": "0"}).on_one_host


@pytest.mark.parametrize(
    ("env", "library", "fits"),
    [
        (MPICH_ENV, "MPICH", True),
        (MPICH_ENV, "Intel MPI", True),
        (MPICH_ENV, "Open MPI", False),
        (OPENMPI_ENV, "Open MPI", True),
        (OPENMPI_ENV, "MPICH", False),
        ({"PMIX_RANK": "0"}, "Open MPI", True),
        ({"PMIX_RANK": "0"}, "MPICH", True),
        ({}, "MPICH", True),
    ],
)
def test_check_library(env: dict[str, str], library: str, fits: bool) -> None:
    launch = detect(env)
    if fits:
        check_library(launch, library)
    else:
        with pytest.raises(ConfigError, match=rf"loaded {library}.*fastlloyd run -n 3"):
            check_library(launch, library)


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({}, "started alone.*`mpirun -n 3 python -m fastlloyd.client` or `fastlloyd run -n 3`"),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, "asked for 1 process.*mpirun -n 3"),
        ({"PMI_RANK": "0", "PMI_SIZE": "4"}, "says 4 processes.*world of 1.*fastlloyd run -n 4"),
        ({"PMIX_RANK": "0"}, "says several processes.*srun --mpi=pmix"),
    ],
)
def test_check_world(env: dict[str, str], sentence: str) -> None:
    check_world(detect(env), 2)
    with pytest.raises(ConfigError, match=sentence):
        check_world(detect(env), 1)


def fake_mpirun(folder: Path, answer: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "mpirun"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def two_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A folder with the interpreter, and one on the PATH."""
    beside, on_path = tmp_path / "beside", tmp_path / "path"
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    monkeypatch.setenv("PATH", os.pathsep.join([str(on_path), "/usr/bin", "/bin"]))
    return beside, on_path


def test_find_mpirun_prefers_the_environments_own(two_places: tuple[Path, Path]) -> None:
    beside, on_path = two_places
    other = fake_mpirun(on_path, "HYDRA build details:\n    Version:      4.2.1")
    assert find_mpirun() == Mpirun(other, "mpich", "4.2.1")
    own = fake_mpirun(beside, "mpirun (Open MPI) 5.0.7\n\nReport bugs to ...")
    assert find_mpirun() == Mpirun(own, "openmpi", "5.0.7")
    fake_mpirun(beside, "something else")
    assert find_mpirun().path == other


def test_find_mpirun_says_what_to_install(two_places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    beside, on_path = two_places
    monkeypatch.setenv("PATH", str(on_path))
    with pytest.raises(ConfigError, match=r"no mpirun beside .*pip install mpich"):
        find_mpirun()
    broken = fake_mpirun(beside, "")
    broken.write_text("#!/nonexistent/interpreter\n")
    with pytest.raises(ConfigError, match=r"no usable mpirun: .*pip install mpich"):
        find_mpirun()


def test_mpich_command() -> None:
    assert mpirun_command(MPICH, 3, ["python", "x"]) == (["/opt/m/mpirun", "-n", "3", "python", "x"], {})
    command, env = mpirun_command(MPICH, 3, ["x"], transport="tcp", interface="eth0", hosts=["a", "b", "c:2"])
    assert command == ["/opt/m/mpirun", "-n", "3", "-hosts", "a,b,c:2", "x"]
    assert env == {
        "MPIR_CVAR_NOLOCAL": "1",
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": "eth0",
    }


@pytest.mark.parametrize("user", [0, 1000])
def test_openmpi_command(user: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    command, env = mpirun_command(OPENMPI, 3, ["x", "-n"], transport="tcp", ulfm=True)
    text = " ".join(command)
    assert text.startswith("/opt/o/mpirun -n 3 ") and text.endswith(" x -n")
    assert "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo" in text
    assert "--with-ft ulfm" in text and "--bind-to none" in text
    assert env.pop("PRTE_MCA_rmaps_default_mapping_policy") == ":oversubscribe"
    assert set(env) == ({"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"} if user == 0 else set())
    plain = mpirun_command(OPENMPI, 2, ["x"])[0]
    assert "--mca" not in plain and "--with-ft" not in plain
    spread = mpirun_command(OPENMPI, 2, ["x"], transport="tcp", interface="eth0", hosts=["a", "b"])[0]
    assert "--host a,b --prtemca prte_if_include eth0" in " ".join(spread)


def test_senseless_commands_are_refused() -> None:
    with pytest.raises(ConfigError, match="-n 1"):
        mpirun_command(MPICH, 1, ["x"])
    for interface in (None, "lo"):
        with pytest.raises(ConfigError, match="network interface that joins them, got"):
            mpirun_command(MPICH, 2, ["x"], transport="tcp", interface=interface, hosts=["a", "b"])


def test_local_transport_env() -> None:
    assert local_transport_env("shm", environ=MPICH_ENV) == {}
    env = local_transport_env("tcp", environ=MPICH_ENV)
    assert env["FI_TCP_IFACE"] == env["OMPI_MCA_btl_tcp_if_include"] == "lo"
    assert env["MPIR_CVAR_NOLOCAL"] == "1" and env["OMPI_MCA_btl"] == "tcp,self"
    # Across hosts the loopback would lead nowhere.
    spread = local_transport_env("tcp", environ=MPICH_ENV | {"MPI_LOCALNRANKS": "1"})
    assert not {"FI_TCP_IFACE", "OMPI_MCA_btl_tcp_if_include"} & set(spread)
    named = local_transport_env("tcp", environ=MPICH_ENV, interface="eth0")
    assert named["FI_TCP_IFACE"] == "eth0"
    # The user's own choice stands.
    assert "FI_PROVIDER" not in local_transport_env("tcp", environ={"FI_PROVIDER": "verbs"})


@pytest.mark.parametrize(
    ("theirs", "left"),
    [
        ("MPIR_CVAR_NOLOCAL", "MPIR_CVAR_NOLOCAL"),
        ("MPICH_NOLOCAL", "MPIR_CVAR_NOLOCAL"),
        ("MPIR_PARAM_CH4_NETMOD", "MPIR_CVAR_CH4_NETMOD"),
        ("OMPI_MCA_btl", "OMPI_MCA_btl"),
        # Open MPI ends where it is given both.
        ("OMPI_MCA_btl_tcp_if_exclude", "OMPI_MCA_btl_tcp_if_include"),
    ],
)
def test_what_the_user_has_set_stays_under_any_name(theirs: str, left: str) -> None:
    without = local_transport_env("tcp", environ=MPICH_ENV)
    with_it = local_transport_env("tcp", environ=MPICH_ENV | {theirs: "x"})
    assert set(without) - set(with_it) == {left}


def test_fastlloyd_run_keeps_what_the_user_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FI_PROVIDER", "sockets")
    assert "FI_PROVIDER" not in mpirun_command(MPICH, 3, ["x"], transport="tcp")[1]
    monkeypatch.setenv("OMPI_MCA_btl_tcp_if_exclude", "eth7")
    command = mpirun_command(OPENMPI, 3, ["x"], transport="tcp")[0]
    assert "btl_tcp_if_include" not in command and "btl" in command


def test_without_a_loopback_mpi_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "loopback", lambda: None)
    assert local_transport_env("tcp", environ=MPICH_ENV) == {}
    assert mpirun_command(MPICH, 3, ["x"], transport="tcp") == (["/opt/m/mpirun", "-n", "3", "x"], {})
    assert local_transport_env("tcp", environ=MPICH_ENV | {"MPI_LOCALNRANKS": "1"})


def test_across_hosts_bridges_of_containers_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["lo", "eth0", "docker0", "br-0123456789ab", "br0", "virbr0", "veth12ab"]
    monkeypatch.setattr(socket, "if_nameindex", lambda: list(enumerate(names)))
    spread = local_transport_env("tcp", environ=OPENMPI_ENV | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"})
    left_out = spread["OMPI_MCA_btl_tcp_if_exclude"].split(",")
    assert {"docker0", "br-0123456789ab", "virbr0", "veth12ab", "127.0.0.1/8"} <= set(left_out)
    assert not {"eth0", "br0"} & set(left_out)  # a bridge with a name that a person gave may be the way out
    assert "OMPI_MCA_btl_tcp_if_include" not in spread


def test_the_launchers_own_ports_are_known() -> None:
    env = {
        "PMIX_SERVER_URI41": "prterun-host-7@0.0;tcp4://127.0.0.1:41211",
        "PMIX_SERVER_URI2": "prterun-host-7@0.0;tcp6://[::1]:5000",
        "PMIX_RANK": "0",
    }
    assert launcher_ports(env) == {41211, 5000}
    assert launcher_ports({}) == frozenset()
