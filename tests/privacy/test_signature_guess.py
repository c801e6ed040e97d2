"""A server that follows the protocol, keeps its noise and all that it receives, guesses records: no signature answers.

The attack itself works: on signatures of the digest, as up to protocol version 7, it finds the value of a record and
the sizes of all clusters; and on today's once it is given an opening, which it is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.crypto.commitment import OPENING_BYTES
from fastlloyd.crypto.link.identity import make_identity, verifies
from fastlloyd.crypto.link.roster import Roster, RosterEntry
from fastlloyd.data.bounds import Bounds, scale, unscale
from fastlloyd.kmeans.grid import quantise
from fastlloyd.lifecycle.closing import Counters
from fastlloyd.masking.fixed import Ring
from fastlloyd.party.transcript import Transcript
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.rounds import draw_noise, first_centers, local_update, post_process
from fastlloyd.report.files import bounds_csv, centroids_csv
from fastlloyd.report.signed import SignedRecord
from fastlloyd.run import closing
from fastlloyd.run import simulation as in_memory
from fastlloyd.run.config import RunConfig
from fastlloyd.run.session import Session, find_protocol
from fastlloyd.run.simulation import InMemory, run_together
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.contracts import whole_run

VICTIM = PartyId(1)
RECORD, FEATURE = 7, 2


@dataclass
class Curious:
    """What the server keeps, and what it can do with it."""

    plan: Plan | None = None
    noise: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    record: SignedRecord | None = None
    agreed: bytes = b""
    roster: Roster | None = None
    bodies: list[bytes] = field(default_factory=list)
    signature: bytes = b""

    def seen(self) -> Iterator[bytes]:
        """Every piece of 32 bytes that it could try as an opening."""
        yield bytes(OPENING_BYTES)
        for body in self.bodies:
            if len(body) <= 4096:
                yield from (body[start : start + OPENING_BYTES] for start in range(len(body) - OPENING_BYTES + 1))

    def fits(self, names: Sequence[str], sizes: Any, files: dict[str, str], openings: Sequence[bytes]) -> bool:
        """Whether the victim signed this result."""
        assert self.record is not None and self.roster is not None
        guess = replace(self.record, features=names, noisy_sizes=sizes, files=files, covers="result")
        certificate, digest = self.roster.certificates()[VICTIM], self.roster.digest()
        statements = (guess.statement(digest, self.agreed, "result", opening) for opening in openings)
        return any(verifies(certificate, statement, self.signature) for statement in statements)

    def fits_records(
        self, raw_points: NDArray[np.float64], names: Sequence[str], bounds: Bounds, openings: Any
    ) -> bool:
        """Compute what the result is for records, with the noise that it drew, and look whether that was signed."""
        assert self.plan is not None
        plan, ring = self.plan, Ring(self.plan.ring_bits)
        points, centers = quantise(raw_points.copy(), plan.fraction_bits), first_centers(plan)
        for t in range(len(plan.rounds)):
            exact = local_update(points, centers, plan, t)
            centers = post_process(ring.decode(ring.encode(exact) + ring.reduce(self.noise[t])), centers, plan, t)
        files = {
            "centroids.csv": centroids_csv(names, unscale(centers.exact, bounds)),
            "bounds.csv": bounds_csv(names, bounds),
        }
        return self.fits(names, tuple(float(size) for size in centers.noisy_counts), files, openings)


def live(config: RunConfig, n: int, patch: pytest.MonkeyPatch) -> tuple[Curious, InMemory, dict[PartyId, Any], Bounds]:
    """Run all parties, the server a curious one that sends nothing else than an honest one."""
    server = Curious()
    identities = {PartyId(rank): make_identity(f"site {rank}", rank) for rank in range(n + 1)}
    roster = Roster(
        tuple(
            RosterEntry(one.name, "client" if party.rank else "server", party.rank, one.certificate_pem)
            for party, one in identities.items()
        )
    )

    def with_roster(**given: Any) -> Session:
        return Session(**{**given, "identity": identities[given["me"]], "roster": roster})

    def keep_noise(plan: Plan, t: int, secret: Any) -> NDArray[np.int64]:
        server.plan = plan
        server.noise[t] = draw_noise(plan, t, secret)
        return server.noise[t]

    account = closing._account

    def keep_record(session: Any, record: SignedRecord, agreed: bytes, opening: bytes | None) -> Any:
        if session.me == SERVER:
            server.record, server.agreed, server.roster = record, agreed, roster
        return account(session, record, agreed, opening)

    def keep(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes:
        if receiver == SERVER:
            server.bodies.append(body)
            if header.type == Counters.TYPE and sender == VICTIM:
                server.signature = bytes.fromhex(Counters.read(body, clients(n)).by_party[VICTIM].signature)
        return body

    patch.setattr(in_memory, "Session", with_roster)
    patch.setattr("fastlloyd.protocols.fastlloyd.protocol.draw_noise", keep_noise)
    patch.setattr(closing, "_account", keep_record)
    protocol = find_protocol(config.protocol)
    config, common = protocol.gather(config, n)
    own = {me: protocol.load(config, common, me) for me in (SERVER, *clients(n))}
    ended = run_together(config, n, inputs=common, owned=own, tap=keep)
    return server, ended, own, common.bounds


def opening_of(ended: InMemory) -> bytes:
    """What opens the victim's signature: in the clients' report alone."""
    signatures = ended.outcomes[PartyId(2)].signatures
    assert signatures is not None
    return bytes.fromhex(signatures["parties"][VICTIM.rank]["opening"])


def sign_the_digest(patch: pytest.MonkeyPatch) -> None:
    """Sign as protocol version 7 did."""
    patch.setattr("fastlloyd.report.signed.commit", lambda digest, opening: digest)


@pytest.mark.parametrize("protocol", ["fastlloyd-plus", "fastlloyd"])
@pytest.mark.parametrize("blinded", [False, True])
def test_guesses_of_a_record(protocol: str, blinded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not blinded:
        sign_the_digest(monkeypatch)
    server, ended, own, bounds = live(replace(whole_run.config(protocol), epsilon=0.5), 3, monkeypatch)
    names = own[VICTIM].names
    bounds = bounds.match(names)
    others = np.concatenate([own[party].raw_points for party in clients(3) if party != VICTIM])
    true = unscale(own[VICTIM].raw_points, bounds)[RECORD, FEATURE].round(1)

    def answers(openings: Sequence[bytes]) -> list[float]:
        """Which values of one feature of one record the signature confirms; the server knows all else."""
        found = []
        for value in np.unique([*np.arange(0.0, 8.0, 0.4).round(1), true]):
            guess = unscale(own[VICTIM].raw_points, bounds)
            guess[RECORD, FEATURE] = value
            points = np.concatenate([scale(guess, bounds), others])
            if server.fits_records(points, names, bounds, openings):
                found.append(float(value))
        return found

    if blinded:
        tried = list(server.seen())
        assert len(tried) > 100 and opening_of(ended) not in tried
        assert not answers(tried[:: len(tried) // 20])
    # With the opening, or without the need of one, it finds the one true value: what fails above is the server's luck.
    assert answers([opening_of(ended)]) == [true]


@pytest.mark.parametrize("blinded", [False, True])
def test_guesses_of_the_sizes_of_clusters(blinded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not blinded:
        sign_the_digest(monkeypatch)
    server, ended, own, bounds = live(whole_run.config("secfc"), 5, monkeypatch)
    result = ended.outcomes[VICTIM].result
    assert result is not None
    true = tuple(int(line.split(",")[1]) for line in result.files["sizes.csv"].split()[1:])
    names = own[VICTIM].names
    boundary = bounds_csv(names, bounds.match(names))

    def answers(openings: Sequence[bytes]) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        for a, b in itertools.product(range(true[0] - 5, true[0] + 6), range(true[1] - 5, true[1] + 6)):
            sizes = (a, b, sum(true) - a - b)
            text = "cluster,size\n" + "".join(f"{i},{size}\n" for i, size in enumerate(sizes))
            if server.fits(names, None, {"bounds.csv": boundary, "sizes.csv": text}, openings):
                found.append(sizes)
        return found

    if blinded:
        tried = list(server.seen())
        assert opening_of(ended) not in tried
        assert not answers(tried[:: len(tried) // 20])
    assert answers([opening_of(ended)]) == [true]


def test_the_server_knows_what_else_was_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    # So that nothing but the opening keeps it from the guess.
    server, ended, *_ = live(whole_run.config("fastlloyd"), 3, monkeypatch)
    signatures = ended.outcomes[VICTIM].signatures
    assert signatures is not None and signatures["agreed"] == server.agreed.hex()
    assert isinstance(ended.transcripts[SERVER], Transcript) and ended.transcripts[SERVER].digest() == server.agreed
