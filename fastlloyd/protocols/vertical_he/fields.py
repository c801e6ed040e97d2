"""A plan from a peer: every field present, and of the type that the plan declares."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fastlloyd.protocols.vertical_he.scales import Scales

# No number of a plan is larger; one that is would overflow later.
_MOST = 2**64


def read_fields(kind: type, values: object) -> dict[str, Any]:
    """Read a dataclass's fields from plain values.

    Parameters
    ----------
    kind : type
        A dataclass of integers, floats, strings, truth values, tuples of these, and `Scales`.
    values : object
        From a peer.

    Raises
    ------
    ValueError
        A field is missing, unknown, or of another type: the sender is at fault.
    """
    fields = {field.name: str(field.type) for field in dataclasses.fields(kind)}
    if not isinstance(values, Mapping) or set(values) != set(fields):
        raise ValueError("the plan does not have the expected fields")
    return {name: _read(name, declared, values[name]) for name, declared in fields.items()}


def _read(name: str, declared: str, value: object) -> Any:
    """Read one field by its declared type."""
    if declared == "Scales":
        return Scales(**read_fields(Scales, value))
    if declared.startswith("tuple["):
        inner = declared.removeprefix("tuple[").removesuffix(", ...]")
        if not isinstance(value, list | tuple):
            raise ValueError(f"the plan's {name} is not a list")
        return tuple(_read(name, inner, entry) for entry in value)
    # JSON writes a float that is whole as a float, but accept an integer for it.
    right = {"int": type(value) is int, "float": type(value) in (int, float), "bool": type(value) is bool}
    if not right.get(declared, declared == "str" and type(value) is str):
        raise ValueError(f"the plan's {name} is not of type {declared}")
    if isinstance(value, int | float) and not abs(value) < _MOST:
        raise ValueError(f"the plan's {name} is too large")
    return float(value) if declared == "float" and isinstance(value, int) else value
