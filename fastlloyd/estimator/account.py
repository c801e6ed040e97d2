"""What a fit costs: all that it plans to release is in its owner's ledger before anything is made.

One process holds all parties, so nothing is released before `fit` gives it away; what the parties wrote down
themselves is compared with the plan before that.

Source: docs/estimator.md, "Fits add up".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fastlloyd.errors import InternalError
from fastlloyd.estimator.parameter import ParameterError, StoredParameters
from fastlloyd.privacy.accountant import change_epsilon, spent
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.privacy.release import ADD_REMOVE, ADD_REMOVE_USER, ZERO_OUT_RECORD, Release
from fastlloyd.run.budget_terms import STATE_VERSION, Limit, read_limit, write_limit
from fastlloyd.run.session import Session


class Spending:
    """The account of one fit.

    Parameters
    ----------
    model : FastLloyd
    earlier : sequence of Release
        Of this object's earlier fits; they count where there is no ledger file.
    limit : Limit, optional
        Under which this object was fitted before; it counts where there is no ledger file.

    Attributes
    ----------
    ledger : Ledger
        Holds this fit, once a party has asked.
    releases : tuple of Release
        Of this fit.
    plan : object
        The protocol's.
    limit : Limit or None
        The budget, epsilon and delta, of all fits that count together.
    """

    def __init__(self, model: StoredParameters, earlier: Sequence[Release], limit: Limit | None = None) -> None:
        self._model = model
        self._earlier = earlier
        self.limit = limit
        self.releases: tuple[Release, ...] = ()
        self.ledger = Ledger()
        self.plan: Any = None

    def afford(self, session: Session, planned: tuple[Release, ...], delta: float) -> None:
        """Check the budget and write down all that is planned; the other parties plan the same.

        A budget without a delta holds at that of the first fit under it, `delta`, which stays with the ledger.

        In a ledger file it stands even if the run fails halfway: then too much is counted, never too little. Without a
        file it counts once the fit is given away.

        Raises
        ------
        BudgetError
            It would be exceeded; nothing was written down.
        """
        run = session.facts.run_id.hex()
        releases = tuple(
            dataclasses.replace(release, run=run, neighbours=self._neighbours(release)) for release in planned
        )
        if self.releases:
            if releases != self.releases:
                raise InternalError("the parties of a fit have planned different releases")
            return
        self.plan = session.plan
        path = self._model.ledger
        with Ledger(None if path is None else Path(path)) as ledger:
            if path is None:
                ledger.record(self._earlier)
            self.limit = self._settle_limit(delta)
            if self.limit is not None:
                ledger.check_budget(releases, self.limit.delta, self.limit.epsilon)
                if path is not None:
                    write_limit(_limit_path(path), self.limit)
            ledger.record(releases)
        self.ledger, self.releases = ledger, releases

    def check(self, ledgers: Iterable[Ledger]) -> None:
        """Check that the parties released nothing but what stands in the ledger; before anything is given away.

        Raises
        ------
        InternalError
            A party did not ask beforehand, or released something else.
        """
        planned = {_essence(release) for release in self.releases}
        if not planned or any(_essence(release) not in planned for ledger in ledgers for release in ledger.releases):
            raise InternalError("a party of this fit has released what was not planned")

    @property
    def delta(self) -> float:
        """The plan's delta; 0 where the plan has none."""
        return float(getattr(self.plan, "delta", 0.0))

    @property
    def neighbours(self) -> str:
        """What the fit protects."""
        return self.releases[0].neighbours

    @property
    def epsilon(self) -> float:
        """What the fit spends at `delta`; infinite without noise."""
        return spent(self.releases, self.delta)

    @property
    def epsilon_for_a_change(self) -> float:
        """What the fit spends at `delta` for a change of one record's values, at most."""
        return change_epsilon(self.releases, self.delta)

    @property
    def epsilon_in_all(self) -> float:
        """What everything in the ledger spends, for `neighbours` and at the delta of the budget, or else at `delta`."""
        return self.ledger.epsilon(self.delta if self.limit is None else self.limit.delta, self.neighbours)

    def _settle_limit(self, delta: float) -> Limit | None:
        """Return the budget as one pair: its delta is that of the first fit under it, whatever later fits have.

        Raises
        ------
        ParameterError
            The ledger file holds another budget.
        """
        path, budget = self._model.ledger, self._model.budget
        if budget is None:
            return None
        kept = self.limit if path is None else read_limit(_limit_path(path))
        pair = budget if isinstance(budget, tuple) else (budget, delta if kept is None else kept.delta)
        limit = Limit(STATE_VERSION, float(pair[0]), float(pair[1]))
        if path is not None and kept not in (None, limit):
            raise ParameterError(
                f"budget: expected the one that {_limit_path(path)} holds, {kept.epsilon:g} at delta {kept.delta:g}, "
                f"got {limit.epsilon:g} at delta {limit.delta:g}; give that one, or remove the file to set another"
            )
        return limit

    def _neighbours(self, release: Release) -> str:
        """Say what a release protects: without a stated N, less than it was planned for."""
        if self._model.n_total is None and release.neighbours == ADD_REMOVE_USER:
            raise ParameterError(
                "n_total: expected a public upper bound on the records, got None: whole users are to be protected, and "
                "without one of them there would be fewer records, and another noise"
            )
        counted = self._model.n_total is None and release.neighbours == ADD_REMOVE
        return ZERO_OUT_RECORD if counted else release.neighbours


def _limit_path(ledger: str | Path) -> Path:
    """Name the file beside a ledger that holds its budget."""
    return Path(f"{ledger}.budget")


def _essence(release: Release) -> Release:
    """Leave out of a release what differs between the parties that write it down, and its neighbours."""
    return dataclasses.replace(release, data="", seen_by="", neighbours="")
