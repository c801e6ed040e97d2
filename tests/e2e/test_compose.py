"""The Compose cluster for real: a run, a killed client, a paused client, and going on after each."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
CLIENTS = ("client-1", "client-2", "client-3")
IMAGE_LIMIT_BYTES = 400e6
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

    def __init__(self, folder):
        self.folder = folder
        done = call(DOCKER / "prepare.sh", folder)
        assert done.returncode == 0, done.stderr
        self.project = f"fastlloyd-test-{os.getpid()}-{time.monotonic_ns()}"
        files = ["--env-file", folder / ".env", "-p", self.project, "-f", DOCKER / "compose.yaml"]
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
        call(*self.compose, "down", "--volumes", "--timeout", "1")


@pytest.fixture
def trial(tmp_path):
    if not engine_answers():
        pytest.skip("no Docker engine answers")
    made = Trial(tmp_path / "trial")
    yield made
    made.down()


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
        (facts,) = json.loads(call("docker", "inspect", trial.container(service)).stdout)
        assert facts["State"]["ExitCode"] == 0
        assert not facts["Config"]["User"].startswith("0")
        sources = {mount["Source"] for mount in facts["Mounts"] if mount["Type"] == "bind"}
        others = {"server", *CLIENTS} - {service}
        assert not any(part in others for source in sources for part in Path(source).parts)
    (image,) = json.loads(call("docker", "image", "inspect", "fastlloyd").stdout)
    assert image["Size"] <= IMAGE_LIMIT_BYTES
    assert image["Config"]["User"] == "fastlloyd"


def test_a_wrong_flag_ends_it_with_code_2(trial):
    done = trial.up("--epsilon -1")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--epsilon" in trial.said("server")


@pytest.mark.parametrize(
    ("action", "said"),
    [("kill", "client 2 is gone"), ("pause", f"client 2 sent no MaskedUpdate within {DEADLINE_S} s")],
)
def test_a_lost_client_is_named_and_the_run_goes_on_afterwards(trial, action, said):
    flags = f"--rounds 20 --deadline {DEADLINE_S}"
    trial.start(f"{flags} --delay 0.3")
    trial.wait_for_round(3)
    assert call("docker", action, trial.container("client-2")).returncode == 0
    since = time.monotonic()
    assert trial.server_code() == 3
    assert time.monotonic() - since < DEADLINE_S + 5 + DOCKER_S
    assert said in trial.said("server")
    call(*trial.compose, "kill")
    call("docker", "unpause", trial.container("client-2"))

    done = trial.up(f"{flags} --resume")
    assert done.returncode == 0, done.stdout + done.stderr
    check_results(trial)
    report = trial.report("client-1")
    assert report["privacy"]["spent_epsilon"] <= report["privacy"]["epsilon"]
    assert [entry["round"] for entry in report["rounds"]] == list(range(20))
    assert "round 2 of" not in trial.said("server")


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
