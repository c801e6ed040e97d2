"""Runs with threshold masks over TCP, with clients that die at each step of a round and parties that come back."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.errors import EXIT_INPUT, EXIT_OK, EXIT_PEER
from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum
from fastlloyd.lifecycle.threshold.messages import QuickAnswer, RoundSet, SetVote, SetVotes
from fastlloyd.report.document import load
from tests.adversary.arena import Ended, TcpRun
from tests.adversary.kills import _messages
from tests.adversary.losses import (
    AFTER,
    ANSWER,
    BEFORE,
    IN,
    MOMENTS,
    OF_ROUND,
    QUICK,
    ROUNDS,
    VECTOR,
    VOTE,
    Death,
    copy_state,
    deaths,
    play,
    set_back,
    stage,
)
from tests.adversary.relay import make_roster

pytestmark = pytest.mark.process
# Clients and c: T is 3 of 5 and 4 of 6.
SITES = [(5, 0), (6, 1)]
FEW = [
    (Death(2, VECTOR, IN),),
    (Death(2, QUICK, BEFORE), Death(5, QUICK, AFTER)),
    (Death(2, VECTOR, BEFORE), Death(5, VOTE, IN)),
    (Death(2, VECTOR, IN), Death(5, ANSWER, BEFORE)),
]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of six clients, and keys and rosters for three, five and six of them."""
    folder = stage(tmp_path_factory.mktemp("stage"))
    for m in (3, 5, 6):
        make_roster(folder / f"roster-{m}", ["operator", *(f"site {rank}" for rank in range(1, m + 1))])
    return folder


def run(
    records: Path, folder: Path, m: int, lying: int, *dead: Death, flags: tuple[str, ...] = (), **more: Any
) -> Ended:
    """Run once, and let these parties die; all keep their state."""
    chosen = play("glloyd", m, lying)
    made = flags if "--resume" in flags else (*flags, "--new-state")
    chosen = replace(chosen, flags=(*chosen.flags, "--state-dir", str(folder.parent / "state"), *made))
    prepare = {death.rank: death.install for death in dead} | more.pop("prepare", {})
    roster = records / f"roster-{m}"
    return TcpRun(chosen, records, folder, prepare=prepare, record=True, roster=roster, **more).run()


def check_ledgers(state: Path, clients: Mapping[int, int]) -> None:
    """Each of these clients has each release of so many rounds once."""
    for rank, rounds in clients.items():
        entries = [json.loads(line) for line in (state / f"client-{rank}" / "ledger.jsonl").read_text().splitlines()]
        counts = Counter((entry["run"], entry["round"], entry["name"]) for entry in entries)
        assert set(counts.values()) == {1} and len({run for run, _, _ in counts}) == 1
        assert {t for _, t, _ in counts} == set(range(rounds))


def check_sent(*folders: Path) -> None:
    """No party has sent two different messages of one kind, round and step: no second set, no second vector."""
    sent: dict[tuple[int, int, int], set[bytes]] = defaultdict(set)
    for folder in folders:
        for header, rank, body in _messages(folder / "sent.jsonl"):
            # Votes are about the session, and the server passes on those of whoever was fastest.
            if header.type not in (SetVote.TYPE, SetVotes.TYPE):
                sent[rank, header.type, header.round].add(body)
    assert not [key for key, bodies in sent.items() if len(bodies) > 1]


def check(records: Path, folder: Path, m: int, lying: int, dead: tuple[Death, ...]) -> None:
    ended = run(records, folder / "run", m, lying, *dead)
    gone = {death.rank: EXIT_PEER if death.number == signal.SIGTERM else -signal.SIGKILL for death in dead}
    expected = tuple(gone.get(rank, EXIT_OK) for rank in range(m + 1))
    assert ended.codes == expected, (dead, ended.codes, [text[-600:] for text in ended.said])
    report = load(folder / "run" / "out-1" / "report.json")
    included = [entry["clients_included"] for entry in report["rounds"]]
    everybody = set(range(1, m + 1))
    assert set(included[OF_ROUND - 1]) == everybody
    # A vector that has left may still be lost with the link of its sender.
    assert everybody - gone.keys() <= set(included[OF_ROUND]) <= everybody - {d.rank for d in dead if not d.in_sum}
    assert set(included[-1]) == everybody - gone.keys()
    check_ledgers(folder / "state", dict.fromkeys(everybody - gone.keys(), ROUNDS))
    check_sent(folder / "run")
    # Whoever answers later than T others is no loss.
    left = [line for line in ended.said[0].splitlines() if "not waited for any longer" in line]
    assert all({int(rank) for rank in re.findall(r"client (\d)", line)} <= gone for line in left), left


def test_with_nobody_lost_a_round_has_two_round_trips(records: Path, tmp_path: Path) -> None:
    check(records, tmp_path, 5, 0, ())
    kinds = Counter((header.type, header.round) for header, _, _ in _messages(tmp_path / "run" / "sent.jsonl"))
    there_and_back = (MaskedUpdate, RoundSet, QuickAnswer, NoisyMaskedSum)
    assert kinds == {(kind.TYPE, t): 5 for kind in there_and_back for t in range(ROUNDS)}


@pytest.mark.parametrize("number", range(len(FEW)))
def test_the_others_come_to_a_result(number: int, records: Path, tmp_path: Path) -> None:
    check(records, tmp_path, 5, 0, FEW[number])


@pytest.mark.parametrize("number", range(len(FEW)))
def test_the_others_come_to_a_result_when_sites_are_shut_down(number: int, records: Path, tmp_path: Path) -> None:
    check(records, tmp_path, 5, 0, tuple(replace(death, number=signal.SIGTERM) for death in FEW[number]))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("m,lying", SITES)
def test_whoever_dies_at_whatever_step_the_others_come_to_a_result(
    m: int, lying: int, records: Path, tmp_path: Path
) -> None:
    cases = list(deaths(m))
    assert len(cases) >= 30
    for number, dead in enumerate(cases):
        check(records, tmp_path / str(number), m, lying, dead)


STATED, VOTES, REPLY = RoundSet, SetVotes, NoisyMaskedSum
LOST = Death(2, VECTOR, IN)
INTERRUPTIONS = [
    # The server dies, with all vectors and without one.
    *((Death(0, step, moment),) for step in (STATED, REPLY) for moment in MOMENTS),
    *((LOST, Death(0, step, moment)) for step in (STATED, REPLY) for moment in MOMENTS),
    *((LOST, Death(0, VOTES, moment)) for moment in (IN, AFTER)),
    # Two of three clients die: too few are left.
    *((Death(2, VECTOR, moment), Death(3, VECTOR, moment)) for moment in (BEFORE, IN)),
    *((Death(2, QUICK, moment), Death(3, QUICK, moment)) for moment in MOMENTS),
    *((LOST, Death(3, step, moment)) for step in (VOTE, ANSWER) for moment in MOMENTS),
]
COPIES = ["uplink-1", "set-1", "threshold", "uplink-0"]


def come_back(records: Path, folder: Path, dead: tuple[Death, ...], before: str) -> None:
    """Interrupt a run of three, set client 1 back to what it had before it stored a file, and resume."""
    state = folder / "state"
    first = run(records, folder / "first", 3, 0, *dead, prepare={1: copy_state(state, 1, before)})
    for rank, (code, text) in enumerate(zip(first.codes, first.said, strict=True)):
        assert code == -signal.SIGKILL or (code == 3 and "--resume" in text), (dead, rank, code, text[-600:])
    if (state / "old-1").exists():
        set_back(state, 1)
    second = run(records, folder / "second", 3, 0, flags=("--resume",))
    assert set(second.codes) == {EXIT_OK}, (dead, before, second.codes, [text[-600:] for text in second.said])
    check_sent(folder / "first", folder / "second")
    check_ledgers(state, dict.fromkeys((1, 2, 3), ROUNDS))
    report = load(folder / "second" / "out-1" / "report.json")
    assert [entry["round"] for entry in report["rounds"]] == list(range(ROUNDS))
    assert [entry["clients_included"] for entry in report["rounds"]][-1] == [1, 2, 3]


@pytest.mark.parametrize("number", [1, 8, 16, 19])
def test_all_come_back_with_one_client_set_back(number: int, records: Path, tmp_path: Path) -> None:
    come_back(records, tmp_path, INTERRUPTIONS[number], COPIES[number % len(COPIES)])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("before", COPIES)
def test_all_come_back_from_each_step_with_one_client_set_back(before: str, records: Path, tmp_path: Path) -> None:
    for number, dead in enumerate(INTERRUPTIONS):
        come_back(records, tmp_path / str(number), dead, before)


def test_a_damaged_file_of_threshold_masks_is_refused_with_a_sentence(records: Path, tmp_path: Path) -> None:
    run(records, tmp_path / "first", 3, 0, Death(0, REPLY, BEFORE))
    for rank, name in ((1, "threshold"), (1, "group"), (1, f"set-{OF_ROUND}"), (0, "words"), (0, f"set-{OF_ROUND}")):
        path = tmp_path / "state" / (f"client-{rank}" if rank else "server") / "run" / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        ended = run(records, tmp_path / name, 3, 0, flags=("--resume",))
        assert ended.codes[rank] == EXIT_INPUT and f"{name} is damaged" in ended.said[rank], ended.said[rank]
        assert EXIT_OK not in ended.codes
        path.write_bytes(content)
    assert set(run(records, tmp_path / "whole", 3, 0, flags=("--resume",)).codes) == {EXIT_OK}
