"""`plan`, `check` and `label` with a run file that names a roster: none needs a key; `check` says whose is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastlloyd.cli import check, keygen, label, plan, roster
from fastlloyd.errors import ConfigError
from fastlloyd.run.config import RunConfig
from fastlloyd.run.own_rank import find_own_rank, load_identity
from fastlloyd.run.run_file import load_config
from fastlloyd.wire.header import PartyId

NAMES = ("operator", "north", "south")
RUN = 'k = 2\nn_total = 10\nbounds = "0,1"\nepsilon = 1.0\nroster = "{}"\n'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with keys of all parties, a roster, a run file without a key, and records."""
    folder = tmp_path_factory.mktemp("site")
    for rank, name in enumerate(NAMES):
        keygen.main(["--name", name, "--rank", str(rank), "--prefix", str(folder / str(rank))])
        roster.main(["add", "--roster", str(folder / "roster.toml"), "--cert", str(folder / f"{rank}.pem")])
    (folder / "run.toml").write_text(RUN.format(folder / "roster.toml"))
    (folder / "records.csv").write_text("a,b\n0,0\n1,1\n0.5,1\n")
    return folder


def checked(site: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> list[str]:
    capsys.readouterr()
    code = check.main(["--config", str(site / "run.toml"), "--data", str(site / "records.csv"), *flags])
    assert code == 0
    return capsys.readouterr().out.splitlines()


def test_a_plan_needs_no_key(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.main(["--config", str(site / "run.toml"), "-n", "3", "--d", "2"]) == 0
    assert "round 1:" in capsys.readouterr().out


def test_labels_need_no_key(site: Path, tmp_path: Path) -> None:
    flags = ["--config", str(site / "run.toml"), "--centroids", str(site / "records.csv")]
    assert label.main([*flags, "--data", str(site / "records.csv"), "--out", str(tmp_path / "out.csv")]) == 0
    assert (tmp_path / "out.csv").exists()


def test_a_run_still_needs_roster_and_key(site: Path) -> None:
    with pytest.raises(ConfigError, match="belong together"):
        load_config(site / "run.toml")
    half = load_config(site / "run.toml", links=False)
    # Whoever came by the check must not end in a demonstration without keys.
    with pytest.raises(ConfigError, match="belong together"):
        load_identity(half, PartyId(1), 2)
    with pytest.raises(ConfigError, match="belong together"):
        find_own_rank(RunConfig(key="k"), 1)


def test_no_key_is_said_with_rank_and_name(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = checked(site, capsys, "--client", "2")
    assert "roster    complete: the server and 2 clients" in said
    assert "key       missing: no --key; a run needs the key of rank 2 ('south')" in said
    assert said[-1] == "records ready; still missing: the key of rank 2 ('south')"
    anyone = checked(site, capsys)[-1]
    assert all(f"rank {rank} ('{name}')" in anyone for rank, name in enumerate(NAMES))
    assert anyone.endswith("--client says which")


def test_a_key_file_that_is_not_here(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = checked(site, capsys, "--client", "1", "--key", str(site / "gone.key"))
    assert said[-2].startswith("key       missing for rank 1 ('north'): no file")
    assert said[-1] == "records ready; still missing: the key of rank 1 ('north')"
    said = checked(site, capsys, "--key", str(site / "gone.key"))
    assert said[-1] == f"records ready; still missing: the key {site / 'gone.key'}"


@pytest.mark.parametrize("flags", [("--client", "2"), ()])
def test_the_own_key_is_recognised(site: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]) -> None:
    said = checked(site, capsys, "--key", str(site / "2.key"), *flags)
    assert said[-2:] == ["key       of rank 2 ('south'), as in the roster", "ready"]


def test_a_template_is_looked_up_for_every_rank(site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "1.key").write_bytes((site / "1.key").read_bytes())
    (tmp_path / "1.key").chmod(0o600)
    said = checked(site, capsys, "--key", str(tmp_path / "{client}.key"))
    assert [line.partition(" no file")[0] for line in said[-4:]] == [
        "key       missing for rank 0 ('operator'):",
        "key       of rank 1 ('north'), as in the roster",
        "key       missing for rank 2 ('south'):",
        "ready",
    ]
    said = checked(site, capsys, "--client", "2", "--key", str(tmp_path / "{client}.key"))
    assert said[-1] == "records ready; still missing: the key of rank 2 ('south')"


def test_a_roster_that_is_not_here(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = str(site / "gone.toml")
    said = checked(site, capsys, "--roster", gone, "--key", str(site / "1.key"))
    assert said[-2:] == [
        f"roster    missing: no file {gone}; the key is not checked",
        f"records ready; still missing: the roster {gone}",
    ]


def test_a_key_without_a_roster(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = ["--bounds", "0,1", "--k", "2", "--n-total", "10"]
    code = check.main(["--data", str(site / "records.csv"), "--key", str(site / "1.key"), *known])
    assert code == 0
    assert capsys.readouterr().out.splitlines()[-1] == "records ready; still missing: a roster"


def test_a_file_that_is_wrong_ends_the_check(site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"client 1, but its --key belongs to client 2 \('south'\)"):
        checked(site, capsys, "--client", "1", "--key", str(site / "2.key"))
    assert "rows      3" in capsys.readouterr().out  # after what could be checked
    keygen.main(["--name", "stranger", "--rank", "3", "--prefix", str(tmp_path / "stranger")])
    with pytest.raises(ConfigError, match="not in the roster"):
        checked(site, capsys, "--key", str(tmp_path / "stranger.key"))
    with pytest.raises(ConfigError, match="--client 3: the roster has 2 clients"):
        checked(site, capsys, "--client", "3", "--key", str(site / "2.key"))
    (tmp_path / "half.toml").write_text("")
    with pytest.raises(ConfigError, match="lacks the server"):
        checked(site, capsys, "--roster", str(tmp_path / "half.toml"), "--key", str(site / "2.key"))


def test_no_word_of_keys_without_a_roster(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = ["--bounds", "0,1", "--k", "2", "--n-total", "10"]
    assert check.main(["--data", str(site / "records.csv"), *known]) == 0
    said = capsys.readouterr().out
    assert "key  " not in said and said.endswith("ready\n")


def test_a_key_of_nobody_names_no_other_client(site: Path, tmp_path: Path) -> None:
    keygen.main(["--name", "stranger", "--rank", "3", "--prefix", str(tmp_path / "stranger")])
    config = RunConfig(roster=str(site / "roster.toml"), key=str(tmp_path / "stranger.key"))
    with pytest.raises(ConfigError, match="--key: this key is not in the roster") as caught:
        find_own_rank(config, None)
    assert "client" not in str(caught.value)


def test_a_run_file_that_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.toml")
    with pytest.raises(ConfigError, match="--config .*expected an ordinary file, it is a pipe"):
        load_config(str(tmp_path / "run.toml"))
