"""Wrong, missing and malformed messages of SecFC; plans that do not fit."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from fastlloyd.errors import Aborted, ConfigError, InternalError, PeerError, RangeError, Reason
from fastlloyd.kmeans.grid import quantise
from fastlloyd.party.effects import Send
from fastlloyd.party.option import read_settings
from fastlloyd.protocols.secfc import sharing
from fastlloyd.protocols.secfc.field.prime import MAX_RECORDS
from fastlloyd.protocols.secfc.messages import (
    CenterShares,
    CodedValues,
    DataShares,
    Finished,
    Roll,
    Shared,
    Signs,
    SignsFormat,
    Size,
)
from fastlloyd.protocols.secfc.plan import Plan, check_plan, make_plan
from fastlloyd.protocols.secfc.settings import Settings, settle_code
from fastlloyd.protocols.secfc.sharing import gather_sizes, share_points
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import PartyId, clients
from tests.protocols.secfc.support import mixture, parameters, plan_for, run

POINTS = mixture(41, 3, 4, seed=6)


def altered(body: bytes, position: int = 0) -> bytes:
    """The same length, another low byte of one residue, still below its prime."""
    return body[:position] + bytes([body[position] ^ 1]) + body[position + 1 :]


@pytest.mark.parametrize("liar", [1, 4, 7])
def test_a_wrong_answer_is_noticed_and_named_given_two_more_than_needed(liar: int) -> None:
    def tap(sender, receiver, header, body):
        wrong = header.type == CodedValues.TYPE and sender.rank == liar and header.round == 1
        return altered(body, 30) if wrong else body

    with pytest.raises(PeerError, match=f"the answer of client {liar} does not fit") as caught:
        run(POINTS, 3, clients=7, tap=tap, settings={"segments": 2, "threshold": 1, "extra_answers": 2})
    assert (caught.value.rank, caught.value.reason) == (0, Reason.CONTRADICTION)


def test_of_a_wrong_answer_who_sent_its_sender_a_wrong_share_may_be_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    real = sharing._exchange

    def exchange(me, *rest):
        """Share; client 1 sends client 2 a share that is not on its polynomial."""
        effects, answer = real(me, *rest), None
        while True:
            try:
                effect = effects.send(answer)
            except StopIteration as end:
                return end.value
            if isinstance(effect, Send) and (me.rank, effect.to) == (1, (PartyId(2),)):
                elements = effect.message.elements.copy()
                elements[0] = -elements[0]
                effect = dataclasses.replace(effect, message=dataclasses.replace(effect.message, elements=elements))
            answer = yield effect

    monkeypatch.setattr(sharing, "_exchange", exchange)
    with pytest.raises(
        PeerError,
        match="the answer of client 2 does not fit those of the others: .* it is wrong, or one of client 1, client 3, "
        ".* sent client 2 a wrong share before",
    ) as caught:
        run(POINTS, 3, clients=7, settings={"segments": 2, "threshold": 1, "extra_answers": 2})
    assert (caught.value.rank, caught.value.reason) == (0, Reason.CONTRADICTION)
    elsewhere = str(Aborted(rank=0, reason=Reason.CONTRADICTION, code=3))
    assert "which of them is at fault is not known" in elsewhere and "client" not in elsewhere


def test_a_wrong_answer_is_named_with_the_help_of_answers_not_waited_for() -> None:
    # One answer more than needed shows that something is wrong; the last client's tells who.
    def tap(sender, receiver, header, body):
        return altered(body, 30) if header.type == CodedValues.TYPE and sender.rank == 2 else body

    with pytest.raises(PeerError, match="the answer of client 2 does not fit") as caught:
        run(POINTS, 3, clients=7, tap=tap, settings={"segments": 2, "threshold": 1, "extra_answers": 1})
    assert caught.value.reason is Reason.CONTRADICTION


def test_a_wrong_answer_among_too_few_ends_the_run() -> None:
    def tap(sender, receiver, header, body):
        return altered(body, 30) if header.type == CodedValues.TYPE and sender.rank == 2 else body

    with pytest.raises(PeerError, match="contradict each other") as caught:
        run(POINTS, 3, clients=6, tap=tap, settings={"segments": 2, "threshold": 1, "extra_answers": 1})
    assert caught.value.reason is Reason.CONTRADICTION


def test_too_few_answers_name_a_missing_client() -> None:
    def tap(sender, receiver, header, body):
        return None if header.type == CodedValues.TYPE and sender.rank == 3 else body

    with pytest.raises(PeerError, match="client 3"):
        run(POINTS, 3, clients=3, tap=tap)


@pytest.mark.parametrize(
    "type_,change,rank",
    [
        (Size, lambda body: body[:-1], 1),
        (Size, lambda body: b"\xff" * 8, 1),
        (DataShares, lambda body: body[:-1], 1),
        (DataShares, lambda body: body + b"\0", 1),
        (DataShares, lambda body: b"\1" + body[1:], 1),
        (DataShares, lambda body: body[:4] + b"\xff" * (len(body) - 4), 1),
        (Shared, lambda body: b"\1" + body[1:], 1),
        (CodedValues, lambda body: body[:-1], 1),
        (CodedValues, lambda body: b"", 1),
        (CodedValues, lambda body: b"\3" + body[1:], 1),
        (CodedValues, lambda body: b"\2" + body[1:], 1),
        (CodedValues, lambda body: body[:1], 1),
        (CodedValues, lambda body: body + body[1:], 1),
        (CodedValues, lambda body: body[:1] + b"\xff" * (len(body) - 1), 1),
        (Signs, lambda body: body[:-1], 0),
        (Signs, lambda body: b"\xff" + body[1:], 0),
        (Signs, lambda body: b"\1" + body[1:], 0),
        (Signs, lambda body: body[:-1] + b"\xff", 0),
        (Finished, lambda body: b"\0", 1),
        (Roll, lambda body: b"\xff", 0),
        (Roll, lambda body: b"\1", 0),
        (Roll, lambda body: b"\0", 0),
        (CenterShares, lambda body: body[:-1], 1),
        (CenterShares, lambda body: b"\x11" * len(body), 1),
    ],
)
def test_malformed_and_impossible_messages_blame_their_sender(type_, change, rank) -> None:
    def tap(sender, receiver, header, body):
        return change(body) if header.type == type_.TYPE and sender.rank == rank else body

    with pytest.raises(PeerError) as caught:
        run(POINTS, 3, clients=3, tap=tap, settings={"reveal_centers": True})
    assert caught.value.rank == rank


def test_signs_that_fit_no_choice_of_a_seed_are_refused() -> None:
    def tap(sender, receiver, header, body):
        return body[:1] + bytes(len(body) - 1) if header.type == Signs.TYPE else body

    with pytest.raises(PeerError, match="fit no choice of a seed") as caught:
        run(POINTS, 3, clients=3, tap=tap, settings={"start": "separated"})
    assert caught.value.rank == 0


@pytest.mark.parametrize("liar", [1, 3])
def test_answers_of_different_kinds_name_the_fewest(liar: int) -> None:
    def tap(sender, receiver, header, body):
        if header.type == CodedValues.TYPE and sender.rank == liar and header.round == 2:
            return b"\2"
        return body

    with pytest.raises(PeerError, match=f"message 2 of client {liar} are of another kind or length") as caught:
        run(POINTS, 3, clients=5, tap=tap)
    assert caught.value.rank == liar


def test_answers_beyond_the_plan_are_refused() -> None:
    def tap(sender, receiver, header, body):
        return b"\1" + body[1:] if header.type == CodedValues.TYPE and body == b"\2" else body

    with pytest.raises(PeerError, match="goes on after message 2, the last of the plan"):
        run(POINTS, 3, clients=3, rounds=1, tap=tap, settings={"starts": 1})


def test_a_server_that_tells_two_clients_different_signs_decodes_nothing() -> None:
    # Masks and orders depend on all replies: from then on the clients' answers contradict each other.
    def tap(sender, receiver, header, body):
        if header.type == Signs.TYPE and header.round == 0 and receiver.rank == 2:
            return body[:1] + bytes([body[1] ^ 1]) + body[2:]
        return body

    with pytest.raises(PeerError, match="contradict each other|does not fit"):
        run(POINTS, 3, clients=7, tap=tap, settings={"segments": 2, "threshold": 1, "extra_answers": 2})


@pytest.mark.parametrize("first", [1, 2])
def test_of_centres_that_do_not_open_a_server_that_told_different_signs_may_be_the_cause(first: int) -> None:
    # All clients are honest. Client 2 hears the opposite in the last reply, so it opens the other of two clusters.
    def tap(sender, receiver, header, body):
        if header.type == Signs.TYPE and receiver.rank == 2:
            return body[:1] + bytes(255 - byte for byte in body[1:])
        # Shares to others are still under way: so this client is the first to open.
        return None if header.type == CenterShares.TYPE and receiver.rank != first else body

    points = mixture(48, 2, 4, seed=6)  # a whole number of bytes of signs
    with pytest.raises(
        PeerError,
        match="^the shares of client 1, client 2 give sums that no points of these clusters have: one of these clients "
        "sent a wrong share, or the server sent the clients different assignments; the shares alone do not show which",
    ):
        run(points, 2, clients=3, rounds=1, tap=tap, settings={"reveal_centers": True, "starts": 1})


def test_shares_of_different_numbers_of_clusters_do_not_prove_which_client_is_wrong() -> None:
    # All clients are honest. The last reply to client 2 is another one, so it finds another number of filled clusters.
    replies: list[int] = []

    def tap(sender, receiver, header, body):
        if header.type == Signs.TYPE and receiver.rank == 2:
            replies.append(header.round)
            if header.round == last:
                return body[:1] + bytes(255 - byte for byte in body[1:])
        return None if header.type == CenterShares.TYPE and receiver.rank != 2 else body

    points, last = mixture(48, 3, 4, seed=6), -1
    choices = {"reveal_centers": True, "starts": 1, "least_revealed": 1}
    run(points, 3, clients=3, rounds=1, settings=choices, tap=lambda *frame: (tap(*frame), frame[3])[1])
    last = max(replies)
    with pytest.raises(PeerError, match="different numbers of clusters: one of these clients .* or the server sent"):
        run(points, 3, clients=3, rounds=1, tap=tap, settings=choices)


def test_a_client_that_never_finishes_is_late_and_the_others_reveal_without_it() -> None:
    def tap(sender, receiver, header, body):
        return None if header.type == Finished.TYPE and sender.rank == 1 else body

    outcome = run(POINTS, 3, clients=5, tap=tap, settings={"segments": 1, "threshold": 1, "reveal_centers": True})
    assert outcome.server.late == {PartyId(1)}
    assert outcome.results[PartyId(1)].centers is None
    assert np.isfinite(outcome.results[PartyId(5)].centers).all()


def test_telling_another_number_of_records_is_a_bug() -> None:
    plan = plan_for(41, 4, 3, clients=3)
    own = quantise(POINTS[: plan.sizes[2] - 1], plan.fraction_bits)
    with pytest.raises(InternalError, match="client 3 sent a size that is not"):
        next(share_points(PartyId(3), own, plan, run_id=bytes(16), secret=SecretRandom()))


@pytest.mark.parametrize(
    "m,segments,threshold",
    [(3, 1, 1), (4, 1, 1), (5, 2, 1), (6, 2, 1), (7, 2, 2), (10, 3, 2), (11, 3, 3), (16, 4, 4), (100, 25, 25)],
)
def test_defaults_are_those_of_the_design(m: int, segments: int, threshold: int) -> None:
    assert settle_code(Settings(), m) == (segments, threshold)
    assert 2 * segments + 2 * threshold - 1 <= m


@pytest.mark.parametrize(
    "m,settings,text",
    [
        (2, {}, "at least 3 clients, got 2"),
        (1, {}, "start with -n 4"),
        (6, {"segments": 2, "threshold": 2}, "lower --set secfc.segments"),
        (3, {"extra_answers": 1}, "extra_answers"),
        (3, {"mode": "distances"}, "no setting 'mode'"),
        (3, {"start": "near"}, "start"),
        (3, {"starts": 0}, "starts"),
        (3, {"least_revealed": 0}, "least_revealed"),
        (3, {"fraction_bits": 20}, "fraction_bits"),
        (3, {"segments": 0}, "segments"),
        (3, {"segments": True}, "segments"),
        (3, {"membership": 1}, "membership"),
        (3, {"colour": 1}, "no setting 'colour'"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_the_mend(m, settings, text) -> None:
    with pytest.raises(ConfigError, match=text):
        parameters(90, 3, clients=m, settings=settings)


@pytest.mark.parametrize(
    "changes,text",
    [({"k": 0}, "--k"), ({"k": 91}, "--k"), ({"n_total": MAX_RECORDS}, "--n-total"), ({"rounds": 0}, "--rounds")],
)
def test_public_parameters_that_do_not_fit_are_refused(changes, text) -> None:
    values = {"n_total": 90, "k": 3, **changes}
    with pytest.raises(ConfigError, match=text):
        parameters(values.pop("n_total"), values.pop("k"), **values)


def test_automatic_stands_for_the_defaults() -> None:
    assert read_settings(Settings(), "secfc", {"segments": "auto", "threshold": "auto"}) == Settings()


@pytest.mark.parametrize("sizes", [(50, 50, 50), (0, 0, 0), (1, 2), (-1, 1, 1)])
def test_sizes_that_do_not_fit_the_public_number_are_refused(sizes) -> None:
    with pytest.raises(ConfigError):
        plan_for(90, 4, 3, sizes)


def test_runs_too_large_for_a_message_or_a_field_are_refused_with_the_mend() -> None:
    with pytest.raises(RangeError, match="lower --k"):
        plan_for(1 << 24, 2, 50, clients=3)
    with pytest.raises(RangeError, match="membership"):
        plan_for(1 << 22, 2, 2, clients=5, settings={"membership": True})
    with pytest.raises(RangeError, match="fewer fraction bits"):
        make_plan(parameters(MAX_RECORDS - 1, 2, rounds=50), d=1 << 28, names=(), sizes=(1, 1, 1))
    with pytest.raises(RangeError, match="comparisons, expected at most 549755813888"):
        make_plan(parameters(MAX_RECORDS - 1, 2), d=2, names=(), sizes=(1, 1, 1))


@pytest.mark.parametrize(
    "change",
    [
        {"k": 4},
        {"segments": 2},
        {"threshold": 2},
        {"seed": 1},
        {"start": "separated"},
        {"starts": 3},
        {"least_revealed": 1},
        {"membership": True},
        {"reveal_centers": True},
        {"fraction_bits": 8},
        {"primes": (7, 11)},
        {"iterations": 7},
        {"names": ("a", "b")},
        {"n_total": 1000},
        {"sizes": (10, 10, 9)},
        {"sizes": (40, 40, 40)},
        {"sizes": (9, 11, 10)},
    ],
)
def test_a_client_refuses_a_plan_that_is_not_its_configuration(change) -> None:
    public = parameters(30, 3)
    plan = make_plan(public, d=2, names=("x1", "x2"), sizes=(10, 10, 10))
    own: dict[str, Any] = {"me": PartyId(3), "names": ("x1", "x2"), "size": 10, "caps": (10, 10, 10)}
    check_plan(plan, public, **own)
    with pytest.raises(ValueError, match="plan"):
        check_plan(dataclasses.replace(plan, **change), public, **own)


def test_with_membership_a_client_refuses_any_size_but_the_cap() -> None:
    public = parameters(30, 3, settings={"membership": True})
    own: dict[str, Any] = {"me": PartyId(3), "names": ("x1", "x2"), "size": 10, "caps": (10, 10, 10)}
    check_plan(make_plan(public, d=2, names=("x1", "x2"), sizes=(10, 10, 10)), public, **own)
    with pytest.raises(ValueError, match="client 1 has a size of 0, which does not fit its cap of 10"):
        check_plan(make_plan(public, d=2, names=("x1", "x2"), sizes=(0, 10, 10)), public, **own)


@pytest.mark.parametrize(
    "membership,size,fits",
    [
        (False, 0, True),
        (False, 13, True),
        (False, 14, False),
        (True, 14, False),
        (True, 0, False),
        (True, 12, False),
        (True, 13, True),
    ],
)
def test_a_size_that_does_not_fit_the_public_cap_names_its_sender(membership: bool, size: int, fits: bool) -> None:
    party = gather_sizes(clients(3), (13, 13, 13), padded=membership)
    next(party)
    told = {PartyId(1): Size(13), PartyId(2): Size(size), PartyId(3): Size(13)}
    if fits:
        with pytest.raises(StopIteration) as end:
            party.send(told)
        assert end.value.value == (13, size, 13)
    else:
        with pytest.raises(PeerError, match=f"client 2 sent a size of {size}, expected") as caught:
            party.send(told)
        assert caught.value.rank == 2


def test_plans_survive_their_encoding() -> None:
    plan = plan_for(90, 4, 3, clients=5)
    assert Plan.from_json(plan.to_json()) == plan
    with pytest.raises(ValueError, match="fields"):
        Plan.from_json({"k": 3})


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 300])
def test_signs_survive_their_encoding(count: int) -> None:
    shape = SignsFormat(count, 9)
    positive = np.arange(count) % 3 == 0
    got = Signs.read(Signs(positive, (PartyId(1), PartyId(9)), shape).body(), shape)
    assert (got.positive == positive).all() and got.included == (PartyId(1), PartyId(9))
