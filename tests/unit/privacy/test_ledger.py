"""The ledger: durable, append-only, idempotent, and honest about what was spent."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import stat
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.errors import EXIT_BUDGET, BudgetError, ConfigError, InternalError, Reason
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.ledger import Ledger, keyed_digest
from fastlloyd.privacy.release import Release

SUMS = Release(
    run="ab12",
    round=0,
    name="relative sums",
    mechanism="gaussian",
    sensitivity=3276.0,
    norm="l2",
    noise_scale=13104.5,
    unit="grid of 2^-12",
)
COUNTS = replace(SUMS, name="counts", sensitivity=4096.0)
DELTA = 1e-6


def changed(**changes: object) -> str:
    """Return SUMS as a line with some values changed, added or (None) removed."""
    content = {**SUMS.to_dict(), **changes}
    return json.dumps({key: value for key, value in content.items() if value is not None})


def chained(*releases: Release, link: bytes = hashlib.sha256(b"fastlloyd ledger 2").digest()) -> bytes:
    """The file that holds these releases, each line with the digest of all before it."""
    content = b""
    for release in releases:
        line = json.dumps({"previous": link.hex(), **release.to_dict()}).encode()
        link = hashlib.sha256(link + line).digest()
        content += line + b"\n"
    return content


@given(
    st.integers(0, 2**32 - 1),
    st.text(min_size=1),
    st.sampled_from([("gaussian", "l2"), ("laplace", "l1")]),
    st.floats(1e-3, 1e6),
    st.floats(1e-3, 1e9),
    st.text(),
)
def test_a_release_survives_its_own_line(round_, name, mechanism, sensitivity, multiplier, unit):
    release = Release(
        run="0f",
        round=round_,
        name=name,
        mechanism=mechanism[0],
        norm=mechanism[1],
        sensitivity=sensitivity,
        noise_scale=sensitivity * multiplier,
        unit=unit,
    )
    line = release.to_json()
    assert "\n" not in line
    assert Release.from_json(line) == release
    assert json.loads(line)["noise_multiplier"] == release.noise_scale / release.sensitivity


@pytest.mark.parametrize(
    "changes",
    [
        {"run": "xy"},
        {"round": -1},
        {"round": 2**32},
        {"round": True},
        {"round": 1.0},
        {"name": ""},
        {"mechanism": "uniform"},
        {"norm": "l1"},
        {"sensitivity": -1.0},
        {"sensitivity": 0.0},
        {"sensitivity": math.nan},
        {"noise_scale": math.inf},
        {"noise_scale": 0.0},
        {"noise_scale": -2.0},
        {"noise_scale": 1e-30},
        {"mechanism": "none"},
        {"unit": 3},
    ],
    ids=str,
)
def test_a_release_that_cannot_be_accounted_for_is_refused(changes):
    with pytest.raises(ConfigError, match="cannot be accounted for"):
        replace(SUMS, **changes)


def test_a_release_without_noise_has_multiplier_zero():
    release = replace(SUMS, mechanism="none", noise_scale=0.0)
    assert release.noise_multiplier == 0.0
    assert Release.from_json(release.to_json()) == release


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        changed(surprise=1),
        changed(round=None),
        changed(noise_multiplier=None),
        changed(noise_multiplier=4.1),
        changed(noise_multiplier="4"),
        changed(noise_scale="13104.5"),
        changed(noise_scale=10**400),
        changed(sensitivity=True),
        changed(noise_scale=-13104.5),
        SUMS.to_json().replace("13104.5", "NaN"),
        SUMS.to_json().replace("13104.5", "1e999"),
        SUMS.to_json().replace("{", '{"round": 3, ', 1),
    ],
    ids=lambda line: line[:40],
)
def test_a_bad_line_is_refused_by_name(line):
    with pytest.raises(ConfigError, match="line 7 of it: expected a release .*; restore the file from its newest copy"):
        Release.from_json(line, "line 7 of it")


def test_releases_come_back_in_order_from_a_private_file(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        ledger.record([SUMS, COUNTS])
        ledger.record([replace(SUMS, round=1)])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes().count(b"\n") == 3
    with Ledger(path) as ledger:
        assert ledger.releases == (SUMS, COUNTS, replace(SUMS, round=1))
        assert ledger.epsilon(DELTA) == spent(ledger.releases, DELTA)


def test_a_ledger_that_others_could_read_becomes_private(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.touch(mode=0o644)
    path.chmod(0o644)
    Ledger(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_recording_is_on_disk_before_it_returns(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    synced = []
    real = os.fsync

    def recording(descriptor):
        status = os.fstat(descriptor)
        synced.append((stat.S_ISDIR(status.st_mode), status.st_size))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    with Ledger(path) as ledger:
        assert [is_directory for is_directory, _ in synced] == [True]
        ledger.record([SUMS])
        assert synced[1:] == [(False, path.stat().st_size)]


def test_what_was_begun_is_on_disk_once_it_is_settled(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    synced = []
    with Ledger(path) as ledger:
        monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
        ledger.begin([SUMS])
        ledger.begin([COUNTS])
        assert not ledger.settled and synced == []
        ledger.settle()
        assert ledger.settled and synced == [path.stat().st_size]
        ledger.begin([SUMS, COUNTS])  # nothing new: nothing to wait for
        assert ledger.settled
        assert ledger.releases == (SUMS, COUNTS)
    in_memory = Ledger()
    in_memory.begin([SUMS])
    assert in_memory.settled and in_memory.releases == (SUMS,)


def test_what_the_disk_refused_counts_as_not_recorded(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    later = replace(SUMS, round=1)
    with Ledger(path) as ledger:
        ledger.record([SUMS])
        before = path.read_bytes()
        monkeypatch.setattr(os, "fsync", failing_once())
        ledger.begin([COUNTS])
        ledger.begin([later])
        with pytest.raises(ConfigError, match="No space left on device; nothing was released"):
            ledger.settle()
        assert (ledger.releases, path.read_bytes(), ledger.settled) == ((SUMS,), before, True)
        ledger.record([later])
    with Ledger(path) as ledger:
        assert ledger.releases == (SUMS, later)


def test_recording_again_is_nothing_and_otherwise_is_a_bug(tmp_path):
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        ledger.record([SUMS, SUMS])
        ledger.record([SUMS])
        assert ledger.releases == (SUMS,)
        for other in (replace(SUMS, noise_scale=13105.0), replace(SUMS, data="aa")):
            with pytest.raises(InternalError, match="another release"):
                ledger.record([COUNTS, other])
        with pytest.raises(InternalError, match="no run"):
            ledger.record([replace(SUMS, run="")])
        assert ledger.releases == (SUMS,)
    assert (tmp_path / "ledger.jsonl").read_bytes() == chained(SUMS)


def test_a_last_line_cut_short_by_a_crash_is_removed(tmp_path, caplog):
    path = tmp_path / "ledger.jsonl"
    whole = chained(SUMS)
    line = chained(SUMS, COUNTS)[len(whole) : -1]
    for length in (1, 20, len(line) - 1):
        path.write_bytes(whole + line[:length])
        caplog.clear()
        with caplog.at_level(logging.WARNING), Ledger(path) as ledger:
            assert ledger.releases == (SUMS,)
        assert "cut short" in caplog.text
        assert path.read_bytes() == whole
    path.write_bytes(whole + b"\0" * 100)
    with Ledger(path) as ledger:
        ledger.record([COUNTS])
    assert path.read_bytes() == whole + line + b"\n"


def test_a_whole_last_line_without_its_end_still_counts(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(chained(SUMS)[:-1])
    with Ledger(path) as ledger:
        ledger.record([COUNTS])
    assert path.read_bytes() == chained(SUMS, COUNTS)
    with Ledger(path) as ledger:
        assert ledger.releases == (SUMS, COUNTS)


LATER = replace(SUMS, round=1)
LINES = chained(SUMS, COUNTS, LATER).splitlines(keepends=True)


@pytest.mark.parametrize(
    ("kept", "line"),
    [
        (LINES[1:], 1),
        ([LINES[0], LINES[2]], 2),
        ([LINES[1], LINES[0], LINES[2]], 1),
        ([LINES[0].replace(b"13104.5", b"26209.0").replace(b"4.000152625152626", b"8.000305250305251"), *LINES[1:]], 2),
        ([LINES[0], COUNTS.to_json().encode() + b"\n", LINES[2]], 2),
        ([LINES[0], LINES[1].replace(b'"previous": "', b'"previous": "0', 1), LINES[2]], 2),
    ],
    ids=["first line cut", "middle line cut", "swapped", "noise doubled", "unchained line", "longer digest"],
)
def test_a_line_that_does_not_follow_is_refused(tmp_path, kept, line):
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"".join(kept))
    with pytest.raises(ConfigError, match=f"line {line} of the ledger") as caught:
        Ledger(path)
    assert caught.value.reason is Reason.STATE
    assert path.read_bytes() == b"".join(kept)


def test_a_mark_tells_a_later_state_from_another_ledger(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        marks = [ledger.mark]
        for release in (SUMS, COUNTS, LATER):
            ledger.record([release])
            marks.append(ledger.mark)
    assert [mark.entries for mark in marks] == [0, 1, 2, 3]
    for length in range(4):
        path.write_bytes(b"".join(LINES[:length]))
        with Ledger(path) as ledger:
            assert [ledger.includes(mark) for mark in marks] == [mark.entries <= length for mark in marks]
    path.write_bytes(chained(COUNTS, SUMS, LATER))
    with Ledger(path) as ledger:
        assert [ledger.includes(mark) for mark in marks] == [True, False, False, False]


def test_a_refused_entry_leaves_the_chain_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        ledger.record([SUMS])
        ledger.begin([COUNTS])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing_once())
            with pytest.raises(ConfigError, match="No space left"):
                ledger.settle()
        ledger.record([LATER])
    assert path.read_bytes() == chained(SUMS, LATER)


def test_a_disk_that_refuses_even_the_repair_is_named(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"

    def refuse(*_):
        raise OSError(errno.EIO, "Input/output error")

    with Ledger(path) as ledger:
        ledger.begin([SUMS])
        monkeypatch.setattr(os, "fsync", refuse)
        monkeypatch.setattr(os, "ftruncate", refuse)
        with pytest.raises(ConfigError, match="cannot repair the ledger .*Input/output error") as caught:
            ledger.settle()
        assert caught.value.reason is Reason.STATE
        assert ledger.releases == ()


def failing_once():
    """An fsync that fails the first time."""
    real, calls = os.fsync, []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    return fsync


def test_lines_of_an_older_version_are_sealed_by_the_first_new_one(tmp_path):
    path = tmp_path / "ledger.jsonl"
    old = SUMS.to_json().encode() + b"\n" + COUNTS.to_json().encode() + b"\n"
    path.write_bytes(old)
    with Ledger(path) as ledger:
        assert ledger.releases == (SUMS, COUNTS) and not ledger.chained
        ledger.record([LATER])
        assert ledger.chained
    content = path.read_bytes()
    assert content.startswith(old)
    Ledger(path).close()
    path.write_bytes(content.split(b"\n", 1)[1])
    with pytest.raises(ConfigError, match="line 2 of the ledger"):
        Ledger(path)


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "ledger.jsonl")
    with pytest.raises(ConfigError, match="not a regular file"):
        Ledger(tmp_path / "ledger.jsonl")
    (tmp_path / "ledger.jsonl").unlink()
    os.mkfifo(tmp_path / "ledger.jsonl.key")
    with (
        Ledger(tmp_path / "ledger.jsonl") as ledger,
        pytest.raises(ConfigError, match="expected an ordinary file, it is a pipe"),
    ):
        ledger.digest_key()


@pytest.mark.parametrize(
    "bad",
    [b"nonsense", b"", b"\xff\xfe", SUMS.to_json().encode(), replace(COUNTS, run="").to_json().encode()],
    ids=["text", "empty", "bytes", "repeated", "no run"],
)
def test_any_other_bad_line_is_refused_and_the_file_left_alone(tmp_path, bad):
    path = tmp_path / "ledger.jsonl"
    content = SUMS.to_json().encode() + b"\n" + bad + b"\n" + COUNTS.to_json().encode() + b"\n"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="line 2 of the ledger"):
        Ledger(path)
    assert path.read_bytes() == content
    path.unlink()
    Ledger(path).close()


def test_two_runs_cannot_share_a_ledger_at_once(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger(path), pytest.raises(ConfigError, match="another run holds it"):
        Ledger(path)
    Ledger(path).close()


def test_a_directory_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot open the ledger"):
        Ledger(tmp_path / "missing" / "ledger.jsonl")


def test_a_full_disk_leaves_the_ledger_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    write = os.write
    with Ledger(path) as ledger:
        ledger.record([SUMS])

        def filling(descriptor, content):
            if len(content) <= 30:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(descriptor, bytes(content[:30]))

        monkeypatch.setattr(os, "write", filling)
        with pytest.raises(ConfigError, match="No space left"):
            ledger.record([COUNTS])
        monkeypatch.undo()
        assert ledger.releases == (SUMS,)
        assert path.read_bytes() == chained(SUMS)
        ledger.record([COUNTS])
    with Ledger(path) as ledger:
        assert ledger.releases == (SUMS, COUNTS)


def test_a_closed_ledger_records_nothing(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.close()
    with pytest.raises(InternalError, match="closed"):
        ledger.record([SUMS])


def test_without_a_file_it_lives_in_memory():
    ledger = Ledger()
    assert ledger.epsilon(0.0) == 0.0
    ledger.record([SUMS])
    assert ledger.releases == (SUMS,)


def test_the_budget_is_checked_on_the_composition():
    ledger = Ledger()
    ledger.record([SUMS])
    first = ledger.epsilon(DELTA)
    planned = [replace(SUMS, run="cd34")]
    both = spent([SUMS, *planned], DELTA)
    assert both < 1.6 * first
    ledger.check_budget(planned, DELTA, both)
    with pytest.raises(BudgetError) as caught:
        ledger.check_budget(planned, DELTA, both * (1 - 1e-9))
    error = caught.value
    assert (error.asked, error.spent, error.limit) == (first, first, both * (1 - 1e-9))
    assert error.would_add == both - first
    assert error.exit_code == EXIT_BUDGET
    assert ledger.releases == (SUMS,)


def test_a_resumed_run_pays_once():
    ledger = Ledger()
    ledger.record([SUMS])
    ledger.check_budget([SUMS, COUNTS], DELTA, spent([SUMS, COUNTS], DELTA))


def test_after_a_release_without_noise_no_budget_is_left():
    ledger = Ledger()
    ledger.record([replace(SUMS, mechanism="none", noise_scale=0.0)])
    with pytest.raises(BudgetError) as caught:
        ledger.check_budget([COUNTS], DELTA, 100.0)
    assert caught.value.spent == math.inf
    assert caught.value.would_add == spent([COUNTS], DELTA)


def test_the_digest_key_is_kept_beside_the_ledger(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        key = ledger.digest_key()
        assert ledger.digest_key() == key
    kept = tmp_path / "ledger.jsonl.key"
    assert kept.read_bytes() == key
    assert len(key) == 32
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with Ledger(path) as ledger:
        assert ledger.digest_key() == key
    kept.write_bytes(key[:5])
    with Ledger(path) as ledger, pytest.raises(ConfigError, match="32 bytes"):
        ledger.digest_key()
    assert Ledger().digest_key() != Ledger().digest_key()


def test_a_digest_depends_on_key_values_type_and_shape():
    records = np.arange(12, dtype=np.int32).reshape(3, 4)
    digests = {
        keyed_digest(b"k" * 32, records),
        keyed_digest(b"l" * 32, records),
        keyed_digest(b"k" * 32, records.reshape(4, 3)),
        keyed_digest(b"k" * 32, records.astype(np.int64)),
        keyed_digest(b"k" * 32, records.T),
        keyed_digest(b"k" * 32, records.tobytes()),
    }
    assert len(digests) == 6
    assert keyed_digest(b"k" * 32, np.asfortranarray(records)) == keyed_digest(b"k" * 32, records)
    assert all(len(digest) == 64 for digest in digests)
