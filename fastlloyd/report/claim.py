"""What a run promises, as values and in one sentence.

Source: docs/privacy.md, "The promise"; docs/report.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastlloyd.privacy.delta import large_delta
from fastlloyd.privacy.release import ADD_REMOVE
from fastlloyd.report.unit import format_count, format_epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a run promises.

    Attributes
    ----------
    epsilon, delta : float
        Asked for; epsilon is infinite where nothing is promised.
    against : str
        From whom it protects.
    neighbours : str
        The relation, as releases name it.
    unit : str or None
        What neighbours differ in, in words.
    conditions : sequence of str
        What else it rests on.
    bounded : bool
        Whether it rests on the public N being a true bound.
    lifetime_delta : float or None
        At which the whole ledger is read; None: `delta`.
    not_private_reason : str or None
        Why nothing is promised, or towards whom alone.
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
        """Return what people read of it as plain JSON values, by name; epsilon is None where nothing is promised."""
        values = asdict(self)
        del values["lifetime_delta"]
        return {**values, "epsilon": self.epsilon if self.private else None, "conditions": list(self.conditions)}

    def sentence(self, spent_epsilon: float | None, *, n_total: int | None, reason: str | None = None) -> str:
        """Put the claim into one sentence, with its condition and its adversary.

        Parameters
        ----------
        spent_epsilon : float or None
            Of the run's releases; None where nothing is promised.
        n_total : int or None
            The public N.
        reason : str, optional
            Why there is no claim.
        """
        if reason is not None or spent_epsilon is None:
            return f"No privacy claim: {reason or self.not_private_reason}."
        # The noise is made of ChaCha20's bits: against unbounded readers nothing is claimed.
        conditions = ["that ChaCha20 cannot be told from random bits", *self.conditions]
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
    """Say of a run without noise that it protects nobody's record, and why."""
    return Claim(epsilon=math.inf, delta=0.0, against="nobody", not_private_reason=reason)
