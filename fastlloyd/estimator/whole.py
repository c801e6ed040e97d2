"""A fit takes effect as a whole or not at all, and what is private of it is in no display.

Source: docs/estimator.md, "What a fit leaves".
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

Model = TypeVar("Model")

_OF_A_FIT = ("_labels", "_n_features_out")


@dataclass(frozen=True, slots=True)
class Private:
    """A value computed from records without noise: its owner reads it, and no display shows it, nor its size."""

    value: Any = field(repr=False)


@contextmanager
def whole(model: Model) -> Iterator[Model]:
    """Yield an unfitted copy to be fitted; the model becomes that copy in one step if nothing was raised.

    An interrupt comes before this step or after it, so the model is as it was, or fitted. Parameters that
    another thread has set meanwhile stay.
    """
    fresh = copy.copy(model)
    fresh.__dict__ = _unfitted(model)
    before = dict(vars(fresh))
    yield fresh
    fitted = {name: value for name, value in vars(fresh).items() if name not in before or before[name] is not value}
    model.__dict__ = {**_unfitted(model), **fitted}


def _unfitted(model: object) -> dict[str, Any]:
    """Return everything of a model but what a fit has left."""
    return {name: value for name, value in vars(model).items() if not name.endswith("_") and name not in _OF_A_FIT}
