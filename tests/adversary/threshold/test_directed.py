"""Servers that lie on purpose: what each attack must not open, and whom the refusal names."""

from __future__ import annotations

import pytest

from fastlloyd.masking.threshold.numbers import Numbers
from tests.adversary.threshold.liar import Liar
from tests.adversary.threshold.sites import Run, make_run


def five(rounds: int = 1) -> Run:
    """M = 5, T = 3, c = 0."""
    return make_run(Numbers.settle(5, lying=0), rounds)


@pytest.mark.parametrize("twice", [False, True], ids=["set back once", "set back twice"])
def test_one_that_answered_at_once_and_was_set_back_before_any_other_did_opens_nothing_more(twice: bool) -> None:
    """No statement can say what it gave, so in a resumed run everybody's set needs votes, and votes of this return."""
    run = five()
    liar = Liar(run)
    a, b, c, d, e = run.everybody
    without_b = (a, c, d, e)
    liar.state(a, run.everybody)
    assert liar.sites[a].log[-1] == "send QuickAnswer"
    liar.bring_back(copies={a: 0})
    if twice:
        liar.state(a, run.everybody)
        assert liar.sites[a].log[-1] == "send SetVote"
        old_votes = liar.votes_for(0, liar.stated[a], a)
        liar.bring_back(copies={a: 0})
    for party in (b, c):
        liar.state(party, run.everybody)
    for party in (a, d, e):
        liar.state(party, without_b)
    for party in (a, d, e):
        liar.certify(party)
    if twice:
        liar.certify(b, {**old_votes, **liar.votes_for(0, liar.stated[b], b)})
        error = liar.sites[b].error
        assert error is not None and error.rank == 0
        assert "passes on a vote that client 1 did not give for this set" in str(error)
    found = liar.judge.verdict()
    assert not found.faults
    assert (found.opened, found.least) == (1, 1)
