"""The messages of vertical-dp: one from each party, one back.

::

    party i                                            server
      Synopsis  noisy local centres,      -------->      tables of the pairs, grid weights,
                sketches with each group,                k-means on the grid
                from party 1 also noisy n
      FinalResult   (empty unless shared) <--------

vertical-plain sends the local cluster of every user in place of sketches: not private.

Source: Vertical DP, Algorithm 1, Figure 1; docs/vertical-dp.md, "Messages".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import RangeError
from fastlloyd.lifecycle.align.columns import Columns
from fastlloyd.lifecycle.align.ids import BlindedIds, IdTag, OpenedIds, lists_ahead
from fastlloyd.lifecycle.closing import Chains
from fastlloyd.lifecycle.hello import Go, PlanProposal, Ready
from fastlloyd.lifecycle.messages import CHAINS_OF_ALL, COUNTED, plan_bounds
from fastlloyd.lifecycle.shared_secrets import PairCiphertext, PairPublicKey, SeedConfirmation, SeedContribution
from fastlloyd.party.declaration import MessageBounds, Messages, OfPlan, Seen, always, seen_as
from fastlloyd.party.message import Payload
from fastlloyd.protocols.vertical_dp.local_plan import FRACTION_BITS
from fastlloyd.protocols.vertical_dp.plan import PLAIN, Plan
from fastlloyd.protocols.vertical_dp.sketch.sketch import Levels, SketchShape, pack_sketch, sketch_bytes, unpack_sketch

TOTAL_BITS = 8
_TOTAL = struct.Struct("<q")
_USERS = struct.Struct("<I")
_LIMIT = 1 << FRACTION_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class SynopsisFormat:
    """The public shape of one party's message.

    Attributes
    ----------
    clusters, d : int
    with_total : bool
        Whether it holds the noisy number of users.
    sketches : int
        Number of sketches.
    shape : SketchShape or None
        None for vertical-plain.
    users : int
        Public N, for vertical-plain.
    """

    clusters: int
    d: int
    with_total: bool
    sketches: int
    shape: SketchShape | None
    users: int

    @property
    def sketch_bytes(self) -> int:
        """Bytes of one sketch."""
        return 0 if self.shape is None else sketch_bytes(self.shape)

    @property
    def fixed_bytes(self) -> int:
        """Bytes of everything except a plain party's labels."""
        total = _TOTAL.size if self.with_total else 0
        users = _USERS.size if self.shape is None else 0
        return 4 * self.clusters * self.d + total + self.sketches * self.sketch_bytes + users


def synopsis_format(plan: Plan, place: int) -> SynopsisFormat:
    """Return the shape of the message of party `place`, from 0; party 0 answers the query for the number of users."""
    plain = plan.protocol == PLAIN
    return SynopsisFormat(
        clusters=plan.local_clusters,
        d=len(plan.names[place]),
        with_total=place == 0 and not plain,
        sketches=sum(place in group for group in plan.key_groups),
        shape=None if plain else plan.shape,
        users=plan.n_total if plain else 0,
    )


def _longest_synopsis(plan: Plan) -> int:
    formats = (synopsis_format(plan, place) for place in range(plan.clients))
    return max(form.fixed_bytes + form.users for form in formats)


def _plain(facts: Mapping[str, Any]) -> bool:
    return not facts.get("private", True)


_only_message = partial(
    Seen,
    "party to server",
    "this party's one message about its columns",
    others="never sent to them",
    network="length, time",
)


class Synopsis(Payload):
    """A party's noisy centres and sketches, released to the server.

    Attributes
    ----------
    data : bytes
        Centres, int32 on the grid of 2^-16, row by row; the noisy number of users in units of 2^-8, int64; the
        sketches one after the other (or the number of users, uint32, and their labels, one byte each).
    """

    __slots__ = ()
    TYPE = 104
    MOST_BYTES = OfPlan(_longest_synopsis)
    SEEN = (
        _only_message(
            server="noisy local centres, private sketches, from party 1 the noisy number of users",
            when=lambda facts: not _plain(facts),
        ),
        _only_message(
            server="local centres without noise, and every person's local cluster", variant=PLAIN, when=_plain
        ),
    )

    @classmethod
    def write(
        cls,
        noisy_centers: NDArray[np.int64],
        format: SynopsisFormat,
        *,
        noisy_total: float | None = None,
        sketches: tuple[Levels, ...] = (),
        plain_labels: NDArray[np.int64] | None = None,
    ) -> Self:
        """Encode the parts."""
        parts = [noisy_centers.astype("<i4").tobytes()]
        if noisy_total is not None:
            parts.append(_TOTAL.pack(round(noisy_total * (1 << TOTAL_BITS))))
        if format.shape is not None:
            parts += [pack_sketch(levels, format.shape) for levels in sketches]
        if plain_labels is not None:
            parts += [_USERS.pack(plain_labels.size), plain_labels.astype(np.uint8).tobytes()]
        return cls(b"".join(parts))

    @classmethod
    def read(cls, body: bytes, format: SynopsisFormat) -> Self:
        """Check lengths and ranges of all parts."""
        free = len(body) - format.fixed_bytes
        if free < 0 or (format.shape is not None and free) or free > format.users:
            raise ValueError(f"expected {format.fixed_bytes} bytes of centres and sketches, got {len(body)}")
        if format.shape is None:
            (users,) = _USERS.unpack_from(body, format.fixed_bytes - _USERS.size)
            if not free or users != free:
                raise ValueError(f"expected the local clusters of {max(users, 1)} users, got {free}")
        message = cls(body)
        if np.abs(message.centers(format)).max() > _LIMIT:
            raise ValueError("a local centre lies outside [-1, 1]")
        if free and message.plain_labels(format).max() >= format.clusters:
            raise ValueError(f"a local cluster beyond {format.clusters - 1}")
        try:
            message.sketches(format)
        except RangeError as error:
            raise ValueError(str(error)) from error
        return message

    def centers(self, format: SynopsisFormat) -> NDArray[np.int64]:
        """Return the local centres, shape (k', d), on the grid of 2^-16."""
        count = format.clusters * format.d
        return np.frombuffer(self.data, dtype="<i4", count=count).astype(np.int64).reshape(format.clusters, format.d)

    def noisy_total(self, format: SynopsisFormat) -> float:
        """Return the noisy number of users."""
        return float(_TOTAL.unpack_from(self.data, 4 * format.clusters * format.d)[0] / (1 << TOTAL_BITS))

    def sketches(self, format: SynopsisFormat) -> tuple[Levels, ...]:
        """Return the sketches, each of shape (M, k')."""
        if format.shape is None:
            return ()
        size, end = format.sketch_bytes, format.fixed_bytes
        starts = range(end - format.sketches * size, end, size)
        return tuple(unpack_sketch(self.data[start : start + size], format.shape) for start in starts)

    def plain_labels(self, format: SynopsisFormat) -> NDArray[np.int64]:
        """Return a plain party's labels, shape (n,)."""
        return np.frombuffer(self.data, dtype=np.uint8, offset=format.fixed_bytes).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far the noise may have moved a result: root mean square over new draws of the noise.

    Attributes
    ----------
    centers : float64 array, shape (k, d)
        Scaled, columns party by party.
    unsettled : float64 array, shape (k, d)
        Errors of local clusterings that have not converged: no noise, and not drawn again.
    weights : float64 array, shape (k,)
        Users; includes the noise on their number.
    """

    centers: NDArray[np.float64]
    unsettled: NDArray[np.float64]
    weights: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedResult:
    """The result that parties receive if the run shares it.

    Attributes
    ----------
    centers : float64 array, shape (k, d)
        Scaled, columns party by party.
    weights : float64 array, shape (k,), or None
        Estimated users of each centre; None for vertical-plain, where they would be exact.
    spread : Spread or None
        None for vertical-plain.
    """

    centers: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None
    spread: Spread | None = None


def _result_elements(plan: Plan) -> int:
    """Return the number of values of the final result: none if the server keeps it; centres alone of vertical-plain."""
    return plan.k * (plan.d + (2 * plan.d + 2) * (plan.protocol != PLAIN)) * plan.share_result


class FinalResult(Payload):
    """The result, post-processing of releases; empty unless it is shared.

    Attributes
    ----------
    data : bytes
        float64, row by row: k d of the centres, scaled domain; except for vertical-plain then k weights, twice k d
        errors of the centres (`Spread.centers`, `.unsettled`) and k errors of the weights. Or nothing.
    """

    __slots__ = ()
    TYPE = 106
    MOST_BYTES = OfPlan(lambda plan: 8 * _result_elements(plan))
    SEEN = Seen(
        "server to parties", "the result", server="what it computed", others="nothing; with share_result the result"
    )

    @classmethod
    def write(cls, result: SharedResult) -> Self:
        """Encode the parts."""
        parts = [result.centers]
        if result.weights is not None and result.spread is not None:
            parts += [result.weights, result.spread.centers, result.spread.unsettled, result.spread.weights]
        return cls(b"".join(part.astype("<f8").tobytes() for part in parts))

    @classmethod
    def read(cls, body: bytes, format: Plan) -> Self:
        """Check length and ranges: centres within the domain, weights up to N, and no deviation below zero."""
        expected = 8 * _result_elements(format)
        if len(body) != expected:
            raise ValueError(f"expected {expected} bytes of centres, weights and errors, got {len(body)}")
        message = cls(body)
        result = message.result(format)
        if result is None:
            return message
        if not (np.abs(result.centers) <= 1.0 + 1e-9).all():
            raise ValueError("a centre lies outside [-1, 1]")
        if result.weights is None or result.spread is None:
            return message
        if not ((result.weights >= 0.0) & (result.weights <= (1.0 + 1e-9) * format.n_total)).all():
            raise ValueError(f"a weight lies outside 0 to N = {format.n_total}")
        deviations = np.concatenate(
            [result.spread.centers, result.spread.unsettled, result.spread.weights[:, None]], axis=1
        )
        if not ((deviations >= 0.0) & np.isfinite(deviations)).all():
            raise ValueError("a deviation is below 0 or not finite")
        return message

    def result(self, format: Plan) -> SharedResult | None:
        """Return the result, or None if it is not shared."""
        if not format.share_result:
            return None
        k, d = format.k, format.d
        values = np.frombuffer(self.data, dtype="<f8").astype(np.float64)
        if format.protocol == PLAIN:
            return SharedResult(centers=values.reshape(k, d))
        ends = np.cumsum([k * d, k, k * d, k * d])
        centers, weights, moved, unsettled, resized = np.split(values, ends)
        spread = Spread(centers=moved.reshape(k, d), unsettled=unsettled.reshape(k, d), weights=resized)
        return SharedResult(centers=centers.reshape(k, d), weights=weights, spread=spread)


MESSAGES: Messages = (
    *(Columns, seen_as(PlanProposal, route="server to parties")),
    seen_as(
        *(PairPublicKey, PairCiphertext, SeedConfirmation, SeedContribution),
        about="agree on the keys of each pair of parties",
        route="party to party",
        others="what makes the pair's secret (with weights=basic: the common seed)",
        variant="",
        when=always,
    ),
    *(BlindedIds, OpenedIds, IdTag, Ready, Go, Synopsis, FinalResult),
    seen_as(Chains, when=lambda facts: not facts.get("share_result")),
    replace(CHAINS_OF_ALL, when=lambda facts: bool(facts.get("share_result"))),
    *COUNTED,
)


def bounds(plan: Plan) -> MessageBounds:
    """Return the bounds of what a peer may send once the plan is known."""
    return plan_bounds(MESSAGES, plan, ahead_bytes=lists_ahead(plan.clients, plan.n_total))
