"""The messages of FedDP-KMeans, in the order they are sent.

::

    client j                                            server
      outer product          (Alg. 1, line 4)
      MaskedStatistic  v_j + share_j + mask_j -------->   sum: the masks cancel, the noise stays
                                              <--------   Projection: Pi and Pi Q (line 7)
      weights of Pi Q        (line 12)
      MaskedStatistic                         -------->   noisy weights
                                              <--------   ProjectedCenters: xi_1 .. xi_k (line 17)
      sums and counts        (lines 20, 21)
      MaskedStatistic                         -------->   noisy sums and counts
                                              <--------   Centers: nu_1 .. nu_k (line 24)
      sums and counts        (Alg. 2, lines 6, 7), T times
      MaskedStatistic                         -------->
                                              <--------   Centers

With another start (App. G.3) the first exchange is one `Centers` from the server. With pairwise masks every sum is over
all clients; with threshold masks a reply begins with two bitmaps: of those in it, and of those of them that left more
of their noise in it (docs/protocol.md, "Threshold masks").
Replies are made from noisy sums and the server's own points, and are the same for all clients.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.lifecycle.messages import CLOSING_OF_ALL, OPENING, PAIRS, READY
from fastlloyd.lifecycle.threshold.messages import OPENING_OF_ROUNDS, THRESHOLD
from fastlloyd.masking.fixed import Ring
from fastlloyd.party.declaration import DOWN, UP, Declared, Messages, OfPlan, Seen
from fastlloyd.party.message import IncludedPayload, RingPayload, cut_silent
from fastlloyd.protocols.feddp.math.projection import MATRIX_BITS, ROW_NORM, Projection
from fastlloyd.protocols.feddp.math.stage import Centers, ProjectedCenters
from fastlloyd.protocols.feddp.plan import Plan
from fastlloyd.protocols.feddp.settings import PRIVATE
from fastlloyd.wire.header import PartyId, encode_included

_COUNT = struct.Struct("<I")


def _projects(facts: Mapping[str, Any]) -> bool:
    return facts.get("start", "feddp") in ("feddp", PRIVATE)


def _bitmap_bytes(plan: Plan) -> int:
    return 2 * ((plan.clients + 7) // 8) if plan.masking == "threshold" else 0


@dataclass(frozen=True, slots=True)
class StatisticFormat:
    """The public shape of an uplink: ring and number of elements."""

    ring: Ring
    elements: int


class MaskedStatistic(RingPayload):
    """A masked vector: uniform on the ring for a party that lacks one of the client's pair secrets.

    Attributes
    ----------
    data : bytes
        Ring elements, little endian. With threshold masks a box of the same length may go with the vector.
    """

    __slots__ = ()
    TYPE = 48
    MOST_BYTES = OfPlan(lambda plan: plan.longest_bytes)
    SEEN = Seen(
        UP,
        "this site's contribution to a step: sums over its records with a share of noise, under a mask",
        server="uniform random ring elements; of all clients together the noisy sums of the step",
        others="never sent to them",
        network="length, time",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReply(Declared):
    """What the server replies in a step; with threshold masks it names the clients in the sum.

    Attributes
    ----------
    included : tuple of PartyId or None
        None with pairwise masks: all of them.
    silent : tuple of PartyId
        With threshold masks, those of them whose excess of noise was not opened and stays in the sum.
    clients : int
        How many there are, where `included` is given.
    """

    included: tuple[PartyId, ...] | None = None
    silent: tuple[PartyId, ...] = ()
    clients: int = 0

    def among(self) -> bytes:
        """Return the bitmaps of the clients in the sum and of the silent ones, if they are stated."""
        if self.included is None:
            return b""
        return encode_included(self.included, self.clients) + encode_included(self.silent, self.clients)

    @staticmethod
    def cut(body: bytes, plan: Plan) -> tuple[dict[str, Any], bytes]:
        """Split a body into the fields of this class and what follows.

        A set without a client is refused, and a silent client outside it.
        """
        if plan.masking != "threshold":
            return {}, body
        included, rest = IncludedPayload.cut(body, plan.clients, "a sum over")
        silent, rest = cut_silent(rest, included, plan.clients)
        return {"included": included, "silent": silent, "clients": plan.clients}, rest


@dataclass(frozen=True, slots=True)
class ProjectionMessage(StepReply):
    """Made from the noisy outer product and the server's data.

    With the start 'private' the points are proxies, made from the noisy outer product alone.

    Body: the matrix, r x d, then the server's points, n_server x r; int32, little endian.
    """

    TYPE = 49
    MOST_BYTES = OfPlan(lambda plan: _bitmap_bytes(plan) + 4 * plan.rank * (plan.d + plan.n_server))
    SEEN = Seen(
        DOWN,
        "the directions in which the records differ most",
        server="what it computed",
        others="the projection, the server's points projected, or the proxy points",
        when=_projects,
    )
    projection: Projection = field(repr=False)

    def body(self) -> bytes:
        """Return both arrays."""
        both = (self.projection.matrix, self.projection.server_points)
        return self.among() + b"".join(array.astype("<i4").tobytes() for array in both)

    @property
    def payload_bytes(self) -> int:
        """All but the sets."""
        return 4 * (self.projection.matrix.size + self.projection.server_points.size)

    @classmethod
    def read(cls, body: bytes, format: Plan) -> Self:
        """Check length and norms, which exact arithmetic rests on."""
        among, body = cls.cut(body, format)
        cells = format.rank * format.d
        values = _integers(body, cells + format.n_server * format.rank)
        matrix = values[:cells].reshape(format.rank, format.d)
        if (_squared_norms(matrix) > (ROW_NORM * 2.0**MATRIX_BITS) ** 2).any():
            raise ValueError("a row of the projection is longer than 17/16")
        points = values[cells:].reshape(format.n_server, format.rank)
        _check_norms(points, format)
        return cls(Projection(matrix.astype(np.int32), points, format.projected_bits), **among)


@dataclass(frozen=True, slots=True)
class ProjectedCentersMessage(StepReply):
    """Made from the noisy weights and the server's data.

    Body: k as u32; the centres, k x r, int32; with a choice of k the costs for 1, 2, ... clusters, float64.
    """

    TYPE = 50
    MOST_BYTES = OfPlan(
        lambda plan: _bitmap_bytes(plan) + _COUNT.size + 4 * plan.k * plan.rank + 8 * plan.k * plan.choose_k
    )
    SEEN = Seen(
        DOWN,
        "first centres, projected",
        server="what it computed",
        others="projected centres; with a choice of k the costs that it was chosen by",
        when=_projects,
    )
    found: ProjectedCenters = field(repr=False)

    def body(self) -> bytes:
        """Return number, centres and costs."""
        centers = self.found.centers
        integers = _COUNT.pack(len(centers)) + centers.astype("<i4").tobytes()
        return self.among() + integers + self.found.costs.astype("<f8").tobytes()

    @property
    def payload_bytes(self) -> int:
        """All but sets and number."""
        return 4 * self.found.centers.size + 8 * self.found.costs.size

    @classmethod
    def read(cls, body: bytes, format: Plan) -> Self:
        """Check number, lengths and norms."""
        among, body = cls.cut(body, format)
        k, rest = _read_count(body, format.k, fixed=not format.choose_k)
        cells = 4 * k * format.rank
        centers = _integers(rest[:cells], k * format.rank).reshape(k, format.rank)
        _check_norms(centers, format)
        costs = _floats(rest[cells:], format.k if format.choose_k else 0)
        if (costs < 0.0).any():
            raise ValueError("a cost below zero")
        return cls(ProjectedCenters(centers, costs), **among)


@dataclass(frozen=True, slots=True)
class CentersMessage(StepReply):
    """Made from noisy sums and counts, or from the server's data.

    Body: k as u32; the centres, k x d, then the noisy counts, k; float64, little endian.
    """

    TYPE = 51
    MOST_BYTES = OfPlan(lambda plan: _bitmap_bytes(plan) + _COUNT.size + 8 * plan.k * (plan.d + 1))
    SEEN = Seen(DOWN, "the centres after a step", server="what it computed", others="centres and noisy counts")
    found: Centers = field(repr=False)

    def body(self) -> bytes:
        """Return number, centres and counts."""
        both = (self.found.exact, self.found.noisy_counts)
        count = _COUNT.pack(len(self.found.exact))
        return self.among() + count + b"".join(array.astype("<f8").tobytes() for array in both)

    @property
    def payload_bytes(self) -> int:
        """All but sets and number."""
        return 8 * (self.found.exact.size + self.found.noisy_counts.size)

    @classmethod
    def read(cls, body: bytes, format: Plan) -> Self:
        """Check number, lengths and range."""
        among, body = cls.cut(body, format)
        k, rest = _read_count(body, format.k, fixed=not format.choose_k)
        values = _floats(rest, k * (format.d + 1))
        exact = values[: k * format.d].reshape(k, format.d)
        if (np.abs(exact) > 1.0).any():
            raise ValueError("a centre outside [-1, 1]^d")
        return cls(Centers(exact, values[k * format.d :]), **among)


MESSAGES: Messages = (
    *(*OPENING, *PAIRS, *THRESHOLD, *READY),
    *(MaskedStatistic, *OPENING_OF_ROUNDS, ProjectionMessage, ProjectedCentersMessage, CentersMessage),
    *CLOSING_OF_ALL,
)


def _integers(body: bytes, count: int) -> NDArray[np.int64]:
    """Read int32 numbers."""
    if len(body) != 4 * count:
        raise ValueError(f"expected {4 * count} bytes of int32 numbers, got {len(body)}")
    return np.frombuffer(body, dtype="<i4").astype(np.int64)


def _floats(body: bytes, count: int) -> NDArray[np.float64]:
    """Read finite float64 numbers."""
    if len(body) != 8 * count:
        raise ValueError(f"expected {8 * count} bytes of float64 numbers, got {len(body)}")
    values = np.frombuffer(body, dtype="<f8").astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a number that is not finite")
    return values


def _read_count(body: bytes, most: int, *, fixed: bool) -> tuple[int, bytes]:
    """Read the number of clusters."""
    if len(body) < _COUNT.size:
        raise ValueError(f"expected the number of clusters, got {len(body)} bytes")
    (k,) = _COUNT.unpack_from(body)
    if not (k == most if fixed else 1 <= k <= most):
        raise ValueError(f"expected {most if fixed else f'1 to {most}'} clusters, got {k}")
    return int(k), body[_COUNT.size :]


def _check_norms(vectors: NDArray[np.int64], plan: Plan) -> None:
    """Refuse projected points too long for exact scores."""
    if (_squared_norms(vectors) > float(plan.projected_limit) ** 2).any():
        raise ValueError("a projected point is longer than the norm bound allows")


def _squared_norms(vectors: NDArray[np.int64]) -> NDArray[np.float64]:
    """Square rows in float64, where int64 could wrap: exact up to the limits, and beyond them it need not be."""
    values = vectors.astype(np.float64)
    found: NDArray[np.float64] = np.einsum("ij,ij->i", values, values)
    return found
