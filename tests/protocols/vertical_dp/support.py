"""Runs the parties of vertical-dp in memory, from the plan on."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.vertical import PartyFeatures
from fastlloyd.party.effects import Party
from fastlloyd.protocols.vertical_dp.client import client, prepare
from fastlloyd.protocols.vertical_dp.keys import GroupKeys
from fastlloyd.protocols.vertical_dp.messages import SharedResult
from fastlloyd.protocols.vertical_dp.plan import Plan, PublicParameters, make_plan
from fastlloyd.protocols.vertical_dp.server import ServerResult, await_prepared, server
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Simulation, Tap
from fastlloyd.wire.header import SERVER, PartyId, clients


class Replay(SecretRandom):
    """The same bits for the same number: only to give two programs the same noise."""

    __slots__ = ("_replay",)

    def __init__(self, number: int) -> None:
        super().__init__()
        self._replay = Cipher(ChaCha20(number.to_bytes(32, "little"), bytes(16)), mode=None).encryptor()

    def bytes(self, count: int) -> bytes:
        return self._replay.update(b"\0" * count)


def replays() -> Callable[[], Replay]:
    """Stands for the class `SecretRandom`: each call gives other bits, the same ones in each test."""
    numbers = itertools.count()
    return lambda: Replay(next(numbers))


def parameters(n: int, k: int, clients: int = 2, **changes: Any) -> PublicParameters:
    """Public parameters with the defaults of a test."""
    values: dict[str, Any] = {
        "protocol": "vertical-dp",
        "clients": clients,
        "k": k,
        "n_total": n,
        "epsilon": 4.0,
        "delta": None,
        "seed": 0,
        "settings": {},
        **changes,
    }
    return PublicParameters(**values)


def features_of(columns: Sequence[NDArray[np.float64]]) -> tuple[PartyFeatures, ...]:
    """Name the columns of each party; bounds -1 and 1."""
    found = []
    for party, own in enumerate(columns, 1):
        names = tuple(f"p{party}x{h + 1}" for h in range(own.shape[1]))
        found.append(PartyFeatures(names=names, bounds=Bounds(-np.ones(len(names)), np.ones(len(names)), names)))
    return tuple(found)


def split(points: NDArray[np.float64], parties: int) -> list[NDArray[np.float64]]:
    """Deal the columns out."""
    return [np.ascontiguousarray(part) for part in np.array_split(points, parties, axis=1)]


def plan_for(columns: Sequence[NDArray[np.float64]], k: int, **changes: Any) -> Plan:
    """A plan for these columns."""
    return _plan(len(columns[0]), tuple(own.shape[1] for own in columns), k, json.dumps(changes, sort_keys=True))


@lru_cache(maxsize=64)
def _plan(n: int, widths: tuple[int, ...], k: int, written: str) -> Plan:
    public = parameters(n, k, len(widths), **json.loads(written))
    return make_plan(public, features_of([np.zeros((1, width)) for width in widths]))


def sketch_keys(plan: Plan, number: int = 0) -> dict[tuple[int, ...], bytes]:
    """One fixed key per group."""
    return {group: bytes([number + i + 1]) * 32 for i, group in enumerate(plan.key_groups)}


def keys_of(plan: Plan, keys: Mapping[tuple[int, ...], bytes], place: int) -> GroupKeys:
    """The keys that one party holds."""
    return GroupKeys({group: bytearray(key) for group, key in keys.items() if place in group})


@dataclass
class Run:
    """The result of a simulated run."""

    simulation: Simulation
    server: ServerResult
    clients: Mapping[PartyId, SharedResult | None]


def run(
    columns: Sequence[NDArray[np.float64]],
    plan: Plan,
    *,
    keys: Mapping[tuple[int, ...], bytes] | None = None,
    secrets: Sequence[SecretRandom] | None = None,
    tap: Tap | None = None,
    absent: tuple[PartyId, ...] = (),
) -> Run:
    """Run server and parties from the plan on, with given or fresh keys, without set-up and closing exchange.

    For tests that choose keys and noise, or look at what the server alone sees: no whole run lets them.
    """
    if keys is None:
        keys = {group: SecretRandom().bytes(32) for group in plan.key_groups}

    def one(me: PartyId) -> Party[SharedResult | None]:
        place = me.rank - 1
        secret = SecretRandom() if secrets is None else secrets[place]
        prepared = yield from prepare(me, columns[place], plan, keys_of(plan, keys, place), secret=secret)
        return (yield from client(prepared, plan))

    def serve() -> Party[ServerResult]:
        yield from await_prepared(plan)
        return (yield from server(plan))

    parties = {me: one(me) for me in clients(plan.clients) if me not in absent}
    simulation = Simulation({SERVER: serve(), **parties}, tap)
    results = simulation.run()
    return Run(simulation, results.pop(SERVER), results)


def correlated(n: int, d: int, k: int = 4, seed: int = 0, spread: float = 0.08) -> NDArray[np.float64]:
    """Clusters whose columns belong together: each column alone tells which cluster."""
    rng = np.random.default_rng(seed)
    levels = np.linspace(-0.75, 0.75, k)
    centers = np.stack([rng.permutation(levels) for _ in range(d)], axis=1)
    return np.clip(centers[rng.integers(0, k, n)] + rng.normal(0, spread, (n, d)), -1, 1)
