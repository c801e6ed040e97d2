"""Servers that lie on purpose: what each attack must not open, and whom the refusal names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fastlloyd.errors import FastLloydError, PeerError, SecurityError
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.lifecycle.threshold import returning
from fastlloyd.lifecycle.threshold.client import ClientOpening, GivenSet, read_decisions
from fastlloyd.lifecycle.threshold.messages import (
    NOT_YET,
    DealtCiphers,
    DealtWords,
    GivenState,
    GivenStates,
    QuickAnswer,
    ReturnNonce,
    RoundSet,
    RunCiphers,
    RunKey,
    RunKeys,
    SetAnswer,
    SetVotes,
)
from fastlloyd.lifecycle.threshold.returning import come_back, relay_states
from fastlloyd.lifecycle.threshold.server import StatedSet
from fastlloyd.masking.fixed import RingArray
from fastlloyd.masking.mask import NO_HISTORY
from fastlloyd.masking.threshold import shamir
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.secrets import ClientSecrets, own_mask, pair_mask
from fastlloyd.masking.threshold.shamir import ELEMENT_BYTES
from fastlloyd.masking.threshold.words import OWN, PAIRS, check_of, hide_table
from fastlloyd.party.effects import Party
from fastlloyd.randomness import domains
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.horizontal import MaskAgreement, threshold_setup
from fastlloyd.run.simulation import Simulation
from fastlloyd.wire.header import SERVER, Message, PartyId
from tests.adversary.threshold.liar import Liar
from tests.adversary.threshold.sites import ELEMENTS, RING, Run, draw_parts, make_run


def five(rounds: int = 1, **given: int) -> Run:
    """M = 5, T = 3, c = 0."""
    return make_run(Numbers.settle(5, lying=0, **given), rounds)


def refusal(liar: Liar, party: PartyId, words: str, culprit: PartyId = SERVER) -> None:
    """Check with which sentence a client ended, and whom it names."""
    error = liar.sites[party].error
    assert isinstance(error, FastLloydError), liar.sites[party].waiting
    assert re.search(words, str(error)), str(error)
    assert "\n" not in str(error)
    assert error.rank == culprit.rank


def open_secret(liar: Liar, dealer: PartyId, kind: int, answers: Mapping[PartyId, bytes], t: int = 0) -> int | None:
    """Compute a secret from T answers, as the server does; None if it is not the one that was dealt."""
    words = liar.run.words[dealer]
    chosen = sorted(answers)[: liar.run.numbers.threshold]
    place = (dealer.rank - 1) * ELEMENT_BYTES
    shares = {
        holder.rank: (
            int.from_bytes(answers[holder][place : place + ELEMENT_BYTES], "little") + words.word(t, kind, holder)
        )
        % shamir.PRIME
        for holder in chosen
    }
    secret = shamir.combine(shamir.weights(shares), shares)
    return secret if check_of(dealer, t, kind, secret) == words.check(t, kind) else None


def take_out(liar: Liar, victim: PartyId, own: int, pairs: int) -> RingArray:
    """One client's vector and noise, from both of its secrets: what nobody may ever have."""
    history, shape = NO_HISTORY, {"ring": RING, "elements": ELEMENTS}
    found = RING.from_bytes(liar.vectors[victim, 0], 2 * ELEMENTS)[:ELEMENTS] - own_mask(own, 0, history, **shape)
    keys = hide_table(liar.run.words[victim].table(0), pairs)
    for other in liar.run.everybody:
        if other != victim:
            key = keys[(other.rank - 1) * 32 : other.rank * 32]
            mask = pair_mask(key, 0, history, **shape)
            found = found - mask if victim < other else found + mask
    return found


def vector_and_noise(run: Run, party: PartyId) -> RingArray:
    """What a client's vector is under its masks."""
    secrets, shapes = run.secrets(party), run.group(party).parts.shapes
    parts = draw_parts(0, ELEMENTS, shapes, [secrets.part_random(0, NO_HISTORY, j) for j in range(len(shapes))])
    return RING.encode(run.vector(party, 0)) + RING.reduce(np.sum(parts, axis=0, dtype=np.int64))


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
        refusal(liar, b, "passes on a vote that client 1 did not give for this set")
    found = liar.judge.verdict()
    assert not found.faults
    assert (found.opened, found.least) == (1, 1)


def vote_and_answer(liar: Liar, included: tuple[PartyId, ...], among: tuple[PartyId, ...]) -> None:
    for party in among:
        liar.state(party, included)
    for party in among:
        if liar.sites[party].waiting is not None:
            liar.certify(party)


def test_one_set_back_after_a_set_was_opened_goes_on_with_that_set() -> None:
    run = five()
    liar = Liar(run)
    a, b, c, d, e = run.everybody
    vote_and_answer(liar, (a, b, c, d), (a, b, c))
    liar.bring_back(copies={c: 0})
    liar.state(c, (a, b, c, e))
    refusal(
        liar,
        c,
        "states two sets, both signed: client 1, client 2, client 3, client 4, and client 1, client 2, client 3, "
        "client 5;",
    )
    assert not liar.judge.verdict().faults


def set_back(liar: Liar, those: tuple[PartyId, ...], *, together: bool) -> None:
    """Set clients back to the end of the set-up, in one return or each in its own."""
    for some in [those] if together else [(one,) for one in those]:
        liar.bring_back(copies=dict.fromkeys(some, 0))


TOGETHER = pytest.mark.parametrize("together", [True, False], ids=["together", "one after the other"])


def two_rounds_of_which_one_opened_the_second() -> Liar:
    """All have decided in round 0, three in round 1: statements name both rounds."""
    liar = Liar(five(2))
    a, b, c, d, _ = liar.run.everybody
    for party in liar.run.everybody:
        liar.state(party, liar.run.everybody)
        liar.reply(party)
    vote_and_answer(liar, (a, b, c, d), (a, b, c))
    return liar


def test_one_set_back_takes_the_set_of_the_newest_round_that_is_named() -> None:
    liar = two_rounds_of_which_one_opened_the_second()
    a, b, c, _, e = liar.run.everybody
    before = max(i for i, disk in enumerate(liar.sites[c].copies) if "set-1" not in disk)
    liar.bring_back(copies={c: before}, done=dict.fromkeys(liar.run.everybody, 1))
    for party in (c, e):
        liar.state(party, (a, b, c, e))
        refusal(liar, party, "states two sets, both signed: client 1, client 2, client 3, client 4, and")
    assert not liar.judge.verdict().faults


def test_one_set_back_does_not_go_on_with_a_round_before_the_newest() -> None:
    liar = two_rounds_of_which_one_opened_the_second()
    c = PartyId(3)
    liar.bring_back(copies={c: 0}, done={party: int(party != c) for party in liar.run.everybody})
    refusal(liar, c, "goes on with a round before round 1, for which clients have given shares")
    assert not liar.judge.verdict().faults


def test_a_colluding_client_that_names_another_set_of_an_older_round_is_found_out() -> None:
    """Each client compares with all that it has decided, not only with its newest round."""
    run = make_run(Numbers.settle(4), 2)
    a, b, c, d = run.everybody
    liar = Liar(run, [d])
    for _ in range(2):
        for party in (a, b, c):
            liar.state(party, run.everybody)
            liar.reply(party)
    other = liar.set_of(0, b"", (a, b, c))
    lie = GivenState(0, (a, b, c), bytes(32), other.signature, 0, 4)
    liar.bring_back(done=dict.fromkeys((a, b, c), 2), lies={d: lie})
    refusal(liar, a, "stated two sets for round 0, both signed")


@TOGETHER
def test_t_less_c_set_back_in_a_round_open_a_single_vector(together: bool) -> None:
    """The border of the claim: rho is at most T - c - 1. Here all T that opened a set are set back.

    That they are not set back together does not help: what one receives on its way back is not on its disk.
    """
    run = five()
    liar = Liar(run)
    a, b, c, d, e = run.everybody
    vote_and_answer(liar, (a, b, c, d), (a, b, c))
    outside = {party: liar.given[party, SetAnswer][-1] for party in (a, b, c)}
    set_back(liar, (a, b, c), together=together)
    vote_and_answer(liar, (a, b, c, e), (a, b, c))
    inside = {party: liar.given[party, SetAnswer][-1] for party in (a, b, c)}
    pairs, own = open_secret(liar, e, PAIRS, outside), open_secret(liar, e, OWN, inside)
    assert pairs is not None
    assert own is not None
    assert (take_out(liar, e, own, pairs) == vector_and_noise(run, e)).all()
    assert any("both known" in fault for fault in liar.judge.verdict().faults)


@TOGETHER
def test_with_one_less_set_back_they_do_not(together: bool) -> None:
    run = five()
    liar = Liar(run)
    a, b, c, d, e = run.everybody
    vote_and_answer(liar, (a, b, c, d), (a, b, c))
    set_back(liar, (a, b), together=together)
    for party in (a, b, d, e):
        liar.state(party, (a, b, c, e))
        refusal(liar, party, "states two sets, both signed")
    assert not liar.judge.verdict().faults


def resume_with_t_states(liar: Liar) -> None:
    """One of three that opened a set is set back; only it and the two that opened nothing are heard."""
    a, b, c, d, e = liar.run.everybody
    vote_and_answer(liar, (a, b, c, d), (a, b, c))
    liar.bring_back(copies={c: 0}, pass_on=False)
    nothing = GivenState(NOT_YET, (), bytes(32), bytes(64), 0, 5)
    heard = GivenStates((nothing, nothing, *liar.pending[c].states[2:]))
    for party in (c, d, e):
        liar.pending[party] = heard
        liar.hand_states(party)


def test_a_client_that_heard_t_states_would_open_a_single_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """M = 5, T = 3: what it is for that all M are asked. Two sets of T share one client, the one that was set back."""
    signed = returning._is_signed
    missing = lambda *given: given[2].signature == bytes(64) or signed(*given)  # noqa: E731
    monkeypatch.setattr(returning, "_is_signed", missing)
    run = five()
    liar = Liar(run)
    a, b, c, d, e = run.everybody
    resume_with_t_states(liar)
    outside = {party: liar.given[party, SetAnswer][-1] for party in (a, b, c)}
    vote_and_answer(liar, (a, b, c, e), (c, d, e))
    inside = {party: liar.given[party, SetAnswer][-1] for party in (c, d, e)}
    pairs, own = open_secret(liar, e, PAIRS, outside), open_secret(liar, e, OWN, inside)
    assert pairs is not None
    assert own is not None
    assert (take_out(liar, e, own, pairs) == vector_and_noise(run, e)).all()
    assert any("both known" in fault for fault in liar.judge.verdict().faults)


def test_a_client_hears_all_m_states_or_does_not_go_on() -> None:
    """More than the Q that the proof asks for: a message with fewer is malformed, and nobody's can be left out."""
    run = five()
    assert run.numbers.statements == 4
    liar = Liar(run)
    resume_with_t_states(liar)
    for rank in (3, 4, 5):
        refusal(liar, PartyId(rank), "passed on a statement that client 1 did not make")
    assert not liar.judge.verdict().faults
    for count in range(1, 5):
        liar = Liar(run)
        liar.bring_back(pass_on=False)
        a = PartyId(1)
        liar.pending[a] = GivenStates(liar.pending[a].states[:count])
        liar.hand_states(a)
        refusal(liar, a, "sent a malformed GivenStates")


@pytest.mark.parametrize("kind", [ReturnNonce, GivenState])
def test_a_server_that_lacks_one_state_lets_nobody_go_on(kind: type[Message]) -> None:
    run, passed = five(), []

    def client(me: PartyId) -> Party[None]:
        yield from come_back(run.group(me), me, {}, 0, SecretRandom())

    def tap(sender: PartyId, to: PartyId, header: Any, body: bytes) -> bytes | None:
        passed.append(header.type)
        return None if (sender.rank, header.type) == (4, kind.TYPE) else body

    parties: dict[PartyId, Party[Any]] = {me: client(me) for me in run.everybody}
    parties[SERVER] = relay_states(run.group(SERVER), {}, 0)
    with pytest.raises(PeerError, match="client 4 sent nothing") as got:
        Simulation(parties, tap).run()
    assert got.value.rank == 4
    assert GivenStates.TYPE not in passed


@pytest.mark.parametrize("spared", [0, 1])
def test_all_members_of_a_set_moved_to_another_history_give_two_sums_of_a_round(spared: int) -> None:
    """The same border for histories: each is set back to before a reply, and receives another one.

    Own masks are those of the round, whatever its history. If one member sent its vector once, the masks of its pairs
    still cover the others' vectors under the other history.
    """
    run = make_run(Numbers.settle(3), 2)
    liar = Liar(run)
    for party in run.everybody:
        liar.state(party, run.everybody)
        liar.reply(party)
    for party in run.everybody[spared:]:
        before = max(i for i, disk in enumerate(liar.sites[party].copies) if "reply-0" not in disk)
        liar.bring_back(copies={party: before}, done=dict.fromkeys(run.everybody, 1))
        liar.reply(party, content=1)
    moved = run.everybody[spared:]
    vote_and_answer(liar, run.everybody, moved)
    found = liar.judge.verdict()
    assert all(liar.given[party, QuickAnswer][1:] for party in moved)
    # The sum of round 0, and of round 1 under the first history; with nobody spared also under the second one.
    assert found.opened == (2 if spared else 3)
    assert found.faults == (() if spared else ("two sums of round 1 with vectors of the same client are open",))


def test_a_client_refuses_states_that_lack_another_ones() -> None:
    """All M states, each over the nonces of this return: an old one, another's, or one with a bit changed."""
    run = five()
    a, *_ = run.everybody
    for change in ("old", "other", "bit"):
        liar = Liar(run)
        liar.bring_back(pass_on=False)
        old = liar.pending[a].states
        liar.bring_back(pass_on=False)
        new = list(liar.pending[a].states)
        if change == "old":
            new[1] = old[1]
        elif change == "other":
            new[1] = new[2]
        else:
            new[1] = replace(new[1], replies=new[1].replies ^ 1)
        liar.pending[a] = GivenStates(tuple(new))
        liar.hand_states(a)
        refusal(liar, a, "passed on a statement that client 2 did not make")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("round", "without its signature for this run, round and history"),
        ("history", "after other replies than this client received"),
        ("history, signed", "without its signature for this run, round and history"),
        ("run", "without its signature for this run, round and history"),
        ("group", "without its signature for this run, round and history"),
        ("unsigned", "without its signature for this run, round and history"),
        ("signed by a client", "without its signature for this run, round and history"),
        ("everybody's statement for a set", "without its signature for this run, round and history"),
        ("below T", "states a set of 2 clients, expected at least 3"),
        ("nobody", "states a set of 0 clients, expected at least 3"),
    ],
)
def test_a_set_that_is_not_signed_for_this_round_is_refused(change: str, words: str) -> None:
    run = five(2)
    liar = Liar(run)
    a, *others = run.everybody
    group, included = run.group(SERVER), (a, *others[:3])
    said = liar.set_of(0, b"", included)
    if change == "round":
        said = liar.set_of(1, b"", included)
    elif change == "history":
        said = liar.set_of(0, b"other".ljust(32), included)
    elif change == "history, signed":
        said = replace(liar.set_of(0, b"other".ljust(32), included), history=bytes(32))
    elif change == "run":
        said = liar.set_of(0, b"", included, group=replace(group, run_id=b"run 2".ljust(16)))
    elif change == "group":
        said = liar.set_of(0, b"", included, group=replace(group, keys=bytes(32)))
    elif change == "unsigned":
        said = replace(said, signature=bytes(64))
    elif change == "signed by a client":
        said = liar.set_of(0, b"", included, group=run.group(a))
    elif change == "everybody's statement for a set":
        said = replace(liar.set_of(0, b"", run.everybody), included=included)
    else:
        said = liar.set_of(0, b"", (a, others[0]) if change == "below T" else ())
    liar.sites[a].give(said, 0)
    refusal(liar, a, words)
    assert not liar.given


@pytest.mark.parametrize("change", ["round", "history", "run", "group", "set", "voter", "T - 1", "resumed"])
def test_votes_that_are_not_for_this_set_are_refused(change: str) -> None:
    run = five(2)
    liar = Liar(run)
    a, b, c, d, e = run.everybody
    included = (a, b, c, d)
    for party in (a, b, c):
        liar.state(party, included)
    votes = liar.votes_for(0, liar.stated[a], a)
    group, words = run.group(b), "passes on a vote that client 2 did not give for this set"
    if change == "round":
        votes[b] = group.vote(1, b"", included)
    elif change == "history":
        votes[b] = group.vote(0, b"other".ljust(32), included)
    elif change == "run":
        votes[b] = replace(group, run_id=b"run 2".ljust(16)).vote(0, b"", included)
    elif change == "group":
        votes[b] = replace(group, keys=bytes(32)).vote(0, b"", included)
    elif change == "set":
        votes[b] = group.vote(0, b"", (a, b, c, e))
    elif change == "voter":
        votes[b] = votes[c]
    elif change == "resumed":
        votes[b] = replace(group, returned=b"return".ljust(32)).vote(0, b"", included)
    else:
        del votes[b]
        words = "passes on 2 votes, expected at least 3"
    liar.certify(a, votes)
    refusal(liar, a, words)
    assert not liar.given


def test_a_voter_outside_the_roster_or_named_twice_is_malformed() -> None:
    run = five()
    liar = Liar(run)
    a, b, c, d, _ = run.everybody
    for party in (a, b, c):
        liar.state(party, (a, b, c, d))
    votes = liar.votes_for(0, liar.stated[a], a)
    body = bytearray(SetVotes(votes, 5).body())
    body[0] |= 1 << 6
    with pytest.raises(ValueError, match="beyond client 5"):
        SetVotes.read(bytes(body), 5)
    # A bitmap cannot name one twice: its second signature makes the message too long.
    with pytest.raises(ValueError, match="expected"):
        SetVotes.read(SetVotes(votes, 5).body() + votes[a], 5)


def test_fewer_quick_answers_than_t_beside_a_certified_set_open_nothing() -> None:
    """Everybody's set to some, another to the rest."""
    run = five()
    liar = Liar(run)
    a, b, c, d, e = run.everybody
    for party in (a, b):
        liar.state(party, run.everybody)
    vote_and_answer(liar, (a, c, d, e), (c, d, e))
    found = liar.judge.verdict()
    assert (found.opened, found.least, found.faults) == (1, 1, ())
    # The two that answered at once give nothing for the other set.
    liar.bring_back()
    refusal(liar, a, "stated two sets for round 0, both signed")
    assert len(liar.given[a, QuickAnswer]) == 1
    assert (a, SetAnswer) not in liar.given


def test_quick_answers_under_different_histories_open_own_masks_and_no_sum() -> None:
    """Shares do not depend on the history. The masks of pairs do: those of two clients with two histories stay on."""
    run = five(2)
    liar = Liar(run)
    a, b, c, _, e = run.everybody
    for party in run.everybody:
        liar.state(party, run.everybody)
        liar.reply(party, content=int(party == c))
    before = liar.judge.verdict().opened
    for party in (a, b, c):
        liar.state(party, run.everybody)
    answers = {party: liar.given[party, QuickAnswer][-1] for party in (a, b, c)}
    assert open_secret(liar, e, OWN, answers, t=1) is not None
    found = liar.judge.verdict()
    assert (found.opened, found.faults) == (before, ())
    # Nor once they have come back: the two histories are noticed.
    liar.bring_back(done=dict.fromkeys(run.everybody, 1))
    refusal(liar, e, "stated two sets for round 1, both signed")


def test_declared_lost_and_then_its_vector_comes() -> None:
    """The pair keys of this round are known, those of the next and its own mask are not."""
    run = five(2)
    liar = Liar(run)
    a, b, c, d, e = run.everybody
    vote_and_answer(liar, (a, b, c, d), (a, b, c))
    answers = {party: liar.given[party, SetAnswer][-1] for party in (a, b, c)}
    assert open_secret(liar, e, PAIRS, answers) is not None
    assert open_secret(liar, e, OWN, answers) is None
    assert open_secret(liar, e, PAIRS, answers, t=1) is None
    assert liar.judge.knows(0, e, PAIRS)
    assert not liar.judge.knows(1, e, PAIRS)
    assert not liar.judge.knows(0, e, OWN)
    assert liar.vectors[e, 0]
    assert not liar.judge.verdict().faults


def test_a_set_with_a_client_that_sent_no_vector_is_refused() -> None:
    """Whoever drives the rounds: the opening itself knows whether the vector left."""
    run = five()
    secrets, group, a = run.secrets(PartyId(1)), run.group(PartyId(1)), PartyId(1)
    opening = ClientOpening(group, a, secrets, draw_parts)
    party = opening.open(0, NO_HISTORY, run.shape)
    party.send(None)
    liar = Liar(run)
    with pytest.raises(SecurityError, match="states a set with client 1, which has not sent its vector") as raised:
        party.send(liar.set_of(0, NO_HISTORY, run.everybody))
    assert raised.value.rank == 0


def test_set_back_before_its_vector_it_sends_the_same_bytes() -> None:
    liar = Liar(five())
    a = PartyId(1)
    first = liar.vectors[a, 0]
    liar.bring_back(copies={a: 0})
    assert liar.sites[a].log.count("save uplink-0") == 2
    assert liar.vectors[a, 0] == first


@pytest.mark.parametrize("at", range(12))
def test_a_crash_before_any_effect_loses_nothing_that_left(at: int) -> None:
    """Whatever left, what it follows from is on the disk: the same set, and no other, after another start."""
    run = five()
    a, b, c, d, e = run.everybody
    liar = Liar(run)
    site = liar.sites[a]
    for party in (b, c):
        liar.state(party, (a, b, c, d))
    site.crash_in = at
    liar.state(a, (a, b, c, d))
    if site.waiting is not None:
        liar.certify(a)
    if site.waiting is not None:
        liar.reply(a, (a, b, c, d))
    gave = [entry for entry in site.log if entry in ("send SetVote", "send SetAnswer")]
    assert not gave or "set-0" in site.disk
    liar.bring_back(done={a: int("reply-0" in site.disk)})
    if site.waiting is not None and site.waiting.type is RoundSet and gave:
        liar.state(a, (a, b, c, e))
        refusal(liar, a, "states two sets")
    assert not liar.judge.verdict().faults


def test_what_is_left_on_the_disk_after_the_reply_opens_nothing_of_the_round() -> None:
    """No root, no pair secret, no share and no excess of a round whose reply is stored."""
    run = five(2)
    liar = Liar(run)
    a, b, c, d, _ = run.everybody
    vote_and_answer(liar, (a, b, c, d), (a, b, c))
    before = run.secrets(a)
    shares = before.quick(0) + before.answer(0, ())
    gone = [shares[at : at + 32] for at in range(0, len(shares), 32)]
    gone += [before._root, *before._pairs.values(), liar.given[a, SetAnswer][-1][5 * ELEMENT_BYTES :]]
    assert any(piece in content for piece in gone for content in liar.sites[a].disk.values())
    liar.reply(a, (a, b, c, d))
    assert liar.sites[a].log[-3:] == ["save threshold", "save uplink-1", "send MaskedUpdate"]
    for name, content in liar.sites[a].disk.items():
        assert not any(piece in content for piece in gone), name
    # Stopped between the two writes, it deletes them when it starts again.
    other = liar.sites[b]
    other.crash_in = 2
    liar.reply(b, (a, b, c, d))
    assert other.log[-1] == "save reply-0"
    liar.bring_back(done=dict.fromkeys((a, b), 1))
    assert "save threshold" in other.log
    assert run.secrets(b)._root not in other.disk["threshold"]


def test_a_clients_folder_shows_its_exact_vector_of_the_open_round() -> None:
    """What docs/security.md says of its holder: noise that can be drawn again can be taken off."""
    run = five(2)
    liar = Liar(run)
    a = PartyId(1)
    disk = liar.sites[a].disk
    secrets = ClientSecrets.from_bytes(run.numbers, a, disk["threshold"])
    found = RING.from_bytes(disk["uplink-0"], 2 * ELEMENTS)[:ELEMENTS]
    found = found - secrets.vector_mask(0, NO_HISTORY, ring=RING, elements=ELEMENTS)
    shapes = run.group(a).parts.shapes
    parts = draw_parts(0, ELEMENTS, shapes, [secrets.part_random(0, NO_HISTORY, j) for j in range(len(shapes))])
    found = found - RING.reduce(parts.sum(axis=0))
    assert (found == RING.encode(run.vector(a, 0))).all()


def test_a_reply_about_another_set_is_refused() -> None:
    run = five()
    liar = Liar(run)
    a, b, c, d, e = run.everybody
    vote_and_answer(liar, (a, b, c, d), (a, b, c))
    liar.reply(a, (a, b, c, e))
    refusal(
        liar,
        a,
        "replies with the sum over client 1, client 2, client 3, client 5, expected client 1, client 2, client 3, "
        "client 4 ",
    )
    assert "reply-0" not in liar.sites[a].disk


def test_other_replies_to_one_client_end_its_run_when_it_comes_back() -> None:
    run = five(2)
    liar = Liar(run)
    a, *others = run.everybody
    for party in run.everybody:
        liar.state(party, run.everybody)
        liar.reply(party, content=int(party == a))
    for party in others:
        liar.state(party, run.everybody)
    liar.bring_back(done=dict.fromkeys(run.everybody, 1))
    refusal(liar, a, "sent this client other replies than it sent others")
    assert not liar.judge.verdict().faults


def set_up(run: Run, change: Callable[[PartyId, PartyId, int, bytes], bytes | None]) -> None:
    """Play the set-up with a relay, or a client, that changes what it sends."""

    def client(me: PartyId) -> Party[None]:
        agreement = MaskAgreement(session=run.session(me), context=bytes(32), to_keep={})
        yield from agreement.opening(run.plan, draw_parts, StoredRounds())

    parties: dict[PartyId, Party[Any]] = {me: client(me) for me in run.everybody}
    parties[SERVER] = threshold_setup(run.session(SERVER), run.plan).relay()
    Simulation(parties, tap=lambda sender, to, header, body: change(sender, to, header.type, body)).run()


def flip(body: bytes, at: int) -> bytes:
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


@pytest.mark.parametrize("at", [0, 40, 1000, 1216, 1279], ids=["X25519", "ML-KEM", "ML-KEM, later", "signature", "end"])
def test_a_key_that_the_server_changed_by_a_bit_names_the_server(at: int) -> None:
    def change(sender: PartyId, to: PartyId, kind: int, body: bytes) -> bytes | None:
        # The key of client 2, on the way to client 1.
        return flip(body, 1280 + at) if kind == RunKeys.TYPE and to.rank == 1 else body

    with pytest.raises(
        SecurityError, match="the server passed on a key of client 2 that client 2 has not signed"
    ) as got:
        set_up(five(), change)
    assert got.value.rank == 0


@pytest.mark.parametrize("at", [0, 1087, 1088], ids=["first", "last", "signature"])
def test_a_ciphertext_that_the_server_changed_by_a_bit_names_the_server(at: int) -> None:
    def change(sender: PartyId, to: PartyId, kind: int, body: bytes) -> bytes | None:
        return flip(body, at) if kind == RunCiphers.TYPE and to.rank == 3 else body

    with pytest.raises(SecurityError, match="a ciphertext of client 1 that client 1 has not signed") as got:
        set_up(five(), change)
    assert got.value.rank == 0


@pytest.mark.parametrize("other", [{"run_id": bytes(16)}, {"context": bytes(32)}, {}], ids=["run", "context", "keys"])
def test_what_was_signed_in_another_set_up_names_the_server_that_passes_it_on(other: dict[str, Any]) -> None:
    """Of another run, roster or plan; or beside other keys, as where a client has two and a server shows two lists."""
    run, a, b = five(), PartyId(1), PartyId(2)
    setup = replace(threshold_setup(run.session(a), run.plan), **other)

    def change(sender: PartyId, to: PartyId, kind: int, body: bytes) -> bytes | None:
        if not other and kind == RunCiphers.TYPE and to == b:
            statement = setup._about_cipher(a, b, bytes(32), body[:1088])
            return body[:1088] + setup.credentials.sign(statement, domains.THRESHOLD_CIPHER)
        if other and kind == RunKeys.TYPE and to == b:
            return body[:1216] + setup._sign_key(a, body[:1216]) + body[1280:]
        return body

    what = "key" if other else "ciphertext"
    with pytest.raises(SecurityError, match=f"the server passed on a {what} of client 1 that client 1 has not") as got:
        set_up(run, change)
    assert got.value.rank == 0


@pytest.mark.parametrize("kind", [RunKey, DealtCiphers, DealtWords])
@pytest.mark.parametrize("at", [0, 100, -1])
def test_what_a_client_did_not_sign_names_the_client(kind: type[Message], at: int) -> None:
    def change(sender: PartyId, to: PartyId, type_: int, body: bytes) -> bytes | None:
        return flip(body, at % len(body)) if type_ == kind.TYPE and sender.rank == 2 else body

    with pytest.raises((SecurityError, PeerError), match="client 2 (has not signed|sent malformed words)") as got:
        set_up(five(), change)
    assert got.value.rank == 2
    assert "\n" not in str(got.value)


def test_keys_that_the_server_swapped_or_repeated_name_the_server() -> None:
    run = five()
    setup = threshold_setup(run.session(PartyId(2)), run.plan)

    def swap(sender: PartyId, to: PartyId, kind: int, body: bytes) -> bytes | None:
        return body[1280:2560] + body[:1280] + body[2560:] if kind == RunKeys.TYPE else body

    def repeat(sender: PartyId, to: PartyId, kind: int, body: bytes) -> bytes | None:
        return body[:1280] + body[:1280] + body[2560:] if kind == RunKeys.TYPE else body

    def copy(sender: PartyId, to: PartyId, kind: int, body: bytes) -> bytes | None:
        """Client 2 signs the key of client 1 as its own, which an honest server would refuse."""
        if kind != RunKeys.TYPE:
            return body
        return body[:1280] + body[:1216] + setup._sign_key(PartyId(2), body[:1216]) + body[2560:]

    for change, what in ((swap, "a key of"), (repeat, "a key of"), (copy, "the same key for two clients")):
        with pytest.raises(SecurityError, match=f"the server passed on {what}") as got:
            set_up(run, change)
        assert got.value.rank == 0


@pytest.mark.parametrize("start", [0, 32], ids=["X25519", "ML-KEM"])
def test_a_key_that_yields_no_secret_and_is_signed_names_its_client(start: int) -> None:
    """A point of low order, or numbers that are not below q: the client itself signs it."""
    run = five()
    setup = threshold_setup(run.session(PartyId(2)), run.plan)

    def change(sender: PartyId, to: PartyId, kind: int, body: bytes) -> bytes | None:
        if kind == RunKey.TYPE and sender.rank == 2:
            key = RunKey.read(body, None).public
            wrong = bytes(32) + key[32:] if start == 0 else key[:32] + b"\xff" * 1152 + key[32 + 1152 :]
            return RunKey(wrong, setup._sign_key(PartyId(2), wrong)).body()
        return body

    with pytest.raises(SecurityError, match="client 2 sent a key that yields no secret") as got:
        set_up(run, change)
    assert got.value.rank == 2
    assert "\n" not in str(got.value)


def test_a_server_that_lost_a_set_for_which_clients_gave_shares_ends_with_code_3() -> None:
    """No second set: the round counts as released."""
    run = five()
    liar = Liar(run)
    a, b, c, d, _ = run.everybody
    vote_and_answer(liar, (a, b, c, d), (a, b, c))
    ready = {party: dict(site.disk) for party, site in liar.sites.items()}
    group = run.group(SERVER)

    def client(me: PartyId) -> Party[None]:
        stored = read_decisions({0: ready[me]["set-0"]} if "set-0" in ready[me] else {}, 5)
        yield from come_back(run.group(me), me, stored, 0, SecretRandom())

    for lost in (True, False):
        kept = {} if lost else {0: StatedSet((a, b, c, d), bytes(32), bytes(64)).to_bytes(5)}
        parties: dict[PartyId, Party[Any]] = {me: client(me) for me in run.everybody}
        parties[SERVER] = relay_states(group, kept, 0)
        if not lost:
            Simulation(parties).run()
            continue
        with pytest.raises(PeerError, match="the round counts as released and stays closed") as got:
            Simulation(parties).run()
        assert got.value.exit_code == 3
        assert re.match("client 1 has given shares for a set of round 0", str(got.value))


def test_a_client_that_names_a_set_which_the_server_never_stated_is_at_fault() -> None:
    """Its server has lost nothing: what it has stated it has signed."""
    run = five()
    a = PartyId(1)

    def client(me: PartyId) -> Party[None]:
        given = {0: GivenSet(run.everybody, True, bytes(64), bytes(32))} if me == a else {}
        yield from come_back(run.group(me), me, given, 0, SecretRandom())

    parties: dict[PartyId, Party[Any]] = {me: client(me) for me in run.everybody}
    parties[SERVER] = relay_states(run.group(SERVER), {}, 0)
    with pytest.raises(PeerError, match="client 1 names a set of round 0 that this server has not signed") as got:
        Simulation(parties).run()
    assert got.value.rank == 1
