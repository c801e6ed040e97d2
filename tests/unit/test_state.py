"""The state directory: private, durable, and only what belongs to the run."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from fastlloyd.errors import ConfigError, Reason
from fastlloyd.state import StateDir
from fastlloyd.wire import SERVER, PartyId


def test_each_party_has_its_own_private_folder(tmp_path: Path) -> None:
    one, server = StateDir(str(tmp_path / "s"), PartyId(1)), StateDir(str(tmp_path / "s"), SERVER)
    assert one.path.name == "client-1"
    assert server.path.name == "server"
    assert stat.S_IMODE(one.path.stat().st_mode) == 0o700
    one.save("seed", b"x")
    assert stat.S_IMODE((one.path / "run" / "seed").stat().st_mode) == 0o600


def test_rounds_read_back_whatever_gaps_there_are(tmp_path: Path) -> None:
    state = StateDir(str(tmp_path), PartyId(2))
    state.start({"run_id": "ab"})
    for t in (0, 1, 4, 11):
        state.save(f"uplink-{t}", bytes([t]))
    assert state.rounds("uplink") == {t: bytes([t]) for t in (0, 1, 4, 11)}
    assert state.rounds("reply") == {}
    assert state.facts() == {"run_id": "ab"}


def test_a_new_run_forgets_the_old_one_and_a_finished_one_leaves_no_seed(tmp_path: Path) -> None:
    state = StateDir(str(tmp_path), PartyId(1))
    state.start({"run_id": "ab"})
    state.save("seed", b"secret")
    state.start({"run_id": "cd"})
    assert state.load("seed") is None
    state.save("seed", b"secret")
    state.finish()
    assert not (state.path / "run").exists()


def test_resuming_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no interrupted run") as caught:
        StateDir(str(tmp_path), PartyId(1)).facts()
    assert caught.value.reason is Reason.RESUME


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--state-dir"):
        StateDir(str(tmp_path / "file"), PartyId(1))
