"""What plans have in common: they travel as plain values, follow from public numbers, spend at most epsilon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from fastlloyd.errors import ConfigError, RangeError
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.release import Release
from fastlloyd.wire.decode import decode

ACCOUNTING_SLACK = 1e-9
"""How far a recomputed epsilon may differ between two versions of the accounting library."""
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
        """Return the fields by name, as they are."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def compare(self, expected: Mapping[str, Any]) -> None:
        """Compare fields with what they must be.

        Raises
        ------
        ValueError
            Names the first that differs: the server is at fault.
        """
        for name, wanted in expected.items():
            got = getattr(self, name)
            if got != wanted:
                raise ValueError(f"the plan has {name} = {got!r}, expected {wanted!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """What all parties state before a run, and its plan repeats: the base of both, so that each name stands once.

    Attributes
    ----------
    clients : int
        How many take part.
    k : int
        Number of clusters; where it is to be chosen, the largest number.
    n_total : int
        Public upper bound N on all records together.
    seed : int
        Of the public randomness.
    """

    protocol: str
    clients: int
    k: int
    n_total: int
    seed: int


def same_named(kind: type[PlainPlan], *sources: object, but: tuple[str, ...] = _AUTOMATIC) -> dict[str, Any]:
    """Return what a plan takes over unchanged: each field for which a source has an attribute of the same name.

    Parameters
    ----------
    kind : type
        Of the plan.
    sources : object
        Public parameters, settings.
    but : tuple of str
        Fields that are settled otherwise, such as those that the public parameters leave to a formula.
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
    """Return the epsilon of planned releases; refuse one above `most` where the plan is to be private.

    Parameters
    ----------
    planned : callable
        Makes the releases; what it refuses, such as noise of an impossible scale, is the plan's fault.
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
        raise ValueError(f"the plan's releases cannot be: {error}") from error
    if private and not epsilon <= most * (1 + ACCOUNTING_SLACK):
        raise ValueError(f"the plan spends epsilon {epsilon:.6g}, expected at most {most:g}")
    return epsilon
