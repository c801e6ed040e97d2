"""What the plans of several protocols have in common: they travel as plain values and are compared field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from fastlloyd.wire.decode import decode


@dataclass(frozen=True, slots=True)
class PlainPlan:
    """A plan that the server sends as a JSON object of its fields."""

    def to_json(self) -> dict[str, Any]:
        """Give plain values; `from_json` is the inverse."""
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
        """Give the fields by name, as they are."""
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
