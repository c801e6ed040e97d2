"""The Compose clusters for real: a run, a killed client, a paused client, and going on after each."""

import json
import os
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
CLIENTS = ("client-1", "client-2", "client-3")
IMAGE_LIMIT_BYTES = 410e6
MPI_IMAGE_LIMIT_BYTES = 460e6
DEADLINE_S = 6
DOCKER_S = 3  # two commands of docker, and the end of a container, on a busy machine


def engine_answers():
    if shutil.which("docker") is None or shutil.which("docker-compose") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False).returncode == 0


pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]


def call(*command, **variables):
    environment = {**os.environ, **variables}
    return subprocess.run(
        [str(word) for word in command], env=environment, capture_output=True, text=True, timeout=400, check=False
    )


class Trial:
    """One prepared folder and its Compose project."""

    file = "compose.yaml"
    prepare = ()

    def __init__(self, folder):
        self.folder = folder
        done = call(DOCKER / "prepare.sh", *self.prepare, folder)
        assert done.returncode == 0, done.stderr
        self.project = f"fastlloyd-test-{os.getpid()}-{time.monotonic_ns()}"
        files = ["--env-file", folder / ".env", "-p", self.project, "-f", DOCKER / self.file]
        self.compose = ["docker-compose", *files]

    def up(self, flags=""):
        return call(*self.compose, "up", "--no-color", "--exit-code-from", "server", FLAGS=flags)

    def start(self, flags):
        done = call(*self.compose, "up", "-d", FLAGS=flags)
        assert done.returncode == 0, done.stderr

    def container(self, service):
        return call(*self.compose, "ps", "-q", service).stdout.strip()

    def logs(self, service):
        return call("docker", "logs", self.container(service))

    def said(self, service):
        done = self.logs(service)
        return done.stdout + done.stderr

    def wait_for_round(self, number):
        following = subprocess.Popen(
            ["docker", "logs", "-f", self.container("server")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with following:
            for line in following.stdout:
                if line.startswith(f"round {number} of"):
                    break
            else:
                pytest.fail(f"round {number} never came")
            following.terminate()

    def server_code(self):
        return int(call("docker", "wait", self.container("server")).stdout)

    def report(self, client):
        return json.loads((self.folder / "results" / client / "report.json").read_text())

    def down(self):
        call(*self.compose, "down", "--volumes", "--remove-orphans", "--timeout", "1")


class Ranks(Trial):
    """The same with one container per MPI rank."""

    file = "compose.mpi.yaml"
    prepare = ("--mpi",)

    def mpi(self, *flags, **variables):
        variables = {"FASTLLOYD_TRIAL": str(self.folder), "COMPOSE_PROJECT_NAME": self.project, **variables}
        return call(DOCKER / "mpi.sh", *flags, **variables)

    def processes(self, service):
        return self.inside(service, "bash", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout

    def inside(self, service, *command):
        return call("docker", "exec", self.container(service), *command)


def wait_until(condition, limit_s=60):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


def prepared(kind, folder):
    if not engine_answers():
        pytest.skip("no Docker engine answers, or docker-compose is missing")
    made = kind(folder)
    yield made
    made.down()


@pytest.fixture
def trial(tmp_path):
    yield from prepared(Trial, tmp_path / "trial")


@pytest.fixture
def ranks(tmp_path):
    yield from prepared(Ranks, tmp_path / "trial")


def check_own_mounts(trial, service):
    (facts,) = json.loads(call("docker", "inspect", trial.container(service)).stdout)
    assert not facts["Config"]["User"].startswith("0")
    sources = {mount["Source"] for mount in facts["Mounts"] if mount["Type"] == "bind"}
    others = {"server", *CLIENTS} - {service}
    assert not any(part in others for source in sources for part in Path(source).parts)
    return facts


def check_results(trial):
    centroids = set()
    for number, client in enumerate(CLIENTS, start=1):
        report = trial.report(client)
        assert report["parties"] == {**report["parties"], "clients": 3, "authenticated": True}
        assert (trial.folder / "results" / client / f"labels_{number}.csv").stat().st_mode & 0o077 == 0
        centroids.add((trial.folder / "results" / client / "centroids.csv").read_text())
    assert len(centroids) == 1
    assert [path.name for path in (trial.folder / "results" / "server").iterdir()] == ["server.json"]


def test_a_run_ends_by_itself_with_the_servers_code(trial):
    done = trial.up()
    assert done.returncode == 0, done.stdout + done.stderr
    check_results(trial)
    for service in ("server", *CLIENTS):
        assert check_own_mounts(trial, service)["State"]["ExitCode"] == 0
    traffic = trial.report("client-1")["traffic"]
    assert traffic["wire_bytes"] > traffic["link_bytes"] and traffic["wire"]["outer_tls_bytes"] > 0
    (image,) = json.loads(call("docker", "image", "inspect", "fastlloyd").stdout)
    assert image["Size"] <= IMAGE_LIMIT_BYTES
    assert image["Config"]["User"] == "fastlloyd"


def test_a_wrong_flag_ends_it_with_code_2(trial):
    done = trial.up("--epsilon -1")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--epsilon" in trial.said("server")


@pytest.mark.parametrize(
    ("action", "said"),
    [("kill", "is gone"), ("pause", f"sent no MaskedUpdate within {DEADLINE_S} s")],
)
def test_a_lost_client_that_is_needed_is_named_and_the_run_goes_on_afterwards(trial, action, said):
    flags = f"--masking common --rounds 20 --deadline {DEADLINE_S}"
    trial.start(f"{flags} --delay 0.3")
    trial.wait_for_round(3)
    assert call("docker", action, trial.container("client-2")).returncode == 0
    since = time.monotonic()
    assert trial.server_code() == 3
    assert time.monotonic() - since < DEADLINE_S + 5 + DOCKER_S
    assert f"client 2 (client-2) {said}" in trial.said("server")
    call(*trial.compose, "kill")
    call("docker", "unpause", trial.container("client-2"))

    done = trial.up(f"{flags} --resume")
    assert done.returncode == 0, done.stdout + done.stderr
    check_results(trial)
    report = trial.report("client-1")
    assert report["privacy"]["spent_epsilon"] <= report["privacy"]["epsilon"]
    assert [entry["round"] for entry in report["rounds"]] == list(range(20))
    assert "round 2 of" not in trial.said("server")


def interfaces(said):
    """What the server's container says of each container's interface: bytes sent and received."""
    found = re.findall(r"network +(\S+): ([\d,]+) bytes sent, ([\d,]+) received", said)
    return {host: (int(sent.replace(",", "")), int(received.replace(",", ""))) for host, sent, received in found}


@pytest.mark.parametrize("action", ["kill", "pause"])
def test_one_lost_client_of_a_trial_leaves_the_others_their_result(trial, action):
    trial.start(f"--deadline {DEADLINE_S} --delay 0.3")
    trial.wait_for_round(3)
    assert call("docker", action, trial.container("client-2")).returncode == 0
    assert trial.server_code() == 0
    assert "round 10 of 10: 2 clients" in trial.said("server")
    for client in ("client-1", "client-3"):
        assert trial.report(client)["rounds"][-1]["clients_included"] == [1, 3]
    call("docker", "unpause", trial.container("client-2"))


def test_one_command_runs_a_rank_in_each_container(ranks):
    done = ranks.mpi()
    assert done.returncode == 0, done.stdout + done.stderr
    check_results(ranks)
    for service in ("server", *CLIENTS):
        check_own_mounts(ranks, service)
        assert not ranks.said(service).count("assword")
    counted = interfaces(ranks.said("server"))
    assert set(counted) == {"server", *CLIENTS}
    server = json.loads((ranks.folder / "results" / "server" / "server.json").read_text())
    sent = sum(out for out, _ in counted.values())
    assert server["traffic"]["wire_bytes"] == sent > server["traffic"]["link_bytes"] > 0
    # Nearly all that is sent on the containers' one network is received there.
    assert sum(into for _, into in counted.values()) == pytest.approx(sent, rel=0.01)


def test_only_the_server_gets_in_and_only_by_its_key(ranks):
    ranks.start("--rounds 20 --delay 2")
    ranks.wait_for_round(1)
    for service in ("server", *CLIENTS):
        users = set(ranks.inside(service, "cat", "/proc/1/status").stdout.split("Uid:")[1].split()[:4])
        assert users == {(ranks.folder / ".env").read_text().split("FASTLLOYD_UID=")[1].split()[0]}
    for host in CLIENTS[1:]:  # client 1 has no key that anybody knows, and there is no password
        done = ranks.inside(CLIENTS[0], "ssh", "-oBatchMode=yes", host, "true")
        assert done.returncode == 255
        assert "Permission denied (publickey)" in done.stderr
    assert ranks.inside("server", "ssh", "client-1", "hostname").stdout.strip() == "client-1"
    # The ranks are where they belong, one in each container, and see their own records alone.
    assert ranks.processes("client-2").count("-m fastlloyd.client") == 1
    seen = {name: ranks.inside(name, "sha256sum", "/data/records.csv").stdout for name in CLIENTS}
    assert len(set(seen.values())) == len(CLIENTS)
    assert ranks.inside("server", "ls", "/data").returncode != 0
    # Private keys lie in memory, the public ones of a pair in a volume of its own.
    assert ranks.inside("client-1", "ls", "-A", "/keys").stdout.split() == ["host.pub", "server.pub"]
    assert "tmpfs" in ranks.inside("client-1", "stat", "-f", "-c", "%T", "/tmp/.ssh", "/keys").stdout


def test_the_image_of_ranks_holds_no_key(ranks):
    (image,) = json.loads(call("docker", "image", "inspect", "fastlloyd-mpi").stdout)
    assert image["Size"] <= MPI_IMAGE_LIMIT_BYTES
    assert image["Config"]["User"] == "fastlloyd"
    names = "-name ssh_host_* -o -name id_* -o -name *.key -o -name authorized_keys"
    search = ["find", "/", "-xdev", "-type", "f", "(", *names.split(), ")"]
    done = call("docker", "run", "--rm", "--user", "0", "fastlloyd-mpi", *search)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_killed_container_is_named_on_the_terminal_of_the_one_command(ranks):
    flags = ["--rounds", "20", "--deadline", str(DEADLINE_S)]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ranks.mpi, *flags, "--delay", "0.3")
        while not ranks.container("server"):
            time.sleep(0.2)
        ranks.wait_for_round(3)
        assert call("docker", "kill", ranks.container("client-2")).returncode == 0
        done = running.result()
    assert done.returncode == 3, done.stdout + done.stderr
    assert "rank 2 (client 2) is gone: the connection to its host client-2 broke" in done.stderr
    resumed = ranks.mpi(*flags, "--resume")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    check_results(ranks)


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (["docker", "kill"], "rank 2 (client 2) is gone: the connection to its host client-2 broke"),
        (["docker", "pause"], f"client 2 (client-2) sent no MaskedUpdate within {DEADLINE_S} s"),
    ],
    ids=["kill", "pause"],
)
def test_a_lost_rank_is_named_and_the_run_goes_on_afterwards(ranks, action, said):
    flags = f"--masking common --rounds 20 --deadline {DEADLINE_S}"
    ranks.start(f"{flags} --delay 0.3")
    ranks.wait_for_round(3)
    lost = ranks.container("client-2")
    assert call(*action, lost).returncode == 0
    since = time.monotonic()
    assert ranks.server_code() == 3
    assert time.monotonic() - since < DEADLINE_S + 5 + DOCKER_S
    assert said in ranks.said("server")
    call("docker", "unpause", lost)
    # The containers stay, and no rank in them: the resumed run finds their state free.
    for service in CLIENTS:
        wait_until(lambda service=service: "fastlloyd.client" not in ranks.processes(service))

    done = ranks.mpi(*flags.split(), "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    check_results(ranks)
    report = ranks.report("client-1")
    assert report["privacy"]["spent_epsilon"] <= report["privacy"]["epsilon"]
    assert [entry["round"] for entry in report["rounds"]] == list(range(20))
    assert "round 2 of" not in ranks.said("server")


def test_a_killed_process_is_named_after_its_container(ranks):
    ranks.start("--rounds 20 --delay 0.3")
    ranks.wait_for_round(3)
    find = "grep -qs '[-]mfastlloyd.client' <(tr -d '\\0' < $each/cmdline)"
    kill = f"for each in /proc/[0-9]*; do {find} && kill -9 ${{each#/proc/}}; done"
    ranks.inside("client-2", "bash", "-c", kill)
    assert ranks.server_code() == 3
    assert "rank 2 (client 2) was killed on its host client-2" in ranks.said("server")


def test_a_shaped_network_of_ranks_is_shaped_or_refused(ranks):
    done = ranks.mpi(FASTLLOYD_NETWORK="wan")
    if done.returncode == 0:  # a kernel with sch_netem
        assert "sch_netem" not in done.stdout
        assert set(interfaces(ranks.said("server"))) == {"server", *CLIENTS}
    else:
        assert "expected NET_ADMIN and a kernel with sch_netem" in done.stdout
        assert "round 1 of" not in ranks.said("server")
        assert not list((ranks.folder / "results" / "client-1").iterdir())


def test_vertical_he_has_what_it_needs(trial):
    tag = f"fastlloyd-he-{os.getpid()}-{time.monotonic_ns()}"
    flags = ["--protocol", "vertical-he", "--dataset", "vertical-mixture:n=500,d=2,k=3", "--bounds", "auto-public"]
    flags += ["--k", "3", "--rounds", "2", "--workers", "1", "--output", "/tmp/out"]
    started = ["docker", "run", "-d", "--network", tag, "--tmpfs", "/tmp", "--read-only"]
    names = [f"{tag}-{rank}" for rank in (0, 1)]
    assert call("docker", "network", "create", "--internal", tag).returncode == 0
    try:
        call(*started, "--name", names[0], "fastlloyd", "serve", "--listen", "*:7700", "--clients", "1", *flags)
        call(*started, "--name", names[1], "fastlloyd", "join", "--server", f"{names[0]}:7700", "--rank", "1", *flags)
        for name in names:
            done = call("docker", "logs", "-f", name)
            said = done.stdout + done.stderr
            assert int(call("docker", "wait", name).stdout) == 0, said
            assert "round 2 of 2" in said
    finally:
        call("docker", "rm", "-f", *names)
        call("docker", "network", "rm", tag)
