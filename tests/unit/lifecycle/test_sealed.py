"""Clients agree on a seed through a server that may do with the messages what it likes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastlloyd.lifecycle.sealed as sealed_module
from fastlloyd.crypto.hybrid import PUBLIC_BYTES, RAW_BYTES, HybridKey
from fastlloyd.crypto.link.identity import Credentials, Identity, make_identity
from fastlloyd.errors import PeerError, SecurityError
from fastlloyd.lifecycle.same_secret import EqualityTag
from fastlloyd.lifecycle.sealed import (
    Box,
    SealedPart,
    SealedParts,
    SealedSeed,
    Sealing,
    SealKey,
    SealKeys,
    relay_seed,
    sealed_parts_bytes,
)
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Simulation, Tap
from fastlloyd.wire.header import SERVER, Header, PartyId, clients
from tests.protocols.vertical_dp.support import Replay

RUN, OTHER_RUN = bytes(range(16)), bytes(range(1, 17))
COUNT = 5


@cache
def identity(rank: int) -> Identity:
    return make_identity(f"site {rank}", rank)


def credentials(me: PartyId, count: int, *, roster: bool) -> Credentials:
    if not roster:
        return Credentials()
    return Credentials(
        identity(me.rank), {one: identity(one.rank).certificate_der for one in (SERVER, *clients(count))}
    )


def agree(
    count: int = COUNT,
    *,
    tap: Tap | None = None,
    roster: bool = True,
    run_id: bytes = RUN,
    contexts: dict[PartyId, bytes] | None = None,
    stored: dict[PartyId, bytes] | None = None,
) -> tuple[Simulation, list[Any]]:
    """Let the clients agree, or, with `stored`, confirm; give the simulation and their seeds."""
    everybody, run = clients(count), bytes(16) + run_id

    def life(me: PartyId) -> Any:
        own = Sealing(
            me=me,
            clients=everybody,
            run_id=run_id,
            run=run,
            context=(contexts or {}).get(me, bytes(32)),
            credentials=credentials(me, count, roster=roster),
        )
        return own.agree(SecretRandom()) if stored is None else own.confirm(stored[me])

    server = relay_seed(
        everybody, run=run, credentials=credentials(SERVER, count, roster=roster), resumed=stored is not None
    )
    simulation = Simulation({SERVER: server, **{me: life(me) for me in everybody}}, tap)
    results = simulation.run()
    return simulation, [results[me] for me in everybody]


@pytest.mark.parametrize("roster", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_all_clients_have_the_same_fresh_seed(count: int, roster: bool) -> None:
    _, seeds = agree(count, roster=roster)
    _, others = agree(count, roster=roster)
    assert len(set(seeds)) == len(set(others)) == 1 and seeds[0] != others[0]
    assert len(seeds[0]) == 32


def test_clients_send_to_the_server_only_and_messages_grow_with_their_number() -> None:
    for count in (4, 20, 50):
        simulation, _ = agree(count, roster=False)
        for me in clients(count):
            sent = simulation.meters[me].sent
            assert {peer for peer, _ in sent} == {SERVER}
            assert simulation.meters[me].total_sent().messages == (3 if me.rank <= 3 else 2)
        assert simulation.meters[SERVER].total_sent().messages == 3 + 2 * count
        whole = sum(meter.total_sent().link_bytes for meter in simulation.meters.values())
        assert whole < 17_000 * count


def test_who_contributes_nothing_allows_for_both_of_the_server_s_waits() -> None:
    """A contributor that is nearly late twice is no fault of the server's."""
    waits = []
    for me in clients(4):
        own = Sealing(
            me=me, clients=clients(4), run_id=RUN, run=bytes(32), context=bytes(32), credentials=Credentials()
        )
        life = own.agree(SecretRandom())
        next(life)
        waits.append((awaited := life.send(None)).waits)
        assert awaited.type is (SealKeys if me.rank <= 3 else SealedSeed)
    assert waits == [1, 1, 1, 2]


def test_the_server_sees_neither_seed_nor_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets: list[bytes] = []
    draw = SecretRandom.bytes

    def noted(self: SecretRandom, count: int) -> bytes:
        secrets.append(draw(self, count))
        return secrets[-1]

    monkeypatch.setattr(SecretRandom, "bytes", noted)
    seen = b""

    def watch(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        nonlocal seen
        seen += body
        return body

    _, seeds = agree(tap=watch)
    assert len(secrets) == 3 + COUNT
    assert not any(secret in seen for secret in (*secrets, *seeds))


def change(type_: Any, to: PartyId | None, how: Callable[[bytes], bytes], sender: PartyId | None = None) -> Tap:
    """Return a tap that changes messages of one type; `to` or `sender` None: of all."""

    def tap(source: PartyId, target: PartyId, header: Header, body: bytes) -> bytes:
        here = header.type == type_.TYPE and to in (None, target) and sender in (None, source)
        return how(body) if here else body

    return tap


def flipped(body: bytes, place: int) -> bytes:
    return body[:place] + bytes([body[place] ^ 4]) + body[place + 1 :]


@given(place=st.integers(0, 3 * SealedPart.MOST_BYTES - 1))
def test_a_part_that_the_server_changes_is_the_server_s_fault(place: int) -> None:
    with pytest.raises(SecurityError, match="the server passed on a part of the common seed by client") as caught:
        agree(tap=change(SealedSeed, PartyId(4), lambda body: flipped(body, place)))
    assert caught.value.rank == 0


@given(place=st.integers(SealKey.MOST_BYTES, COUNT * SealKey.MOST_BYTES - 1))
def test_a_key_that_the_server_changes_is_the_server_s_fault(place: int) -> None:
    with pytest.raises(SecurityError, match="the server passed on a key of client") as caught:
        agree(tap=change(SealKeys, PartyId(1), lambda body: flipped(body, place)))
    assert caught.value.rank == 0


def test_a_server_that_puts_its_own_key_in_a_client_s_place_is_found_out() -> None:
    own = HybridKey(bytes(range(RAW_BYTES)), SERVER, purpose=b"any", run_id=RUN).public

    def swap(body: bytes) -> bytes:
        at = 3 * SealKey.MOST_BYTES
        return body[:at] + own + body[at + PUBLIC_BYTES :]

    with pytest.raises(SecurityError, match="the server passed on a key of client 4 ") as caught:
        agree(tap=change(SealKeys, None, swap))
    assert caught.value.rank == 0


def test_a_server_that_exchanges_parts_of_clients_is_found_out() -> None:
    kept: list[bytes] = []

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type == SealedSeed.TYPE and receiver.rank == 4:
            kept.append(body)
        return kept[0] if header.type == SealedSeed.TYPE and receiver.rank == 5 else body

    with pytest.raises(SecurityError, match="the server passed on a part of the common seed by client 1") as caught:
        agree(tap=tap)
    assert caught.value.rank == 0


def test_a_server_that_exchanges_two_contributors_is_found_out() -> None:
    def turn(body: bytes) -> bytes:
        return body[SealedPart.MOST_BYTES :] + body[: SealedPart.MOST_BYTES]

    with pytest.raises(SecurityError, match="the server passed on a part of the common seed by client 1") as caught:
        agree(tap=change(SealedSeed, PartyId(4), turn))
    assert caught.value.rank == 0


@pytest.mark.parametrize("earlier", [RUN, OTHER_RUN], ids=["the same id again", "another run"])
@pytest.mark.parametrize("type_", [SealedSeed, SealKeys])
def test_what_was_sealed_or_signed_in_another_run_is_refused(earlier: bytes, type_: Any) -> None:
    kept: dict[PartyId, bytes] = {}

    def keep(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type == type_.TYPE:
            kept[receiver] = body
        return body

    def replay(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        return kept[receiver] if header.type == type_.TYPE else body

    agree(tap=keep, run_id=earlier)
    # An old key under the same run's id is signed well. What is sealed for it opens nowhere.
    with pytest.raises(SecurityError, match="client . has not signed") as caught:
        agree(tap=replay)
    assert caught.value.rank in ((0, 1, 2, 3) if type_ is SealKeys and earlier == RUN else (0,))


@pytest.mark.parametrize(
    ("type_", "size", "culprit"),
    [(SealKey, SealKey.MOST_BYTES, 4), (SealedParts, sealed_parts_bytes(COUNT), 2), (EqualityTag, 64, 5)],
)
@pytest.mark.parametrize("more", [-1, 1, -32, None])
def test_messages_of_another_length_name_their_sender(type_: Any, size: int, culprit: int, more: int | None) -> None:
    wrong = b"" if more is None else bytes(size + more)
    with pytest.raises(PeerError, match=f"client {culprit} sent a malformed {type_.__name__}: expected") as caught:
        agree(tap=change(type_, SERVER, lambda body: wrong, sender=PartyId(culprit)))
    assert caught.value.rank == culprit and caught.value.exit_code == 3


@pytest.mark.parametrize(("type_", "cut"), [(SealKeys, SealKey.MOST_BYTES), (SealedSeed, SealedPart.MOST_BYTES)])
def test_a_server_that_leaves_something_out_is_named(type_: Any, cut: int) -> None:
    with pytest.raises(PeerError, match=f"the server sent a malformed {type_.__name__}: expected") as caught:
        agree(tap=change(type_, PartyId(3), lambda body: body[:-cut]))
    assert caught.value.rank == 0


@pytest.mark.parametrize(("type_", "rank"), [(SealKey, 5), (SealedParts, 3)])
def test_a_client_that_does_not_sign_is_named_by_the_server(type_: Any, rank: int) -> None:
    with pytest.raises(SecurityError, match=f"client {rank} has not signed") as caught:
        agree(tap=change(type_, SERVER, lambda body: body[:-1] + bytes([body[-1] ^ 1]), sender=PartyId(rank)))
    assert caught.value.rank == rank


def test_a_client_cannot_send_what_another_has_signed() -> None:
    kept: dict[int, bytes] = {}

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if header.type == SealKey.TYPE:
            kept[sender.rank] = body
            return kept[1] if sender.rank == 2 else body
        return body

    with pytest.raises(SecurityError, match="client 2 has not signed its key") as caught:
        agree(tap=tap)
    assert caught.value.rank == 2


@pytest.mark.parametrize("roster", [True, False])
def test_a_client_that_seals_different_parts_for_different_clients_is_named(
    roster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, sealed = sealed_module.seal, []

    def lie(plain: bytes, shared: bytes, purpose: bytes, context: bytes) -> bytes:
        if context[:4] == b"\x02\0\0\0":
            sealed.append(context)
            if len(sealed) == 3:  # for client 4
                plain = bytes(32)
        return honest(plain, shared, purpose, context)

    monkeypatch.setattr(sealed_module, "seal", lie)
    with pytest.raises(SecurityError, match="client 2 sealed a different part of the common seed for") as caught:
        agree(roster=roster)
    assert caught.value.rank == 2


def test_a_client_that_seals_nonsense_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = sealed_module.seal
    monkeypatch.setattr(
        sealed_module,
        "seal",
        lambda plain, shared, purpose, context: (
            bytes(48) if context[:4] == b"\x03\0\0\0" else honest(plain, shared, purpose, context)
        ),
    )
    with pytest.raises(SecurityError, match="client 3 sealed for client 1 does not open") as caught:
        agree()
    assert caught.value.rank == 3


def test_without_a_roster_the_sentence_leaves_open_who_changed_a_part() -> None:
    at = SealedPart.MOST_BYTES - Box.MOST_BYTES
    with pytest.raises(SecurityError, match="without a roster nobody can tell") as caught:
        agree(roster=False, tap=change(SealedSeed, PartyId(5), lambda body: flipped(body, at)))
    assert caught.value.rank == 1


@pytest.mark.parametrize("key", [bytes(32), b"\x01" + bytes(31)])
def test_a_key_of_low_order_is_refused(key: bytes) -> None:
    with pytest.raises(SecurityError, match="client 4 sent a key that yields no secret") as caught:
        agree(roster=False, tap=change(SealKey, SERVER, lambda body: key + body[32:], sender=PartyId(4)))
    assert caught.value.rank == 4


def test_another_public_set_up_names_the_pair() -> None:
    with pytest.raises(SecurityError, match="client 4 and client 1 do not agree on the public set-up"):
        agree(contexts={PartyId(4): bytes(31) + b"\x01"})


def test_on_resume_the_client_with_another_seed_is_named() -> None:
    seeds = dict.fromkeys(clients(COUNT), bytes(32))
    simulation, _ = agree(stored=seeds)
    assert simulation.meters[PartyId(1)].total_sent().messages == 1
    with pytest.raises(SecurityError, match="client 3 does not agree with the others on the common seed") as caught:
        agree(stored={**seeds, PartyId(3): bytes(31) + b"\x01"})
    assert caught.value.rank == 3
    with pytest.raises(SecurityError, match="client 5 does not agree"):
        agree(stored=seeds, contexts={PartyId(5): bytes(31) + b"\x01"})


@pytest.mark.parametrize("other", [1, 2, 3])
def test_the_seed_is_made_of_every_contributors_part(other: int) -> None:
    """Whoever knows the parts of all contributors but one knows nothing of the seed."""

    def seed(changed: int) -> bytes:
        everybody, run = clients(4), bytes(16) + RUN

        def life(me: PartyId) -> Any:
            own = Sealing(me=me, clients=everybody, run_id=RUN, run=run, context=bytes(32), credentials=Credentials())
            return own.agree(Replay(100 + me.rank if me.rank == changed else me.rank))

        lives = {me: life(me) for me in everybody}
        server = relay_seed(everybody, run=run, credentials=Credentials(), resumed=False)
        found = set(Simulation({SERVER: server, **lives}).run().values()) - {None}
        assert len(found) == 1
        return found.pop()

    assert seed(0) == seed(4) != seed(other)
