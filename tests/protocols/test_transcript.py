"""What a server tells several clients is attested by all of them, in every protocol; a lie shows at the end."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fastlloyd.errors import PeerError, SecurityError
from fastlloyd.lifecycle.closing import Chains, ResultDigest, compare_directly
from fastlloyd.lifecycle.masked_sums import NoisyMaskedSum
from fastlloyd.party.transcript import Transcript
from fastlloyd.run.simulation import Simulation, Tap, run_together
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.contracts.whole_run import CLIENTS, SETTINGS, config
from tests.protocols.support import blobs, plan_for, run

ONE, TWO, THREE = clients(3)


def lloyd_run(tap: Tap) -> Simulation:
    points = blobs(90, 3, 2)
    return run(points, plan_for(points, 3, clients=3, min_clients=2, rounds=2), tap=tap).simulation


RUNS = {name: config(name) for name in SETTINGS | dict.fromkeys(("fastlloyd", "kfed", "vertical-dp"))}
RUNS["pairwise"] = replace(config("fastlloyd"), masking="pairwise")
RUNS["secfc"] = replace(config("secfc"), settings={"secfc": {"reveal_centers": True}})
RUNS["vertical-dp"] = replace(config("vertical-dp"), settings={"vertical-dp": {"share_result": True}})


@pytest.mark.parametrize("name", RUNS)
def test_whatever_goes_alike_to_several_is_attested_by_each(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[tuple[PartyId, int, int, bytes], set[PartyId]] = defaultdict(set)
    attested: set[tuple[PartyId, int, int, bytes]] = set()
    add = Transcript.add

    def note(self: Transcript, speaker: PartyId, message: Any, round_: int) -> None:
        attested.add((speaker, message.TYPE, round_, message.body()))
        add(self, speaker, message, round_)

    def watch(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes:
        told[sender, header.type, header.round, body].add(receiver)
        return body

    monkeypatch.setattr(Transcript, "add", note)
    together = run_together(RUNS[name], CLIENTS.get(name, 3), tap=watch)
    results = {key for key, receivers in told.items() if len(receivers) > 1 and key[2] < 1 << 30}
    spoken = {key for key in results if key[0] == SERVER or name == "vertical-he"}
    assert spoken and spoken <= attested
    chains = {party: transcript.chains for party, transcript in together.transcripts.items()}
    assert len({tuple(own.items()) for own in chains.values()}) == 1
    assert next(iter(chains.values()))


def test_a_server_that_tells_one_client_another_sum_is_found_out() -> None:
    # The attack: client 1 gets the full sum, client 2 the sum without client 3, and two reports tell client 3's.
    def lie(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes:
        if header.type == NoisyMaskedSum.TYPE and receiver == TWO and header.round == 1:
            return body[:-1] + bytes([0b011])  # clients 1 and 2 only
        return body

    transcripts = lloyd_run(lie).transcripts
    assert transcripts[ONE].chains == transcripts[THREE].chains != transcripts[TWO].chains
    for heard in (ONE, TWO, THREE):
        parties = {me: compare_directly(me, clients(3), clients(3), transcripts[me]) for me in clients(3)}
        parties = {heard: parties.pop(heard), **parties}
        with pytest.raises(SecurityError, match="the server did not send client") as caught:
            Simulation(parties).run()
        assert caught.value.rank == 0


def spoken(*texts: bytes) -> Transcript:
    transcript = Transcript(b"context")
    for t, text in enumerate(texts):
        transcript.add(SERVER, NoisyMaskedSum(text, (ONE, TWO), 3), t)
    return transcript


def test_equal_transcripts_pass_and_each_detail_counts() -> None:
    base = spoken(b"a", b"b")
    assert spoken(b"a", b"b").digest() == base.digest()
    others = [spoken(b"a"), spoken(b"b", b"a"), spoken(b"a", b"c"), spoken(b"ab"), spoken()]
    later, holder, elsewhere = Transcript(b"context"), Transcript(b"context"), Transcript(b"other")
    for transcript, speaker, shift in ((later, SERVER, 1), (holder, ONE, 0), (elsewhere, SERVER, 0)):
        for t, text in enumerate((b"a", b"b")):
            transcript.add(speaker, NoisyMaskedSum(text, (ONE, TWO), 3), t + shift)
    digests = {transcript.digest() for transcript in (base, *others, later, holder, elsewhere)}
    assert len(digests) == 1 + len(others) + 3
    agree = {me: compare_directly(me, clients(3), clients(3), spoken(b"a")) for me in clients(3)}
    assert set(Simulation(agree).run()) == set(clients(3))


def test_who_took_part_must_answer_and_who_missed_it_need_not() -> None:
    def silent(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes | None:
        return None if sender == THREE else body

    def compared(took_part: tuple[PartyId, ...]) -> None:
        Simulation({me: compare_directly(me, clients(3), took_part, spoken(b"a")) for me in clients(3)}, silent).run()

    compared((ONE, TWO))
    with pytest.raises(PeerError, match="client 3") as caught:
        compared(clients(3))
    assert caught.value.rank == 3


def test_a_speaker_is_named_and_a_late_client_s_lie_counts_too() -> None:
    strange = spoken(b"a")
    strange.add(ONE, NoisyMaskedSum(b"x", (ONE,), 3), 0)
    told = {ONE: spoken(b"a"), TWO: spoken(b"a"), THREE: strange}
    with pytest.raises(SecurityError, match="client 1 did not send") as caught:
        Simulation({me: compare_directly(me, clients(3), (ONE, TWO), told[me]) for me in clients(3)}).run()
    assert caught.value.rank == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        bytes(1),
        bytes(36),
        bytes(38),
        bytes(73),
        bytes(1 + 36 * 5),
        b"\x01" + bytes(64),
        b"\x02" + bytes(36),
        b"\0\x01" + bytes(71),
    ],
)
def test_malformed_chains_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="expected"):
        Chains.read(body, None)


def test_chains_read_back() -> None:
    chains = {SERVER: bytes(32), TWO: np.arange(32, dtype=np.uint8).tobytes()}
    for held in (None, ResultDigest(bytes(range(32)), bytes(range(32, 64)))):
        assert Chains.read(Chains(chains, held).body(), None) == Chains(chains, held)
