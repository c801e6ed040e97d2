"""A run of clients of a second implementation at the product's server: the same messages, byte by byte, and results.

Both runs draw the same bytes. One client is lost in a round, and another one there leaves its excess of noise in.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.x509 import load_der_x509_certificate

from fastlloyd.crypto import hybrid
from fastlloyd.crypto.link.identity import make_identity
from fastlloyd.crypto.link.roster import Roster, RosterEntry
from fastlloyd.lifecycle.masked_sums import MaskedUpdate
from fastlloyd.lifecycle.sealed import Sealing
from fastlloyd.lifecycle.threshold.messages import SetAnswer
from fastlloyd.lifecycle.threshold.setup import ThresholdSetup
from fastlloyd.party.effects import Party, Receive, Send
from fastlloyd.privacy.shares import draw_gaussian_parts
from fastlloyd.randomness.secret import KeyedRandom
from fastlloyd.run import simulation as in_memory
from fastlloyd.run.config import RunConfig
from fastlloyd.run.session import Session, find_protocol
from fastlloyd.wire.header import SERVER, Header, PartyId
from tests.parsed import imported_packages
from tests.protocols import independent
from tests.protocols.independent import COMPARE, FINAL, Client
from tests.vectors import mlkem768

M, LOST, SILENT, OF_ROUND = 5, 1, 2, 1
RUN = RunConfig(
    protocol="fastlloyd",
    dataset="iris",
    bounds="0,10",
    k=3,
    rounds=3,
    epsilon=20.0,
    masking="threshold",
    min_clients=3,
    colluding=0,
)
IDENTITIES = {PartyId(rank): make_identity(f"site {rank}", rank) for rank in range(M + 1)}


class Source:
    """Bytes that belong to a name."""

    def __init__(self, name: str) -> None:
        self._stream = Cipher(ChaCha20(hashlib.sha256(name.encode()).digest(), bytes(16)), mode=None).encryptor()

    def bytes(self, count: int) -> bytes:
        return self._stream.update(bytes(count))


def drawn_for(purpose: bytes, sender: int, receiver: int) -> bytes:
    """What is drawn for an encapsulation."""
    return hashlib.sha256(purpose + bytes([sender, receiver])).digest()


@cache
def raw(number: int) -> type[Any]:
    """A message of a number whose body is any bytes."""

    @dataclass(frozen=True)
    class Raw:
        content: bytes = field(repr=False)
        TYPE = number
        payload_bytes = 0

        def body(self) -> bytes:
            return self.content

        @classmethod
        def read(cls, body: bytes, format: Any) -> Any:
            return cls(body)

    return Raw


def take_part(session: Session) -> Party[Any]:
    """Carry the messages of a client of the second implementation."""
    me, own = session.me, session.own
    sources = {name: Source(f"{name} {me.rank}") for name in ("seed", "threshold")}
    keys = {p.rank: load_der_x509_certificate(one.certificate_der).public_key() for p, one in IDENTITIES.items()}

    def noise(key: bytes, further: bytes) -> Callable[..., Any]:
        source = KeyedRandom(key, further)
        return lambda scale, share, size: draw_gaussian_parts([(scale, size)], [share], [source])[0]

    steps = Client(
        rank=me.rank,
        run_id=session.run_id,
        agreed=agreed(session),
        key=IDENTITIES[me].key,
        keys=keys,  # type: ignore[arg-type]
        names=list(own.names),
        points=own.raw_points,
        draw=lambda name, count: sources[name].bytes(count),
        encapsulation=lambda purpose, other: drawn_for(purpose, me.rank, other),
        noise=noise,
    ).live()
    answer = None
    while True:
        try:
            what, kind, round_, step, body = steps.send(answer)  # type: ignore[arg-type]
        except StopIteration as end:
            return end.value
        if what == "send":
            answer = yield Send((SERVER,), raw(kind)(body), round_, step)
        else:
            answer = (yield Receive(SERVER, raw(kind), round_, None, 2, step)).content


def agreed(session: Session) -> dict[str, Any]:
    """The values of the links' confirmation, from docs/protocol.md, "Links"."""
    return {
        **{
            **{"title": None, "authors": [], "institution": None, "purpose": None},
            "columns": [],
            "client_caps": [],
            "delta": None,
            "n_total": None,
            "min_size": 0,
            "unit": None,
            "per_unit": "mean",
            "quality": 0.0,
            "least_k": 0,
        },
        **{"protocol": "fastlloyd", "k": 3, "choose_k": False, "epsilon": 20.0, "rounds": 3, "seed": 0},
        **{"masking": "threshold", "ring_bits": 32, "min_clients": 3, "known_shares": 1, "colluding": 0},
        "settings": {},
        **{"version": 9, "resume": False, "results_version": session.config.row.results},
        "public": {
            **{"protocol": "fastlloyd", "clients": M, "min_clients": 3, "k": 3, "choose_k": False, "n_total": 150},
            **{"epsilon": 20.0, "delta": None, "rounds": 3, "seed": 0, "ring_bits": 32, "settings": {}},
            **{"masking": "threshold", "known_shares": 1, "colluding": 0, "quality": 0.0, "least_k": 0},
        },
        "caps": [30] * M,
        "categories": [],
        "bounds": [[0.0] * 4, [10.0] * 4, ["sepal_length", "sepal_width", "petal_length", "petal_width"]],
        "roster": "",  # in one thread there are no links, and the test gives the parties their roster later
        "split": ["iris", "iid"],
    }


Message = tuple[int, int, int, int, int]


def run(patch: pytest.MonkeyPatch) -> tuple[in_memory.InMemory, dict[Message, bytes]]:
    """Run all parties with fixed bits; return the end, and each message by sender, receiver, type, round and step."""
    seen: dict[Message, bytes] = {}

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes | None:
        place = (sender.rank, receiver.rank, header.type, header.round, header.step)
        assert place not in seen
        seen[place] = body
        late = header.round == OF_ROUND and (sender.rank, header.type) in (
            (LOST, MaskedUpdate.TYPE),
            (SILENT, SetAnswer.TYPE),
        )
        return None if late else body

    patch.setattr(os, "urandom", random.Random("a run").randbytes)
    return in_memory.run_together(RUN, M, tap=tap), seen


@pytest.fixture(scope="module")
def both() -> Any:
    """A run of the product's clients, and one of the second implementation's, at the product's server."""
    entries = [
        RosterEntry(one.name, "client" if party.rank else "server", party.rank, one.certificate_pem)
        for party, one in IDENTITIES.items()
    ]
    seal, deal, encapsulate = Sealing.agree, ThresholdSetup.deal, hybrid.HybridKey.encapsulate
    pairs: list[tuple[bytes, int, int]] = []

    def noted(key: Any, other: PartyId, public: bytes) -> Any:
        pairs.append((key._purpose, key._me.rank, other.rank))
        return encapsulate(key, other, public)

    def with_roster(**given: Any) -> Session:
        return Session(**{**given, "identity": IDENTITIES[given["me"]], "roster": Roster(tuple(entries))})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_memory, "Session", with_roster)
        patch.setattr(Sealing, "agree", lambda self, _: seal(self, Source(f"seed {self.me.rank}")))
        patch.setattr(ThresholdSetup, "deal", lambda self, me, _: deal(self, me, Source(f"threshold {me.rank}")))
        patch.setattr(hybrid.HybridKey, "encapsulate", noted)
        patch.setattr(hybrid, "_encapsulate", lambda public: mlkem768.encapsulate(public, drawn_for(*pairs[-1])))
        product = run(patch)
        patch.setattr(type(find_protocol("fastlloyd")), "take_part", lambda self, session: take_part(session))
        return product, run(patch)


def test_clients_of_a_second_implementation_come_to_the_same_results(both: Any) -> None:
    (product, _), (second, _) = both
    for party, outcome in product.outcomes.items():
        if party == SERVER:
            continue
        other = second.outcomes[party]
        assert outcome.result.evaluated.tobytes() == other.centers.tobytes()
        assert outcome.raw_labels.tolist() == other.labels.tolist()
        rounds = outcome.result.common["rounds"]
        assert [entry["clients_included"] for entry in rounds] == other.included
        assert [entry["clients_silent"] for entry in rounds] == other.silent
        everybody = list(range(1, M + 1))
        assert other.included == [everybody, everybody[1:], everybody]
        assert other.silent == [[], [SILENT], []]


def test_every_message_of_the_set_up_and_of_all_rounds_is_the_same(both: Any) -> None:
    (_, first), (_, second) = both
    assert list(first) == list(second)
    compared = [place for place in first if place[3] not in (COMPARE, FINAL)]
    assert [place for place in compared if first[place] != second[place]] == []
    assert {place[2] for place in compared} == {8, 9, 12, 13, *range(19, 30), *range(32, 39)}
    # At the end both have heard the same. The result that they compare holds a report, which the second has not.
    for place in first:
        if place[3] == COMPARE and place[1] == 0:
            assert first[place][:64] == second[place][:64]


def test_the_second_implementation_imports_nothing_of_the_package() -> None:
    assert not {name for name in imported_packages(Path(independent.__file__)) if name.startswith("fastlloyd")}
