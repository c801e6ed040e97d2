"""Looks at the noise that the parties of vertical-he add: of what is opened, and of the pieces of a shared key."""

from __future__ import annotations

from unittest import mock

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_he import holder
from fastlloyd.protocols.vertical_he.math import lwe
from fastlloyd.protocols.vertical_he.messages import KeyPiece, NoisySamples, NoisySums, PartialOpenings
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.reference import opened
from fastlloyd.wire.header import Header, PartyId

Floats = NDArray[np.float64]


class Opened:
    """Notes what the key holder opens, and what it then sends."""

    def __init__(self) -> None:
        self.before: list[NDArray[np.int64]] = []
        self.after: list[NDArray[np.int64]] = []

    def watch(self) -> mock._patch:
        """Note what opens; nothing of it changes."""
        real = lwe.open_samples

        def open_samples(*given):
            self.before.append(real(*given))
            return self.before[-1]

        return mock.patch.object(holder.lwe, "open_samples", open_samples)

    def tap(self, sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        """Note the noisy sums."""
        if header.type == NoisySums.TYPE:
            self.after.append(np.frombuffer(body, "<i8").copy())
        return body

    def noise(self, points: Floats, path: tuple[Floats, ...], plan: Plan) -> dict[str, Floats]:
        """Return each side's noise in each round, in standard deviations; shape (k (d + 1),), cluster by cluster."""
        scale = np.full((plan.k, plan.d + 1), plan.sum_scale)
        scale[:, 0] = plan.count_scale
        scale[:, [1 + column for column in plan.stepping]] = plan.step_scale
        found = {}
        for t, (before, after) in enumerate(zip(self.before, self.after, strict=True)):
            exact = np.rint(opened(points, path[t], plan) * plan.unit)
            found[f"computing party, round {t}"] = (before.reshape(scale.shape) - exact) / scale
            found[f"key holder, round {t}"] = (after - before).reshape(scale.shape) / scale
        return found


class Pieces:
    """Notes what passes between owners who share a key, and finds the noise in their parts of each opening."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._keys: dict[int, NDArray[np.int64]] = {}
        self._vectors: dict[int, NDArray[np.int64]] = {}
        self._parts: dict[tuple[int, int], NDArray[np.int64]] = {}

    def tap(self, sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        """Note the pieces of the key, what is opened with them, and the parts."""
        plan = self._plan
        if header.type == KeyPiece.TYPE:
            (group,) = (g for g, ranks in enumerate(plan.groups) if {sender.rank, receiver.rank} <= set(ranks))
            self._keys[group] = KeyPiece.read(body, plan).coefficients
        elif header.type == NoisySamples.TYPE:
            self._vectors[header.round] = lwe.decode_samples(body, plan.scales.ring, plan.scales.wire_bits).vectors
        elif header.type == PartialOpenings.TYPE:
            parts = lwe.decode(body, plan.scales.wire_bits).reshape(-1, plan.outputs)
            self._parts |= {(header.round, g): part for g, part in zip(plan.held(sender.rank), parts, strict=True)}
        return body

    def noise(self, modulus: int) -> dict[str, Floats]:
        """Return the noise of each piece in each round, in standard deviations; shape (k (d + 1),)."""
        plan, bits = self._plan, self._plan.scales.wire_bits
        scale = np.full((plan.k, plan.d + 1), plan.sum_scale)
        scale[:, 0] = plan.count_scale
        return {
            f"piece {group}, round {t}": lwe.centre(
                part - lwe.open_switched(self._vectors[t], self._keys[group], bits), modulus, bits
            )
            / scale.ravel()
            for (t, group), part in sorted(self._parts.items())
        }
