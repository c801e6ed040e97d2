"""Approvals: each value that differs is named, and a file that anybody may have written is taken apart strictly."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.__main__ import main
from fastlloyd.crypto.link.identity import Identity, make_identity, save_identity
from fastlloyd.crypto.link.roster import Roster, RosterEntry
from fastlloyd.dossier.approval import (
    Approval,
    Approved,
    approved_by_all,
    check_approval,
    read_approval,
    read_approvals,
    read_expiry,
    sign_approval,
)
from fastlloyd.dossier.approval import approved as approved_by_client
from fastlloyd.errors import ConfigError, Reason
from fastlloyd.protocols import registry
from fastlloyd.report.announcer import Announcer
from fastlloyd.run.config import OPTIONS, RunConfig
from fastlloyd.run.execute import execute
from fastlloyd.run.inputs import public_values
from fastlloyd.run.own_rank import OwnRank
from fastlloyd.run.run_file import load_config, with_values
from fastlloyd.run.session import find_protocol
from fastlloyd.wire.header import PartyId
from fastlloyd.wire.values import differences, digest, flatten
from tests.net.memory import MemoryNetwork

IDENTITIES = [make_identity(f"site {rank}", rank) for rank in range(3)]
NOW = "2026-11-22T18:00:00+00:00"
PUBLIC: dict[str, Any] = {"data": "own.csv", "bounds": "0,10", "n_total": 150, "k": 3, "rounds": 1}


def roster(identities: list[Identity]) -> Roster:
    return Roster(
        tuple(
            RosterEntry(one.name, "client" if rank else "server", rank, one.certificate_pem)
            for rank, one in enumerate(identities)
        )
    )


ROSTER = roster(IDENTITIES)


def values(config: RunConfig, parties: Roster = ROSTER) -> dict[str, Any]:
    filled, common = find_protocol(config.protocol).gather(config, len(parties.entries) - 1)
    return public_values(filled, common, parties)


AGREED = RunConfig(**PUBLIC)
VALUES = values(AGREED)
APPROVAL = sign_approval(VALUES, IDENTITIES[1], ROSTER, approved_at=NOW)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"protocol": "glloyd"}, "protocol: approved fastlloyd-plus, this run has glloyd"),
        ({"columns": ["age", "dose"]}, "columns: approved none, this run has age, dose"),
        ({"k": 4}, "k: approved 3, this run has 4"),
        ({"epsilon": 2}, "epsilon: approved 1, this run has 2"),
        ({"delta": 1e-5}, "delta: approved not set, this run has 1e-05"),
        ({"rounds": 2}, "rounds: approved 1, this run has 2"),
        ({"n_total": 160}, "n_total: approved 150, this run has 160"),
        ({"client_caps": [100, 50]}, "client_caps: approved none, this run has 100, 50"),
        ({"seed": 7}, "seed: approved 0, this run has 7"),
        ({"masking": "pairwise"}, "masking: approved common, this run has pairwise"),
        ({"ring_bits": 64}, "ring_bits: approved 32, this run has 64"),
        ({"min_clients": 1}, "min_clients: approved not set, this run has 1"),
        ({"fastlloyd-plus": {"reach": 0.7}}, "settings.reach: approved nothing, this run has 0.7"),
        ({"bounds": "0,12"}, "bounds.every feature: approved 0, 10, this run has 0, 12"),
        ({"masking": "pairwise", "known_shares": 1, "epsilon": 3.5}, "epsilon: approved 1, this run has 3.5"),
    ],
)
def test_each_public_value_that_differs_is_named_with_both(change: Mapping[str, Any], sentence: str) -> None:
    found = differences(VALUES, values(with_values(AGREED, change)))
    assert sentence in found
    with pytest.raises(ConfigError, match="this is not the run that client 1 approved: "):
        check_approval(APPROVAL, values(with_values(AGREED, change)), "--approval")


def test_a_build_with_other_results_is_another_run_than_was_approved(monkeypatch: pytest.MonkeyPatch) -> None:
    row = registry.find("fastlloyd-plus")
    before, now = row.results, row.results + 1
    assert VALUES["results_version"] == before
    monkeypatch.setitem(registry._BY_NAME, "fastlloyd-plus", replace(row, results=now))
    with pytest.raises(ConfigError, match=f"approved: results_version: approved {before}, this run has {now}; if"):
        check_approval(APPROVAL, values(AGREED), "--approval")


def test_a_value_that_follows_is_told_only_where_what_it_follows_from_is_not() -> None:
    found = differences(VALUES, values(with_values(AGREED, {"epsilon": 2})))
    assert found == ["epsilon: approved 1, this run has 2"]


def test_another_party_or_key_is_named_and_not_the_roster_s_digest() -> None:
    other = roster([*IDENTITIES[:2], make_identity("clinic", 2)])
    found = differences(VALUES, values(AGREED, other))
    assert len(found) == 2
    assert "parties.client 2.name: approved site 2, this run has clinic" in found
    assert all("fingerprint" in text or "name" in text for text in found)


def test_whatever_all_parties_must_have_alike_is_part_of_it() -> None:
    assert {name for name, option in OPTIONS.items() if option.public} <= VALUES.keys()
    filled, common = find_protocol("fastlloyd").gather(AGREED, 2)
    elsewhere = {"resume", "public", "version", "split"}
    assert common.agreed_values(filled, b"").keys() - VALUES.keys() == elsewhere


def test_what_is_each_party_s_own_business_needs_no_approval() -> None:
    own = with_values(AGREED, {"deadline": 5, "output": "there", "missing": "drop", "quiet": True, "log_level": "info"})
    check_approval(APPROVAL, values(own), "--approval")
    resumed = with_values(AGREED, {"resume": True, "state_dir": "state"})
    check_approval(APPROVAL, values(resumed), "--approval")


def test_alignment_of_vertical_tables_is_part_of_it_and_columns_are_not() -> None:
    config = RunConfig(protocol="vertical-dp", **PUBLIC | {"rounds": None})
    agreed = values(config)
    assert agreed["bounds"] is None
    assert differences(agreed, values(with_values(config, {"columns": ["age"]}))) == []
    found = differences(agreed, values(with_values(config, {"vertical": {"align": "intersect"}})))
    assert found == ["vertical.align: approved check, this run has intersect"]


def test_names_with_dots_do_not_hide_a_difference() -> None:
    before, now = {"bounds": {"a.b": [0, 1]}}, {"bounds": {"a": {"b": [0, 1]}}}
    approval = sign_approval(before, IDENTITIES[1], ROSTER, approved_at=NOW)
    with pytest.raises(ConfigError, match="bounds.a.b: approved nothing, this run has 0, 1"):
        check_approval(approval, now, "--approval")


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_what_agree_writes_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path / "approval.json", APPROVAL.text())
    assert read_approval(path, ROSTER) == APPROVAL
    assert APPROVAL.digest == digest(VALUES).hex()


def changed(**fields: Any) -> str:
    content = json.loads(APPROVAL.text()) | fields
    return json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "expected JSON"),
        (b"\xff\xfe", "expected JSON in UTF-8"),
        ("[]", "expected an object"),
        ("{}", "expected the fields"),
        (b" " * ((1 << 24) + 1), "expected JSON of at most"),
        (json.dumps(json.loads(APPROVAL.text())), "in another form"),
        (APPROVAL.text() + " ", "in another form"),
        (APPROVAL.text().replace('"rank": 1', '"rank": 1, "rank": 1'), "each key once"),
        (changed(more=1), "with ['more'] in addition"),
        (changed(approval=1), "approval: expected 2, got 1"),
        (changed(rank=True), "rank: expected a whole number"),
        (changed(rank=-1), "rank: expected a whole number"),
        (changed(name=""), "name: expected text of 1 to 64"),
        (changed(values=[]), "values: expected an object"),
        (changed(values={"epsilon": "\ud800"}).encode("utf-8", "surrogatepass"), "expected JSON in UTF-8"),
        (changed(values=VALUES | {"epsilon": 2.0}), "its digest is not that of its values"),
        (changed(digest="0" * 64), "its digest is not that of its values"),
        (changed(signature="00"), "signature: expected text of 128"),
        (changed(signature="zz" * 64), "is not signed with the key"),
        (changed(signature="00" * 64), "is not signed with the key"),
        (changed(approved_at="2025-01-01T00:00:00+00:00"), "is not signed with the key"),
        (changed(rank=2, name="site 2"), "is not signed with the key"),
        (changed(rank=2), "which is not in this roster"),
        (changed(rank=9), "which is not in this roster"),
    ],
    ids=lambda value: str(value)[:20],  # no keys: to all workers of pytest-xdist a test has the same name
)
def test_a_file_that_is_no_approval_is_refused(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    path = written(tmp_path / "approval.json", text)
    with pytest.raises(ConfigError) as caught:
        read_approval(path, ROSTER)
    assert sentence in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["2027-01-31", "2027-01-31T12:00:00+01:00", "2027-01-31T12:00Z", "9999-12-31"])
def test_an_approval_ends_where_it_says(tmp_path: Path, text: str) -> None:
    signed = sign_approval(VALUES, IDENTITIES[1], ROSTER, approved_at=NOW, expires=text)
    path = written(tmp_path / "approval.json", signed.text())
    assert read_approval(path, ROSTER) == signed
    end = read_expiry(text)
    assert end.tzinfo is not None and end > datetime(2027, 1, 31, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    ["2027-02-30", "2027-01-31T12:00:00", "tomorrow", "2027-1-31", "20270131", "2027-01-31T25:00:00Z", " 2027-01-31"],
)
def test_an_end_that_is_no_moment_is_refused(
    tmp_path: Path, text: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signed = sign_approval(VALUES, IDENTITIES[1], ROSTER, approved_at=NOW, expires=text)
    with pytest.raises(ConfigError, match="is not an approval of `fastlloyd agree`"):
        read_approval(written(tmp_path / "approval.json", signed.text()), ROSTER)
    assert main([*AGREE, "--yes", "--expires", text]) == 2
    assert "--expires" in capsys.readouterr().err and not list(site.glob("approval_1*"))


def test_an_approval_that_has_ended_refuses_the_run(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*AGREE, "--yes", "--expires", "2020-01-31"]) == 2
    assert "expected a day or time in the future" in capsys.readouterr().err
    assert main([*AGREE, "--yes", "--expires", "2999-01-31"]) == 0
    assert "holds until 2999-01-31" in capsys.readouterr().out
    approval = read_approval(site / "approval_1.json", ROSTER)
    assert approval.expires == "2999-01-31"
    ended = sign_approval(approval.values, IDENTITIES[1], ROSTER, approved_at=NOW, expires="2020-01-31")
    codes, said = run(site, {1: Approved({"--approval": ended})})
    assert codes == [2, 2, 2]
    assert "--approval: the approval of client 1 has ended, it held until 2020-01-31" in said[1]


def test_another_roster_another_signer_and_no_file(tmp_path: Path) -> None:
    path = written(tmp_path / "approval.json", APPROVAL.text())
    replaced = roster([IDENTITIES[0], make_identity("site 1", 1), IDENTITIES[2]])
    with pytest.raises(ConfigError, match="the key was replaced since"):
        read_approval(path, replaced)
    with pytest.raises(ConfigError, match="not in the roster"):
        sign_approval(VALUES, make_identity("stranger"), ROSTER, approved_at=NOW)
    with pytest.raises(ConfigError, match="cannot read the approval"):
        read_approval(tmp_path / "nothing.json", ROSTER)
    with pytest.raises(ConfigError, match="it is a folder"):
        read_approval(tmp_path, ROSTER)


def test_a_signed_record_does_not_pass_for_an_approval(tmp_path: Path) -> None:
    from fastlloyd.crypto.link.identity import sign

    record = sign(IDENTITIES[1], APPROVAL.statement()).hex()
    path = written(tmp_path / "approval.json", replace(APPROVAL, signature=record).text())
    with pytest.raises(ConfigError, match="is not signed with the key"):
        read_approval(path, ROSTER)


def test_a_folder_needs_one_approval_of_each_client(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no approval of 'site 1' \\(client 1\\), 'site 2' \\(client 2\\)"):
        read_approvals(tmp_path, ROSTER)
    written(tmp_path / "one.json", APPROVAL.text())
    written(tmp_path / "notes.txt", "not looked at")
    with pytest.raises(ConfigError, match="no approval of 'site 2'"):
        read_approvals(tmp_path, ROSTER)
    written(tmp_path / "two.json", sign_approval(VALUES, IDENTITIES[2], ROSTER, approved_at=NOW).text())
    assert len(read_approvals(tmp_path, ROSTER)) == 2
    written(tmp_path / "three.json", APPROVAL.text())
    with pytest.raises(ConfigError, match="are both approvals of client 1"):
        read_approvals(tmp_path, ROSTER)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_approvals(tmp_path / "nowhere", ROSTER)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keys, roster, run file and records of three parties, in the current folder."""
    for rank, one in enumerate(IDENTITIES):
        save_identity(one, tmp_path / f"{rank}.key", tmp_path / f"{rank}.pem")
        (tmp_path / f"{rank}.csv").write_text("age,dose\n" + "1,2\n3,4\n9,8\n" * 10)
    ROSTER.save(tmp_path / "roster.toml")
    (tmp_path / "run.toml").write_text(
        'roster = "roster.toml"\nbounds = "0,10"\nn_total = 150\nk = 3\nrounds = 1\nprotocol = "lloyd"\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


AGREE = ("agree", "--config", "run.toml", "--key", "1.key")


def test_agree_shows_everything_and_writes_only_what_a_person_has_approved(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    assert main([*AGREE]) == 2
    assert "add --yes if a person has decided" in capsys.readouterr().err
    for answer in ("no\n", "\n", "", "y\n"):
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        assert main([*AGREE]) == 2
        assert "not approved; nothing was written" in capsys.readouterr().err
        assert not list(site.glob("approval*"))
    monkeypatch.setattr("sys.stdin", Terminal("yes\n"))
    assert main([*AGREE]) == 0
    shown = capsys.readouterr().out
    assert "site 1 (client 1)" in shown and "n_total" in shown and "bounds.every feature" in shown
    approval = read_approval(site / "approval_1.json", ROSTER)
    assert (approval.rank, approval.values["protocol"]) == (1, "lloyd")
    assert main([*AGREE, "--yes"]) == 2
    assert "exists already" in capsys.readouterr().err


def test_agree_shows_the_delta_that_the_run_takes(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = site / "run.toml"
    path.write_text(path.read_text().replace("lloyd", "fastlloyd"))
    assert main([*AGREE, "--yes", "--d", "2"]) == 0
    assert re.search(r"settled\.delta +6\.66667e-05 \(automatic\)\n", capsys.readouterr().out)


def test_agree_and_the_dossier_list_the_same_and_all_that_the_digest_covers(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*AGREE, "--yes", "--d", "2"]) == 0
    shown = capsys.readouterr().out.partition("the same for all parties:\n\n")[2].partition("\n\ndigest of")[0]
    listed = [re.split(" {2,}", line.strip()) for line in shown.splitlines()]
    assert main(["dossier", "--config", "run.toml", "--d", "2"]) == 0
    section = capsys.readouterr().out.partition(". Public values of this run\n")[2]
    cells = [re.findall(r"[^|]+", line) for line in section.splitlines() if line.startswith("|")][2:]
    assert [[cell.strip().replace("\\", "") for cell in row] for row in cells] == listed
    names = {name for name, _ in listed}
    flat = dict(flatten(read_approval(site / "approval_1.json", ROSTER).values))
    assert {"bounds.every feature", "parties.client 2.fingerprint", "roster"} <= names
    # What is left out was settled as it was asked for.
    assert flat.keys() > names and all(
        flat[name] == flat[name.removeprefix("settled.")] for name in flat.keys() - names
    )


def test_agree_needs_a_key_of_the_roster_and_takes_the_server_s(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_identity(make_identity("stranger"), site / "stranger.key", site / "stranger.pem")
    for flags, sentence in [
        (["--key", "stranger.key"], "this key is not in the roster"),
        (["--key", "{client}.key"], "name this site's own key"),
        ([], "--roster and --key"),
    ]:
        assert main(["agree", "--config", "run.toml", "--yes", *flags]) == 2
        assert sentence in capsys.readouterr().err
    assert main(["agree", "--config", "run.toml", "--key", "0.key", "--yes"]) == 0
    assert read_approval(site / "approval_0.json", ROSTER).name == "site 0"


def run(folder: Path, approvals: Mapping[int, Any], **change: Any) -> tuple[list[int], list[str]]:
    """Run all parties over links with the roster's keys; give their exit codes and what each said."""
    network, said = MemoryNetwork(3), ["", "", ""]

    class Heard(Announcer):
        def complain(self, sentence: str) -> None:
            said[self.me.rank] += sentence

    def one(rank: int) -> int:
        config = RunConfig(
            **PUBLIC
            | {"protocol": "lloyd", "data": str(folder / "{client}.csv"), "roster": str(folder / "roster.toml")}
            | {"key": str(folder / f"{rank}.key"), "output": str(folder / f"out{rank}"), **change}
        )
        me = PartyId(rank)
        with network.endpoint(me) as transport:
            announcer = Heard(me, quiet=True, own_terminal=True)
            return execute(config, transport, announcer, approve=approvals.get(rank)).code

    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(one, range(3))), said


def test_a_run_is_refused_by_who_approved_another_one(site: Path) -> None:
    for rank in (1, 2):
        assert main(["agree", "--config", "run.toml", "--key", f"{rank}.key", "--yes"]) == 0
    config = RunConfig(roster="roster.toml", key="1.key")
    client = approved_by_client(site / "approval_1.json", config, OwnRank(me=PartyId(1)))
    server = approved_by_all(site, config)
    assert run(site, {0: server, 1: client})[0] == [0, 0, 0]
    codes, said = run(site, {1: client}, k=4, overwrite=True)
    assert codes == [2, 2, 2]
    assert "k: approved 3, this run has 4" in said[1]
    refused = "client 1 did not start: what was approved is another configuration (its own standard error"
    for rank in (0, 2):
        assert said[rank].startswith(refused) and "k:" not in said[rank], said
    codes, said = run(site, {0: server}, k=4, overwrite=True)
    assert codes == [2, 2, 2]
    assert "client 1 approved: k: approved 3, this run has 4" in said[0]
    assert all(said[rank].startswith(refused.replace("client 1", "the server")) for rank in (1, 2))
    with pytest.raises(ConfigError, match="it is the approval of 'site 1' \\(client 1\\), and this is client 2"):
        approved_by_client(site / "approval_1.json", config, OwnRank(me=PartyId(2)))


def test_a_roster_that_changes_after_the_approval_was_read_is_refused(site: Path) -> None:
    for rank in (1, 2):
        assert main(["agree", "--config", "run.toml", "--key", f"{rank}.key", "--yes"]) == 0
    config = RunConfig(roster="roster.toml", key="1.key")
    client = approved_by_client(site / "approval_1.json", config, OwnRank(me=PartyId(1)))
    server = approved_by_all(site, config)
    roster([*IDENTITIES[:2], make_identity("clinic", 2)]).save(site / "roster.toml")
    for rank, approve in ((0, server), (1, client)):
        codes, said = run(site, {rank: approve})
        assert codes == [2, 2, 2]
        assert "parties.client 2.name: approved site 2, this run has clinic" in said[rank]


def test_what_is_signed_is_shown_whole(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / "lists.csv").write_text("feature,category\n" + "".join(f"sex,category {i}\n" for i in range(40)))
    with (site / "run.toml").open("a") as file:
        file.write('categories = "lists.csv"\n')
    (site / "run.toml").write_text((site / "run.toml").read_text().replace('bounds = "0,10"\n', ""))
    assert main([*AGREE, "--yes"]) == 0
    assert "category 39" in next(line for line in capsys.readouterr().out.splitlines() if "  categories " in line)


def test_approvals_without_a_roster_prove_nothing(site: Path) -> None:
    with pytest.raises(ConfigError, match="--approval: needs --roster and --key"):
        approved_by_client(site / "approval_1.json", RunConfig(), OwnRank(me=PartyId(1)))
    with pytest.raises(ConfigError, match="--require-approvals: needs --roster and --key"):
        approved_by_all(site, RunConfig())


def test_an_approval_hides_nothing_of_what_is_signed() -> None:
    assert isinstance(APPROVAL, Approval) and json.loads(APPROVAL.text())["values"] == VALUES


OWN = 'data = "own.csv"\nmissing = "refuse"\nbudget = 3.0\nstate_dir = "state"\nroster = "roster.toml"\nkey = "1.key"\n'


@pytest.fixture
def north(tmp_path: Path) -> Path:
    """The folder of client 1, who has a run file of the operator, and a file of its own settings."""
    ROSTER.save(tmp_path / "roster.toml")
    save_identity(IDENTITIES[1], tmp_path / "1.key", tmp_path / "1.pem")
    (tmp_path / "run.toml").write_text('bounds = "0,10"\nn_total = 150\nk = 3\nrounds = 1\n')
    (tmp_path / "own.toml").write_text(OWN)
    return tmp_path


def agree(folder: Path, output: str = "approval.json", *flags: str) -> Path:
    words = ["agree", "--config", str(folder / "run.toml"), "--site", str(folder / "own.toml"), "--yes", "--d", "2"]
    assert main([*words, "--output", str(folder / output), *flags]) == 0
    return folder / output


def own_check(folder: Path, approval: Path, **flags: Any) -> Approved:
    """Check as `join` does, with what stands in the site's own file now."""
    config = load_config(folder / "run.toml", flags, site=folder / "own.toml")
    return approved_by_client(approval, config, OwnRank(me=PartyId(1)))


def test_an_approval_covers_the_site_s_own_settings_and_shows_none_of_them(
    north: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    approval = agree(north)
    said = capsys.readouterr().out
    assert "This site's own settings, which stay here" in said and "approval.json.own belongs beside it" in said
    beside = north / "approval.json.own"
    assert beside.stat().st_mode & 0o777 == 0o600 and '"missing": "refuse"' in beside.read_text()
    assert "own.csv" not in approval.read_text() and "missing" not in approval.read_text()
    own_check(north, approval)
    # Paths count, not how they are written, nor where a command is typed.
    monkeypatch.chdir(north)
    (north / "own.toml").write_text(OWN.replace('"own.csv"', '"../' + north.name + '/own.csv"'))
    own_check(Path(), Path("approval.json"))
    (north / "own.toml").write_text(OWN.replace('"state"', '"elsewhere"') + 'output = "there"\nmetrics = "x.prom"\n')
    own_check(north, approval)


def test_what_others_read_of_it_cannot_be_guessed(north: Path) -> None:
    """The same settings give another commitment each time, so none is a function of the settings alone."""
    seen = {json.loads(agree(north, f"{number}.json").read_text())["own"] for number in range(4)}
    assert len(seen) == 4 and all(re.fullmatch("[0-9a-f]{64}", one) for one in seen)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('missing = "refuse"', 'missing = "drop"', "missing: approved refuse, this run has drop"),
        ('"own.csv"', '"other.csv"', "other.csv"),
        ("budget = 3.0", "budget = 30.0", "budget: approved 3, this run has 30"),
        ("budget = 3.0", 'budget = 3.0\ndecimal = ","\ndelimiter = ";"', "decimal: approved"),
        ("budget = 3.0", "budget = 3.0\nreview = true", "review: approved false, this run has true"),
    ],
)
def test_another_setting_of_the_site_makes_its_approval_stale(north: Path, old: str, new: str, sentence: str) -> None:
    approval = agree(north)
    (north / "own.toml").write_text(OWN.replace(old, new))
    with pytest.raises(ConfigError, match="own settings are not those that a person approved") as caught:
        own_check(north, approval)
    assert sentence in str(caught.value) and caught.value.reason is Reason.NOT_APPROVED
    agree(north, "anew.json")
    own_check(north, north / "anew.json")


def test_a_question_to_a_database_counts_by_its_content(north: Path) -> None:
    (north / "question.sql").write_text("SELECT a, b FROM people")
    database = OWN.replace('"own.csv"', '"postgresql://ward@db/omop"') + 'query = "question.sql"\n'
    (north / "own.toml").write_text(database)
    approval = agree(north)
    own_check(north, approval)
    (north / "question.sql").write_text("SELECT a, b FROM people WHERE ill")
    with pytest.raises(ConfigError, match="query_sha256: approved"):
        own_check(north, approval)
    (north / "question.sql").unlink()
    with pytest.raises(ConfigError, match="--query .*: cannot be read"):
        own_check(north, approval)


def test_what_opens_the_commitment_must_be_there_and_be_the_right_one(north: Path) -> None:
    approval, other = agree(north), agree(north, "other.json")
    beside = north / "approval.json.own"
    (north / "own.toml").write_text(OWN.replace("refuse", "drop"))
    for content in (
        (north / "other.json.own").read_text(),
        beside.read_text().replace("refuse", "drop"),  # to make it fit what is set now
        "{}",
        beside.read_text().replace('"opening": "', '"opening": "zz'),
    ):
        beside.write_text(content)
        with pytest.raises(ConfigError, match="belongs to another approval, or was changed"):
            own_check(north, approval)
    beside.unlink()
    with pytest.raises(ConfigError, match=r"approval\.json\.own, which was written with it, cannot be read"):
        own_check(north, approval)
    assert other.exists()


def test_an_approval_that_names_no_records_covers_the_run_alone(north: Path) -> None:
    words = ["--config", str(north / "run.toml"), "--roster", str(north / "roster.toml"), "--key", str(north / "1.key")]
    assert main(["agree", *words, "--yes", "--d", "2", "--output", str(north / "run.json")]) == 0
    assert "own" not in json.loads((north / "run.json").read_text()) and not (north / "run.json.own").exists()
    own_check(north, north / "run.json", missing="drop")
