"""What messages declare: rows and bounds follow from a list of classes."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from fastlloyd.party.declaration import DOWN, UP, OfPlan, Seen, common, kinds_of, largest_bodies, rows_of, seen_as
from fastlloyd.party.message import NoPayload


class Question(NoPayload):
    TYPE = 200
    MOST_BYTES = 5
    SEEN = (
        Seen(UP, "ask", server="the question", others="-", when=common),
        Seen(UP, "ask", server="nothing", others="-", variant="masked", when=lambda facts: not common(facts)),
    )


class Hint(NoPayload):
    TYPE = 201
    MOST_BYTES = OfPlan(lambda plan: 2 * plan.k)
    SEEN = ()


class Answer(NoPayload):
    TYPE = 202
    MOST_BYTES = OfPlan(lambda plan: plan.k)
    SEEN = Seen(DOWN, "answer", server="what it computed", others="the answer")


LIST = (Question, Hint, Answer)


def test_a_message_without_a_row_goes_with_the_one_before_it() -> None:
    assert [row.name for row in rows_of(LIST)] == ["Question, Hint", "Question, Hint (masked)", "Answer"]
    assert [row.kinds for row in rows_of(LIST)] == [(Question, Hint), (Question, Hint), (Answer,)]
    assert rows_of((Answer, Hint))[0].name == "Answer, Hint"


def test_a_first_message_without_a_row_is_refused_and_not_dropped() -> None:
    with pytest.raises(TypeError, match=r"Hint comes first and has SEEN = \(\): expected its own row"):
        rows_of((Hint, Answer))
    with pytest.raises(TypeError, match="Hint comes first"):
        kinds_of((Hint,))


def test_a_protocol_says_a_shared_message_in_its_words() -> None:
    own = seen_as(Answer, Hint, others="nothing")
    assert own == dataclasses.replace(Answer.SEEN, kinds=(Answer, Hint), others="nothing")
    assert rows_of((Question, own))[-1] == own


def test_classes_and_sizes_follow_from_the_list() -> None:
    assert kinds_of(LIST) == LIST
    assert kinds_of((Answer, *LIST[:1], Answer)) == (Answer, Question)
    assert largest_bodies(LIST, SimpleNamespace(k=3)) == {200: 5, 201: 6, 202: 3}


def test_what_a_run_with_these_facts_does_not_send_is_left_out() -> None:
    never = seen_as(Answer, when=lambda facts: False)
    assert kinds_of((Question, never), {"masking": "pairwise"}) == (Question,)
    assert kinds_of((Question, never)) == (Question, Answer)
