"""The messages of k-FED, in the order they are sent.

::

    client i                                         server
      Lloyd on its own records: k' centres
      LocalCenters   up to k' x d   -------->        farthest first, then one grouping
      MergedCenters  k x d          <--------        the same bytes to all clients
      label this party's records

Not private: local centres are means of records, and a cluster may hold a single one. They travel in clear inside TLS,
only to the server. Numbers are float64, little endian, scaled domain.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.lifecycle.messages import CLOSING_OF_ALL, OPENING, READY
from fastlloyd.party.declaration import DOWN, UP, Messages, OfPlan, Seen
from fastlloyd.party.message import IncludedPayload, Payload
from fastlloyd.protocols.kfed.plan import Plan

_FLOAT_BYTES = 8


class LocalCenters(Payload):
    """Means of a client's records, in the clear.

    Attributes
    ----------
    data : bytes
        0 to k' rows of d numbers; fewer than k' where the client has fewer different records.
    """

    __slots__ = ()
    TYPE = 64
    MOST_BYTES = OfPlan(lambda plan: _FLOAT_BYTES * plan.most_elements)
    SEEN = Seen(
        UP,
        "the centres of this site's own records",
        server="means of the client's records",
        others="never sent to them",
        network="length, time",
        variant="kfed",
    )

    @classmethod
    def read(cls, body: bytes, format: Plan) -> Self:
        """Check length and range."""
        rows, rest = divmod(len(body), _FLOAT_BYTES * format.d)
        if rest or rows > format.local_k:
            raise ValueError(f"expected up to {format.local_k} rows of {format.d} numbers, got {len(body)} bytes")
        _check_domain(body)
        return cls(body)

    def centers(self, d: int) -> NDArray[np.float64]:
        """Return the centres, shape (up to k', d)."""
        return _numbers(self.data).reshape(-1, d)


class MergedCenters(IncludedPayload):
    """The merged centres. Not private.

    Attributes
    ----------
    data : bytes
        k rows of d numbers.
    included : tuple of PartyId
        The clients whose local centres were merged.
    clients : int
    """

    __slots__ = ()
    TYPE = 65
    MOST_BYTES = OfPlan(lambda plan: _FLOAT_BYTES * plan.k * plan.d + (plan.clients + 7) // 8)
    SEEN = Seen(DOWN, "the result", server="what it computed", others="the merged centres", variant="kfed")

    @classmethod
    def read(cls, body: bytes, format: Plan) -> Self:
        """Check bitmap, length and range; an empty set is refused."""
        included, data = cls.cut(body, format.clients, "centres of")
        if len(data) != _FLOAT_BYTES * format.k * format.d:
            raise ValueError(f"expected {format.k} rows of {format.d} numbers, got {len(data)} bytes")
        _check_domain(data)
        return cls(data, included, format.clients)

    def centers(self, d: int) -> NDArray[np.float64]:
        """Return the centres, shape (k, d)."""
        return _numbers(self.data).reshape(-1, d)


MESSAGES: Messages = (*OPENING, *READY, LocalCenters, MergedCenters, *CLOSING_OF_ALL)


def encode_centers(centers: NDArray[np.float64]) -> bytes:
    """Write centres row by row."""
    return centers.astype("<f8").tobytes()


def _numbers(data: bytes) -> NDArray[np.float64]:
    return np.frombuffer(data, dtype="<f8").astype(np.float64)


def _check_domain(data: bytes) -> None:
    """Refuse values that no mean of scaled records can have, NaN included."""
    if not (np.abs(np.frombuffer(data, dtype="<f8")) <= 1.0).all():
        raise ValueError("expected centres within [-1, 1]")
