"""Agreed start and agreed abort."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.crypto.link.identity import make_identity
from fastlloyd.errors import (
    Aborted,
    BudgetError,
    ConfigError,
    DataError,
    FastLloydError,
    InternalError,
    PeerError,
    PeerGone,
    PeerTimeout,
    Reason,
)
from fastlloyd.net.link import control
from fastlloyd.net.link.control import Ending, NotStarted, abort, agree_start, leave_together
from fastlloyd.net.link.frame import DIGEST_BYTES, NO_DIGEST, FrameKind, Notice, Start, StartDecision
from fastlloyd.wire.header import FINAL_ROUND, SERVER, SETUP_ROUND, Header, PartyId
from tests.net.support import BUSY_S, CONTEXT, LIMIT_S, SHORT_S, at_once, connected, make_links

ONE, TWO, THREE = PartyId(1), PartyId(2), PartyId(3)
BUDGET = {"asked": 1.0, "spent": 2.0, "would_add": 0.5, "limit": 2.2}
ROW = "clients/two.csv, row 17: 'age' is missing"


ABORT_S = control.ABORT_S


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Whoever is there answers, also where others keep the cores busy; a test that lets it pass sets it shorter."""
    monkeypatch.setattr(control, "ABORT_S", 2 * BUSY_S)


def start_all(links, errors: dict[int, FastLloydError], deadline_s: float = LIMIT_S):
    return at_once(
        [lambda each=each: agree_start(each, errors.get(each.me.rank), deadline_s=deadline_s) for each in links]
    )


def codes(outcomes) -> list[int]:
    return [outcome.exit_code for outcome in outcomes]


def test_notices_without_end_fill_no_memory():
    links = make_links(3)
    for code in (3, 2, 3) * 50:
        notice = Notice(TWO.rank, Reason.PROTOCOL, code)
        links[1].post(SERVER, FrameKind.ABORT, notice.encode(), FINAL_ROUND)
    links[2].post(SERVER, FrameKind.ABORT, Notice(ONE.rank, Reason.GONE, 3).encode(), FINAL_ROUND)
    links[0].begin_ending()
    while links[0].step(0.0):
        pass
    assert sorted((peer, notice.rank) for peer, notice in links[0].notices) == [(ONE, TWO.rank), (TWO, ONE.rank)]


def test_all_ready_gives_one_fresh_run_id():
    outcomes = start_all(make_links(4), {})
    assert len(set(outcomes)) == 1 and len(outcomes[0]) == 16
    assert start_all(make_links(4), {})[0] != outcomes[0]


def test_start_then_connect_share_the_network():
    """Clients that have the verdict begin handshakes while others still wait for it."""
    links = make_links(4, roster=False)

    def party(each):
        run_id = agree_start(each, None, deadline_s=LIMIT_S)
        each.connect(run_id + bytes(16), deadline_s=LIMIT_S)
        return run_id

    assert len(set(at_once([lambda each=each: party(each) for each in links]))) == 1


def test_bad_data_stays_with_its_owner():
    frames = []
    links = make_links(4, tap=lambda sender, receiver, frame: frames.append(frame) or frame)
    error = DataError(ROW)
    outcomes = start_all(links, {2: error})
    assert outcomes[2] is error
    for rank in (0, 1, 3):
        assert type(outcomes[rank]) is NotStarted
        assert (outcomes[rank].rank, outcomes[rank].reason, outcomes[rank].own) == (2, Reason.BAD_INPUT, None)
        assert "age" not in str(outcomes[rank])
    assert codes(outcomes) == [2] * 4
    # Not even a digest: a sentence about rows can be guessed.
    assert sorted(frame for frame in frames if frame[0] == FrameKind.START and frame[1])[0][3:] == NO_DIGEST
    assert not any(ROW.encode() in frame for frame in frames)


def test_mixed_failures_take_the_code_of_the_worst():
    budget, data, bug = BudgetError(**BUDGET), DataError("row 1"), InternalError("bug")
    outcomes = start_all(make_links(5), {1: budget, 3: data, 4: bug})
    assert codes([*outcomes[:3], outcomes[3]]) == [2] * 4 and outcomes[3] is data
    for rank, own in ((1, budget), (4, bug)):
        assert (outcomes[rank].rank, outcomes[rank].exit_code) == (3, 2)
        assert outcomes[rank].own is own and not outcomes[rank].printed_elsewhere


def test_lowest_rank_among_equal_codes_and_budget_before_peers():
    links = make_links(4)
    for rank in (3, 2, 1):  # the order of arrival does not count
        links[rank].post(SERVER, FrameKind.START, Start(2, Reason.BAD_INPUT).encode(), SETUP_ROUND)
    with pytest.raises(NotStarted) as caught:
        agree_start(links[0], None, deadline_s=LIMIT_S)
    assert caught.value.rank == 1
    outcomes = start_all(make_links(4), {2: DataError("a"), 3: DataError("b")})
    assert outcomes[0].rank == 2 and not outcomes[3].printed_elsewhere
    outcomes = start_all(make_links(4), {1: InternalError("bug"), 3: BudgetError(**BUDGET)})
    assert outcomes[0].rank == 3 and codes(outcomes[:3]) == [4] * 3


def test_second_start_is_the_sender_s_fault():
    links = make_links(3)
    for rank in (1, 1, 2):
        links[rank].post(SERVER, FrameKind.START, Start().encode(), SETUP_ROUND)
    with pytest.raises(PeerError, match="client 1 sent a frame that does not belong"):
        agree_start(links[0], None, deadline_s=LIMIT_S)


def test_who_ends_before_the_start_and_leaves_is_not_the_one_at_fault():
    """Client 1 names client 3, whose frames do not belong there, and is gone before the server has heard all."""
    links = make_links(4)
    links[1].post(SERVER, FrameKind.ABORT, Notice(THREE.rank, Reason.PROTOCOL, 3, by=ONE.rank).encode(), FINAL_ROUND)
    links[1].close(lost=True)
    links[2].post(SERVER, FrameKind.START, Start().encode(), SETUP_ROUND)
    with pytest.raises(Aborted, match="client 1 ended the run and says that client 3 sent a message") as caught:
        agree_start(links[0], None, deadline_s=SHORT_S)
    assert (caught.value.rank, caught.value.reason) == (3, Reason.PROTOCOL)


def test_failed_start_needs_no_second_agreement():
    links = make_links(4)
    outcomes = start_all(links, {2: DataError("row 1")})
    begin = time.monotonic()
    for each, outcome in zip(links, outcomes, strict=True):
        assert abort(each, outcome) == Ending(2, 2, Reason.BAD_INPUT, lost=False)
    assert time.monotonic() - begin < BUSY_S


def test_same_configuration_error_everywhere_is_printed_by_the_server_alone():
    errors = {rank: ConfigError("k must be at least 2, got 1") for rank in range(3)}
    outcomes = start_all(make_links(3), errors)
    assert outcomes[0] is errors[0]
    assert all(each.rank == 0 and each.printed_elsewhere for each in outcomes[1:])
    errors[2] = ConfigError("client 2's own trouble: --key is missing")
    outcomes = start_all(make_links(3), errors)
    assert outcomes[1].printed_elsewhere and not outcomes[2].printed_elsewhere
    assert outcomes[2].own is errors[2]


def test_silent_client_is_named_and_all_leave_with_its_code():
    links = make_links(3)
    outcomes = start_all(links[:2], {}, deadline_s=SHORT_S)
    assert isinstance(outcomes[0], PeerTimeout) and outcomes[0].rank == 2
    assert (outcomes[1].rank, outcomes[1].reason, outcomes[1].exit_code) == (2, Reason.TIMEOUT, 3)
    assert [abort(each, error).lost for each, error in zip(links[:2], outcomes, strict=True)] == [True, True]


def test_own_mistake_of_the_server_comes_before_a_silent_client():
    error = ConfigError("wrong")
    links = make_links(3)
    outcomes = start_all(links[:2], {0: error}, deadline_s=SHORT_S)
    assert outcomes[0] is error and codes(outcomes) == [2, 2]
    # The silent one still makes an orderly end impossible.
    assert abort(links[1], outcomes[1]) == Ending(2, 0, Reason.BAD_CONFIG, lost=True)


def test_client_that_dies_before_the_start_is_gone():
    links = make_links(3)
    links[2].close(lost=True)
    outcomes = start_all(links[:2], {})
    assert isinstance(outcomes[0], PeerGone) and outcomes[0].rank == 2
    assert (outcomes[1].rank, outcomes[1].reason) == (2, Reason.GONE)


def test_nonsense_instead_of_a_start_is_the_sender_s_fault():
    links = make_links(3)
    links[2].post(SERVER, FrameKind.START, b"\xff" * 10, SETUP_ROUND)
    outcomes = start_all(links[:2], {})
    assert type(outcomes[0]) is PeerError and codes(outcomes) == [3, 3] and outcomes[1].rank == 2


def test_interrupted_client_ends_the_start_of_all():
    links = make_links(3)
    interrupted = InternalError("stopped", reason=Reason.INTERRUPTED)
    outcomes = at_once(
        [
            lambda: agree_start(links[0], None, deadline_s=LIMIT_S),
            lambda: agree_start(links[1], None, deadline_s=LIMIT_S),
            lambda: abort(links[2], interrupted).code,
        ]
    )
    assert (outcomes[0].rank, outcomes[0].reason, outcomes[0].exit_code) == (2, Reason.INTERRUPTED, 70)
    assert outcomes[1].rank == 2 and outcomes[2] == 70


def test_server_that_is_gone_or_silent_is_named(monkeypatch):
    monkeypatch.setattr(control, "_VERDICT_GRACE_S", 0.2)
    links = make_links(3)
    own = DataError("row 3")
    silent = start_all(links[1:], {2: own}, deadline_s=0.2)
    assert isinstance(silent[0], PeerTimeout) and silent[0].rank == 0 and silent[1] is own
    links = make_links(3)
    links[0].close(lost=True)
    gone = start_all(links[1:], {})
    assert all(isinstance(error, PeerGone) and error.rank == 0 for error in gone)


def run_all(links, failing: dict[int, FastLloydError]):
    """Let some parties fail and all others wait for messages; give all endings."""

    def party(each):
        try:
            if each.me.rank in failing:
                raise failing[each.me.rank]
            while True:
                each.receive(LIMIT_S)
        except FastLloydError as error:
            return abort(each, error)

    begin = time.monotonic()
    endings = at_once([lambda each=each: party(each) for each in links])
    assert time.monotonic() - begin < BUSY_S
    assert all(isinstance(ending, Ending) for ending in endings), endings
    return endings


@pytest.mark.parametrize("connect", [True, False])
def test_failure_of_a_client_reaches_all(connect):
    links = connected(4) if connect else make_links(4)
    assert run_all(links, {2: DataError("row 1")}) == [Ending(2, 2, Reason.BAD_INPUT, lost=False)] * 4


def test_failure_of_the_server_reaches_all():
    endings = run_all(make_links(4), {0: BudgetError(**BUDGET)})
    assert endings == [Ending(4, 0, Reason.BUDGET, lost=False)] * 4


def test_accused_client_hears_of_it():
    endings = run_all(make_links(3), {0: PeerError("nonsense", rank=1)})
    assert endings == [Ending(3, 1, Reason.PROTOCOL, lost=False)] * 3


def test_several_failures_at_once_have_one_verdict():
    """The server decides once the notices of all are there: 2 before 4 before 70 before 3."""
    arrived = threading.Semaphore(0)

    def count(sender, receiver, frame):
        if receiver == SERVER and frame[0] == FrameKind.ABORT:
            # Counted after the delivery that follows: the server drains whatever is there.
            network_deliver(sender, receiver, frame)
            arrived.release()
            return None
        return frame

    links = make_links(5, tap=count)
    network_deliver = links[0]._transport._network.deliver
    errors = {
        1: PeerError("nonsense", rank=3),
        2: BudgetError(**BUDGET),
        3: InternalError("bug"),
        4: DataError("row 9"),
    }

    def server():
        for _ in errors:
            assert arrived.acquire(timeout=LIMIT_S)
        return abort(links[0], PeerError("nonsense", rank=1))

    endings = at_once([server, *[lambda rank=rank: abort(links[rank], errors[rank]) for rank in errors]])
    assert endings == [Ending(2, 4, Reason.BAD_INPUT, lost=False)] * 5


@pytest.mark.parametrize("code", [2, 4, 70])
@pytest.mark.parametrize("liar", [0, 1])
def test_what_a_party_says_of_anothers_mistake_or_bug_is_code_3(liar, code):
    links = make_links(3)
    slander = Notice(2, Reason.INTERNAL, code, by=liar)
    for peer in links[liar].peers:
        links[liar].post(peer, FrameKind.ABORT, slander.encode(), FINAL_ROUND)
    for honest in range(3):
        if honest != liar:
            with pytest.raises(Aborted) as caught:
                links[honest].step(LIMIT_S)
            assert (caught.value.exit_code, caught.value.rank, caught.value.by) == (3, 2, liar)


def test_first_come_wins_among_equals_and_all_agree():
    endings = run_all(make_links(5), {1: DataError("a"), 2: DataError("b"), 4: DataError("c")})
    assert len(set(endings)) == 1 and endings[0].rank in (1, 2, 4) and endings[0].code == 2


def test_dead_client_makes_the_end_disorderly_for_all():
    links = make_links(4)
    links[3].close(lost=True)
    endings = run_all(links[:3], {})
    assert endings == [Ending(3, 3, Reason.GONE, lost=True)] * 3


def test_stopped_client_is_not_waited_for(monkeypatch):
    links = make_links(3)
    endings = run_all(links[:2], {0: PeerTimeout("client 2 is silent", rank=2)})  # it takes less than half of that
    assert endings == [Ending(3, 2, Reason.TIMEOUT, lost=True)] * 2
    # A stopped one that nobody blames shows by its missing acknowledgement.
    monkeypatch.setattr(control, "ABORT_S", 0.5)
    links = make_links(3)
    endings = run_all(links[:2], {0: ConfigError("wrong")})
    assert endings[0] == Ending(2, 0, Reason.BAD_CONFIG, lost=True)


def test_clients_tell_each_other_when_the_server_is_dead():
    links = make_links(4)
    links[0].close(lost=True)
    assert run_all(links[1:], {}) == [Ending(3, 0, Reason.GONE, lost=True)] * 3


def test_clients_tell_each_other_when_the_server_is_stopped(monkeypatch):
    monkeypatch.setattr(control, "_SERVER_ANSWER_S", 0.2)
    monkeypatch.setattr(control, "ABORT_S", 1.0)
    endings = run_all(make_links(4)[1:], {1: PeerTimeout("the server is silent", rank=0)})
    assert endings == [Ending(3, 0, Reason.TIMEOUT, lost=True)] * 3


def test_client_that_told_us_is_not_waited_for():
    links = make_links(3)
    links[0].close(lost=True)
    links[1].post(TWO, FrameKind.ABORT, Notice(0, Reason.GONE, 3, lost=True).encode(), 0)
    with pytest.raises(PeerGone):
        links[2].receive(LIMIT_S)
    with pytest.raises(Aborted) as caught:
        links[2].receive(LIMIT_S)
    begin = time.monotonic()
    assert abort(links[2], caught.value) == Ending(3, 0, Reason.GONE, lost=True)
    assert time.monotonic() - begin < BUSY_S


def test_whole_abort_takes_about_a_second_when_nobody_answers(monkeypatch):
    monkeypatch.setattr(control, "ABORT_S", ABORT_S)
    links = make_links(4)
    begin = time.monotonic()
    ending = abort(links[1], DataError("row 1"))
    assert 0.9 < time.monotonic() - begin < BUSY_S
    assert ending == Ending(2, 1, Reason.BAD_INPUT, lost=True)


def test_differing_configuration_blames_the_one_that_differs_everywhere():
    links = make_links(4)

    def party(each):
        try:
            each.connect(bytes(32) if each.me == THREE else CONTEXT, deadline_s=LIMIT_S)
        except FastLloydError as error:
            return abort(each, error)
        return each.receive(LIMIT_S)

    endings = at_once([lambda each=each: party(each) for each in links])
    assert endings == [Ending(3, 3, Reason.CONFIG_MISMATCH, lost=False)] * 4


def test_nonsense_does_not_disturb_the_end():
    links = make_links(2)
    links[1]._transport.send(SERVER, b"\x63rubbish")
    links[1]._transport.send(SERVER, bytes([FrameKind.RECORD]) + b"rubbish")
    assert run_all(links, {0: ConfigError("wrong")}) == [Ending(2, 0, Reason.BAD_CONFIG, lost=False)] * 2


def test_agreed_ending_is_not_agreed_again():
    links = make_links(2)
    with pytest.raises(Aborted):
        links[0].post(ONE, FrameKind.ABORT, Notice(0, Reason.BUDGET, 4).encode(), 0)
        links[1].receive(LIMIT_S)
    begin = time.monotonic()
    assert abort(links[1], DataError("later")) == Ending(4, 0, Reason.BUDGET, lost=False)
    assert time.monotonic() - begin < BUSY_S


# --- after a good run ---


def flood(links):
    """Let client 2 send client 1 many unexpected frames, and then the end of the run."""
    message = Header(33, FINAL_ROUND, 0).encode() + bytes(20_000)
    for _ in range(5):
        links[2].send(ONE, message, payload_bytes=0, round=FINAL_ROUND)
    links[2].post(ONE, FrameKind.ABORT, Notice(1, Reason.PROTOCOL, 3).encode(), FINAL_ROUND)
    links[2].close(lost=True)


def test_a_client_that_floods_the_end_makes_no_other_one_fail():
    links = connected(3)
    links[1].bound(message_bytes=30_000, ahead_bytes=30_000)
    flood(links)
    links[0].post(ONE, FrameKind.DONE, b"", FINAL_ROUND)
    links[0].close()
    leave_together(links[1], deadline_s=LIMIT_S)
    assert SERVER in links[1].finished


@pytest.mark.parametrize("gone", [True, False])
def test_only_the_server_ends_the_end(gone):
    links = connected(3)
    links[1].bound(message_bytes=30_000, ahead_bytes=30_000)
    flood(links)
    if gone:
        links[0].close(lost=True)
    else:
        links[0].post(ONE, FrameKind.ABORT, Notice(2, Reason.OUTPUT, 2).encode(), FINAL_ROUND)
    with pytest.raises(PeerGone if gone else Aborted) as caught:
        leave_together(links[1], deadline_s=LIMIT_S)
    assert caught.value.rank == (0 if gone else 2)


def test_the_server_ends_the_run_for_who_floods_it():
    links = connected(3)
    links[0].bound(message_bytes=30_000, ahead_bytes=30_000)
    links[1].post(SERVER, FrameKind.DONE, b"", FINAL_ROUND)
    for _ in range(5):
        links[2].send(SERVER, Header(33, FINAL_ROUND, 0).encode() + bytes(20_000), payload_bytes=0, round=FINAL_ROUND)
    with pytest.raises(PeerError, match="client 2 sent more than 30000 bytes ahead of time"):
        leave_together(links[0], deadline_s=LIMIT_S)


def test_a_client_that_was_lost_before_is_not_waited_for_at_the_end():
    links = connected(3)
    links[1].post(SERVER, FrameKind.DONE, b"", FINAL_ROUND)
    links[2].close(lost=True)
    with pytest.raises(PeerGone):  # the closing exchange takes note of it, and goes on
        while True:
            links[0].step(LIMIT_S)
    with pytest.raises(PeerGone, match="client 2 is gone: it ended before it had written its files"):
        leave_together(links[0], deadline_s=LIMIT_S)


def test_a_client_that_is_late_ends_nothing_for_the_others():
    links = connected(3)
    links[2].post(SERVER, FrameKind.ABORT, Notice(2, Reason.INTERRUPTED, 3).encode(), FINAL_ROUND)
    links[1].post(SERVER, FrameKind.DONE, b"", FINAL_ROUND)
    leave_together(links[0], deadline_s=LIMIT_S, late=[TWO])
    with pytest.raises(Aborted, match="client 2 was interrupted"):  # the answer that it waits for
        while True:
            links[2].step(LIMIT_S)


@given(st.binary(max_size=40))
def test_any_bytes_decode_exactly_or_are_refused(body):
    for decode in (lambda: Notice.decode(body, 4), lambda: Start.decode(body), lambda: StartDecision.decode(body, 4)):
        try:
            decoded = decode()
        except ValueError:
            continue
        again = decoded.encode()
        # A start with code 0 has no reason: its digest is not read.
        assert again == body or (isinstance(decoded, Start) and decoded == Start() and body[:2] == b"\0\0")


NOTICES = st.builds(Notice, st.integers(0, 3), st.sampled_from(Reason), st.sampled_from((2, 3, 4, 70)), st.booleans())


@given(NOTICES, st.binary(min_size=16, max_size=16), st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES))
def test_frames_survive_encoding(notice, run_id, digest):
    assert Notice.decode(notice.encode(), 4) == notice
    for verdict in (StartDecision(run_id), StartDecision(run_id, notice, digest)):
        assert StartDecision.decode(verdict.encode(), 4) == verdict
    for start in (Start(), Start(notice.code, notice.reason, digest)):
        assert Start.decode(start.encode()) == start


@pytest.mark.parametrize("notice", [Notice(4, Reason.GONE, 3), Notice(1, Reason.GONE, 0), Notice(1, Reason.GONE, 5)])
def test_impossible_notices_are_refused(notice):
    with pytest.raises(ValueError, match="not possible"):
        Notice.decode(notice.encode(), 4)
    with pytest.raises(ValueError, match="99"):
        Notice.decode(b"\x01\x00\x63\x03\x00\x00\x00", 4)
    with pytest.raises(ValueError, match="not possible"):
        Notice.decode(Notice(1, Reason.GONE, 3, by=4).encode(), 4)


def test_what_a_client_says_of_another_is_told_as_its_word():
    links = make_links(4)
    # Whatever it writes itself: here, that the server said so.
    links[3].post(SERVER, FrameKind.ABORT, Notice(2, Reason.PROTOCOL, 3, by=0).encode(), 0)
    with pytest.raises(Aborted) as caught:
        links[0].receive(0.0)
    assert str(caught.value) == "client 3 ended the run and says that client 2 sent a message that does not belong here"
    endings = run_all(make_links(4), {3: PeerError("nonsense", rank=2)})
    assert [(ending.rank, ending.by) for ending in endings] == [(2, 3)] * 4
    # The server's own verdict, and what a party says of itself, need no such words.
    assert str(Aborted(rank=2, reason=Reason.GONE, code=3)).startswith("client 2 is gone")
    assert str(Aborted(rank=2, reason=Reason.GONE, code=3, by=2)).startswith("client 2 is gone")


def test_impostor_ends_the_run_of_all():
    impostor = make_identity("site 2", 2)
    links = make_links(4, change=lambda party: {"identity": impostor} if party == TWO else {})

    def party(each):
        try:
            each.connect(CONTEXT, deadline_s=LIMIT_S)
        except FastLloydError as error:
            return abort(each, error)
        return None

    endings = at_once([lambda each=each: party(each) for each in links])
    assert len(set(endings)) == 1 and (endings[0].code, endings[0].reason) == (3, Reason.SECURITY)
