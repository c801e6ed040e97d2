"""One field of a plan or a message, changed on its way in a whole run: who is named, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastlloyd.errors import PeerError
from fastlloyd.lifecycle.hello import PlanProposal
from fastlloyd.protocols.feddp.messages import CentersMessage, ProjectedCentersMessage
from fastlloyd.protocols.vertical_dp.messages import FinalResult, Synopsis
from fastlloyd.protocols.vertical_he.messages import KeyPiece, NoisySums
from fastlloyd.run.config import RunConfig
from fastlloyd.run.run_file import with_values
from fastlloyd.run.simulation import run_together
from fastlloyd.wire.header import SERVER, Header, PartyId

CLIENTS = {"secfc": 5, "vertical-he": 1}


def config(protocol: str, values: dict[str, Any] | None = None, **more: Any) -> RunConfig:
    private = {} if protocol in ("secfc", "kfed", "vertical-plain") else {"epsilon": 10.0}
    public = {"dataset": "iris", "bounds": "0,10", "k": 3, **private, **more}
    return with_values(RunConfig(protocol=protocol, **public), {} if values is None else {protocol: values})


def refuse(config: RunConfig, clients: int, type_: Any, change: Callable[[bytes], bytes], sentence: str) -> PeerError:
    """Let all parties live, the first message of a type changed; its receiver must name who sent it."""
    changed: list[PartyId] = []

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type != type_.TYPE or changed:
            return body
        changed.append(sender)
        return change(body)

    with pytest.raises(PeerError, match=sentence) as caught:
        run_together(config, clients, tap=tap)
    assert [caught.value.rank] == [sender.rank for sender in changed] and caught.value.exit_code == 3
    return caught.value


def set_in(plan: Any, path: str, value: Any) -> None:
    """Set what a path of names and numbers leads to; a callable gets the old value."""
    *way, last = [int(step) if step.lstrip("-").isdigit() else step for step in path.split(".")]
    for step in way:
        plan = plan[step]
    plan[last] = value(plan[last]) if callable(value) else value


def doubled(value: float) -> float:
    return 2 * value


PLANS = [
    ("fastlloyd", {}, "fraction_bits", 7, "7 fraction bits, expected 8 to 16"),
    ("fastlloyd", {}, "rounds.1.radius", None, "no radius in round 1, expected one"),
    ("fastlloyd", {}, "rounds.1.radius", doubled, "in round 1, expected about"),
    ("fastlloyd", {}, "rounds.1.cells", 4, "4 cells in round 1, expected 0"),
    ("fastlloyd", {}, "rounds.1.clusters", 2, "2 clusters in round 1, expected 3"),
    ("fastlloyd", {}, "relative", False, "relative, clip and domain: expected"),
    ("fastlloyd-plus", {}, "plus", None, "no part for fastlloyd-plus, expected one"),
    ("fastlloyd-plus", {}, "plus.swap", False, "swap of fastlloyd-plus: expected True, got False"),
    ("feddp", {}, "norm_bound", 3.0, "norm_bound = 3, expected above 0 and at most 2"),
    ("feddp", {"norm_bound": 1.5}, "norm_bound", 1.25, "norm_bound = 1.25, expected 1.5"),
    ("feddp", {}, "outer_clip", 1.0, "on a user's norm, outer product, weights, means and counts"),
    ("feddp", {}, "n_server", 2, "2 server points, expected 3 to"),
    ("feddp", {}, "fraction_bits", 7, "7 fraction bits, 16 of outer products"),
    ("feddp", {}, "outer_bits", 9, "fraction bits \\(16, 9, 16\\), expected"),
    ("feddp", {}, "rounds", lambda rounds: rounds[:-1], "the plan has the steps"),
    ("feddp", {"start": "private"}, "n_server", doubled, "proxy points, expected"),
    ("vertical-dp", {}, "hi.0", [10.0], "the plan's columns are inconsistent"),
    ("vertical-dp", {}, "names.0.0", "width", "describes this party's columns differently"),
    ("vertical-dp", {}, "local_epsilon", doubled, "divides epsilon differently"),
    ("vertical-he", {}, "plan.k", 2, "the plan has k = 2, expected 3"),
    ("vertical-he", {}, "features.1.hi.0", 9.0, "its description of this party's columns differs"),
    ("secfc", {}, "sizes.0", 29, "has a size of 29, expected 30"),
]


@pytest.mark.parametrize(("protocol", "values", "path", "value", "sentence"), PLANS)
def test_a_plan_with_one_other_field_is_the_server_s_fault(
    protocol: str, values: dict[str, Any], path: str, value: Any, sentence: str
) -> None:
    def change(body: bytes) -> bytes:
        proposal = json.loads(body)
        set_in(proposal["plan"], path, value)
        return json.dumps(proposal).encode()

    rounds = {} if protocol in ("fastlloyd", "fastlloyd-plus", "kfed", "vertical-dp") else {"rounds": 1}
    refuse(config(protocol, values, **rounds), CLIENTS.get(protocol, 2), PlanProposal, change, sentence)


def put(kind: str, at: int, value: float) -> Callable[[bytes], bytes]:
    """Change one number of a message, counted from a number of bytes on, from the end where it is negative."""

    def change(body: bytes) -> bytes:
        number = np.array([value], dtype=kind).tobytes()
        start = at % len(body)
        return body[:start] + number + body[start + len(number) :]

    return change


MESSAGES = [
    ("feddp", {}, CentersMessage, put("<f8", 4, 1.5), "a centre outside"),
    ("feddp", {}, CentersMessage, put("<f8", 4, np.nan), "a number that is not finite"),
    ("feddp", {}, CentersMessage, lambda body: body[:3], "expected the number of clusters, got 3 bytes"),
    ("feddp", {"k": "auto"}, ProjectedCentersMessage, put("<f8", -8, -1.0), "a cost below zero"),
    ("vertical-plain", {}, Synopsis, lambda body: body[:-1], "expected the local clusters of 150 users, got 149"),
    ("vertical-plain", {}, Synopsis, put("u1", -1, 255), "a local cluster beyond"),
    ("vertical-dp", {"share_result": True}, FinalResult, lambda body: body[:-1], "bytes of centres, weights and"),
    ("vertical-dp", {"share_result": True}, FinalResult, put("<f8", 0, 2.0), "a centre lies outside"),
    ("vertical-dp", {"share_result": True}, FinalResult, put("<f8", 96, -1.0), "a weight lies outside 0 to N = 150"),
    ("vertical-dp", {"share_result": True}, FinalResult, put("<f8", -8, -1.0), "a deviation is below 0"),
    ("vertical-he", {}, NoisySums, put("<i8", 0, 2**62), "got a larger one"),
    ("vertical-he", {"mode": "threshold", "threshold": 2}, KeyPiece, put("i1", 0, 2), "does not open"),
]


@pytest.mark.parametrize(("protocol", "values", "type_", "change", "sentence"), MESSAGES)
def test_a_message_with_one_other_number_is_its_sender_s_fault(
    protocol: str, values: dict[str, Any], type_: Any, change: Callable[[bytes], bytes], sentence: str
) -> None:
    more: dict[str, Any] = {"rounds": 1} if protocol in ("feddp", "vertical-he") else {}
    values = dict(values)
    if values.pop("k", None):
        more |= {"choose_k": True}
    if protocol == "vertical-dp":
        values |= {"rows": 64, "local_clusters": 3}
    clients = 3 if values.get("threshold") else CLIENTS.get(protocol, 2)
    if values.get("threshold"):
        more |= {"k": 2, "dataset": "vertical-mixture:n=60,d=4,k=2", "bounds": None}
    refuse(config(protocol, values, **more), clients, type_, change, sentence)


def test_of_three_parties_the_one_with_other_users_is_named() -> None:
    """Nobody can tell who of two is wrong; of three the one that differs is."""
    for clients, sentence in ((2, "and client 1 of 150|client 2 of 150"), (3, "149 users, expected 150")):

        def shorter(body: bytes) -> bytes:
            users = int.from_bytes(body[-154:-150], "little")
            assert users == 150
            return body[:-154] + (149).to_bytes(4, "little") + body[-149:]

        with pytest.raises(PeerError, match=sentence) as caught:
            run_together(config("vertical-plain"), clients, tap=first(Synopsis.TYPE, shorter))
        assert caught.value.rank == (2 if clients == 2 else 1) and caught.value.exit_code == 3


def first(type_: int, change: Callable[[bytes], bytes]) -> Any:
    """Change the first client's message of a type."""

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        return change(body) if header.type == type_ and sender == PartyId(1) and receiver == SERVER else body

    return tap
