"""Before the first round: who is blamed for a Hello or a plan message that does not fit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastlloyd.errors import PeerError, Reason
from fastlloyd.lifecycle.hello import Announced, Hello, PlanProposal, gather_announced, receive_plan
from fastlloyd.party.effects import Party
from fastlloyd.run.checks import refuse_ahead, refuse_closed
from fastlloyd.run.simulation import Simulation
from fastlloyd.wire.header import SERVER, Header, PartyId, clients


def tell(*hellos: object) -> Announced:
    """Let the server hear these Hellos, each from a client."""
    bodies = {PartyId(i): json.dumps(hello).encode() for i, hello in enumerate(hellos, start=1)}

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        return bodies.get(sender, body)

    def client() -> Party[None]:
        yield next(receive_plan(("a", "b"), 0))

    parties: dict[PartyId, Party[Any]] = {party: client() for party in bodies}
    schema: Announced = Simulation({SERVER: gather_announced(clients(len(hellos))), **parties}, tap).run()[SERVER]
    return schema


def hello(*names: object, rounds_done: object = 0) -> dict[str, object]:
    return {"names": names or ("a", "b"), "rounds_done": rounds_done}


def test_alike_hellos_are_a_schema() -> None:
    assert tell(hello(), hello(rounds_done=3)) == Announced(("a", "b"), {PartyId(1): 0, PartyId(2): 3})


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (hello(rounds_done=-1), "malformed Hello: rounds_done: expected a whole number from 0 to .*, got -1"),
        (hello(rounds_done=10**30), "malformed Hello: expected integers of at most"),
        (hello(rounds_done=True), "rounds_done: expected a whole number from 0 to .*, got True"),
        (hello(rounds_done=1.0), "rounds_done: expected a whole number from 0 to .*, got 1.0"),
        (hello("a", 5), r"names\[1\]: expected text of 0 to 65536 characters, got 5"),
        (hello(["a"], {"b": 1}), r"names\[0\]: expected text"),
        ({"names": [], "rounds_done": 0}, r"names: expected a list of 1 to 1000000 entries, got \[\]"),
        ({"names": ["a", "b"]}, r"expected the fields names, rounds_done, got an object without \['rounds_done'\]"),
        ([], r"malformed Hello: expected an object, got \[\]"),
        (hello("a"), "has 1 feature, client 1 has 2"),
        (hello("a", "z"), "feature 2 is 'z' at client 3 and 'b' at client 1"),
        (hello("a", "\x1b[2J"), r"feature 2 is '\\x1b\[2J' at client 3"),
    ],
    ids=range(12),
)
@pytest.mark.parametrize("liar", [1, 2, 3])
def test_the_client_whose_hello_does_not_fit_is_named(bad: object, sentence: str, liar: int) -> None:
    hellos = [hello(), hello(), hello()]
    hellos[liar - 1] = bad  # type: ignore[call-overload]
    usual = 2 if liar == 1 else 1
    sentence = sentence.replace("client 1", f"client {usual}").replace("client 3", f"client {liar}")
    with pytest.raises(PeerError, match=f"client {liar} .*{sentence}|{sentence}") as caught:
        tell(*hellos)
    assert caught.value.rank == liar
    assert str(caught.value).isprintable()


def test_of_two_the_second_differs_from_the_first() -> None:
    with pytest.raises(PeerError) as caught:
        tell(hello("a"), hello("b"))
    assert (caught.value.rank, caught.value.reason) == (2, Reason.CONFIG_MISMATCH)


@pytest.mark.parametrize(
    ("done", "stored", "most", "reason"),
    [(1, 0, 0, Reason.PROTOCOL), (6, 3, 5, Reason.PROTOCOL), (4, 3, 5, Reason.RESUME)],
)
def test_rounds_that_cannot_be_finished_are_the_sender_s_fault(
    done: int, stored: int, most: int, reason: Reason
) -> None:
    schema = Announced(("a",), {PartyId(1): 0, PartyId(2): done})
    with pytest.raises(PeerError, match=f"client 2 says that it has finished {done} rounds?,") as caught:
        refuse_ahead(schema, stored, most)
    assert (caught.value.rank, caught.value.reason) == (2, reason)
    refuse_ahead(schema, done, max(done, most))


def test_rounds_that_the_server_cannot_have_closed_are_its_fault() -> None:
    refuse_closed(5, 5)
    with pytest.raises(PeerError, match="the server says that it has closed 6 rounds, expected at most 5") as caught:
        refuse_closed(6, 5)
    assert caught.value.rank == 0


@pytest.mark.parametrize("text", ['{"plan":{},"rounds_done":2.0}', '{"plan":[],"rounds_done":0}', '{"plan":{}}', "[]"])
def test_a_proposal_of_other_types_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        PlanProposal.read(text.encode(), None)


def test_names_of_many_features_pass() -> None:
    names = tuple(f"feature {i}" for i in range(10_000))
    assert Hello.read(Hello(names, 0).body(), None).names == names
