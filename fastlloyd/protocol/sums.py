"""A whole protocol of noisy masked sums, of which its author states what one record adds and what the sums mean.

::

    class KMedians(MaskedSums):
        def parts(self, k, d, chosen): ...       what is added up: names, shapes, sensitivities, with the proof
        def start(self, plan): ...               the public state before round 0
        def local(self, raw_points, state, plan): ...    what this client's records add, whole numbers
        def step(self, noisy, state, plan, t): ...       the state after round t
        def labels(self, raw_points, state): ...

Public parameters, a plan with calibrated noise, its check by every client, ledger, resume, both kinds of masks, noise
in shares, lost clients, aggregators, the verdict and the words of the dossier follow.

Source: FastLloyd, §5.3.4, Figure 1; docs/adding-a-protocol.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.records import ClientRecords, OwnRecords
from fastlloyd.errors import InternalError
from fastlloyd.lifecycle.masked_sums import GlobalMsa
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.masking.fixed import GAUSSIAN_TAIL, choose_fraction_bits
from fastlloyd.masking.mask import Masks
from fastlloyd.party.effects import Party, Publish
from fastlloyd.party.option import read_settings
from fastlloyd.party.plain_plan import RoundsPlan, SumsTerms, check_delta, check_epsilon, same_named
from fastlloyd.privacy.accountant import SAMPLER_DELTA
from fastlloyd.privacy.calibration import calibrate, gaussian_noise_multiplier, stated_delta
from fastlloyd.privacy.limits import check_clients, check_clusters, check_numbers, check_rounds
from fastlloyd.privacy.noise.sampler import round_normal
from fastlloyd.privacy.release import GAUSSIAN_SHARES, Release
from fastlloyd.privacy.shares import draw_gaussian_parts
from fastlloyd.protocol.masked import Masked, masked_flow, masked_sights
from fastlloyd.protocol.work import sums_work
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.outlook import PlanLine
from fastlloyd.report.quality import ResultNoise
from fastlloyd.report.ranges import NORMAL_TAIL
from fastlloyd.report.sight import RELEASED, Flow, Sights
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Result
from fastlloyd.run.session import Session
from fastlloyd.run.work import Work
from fastlloyd.wire.decode import Within
from fastlloyd.wire.header import PartyId

Floats = NDArray[np.float64]
MAX_ROUNDS = 1000
# A plan's noise over that of a client's own plan, at most: it is calibrated to the last digits of epsilon.
_MOST_NOISE = 1.01
# How often a round's noise is drawn again, to see how far it moves the centres.
_DRAWS = 32

_RANGES = (
    "A range of a centre is about the noise of the later half of the rounds, and about the last move; one of a size is "
    "about the noise of the last round. Where other noise in the earlier rounds would have led is not in it: another "
    "run may come to other clusters."
)


@dataclass(frozen=True, slots=True)
class Part:
    """Whole numbers that are added up over all records.

    Attributes
    ----------
    name : str
        As the ledger names their release.
    shape : tuple of int
        Of the array that `local` returns and `step` receives.
    sensitivity : float
        How far one record more or less moves the array at most, in the L2 norm.
    weight : float
        Of a part's share of 1/sigma^2: its weight over that of all parts.
    """

    name: str
    shape: tuple[int, ...]
    sensitivity: float
    weight: Annotated[float, Within(2.0**-20, 2.0**20)] = 1.0

    @property
    def elements(self) -> int:
        """How many numbers there are."""
        return math.prod(self.shape)

    @property
    def spread(self) -> float:
        """Standard deviation of its noise over the noise over sensitivity of a part of weight 1."""
        return self.sensitivity / math.sqrt(self.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsParameters(SumsTerms):
    """Public parameters of one run.

    Attributes
    ----------
    delta : float or None
        None: the default, 1 / (100 N).
    rounds : int or None
        None: the protocol's number.
    settings : mapping
        The protocol's, as configured.
    """

    delta: float | None
    rounds: int | None
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_clients(self.clients, self.min_clients)
        self.check_masking()
        check_clusters(self.k, self.n_total)
        check_numbers(n_total=self.n_total, epsilon=self.epsilon, delta=self.delta)
        check_rounds(self.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsPlan(SumsTerms, RoundsPlan):
    """Everything public that one run needs; the same on all parties.

    Attributes
    ----------
    fraction_bits : int
        Sums and noise lie on the grid of 2^-q.
    rounds : tuple of float
        Of each round, the noise that counts over the sensitivity, for each part of weight 1.
    parts : tuple of Part
        Of every round.
    """

    settings: Mapping[str, Any]
    d: int
    names: tuple[str, ...]
    delta: float
    fraction_bits: Annotated[int, Within(0, 16)]
    rounds: Annotated[tuple[float, ...], Within(1, MAX_ROUNDS)]
    parts: tuple[Part, ...]

    def elements(self, t: int) -> int:
        """Return the ring elements of a message in round t."""
        return sum(part.elements for part in self.parts)

    def releases(self, t: int) -> tuple[Release, ...]:
        """Return what round t releases: each part, on the grid.

        Notes
        -----
        Privacy: the sums are whole numbers times 2^q, so one record moves a part by its sensitivity times 2^q.
        """
        grid = float(1 << self.fraction_bits)
        return tuple(
            self.noisy_sum(
                t,
                mechanism=GAUSSIAN_SHARES if self.in_shares else "gaussian",
                bits=self.fraction_bits,
                name=part.name,
                sensitivity=part.sensitivity * grid,
                noise_scale=self.rounds[t] * part.spread * grid,
            )
            for part in self.parts
        )

    def noise_on(self, name: str, t: int) -> float:
        """Return the standard deviation of all noise on each number of a part in round t, as `step` receives it."""
        return next(self.rounds[t] * part.spread * self.noise_in(t) for part in self.parts if part.name == name)

    def noise_in(self, t: int) -> float:
        """Return the standard deviation of all noise in round t over that of the noise that counts, as planned."""
        return self.all_noise

    def played(self, noise: Sequence[float]) -> PlayedSums:
        """Return the same plan with the noise that its first rounds have had (`noise_with`)."""
        return PlayedSums(**self.values(), noise=tuple(noise))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedSums(SumsPlan):
    """A plan of which some rounds are over: clients were lost in them, and their noise is known.

    Attributes
    ----------
    noise : tuple of float
        Of each round so far: all noise over the noise that counts.
    """

    noise: tuple[float, ...]

    def noise_in(self, t: int) -> float:
        """Return the standard deviation of all noise in round t over that of the noise that counts."""
        return self.noise[t] if t < len(self.noise) else self.all_noise


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsEnd:
    """What a client has after the last round.

    Attributes
    ----------
    included : tuple of tuples of PartyId
        Of each round.
    raw_labels : int64 array, shape (n,), or None
        Of its own records; stays here. None where the protocol makes no clusters.
    centers : float64 array, shape (k, d)
        Scaled domain; released.
    sizes : float64 array, shape (k,), or None
        Noisy; released.
    noise : ResultNoise
    state : object
        Public, after the last step: what a protocol's own `result` makes further files from.
    silent : tuple of tuples of PartyId
        Of each round, with threshold masks: the clients in the sum that left more of their noise in it.
    """

    included: tuple[tuple[PartyId, ...], ...]
    raw_labels: NDArray[np.int64] | None = field(repr=False)
    centers: Floats = field(repr=False)
    sizes: Floats | None
    noise: ResultNoise = field(repr=False)
    state: Any = field(repr=False)
    silent: tuple[tuple[PartyId, ...], ...] = ()


class MaskedSums(Masked[SumsPlan]):
    """A protocol of noisy masked sums.

    Attributes
    ----------
    default_rounds : int
        Unless `--rounds` says otherwise.
    counts : str
        The part that holds the sizes of the clusters; empty where there is none.
    """

    plan_type = SumsPlan
    public_type = SumsParameters
    unreported = ("names", "protocol", "rounds", "parts", "settings")
    default_rounds: ClassVar[int] = 8
    counts: ClassVar[str] = ""

    # What a protocol says.

    @abstractmethod
    def parts(self, k: int, d: int, chosen: Any) -> tuple[Part, ...]:
        """Return what is added up in each round for k clusters and d features; its docstring proves the sensitivities.

        `chosen` are the settings. Neighbours differ in one record. The state that records are compared with is public,
        so it is the same for both.
        """

    @abstractmethod
    def start(self, plan: SumsPlan) -> Any:
        """Return the public state before round 0, the same at all clients."""

    @abstractmethod
    def local(self, raw_points: Floats, state: Any, plan: SumsPlan) -> Mapping[str, NDArray[np.int64]]:
        """Return what this client's records add to each part, by name, in whole numbers.

        Parameters
        ----------
        raw_points : float64 array, shape (n, d)
            Scaled to [-1, 1].
        state : object
        plan : SumsPlan
        """

    @abstractmethod
    def step(self, noisy: Mapping[str, Floats], state: Any, plan: SumsPlan, t: int) -> Any:
        """Return the state after round t from the noisy sums, by name; all clients must come to the same bits."""

    @abstractmethod
    def labels(self, raw_points: Floats, state: Any) -> NDArray[np.int64] | None:
        """Return the cluster of each of this client's records, shape (n,); None: the protocol makes no clusters."""

    def unit_bits(self, plan: SumsPlan) -> int:
        """Return q for whole numbers of `local`, and 0 if they are in units of the grid of 2^-q already."""
        return plan.fraction_bits

    def centers(self, state: Any) -> Floats:
        """Return the centres of a state, shape (k, d), scaled domain; by default it is the centres."""
        found: Floats = state
        return found

    # What follows.

    def chosen(self, values: Mapping[str, Any], protocol: str) -> Any:
        """Return the settings as an instance of the protocol's class; None where it has none."""
        return None if self.settings is None else read_settings(self.settings(), protocol, values)

    def settings_of(self, plan: SumsPlan) -> Any:
        """Return a run's settings."""
        return self.chosen(plan.settings, plan.protocol)

    def public_parameters(self, config: RunConfig, clients: int, n_total: int, k: int) -> SumsParameters:
        """Return the public parameters of a run."""
        public: SumsParameters = super().public_parameters(config, clients, n_total, k)
        self.chosen(public.settings, public.protocol)
        return public

    def make_plan(self, public: SumsParameters, names: tuple[str, ...]) -> SumsPlan:
        """Make the plan of a run: the same noise over sensitivity in all rounds, for all parts of the same weight.

        Raises
        ------
        RangeError
            The ring is too narrow for the sums and their noise.
        """
        delta, rounds = stated_delta(public.delta, public.n_total), public.rounds or self.default_rounds
        parts = self.parts(public.k, len(names), self.chosen(public.settings, public.protocol))
        largest, weights = max(part.sensitivity for part in parts), sum(part.weight for part in parts)
        sigma = gaussian_noise_multiplier(public.epsilon, delta - SAMPLER_DELTA) * math.sqrt(weights * rounds)
        widest = max(part.spread for part in parts)
        bits = choose_fraction_bits(
            ring_bits=public.ring_bits,
            n_total=public.n_total,
            d=len(names),
            largest_coordinate=largest,  # one record's part is at most as long as it moves the sum
            tail=_MOST_NOISE * GAUSSIAN_TAIL * public.most_noise * sigma * widest,
        )

        def build(factor: float) -> SumsPlan:
            return SumsPlan(
                **same_named(SumsPlan, public),
                d=len(names),
                names=names,
                delta=delta,
                fraction_bits=bits,
                rounds=(factor * sigma,) * rounds,
                parts=parts,
            )

        factor, _ = calibrate(lambda candidate: build(candidate).all_releases(), public.epsilon, delta, 1.0)
        return build(factor)

    def check_plan(self, plan: SumsPlan, public: SumsParameters, names: tuple[str, ...]) -> float:
        """Check the server's plan against a client's own configuration; return the epsilon that it spends.

        Raises
        ------
        ValueError
            It differs, spends more than was agreed, or has more noise than that asks for: the server is at fault.
        """
        own = self.make_plan(public, names)
        check_delta(plan.delta, own.delta)
        plan.compare({name: value for name, value in own.values().items() if name not in ("rounds", "delta")})
        if len(plan.rounds) != len(own.rounds):
            raise ValueError(f"the plan has {len(plan.rounds)} rounds, expected {len(own.rounds)}")
        if not all(0.0 < got <= _MOST_NOISE * most for got, most in zip(plan.rounds, own.rounds, strict=True)):
            raise ValueError(f"the plan has noise {plan.rounds}, expected at most {own.rounds[0]:.6g} in each round")
        return check_epsilon(plan.all_releases, plan.delta, most=public.epsilon)

    def noise(self, plan: SumsPlan, t: int, secret: SecretRandom) -> NDArray[np.int64]:
        """Draw the server's noise of round t in grid units; zeros where the clients add it."""
        if plan.in_shares:
            return np.zeros(plan.elements(t), dtype=np.int64)
        drawn = zip(plan.parts, plan.releases(t), strict=True)
        return np.concatenate([round_normal(release.noise_scale, part.elements, secret) for part, release in drawn])

    def noise_parts(
        self, plan: SumsPlan, t: int, shares: Sequence[Fraction], secrets: Sequence[SecretRandom]
    ) -> NDArray[np.int64]:
        """Draw parts of one client's share of round t's noise, in grid units."""
        drawn = zip(plan.parts, plan.releases(t), strict=True)
        return draw_gaussian_parts([(release.noise_scale, part.elements) for part, release in drawn], shares, secrets)

    def points(self, own: ClientRecords, plan: SumsPlan) -> Floats:
        """Return a client's records."""
        if not isinstance(own, OwnRecords):
            raise InternalError("expected records in memory, got a file of them: the row must not say streams=True")
        return own.raw_points

    def play_client(
        self, session: Session, plan: SumsPlan, points: Floats, secrets: Masks, stored: StoredRounds
    ) -> Party[SumsEnd]:
        """Add up over all clients, round after round.

        Notes
        -----
        Sees: the noisy sums of each round. Privacy: a round's releases are in the ledger before its sums are made.
        """
        sums = GlobalMsa(session.me, plan, secrets, share=self.own_share(plan), stored=stored)
        state, included, passed = self.start(plan), [], []
        noise: list[float] = []
        played = plan
        for t in range(len(plan.rounds)):
            vector, among = yield from sums.add_up(t, partial(self.vector, points, state, plan))
            noisy = _split(vector / float(1 << plan.fraction_bits), plan)
            passed.append((noisy, state))
            noise.append(plan.noise_with(len(among), len(sums.silent[t])))
            if plan.masking == "threshold":
                played = plan.played(noise)
            state = self.step(noisy, state, played, t)
            included.append(among)
            yield Publish("round", {"round": t, "rounds": len(plan.rounds), "clients": len(among)})
        return SumsEnd(
            included=tuple(included),
            raw_labels=self.labels(points, state),
            centers=self.centers(state),
            sizes=noisy[self.counts] if self.counts else None,
            noise=self.result_noise(played, passed, state),
            state=state,
            silent=tuple(sums.silent),
        )

    def vector(self, raw_points: Floats, state: Any, plan: SumsPlan) -> NDArray[np.int64]:
        """Return what this client's records add, on the grid, shape (plan.elements(t),)."""
        added = self.local(raw_points, state, plan)
        for part in plan.parts:
            if added[part.name].shape != part.shape or added[part.name].dtype.kind not in "iu":
                raise InternalError(
                    f"local() of {plan.protocol}: expected whole numbers of shape {part.shape} for {part.name!r}, got "
                    f"{added[part.name].dtype} of shape {added[part.name].shape}"
                )
        vector = np.concatenate([added[part.name].ravel() for part in plan.parts]).astype(np.int64)
        return vector << self.unit_bits(plan)

    def result_noise(
        self, plan: SumsPlan, passed: Sequence[tuple[Mapping[str, Floats], Any]], state: Any
    ) -> ResultNoise:
        """Say how far off the released centres and sizes may be: noise is drawn again for the later half of the rounds.

        Parameters
        ----------
        plan : SumsPlan
        passed : sequence of (mapping, object)
            Of each round, the noisy sums and the state before it.
        state : object
            At the end.

        Notes
        -----
        Given the states that the rounds began with, and with the last round's move, for the centres may not have stood
        still. Another start, or other noise in the earlier half, can lead elsewhere: `about_ranges` says so. Privacy:
        post-processing.
        """
        stream, variance = PublicStream(plan.seed, domains.SUMS_REDRAW), np.zeros_like(self.centers(state))
        for t in range(len(passed) // 2, len(passed)):
            noisy, before = passed[t]
            came = self.centers(self.step(noisy, before, plan, t))
            for _ in range(_DRAWS):
                again = {
                    name: sums + plan.noise_on(name, t) * stream.normal(sums.shape) for name, sums in noisy.items()
                }
                variance += (self.centers(self.step(again, before, plan, t)) - came) ** 2 / _DRAWS
        ranges = None
        if self.counts:
            sizes = passed[-1][0][self.counts]
            margin = NORMAL_TAIL * plan.noise_on(self.counts, len(passed) - 1)
            ranges = np.clip(np.column_stack([sizes - margin, sizes + margin]), 0.0, plan.n_total)
        moved = np.abs(self.centers(state) - self.centers(passed[-1][1]))
        return ResultNoise(size_ranges=ranges, centre_deviations=np.sqrt(variance), unsettled=moved)

    def result(self, session: Session, plan: SumsPlan, end: SumsEnd) -> Result:
        """Return the result that the clients have at the end."""
        return self.make_result(
            session, plan, end.included, silent=end.silent, centers=end.centers, sizes=end.sizes, noise=end.noise
        )

    # What people read.

    def sample(self, plan: SumsPlan, n: int) -> Any:
        """Return n made-up records in the form of `points`, by which `plan` measures what a round takes."""
        return np.random.default_rng(0).uniform(-1.0, 1.0, (n, plan.d))

    def work(self, config: RunConfig, plan: SumsPlan) -> Work | str:
        """Estimate what a run computes; not known where records have another form and no `sample` of it."""
        kind = type(self)
        if kind.points is not MaskedSums.points and kind.sample is MaskedSums.sample:
            return f"{kind.__name__} has no method `sample` that makes records of its form"
        return sums_work(self, config, plan)

    def noise_lines(self, plan: SumsPlan) -> list[PlanLine]:
        """Say how much noise there is on each number."""
        each = "; ".join(f"{plan.noise_on(part.name, 0):.3g} on each of the {part.name}" for part in plan.parts)
        return [*super().noise_lines(plan), PlanLine("noise", f"standard deviation {each}, in each round")]

    def _sums(self) -> str:
        parts = self.parts(1, 1, self.settings and self.settings())
        return f"noisy {' and '.join(part.name for part in parts)} of each round, hence the result"

    def who_sees(self, protocol: str, parameters: Mapping[str, Any]) -> Sights:
        """Return who sees what, the network left out."""
        return masked_sights(parameters, sums=self._sums())

    def about_ranges(self, protocol: str) -> str:
        """Say what the ranges of sizes and centres are about."""
        return _RANGES

    def data_flow(self, protocol: str, facts: Mapping[str, Any]) -> Flow:
        """Return where data are and go."""
        return masked_flow(facts, released=RELEASED if self.counts else "the released centroids of the clusters")


def _split(values: Floats, plan: SumsPlan) -> dict[str, Floats]:
    """Return the parts of a round's vector by name, each of its shape."""
    ends = [*accumulate(part.elements for part in plan.parts)][:-1]
    return {
        part.name: piece.reshape(part.shape) for part, piece in zip(plan.parts, np.split(values, ends), strict=True)
    }
