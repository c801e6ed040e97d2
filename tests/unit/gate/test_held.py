"""Results that wait: they leave once, whole and as they were written, or never; each decision is entered before."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fastlloyd.__main__ import main
from fastlloyd.errors import ConfigError
from fastlloyd.gate import held as gate
from fastlloyd.gate import store
from fastlloyd.gate.decisions import NAME, Decision, Decisions
from fastlloyd.gate.held import Held, find_held
from fastlloyd.gate.store import draft_folder, drop_draft, hold, is_held, locked

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
RUN, OTHER = "a1" * 16, "b2" * 16
FILES = {"report.json": "{}", "centroids.csv": "x\n1.0\n", "labels_1.csv": "row,label\n1,0\n", "config.toml": "k = 1\n"}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A party's state folder with a privacy ledger, and one result that waits."""
    folder = tmp_path / "state" / "client-1"
    folder.mkdir(parents=True)
    (folder / "ledger.jsonl").write_text("what was spent\n")
    wait(folder)
    return folder


def wait(state: Path, run: str = RUN, key: Ed25519PrivateKey | None = KEY, output: str = "") -> Decision | None:
    draft = draft_folder(state, run)
    for name, text in FILES.items():
        (draft / name).write_text(text)
    where = output or str(state.parents[1] / "out")
    return hold(
        state, Decision(run=run, what="held", output=where, files={"labels_1.csv": ""}, own=("labels_1.csv",)), key
    )


def release(state: Path, output: Path, run: str = RUN, overwrite: bool = False) -> Decision:
    return Held(state=state, run=run).release(output, overwrite=overwrite, note="fine", key=KEY)


def test_it_waits_where_its_owner_alone_can_read(state: Path) -> None:
    folder = state / "held" / RUN
    assert folder.stat().st_mode & 0o777 == 0o700 and is_held(folder) and not is_held(state)
    assert {path.name for path in folder.iterdir()} == set(FILES)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert not (state.parents[1] / "out").exists() and list((state / "held").iterdir()) == [folder]


def test_a_release_moves_all_files_out_and_is_entered(state: Path, tmp_path: Path) -> None:
    entry = release(state, tmp_path / "out")
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == FILES
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()}
    assert modes == dict.fromkeys(FILES, 0o600) | {"config.toml": 0o644}
    assert list((state / "held").iterdir()) == []
    last = Decisions(state).last(RUN)
    assert last == entry and (last.what, last.note, last.output) == ("released", "fine", str(tmp_path / "out"))
    assert (state / "ledger.jsonl").read_text() == "what was spent\n"


def test_nothing_is_decided_twice(state: Path, tmp_path: Path) -> None:
    release(state, tmp_path / "out")
    with pytest.raises(ConfigError, match=r"no result waits for a decision; run a1a1a1a1 was released at .* to .*out"):
        find_held(state.parent)
    with pytest.raises(ConfigError, match="was released at .* cannot be discarded"):
        Held(state=state, run=RUN).discard(note="", key=KEY)
    wait(state, OTHER)
    Held(state=state, run=OTHER).discard(note="too few", key=KEY)
    assert list((state / "held").iterdir()) == []
    with pytest.raises(ConfigError, match="was discarded at .*, and cannot be released"):
        release(state, tmp_path / "other", OTHER)
    with pytest.raises(ConfigError, match="run b2b2b2b2 was discarded"):
        find_held(state, "b2")
    assert [entry.what for entry in Decisions(state)._entries] == ["held", "released", "held", "discarded"]
    assert (state / "ledger.jsonl").read_text() == "what was spent\n"


@pytest.mark.parametrize("change", ["changed", "added", "removed", "pipe", "link", "folder"])
def test_what_was_changed_since_does_not_leave(state: Path, tmp_path: Path, change: str) -> None:
    folder = state / "held" / RUN
    path = folder / "centroids.csv"
    if change == "changed":
        path.write_text("x\n1.5\n")
    elif change == "added":
        (folder / "more.csv").write_text("")
    else:
        path.unlink()
    if change == "pipe":
        os.mkfifo(path)
    elif change == "link":
        (tmp_path / "secret").write_text("secret")
        path.symlink_to(tmp_path / "secret")
    elif change == "folder":
        path.mkdir()
    with pytest.raises(ConfigError, match="changed since|cannot be read"):
        release(state, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert [entry.what for entry in Decisions(state)._entries] == ["held"]
    Held(state=state, run=RUN).discard(note="", key=KEY)  # it can still be refused
    assert not folder.exists()


def test_a_file_that_changes_while_it_leaves_never_arrives(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = state / "held" / RUN
    real = Decisions.add

    def add(self: Decisions, decision: Decision, key: Ed25519PrivateKey | None) -> Decision:
        (folder / "centroids.csv").write_text("x\n9.0\n")  # after everything was checked
        return real(self, decision, key)

    monkeypatch.setattr(Decisions, "add", add)
    with pytest.raises(ConfigError, match=r"centroids.csv is not what the run wrote"):
        release(state, tmp_path / "out")
    assert not (tmp_path / "out" / "centroids.csv").exists() and not (tmp_path / "out" / "report.json").exists()


@pytest.mark.parametrize("kind", ["none given", "another", "not signed"])
def test_another_key_does_not_do(state: Path, tmp_path: Path, kind: str) -> None:
    key = {"none given": None, "another": Ed25519PrivateKey.generate(), "not signed": KEY}[kind]
    run = RUN
    if kind == "not signed":
        run = OTHER
        wait(state, OTHER, None)
    sentence = "is not signed, and --key is given" if kind == "not signed" else "is signed with another key, and"
    for decide in (
        lambda each: each.release(tmp_path / "out", overwrite=False, note="", key=key),
        lambda each: each.discard(note="", key=key),
    ):
        with pytest.raises(ConfigError, match=sentence):
            decide(Held(state=state, run=run))
    assert (state / "held" / run).exists() and not (tmp_path / "out").exists()


def test_without_a_roster_a_decision_is_entered_unsigned(state: Path, tmp_path: Path) -> None:
    wait(state, OTHER, None)
    entry = Held(state=state, run=OTHER).release(tmp_path / "out", overwrite=False, note="", key=None)
    assert (entry.public_key, entry.signature) == ("", "")


def test_files_of_another_run_are_replaced_only_with_overwrite(state: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.json").write_text(f'{{"schema": 4, "run": "{OTHER}", "output": []}}')
    (out / "labels_2.csv").write_text("another's")
    (out / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="files of another run"):
        release(state, out)
    assert (state / "held" / RUN).exists() and [e.what for e in Decisions(state)._entries] == ["held"]
    release(state, out, overwrite=True)
    assert {path.name for path in out.iterdir()} == {*FILES, "thesis.txt"}


def test_files_named_like_a_result_are_not_replaced_either(state: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "centroids.csv").write_text("of nobody known")
    with pytest.raises(ConfigError, match="files named like those of a run"):
        release(state, tmp_path / "out")


def test_beside_the_same_run_of_another_client_only_own_files_are_added(state: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    theirs = f'{{"schema": 4, "run": "{RUN}", "output": []}}'
    (out / "report.json").write_text(theirs)
    (out / "centroids.csv").write_text("x\n1.0\n")
    entry = release(state, out, overwrite=True)
    assert set(entry.files) == {"labels_1.csv"} and (out / "report.json").read_text() == theirs
    assert {path.name for path in out.iterdir()} == {"report.json", "centroids.csv", "labels_1.csv"}


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_release_that_broke_off_goes_on(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    real, written = gate.replace_file, []

    def full(path: Path, *rest: object, **more: object) -> None:
        if path.parent.name == "out":
            written.append(path)
            if len(written) > after:
                raise OSError(28, "No space left on device")
        real(path, *rest, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(gate, "replace_file", full)
        with pytest.raises(ConfigError, match="No space left on device.*; fix it and release again"):
            release(state, tmp_path / "out")
    assert not (tmp_path / "out" / "report.json").exists() and (state / "held" / RUN).exists()
    with pytest.raises(ConfigError, match="cannot be discarded"):
        Held(state=state, run=RUN).discard(note="", key=KEY)
    assert find_held(state) == Held(state=state, run=RUN)
    release(state, tmp_path / "out")
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == FILES
    assert list((state / "held").iterdir()) == []


def test_a_removal_that_broke_off_goes_on(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(folder: Path) -> None:
        raise OSError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(gate, "remove", closed)
        with pytest.raises(ConfigError, match="the decision is entered"):
            Held(state=state, run=RUN).discard(note="no", key=KEY)
    with pytest.raises(ConfigError, match="was discarded"):
        release(state, tmp_path / "out")
    find_held(state).discard(note="again", key=KEY)
    assert [(e.what, e.note) for e in Decisions(state)._entries] == [("held", ""), ("discarded", "no")]
    assert not (state / "held" / RUN).exists()


def test_a_run_that_was_resumed_is_held_as_it_ended_last_and_never_after_a_decision(
    state: Path, tmp_path: Path
) -> None:
    again = wait(state)
    assert again is not None and again.what == "held"
    assert Decisions(state).runs() == (RUN,) and len(Decisions(state)) == 2
    release(state, tmp_path / "out")
    decided = wait(state)
    assert decided is not None and decided.what == "released"
    assert list((state / "held").iterdir()) == []


def test_a_party_without_a_file_holds_nothing(state: Path) -> None:
    draft_folder(state, OTHER)
    assert hold(state, Decision(run=OTHER, what="held", files={}), KEY) is None
    assert [path.name for path in (state / "held").iterdir()] == [RUN] and Decisions(state).runs() == (RUN,)


def test_a_draft_is_dropped(state: Path) -> None:
    draft = draft_folder(state, OTHER)
    (draft / "half").write_text("")
    drop_draft(state, OTHER)
    drop_draft(state, OTHER)
    assert not draft.exists()


def test_the_draft_of_a_run_that_broke_off_goes_with_the_next_run(state: Path) -> None:
    left = draft_folder(state, OTHER)  # killed while it wrote, and never resumed
    (left / "labels_1.csv").write_text("row,label\n1,0\n")
    draft_folder(state, "c3" * 16)
    assert not left.exists() and (state / "held" / RUN).exists()


@pytest.mark.parametrize("forged", ["unsigned", "with another key"])
def test_the_key_that_is_given_counts_and_else_people_see_which(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], forged: str
) -> None:
    own, other = save(KEY, tmp_path / "site.key"), Ed25519PrivateKey.generate()
    entry = Decisions(state).held(RUN)
    assert entry is not None
    # Somebody without the site's key writes the state directory anew, with other labels.
    (state / NAME).unlink()
    path = state / "held" / RUN / "labels_1.csv"
    path.write_text("row,label\n1,1\n")
    path.with_name("report.json").unlink()
    files = {**entry.files, path.name: store.digest_file(state, path)}
    del files["report.json"]
    named = save(other, tmp_path / "forged.key") if forged == "with another key" else ""
    entry = replace(entry, files=files, key_file=str(named), public_key="", signature="")
    Decisions(state).add(entry, other if named else None)
    assert main(["release", str(state), "--yes", "--key", str(own)]) == 2
    assert "give the key that this site had in the run" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main(["release", str(state), "--output", str(tmp_path / "out")]) == 2  # nobody answers
    said = capsys.readouterr().out
    assert (f"signed with {named}, as the ledger" if named else "not signed, as the ledger") in said


def save(key: Ed25519PrivateKey, path: Path) -> Path:
    """Write a key as `fastlloyd keygen` does."""
    form = serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    path.chmod(0o600)
    return path


def test_one_of_several_is_named(state: Path, tmp_path: Path) -> None:
    wait(state, OTHER)
    with pytest.raises(ConfigError, match=r"several results wait \(run a1a1a1a1 in .*; run b2b2b2b2 in .*\); name one"):
        find_held(state.parent)
    assert find_held(state.parent, "b2") == Held(state=state, run=OTHER)
    second = state.parent / "client-2"
    second.mkdir()
    wait(second)
    with pytest.raises(ConfigError, match="several results wait"):
        find_held(state.parent, RUN)
    assert find_held(second) == Held(state=second, run=RUN)
    with pytest.raises(ConfigError, match="no result waits for a decision here; expected the --state-dir"):
        find_held(tmp_path)


def test_a_cut_ledger_of_decisions_is_noticed(state: Path, tmp_path: Path) -> None:
    lines = (state / NAME).read_bytes()
    release(state, tmp_path / "out")
    (state / NAME).write_bytes(lines)
    with pytest.raises(ConfigError, match="was held at .*, and its files are gone"):
        find_held(state)
    wait(state)
    (state / NAME).unlink()
    with pytest.raises(ConfigError, match="does not name: it was cut or restored"):
        find_held(state).check(KEY)
    with pytest.raises(ConfigError, match="does not name: it was cut or restored"):
        find_held(state).discard(note="", key=KEY)


def test_two_do_not_decide_at_once(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_LOCK_S", 0.2)
    with locked(state), pytest.raises(ConfigError, match="another process decides"):
        release(state, tmp_path / "out")
    monkeypatch.setattr(store, "_LOCK_S", 60.0)
    ended: list[str] = []

    def decide(way: str) -> None:
        each = Held(state=state, run=RUN)
        try:
            if way == "release":
                each.release(tmp_path / "out", overwrite=False, note="", key=KEY)
            else:
                each.discard(note="", key=KEY)
            ended.append(way)
        except ConfigError:
            pass

    threads = [threading.Thread(target=decide, args=(way,)) for way in ("release", "discard") * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(ended) in ({"release"}, {"discard"})
    assert (tmp_path / "out" / "report.json").exists() == ("release" in ended)


def test_the_command_takes_the_key_of_the_run_and_refuses_an_answer_of_nobody(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(KEY, tmp_path / "site.key")
    assert main(["discard", str(state.parent), "--key", str(path)]) == 2
    assert "standard input is no terminal; add --yes" in capsys.readouterr().err
    assert main(["discard", str(state.parent), "--yes"]) == 2
    assert "is signed with another key, and no --key was given" in capsys.readouterr().err
    assert main(["discard", str(state.parent), "--yes", "--note", "x" * 2001]) == 2
    assert "--note: expected at most 2000 characters" in capsys.readouterr().err
    assert main(["discard", str(state.parent), "--yes", "--key", str(path), "--note", "Dr B: no"]) == 0
    assert "What the run has spent stays spent" in capsys.readouterr().out
    assert main(["discard", str(state.parent), "--yes", "--key", str(path)]) == 2
    assert "run a1a1a1a1 was discarded" in capsys.readouterr().err
