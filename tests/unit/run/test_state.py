"""The state directory: private, durable, and only what belongs to the run."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from fastlloyd.crypto.link.identity import make_identity
from fastlloyd.errors import BudgetError, ConfigError, Reason
from fastlloyd.party.effects import Afford
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.privacy.release import Release
from fastlloyd.run.budget_terms import Limit
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import PublicInputs
from fastlloyd.run.machine import Host
from fastlloyd.run.session import Session
from fastlloyd.run.state import StateDir
from fastlloyd.wire.header import SERVER, PartyId

RUN = "ab" * 16
FACTS = {"run_id": RUN, "plan": {"k": 3}, "data": "ff"}
FIRST_LINK = "bd513ac54ec520f7ad6d1a21156578f47c5ddebb72943bbd868cd5306cd374f9"


def entry(t: int) -> Release:
    return Release(run=RUN, round=t, name="sums", mechanism="gaussian", sensitivity=1.0, norm="l2", noise_scale=2.0)


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A state directory after a crash: two rounds in the ledger, one uplink stored."""
    state = StateDir(str(tmp_path), PartyId(1), new=True)
    with state.open_ledger() as ledger:
        state.start(FACTS)
        state.save("seed", bytes(32))
        ledger.record([entry(0)])
        state.save("uplink-0", b"update")
        ledger.record([entry(1)])
    return state.path


def again(path: Path) -> StateDir:
    return StateDir(str(path.parent), PartyId(1))


def made(root: Path, me: PartyId) -> StateDir:
    return StateDir(str(root), me, new=True)


def test_each_party_has_its_own_private_folder(tmp_path: Path) -> None:
    one, server = made(tmp_path / "s{client}", PartyId(1)), made(tmp_path / "s", SERVER)
    assert one.path == tmp_path / "s1" / "client-1"
    assert server.path.name == "server"
    for folder in (one.path, one.path / "run"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    one.save("seed", b"x")
    assert stat.S_IMODE((one.path / "run" / "seed").stat().st_mode) == 0o600


def test_every_folder_that_is_made_is_durable_before_anything_stands_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, set[str]]] = []

    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path.relative_to(tmp_path), {child.name for child in path.iterdir()}))

    monkeypatch.setattr(os, "fsync", note)
    state = StateDir(str(tmp_path / "a" / "b"), PartyId(1), new=True)
    own = Path("a", "b", "client-1")
    above = [(Path(), {"a"}), (Path("a"), {"b"}), (Path("a", "b"), {"client-1"}), (own, {"run"})]
    assert synced == above
    synced.clear()
    monkeypatch.setattr(StateDir, "save", lambda *given: None)
    state.start(FACTS)
    assert synced == [(own, set()), (own, {"run"})]


def test_rounds_read_back_whatever_gaps_there_are(tmp_path: Path) -> None:
    state = StateDir(str(tmp_path), PartyId(2), new=True)
    state.start(FACTS)
    for t in (0, 1, 4, 11):
        state.save(f"uplink-{t}", bytes([t, 10]))
    (state.path / "run" / ".uplink-5.part").write_bytes(b"half")
    assert state.rounds("uplink") == {t: bytes([t, 10]) for t in (0, 1, 4, 11)}
    assert state.rounds("reply") == {}
    assert state.interrupted_run() == FACTS


def test_a_new_run_forgets_the_old_one_and_a_finished_one_leaves_no_seed(tmp_path: Path) -> None:
    state = StateDir(str(tmp_path), PartyId(1), new=True)
    state.start(FACTS)
    state.save("seed", b"secret")
    state.start({**FACTS, "run_id": "cd" * 16})
    assert state.load("seed") is None
    state.save("seed", b"secret")
    state.finish()
    assert not (state.path / "run").exists()


def test_resuming_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no interrupted run") as caught:
        made(tmp_path, PartyId(1)).interrupted_run()
    assert caught.value.reason is Reason.RESUME


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--state-dir") as caught:
        made(tmp_path / "file", PartyId(1))
    assert caught.value.reason is Reason.STATE


def test_a_full_disk_is_named_and_leaves_what_was_stored(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = again(crashed)
    state.interrupted_run()

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(ConfigError, match="uplink-0 cannot be written .No space left") as caught:
        state.save("uplink-0", b"other")
    assert caught.value.reason is Reason.STATE
    assert state.rounds("uplink") == {0: b"update"}


def test_an_honest_crash_can_be_resumed(crashed: Path) -> None:
    state = again(crashed)
    with state.open_ledger() as ledger:
        assert len(ledger.releases) == 2
        assert state.interrupted_run() == FACTS
        assert (state.load("seed"), state.rounds("uplink")) == (bytes(32), {0: b"update"})
    label = json.loads((crashed / "run" / "uplink-0").read_bytes().partition(b"\n")[0])
    assert label["ledger"]["entries"] == 1, "what was on the disk when the uplink was stored"


def lines(path: Path) -> list[bytes]:
    return (path / "ledger.jsonl").read_bytes().splitlines(keepends=True)


def unchained(path: Path) -> bytes:
    """The ledger as fastlloyd 0.1 wrote it."""
    return b"".join(b'{"run' + line.partition(b'", "run')[2] for line in lines(path))


SHORTENED: dict[str, Callable[[Path], bytes | None]] = {
    "emptied": lambda path: b"",
    "deleted": lambda path: None,
    "its first line cut": lambda path: b"".join(lines(path)[1:]),
    "written anew without digests": unchained,
}


@pytest.mark.parametrize("how", list(SHORTENED))
@pytest.mark.parametrize("ended", [False, True], ids=["interrupted", "ended well"])
def test_a_ledger_that_lost_entries_is_refused(crashed: Path, how: str, ended: bool) -> None:
    if ended:
        state = again(crashed)
        with state.open_ledger():
            state.finish()
    else:  # a crash in the first run: only the stored uplink tells
        (crashed / "ledger.jsonl.head").write_text(
            json.dumps({"state": 2, "ledger": {"entries": 0, "link": FIRST_LINK}})
        )
    content = SHORTENED[how](crashed)
    ledger = crashed / "ledger.jsonl"
    if content is None:
        ledger.unlink()
    else:
        ledger.write_bytes(content)
    with pytest.raises(ConfigError, match="ledger") as caught:
        again(crashed).open_ledger()
    assert caught.value.reason is Reason.STATE and caught.value.exit_code == 2


def test_entries_at_the_end_may_lack_only_if_nothing_rests_on_them(crashed: Path) -> None:
    content = lines(crashed)
    (crashed / "ledger.jsonl").write_bytes(content[0])  # the crash could have come before the second
    with again(crashed).open_ledger() as ledger:
        assert len(ledger.releases) == 1
    (crashed / "ledger.jsonl").write_bytes(b"".join(content))
    with again(crashed).open_ledger():
        pass
    (crashed / "ledger.jsonl").write_bytes(content[0])
    with pytest.raises(ConfigError, match="go on from the 2 entries that ledger.jsonl.head notes"):
        again(crashed).open_ledger()


def test_a_party_with_another_rank_than_before_renames_its_folder_and_keeps_its_ledger(crashed: Path) -> None:
    with pytest.raises(ConfigError, match="if the roster gave this party another rank, rename client-1"):
        StateDir(str(crashed.parent), PartyId(3))
    crashed.rename(crashed.with_name("client-3"))
    with StateDir(str(crashed.parent), PartyId(3)).open_ledger() as ledger:
        assert ledger.releases == (entry(0), entry(1))


def test_a_ledger_without_its_head_is_refused(crashed: Path) -> None:
    (crashed / "ledger.jsonl.head").unlink()
    with pytest.raises(ConfigError, match=r"ledger.jsonl.head beside the ledger, got none"):
        again(crashed).open_ledger()


def test_a_ledger_of_an_older_version_is_taken_over(tmp_path: Path) -> None:
    state = StateDir(str(tmp_path), PartyId(1), new=True)
    (state.path / "ledger.jsonl").write_text(entry(0).to_json() + "\n")
    state.open_ledger().close()
    assert json.loads((state.path / "ledger.jsonl.head").read_bytes())["ledger"]["entries"] == 1
    (state.path / "ledger.jsonl").write_bytes(b"")
    with pytest.raises(ConfigError, match="restored from an old copy"):
        StateDir(str(tmp_path), PartyId(1)).open_ledger()


def relabelled(**changes: object) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        first, _, rest = content.partition(b"\n")
        return json.dumps({**json.loads(first), **changes}).encode() + b"\n" + rest

    return change


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut in the label": lambda content: content[:20],
    "cut in the content": lambda content: content[:-1],
    "one bit": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "zeros": lambda content: bytes(len(content)),
    "no JSON": lambda content: b"\xff\xfe" + content,
    "a list": lambda content: b"[]\n",
    "deep": lambda content: b"[" * 500 + b"\n",
    "long": lambda content: b" " * 100_000 + content,
    "older version": lambda content: content.partition(b"\n")[2],
    "other version": relabelled(state=3),
    "state as text": relabelled(state="2"),
    "state as number": relabelled(state=2.0),
    "other run": relabelled(run="cd" * 16),
    "run as number": relabelled(run=1),
    "other name": relabelled(name="uplink-7"),
    "entries as truth": relabelled(ledger={"entries": True, "link": "0" * 64}),
    "digest missing": relabelled(digest=None),
    "one more field": relabelled(more=1),
}


@pytest.mark.parametrize("name", ["facts.json", "seed", "uplink-0"])
@pytest.mark.parametrize("how", list(DAMAGES))
def test_a_damaged_file_ends_a_resume_with_a_sentence(crashed: Path, name: str, how: str) -> None:
    path = crashed / "run" / name
    path.write_bytes(DAMAGES[how](path.read_bytes()))
    state = again(crashed)
    with state.open_ledger(), pytest.raises(ConfigError, match=r"--resume: .*is damaged or of another") as caught:
        state.interrupted_run()
    assert caught.value.exit_code == 2 and caught.value.reason is Reason.RESUME


@pytest.mark.parametrize("name", ["facts.json", "seed", "uplink-0", "uplink-1", "reply-0"])
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_ends_a_resume_with_a_sentence(crashed: Path, name: str, kind: str) -> None:
    path = crashed / "run" / name
    path.unlink(missing_ok=True)
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    state = again(crashed)
    with state.open_ledger(), pytest.raises(ConfigError, match="cannot be read"):
        state.interrupted_run()


FACTS_WRONG = {
    "a list": [],
    "no plan": {"run_id": RUN},
    "no run": {"plan": {}},
    "one more": {**FACTS, "x": 1},
    "run as number": {**FACTS, "run_id": 3},
    "another run": {**FACTS, "run_id": "cd" * 16},
    "plan as list": {**FACTS, "plan": []},
    "data as number": {**FACTS, "data": 1},
}


@pytest.mark.parametrize("how", list(FACTS_WRONG))
def test_facts_of_a_wrong_kind_are_refused(crashed: Path, how: str) -> None:
    state = again(crashed)
    state.interrupted_run()
    state.save("facts.json", json.dumps(FACTS_WRONG[how]).encode())
    with pytest.raises(ConfigError, match=r"facts.json is damaged"):
        again(crashed).interrupted_run()


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"\xff", b'{"state": 1, "ledger": {"entries": 0, "link": ""}}', b"[" * 10_000]
)
def test_a_damaged_head_is_refused(crashed: Path, content: bytes) -> None:
    (crashed / "ledger.jsonl.head").write_bytes(content)
    with pytest.raises(ConfigError, match=r"ledger.jsonl.head is damaged"):
        again(crashed).open_ledger()


def test_two_runs_cannot_use_one_state_directory_at_once(crashed: Path) -> None:
    with again(crashed).open_ledger(), pytest.raises(ConfigError, match="another run holds it"):
        again(crashed).open_ledger()


def test_a_limit_may_state_its_delta_which_then_holds(tmp_path: Path) -> None:
    state = StateDir(str(tmp_path), PartyId(1), new=True)
    first = state.terms.limit(1.5, 1e-4, stated=1e-7)
    assert first == Limit(2, 1.5, 1e-7)
    state.terms.keep_limit(first)
    assert (
        state.terms.limit(1.5, 1e-4)
        == state.terms.limit(None, 1e-4)
        == state.terms.limit(1.5, 1e-4, stated=1e-7)
        == first
    )
    with pytest.raises(ConfigError, match=r"--budget 1.5 --budget-delta 0.0001: expected .* 1.5 at delta 1e-07"):
        state.terms.limit(1.5, 1e-6, stated=1e-4)


@pytest.mark.parametrize("changes", [{"budget_delta": 1e-6}, {"budget": 1.0, "budget_delta": 1.0}], ids=str)
def test_a_delta_belongs_to_a_budget(changes: dict[str, float], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--budget-delta"):
        RunConfig(state_dir=str(tmp_path), **changes)


def test_a_limit_is_fixed_by_its_first_run(tmp_path: Path) -> None:
    state = StateDir(str(tmp_path), PartyId(1), new=True)
    assert state.terms.limit(None, 1e-6) is None
    first = state.terms.limit(1.5, 1e-6)
    assert first is not None
    assert state.terms.limit(2.5, 1e-5) == Limit(2, 2.5, 1e-5), "a limit that was not kept does not bind"
    state.terms.keep_limit(first)
    for epsilon in (1.5, None):
        assert state.terms.limit(epsilon, 0.1) == first, "a larger delta does not help"
    for epsilon in (1.6, 1.4):
        with pytest.raises(
            ConfigError, match=r"budget.json holds, 1.5 at delta 1e-06; give that one or none, or remove"
        ):
            state.terms.limit(epsilon, 1e-6)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[2, 1.5, 1e-6]",
        b'{"state": 2, "epsilon": "1.5", "delta": 1e-6}',
        b'{"state": 2, "epsilon": NaN, "delta": 1e-6}',
        b'{"state": 2, "epsilon": 1.5, "delta": 0.9}',
        b'{"state": 2, "epsilon": -1, "delta": 1e-6}',
        b'{"state": 2, "epsilon": 1.5, "delta": true}',
        b'{"state": 1, "epsilon": 1.5, "delta": 1e-6}',
    ],
)
def test_a_damaged_limit_is_refused(tmp_path: Path, content: bytes) -> None:
    state = StateDir(str(tmp_path), PartyId(1), new=True)
    (state.path / "budget.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"budget.json is damaged") as caught:
        state.terms.limit(None, 1e-6)
    assert caught.value.reason is Reason.STATE


def test_a_ledger_of_rows_counts_no_people(tmp_path: Path) -> None:
    state = StateDir(str(tmp_path), PartyId(1), new=True)
    for column in ("patient", None, "family", "patient"):
        with state.open_ledger() as ledger:
            state.keep_unit(column)  # nothing was released yet
    with state.open_ledger() as ledger:
        ledger.record([entry(0)])
        state.keep_unit("patient")
        for other, asked in ((None, "rows"), ("family", "people, by --unit family")):
            with pytest.raises(
                ConfigError, match=f"counts epsilon for people, by --unit patient, .* {asked}"
            ) as caught:
                state.keep_unit(other)
            assert caught.value.reason is Reason.STATE
        (state.path / "unit.json").write_text("{}")
        with pytest.raises(ConfigError, match=r"unit.json is damaged"):
            state.keep_unit("patient")
        (state.path / "unit.json").unlink()
        state.keep_unit(None)  # a ledger of an earlier version
        with pytest.raises(ConfigError, match="counts epsilon for rows, and this run protects people"):
            state.keep_unit("patient")


def test_a_ledger_of_users_counts_them_by_one_column(tmp_path: Path) -> None:
    state, patient = made(tmp_path, PartyId(1)), "--set feddp.users=patient"
    with state.open_ledger() as ledger:
        state.keep_unit(None)
        ledger.record([entry(0)])  # for rows: the accountant says that it promises users nothing
        state.keep_unit(patient)
        state.keep_unit(None)
        with pytest.raises(ConfigError, match="for people, by --set feddp.users=patient, .* by --set feddp.users=ward"):
            state.keep_unit("--set feddp.users=ward")
        with pytest.raises(ConfigError, match="by --unit patient: one says nothing about the other"):
            state.keep_unit("patient")


def test_a_resume_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no interrupted run") as caught:
        StateDir(str(tmp_path / "new"), PartyId(1), resume=True)
    assert caught.value.reason is Reason.RESUME and not (tmp_path / "new").exists()


def test_a_larger_delta_does_not_pass_a_limit_that_is_exceeded(tmp_path: Path) -> None:
    state = StateDir(str(tmp_path), PartyId(1), new=True)
    ledger = Ledger()
    me = PartyId(1)

    def host(budget: float | None) -> Host:
        session = Session(
            me=me,
            everybody=(me,),
            config=RunConfig(budget=budget, state_dir=str(tmp_path)),
            inputs=PublicInputs(public=None, bounds=None, caps=(), dataset=None, splits=None),
            identity=make_identity(str(me), me.rank),
            run_id=bytes.fromhex(RUN),
            ledger=ledger,
        )
        return Host(session, state=state)

    host(3.0).perform(Afford((entry(0),), 1e-6))
    ledger.record([entry(0)])
    assert ledger.epsilon(1e-6) < 3.0
    for budget in (3.0, None):
        with pytest.raises(BudgetError):
            host(budget).perform(Afford((entry(1),), 0.4))


def test_a_state_that_is_not_there_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    # A disk that is not mounted, a mistyped path: what was spent would count as nothing.
    with pytest.raises(ConfigError, match="expected the state of client 1 .* found no ledger there") as caught:
        StateDir(str(tmp_path), PartyId(1))
    assert caught.value.reason is Reason.STATE and not (tmp_path / "client-1").exists()
    with made(tmp_path, PartyId(1)).open_ledger():
        pass
    made(tmp_path, PartyId(1))  # nothing is spent yet
    with again(tmp_path / "client-1").open_ledger() as ledger:
        ledger.record([entry(0)])
    with pytest.raises(ConfigError, match="holds the ledger of earlier runs.* --new-state"):
        made(tmp_path, PartyId(1))
    again(tmp_path / "client-1").open_ledger().close()
    (tmp_path / "client-1" / "ledger.jsonl").unlink()
    with pytest.raises(ConfigError, match="found no ledger there"):
        again(tmp_path / "client-1")
    with pytest.raises(ConfigError, match="another one of 0: it was cut"):
        made(tmp_path, PartyId(1)).open_ledger()
