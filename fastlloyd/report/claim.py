"""What a run promises, as values and in one sentence.

Source: docs/privacy.md, "The promise"; docs/report.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastlloyd.privacy.calibration import large_delta
from fastlloyd.privacy.release import ADD_REMOVE
from fastlloyd.report.unit import format_count, format_epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The promise of a run.

    Attributes
    ----------
    epsilon, delta : float
        As asked for; epsilon is infinite if nothing is promised.
    against : str
        Against whom it protects.
    neighbours : str
        The relation, as releases name it.
    unit : str or None
        What neighbours differ in.
    conditions : sequence of str
        Further conditions.
    bounded : bool
        Whether the public N must be a true bound.
    lifetime_delta : float or None
        For reading the whole ledger; None: `delta`.
    not_private_reason : str or None
        Why nothing is promised, or towards whom only.
    """

    epsilon: float
    delta: float
    against: str
    neighbours: str = ADD_REMOVE
    unit: str | None = None
    conditions: Sequence[str] = ()
    bounded: bool = True
    lifetime_delta: float | None = None
    not_private_reason: str | None = None

    @property
    def private(self) -> bool:
        """Whether anything is promised."""
        return math.isfinite(self.epsilon)

    def values(self) -> dict[str, Any]:
        """Return its public values as plain JSON, by name; epsilon is None if nothing is promised."""
        values = asdict(self)
        del values["lifetime_delta"]
        return {**values, "epsilon": self.epsilon if self.private else None, "conditions": list(self.conditions)}

    def sentence(self, spent_epsilon: float | None, *, n_total: int | None, reason: str | None = None) -> str:
        """Return the claim as one sentence, with its conditions and its adversary.

        Parameters
        ----------
        spent_epsilon : float or None
            Of the run's releases; None if nothing is promised.
        n_total : int or None
            The public N.
        reason : str, optional
            Why there is no claim.
        """
        if reason is not None or spent_epsilon is None:
            return f"No privacy claim: {reason or self.not_private_reason}."
        # The noise comes from ChaCha20: nothing is claimed against unbounded readers.
        conditions = ["that ChaCha20 is indistinguishable from random bits", *self.conditions]
        if n_total is not None and self.bounded:
            conditions.insert(0, f"that all clients together hold at most {format_count(n_total, 'record')}")
        delta = f" and delta = {self.delta:.3g}" if self.delta > 0 else ""
        note = None if n_total is None else large_delta(self.delta, n_total)
        return (
            f"Differential privacy with epsilon = {format_epsilon(spent_epsilon)}{delta} for neighbours that differ in "
            f"{self.unit} ({self.neighbours}), against {self.against}, on condition {' and '.join(conditions)}."
            + (f" Note that {note}." if note else "")
        )


def no_claim(reason: str) -> Claim:
    """Return the claim of a run without noise, which protects no record, and why."""
    return Claim(epsilon=math.inf, delta=0.0, against="nobody", not_private_reason=reason)
