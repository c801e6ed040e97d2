"""What all plans share: they travel as plain values, follow from public numbers and spend at most epsilon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass, fields
from itertools import accumulate
from typing import Any, Protocol, Self

from fastlloyd.errors import ConfigError, RangeError
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.release import Release
from fastlloyd.privacy.shares import noise_price, spread
from fastlloyd.wire.decode import decode

ACCOUNTING_SLACK = 1e-9
"""Relative difference of a recomputed epsilon that two versions of the accounting library may have."""
_AUTOMATIC = ("delta", "rounds")
# Ring elements that a party prepares for later rounds (8 MiB at most).
_READY_ELEMENTS = 1 << 20


@dataclass(frozen=True, slots=True)
class PlainPlan:
    """A plan that the server sends as a JSON object of its fields."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` is the inverse."""
        return asdict(self)

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
                raise ValueError(f"the plan has {name} = {got!r}, expected {value!r}")


class _Rounds(Protocol):
    """What a plan of rounds states."""

    @property
    def rounds(self) -> Sized:
        """One entry for each round."""

    def elements(self, t: int) -> int:
        """Return the ring elements of a message in round t."""

    def releases(self, t: int) -> tuple[Release, ...]:
        """Return what round t releases."""

    def all_releases(self) -> tuple[Release, ...]:
        """Return the releases of all rounds."""


class RoundsPlan(PlainPlan):
    """A plan of rounds, of which a subclass states the numbers and the releases of each."""

    __slots__ = ()

    def rounds_ahead(self: _Rounds, t: int) -> range:
        """Return the rounds from t on whose noise and masks are prepared ahead: bounded in memory."""
        together = accumulate(self.elements(later) for later in range(t, len(self.rounds)))
        fitting = sum(elements <= _READY_ELEMENTS for elements in together)
        return range(t, min(len(self.rounds), t + max(1, fitting)))

    def all_releases(self: _Rounds) -> tuple[Release, ...]:
        """Return the releases of all rounds in order."""
        return tuple(release for t in range(len(self.rounds)) for release in self.releases(t))

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
    masking : {'common', 'pairwise'}
    known_shares : int
        With pairwise masking, t: number of clients whose shares of noise an observer may know, including its own.
    """

    min_clients: int
    epsilon: float
    ring_bits: int
    masking: str
    known_shares: int

    @property
    def in_shares(self) -> bool:
        """Whether the clients add the noise, in shares."""
        return self.masking == "pairwise"

    @property
    def all_noise(self) -> float:
        """Standard deviation of all noise over that of the noise that counts: sqrt(m / (m - t)) with shares, else 1."""
        return spread(self.clients, self.known_shares) if self.in_shares else 1.0


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
