"""The launchers and container files: what each would start, and the one for this machine for real."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fastlloyd.run.run_file import load_config
from fastlloyd.supervise.offers import read_settings
from tests.mpi.support import quick

ROOT = Path(__file__).resolve().parents[2]
LAUNCH, DOCKER = ROOT / "launch", ROOT / "docker"
EXAMPLE = LAUNCH / "run.example.toml"
SHIPPED = ("await-shapers.sh", "entrypoint.sh", "rank.sh", "shape.sh", "sshd_config")
SCRIPTS = sorted([*LAUNCH.glob("*.sh"), *LAUNCH.glob("*.sbatch"), *DOCKER.glob("*.sh")])


def call(*command, **variables):
    environment = {**os.environ, **quick(), **{key: str(value) for key, value in variables.items()}}
    return subprocess.run(
        [str(word) for word in command], env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def fake(folder, name, version):
    """A command that prints its words, one a line, or its version; and a Python beside it."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(
        f'#!/usr/bin/env bash\nif [[ ${{1-}} == --version ]]; then echo "{version}"; else printf "%s\\n" "$@"; fi\n'
    )
    program.chmod(0o755)
    python = folder / "python3"
    if not python.exists():
        python.symlink_to(sys.executable)
    return python


def documents(path):
    yaml = pytest.importorskip("yaml", reason="PyYAML reads the manifests")
    return list(yaml.safe_load_all(path.read_text()))


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_scripts_are_clean():
    done = call("shellcheck", *SCRIPTS)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_stop_at_the_first_error_and_can_be_executed(path):
    assert "\nset -euo pipefail\n" in path.read_text()
    assert path.suffix == ".sbatch" or os.access(path, os.X_OK)


def test_example_is_a_run_file_both_ways(tmp_path):
    assert load_config(EXAMPLE).dataset == "iris"
    own = re.sub(r"(?m)^# (?=\w+ = )", "", EXAMPLE.read_text()).replace('dataset = "iris"\n', "")
    (tmp_path / "own.toml").write_text(own)
    config = load_config(tmp_path / "own.toml")
    assert config.data is not None
    assert config.roster is not None
    assert config.state_dir is not None


@pytest.mark.mpi
def test_localhost_runs_the_example(tmp_path):
    done = call(LAUNCH / "localhost.sh", 3, EXAMPLE, "--output", tmp_path / "run", PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["parties"]["clients"] == 2
    assert "epsilon 1 spent of 1" in done.stdout


@pytest.mark.parametrize("vendor", ["HYDRA build details", "mpirun (Open MPI) 5.0.8"])
def test_localhost_starts_the_entry_point(tmp_path, vendor):
    python = fake(tmp_path / "bin", "mpirun", vendor)
    done = call(LAUNCH / "localhost.sh", 4, EXAMPLE, "--k", 5, PYTHON=python)
    words = done.stdout.split("\n")[:-1]
    assert words[:2] == ["-n", "4"]
    assert words[-7:] == [str(python), "-m", "fastlloyd.client", "--config", str(EXAMPLE), "--k", "5"]
    assert ("--bind-to" in words) == ("Open MPI" in vendor)


@pytest.mark.parametrize(("vendor", "flag"), [("HYDRA", "-hosts"), ("mpirun (Open MPI) 5.0.8", "--host")])
def test_ssh_hosts_puts_one_rank_on_each_host_in_order(tmp_path, vendor, flag):
    python = fake(tmp_path / "bin", "mpirun", vendor)
    done = call(LAUNCH / "ssh-hosts.sh", LAUNCH / "hosts.example", EXAMPLE, PYTHON=python, INTERFACE="tun0")
    assert done.returncode == 0, done.stderr
    words = done.stdout.split("\n")[:-1]
    assert words[:2] == ["-n", "3"]
    assert words[words.index(flag) + 1] == "server.example.org,hospital-1.example.org,hospital-2.example.org"
    assert "tun0" in words
    place = words.index("fastlloyd.client")
    assert words[place - 2 :] == [
        *(str(python), "-m", "fastlloyd.client", "--config", str(EXAMPLE), "--transport", "tcp")
    ]


@pytest.mark.parametrize(
    ("hosts", "run_file", "said"),
    [
        ("one\n", EXAMPLE, "2 hosts or more"),
        ("one\n-oProxyCommand=x\n", EXAMPLE, "expected a host name"),
        ("one\ntwo;three\n", EXAMPLE, "expected a host name"),
        ("one\ntwo\n", "run.toml", "absolute path"),
    ],
)
def test_ssh_hosts_refuses(tmp_path, hosts, run_file, said):
    (tmp_path / "hosts").write_text(hosts)
    python = fake(tmp_path / "bin", "mpirun", "HYDRA")
    done = call(LAUNCH / "ssh-hosts.sh", tmp_path / "hosts", run_file, PYTHON=python)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(("plugin", "expected"), [({}, "pmi2"), ({"MPI_PLUGIN": "pmix"}, "pmix")])
def test_slurm_starts_the_entry_point(tmp_path, plugin, expected):
    fake(tmp_path / "bin", "srun", "slurm")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = call("bash", LAUNCH / "slurm.sbatch", EXAMPLE, "--k", 5, PATH=path, SLURM_NTASKS=3, **plugin)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        *(f"--mpi={expected}", "--kill-on-bad-exit=1", "python3", "-m", "fastlloyd.client"),
        *("--config", str(EXAMPLE), "--k", "5"),
    ]


@pytest.mark.parametrize(("words", "tasks"), [([], 3), (["nowhere.toml"], 3), ([EXAMPLE], 1)])
def test_slurm_refuses(tmp_path, words, tasks):
    fake(tmp_path / "bin", "srun", "slurm")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = call("bash", LAUNCH / "slurm.sbatch", *words, PATH=path, SLURM_NTASKS=tasks)
    assert done.returncode == 2
    assert done.stderr.startswith("slurm.sbatch: expected")


def test_mpijob_fits_the_operator(tmp_path):
    config, claim, job = documents(LAUNCH / "kubernetes" / "mpijob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    spec = job["spec"]
    known = {"mpiImplementation", "slotsPerWorker", "launcherCreationPolicy", "sshAuthMountPath", "runPolicy"}
    assert set(spec) == known | {"mpiReplicaSpecs"}
    assert spec["mpiImplementation"] in {"OpenMPI", "Intel", "MPICH"}
    assert spec["launcherCreationPolicy"] in {"AtStartup", "WaitForWorkersReady"}
    roles = spec["mpiReplicaSpecs"]
    assert set(roles) == {"Launcher", "Worker"}
    pods = {role: roles[role]["template"]["spec"] for role in roles}
    for pod in pods.values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    command = pods["Launcher"]["containers"][0]["command"]
    assert command[:3] == ["mpirun", "-n", str(roles["Worker"]["replicas"])]
    assert "fastlloyd.client" in command
    assert "volumes" not in pods["Launcher"]
    mounts = {mount["name"]: mount for mount in pods["Worker"]["containers"][0]["volumeMounts"]}
    assert mounts["sites"]["subPathExpr"] == "$(POD_NAME)"
    volumes = {volume["name"]: volume for volume in pods["Worker"]["volumes"]}
    assert volumes["run"]["configMap"]["name"] == config["metadata"]["name"]
    assert volumes["sites"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    (tmp_path / "run.toml").write_text(config["data"]["run.toml"])
    assert load_config(tmp_path / "run.toml").output == "/site/results"


def test_compose_gives_each_party_its_own_and_no_more():
    (compose,) = documents(DOCKER / "compose.yaml")
    services = compose["services"]
    assert set(services) == {"server", "client-1", "client-2", "client-3"}
    for name, service in services.items():
        private = [mount for mount in service["volumes"] if "/public:" not in mount]
        own = f"/results/{name}:"
        assert all(f"/{name}/" in mount or own in mount for mount in private)
        assert any(mount.endswith("/own.key:/own.key:ro") for mount in private)
        assert any(":/data:ro" in mount for mount in private) == (name != "server")
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True
        assert service["healthcheck"]["test"] == ["CMD", "party", "healthy"]
        assert not {"cap_add", "privileged", "ports"} & set(service)
        assert not service["user"].startswith("0")
    shared = [set(services[name]["networks"]) for name in ("client-1", "client-2", "client-3")]
    assert not set.intersection(*shared)
    assert set.union(*shared) == set(services["server"]["networks"])
    assert all(network["internal"] for network in compose["networks"].values())


def test_compose_of_ranks_gives_each_its_own_and_no_more():
    (compose,) = documents(DOCKER / "compose.mpi.yaml")
    services = compose["services"]
    clients = ["client-1", "client-2", "client-3"]
    assert set(services) == {"server", *clients}
    assert services["server"]["command"].startswith(f"rank run {','.join(['server', *clients])} --config ")
    for name, service in services.items():
        assert service["hostname"] == name
        binds = [mount for mount in service["volumes"] if mount.startswith("$")]
        private = [mount for mount in binds if "/public:" not in mount and "/passwd:" not in mount]
        assert all(f"/{name}/" in mount or f"/results/{name}:" in mount for mount in private)
        assert any(mount.endswith("/own.key:/own.key:ro") for mount in private)
        assert any(":/data:ro" in mount for mount in private) == (name != "server")
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"] is True
        assert not {"cap_add", "privileged", "ports", "secrets", "env_file", "environment"} & set(service)
        assert not service["user"].startswith("0")
        assert service["networks"] == ["ranks"]
    assert compose["networks"] == {"ranks": {"internal": True}}
    # The server shares a volume of public keys with each client, and no two clients share one.
    shared = {
        name: {mount.partition(":")[0] for mount in service["volumes"] if not mount.startswith("$")}
        for name, service in services.items()
    }
    assert [len(shared[name]) for name in clients] == [1, 1, 1]
    assert set.union(*(shared[name] for name in clients)) == shared["server"] == set(compose["volumes"])
    assert len(shared["server"]) == len(clients)
    assert all(volume["driver_opts"]["type"] == "tmpfs" for volume in compose["volumes"].values())
    assert set(services["server"]["depends_on"]) == set(clients)


def test_ssh_between_the_ranks_takes_one_key_and_no_password():
    lines = (DOCKER / "sshd_config").read_text().splitlines()
    settings = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    assert settings["PasswordAuthentication"] == settings["KbdInteractiveAuthentication"] == "no"
    assert settings["AuthenticationMethods"] == "publickey"
    assert settings["AllowUsers"] == "fastlloyd"
    assert (settings["PermitRootLogin"], settings["DisableForwarding"]) == ("no", "yes")
    assert settings["AuthorizedKeysFile"].startswith("/keys/")
    assert int(settings["Port"]) > 1023
    rank = (DOCKER / "rank.sh").read_text()
    assert "StrictHostKeyChecking yes" in rank
    assert "restrict %s" in rank


def test_a_client_s_container_vouches_for_itself_alone_and_is_no_way_to_the_server_s_files(tmp_path):
    shared, own = tmp_path / "keys" / "client-1", tmp_path / "own"
    shared.mkdir(parents=True)
    own.mkdir()
    (own / "id_ed25519.pub").write_text("ssh-ed25519 AAAA server\n")
    (own / "precious").write_text("mine")
    (shared / "host.pub").write_text("ssh-ed25519 BBBB client-1\n[client-2]:2222 ssh-ed25519 CCCC stolen\n")
    (shared / "server.pub.new").symlink_to(own / "precious")
    (shared / "server.pub").symlink_to(own)
    functions = (DOCKER / "rank.sh").read_text().partition("\ncase ${1:-} in")[0]
    functions = functions.replace("/tmp/.ssh", str(own)).replace("=/keys/", f"={tmp_path}/keys/")
    done = call("bash", "-c", functions + "\nmeet client-1\n")
    assert done.returncode == 0, done.stderr
    assert (own / "known_hosts").read_text() == "[client-1]:2222 ssh-ed25519 BBBB client-1\n"
    assert (own / "precious").read_text() == "mine" and sorted(path.name for path in own.iterdir()) == [
        "id_ed25519.pub",
        "known_hosts",
        "precious",
    ]
    assert (shared / "server.pub").read_text() == "restrict ssh-ed25519 AAAA server\n"


@pytest.mark.parametrize("what", ["nothing", "a link", "a folder", "a pipe", "a pipe that is open", "no end", "no key"])
def test_a_client_s_container_can_neither_hold_up_the_server_nor_lead_it_elsewhere(tmp_path, what):
    shared, own = tmp_path / "keys" / "client-1", tmp_path / "own"
    shared.mkdir(parents=True)
    own.mkdir()
    (own / "id_ed25519.pub").write_text("ssh-ed25519 AAAA server\n")
    host, held = shared / "host.pub", None
    if what == "a link":
        host.symlink_to(own / "id_ed25519.pub")
    elif what == "a folder":
        host.mkdir()
    elif what.startswith("a pipe"):
        os.mkfifo(host)
        held = os.open(host, os.O_RDWR) if what.endswith("open") else None
    elif what == "no end":
        host.write_text("")
        os.truncate(host, 1 << 40)
    elif what == "no key":
        host.write_text("\nssh-ed25519 BBBB client-1\n")
    functions = (DOCKER / "rank.sh").read_text().partition("\ncase ${1:-} in")[0]
    functions = functions.replace("/tmp/.ssh", str(own)).replace("=/keys/", f"={tmp_path}/keys/")
    done = call("timeout", "10", "bash", "-c", functions + "\nmeet client-1\n")
    if held is not None:
        os.close(held)
    assert done.returncode == 3 and not (own / "known_hosts").exists(), done.stderr
    assert (
        done.stderr == f"rank: expected the host key of client-1 in an ordinary file {host}, found none: does it run?\n"
    )


def test_images_hold_no_secrets():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    programs = {f"docker/{name}" for name in SHIPPED}
    assert kept == {"LICENSE", "README.md", "pyproject.toml", "fastlloyd", "scripts/netem"} | programs
    image = (DOCKER / "Dockerfile").read_text()
    assert "ssh-keygen" not in image
    # Debian's package makes host keys: a layer that installed it takes them away again.
    for layer in re.findall(r"(?m)^RUN (?:.*\\\n)*.*$", image):
        assert "openssh-server" not in layer or "/etc/ssh/ssh_host_*" in layer


def test_only_shapers_get_net_admin():
    (compose,) = documents(DOCKER / "compose.netem.yaml")
    shapers = {name: service for name, service in compose["services"].items() if name != "server"}
    for name, service in shapers.items():
        party = name.removeprefix("shape-")
        assert name == f"shape-{party}"
        assert service["network_mode"] == f"service:{party}"
        assert service["cap_add"] == ["NET_ADMIN"]
        assert service["volumes"] == ["shaped:/shaped"]
        assert service["environment"] == {"PARTY": party}
    # The server begins when all of them have done their work, and gets no right by it.
    assert set(compose["services"]["server"]) == {"environment", "volumes"}
    assert compose["services"]["server"]["volumes"] == ["shaped:/shaped:ro"]
    awaited = compose["services"]["server"]["environment"]["SHAPED"].split()
    assert {f"shape-{party}" for party in awaited} == set(shapers)
    # It goes over either cluster.
    for name in ("compose.yaml", "compose.mpi.yaml"):
        (cluster,) = documents(DOCKER / name)
        assert {f"shape-{party}" for party in cluster["services"]} == set(shapers)


@pytest.mark.parametrize("first", ["compose.yaml", "compose.mpi.yaml"])
@pytest.mark.parametrize("extra", [[], ["compose.netem.yaml"]])
@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
def test_compose_accepts_the_files(first, extra):
    files = [word for name in [first, *extra] for word in ("-f", DOCKER / name)]
    done = call("docker-compose", *files, "config", "--quiet", FASTLLOYD_NETWORK="wan")
    assert done.returncode == 0, done.stderr


def test_images_are_for_an_ordinary_user_on_debian():
    arguments, *stages = re.split(r"(?m)^FROM ", (DOCKER / "Dockerfile").read_text())
    assert "ARG BASE=debian:bookworm-slim\n" in arguments
    bases = {stage.split()[0] for stage in stages}
    assert bases == {"$BASE", "build", "python"}
    assert re.findall(r"(?m)^USER (\w+)", stages[-1]) == ["fastlloyd"]
    assert "apt-get" not in stages[-1]
    mpi = next(stage for stage in stages if stage.splitlines()[0].endswith(" AS mpi"))
    assert re.findall(r"(?m)^USER (\w+)", mpi) == ["fastlloyd"]


CHART = LAUNCH / "helm" / "fastlloyd"
SERVER_VALUES = ("--set", "party=server")


def test_chart_knows_each_value_that_its_templates_read():
    (values,) = documents(CHART / "values.yaml")
    read = {
        name
        for path in (CHART / "templates").iterdir()
        for name in re.findall(r"\.Values((?:\.\w+)+)", path.read_text())
    }
    assert len(read) > 10
    for name in read:
        found = values
        for part in name.split(".")[1:]:
            assert part in found, name
            found = found[part]


def test_chart_refuses_values_that_do_not_fit():
    jsonschema = pytest.importorskip("jsonschema")
    (values,) = documents(CHART / "values.yaml")
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    check = jsonschema.Draft7Validator(schema).is_valid
    assert check(values)
    site, image = values["site"], values["image"]
    for wrong in (
        {"party": "client"},
        {"site": {**site, "server": "operator.example.org"}},
        {"site": {**site, "budget": "much"}},
        {"site": {**site, "hours": "at night"}},
        {"site": {**site, "hours": "20:00-25:00"}},
        {"site": {**site, "zone": "../etc"}},
        {"site": {**site, "repeat": True}},  # without a budget
        {"site": {**site, "repeat": True, "budget": "3.0", "ask": False}},
        {"site": {**site, "serviceMetrics": "/etc/metrics.prom"}},
        {"image": {**image, "digest": "latest"}},
        {"surprise": 1},
    ):
        assert not check({**values, **wrong}), wrong


def settings_of_chart(values):
    """Render the file of the site's service as Helm does; knows the few forms that it uses."""
    text = (CHART / "templates" / "config.yaml").read_text()
    block = text.partition("  site.toml: |\n")[2].rpartition("  {{- end }}")[0]

    def optional(found):
        given = values[found[2]]
        return found[3].replace("{{ . | quote }}", json.dumps(given)).replace("{{ . }}", str(given)) if given else ""

    block = re.sub(r"    {{- (with|if) \.Values\.site\.(\w+) }}\n(.*?)    {{- end }}\n", optional, block, flags=re.S)
    block = re.sub(r'{{ printf "(\S+)%s" \.Values\.site\.(\w+) \| quote }}', lambda m: f'"{m[1]}{values[m[2]]}"', block)
    block = re.sub(r"{{ \.Values\.site\.(\w+)(?: \| quote)? }}", lambda m: json.dumps(values[m[1]]), block)
    assert "{{" not in block
    return textwrap.dedent(block)


def test_the_service_reads_what_the_chart_writes(tmp_path):
    (values,) = documents(CHART / "values.yaml")
    (tmp_path / "site.toml").write_text(settings_of_chart(values["site"]))
    plain = read_settings(tmp_path)
    assert (plain.repeat, plain.metrics, plain.hours) == (False, None, None) and "budget" not in plain.own
    more = {"repeat": True, "budget": "3.0", "serviceMetrics": "/party/own/m/north.prom", "hours": "20:00-06:00"}
    (tmp_path / "site.toml").write_text(settings_of_chart(values["site"] | more))
    full = read_settings(tmp_path)
    assert (full.repeat, str(full.metrics), full.own["budget"]) == (True, "/party/own/m/north.prom", 3.0)
    assert full.hours is not None


def test_a_second_run_of_the_chart_or_unit_replaces_no_result():
    template = (CHART / "templates/server.yaml").read_text()
    assert "--output=/party/own/results/$(POD_UID)" in template and "fieldPath: metadata.uid" in template
    unit = (LAUNCH / "systemd/fastlloyd-serve@.service").read_text()
    assert "--output results/${INVOCATION_ID}" in unit
    assert "--overwrite" not in template + unit


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
@pytest.mark.parametrize("words", [(), SERVER_VALUES, ("--set", "site.repeat=true", "--set-string", "site.budget=3.0")])
def test_helm_accepts_the_chart(words):
    pytest.importorskip("yaml", reason="PyYAML reads the manifests")
    linted = call("helm", "lint", "--strict", CHART, *words)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    rendered = call("helm", "template", "north", CHART, *words)
    assert rendered.returncode == 0, rendered.stderr


def test_units_lose_no_run_and_no_result():
    timer, unit = (
        (LAUNCH / "systemd" / f"fastlloyd-serve@.{kind}").read_text().splitlines() for kind in ("timer", "service")
    )
    assert "Persistent=true" in timer
    (start,) = [line for line in unit if line.startswith("ExecStart=")]
    assert "--overwrite" not in start and "--output results/${INVOCATION_ID}" in start and "--offer %i" in start


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_units_are_valid(tmp_path):
    names = []
    for path in (LAUNCH / "systemd").iterdir():
        copy = tmp_path / path.name
        copy.write_text(path.read_text().replace("/opt/fastlloyd/bin/fastlloyd", sys.executable))
        names.append(copy.with_name(path.name.replace("@.", "@north.")))
        names[-1].symlink_to(copy)
    done = call("systemd-analyze", "verify", "--man=no", *names)
    said = [line for line in done.stderr.splitlines() if "fastlloyd" in line]
    assert (done.returncode, said) == (0, []), done.stderr
