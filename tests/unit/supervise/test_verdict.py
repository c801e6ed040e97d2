import pytest

from fastlloyd.supervise.verdict import RankEnd, agree, describe_outlived, in_order, judge, name_rank

KILLED = 9
RUNNING = RankEnd(started=True)


def done(code, place=None):
    return RankEnd(started=True, code=code, place=place, status=code << 8)


def dead(place, status=KILLED):
    return RankEnd(started=True, place=place, status=status)


@pytest.mark.parametrize(
    ("codes", "agreed"),
    [([], 0), ([0, 0], 0), ([0, 3], 3), ([3, 2, 4], 2), ([3, 4], 4), ([70, 3], 70), ([70], 70), ([1], 70)],
)
def test_precedence_of_codes(codes, agreed):
    assert agree(codes) == agreed


def test_names():
    assert (name_rank(0), name_rank(2)) == ("rank 0 (the server)", "rank 2 (client 2)")


def test_all_done_needs_no_words():
    assert judge({0: done(0), 1: done(0)}, 0).sentence is None
    verdict = judge({0: done(2), 1: done(2)}, 2)
    assert (verdict.code, verdict.sentence) == (2, None)


def test_first_to_die_is_named_not_those_the_launcher_killed():
    verdict = judge({0: dead(1), 1: dead(2), 2: dead(0)}, 9)
    assert (verdict.code, verdict.sentence) == (3, "rank 2 (client 2) died: killed by signal 9")


def test_the_lifelines_tell_who_was_first_where_the_ends_were_seen_in_another_order():
    ends = {0: dead(0), 1: dead(2), 2: dead(1), 3: RUNNING}
    assert judge(ends, 9).sentence == "rank 0 (the server) died: killed by signal 9"
    ordered = in_order(ends, [2, 0, 1])
    assert judge(ordered, 9).sentence == "rank 2 (client 2) died: killed by signal 9"
    assert [ordered[rank].place for rank in range(4)] == [1, 2, 0, None]
    # Where one that ended had no lifeline, the order stays as it was seen.
    assert in_order(ends, []) == in_order(ends, [1]) == ends


def test_rank_killed_after_others_were_done_is_named():
    verdict = judge({0: done(0, 0), 1: done(0, 1), 2: dead(2)}, 9)
    assert (verdict.code, verdict.sentence) == (3, "rank 2 (client 2) died: killed by signal 9")


def test_rank_ended_by_the_launcher_after_an_agreed_end_is_not_blamed():
    verdict = judge({0: done(4, 0), 1: dead(1), 2: done(4, 2)}, 4)
    assert (verdict.code, verdict.sentence) == (4, None)


def test_rank_that_died_after_it_had_said_that_all_was_well_is_named():
    verdict = judge({0: RankEnd(started=True, code=0, place=0, status=11), 1: dead(1), 2: dead(2)}, 139)
    assert (verdict.code, verdict.sentence) == (3, "rank 0 (the server) died: killed by signal 11")


def test_who_outlives_a_run_is_not_blamed_for_its_end():
    ends = {0: done(70), 1: RUNNING, 2: done(3)}
    assert describe_outlived(1, ends, stopped=False) == (
        "rank 0 (the server) ended with exit code 70; rank 1 (client 1) outlived the run: killed"
    )
    assert describe_outlived(1, {0: done(0), 1: RUNNING, 2: done(0)}, stopped=True) == (
        "rank 1 (client 1) was stopped and outlived the run: killed"
    )


def test_survivors_of_a_dead_rank_keep_their_code():
    verdict = judge({0: done(3, 1), 1: dead(0), 2: done(3, 2)}, 137)
    assert verdict.code == 3
    assert "rank 1 (client 1) died" in verdict.sentence


@pytest.mark.parametrize(("status", "code"), [(1 << 8, 70), (2 << 8, 2), (0, 70)])
def test_silent_exit_keeps_a_known_code_and_is_a_bug_otherwise(status, code):
    verdict = judge({0: RUNNING, 1: dead(0, status)}, 1)
    assert verdict.code == code
    assert f"ended with exit code {status >> 8} before the run was over" in verdict.sentence


def test_unknown_status_falls_back_to_what_the_launcher_says():
    ends = {0: RUNNING, 1: RankEnd(started=True, place=0)}
    assert judge(ends, 9, launcher_signal=11).sentence.endswith("killed by signal 11")
    assert judge(ends, 4).code == 4
    assert judge(ends, -9).code == 3


def test_interrupted_run():
    assert judge({0: RUNNING, 1: RUNNING}, -2, interrupted=True).code == 3
    assert judge({0: done(0), 1: done(0)}, 0, interrupted=True).code == 0


def test_rank_that_never_started_is_named():
    verdict = judge({0: done(3), 1: RankEnd()}, 5)
    assert verdict.code == 3
    assert verdict.sentence == "rank 1 (client 1) ended before it had started (mpirun ended with code 5)"


def test_nothing_started():
    ends = {0: RankEnd(), 1: RankEnd()}
    assert judge(ends, 0).sentence is None
    assert judge(ends, 2).code == 2
    verdict = judge(ends, -15)
    assert verdict.code == 2
    assert "mpirun was killed by signal 15 before any rank had started" in verdict.sentence


def test_ranks_on_other_hosts():
    verdict = judge({0: RUNNING, 1: RUNNING}, 137, launcher_signal=9)
    assert verdict.code == 3
    assert "a rank was killed by signal 9" in verdict.sentence and "other hosts" in verdict.sentence


def test_other_hosts_are_named_only_where_a_rank_that_is_not_done_runs_on_one():
    here, there = RankEnd(started=True, watched=True), RankEnd(started=True)
    verdict = judge({0: here, 1: here}, -15)
    assert verdict.sentence == "mpirun was killed by signal 15; not done: rank 0 (the server), rank 1 (client 1)"
    assert judge({0: here, 1: there}, -15).sentence.endswith("client 1) (ranks on other hosts cannot be watched)")
