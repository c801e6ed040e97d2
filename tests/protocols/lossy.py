"""Whole runs in memory in which some clients are lost in every round, and the noise on the sums of the others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.data.records import OwnRecords
from fastlloyd.lifecycle.masked_sums import GlobalMsa, MaskedUpdate
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Result
from fastlloyd.run.session import find_protocol
from fastlloyd.run.simulation import run_together
from fastlloyd.wire.header import Header, PartyId, clients

MIDDLES = np.array([[-0.6, -0.6], [0.6, -0.4], [0.0, 0.6]])
"""Of the records of clients that stay, 1,000 each; those of lost clients lie elsewhere."""
EACH = 1000


@dataclass
class Lossy:
    """How a run ended, as client 1 has it, and what its sums were.

    Attributes
    ----------
    vectors : dict from round to dict from rank to int64 array
        What each client computed, in grid units.
    sums : dict from round to int64 array
        What the clients received, in grid units.
    """

    result: Result
    plan: Any
    vectors: dict[int, dict[int, NDArray[np.int64]]] = field(default_factory=dict)
    sums: dict[int, NDArray[np.int64]] = field(default_factory=dict)

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """What the report says of each round."""
        found: list[dict[str, Any]] = self.result.common["rounds"]
        return found

    def noise_over_planned(self, kept: Collection[int]) -> NDArray[np.float64]:
        """The noise on each number of each round, over the planned one that counts."""
        found = []
        for t, total in self.sums.items():
            scales = [release.noise_scale for release in self.plan.releases(t)]
            parts = [one.elements for one in self.plan.parts] if hasattr(self.plan, "parts") else self.plan.lengths(t)
            noise = total - np.sum([self.vectors[t][rank] for rank in kept], axis=0)
            found.append(noise / np.repeat(scales, [length for length in parts if length]))
        return np.concatenate(found)


def play(config: RunConfig, count: int, lost: Collection[int], *, d: int = 2) -> Lossy:
    """Run with `count` clients, of which some are lost in each round."""
    draws = np.random.default_rng(7)
    staying = [rank for rank in range(1, count + 1) if rank not in lost]
    middles = np.column_stack([MIDDLES, np.zeros((3, d - 2))])
    near = np.repeat(middles, EACH, axis=0) + draws.normal(0.0, 0.05, (3 * EACH, d))
    parts = iter(np.array_split(draws.permutation(np.clip(near, -1.0, 1.0)), len(staying)))
    names = tuple(f"x{i + 1}" for i in range(d))
    protocol = find_protocol(config.protocol)
    settled, inputs = protocol.gather(config, count)
    owned = {
        PartyId(rank): OwnRecords(
            raw_points=next(parts) if rank in staying else np.full((EACH, d), 0.95),
            names=names,
            bounds=inputs.bounds.match(names),
        )
        for rank in range(1, count + 1)
    }
    found = Lossy(None, protocol.planned(settled, count, d))  # type: ignore[arg-type]  # filled in below
    add_up = GlobalMsa.add_up

    def noted(self: GlobalMsa, t: int, local_update: Any) -> Any:
        me = self._rounds._me

        def update() -> NDArray[np.int64]:
            return found.vectors.setdefault(t, {}).setdefault(me.rank, local_update())

        total, among = yield from add_up(self, t, update)
        if me.rank == staying[0]:
            found.sums[t] = total
        return total, among

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes | None:
        return None if header.type == MaskedUpdate.TYPE and sender.rank in lost else body

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GlobalMsa, "add_up", noted)
        ended = run_together(settled, count, inputs=inputs, owned=owned, tap=tap)
    results = [ended.outcomes[party].result for party in clients(count)]
    assert results[0] is not None and all(one is not None and one.files == results[0].files for one in results)
    found.result = results[0]
    assert all(entry["clients_included"] == staying for entry in found.rounds)
    return found


def check_result(found: Lossy, *, near: float) -> None:
    """Nothing of the lost clients' records is in the result: it is that of the others' records."""
    centers, sizes = found.result.centroids, found.result.noisy_sizes
    assert centers is not None and sizes is not None
    order = [int(np.linalg.norm(centers - middle, axis=1).argmin()) for middle in MIDDLES]
    assert sorted(order) == [0, 1, 2]
    assert np.abs(centers[order] - MIDDLES).max() < near
    assert np.abs(np.array(sizes) - EACH).max() < 60.0
    assert found.result.quality.verdict in ("good", "fair")


def check_noise(found: Lossy, *, count: int, lost: Collection[int]) -> None:
    """All together s^2 u / (u - t), as the report says; five deviations."""
    plan, u = found.plan, count - len(lost)
    assert plan.numbers.lost == len(lost), "all are lost that may be"
    planned = u / (u - plan.known_shares)
    assert all(entry["noise"] == pytest.approx(planned**0.5) for entry in found.rounds)
    assert all(entry["clients_silent"] == [] for entry in found.rounds)
    noise = found.noise_over_planned([rank for rank in range(1, count + 1) if rank not in lost])
    reach = 5.0 * (2.0 / len(noise)) ** 0.5
    assert (noise**2).mean() == pytest.approx(planned, rel=reach)
    # Neither the noise of a round in which nobody is lost, nor with nothing taken off.
    assert count / (count - plan.known_shares) < planned * (1.0 - reach)
    assert planned * (1.0 + reach) < count / (u - plan.known_shares)
