"""What all plans share: they travel as plain values, follow from public numbers and spend at most epsilon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from fastlloyd.errors import ConfigError, RangeError
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.release import Release
from fastlloyd.wire.decode import decode

ACCOUNTING_SLACK = 1e-9
"""Relative difference of a recomputed epsilon that two versions of the accounting library may have."""
_AUTOMATIC = ("delta", "rounds")


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
