"""`fastlloyd site`: offers, consent, runs with a real server and real other clients, and one ledger."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime

import numpy as np
import pytest

from fastlloyd.crypto.link import roster
from fastlloyd.describe.columns import columns_from_json
from fastlloyd.errors import ConfigError, PeerError
from fastlloyd.protocols.describe.plan_lines import plan_description
from fastlloyd.run.run_file import load_config
from fastlloyd.run.state import StateDir
from fastlloyd.supervise.offers import MOST_WAITING, check_offer, keep_offer, read_settings, write_offer
from fastlloyd.supervise.site import Site
from fastlloyd.wire.header import PartyId
from tests.e2e.test_serve_join import CLIENTS, LIMIT_S, Sites, parties  # noqa: F401 a fixture
from tests.forked import Forked
from tests.mpi.support import QUICK, quick, read_matrix

OFFER = 'k = 2\nbounds = "-1,1"\nn_total = 120\nrounds = 4\nepsilon = 5.0\ndeadline = 3.0\nsetup_deadline = {limit}\n'


@pytest.fixture
def folder(parties, tmp_path):  # noqa: F811 a fixture
    """The folder of client 1's service; nobody listens at its server yet."""
    made = tmp_path / "north"
    (made / "offers").mkdir(parents=True)
    (made / "offers" / "first.toml").write_text(OFFER.format(limit=LIMIT_S))
    settle(made, parties, port=1)
    StateDir(str(made / "state"), PartyId(1), new=True).open_ledger().close()
    return made


def settle(folder, parties, port, more=""):  # noqa: F811 a fixture
    (folder / "site.toml").write_text(
        f'server = "127.0.0.1:{port}"\nevery = 1\nkey = "{parties}/party_1.key"\nroster = "{parties}/roster.toml"\n'
        f'data = "{parties}/hospital_1.csv"\n{more}'
    )


def site(folder, *words):
    out, err = folder.parent / "said", folder.parent / "complained"
    for path in (out, err):
        path.unlink(missing_ok=True)
    code = Forked(("site", str(folder), *words), out, err, environment=quick()).wait(LIMIT_S)
    return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())


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
    asked = site(folder, "--agree", "first")  # with nobody there to answer
    assert asked.returncode == 2 and "Delta and noise cannot be said" in " ".join(asked.stdout.split()), asked.stdout
    agreed = site(folder, "--agree", "first", "--yes", "--d", "2")
    assert agreed.returncode == 0 and "Promise: epsilon 5, delta 8.33e-05" in agreed.stdout, agreed.stdout

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


def test_a_site_describes_the_clusters_of_a_run_that_it_was_in(parties, folder, tmp_path):  # noqa: F811 a fixture
    """An offer cannot say where the site's result is: the service finds the run by its id, also for the approval."""
    assert site(folder, "--agree", "first", "--yes").returncode == 0
    run_with(folder, parties, tmp_path, "first")
    finished = tmp_path / "first" / "2" / "fastlloyd-run"
    columns = columns_from_json([{"name": "f1", "lo": -1, "hi": 1, "bins": 4}], "the test")
    planned = plan_description(finished, columns, epsilon=3.0)
    offer = folder / "offers" / "described.toml"
    offer.write_text(planned.run_file(offer.parent))
    (tmp_path / "results").mkdir()
    (folder / "results" / "first").rename(tmp_path / "results" / "first")
    asked = site(folder, "--agree", "described", "--yes")
    assert asked.returncode == 2 and "whose result is not in" in " ".join(asked.stderr.split())
    (tmp_path / "results" / "first").rename(folder / "results" / "first")
    agreed = site(folder, "--agree", "described", "--yes")
    assert agreed.returncode == 0 and f"described {folder}/results/first" in " ".join(agreed.stdout.split()), agreed
    with Common(parties, tmp_path / "described", offer) as others:
        others.serve()
        settle(folder, parties, others.port)
        for rank in range(2, CLIENTS + 1):
            others.join(rank, "--described", str(tmp_path / "first" / str(rank) / "fastlloyd-run"))
        looked = site(folder, "--once")
        assert looked.returncode == 0, looked.stderr
        assert others.codes(0, *range(2, CLIENTS + 1)) == [0] * CLIENTS, others.said() + looked.stdout
    assert states(folder) == {"described": "done", "first": "done"}
    profile = (folder / "results" / "described" / "profile.csv").read_text()
    assert profile == (others.result(2) / "profile.csv").read_text() and ",f1,share," in profile
    lines = (folder / "state" / "client-1" / "ledger.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    assert [one["name"] for one in entries if one["run"] != planned.run[0].run] == ["descriptions"]


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
    more = json.loads((folder / "status.json").read_text())["offers"]["first"]["more"]
    assert (
        "approved 5, this run has 50" in more and f"approve them with `fastlloyd site {folder} --agree first`" in more
    )
    ledger = folder / "state" / "client-1" / "ledger.jsonl"
    assert not ledger.exists() or ledger.stat().st_size == 0


def test_a_setting_of_the_site_that_changed_after_consent_is_named(parties, folder):  # noqa: F811 a fixture
    assert site(folder, "--agree", "first", "--yes").returncode == 0
    settle(folder, parties, 1, 'missing = "drop"\n')
    looked = site(folder, "--once")
    assert looked.returncode == 0 and states(folder) == {"first": "failed"}, looked.stdout
    log = (folder / "logs" / "first.log").read_text()
    assert "own settings are not those that a person approved: missing: approved refuse, this run has drop" in log
    assert f"approve them with `fastlloyd site {folder} --agree first`" in log


def test_it_tries_again_while_nothing_is_spent_and_stops_when_told(parties, folder):  # noqa: F811 a fixture
    settle(folder, parties, 1, "patience = 2\n")
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
    assert "within 2 s (connection refused)" in out.read_text() and "--patience allows more time" in out.read_text()
    assert not (folder / "outcomes" / "first.json").exists()


def test_the_server_is_asked_for_its_run_and_a_person_for_consent(parties, folder, tmp_path):  # noqa: F811 a fixture
    (folder / "offers" / "first.toml").unlink()
    (tmp_path / "bounds.csv").write_text("feature,lo,hi\nf1,-1,1\nf2,-1,1\n")
    planned = tmp_path / "planned.toml"
    planned.write_text(OFFER.format(limit=LIMIT_S).replace('"-1,1"', '"bounds.csv"'))
    with Common(parties, tmp_path / "run", planned) as others:
        others.serve("--offer", "march", "--state-dir", "state", "--new-state", "--log-level", "info")
        settle(folder, parties, others.port, "ask = true\n")
        for rank in range(2, CLIENTS + 1):
            others.join(rank)
        looked = site(folder, "--once")
        assert (looked.returncode, states(folder)) == (0, {"march": "waits for consent"}), looked.stdout + looked.stderr
        assert f"asked 127.0.0.1:{others.port}: it offers march" in looked.stdout
        offer = folder / "offers" / "march.toml"
        assert "state" not in offer.read_text() and "roster" not in offer.read_text()
        assert (folder / "offers" / "march.bounds.csv").read_text() == (tmp_path / "bounds.csv").read_text()
        assert "client 1 joined" not in others.out(0)
        assert site(folder, "--agree", "march", "--yes").returncode == 0
        looked = site(folder, "--once")
        assert (looked.returncode, states(folder)) == (0, {"march": "done"}), looked.stdout + looked.stderr
        assert others.codes(0, *range(2, CLIENTS + 1)) == [0] * CLIENTS, others.said()
        assert others.err(0) == ""  # nobody who asks is taken for a stranger
        expected = read_matrix(others.result(2) / "centroids.csv")
    assert np.array_equal(read_matrix(folder / "results" / "march" / "centroids.csv"), expected)
    looked = site(folder, "--once")  # nobody is there any more
    assert "no answer from" in looked.stdout and states(folder) == {"march": "done"}


def test_a_run_that_comes_again_is_joined_under_its_approval_until_the_budget_ends(parties, folder, tmp_path):  # noqa: F811 a fixture
    (folder / "offers" / "first.toml").unlink()
    planned = tmp_path / "planned.toml"
    planned.write_text(OFFER.format(limit=LIMIT_S))

    def month(name, *, consent=False):
        """The server makes its run again under its name; the site looks once."""
        with Common(parties, tmp_path / name, planned) as others:
            others.serve("--offer", "march")
            settle(folder, parties, others.port, "ask = true\nrepeat = true\nbudget = 8.0\n")
            for rank in range(2, CLIENTS + 1):
                others.join(rank)
            if consent:
                assert site(folder, "--once").returncode == 0 and states(folder) == {"march": "waits for consent"}
                assert site(folder, "--agree", "march", "--yes", "--d", "2").returncode == 0
            looked = site(folder, "--once")
            assert looked.returncode == 0, looked.stderr
            return set(others.codes(0, *range(2, CLIENTS + 1))), others.result(2) / "centroids.csv", looked.stdout

    kept = folder / "state" / "client-1" / "ledger.jsonl"
    spent = []
    for name, results, consent in (("september", "march", True), ("october", "march-2", False)):
        codes, centroids, said = month(name, consent=consent)
        assert (codes, states(folder)) == ({0}, {"march": "done"}), said
        assert (folder / "results" / results / "centroids.csv").read_text() == centroids.read_text()
        spent.append(len({json.loads(line)["run"] for line in kept.read_text().splitlines()}))
    assert spent == [1, 2]
    before = kept.read_text()
    codes, _, said = month("november")
    assert codes == {4} and states(folder) == {"march": "failed"} and "budget" in said, said
    assert kept.read_text() == before and not (folder / "results" / "march-3" / "centroids.csv").exists()


def test_an_offer_of_the_server_is_hostile(parties, folder, tmp_path):  # noqa: F811 a fixture
    settle(folder, parties, 4400)
    settings = read_settings(folder)
    planned = tmp_path / "planned.toml"
    planned.write_text('k = 2\nbounds = "-1,1"\nn_total = 120\nbudget = 3.0\nstate_dir = "x"\n')
    content = write_offer(load_config(planned), "second")
    assert keep_offer(settings, content).name == "second"
    check_offer(settings.offers / "second.toml")
    before = sorted(settings.offers.iterdir())
    assert keep_offer(settings, content).name == "second" and sorted(settings.offers.iterdir()) == before
    good = json.loads(content)
    for name, more, sentence in [
        ("another value under a known name", {"run": good["run"] + "\n"}, "offers another second than the one in"),
        ("a name with a path", {"name": "../site"}, "expected a name of letters"),
        ("a name that is none", {"name": ""}, "the offer.name"),
        ("another version", {"offer": 2}, "the offer.offer"),
        ("a file more", {"key": "x"}, "key"),
        ("no text", {"bounds": 7}, "the offer.bounds"),
    ]:
        with pytest.raises(PeerError) as caught:
            keep_offer(settings, json.dumps(good | more).encode())
        assert sentence in str(caught.value), name
    for raw in (b"", b"\xff", b"[" * 1000, b"1" * (1 << 19)):
        with pytest.raises(PeerError, match="cannot be read"):
            keep_offer(settings, raw)
    assert sorted(settings.offers.iterdir()) == before
    for number in range(MOST_WAITING):
        (settings.offers / f"{number}.toml").write_text(OFFER.format(limit=LIMIT_S))
    with pytest.raises(ConfigError, match="16 offers wait for consent"):
        keep_offer(settings, json.dumps(good | {"name": "third"}).encode())
    # One that is known is no new one, and one that was agreed to waits no more.
    assert keep_offer(settings, json.dumps(good).encode()).name == good["name"]
    (settings.folder / "approvals").mkdir(exist_ok=True)
    for number in range(3):
        (settings.folder / "approvals" / f"{number}.json").touch()
    assert keep_offer(settings, json.dumps(good | {"name": "third"}).encode()).name == "third"


def test_an_offer_has_the_settings_of_its_own_protocol_alone(tmp_path):
    text = 'k = 2\nn_total = 9\nbounds = "-1,1"\nprotocol = "fastlloyd"\n[vertical-he]\nmode = "threshold"\n'
    (tmp_path / "run.toml").write_text(text)
    run = json.loads(write_offer(load_config(tmp_path / "run.toml", links=False), "march"))["run"]
    assert 'protocol = "fastlloyd"' in run and "vertical" not in run


@pytest.mark.parametrize(
    ("name", "bounds", "sentence"),
    [
        ("no name", "-1,1", "--offer: expected a name"),
        ("march", "bounds_{client}.csv", "is another file at each party"),
        ("march", "nowhere.csv", "nowhere.csv: cannot be read"),
        ("march", "long.csv", "send them manually"),
    ],
)
def test_what_cannot_be_offered_is_refused_in_a_sentence(tmp_path, name, bounds, sentence):
    (tmp_path / "long.csv").write_text("f" * (1 << 18))
    (tmp_path / "run.toml").write_text(f'k = 2\nn_total = 9\nbounds = "{bounds}"\n')
    with pytest.raises(ConfigError) as caught:
        write_offer(load_config(tmp_path / "run.toml", links=False), name)
    assert sentence in str(caught.value)


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
        ('protocol = "vertical-dp"\ncolumns = ["age"]', "does not cover the columns that a site brings"),
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
        ("ask = 1", "ask: expected true or false, got 1"),
        ("patience = 0", "patience: expected a number from 1 to 86400, got 0"),
        ("surprise = 1", "unknown key 'surprise'"),
        ('zone = "Europe/Nowhere"', 'zone: expected a time zone that this machine knows, as "Europe/Berlin"'),
        ('zone = "../../etc/passwd"', "zone: expected a time zone"),
        ('zone = "Europe"', "zone: expected a time zone"),
    ],
)
def test_a_site_says_what_its_file_may_not_hold(parties, folder, more, sentence):  # noqa: F811 a fixture
    settle(folder, parties, 4400, more)
    with pytest.raises(ConfigError) as caught:
        read_settings(folder)
    assert sentence in str(caught.value)


def test_a_service_says_once_that_certificates_expire(parties, folder, monkeypatch):  # noqa: F811 a fixture
    settle(folder, parties, 4400)
    said = []
    service = Site(read_settings(folder), said.append)
    service.serve(once=True)
    assert not [line for line in said if "expires" in line]
    monkeypatch.setattr(roster, "WARN_DAYS", 100_000)
    service.serve(once=True)
    service.serve(once=True)
    assert len([line for line in said if "expires on" in line]) == CLIENTS + 1


def test_hours_may_pass_midnight_and_have_a_time_zone(parties, folder):  # noqa: F811 a fixture
    hours = (0, 5, 6, 19, 20, 23)

    def open_hours(zone):
        night = read_settings(folder)
        return [night.open_at(datetime(2026, 7, 1, hour, tzinfo=zone)) for hour in hours]

    settle(folder, parties, 4400, 'hours = "20:00-06:00"\nzone = "UTC"')
    assert open_hours(UTC) == [True, True, False, False, True, True]
    settle(folder, parties, 4400, 'hours = "06:00-20:00"\nzone = "UTC"')
    assert open_hours(UTC) == [False, False, True, True, False, False]
    settle(folder, parties, 4400, 'hours = "06:00-20:00"\nzone = "Europe/Berlin"')  # two hours before UTC in summer
    assert open_hours(UTC) == [False, True, True, False, False, False]
    # On the nights in which clocks change, the clock on the wall counts: 2 to 3 is left out, or there twice.
    settle(folder, parties, 4400, 'hours = "22:00-03:00"\nzone = "Europe/Berlin"')
    settings = read_settings(folder)
    for day, closes in ((datetime(2026, 3, 29, tzinfo=UTC), 1), (datetime(2026, 10, 25, tzinfo=UTC), 2)):
        assert [settings.open_at(day.replace(hour=hour)) for hour in range(4)] == [hour < closes for hour in range(4)]
    settle(folder, parties, 4400, 'hours = "06:00-20:00"')
    assert open_hours(None) == [False, False, True, True, False, False]  # the clock of this machine
    settings = read_settings(folder)
    assert settings.describe_hours(datetime.now(UTC)).startswith("06:00-20:00, the clock of this machine (")
