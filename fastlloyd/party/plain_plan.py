"""What all plans share: they travel as plain values, follow from public numbers and spend at most epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any, Protocol, Self

from fastlloyd.errors import ConfigError, ProcessesError, RangeError
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.parts import Parts
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.release import GAUSSIAN_SHARES, NORM_OF, Release
from fastlloyd.privacy.shares import noise_price, spread
from fastlloyd.wire.decode import decode, plain, show

ACCOUNTING_SLACK = 1e-9
"""Relative difference of a recomputed epsilon that two versions of the accounting library may have."""
_AUTOMATIC = ("delta", "rounds")
_SHOWN = ("protocol", "clients", "k", "d", "n_total", "epsilon", "delta")
# Ring elements that a party prepares for later rounds (8 MiB at most).
_READY_ELEMENTS = 1 << 20


@dataclass(frozen=True, slots=True)
class PlainPlan:
    """A plan that the server sends as a JSON object of its fields."""

    def __init_subclass__(cls) -> None:
        # A dataclass writes all fields, which are many, unless the class has a text already.
        cls.__repr__ = PlainPlan.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        values = {name: value for name, value in self.values().items() if name in _SHOWN}
        rounds = getattr(self, "rounds", None)
        values |= {} if rounds is None else {"rounds": len(rounds) if isinstance(rounds, Sized) else rounds}
        numbers = ", ".join(f"{name}={show(value)}" for name, value in values.items())
        return f"<{type(self).__name__}: {numbers}; to_json() has all>"

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` is the inverse."""
        return plain(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read a plan that came from the server.

        Raises
        ------
        ValueError
            A field is missing, unknown, or not of the type and range that the class declares: the sender is at fault.
        """
        return decode(cls, values, "plan")

    def values(self) -> dict[str, Any]:
        """Return the fields by name, unchanged."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def compare(self, expected: Mapping[str, Any]) -> None:
        """Compare fields with their expected values.

        Raises
        ------
        ValueError
            Names the first field that differs: the server is at fault.
        """
        for name, value in expected.items():
            got = getattr(self, name)
            if got != value:
                raise ValueError(f"the plan has {name} = {show(got)}, expected {value!r}")


class _Rounds(Protocol):
    """What a plan of rounds states."""

    @property
    def rounds(self) -> Sized:
        """One entry for each round."""

    @property
    def ring_bits(self) -> int:
        """The width of a ring element."""

    def elements(self, t: int) -> int:
        """Return the ring elements of a message in round t."""

    def releases(self, t: int) -> tuple[Release, ...]:
        """Return what round t releases."""

    def all_releases(self) -> tuple[Release, ...]:
        """Return the releases of all rounds."""


class RoundsPlan(PlainPlan):
    """A plan of rounds, of which a subclass states the numbers and the releases of each."""

    __slots__ = ()

    def ring_of(self: _Rounds, t: int) -> int:
        """Return the width in bits of a ring element of round t."""
        return self.ring_bits

    def rounds_ahead(self: _Rounds, t: int) -> range:
        """Return the rounds from t on whose noise and masks are prepared ahead: bounded in memory."""
        together = accumulate(self.elements(later) for later in range(t, len(self.rounds)))
        fitting = sum(elements <= _READY_ELEMENTS for elements in together)
        return range(t, min(len(self.rounds), t + max(1, fitting)))

    def all_releases(self: _Rounds) -> tuple[Release, ...]:
        """Return the releases of all rounds in order.

        Raises
        ------
        ConfigError
            With threshold masks: a part of a client's noise is too small for the proof (`Parts`).
        """
        releases = tuple(release for t in range(len(self.rounds)) for release in self.releases(t))
        numbers: Numbers | None = getattr(self, "numbers", None)
        shared = [release.noise_scale for release in releases if release.mechanism == GAUSSIAN_SHARES]
        if numbers is not None and shared:
            Parts(numbers, Fraction(min(shared)) ** 2)
        return releases

    @property
    def noise_price(self: _Rounds) -> float:
        """All noise over what a server would add alone for the same epsilon; 1 without shares."""
        return max(map(noise_price, self.all_releases()), default=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """Public terms that all parties state before a run and that its plan repeats.

    Attributes
    ----------
    clients : int
        Number of clients.
    k : int
        Number of clusters, or the largest number if the run chooses it.
    n_total : int
        Public upper bound N on the number of all records.
    seed : int
        Seed of the public randomness.
    """

    protocol: str
    clients: int
    k: int
    n_total: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsTerms(RunTerms):
    """Public terms of a run of noisy masked sums.

    Attributes
    ----------
    min_clients : int
        How many a round needs.
    masking : {'common', 'pairwise', 'threshold'}
    known_shares : int
        Without common masks, t: number of clients whose noise an observer may know, including its own.
    colluding : int
        With threshold masks, c: number of clients that may collude with a lying server.
    """

    min_clients: int
    epsilon: float
    ring_bits: int
    masking: str
    known_shares: int
    colluding: int = 0

    @property
    def in_shares(self) -> bool:
        """Whether the clients add the noise, in shares."""
        return self.masking != "common"

    @property
    def numbers(self) -> Numbers | None:
        """With threshold masks: how many clients open a round, may be lost, and may collude."""
        if self.masking != "threshold":
            return None
        return _settled(self.clients, self.colluding, self.known_shares, self.min_clients)

    def noisy_sum(self, t: int, *, mechanism: str, bits: int, **more: Any) -> Release:
        """Return the release of a noisy sum on the grid of 2^-bits in round t, with `more` fields.

        The clients see it, and with pairwise masks the server does too; noise in shares is that of all clients but t.
        """
        shares = {"clients": self.clients, "known": self.known_shares} if self.in_shares else {}
        return _noisy_sum(mechanism, bits, self.masking, round=t, **shares, **more)

    def check_masking(self, *, noisy: bool = True) -> None:
        """Check how vectors are masked, and of how many clients an observer may know the noise.

        Raises
        ------
        ConfigError
            There is no such masking, or these masks cannot do what is asked.
        """
        if self.masking != "threshold" and self.colluding:
            raise ConfigError("--colluding is for threshold masks: add --masking threshold, or leave it out")
        if self.masking == "common":
            if self.known_shares != 1:
                raise ConfigError("--known-shares is for noise in shares: add --masking threshold, or leave it out")
            return
        if self.masking not in ("pairwise", "threshold"):
            raise ConfigError(f"--masking: expected 'common', 'pairwise' or 'threshold', got {self.masking!r}")
        if self.clients < 2:
            problem = f"--masking {self.masking}: expected at least 2 clients, got 1"
            raise ProcessesError(problem, 3, more=" or more, or use common")
        if self.masking == "pairwise" and self.min_clients < self.clients:
            raise ConfigError(
                f"--min-clients {self.min_clients} does not go with --masking pairwise: its masks cancel only in the "
                f"sum of all {self.clients} clients; leave --min-clients out (a run that lost a client ends, and goes "
                "on with --state-dir and --resume), or use --masking threshold"
            )
        # Refuses numbers that do not fit each other.
        _ = self.numbers
        if noisy:
            _ = self.all_noise

    @property
    def share(self) -> Fraction:
        """The part of the planned variance in one client's share of the noise: 1 / (m - t)."""
        return Fraction(1, self.clients - self.known_shares)

    @property
    def all_noise(self) -> float:
        """Standard deviation of all noise over that of the noise that counts: sqrt(m / (m - t)) with shares, else 1."""
        return spread(self.clients, self.known_shares) if self.in_shares else 1.0

    def noise_with(self, included: int, silent: int = 0) -> float:
        """Return `all_noise` of a round in which some clients were lost.

        Parameters
        ----------
        included : int
            u, the clients in the sum.
        silent : int
            Those of them that left more of their noise in it than was needed.
        """
        if self.numbers is None or not self.in_shares:
            return self.all_noise
        return _noise_with(self.numbers, included, silent)

    @property
    def most_noise(self) -> float:
        """The same for the most noise that a sum ever has: with threshold masks before any part is taken off."""
        if self.masking != "threshold" or not self.in_shares:
            return self.all_noise
        return math.sqrt(self.clients / (self.min_clients - self.known_shares))


@lru_cache(maxsize=1024, typed=True)
def _noisy_sum(mechanism: str, bits: int, masking: str, **more: Any) -> Release:
    """Return what `SumsTerms.noisy_sum` does: each party asks for the same ones several times."""
    fields: dict[str, Any] = {
        "mechanism": mechanism,
        "norm": NORM_OF.get(mechanism, "l2"),
        "unit": f"grid of 2^-{bits}",
        "seen_by": "server and clients" if masking == "pairwise" else "clients",
    }
    return Release(**{**fields, **more})


@lru_cache(maxsize=64)
def _settled(clients: int, lying: int, known: int, threshold: int) -> Numbers:
    """Return the numbers of a run, which are asked for in each round."""
    return Numbers.settle(clients, lying=lying, known=known, threshold=threshold)


@lru_cache(maxsize=1024)
def _noise_with(numbers: Numbers, included: int, silent: int) -> float:
    """Return what `SumsTerms.noise_with` does: the same in nearly all rounds."""
    return math.sqrt(Parts(numbers, Fraction(1), laplace=True).total(included, silent))


def same_named(kind: type[PlainPlan], *sources: object, but: tuple[str, ...] = _AUTOMATIC) -> dict[str, Any]:
    """Return the fields that a plan copies: each for which a source has an attribute of the same name.

    Parameters
    ----------
    kind : type
        Class of the plan.
    sources : object
        Public parameters, settings.
    but : tuple of str
        Fields to leave out, such as those that the public parameters leave to a formula.
    """
    names = {field.name for field in fields(kind)} - set(but)
    return {name: getattr(source, name) for source in sources for name in names if hasattr(source, name)}


def check_delta(delta: float, allowed: float) -> None:
    """Refuse a planned delta above the allowed one, and none where one is allowed.

    Raises
    ------
    ValueError
        The server is at fault.
    """
    if not (0.0 < delta <= allowed * (1 + ACCOUNTING_SLACK) or delta == allowed == 0.0):
        raise ValueError(f"the plan has delta {delta:g}, expected at most {allowed:g}")


def check_epsilon(
    planned: Callable[[], Sequence[Release]], delta: float, *, most: float, private: bool = True
) -> float:
    """Return the epsilon of planned releases; refuse one above `most` if the plan is private.

    Parameters
    ----------
    planned : callable
        Returns the releases; an error of it, such as noise of an impossible scale, is the plan's fault.
    delta, most : float
    private : bool

    Raises
    ------
    ValueError
        The server is at fault.
    """
    try:
        epsilon = spent(planned(), delta)
    except (ConfigError, RangeError) as error:
        raise ValueError(f"the plan's releases are impossible: {error}") from error
    if private and not epsilon <= most * (1 + ACCOUNTING_SLACK):
        raise ValueError(f"the plan spends epsilon {epsilon:.6g}, expected at most {most:g}")
    return epsilon
