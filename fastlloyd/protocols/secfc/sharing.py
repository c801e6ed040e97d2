"""Before round 0: sizes to the server, and each point's shares to the clients (Alg. 1, phase 1).

Every client sends its block b to every other client and then waits for block b of all of them, so that nobody is more
than one block ahead and memory stays bounded; who has no points left sends empty blocks.

With membership privacy each client shares a vector for every point of the union: its own points, and zeros for the
others; the shares of a point add up (Eq. 6). Whoever has more than t of the shares that one client made can tell its
zeros from its points: who owns a point is hidden from up to t colluding clients, as the points are.

Source: SecFC, Alg. 1, lines 1 to 5; §4.1 "Secure data sharing", Eq. 2; §6 and App. B, Eq. 4 to 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, InternalError, PeerError
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.party.effects import Gather, Party, Receive, Send
from fastlloyd.protocols.secfc.field.prime import MAX_RECORDS, Elements
from fastlloyd.protocols.secfc.membership import agree_order
from fastlloyd.protocols.secfc.messages import ArrayFormat, DataShares, Shared, Size
from fastlloyd.protocols.secfc.plan import Plan, fits_cap
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SERVER, SETUP_ROUND, PartyId


@dataclass(frozen=True, slots=True)
class Shares:
    """What a client has once all points are shared.

    Attributes
    ----------
    elements : float32 array, shape (primes, m, width)
        Its share of every point, in the order that all parties use; exact, since residues are below 2^23 in size.
    raw_rows : int64 array, shape (own points,)
        Where its own points stand in that order; without membership privacy everybody knows.
    """

    elements: NDArray[np.float32] = field(repr=False)
    raw_rows: NDArray[np.int64] = field(repr=False)


def tell_size(size: int) -> Party[None]:
    """Tell the server the number of own records, or the public padded size; run by each client, before its Hello.

    Notes
    -----
    Sees: the server, and by the plan all clients.
    """
    yield Send((SERVER,), Size(size), SETUP_ROUND)


def gather_sizes(clients: tuple[PartyId, ...], caps: Sequence[int], *, padded: bool) -> Party[tuple[int, ...]]:
    """Collect the clients' sizes; run by the server, before their Hellos.

    Parameters
    ----------
    clients : tuple of PartyId
    caps : sequence of int, one for each client
        Public caps on their records.
    padded : bool
        Whether these are the sizes: with membership privacy.

    Raises
    ------
    PeerError
        A client's size does not fit its cap: names it.
    """
    told = yield Gather(clients, Size, SETUP_ROUND, len(clients), MAX_RECORDS)
    sizes = tuple(int(told[party].value) for party in clients)
    for party, size, cap in zip(clients, sizes, caps, strict=True):
        if not fits_cap(size, cap, padded=padded):
            expected = "its public padded size" if padded else "at most its public cap"
            raise PeerError(
                f"{party} told a size of {size}, expected {expected} of {cap}; look at its version", rank=party.rank
            )
    return sizes


def share_points(
    me: PartyId, raw_points: GridPoints, plan: Plan, *, run_id: bytes, secret: SecretRandom
) -> Party[Shares]:
    """Share this party's points and receive shares of everybody's; run by each client, after the plan.

    Parameters
    ----------
    me : PartyId
    raw_points : GridPoints
        Own records; with membership privacy at most as many as the size told, else exactly as many.
    plan : Plan
    run_id : bytes
    secret : SecretRandom

    Raises
    ------
    PeerError
        A client sends what does not fit the plan; or drops tags in the mix.

    Notes
    -----
    Sees: each other client one share of each point, independent of the point for any t of them together. The server
    nothing but the number of records.
    """
    own = plan.sizes[me.rank - 1]
    if not plan.membership and raw_points.n != own:
        raise InternalError(f"{me} told another number of records than it shares")
    if plan.membership:
        raw_rows, records = yield from agree_order(me, raw_points.n, plan, run_id=run_id, secret=secret)
        counts = (records,) * plan.clients
    else:
        raw_rows, records = np.arange(own, dtype=np.int64) + sum(plan.sizes[: me.rank - 1]), sum(plan.sizes)
        counts = plan.sizes
    vectors = _vectors(raw_points, raw_rows, records, plan)
    elements = yield from _exchange(me, vectors, counts, plan, secret)
    yield Send((SERVER,), Shared(records), SETUP_ROUND)
    return Shares(elements, raw_rows)


def await_shared(plan: Plan) -> Party[int]:
    """Wait until all clients have shared their points, and give their number; run by the server.

    Raises
    ------
    PeerError
        A client counts another number of points than the others.
    ConfigError
        There is no point at all.
    """
    told = yield Gather(plan.everybody, Shared, SETUP_ROUND, plan.clients, plan.n_total)
    # Padded sizes do not tell the number: what most clients say stands.
    counts = Counter(told[party].value for party in plan.everybody)
    expected = counts.most_common(1)[0][0] if plan.membership else sum(plan.sizes)
    for party in plan.everybody:
        if told[party].value != expected:
            raise PeerError(
                f"{party} counts {told[party].value} records of all clients together, expected {expected}; look at its "
                "version",
                rank=party.rank,
            )
    if expected == 0:
        raise ConfigError("the clients hold no record together, expected at least 1; check their files")
    return int(expected)


class _Vectors:
    """The integer vectors that one client shares: its points, at their places, zeros elsewhere."""

    def __init__(self, raw_points: GridPoints, raw_places: NDArray[np.int64]) -> None:
        self._points = raw_points
        self._order = np.argsort(raw_places, kind="stable")
        self._places = raw_places[self._order]

    def rows(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the vectors of the places start..stop-1, shape (stop - start, d)."""
        block = np.zeros((stop - start, self._points.d), dtype=np.int64)  # Eq. 4
        first, last = np.searchsorted(self._places, (start, stop))
        chosen = self._order[first:last]
        block[self._places[first:last] - start] = self._points.raw_coordinates[:, chosen].T
        return block


def _vectors(raw_points: GridPoints, raw_rows: NDArray[np.int64], records: int, plan: Plan) -> _Vectors:
    """Place this party's points among those that this client shares."""
    if plan.membership:
        return _Vectors(raw_points, raw_rows)
    return _Vectors(raw_points, np.arange(len(raw_rows), dtype=np.int64))


def _exchange(
    me: PartyId, vectors: _Vectors, counts: tuple[int, ...], plan: Plan, secret: SecretRandom
) -> Party[NDArray[np.float32]]:
    """Send and receive all shares, block by block; gives shape (primes, m, width)."""
    code, ring, height = plan.code, plan.field, plan.block_rows
    records = counts[0] if plan.membership else sum(counts)
    held = np.empty((len(plan.primes), records, plan.width), dtype=np.float32)
    others = tuple(party for party in plan.everybody if party != me)
    for block in range(-(-max(counts) // height)):
        spans = {party: _span(counts[party.rank - 1], block, height) for party in plan.everybody}
        made = code.share(ring.encode(vectors.rows(spans[me].start, spans[me].stop)), secret)  # line 3; Eq. 2, Eq. 5
        for party in others:
            yield Send((party,), DataShares(made[:, party.rank - 1], ring, block), SETUP_ROUND)
        own = made[:, me.rank - 1].copy()
        del made
        if not plan.membership:
            _keep(held, own, sum(counts[: me.rank - 1]) + spans[me].start)
        for party in others:
            span = spans[party]
            shape = ArrayFormat(ring, (span.stop - span.start, plan.width), block)
            message: DataShares = yield Receive(party, DataShares, SETUP_ROUND, shape)
            if plan.membership:
                own += message.elements  # Eq. 6
            else:
                _keep(held, message.elements, sum(counts[: party.rank - 1]) + span.start)
        if plan.membership:
            _keep(held, ring.reduce(own), spans[me].start)
    return held


def _span(count: int, block: int, height: int) -> slice:
    """Return which of a client's points are in a block; none once it has no more."""
    return slice(min(block * height, count), min((block + 1) * height, count))


def _keep(held: NDArray[np.float32], shares: Elements, start: int) -> None:
    """Store one block's shares; residues fit 24 bits."""
    held[:, start : start + shares.shape[1]] = shares
