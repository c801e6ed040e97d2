"""Make and check the plan of one run from public parameters: code, field, limits, and each client's size.

The server makes the plan and sends it; each client checks it against its own configuration before it shares anything.

Without membership privacy every party learns every client's number of records from the shape of the shares. With it,
they learn the padded sizes, which are public anyway, and the number of records of all clients together.

Source: SecFC, §4.1, App. A; docs/secfc.md, "The arithmetic, byte by byte".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from fastlloyd.errors import ConfigError, RangeError
from fastlloyd.party.plain_plan import PlainPlan, RunTerms, same_named
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.secfc.field.lagrange import Code
from fastlloyd.protocols.secfc.field.prime import Field, choose_field
from fastlloyd.protocols.secfc.math.masks import squared_norm_bound
from fastlloyd.protocols.secfc.math.onion import sealed_bytes
from fastlloyd.protocols.secfc.math.signs import (
    MOST_VALUES,
    bits_in_common,
    distance,
    largest_difference,
    largest_value,
    mantissa_bits,
)
from fastlloyd.protocols.secfc.math.tournament import count_rounds
from fastlloyd.protocols.secfc.settings import DEFAULT_ITERATIONS, PublicParameters, settle_code
from fastlloyd.wire.header import PartyId, clients

# Half of what a link takes in one message, so that no header or later version comes near the limit.
MAX_MESSAGE_BYTES = 1 << 29
# A client holds the shares of one block for all clients at once.
_BLOCK_BYTES = 1 << 24
# The most bytes of one answer on several starts; beyond that bytes cost more than round trips, and memory counts.
_TOGETHER_BYTES = 1 << 24
# Bits of a coin beyond those of N and of weights (`math/attempt.py`).
_COIN_BITS, _WEIGHT_BITS, _MOST_WEIGHT_BITS = 16, 24, 60
# Made once each: primes are tested, and points chosen and checked, each time.
_field, _code = lru_cache(maxsize=16)(Field), lru_cache(maxsize=16)(Code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(RunTerms, PlainPlan):
    """Everything public that one run needs; the same on all parties.

    Attributes
    ----------
    sizes : tuple of int, length clients
        Each client's number of records, or with `membership` its padded size.
    segments, threshold : int
        Paper: l and t.
    primes : tuple of int
        Of the field (`protocols/secfc/field/prime.py`).
    iterations : int
        Limit on Lloyd iterations.
    least_revealed : int
        Records of the smallest cluster whose centre is revealed.
    """

    d: int
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    segments: int
    threshold: int
    start: str
    starts: int
    membership: bool
    reveal_centers: bool
    least_revealed: int
    extra_answers: int
    fraction_bits: int
    primes: tuple[int, ...]
    iterations: int

    @property
    def field(self) -> Field:
        """The field that shares and answers are in."""
        return _field(self.primes)

    @property
    def code(self) -> Code:
        """The Lagrange code."""
        return _code(self.field, self.segments, self.threshold, self.clients)

    @property
    def everybody(self) -> tuple[PartyId, ...]:
        """All clients."""
        return clients(self.clients)

    @property
    def width(self) -> int:
        """Field elements in one share of a point: d / l, rounded up."""
        return -(-self.d // self.segments)

    @property
    def needed_answers(self) -> int:
        """Answers that the server waits for: 2l + 2t - 1 and what the settings add."""
        return 2 * (self.segments + self.threshold) - 1 + self.extra_answers

    @property
    def revealing(self) -> int:
        """Clients that reveal the centres together: l + t."""
        return self.segments + self.threshold

    @property
    def start_rounds(self) -> int:
        """Rounds before Lloyd's first: one for each seed of the separated start."""
        return self.k if self.start == "separated" else 0

    @property
    def passes(self) -> tuple[range, ...]:
        """Starts that advance in the same messages, by number; one pass after the other."""
        together = max(1, _TOGETHER_BYTES // self.most_bytes)
        return tuple(range(i, min(i + together, self.starts)) for i in range(0, self.starts, together))

    @property
    def rounds(self) -> int:
        """Steps at most: rounds of the start, iterations, and the choice among several starts."""
        return len(self.passes) * (self.start_rounds + self.iterations) + (self.starts > 1)

    @property
    def messages(self) -> int:
        """Answers of a client at most: a seed takes two, the groups and an iteration several."""
        others = self.k - 1
        start = 2 * others + max(1, -(-others // self.most_values)) if self.start == "separated" else 0
        course = start + self.iterations * count_rounds(self.k)
        return len(self.passes) * course + (count_rounds(self.starts) if self.starts > 1 else 0)

    @property
    def most_values(self) -> int:
        """Values of a point in one answer on one start at most."""
        return max(1, self.k // 2)

    @property
    def most_bytes(self) -> int:
        """Bytes of one answer on one start at most."""
        return self.most_values * sum(self.sizes) * self.field.element_bytes

    @property
    def answer_values(self) -> int:
        """Values of one answer at most."""
        return max(len(self.passes[0]) * self.most_values * sum(self.sizes), self.starts // 2)

    @property
    def coin_bits(self) -> int:
        """Bits of the coins that seeds are drawn with: b of `math/attempt.py`."""
        return self.n_total.bit_length() + _COIN_BITS

    @property
    def squared_norm(self) -> int:
        """Bound on the squared norm of a record on the grid."""
        return squared_norm_bound(self.d, self.fraction_bits)

    @property
    def largest_difference(self) -> int:
        """Bound on every D that is compared, in size; `math/` proves each."""
        n = self.n_total
        bounds = [largest_difference(n_total=n, squared_norm=self.squared_norm)]
        if self.start == "separated":
            bounds += [(4 * n * self.squared_norm) << self.coin_bits, 36 * self.squared_norm]
        if self.starts > 1:
            bounds.append((n * self.squared_norm) << _least_weight_bits(n))
        return max(bounds)

    @property
    def dummy_bits(self) -> int:
        """Octaves over which dummy values are spread: those of squared distances."""
        return (4 * self.squared_norm).bit_length()

    @property
    def most_comparisons(self) -> int:
        """Values of a run at most: of seeds, nearest seeds and groups, of all iterations, and of the choice."""
        return self.starts * (self.n_total * self.k * (3 + self.iterations) + 1)

    @property
    def weight_bits(self) -> int:
        """log2(W) of `math/attempt.py`: as large as other differences allow without a larger field."""
        norms, largest = self.n_total * self.squared_norm, self.largest_difference
        bits = _least_weight_bits(self.n_total)
        while bits < _MOST_WEIGHT_BITS and norms << (bits + 1) <= largest:
            bits += 1
        return bits

    @property
    def mantissa_bits(self) -> int:
        """Bits of the mantissas of factors: w of `math/signs.py`."""
        return mantissa_bits(self.largest_difference, self.most_comparisons)

    @property
    def distance(self) -> float:
        """The largest distance of all values of a run from the law in the proofs of `math/signs.py`."""
        return distance(self.largest_difference, self.most_comparisons, self.mantissa_bits)

    @property
    def bits_in_common(self) -> float:
        """The most that a value reveals of its difference, in bits."""
        return bits_in_common(self.largest_difference)

    @property
    def block_rows(self) -> int:
        """Points whose shares travel in one message."""
        return max(1, _BLOCK_BYTES // (8 * len(self.primes) * self.width * (self.clients + self.revealing)))

    @property
    def private(self) -> bool:
        """The result is exact: there is no differential privacy."""
        return False

    @property
    def min_clients(self) -> int:
        """Clients that an iteration needs."""
        return self.needed_answers

    def all_releases(self) -> tuple[Release, ...]:
        """Return what the run releases: every assignment, exactly.

        Privacy: none. One record may change the cluster of all others, up to N of them.
        """
        return (
            Release(
                round=0,
                name="assignments",
                mechanism="none",
                sensitivity=float(self.n_total),
                norm="l1",
                noise_scale=0.0,
                seen_by="clients",
            ),
        )


def make_plan(public: PublicParameters, *, d: int, names: tuple[str, ...], sizes: tuple[int, ...]) -> Plan:
    """Make the plan of a run; run by the server.

    Parameters
    ----------
    public : PublicParameters
    d : int
    names : tuple of str, length d
    sizes : tuple of int
        What `sharing.gather_sizes` gave.

    Raises
    ------
    ConfigError
        The sizes do not go with the public N.
    RangeError
        Field or messages would be too large for these public bounds; says what to change.
    """
    _check_sizes(public, sizes)
    chosen = public.chosen
    segments, threshold = settle_code(chosen, public.clients)
    plan = Plan(
        **same_named(Plan, public, chosen, but=("segments", "threshold")),
        d=d,
        names=names,
        sizes=sizes,
        segments=segments,
        threshold=threshold,
        primes=(),
        iterations=public.rounds or DEFAULT_ITERATIONS,
    )
    if plan.most_comparisons > MOST_VALUES:
        raise RangeError(
            f"the run could make {plan.most_comparisons} comparisons, expected at most {MOST_VALUES}, the number for "
            "which the privacy proof holds; lower --rounds, --n-total, --k or --set secfc.starts"
        )
    field = choose_field(largest_value(plan.largest_difference, plan.mantissa_bits))
    plan = dataclasses.replace(plan, primes=field.primes)
    _check_messages(plan)
    return plan


def _least_weight_bits(n_total: int) -> int:
    """Return the least log2(W): W is at least 2^24 N."""
    return n_total.bit_length() + _WEIGHT_BITS


def fits_cap(size: int, cap: int, *, padded: bool) -> bool:
    """Return whether a client may state a size: at most its public cap, and with membership privacy the cap itself."""
    return size == cap if padded else size <= cap


def check_plan(
    plan: Plan, public: PublicParameters, *, me: PartyId, names: tuple[str, ...], size: int, caps: Sequence[int]
) -> None:
    """Check a plan against a client's own configuration; run by each client.

    Parameters
    ----------
    plan : Plan
    public : PublicParameters
    me : PartyId
    names : tuple of str, length d
    size : int
        The size that this client sent to the server.
    caps : sequence of int, one for each client
        Public caps on their records.

    Raises
    ------
    ValueError
        The plan differs from the configuration: the server is at fault.
    """
    try:
        expected = make_plan(public, d=len(names), names=names, sizes=plan.sizes)
    except (ConfigError, RangeError) as error:
        raise ValueError(f"no plan can be made from it: {error}") from error
    plan.compare(expected.values())
    if plan.sizes[me.rank - 1] != size:
        raise ValueError(f"the plan says that {me} has a size of {plan.sizes[me.rank - 1]}, expected {size}")
    for party, theirs, cap in zip(plan.everybody, plan.sizes, caps, strict=True):
        # A server that follows the protocol has refused such a size.
        if not fits_cap(theirs, cap, padded=plan.membership):
            raise ValueError(f"the plan says that {party} has a size of {theirs}, which does not fit its cap of {cap}")


def _check_sizes(public: PublicParameters, sizes: tuple[int, ...]) -> None:
    """Refuse sizes that exceed the public N, and runs without a record."""
    if len(sizes) != public.clients or min(sizes) < 0:
        raise ConfigError(f"expected {public.clients} sizes, one for each client, got {sizes}")
    if not 1 <= sum(sizes) <= public.n_total:
        raise ConfigError(
            f"the clients have {sum(sizes)} records, expected 1 to the public N = {public.n_total}; correct --n-total "
            "or the clients' caps"
        )


def _check_messages(plan: Plan) -> None:
    """Refuse a run whose largest message is too large for a link."""
    records = sum(plan.sizes)
    if plan.most_bytes > MAX_MESSAGE_BYTES:
        raise RangeError(
            f"one answer on {plan.k} clusters and {records} records has {plan.most_bytes} bytes, expected at "
            f"most {MAX_MESSAGE_BYTES}; lower --k, --n-total or --set secfc.fraction_bits"
        )
    sealed = records * sealed_bytes(plan.clients)
    if plan.membership and sealed > MAX_MESSAGE_BYTES:
        raise RangeError(
            f"the mix of {records} tags has {sealed} bytes, expected at most {MAX_MESSAGE_BYTES}; lower the clients' "
            "caps, or leave --set secfc.membership out"
        )
