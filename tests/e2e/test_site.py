"""`fastlloyd site`: offers, consent, runs with a real server and real other clients, and one ledger."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import time as clock_time

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.supervise.offers import check_offer, read_settings
from tests.e2e.test_serve_join import CLIENTS, LIMIT_S, Sites, parties  # noqa: F401 a fixture
from tests.mpi.support import QUICK, read_matrix

OFFER = 'k = 2\nbounds = "-1,1"\nn_total = 120\nrounds = 4\nepsilon = 5.0\ndeadline = 3.0\nsetup_deadline = {limit}\n'


@pytest.fixture
def folder(parties, tmp_path):  # noqa: F811 a fixture
    """The folder of client 1's service; nobody listens at its server yet."""
    made = tmp_path / "north"
    (made / "offers").mkdir(parents=True)
    (made / "offers" / "first.toml").write_text(OFFER.format(limit=LIMIT_S))
    settle(made, parties, port=1)
    return made


def settle(folder, parties, port, more=""):  # noqa: F811 a fixture
    (folder / "site.toml").write_text(
        f'server = "127.0.0.1:{port}"\nevery = 1\nkey = "{parties}/party_1.key"\nroster = "{parties}/roster.toml"\n'
        f'data = "{parties}/hospital_1.csv"\n{more}'
    )


def site(folder, *words, **how):
    return subprocess.run(
        [sys.executable, "-m", "fastlloyd", "site", str(folder), *words],
        env=os.environ | {"PYTHONPATH": QUICK},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        **how,
    )


def states(folder):
    return {name: offer["state"] for name, offer in json.loads((folder / "status.json").read_text())["offers"].items()}


class Common(Sites):
    """The operator and the other clients, with the offer as their run file."""

    def __init__(self, parties, folder, offer):  # noqa: F811 a fixture
        super().__init__(parties, folder)
        self.flags = ("--config", str(offer), "--roster", str(parties / "roster.toml"))


def run_with(folder, parties, tmp_path, name):  # noqa: F811 a fixture
    """Let the others run the offer, and the site look once."""
    with Common(parties, tmp_path / name, folder / "offers" / f"{name}.toml") as others:
        others.serve()
        settle(folder, parties, others.port)
        for rank in range(2, CLIENTS + 1):
            others.join(rank)
        looked = site(folder, "--once")
        assert looked.returncode == 0, looked.stderr
        assert others.codes(0, *range(2, CLIENTS + 1)) == [0] * CLIENTS, others.said() + looked.stdout
        return read_matrix(others.result(2) / "centroids.csv")


def test_an_offer_waits_for_consent_and_is_joined_once(parties, folder, tmp_path):  # noqa: F811 a fixture
    looked = site(folder, "--once")
    assert (looked.returncode, states(folder)) == (0, {"first": "waits for consent"}), looked.stderr
    assert "--agree first" in looked.stdout and not (folder / "results" / "first").exists()
    agreed = site(folder, "--agree", "first", "--yes")
    assert agreed.returncode == 0 and "epsilon" in agreed.stdout, agreed.stderr

    centers = run_with(folder, parties, tmp_path, "first")
    assert states(folder) == {"first": "done"}
    assert np.array_equal(read_matrix(folder / "results" / "first" / "centroids.csv"), centers)
    ledger = (folder / "state" / "client-1" / "ledger.jsonl").stat().st_size
    assert ledger > 0

    # A second look, with nobody listening any more, joins nothing and spends nothing.
    looked = site(folder, "--once")
    assert (looked.returncode, states(folder)) == (0, {"first": "done"}), looked.stdout
    assert (folder / "state" / "client-1" / "ledger.jsonl").stat().st_size == ledger

    # A second run spends from the same ledger.
    (folder / "offers" / "second.toml").write_text(OFFER.format(limit=LIMIT_S).replace("5.0", "4.0"))
    assert site(folder, "--agree", "second", "--yes").returncode == 0
    run_with(folder, parties, tmp_path, "second")
    assert states(folder) == {"first": "done", "second": "done"}
    assert (folder / "state" / "client-1" / "ledger.jsonl").stat().st_size > ledger


def test_a_changed_offer_is_not_joined(parties, folder, tmp_path):  # noqa: F811 a fixture
    assert site(folder, "--agree", "first", "--yes").returncode == 0
    offer = folder / "offers" / "first.toml"
    offer.write_text(offer.read_text().replace("5.0", "50.0"))
    with Common(parties, tmp_path / "run", offer) as others:
        others.serve()
        settle(folder, parties, others.port)
        for rank in range(2, CLIENTS + 1):
            others.join(rank)
        looked = site(folder, "--once")
        others.codes(0, *range(2, CLIENTS + 1))
    assert looked.returncode == 0 and states(folder) == {"first": "failed"}, looked.stdout
    assert "approved 5, this run has 50" in (folder / "logs" / "first.log").read_text()
    ledger = folder / "state" / "client-1" / "ledger.jsonl"
    assert not ledger.exists() or ledger.stat().st_size == 0


def test_it_tries_again_while_nothing_is_spent_and_stops_when_told(parties, folder):  # noqa: F811 a fixture
    (folder / "offers" / "first.toml").write_text(OFFER.format(limit=2.0))
    assert site(folder, "--agree", "first", "--yes").returncode == 0
    out = folder / "out"
    with out.open("wb") as stream:
        service = subprocess.Popen(
            [sys.executable, "-m", "fastlloyd", "site", str(folder)],
            env=os.environ | {"PYTHONPATH": QUICK},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    try:
        end = time.monotonic() + LIMIT_S
        while out.read_text().count("first: running") < 2:  # port 1: nobody is there, twice
            assert service.poll() is None and time.monotonic() < end, out.read_text()
            time.sleep(0.1)
        assert site(folder, "--once").returncode == 2  # one process for a folder
        service.send_signal(signal.SIGTERM)
        assert service.wait(LIMIT_S) == 0, out.read_text()
    finally:
        service.kill()
        service.wait()
    assert states(folder) == {"first": "waits for the server"}
    assert not (folder / "outcomes" / "first.json").exists()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('data = "/etc/passwd"', "data is each site's own"),
        ('output = "/tmp/there"', "output is each site's own"),
        ('key = "other.key"', "key is each site's own"),
        ('state_dir = "elsewhere"', "state_dir is each site's own"),
        ("budget = 1000.0", "budget is each site's own"),
        ("print_result = true", "print_result is each site's own"),
        ('bounds = "../../secrets.csv"', "expected a file beside the offer"),
        ('categories = "/etc/passwd"', "expected a file beside the offer"),
        ('bounds = ".ssh"', "expected a file beside the offer"),
        ('protocol = "vertical-dp"\ncolumns = ["age"]', "says nothing of the columns that a site brings"),
        ("surprise = 1", "unknown key 'surprise'"),
        ("epsilon = ", "not valid TOML"),
    ],
)
def test_an_offer_reaches_for_nothing_of_the_site(tmp_path, line, sentence):
    offer = tmp_path / "offer.toml"
    offer.write_text(f"{line}\n")
    with pytest.raises(ConfigError, match="offer.toml") as caught:
        check_offer(offer)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("epsilon = 2.0", "epsilon is for the run files in offers"),
        ('bounds = "0,1"', "bounds is for the run files"),
        ('output = "there"', "output is kept below this folder"),
        ('hours = "8-17"', "expected two times"),
        ('hours = "20:00-20:00"', "expected two times"),
        ("surprise = 1", "unknown key 'surprise'"),
    ],
)
def test_a_site_says_what_its_file_may_not_hold(parties, folder, more, sentence):  # noqa: F811 a fixture
    settle(folder, parties, 4400, more)
    with pytest.raises(ConfigError) as caught:
        read_settings(folder)
    assert sentence in str(caught.value)


def test_hours_may_pass_midnight(parties, folder):  # noqa: F811 a fixture
    settle(folder, parties, 4400, 'hours = "20:00-06:00"')
    night = read_settings(folder)
    assert [night.open_at(clock_time(hour)) for hour in (0, 5, 6, 19, 20, 23)] == [True, True, False, False, True, True]
    settle(folder, parties, 4400, 'hours = "06:00-20:00"')
    day = read_settings(folder)
    assert [day.open_at(clock_time(hour)) for hour in (0, 5, 6, 19, 20, 23)] == [False, False, True, True, False, False]
