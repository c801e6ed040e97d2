"""Before round 0: sizes to the server, and each point's shares to the clients (Alg. 1, phase 1).

Every client sends its block b to every other client and then waits for block b of all of them, so no client is more
than one block ahead and memory stays bounded. A client without further points sends empty blocks.

With membership privacy each client shares a vector for every point of the union: its own points, and zeros for the
others; the shares of a point add up (Eq. 6). More than t of one client's shares distinguish its zeros from its points,
so owners are hidden from up to t colluding clients, as the points are.

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
    """A client's shares of all points.

    Attributes
    ----------
    elements : float32 array, shape (primes, m, width)
        Its share of every point, in the order that all parties use; exact, since residues are below 2^23 in size.
    raw_rows : int64 array, shape (own points,)
        Places of its own points in that order; public without membership privacy.
    """

    elements: NDArray[np.float32] = field(repr=False)
    raw_rows: NDArray[np.int64] = field(repr=False)


def send_size(size: int) -> Party[None]:
    """Send the server the number of own records, or the public padded size; run by each client, before its Hello.

    Sees: the server, and through the plan all clients.
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
        Whether the caps are the sizes: with membership privacy.

    Raises
    ------
    PeerError
        A client's size does not fit its cap: names it.
    """
    received = yield Gather(clients, Size, SETUP_ROUND, len(clients), MAX_RECORDS)
    sizes = tuple(int(received[party].value) for party in clients)
    for party, size, cap in zip(clients, sizes, caps, strict=True):
        if not fits_cap(size, cap, padded=padded):
            expected = "its public padded size" if padded else "at most its public cap"
            raise PeerError(
                f"{party} sent a size of {size}, expected {expected} of {cap}; look at its version", rank=party.rank
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
        Own records; with membership privacy at most as many as the size sent, else exactly as many.
    plan : Plan
    run_id : bytes
    secret : SecretRandom

    Raises
    ------
    PeerError
        A message of a client does not fit the plan, or a client drops tags in the mix.

    Notes
    -----
    Sees: each other client sees one share of each point; any t shares are independent of the point. The server sees
    only the number of records.
    """
    own = plan.sizes[me.rank - 1]
    if not plan.membership and raw_points.n != own:
        raise InternalError(f"{me} sent a size that is not the number of records it shares")
    if plan.membership:
        raw_rows, records = yield from agree_order(me, raw_points.n, plan, run_id=run_id, secret=secret)
        counts = (records,) * plan.clients
    else:
        raw_rows, records = np.arange(own, dtype=np.int64) + sum(plan.sizes[: me.rank - 1]), sum(plan.sizes)
        counts = plan.sizes
    # With membership privacy own points are placed among all, else they are the only ones that this client shares.
    vectors = _Vectors(raw_points, raw_rows if plan.membership else np.arange(len(raw_rows), dtype=np.int64))
    elements = yield from _exchange(me, vectors, counts, plan, secret)
    yield Send((SERVER,), Shared(records), SETUP_ROUND)
    return Shares(elements, raw_rows)


def await_shared(plan: Plan) -> Party[int]:
    """Wait until all clients have shared their points; return the number of points; run by the server.

    Raises
    ------
    PeerError
        A client counts a different number of points than the others.
    ConfigError
        There is no point.
    """
    answers = yield Gather(plan.everybody, Shared, SETUP_ROUND, plan.clients, plan.n_total)
    # Padded sizes do not give the number, so the majority decides.
    counts = Counter(answers[party].value for party in plan.everybody)
    expected = counts.most_common(1)[0][0] if plan.membership else sum(plan.sizes)
    for party in plan.everybody:
        if (count := answers[party].value) != expected:
            raise PeerError(
                f"{party} counts {count} records of all clients together, expected {expected}; look at its version",
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


def _exchange(
    me: PartyId, vectors: _Vectors, counts: tuple[int, ...], plan: Plan, secret: SecretRandom
) -> Party[NDArray[np.float32]]:
    """Send and receive all shares, block by block; return them, shape (primes, m, width)."""
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
