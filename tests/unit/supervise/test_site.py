"""The service of a site meets hostile offers: none stops it, none reaches what is the site's own."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from fastlloyd.cli.check import main as main_check
from fastlloyd.cli.discard import main as main_discard
from fastlloyd.cli.release import main as main_release
from fastlloyd.cli.site import main
from fastlloyd.crypto.link.identity import load_key, make_identity, save_identity
from fastlloyd.crypto.link.roster import Roster, RosterEntry
from fastlloyd.errors import ConfigError, PeerError, PeerTimeout
from fastlloyd.gate.decisions import Decision
from fastlloyd.gate.store import draft_folder, hold
from fastlloyd.run.own_rank import find_own_rank, load_identity
from fastlloyd.run.run_file import load_config, refuse_own_keys
from fastlloyd.run.state import StateDir, resume_words
from fastlloyd.supervise import offers, runs, status
from fastlloyd.supervise import site as module
from fastlloyd.supervise.joined import JoinedRuns
from fastlloyd.supervise.offers import MOST_WAITING, SiteSettings, keep_offer, read_settings, write_offer
from fastlloyd.supervise.runs import BegunRun, is_running, locked_log, read_cause, read_ending
from fastlloyd.supervise.site import Site
from fastlloyd.supervise.status import SiteStatus
from fastlloyd.wire.header import PartyId

OFFER = 'k = 2\nbounds = "-1,1"\nn_total = 120\nrounds = 4\nepsilon = 5.0\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A client's folder with one good offer; nobody listens at its server."""
    entries = []
    for rank, role in enumerate(["server", "client", "client"]):
        one = make_identity(f"site {rank}", rank)
        save_identity(one, tmp_path / f"{rank}.key", tmp_path / f"{rank}.pem")
        entries.append(RosterEntry(one.name, role, rank, one.certificate_pem))
    Roster(tuple(entries)).save(tmp_path / "roster.toml")
    made = tmp_path / "north"
    (made / "offers").mkdir(parents=True)
    (made / "offers" / "march.toml").write_text(OFFER)
    (made / "site.toml").write_text(
        'server = "127.0.0.1:1"\nkey = "../1.key"\nroster = "../roster.toml"\ndata = "own.csv"\n'
    )
    StateDir(str(made / "state"), PartyId(1), new=True).open_ledger().close()
    return made


def test_a_mistyped_key_is_compared_with_those_of_the_service_too(folder: Path) -> None:
    with (folder / "site.toml").open("a") as file:
        file.write("evry = 3\n")
    with pytest.raises(ConfigError, match=r"unknown key 'evry' \(did you mean 'every'\?\)"):
        read_settings(folder)


def test_codes_of_missing_values_may_be_numbers_and_a_mistake_names_the_file(folder: Path) -> None:
    text = (folder / "site.toml").read_text()
    (folder / "site.toml").write_text(f"{text}na = [-999, 99.9]\n")
    assert read_settings(folder).own["na"] == ("-999", "99.9")
    (folder / "site.toml").write_text(f"{text}na = [true]\n")
    with pytest.raises(ConfigError, match=r"/site\.toml: --na: expected a list of names, got \[True\]"):
        read_settings(folder)


def test_the_records_of_a_site_may_be_in_a_database(folder: Path) -> None:
    text = (folder / "site.toml").read_text()
    for data, moved in (
        ("postgresql://reader@db.example.org/omop", "postgresql://reader@db.example.org/omop"),
        ("sqlite:///omop.db", f"sqlite:///{folder}/omop.db"),
        ("sqlite:////srv/omop.db", "sqlite:////srv/omop.db"),
        ("own.xlsx#2024", str(folder / "own.xlsx#2024")),
    ):
        (folder / "site.toml").write_text(text.replace("own.csv", data))
        assert read_settings(folder).own["data"] == moved
    (folder / "site.toml").write_text(text.replace("own.csv", "-"))
    with pytest.raises(ConfigError, match="--data -: a service joins many runs, and has none"):
        read_settings(folder)


def look(folder: Path) -> list[str]:
    """Look once; gives what was said to people."""
    said: list[str] = []
    assert Site(read_settings(folder), said.append).serve(once=True) == 0
    return said


def person(folder: Path, *words: str) -> int:
    """Do what a person types; gives the exit code."""
    before = os.umask(0o022)
    try:
        return main([str(folder), *words])
    finally:
        os.umask(before)


def begin(folder: Path, **changes: object) -> BegunRun:
    """Write down that a run began."""
    (folder / "runs").mkdir(exist_ok=True)
    values: dict[str, Any] = {"name": "march", "instance": "", "output": "march", "result": "good", "resumes": True}
    begun = BegunRun(**(values | {"ledger": 0, "log": 0} | changes))
    runs.keep(folder / "runs" / "last.json", begun)
    return begun


def approve(folder: Path) -> None:
    (folder / "approvals").mkdir()
    (folder / "approvals" / "march.json").write_text("{}")


def states(folder: Path) -> dict[str, dict[str, str]]:
    offers: dict[str, dict[str, str]] = json.loads((folder / "status.json").read_text())["offers"]
    return offers


def test_a_name_that_is_no_text_stops_nothing_and_speaks_to_no_terminal(folder: Path) -> None:
    for name in (b"\xff\xfe.toml", b"\x1b[2Jall is well\n.toml", "a\u202eb.toml".encode(), b".toml.toml"):
        (folder / "offers" / os.fsdecode(name)).write_text(OFFER)
    said = look(folder)
    assert all(line.isprintable() for line in said)
    found = states(folder)
    assert found.pop("march")["state"] == "waits for consent"
    assert {offer["state"] for offer in found.values()} == {"refused"} and len(found) == 4


def test_names_that_are_no_longer_offered_are_forgotten(folder: Path) -> None:
    service = Site(read_settings(folder), lambda line: None)
    for turn in range(3):
        for number in range(5):
            (folder / "offers" / f"no name {turn} {number}.toml").write_text("")
        service.serve(once=True)
        for path in (folder / "offers").glob("no name*"):
            path.unlink()
        assert len(states(folder)) == 6


def test_a_thousand_offers_hide_none_that_is_approved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, read, written = [], [], []
    monkeypatch.setattr(JoinedRuns, "_run", lambda self, *words: ran.append(words) or (3, "nobody there"))
    real, replace = module.check_offer, runs.replace_file
    monkeypatch.setattr(module, "check_offer", lambda path: read.append(path) or real(path))
    monkeypatch.setattr(
        runs, "replace_file", lambda path, *more, **how: written.append(path) or replace(path, *more, **how)
    )
    for number in range(offers.MOST_OFFERS + 5):
        (folder / "offers" / f"{number:04d}.toml").write_text("x")
    (folder / "approvals").mkdir()
    (folder / "approvals" / "march.json").write_text("{}")
    service = Site(read_settings(folder), lambda line: None)
    service.serve(once=True)
    assert len(ran) == 1 and states(folder)["march"]["state"] == "waits for the server"
    assert len(states(folder)) == offers.MOST_OFFERS + 1 == len(read)
    assert [path.name for path in written].count("status.json") < 100
    # At the next look only what has changed is read again.
    (folder / "offers" / "0003.toml").write_text("xy")
    service.serve(once=True)
    assert len(ran) == 2 and [path.name for path in read[offers.MOST_OFFERS + 1 :]] == ["0003.toml"]


def test_what_an_offer_says_of_itself_is_shown_in_part(folder: Path) -> None:
    (folder / "offers" / "long.toml").write_text(f'"{"x" * 100_000}" = 1')
    look(folder)
    assert len(states(folder)["long"]["more"]) <= 2000


HUGE = {
    "decimal": "epsilon = 1" + "0" * 400,
    "hexadecimal": "k = 0x" + "f" * 8000,
    "negative": "n_total = -1" + "0" * 400,
    "in a list": "bounds = [0x" + "f" * 8000 + ", 1]",
    "in a list of numbers": "client_caps = [1" + "0" * 400 + ", 1]",
    "in a table": "[fastlloyd-plus]\nx = [{y = 0x" + "f" * 8000 + "}]",
    "a deadline": "deadline = 1" + "0" * 400,
}


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE.keys())
def test_a_number_that_nobody_can_write_stops_nothing(folder: Path, text: str) -> None:
    (folder / "offers" / "april.toml").write_text(text)
    look(folder)
    found = states(folder)
    assert found["april"]["state"] == "refused" and len(found["april"]["more"]) < 2000
    assert found["march"]["state"] == "waits for consent"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('metrics = "{there}"', "metrics is each site's own"),
        ('log_file = "{there}"', "log_file is each site's own"),
        ('log-file = "{there}"', "log_file is each site's own"),
        ("overwrite = true", "overwrite is each site's own"),
        ('protocol = "vertical-he"\ncolumns = ["age"]', "does not cover the columns that a site brings"),
        ('bounds = "../site.toml"', "expected a file beside the offer"),
        ('categories = "/etc/passwd"', "expected a file beside the offer"),
        ('bounds = "\\u0000x"', "expected a file beside the offer"),
    ],
)
def test_an_offer_that_changes_after_it_was_checked_reaches_for_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, line: str, sentence: str
) -> None:
    offer, there = folder / "offers" / "march.toml", folder.parent / "there"
    ran: list[tuple[Any, ...]] = []
    real = module.check_offer

    def check(path: Path) -> None:
        real(path)
        content = "" if line.startswith("bounds") else 'bounds = "-1,1"\n'
        public = OFFER.replace("rounds = 4\n", "") if "vertical" in line else OFFER
        offer.write_text(public.replace('bounds = "-1,1"\n', content) + line.format(there=there) + "\n")

    monkeypatch.setattr(module, "check_offer", check)
    monkeypatch.setattr(JoinedRuns, "_run", lambda self, *words: ran.append(words) or (3, "nobody there"))
    (folder / "approvals").mkdir()
    (folder / "approvals" / "march.json").write_text("{}")
    look(folder)
    assert states(folder)["march"]["state"] == "refused" and sentence in states(folder)["march"]["more"]
    assert ran == [] and not (folder / "runs" / "march.toml").exists()


def test_an_offer_that_stays_as_it_is_is_joined(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[Any, ...]] = []
    monkeypatch.setattr(JoinedRuns, "_run", lambda self, *words: ran.append(words) or (3, "nobody there"))
    (folder / "offers" / "bounds.csv").write_text("feature,lo,hi\na,0,1\n")
    (folder / "offers" / "march.toml").write_text(OFFER.replace('"-1,1"', '"bounds.csv"') + "deadline = 9.0\n")
    (folder / "approvals").mkdir()
    (folder / "approvals" / "march.json").write_text("{}")
    look(folder)
    assert states(folder)["march"] == {"state": "waits for the server", "more": "nobody there"}
    public, own = ((folder / "runs" / name).read_text() for name in ("march.toml", "march.own.toml"))
    assert len(ran) == 1 and "deadline = 9.0\n" in public and "print_result = false\nquiet" in own
    assert "resume = false\n" in own and "resume" not in public and "data" not in public and "roster" not in public
    refuse_own_keys(folder / "runs" / "march.toml")


def test_a_run_that_has_spent_is_not_joined_again_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = folder / "state" / "client-1" / "ledger.jsonl"
    ran: list[tuple[Any, ...]] = []

    def run(self: JoinedRuns, *words: Any) -> tuple[int, str]:
        ran.append(words)
        ledger.parent.mkdir(parents=True, exist_ok=True)
        with ledger.open("a") as file:
            file.write("one more release\n")
        return 3, "client 2 is gone"

    monkeypatch.setattr(JoinedRuns, "_run", run)
    (folder / "approvals").mkdir()
    (folder / "approvals" / "march.json").write_text("{}")
    for _ in range(2):
        look(folder)
        assert states(folder)["march"]["state"] == "failed"
        assert states(folder)["march"]["more"].startswith("client 2 is gone; fastlloyd site ")
    assert len(ran) == 1


def test_a_declined_offer_is_listed_and_never_joined_unless_somebody_agrees_after_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[Any, ...]] = []
    monkeypatch.setattr(JoinedRuns, "_run", lambda self, *words: ran.append(words) or (3, "nobody there"))
    assert person(folder, "--agree", "march", "--yes", "--d", "2") == 0
    assert person(folder, "--decline", "march") == 0
    said = look(folder)
    assert states(folder)["march"]["state"] == "declined" and "--agree march" in said[0] and ran == []
    assert not (folder / "approvals" / "march.json").exists(), "nothing consents to it any more"
    with pytest.raises(ConfigError, match="nobody to ask"):
        person(folder, "--agree", "march", "--d", "2")
    look(folder)
    assert states(folder)["march"]["state"] == "declined" and ran == []
    assert person(folder, "--agree", "march", "--yes", "--d", "2") == 0
    look(folder)
    assert states(folder)["march"]["state"] == "waits for the server" and len(ran) == 1


def test_whoever_agrees_again_replaces_the_approval_of_an_older_version(folder: Path) -> None:
    approve(folder)
    assert person(folder, "--agree", "march", "--yes", "--d", "2") == 0
    assert "epsilon" in (folder / "approvals" / "march.json").read_text()


def test_an_offer_that_cannot_be_read_can_be_declined_and_one_that_has_ended_cannot(folder: Path) -> None:
    (folder / "offers" / "april.toml").write_text("epsilon = ")
    assert person(folder, "--decline", "april") == 0
    look(folder)
    assert states(folder)["april"]["state"] == "declined"
    (folder / "outcomes" / "march.json").write_text('{"site": 1, "code": 3, "said": "x", "ended_at": "then"}')
    with pytest.raises(ConfigError, match="'march' has ended: there is nothing to decline"):
        person(folder, "--decline", "march")
    with pytest.raises(ConfigError, match="there is no offer 'may'"):
        person(folder, "--decline", "may")


def test_declined_offers_leave_room_for_others_of_the_server(folder: Path) -> None:
    settings = read_settings(folder)
    (folder / "planned.toml").write_text(OFFER)
    content = write_offer(load_config(folder / "planned.toml"), "third")
    for number in range(MOST_WAITING):
        (folder / "offers" / f"{number}.toml").write_text(OFFER)
    with pytest.raises(ConfigError, match="16 offers wait for consent"):
        keep_offer(settings, content)
    for name in ("march", "0"):
        assert person(folder, "--decline", name) == 0
    assert keep_offer(settings, content).name == "third"


def test_files_that_are_no_offers_keep_none_of_the_server_out(folder: Path) -> None:
    settings = read_settings(folder)
    (folder / "planned.toml").write_text(OFFER)
    for number in range(3 * MOST_WAITING):
        (folder / "offers" / f"{number:03d}.toml").write_text("x" if number % 2 else 'output = "elsewhere"\n')
    assert keep_offer(settings, write_offer(load_config(folder / "planned.toml"), "third")).name == "third"


def test_offers_that_wait_keep_none_out_that_is_approved(folder: Path) -> None:
    settings = read_settings(folder)
    approve(folder)
    content = write_offer(load_config((folder / "offers" / "march.toml").rename(folder / "planned.toml")), "march")
    for number in range(2 * MOST_WAITING):
        (folder / "offers" / f"{number:03d}.toml").write_text(OFFER)
    assert keep_offer(settings, content).name == "march" and (folder / "offers" / "march.toml").exists()


def test_what_the_server_offers_and_no_site_can_join_is_not_kept_and_may_be_corrected(folder: Path) -> None:
    settings = read_settings(folder)
    (folder / "planned.toml").write_text(OFFER)
    good = json.loads(write_offer(load_config(folder / "planned.toml"), "third"))
    for run in ("[[[", good["run"] + 'output = "elsewhere"\n', good["run"] + 'categories = "../x.csv"\n'):
        with pytest.raises(PeerError, match="the server's offer third is refused, and not kept: .*third.toml"):
            keep_offer(settings, json.dumps(good | {"run": run, "bounds": "feature,lo,hi\na,0,1\n"}).encode())
        assert [path.name for path in settings.offers.iterdir()] == ["march.toml"]
    assert keep_offer(settings, json.dumps(good).encode()).name == "third"


@pytest.mark.parametrize("linked", ["march.toml", "march.bounds.csv"])
def test_a_link_to_a_file_of_the_site_is_no_file_of_an_offer(folder: Path, linked: str) -> None:
    """Whoever may write offers shows nobody a file that only the site may read, and has none of it sent."""
    (folder / "private").mkdir()
    offers_folder, private = folder / "offers", folder / "private" / linked
    (offers_folder / "march.toml").write_text(OFFER.replace('"-1,1"', '"march.bounds.csv"'))
    (offers_folder / "march.bounds.csv").write_text("feature,lo,hi\na,0,1\n")
    assert person(folder, "--agree", "march", "--yes") == 0
    (offers_folder / linked).rename(private)
    (offers_folder / linked).symlink_to(private)
    with pytest.raises(ConfigError, match=f"offers/{linked}: expected a file in the folder of the offer, it is a link"):
        person(folder, "--agree", "march", "--yes")
    look(folder)
    assert states(folder)["march"]["state"] == "refused"
    with pytest.raises(ConfigError, match="it is a link to another"):
        offers.take_offer(offers_folder / "march.toml", read_settings(folder).own)
    # As Kubernetes shows a ConfigMap: links within the folder.
    (offers_folder / "..data").mkdir()
    (offers_folder / linked).unlink()
    private.rename(offers_folder / "..data" / linked)
    (offers_folder / linked).symlink_to(Path("..data", linked))
    assert person(folder, "--decline", "march") == person(folder, "--agree", "march", "--yes") == 0


@pytest.mark.parametrize(("mine", "kept"), [("k = 3\n", False), (None, True)])
def test_an_offer_that_comes_at_the_same_time_is_not_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, mine: str | None, kept: bool
) -> None:
    settings = read_settings(folder)
    (folder / "planned.toml").write_text(OFFER)
    content = write_offer(load_config(folder / "planned.toml"), "second")
    text, path = mine or json.loads(content)["run"], folder / "offers" / "second.toml"

    def count(settings: SiteSettings) -> int:
        path.write_text(text)
        return 0

    monkeypatch.setattr(offers, "_count_waiting", count)
    with contextlib.nullcontext() if kept else pytest.raises(PeerError, match="offers another second than the one in"):
        assert keep_offer(settings, content).name == "second"
    assert path.read_text() == text
    assert sorted(each.name for each in path.parent.iterdir()) == ["march.toml", "second.toml"]


def test_how_long_a_server_is_waited_for_is_the_site_s_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(JoinedRuns, "_run", lambda self, *words: ran.append(words) or (3, "nobody there"))
    (folder / "offers" / "march.toml").write_text(OFFER + "setup_deadline = 86400.0\n")
    (folder / "approvals").mkdir()
    (folder / "approvals" / "march.json").write_text("{}")
    look(folder)
    with (folder / "site.toml").open("a") as file:
        file.write("patience = 2.5\n")
    look(folder)
    assert [words[words.index("--patience") + 1] for words in ran] == ["60", "2.5"]
    assert "setup_deadline = 86400.0\n" in (folder / "runs" / "march.toml").read_text()


@pytest.mark.parametrize(("last", "resumed"), [("march", "true"), ("april", "false")])
def test_only_its_own_run_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch, last: str, resumed: str) -> None:
    monkeypatch.setattr(JoinedRuns, "_run", lambda self, *words: (3, "nobody there"))
    for name in ("approvals", "runs"):
        (folder / name).mkdir()
    # What a run keeps from its round 0 on; a folder without it is that of a run that failed before.
    (folder / "state/client-1/run/facts.json").write_text("{}")
    (folder / "approvals" / "march.json").write_text("{}")
    begin(folder, name=last, over=True)
    look(folder)
    assert f"resume = {resumed}\n" in (folder / "runs" / "march.own.toml").read_text()


def test_a_folder_whose_state_is_gone_is_not_served(folder: Path) -> None:
    (folder / "state").rename(folder / "elsewhere")
    with pytest.raises(ConfigError, match="expected the state of client 1 .* fastlloyd init-state .*/state --rank 1"):
        look(folder)


def test_a_run_that_failed_before_its_first_round_is_begun_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JoinedRuns, "_run", lambda self, *words: (3, "nobody there"))
    for name in ("approvals", "runs"):
        (folder / name).mkdir()
    assert (folder / "state/client-1/run").is_dir()
    (folder / "approvals" / "march.json").write_text("{}")
    begin(folder, over=True)
    look(folder)
    assert "resume = false\n" in (folder / "runs" / "march.own.toml").read_text()


@pytest.mark.parametrize(
    ("spent", "broken", "log", "state", "said"),
    [
        (True, False, "round 4 of 10\n", "done", "good"),  # the orphan finished
        (True, True, "fastlloyd: client 3 was interrupted\n", "failed", "client 3 was interrupted; fastlloyd site"),
        (True, True, "round 4 of 10\n", "waits for the server", "nobody there"),  # killed with the service: it goes on
        (False, False, "round 4 of 10\n", "waits for the server", "nobody there"),
    ],
)
def test_a_run_that_a_killed_service_began_has_the_end_that_it_had(
    folder: Path, monkeypatch: pytest.MonkeyPatch, spent: bool, broken: bool, log: str, state: str, said: str
) -> None:
    ran: list[Any] = []
    ledger = folder / "state/client-1/ledger.jsonl"

    def run(self: JoinedRuns, *words: Any) -> tuple[int, str]:
        ran.append(words)
        return 3, "nobody there"

    monkeypatch.setattr(JoinedRuns, "_run", run)
    approve(folder)
    begin(folder)
    (folder / "logs").mkdir()
    (folder / "logs" / "march.log").write_text(log)
    if spent:
        ledger.write_text("a release\n")
    if broken:
        (folder / "state/client-1/run/facts.json").write_text("{}")
    look(folder)
    found = states(folder)["march"]
    assert found["state"] == state and found["more"].startswith(said), found
    assert len(ran) == (state == "waits for the server"), "what is paid for is not joined again"
    if ran:
        assert f"resume = {str(broken).lower()}\n" in (folder / "runs" / "march.own.toml").read_text()


def test_an_orphan_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = folder / "logs" / "march.log"
    log.parent.mkdir()
    with locked_log(log) as descriptor:
        process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=descriptor)
    assert is_running(log)
    seen: list[str] = []

    def beat(self: SiteStatus) -> None:
        seen.append(states(folder)["march"]["state"])
        (folder / "state/client-1/ledger.jsonl").write_text("a release\n")
        process.communicate()

    monkeypatch.setattr(SiteStatus, "beat", beat)
    begin(folder, pid=process.pid)
    said = look(folder)
    assert seen == ["running"] and "an earlier service began it" in said[0]
    assert states(folder)["march"] == {"state": "done", "more": "good"} and not is_running(log)


def test_a_run_that_ended_well_while_the_service_was_stopped_is_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: JoinedRuns, *words: Any) -> tuple[int, str]:
        self.stopped = True
        return 0, ""

    monkeypatch.setattr(JoinedRuns, "_run", run)
    approve(folder)
    look(folder)
    assert states(folder)["march"]["state"] == "done"


@pytest.mark.parametrize("structured", [False, True])
def test_an_outcome_says_the_cause_and_not_the_advice(tmp_path: Path, structured: bool) -> None:
    log, own = tmp_path / "log", tmp_path / "client-1"
    lines = ["set-up: 10 s so far; waiting", "client 3 (west) was interrupted", resume_words(own)]
    written = [
        json.dumps({"level": "error", "message": line}) if structured else f"fastlloyd: {line}" for line in lines
    ]
    log.write_text("old\nround 4 of 10\n" + "\n".join(written) + "\n")
    assert read_cause(log, 4, own) == "client 3 (west) was interrupted"
    log.write_text("fastlloyd: old\nround 4 of 10\n")
    assert read_cause(log, 0, own) == read_cause(tmp_path / "none", 0, own) == ""


@pytest.mark.parametrize("free", [20480, 1 << 30])
def test_a_log_that_a_full_disk_cut_is_not_called_silent(
    folder: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    monkeypatch.setattr(runs.shutil, "disk_usage", lambda place: SimpleNamespace(free=free))
    monkeypatch.setattr(JoinedRuns, "_run", lambda self, *words: (2, ""))
    approve(folder)
    look(folder)
    said = states(folder)["march"]["more"]
    assert ("no space is left in" in said) == (free < 1 << 16) != ("its log says no more" in said), said


def test_a_full_disk_ends_no_service_and_pays_nothing_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    full = True
    replace = runs.replace_file

    def write(path: Path, *more: Any, **how: Any) -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(path, *more, **how)

    def run(self: JoinedRuns, *words: Any) -> tuple[int, str]:
        nonlocal full
        ran.append(words)
        full = True
        return 2, "it cost something"

    monkeypatch.setattr(runs, "replace_file", write)
    monkeypatch.setattr(JoinedRuns, "_run", run)
    approve(folder)
    said: list[str] = []
    service = Site(read_settings(folder), said.append)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"status.json: cannot be written \(No space left on device\); make room"):
            service.serve(once=True)
    assert ran == [] and len(said) == 2 and "march: waits for the disk: " in "".join(said)
    full = False  # room, until the run has ended
    for _ in range(2):
        with pytest.raises(ConfigError, match="No space left"):
            service.serve(once=True)
    assert len(ran) == 1
    full = False
    service.serve(once=True)
    ended = read_ending(folder / "outcomes" / "march.json")
    assert len(ran) == 1 and ended is not None and (ended.code, ended.said) == (2, "it cost something")


def test_the_status_says_when_the_service_looked_and_was_alive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(100))
    monkeypatch.setattr(status, "now_text", lambda: f"{next(times)}")
    monkeypatch.setattr(status, "BEAT_S", 0.0)
    service = Site(read_settings(folder), lambda line: None)
    service.serve(once=True)
    first = json.loads((folder / "status.json").read_text())
    service._status.beat()
    second = json.loads((folder / "status.json").read_text())
    assert first["looked_at"] == second["looked_at"] == "0" and int(second["at"]) > int(first["at"])


def test_the_first_status_of_a_service_has_all_offers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "offers" / "april.toml").write_text(OFFER)
    stored: list[dict[str, Any]] = []
    monkeypatch.setattr(status, "keep", lambda path, content: stored.append(content))
    look(folder)
    assert stored and all(content["offers"].keys() == {"april", "march"} for content in stored)


@pytest.mark.parametrize("repeat", [False, True])
def test_an_offer_that_comes_again_is_joined_under_its_approval_or_a_person_is_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, repeat: bool
) -> None:
    with (folder / "site.toml").open("a") as file:
        file.write("ask = true\n" + "budget = 9.0\nrepeat = true\n" * repeat)
    ran: list[BegunRun] = []

    def run(self: JoinedRuns, begun: BegunRun, *words: str) -> tuple[int, str]:
        ran.append(begun)
        (folder / "results" / begun.output).mkdir()
        (folder / "results" / begun.output / "centroids.csv").touch()
        return 0, ""

    monkeypatch.setattr(JoinedRuns, "_run", run)
    (folder / "planned.toml").write_text(OFFER)
    (folder / "offers" / "march.toml").unlink()
    offer = json.loads(write_offer(load_config(folder / "planned.toml"), "march"))
    approve(folder)
    service = Site(read_settings(folder), lambda line: None, lambda: json.dumps(offer).encode())
    for month in ("october", "october", "november", "november"):
        offer["instance"] = month
        service.serve(once=True)
    found = states(folder)["march"]
    if repeat:
        assert [(begun.instance, begun.output) for begun in ran] == [("october", "march"), ("november", "march-2")]
        assert found["state"] == "done"
    else:
        assert [begun.instance for begun in ran] == ["october"] and found["state"] == "offered again"
        assert "another run of november: fastlloyd site" in found["more"] and "--again march joins it" in found["more"]
        person(folder, "--again", "march")
        service.serve(once=True)
        assert [begun.output for begun in ran] == ["march", "march-2"] and states(folder)["march"]["state"] == "done"


def serving(folder: Path, name: str, **changes: object) -> Site:
    """Return a service that asks, and whose server offers this run; its run file is not among the offers yet."""
    with (folder / "site.toml").open("a") as file:
        file.write("ask = true\n")
    return offered(folder, name, **changes)


def offered(folder: Path, name: str, **changes: object) -> Site:
    """Return a service whose server offers this run."""
    (folder / "planned.toml").write_text(OFFER)
    content = json.loads(write_offer(load_config(folder / "planned.toml"), name)) | changes
    (folder / "offers" / f"{name}.toml").write_text(content["run"])
    return Site(read_settings(folder), lambda line: None, lambda: json.dumps(content).encode())


def test_what_the_server_does_not_offer_now_is_not_joined(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[BegunRun] = []
    monkeypatch.setattr(JoinedRuns, "_run", lambda self, begun, *words: ran.append(begun) or (3, "nobody there"))
    service = serving(folder, "march")
    approve(folder)
    for kind in ("offers/april.toml", "approvals/april.json"):
        (folder / kind).write_bytes((folder / kind.replace("april", "march")).read_bytes())
    service.serve(once=True)
    assert [begun.name for begun in ran] == ["march"]
    assert states(folder)["april"] == {"state": "waits for the server", "more": "the server offers march now"}


def test_nothing_is_joined_while_what_the_server_offers_is_not_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[BegunRun] = []
    monkeypatch.setattr(JoinedRuns, "_run", lambda self, begun, *words: ran.append(begun) or (3, "nobody there"))
    service = serving(folder, "march")
    approve(folder)
    for kind in ("offers/april.toml", "approvals/april.json"):
        (folder / kind).write_bytes((folder / kind.replace("april", "march")).read_bytes())
    (folder / "offers" / "march.toml").write_text(OFFER.replace("rounds = 4", "rounds = 5"))
    service.serve(once=True)
    said = "the server offers another march than the one in "
    assert ran == [] and {found["state"] for found in states(folder).values()} == {"waits for the server"}
    assert all(found["more"].startswith(said) for found in states(folder).values())


@pytest.mark.parametrize(("offered", "resumed"), [(True, "true"), (False, "false")])
def test_a_run_that_broke_off_goes_on_only_if_the_server_s_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch, offered: bool, resumed: str
) -> None:
    monkeypatch.setattr(JoinedRuns, "_run", lambda self, *words: (3, "nobody there"))
    service = serving(folder, "march", resume=offered)
    approve(folder)
    (folder / "state/client-1/run/facts.json").write_text("{}")
    begin(folder, over=True)
    service.serve(once=True)
    assert f"resume = {resumed}\n" in (folder / "runs" / "march.own.toml").read_text()


@pytest.mark.parametrize("then", ["resume", "anew", "repeat", "another"])
def test_a_run_that_was_stopped_with_the_service_is_not_paid_for_again_by_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    ran: list[BegunRun] = []

    def run(self: JoinedRuns, begun: BegunRun, *words: str) -> tuple[int, str]:
        ran.append(begun)
        if len(ran) > 1:
            return 0, ""
        self.stopped = True
        (folder / "results" / begun.output).mkdir()
        (folder / "results" / begun.output / "report.json").touch()
        (folder / "state/client-1/ledger.jsonl").write_text("a release\n")
        (folder / "state/client-1/run/facts.json").write_text("{}")
        (folder / "logs" / "march.log").write_text("fastlloyd: told to stop\n")
        return 3, "told to stop"

    monkeypatch.setattr(JoinedRuns, "_run", run)
    approve(folder)
    with (folder / "site.toml").open("a") as file:
        file.write("budget = 9.0\nrepeat = true\n" * (then == "repeat"))
    serving(folder, "march", instance="october").serve(once=True)
    result = f"its result is in {folder / 'results' / 'march'}"
    assert states(folder)["march"] == {"state": "waits for the server", "more": f"told to stop; {result}"}

    def away() -> bytes:
        raise PeerTimeout("no answer", rank=0)

    settings = read_settings(folder)
    Site(settings, lambda line: None, away).serve(once=True)
    more = f"no answer; it goes on where it broke off, if the server does (serve --resume); {result}"
    assert states(folder)["march"] == {"state": "waits for the server", "more": more}
    if then == "another":
        for kind in ("offers/april.toml", "approvals/april.json"):
            (folder / kind).write_bytes((folder / kind.replace("april", "march")).read_bytes())
        offered(folder, "april", instance="november").serve(once=True)
        assert [begun.name for begun in ran] == ["march", "april"]
    offered(folder, "march", instance="december", resume=then == "resume").serve(once=True)
    joined = [begun.resumed for begun in ran if begun.name == "march"]
    if then in ("anew", "another"):
        assert joined == [False] and states(folder)["march"]["state"] == "offered again", states(folder)
        assert states(folder)["march"]["more"].startswith(f"told to stop; {result}; the server offered another run")
        person(folder, "--again", "march")
        offered(folder, "march", instance="december").serve(once=True)
        joined = [begun.resumed for begun in ran if begun.name == "march"]
    assert joined == [False, then == "resume"] and states(folder)["march"]["state"] == "done"


@pytest.mark.parametrize(("resume", "spends"), [(False, True), (True, False)])
@pytest.mark.parametrize("broken", [False, True])
def test_a_run_that_was_killed_once_it_had_ended_well_is_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch, resume: bool, spends: bool, broken: bool
) -> None:
    ledger, facts = folder / "state/client-1/ledger.jsonl", folder / "state/client-1/run/facts.json"

    def run(self: JoinedRuns, *words: Any) -> tuple[int, str]:
        if spends:
            ledger.write_text("a release\n")
        facts.unlink(missing_ok=True)
        if broken:
            facts.write_text("{}")
        return -9, ""

    monkeypatch.setattr(JoinedRuns, "_run", run)
    approve(folder)
    if resume:  # it had spent everything before it broke off
        facts.write_text("{}")
        begin(folder, over=True)
    look(folder)
    found = states(folder)["march"]
    assert found["state"] == ("failed" if broken else "done"), found
    assert not broken or found["more"].startswith("its process was killed; ")


def test_a_run_that_failed_once_its_result_was_written_says_where_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: JoinedRuns, begun: BegunRun, *words: str) -> tuple[int, str]:
        (folder / "results" / begun.output).mkdir()
        (folder / "results" / begun.output / "report.json").touch()
        (folder / "state/client-1/ledger.jsonl").write_text("a release\n")
        return 3, "client 2 was interrupted"

    monkeypatch.setattr(JoinedRuns, "_run", run)
    approve(folder)
    look(folder)
    said = f"client 2 was interrupted; its result is in {folder / 'results' / 'march'}; "
    assert states(folder)["march"]["more"].startswith(said)


@pytest.mark.parametrize("decision", ["released", "discarded"])
@pytest.mark.parametrize(("code", "state"), [(0, "done"), (3, "failed")])
def test_what_was_decided_about_a_held_result_is_what_the_status_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: int, state: str, decision: str
) -> None:
    own, run_id = folder / "state/client-1", "a1" * 16
    earlier = Decision(run="b2" * 16, what="held", output=str(folder / "out"), files={})

    def hold_result(waiting: Decision) -> None:
        (draft_folder(own, waiting.run) / "labels_1.csv").write_text("row,label\n1,0\n")
        hold(own, waiting, None)

    def run(self: JoinedRuns, *words: Any) -> tuple[int, str]:
        hold_result(replace(earlier, run=run_id))
        (own / "ledger.jsonl").write_text("a release\n")
        return code, "" if code == 0 else "client 2 is gone"

    hold_result(earlier)
    monkeypatch.setattr(JoinedRuns, "_run", run)
    with (folder / "site.toml").open("a") as file:
        file.write("review = true\n")
    approve(folder)
    look(folder)
    cause = "" if code == 0 else "client 2 is gone; "
    found = states(folder)["march"]
    assert found["state"] == state, found
    assert found["more"].startswith(f"{cause}the result waits for a decision: fastlloyd release {own}"), found
    words = [str(own), "--run", run_id, "--yes"]
    where = ["--output", str(folder / "out")] if decision == "released" else []
    assert (main_release if where else main_discard)([*words, *where]) == 0
    look(folder)
    found = states(folder)["march"]
    said = rf"{cause}{decision} at [^ ;]+" + (f": results in {where[1]}" if where else "")
    assert found["state"] == state and re.match(said, found["more"]) and "waits" not in found["more"], found


def test_an_orphan_that_had_spent_everything_before_is_done(folder: Path) -> None:
    begin(folder, resumed=True)
    look(folder)
    assert states(folder)["march"] == {"state": "done", "more": "good"}


@pytest.mark.parametrize("more", ["repeat = true\n", "ask = true\nrepeat = true\n", "budget = 1.0\nrepeat = true\n"])
def test_nothing_is_repeated_without_a_budget(folder: Path, more: str) -> None:
    with (folder / "site.toml").open("a") as file:
        file.write(more)
    with pytest.raises(ConfigError, match="repeat: expected ask = true and a budget beside it"):
        read_settings(folder)


def test_the_service_has_metrics(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JoinedRuns, "_run", lambda self, *words: (2, "refused"))
    with (folder / "site.toml").open("a") as file:
        file.write('service_metrics = "site.prom"\n')
    look(folder)
    labels = 'task="site",party="client 1"'
    waits = f'fastlloyd_site_offers{{{labels},state="waits for consent"}} '
    text = (folder / "site.prom").read_text()
    assert waits + "1\n" in text and "last_exit_code" not in text
    assert f"fastlloyd_site_look_time_seconds{{{labels}}} " in text
    # A service that looks once has ended on purpose; one that stays, or was killed, says no such thing.
    assert f"fastlloyd_site_end_time_seconds{{{labels}}} " in text
    stays = Site(read_settings(folder), lambda line: None)
    stays._status.look()
    stays._status.store()
    assert "fastlloyd_site_end_time_seconds" not in (folder / "site.prom").read_text()
    approve_all = folder / "approvals" / "march.json"
    approve_all.write_text("{}")
    look(folder)
    text = (folder / "site.prom").read_text()
    assert waits + "0\n" in text and f"fastlloyd_site_last_exit_code{{{labels}}} 2\n" in text


def test_a_service_and_a_party_open_an_encrypted_key_with_the_file_that_their_own_file_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FASTLLOYD_PASSPHRASE_FILE", raising=False)
    place = folder.parent
    key = load_key(place / "1.key").private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"horse"))
    (place / "1.key").write_bytes(key)
    with pytest.raises(ConfigError, match="passphrase_file in the site's own file"):
        look(folder)
    (place / "phrase").write_text("horse\n")
    (place / "phrase").chmod(0o600)
    (folder / "site.toml").write_text((folder / "site.toml").read_text() + 'passphrase_file = "../phrase"\n')
    look(folder)
    assert states(folder)["march"]["state"] == "waits for consent"
    assert person(folder, "--agree", "march", "--yes", "--d", "2") == 0
    # A party that joins by itself, with relative paths in its own file.
    (place / "run.own.toml").write_text('key = "1.key"\nroster = "roster.toml"\npassphrase_file = "phrase"\n')
    own = load_config(folder / "offers" / "march.toml", site=place / "run.own.toml")
    assert find_own_rank(own, None).me == PartyId(1)
    assert load_identity(own, PartyId(1), 2)[0].name == "site 1"
    assert main_check(["--data", str(records(place)), "--site", str(place / "run.own.toml"), "--clients", "2"]) == 0
    with pytest.raises(ConfigError, match="--passphrase-file is for an encrypted --key"):
        load_config(None, {"passphrase_file": "phrase"})


def records(folder: Path) -> Path:
    path = folder / "own.csv"
    path.write_text("a,b\n0,1\n.5,.5\n1,0\n")
    return path
