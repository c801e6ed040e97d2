"""Lets all parties of SecFC live in one thread, and notes what their roles come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Self
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds, auto_public, scale
from fastlloyd.data.public.named import load_named
from fastlloyd.data.records import OwnRecords
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.net.meter import Meter
from fastlloyd.party.effects import Party
from fastlloyd.protocols.secfc import client as client_module
from fastlloyd.protocols.secfc import protocol as secfc_protocol
from fastlloyd.protocols.secfc.client import ClientResult, client
from fastlloyd.protocols.secfc.math import masks as masks_module
from fastlloyd.protocols.secfc.math.attempt import Attempt
from fastlloyd.protocols.secfc.math.masks import RoundMasks
from fastlloyd.protocols.secfc.plan import Plan, make_plan
from fastlloyd.protocols.secfc.server import ServerResult, server
from fastlloyd.protocols.secfc.settings import PublicParameters
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import PublicInputs
from fastlloyd.run.simulation import Tap, run_together
from fastlloyd.wire.header import SERVER, PartyId, clients

RUN_ID = bytes(range(16))
DATA = Path(__file__).parents[4] / "shared" / "data"


def parameters(n: int, k: int, **changes: Any) -> PublicParameters:
    """Public parameters with the defaults of a test."""
    values: dict[str, Any] = {
        "protocol": "secfc",
        "clients": 3,
        "k": k,
        "n_total": n,
        "rounds": None,
        "seed": 0,
        **changes,
        # Two starts unless a test says otherwise: all that several do, at less cost than the default.
        "settings": {"start": "random", "starts": 2, **changes.get("settings", {})},
    }
    return PublicParameters(**values)


def plan_for(n: int, d: int, k: int, sizes: tuple[int, ...] | None = None, **changes: Any) -> Plan:
    """A plan for n points of d features, spread evenly."""
    public = parameters(n, k, **changes)
    if sizes is None:
        sizes = tuple(len(part) for part in np.array_split(np.arange(n), public.clients))
    return make_plan(public, d=d, names=tuple(f"x{i + 1}" for i in range(d)), sizes=sizes)


@dataclass
class Run:
    """How a run in one thread ended, and what the roles in it came to."""

    meters: Mapping[PartyId, Meter]
    results: Mapping[PartyId, Any]
    plan: Plan
    own: Mapping[PartyId, NDArray[np.int64]]
    rotation: NDArray[np.float64]
    masks: list[RoundMasks] = field(repr=False)
    courses: list[list[NDArray[np.int64]]] = field(repr=False)

    @property
    def first(self) -> ClientResult:
        result: ClientResult = self.results[PartyId(1)]
        return result

    @property
    def server(self) -> ServerResult:
        result: ServerResult = self.results[SERVER]
        return result

    @property
    def points(self) -> NDArray[np.int64]:
        """All grid points in the order of the run."""
        ordered = np.zeros((len(self.first.labels), self.plan.d), dtype=np.int64)
        for party, rows in self.own.items():
            ordered[self.results[party].raw_rows] = rows
        return ordered

    @property
    def history(self) -> list[NDArray[np.int64]]:
        """What a client worked on, in the start that won: the first assignment and that of each round."""
        return self.courses[self.first.start]


def run(
    points: NDArray[np.float64],
    k: int,
    *,
    parts: list[NDArray[np.int64]] | None = None,
    sizes: tuple[int, ...] | None = None,
    tap: Tap | None = None,
    **changes: Any,
) -> Run:
    """Let all parties of a run on a split of the points, shape (n, d), scaled to [-1, 1], live in one thread."""
    n, d = points.shape
    public = parameters(changes.pop("n_total", n if sizes is None else sum(sizes)), k, **changes)
    names = tuple(f"x{i + 1}" for i in range(d))
    if parts is None:
        parts = list(np.array_split(np.arange(n), public.clients))
    bounds = Bounds(-np.ones(d), np.ones(d), names)
    own = {
        me: OwnRecords(raw_points=points[part], names=names, bounds=bounds)
        for me, part in zip(clients(public.clients), parts, strict=True)
    }
    caps = tuple(len(part) for part in parts) if sizes is None else sizes
    common = PublicInputs(public=public, bounds=bounds, caps=caps, dataset=None, splits=None)
    with Watch() as watch:
        together = run_together(RunConfig(protocol="secfc", k=k), public.clients, inputs=common, owned=own, tap=tap)
    courses = next(iter(watch.courses.values()))
    return Run(together.meters, watch.results, watch.plan, watch.own, watch.rotation, watch.masks, courses)


class Watch:
    """Notes what the roles are given and come to, and changes none of it."""

    def __init__(self) -> None:
        self.results: dict[PartyId, Any] = {}
        self.plan: Plan
        self.rotation: NDArray[np.float64]
        self.own: dict[PartyId, NDArray[np.int64]] = {}
        self.masks: list[RoundMasks] = []
        self.courses: dict[int, list[list[NDArray[np.int64]]]] = {}

    def __enter__(self) -> Self:
        self._patches = [
            mock.patch.object(client_module, "_Exchange", self.exchange()),
            mock.patch.object(client_module, "Attempt", self.course()),
            # All clients of this process draw the same secrets of comparisons from their common key.
            mock.patch.object(masks_module, "sign_masks", lru_cache(maxsize=4)(masks_module.sign_masks)),
            mock.patch.object(secfc_protocol, "client", self.client),
            mock.patch.object(secfc_protocol, "server", self.server),
        ]
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        for patch in self._patches:
            patch.stop()

    def client(
        self, me: PartyId, shares: Any, points: GridPoints, plan: Plan, *, rotation: NDArray[np.float64], **rest: Any
    ) -> Party[ClientResult]:
        self.own[me] = points.raw_coordinates.T.astype(np.int64)
        self.plan, self.rotation = plan, rotation
        self.results[me] = yield from client(me, shares, points, plan, rotation=rotation, **rest)
        return self.results[me]

    def server(self, plan: Plan) -> Party[ServerResult]:
        self.results[SERVER] = yield from server(plan)
        return self.results[SERVER]

    def exchange(self) -> type:
        """Return an exchange that notes client 1's masks."""
        watch = self

        class Watched(client_module._Exchange):
            def _masks(self):
                masks = super()._masks()
                if self._me.rank == 1:
                    watch.masks.append(masks)
                return masks

        return Watched

    def course(self) -> type:
        """Return a course that notes its assignments."""
        watch = self

        class Watched(Attempt):
            def __init__(self, plan, coder, number, memory):
                super().__init__(plan, coder, number, memory)
                self.noted = [self.labels]
                watch.courses.setdefault(id(coder), []).append(self.noted)

            def step(self):
                self.noted.append((yield from super().step()))
                return self.noted[-1]

        return Watched


def named(name: str) -> NDArray[np.float64]:
    """A public data set, scaled to [-1, 1]; skips the test where it is absent."""
    if name != "iris" and not DATA.is_dir():
        pytest.skip("the folder of real data sets is absent")
    values = load_named(name, DATA if DATA.is_dir() else None).values
    return scale(values, auto_public(values))


def mixture(n: int, k: int, d: int, *, sigma: float = 1.0, seed: int = 0) -> NDArray[np.float64]:
    """A Gaussian mixture as in §5.1, scaled to [-1, 1]."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-10, 10, (k, d))
    points = centers[rng.integers(0, k, n)] + rng.normal(0, sigma, (n, d))
    return np.asarray(points / np.abs(points).max())


def uneven(n: int, m: int, seed: int = 0) -> list[NDArray[np.int64]]:
    """A split of n shuffled rows among m clients, of very different sizes; the last has none."""
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.integers(0, n + 1, m - 2))
    return [*np.split(rng.permutation(n), cuts), np.arange(0)]
