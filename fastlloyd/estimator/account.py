"""The cost of a fit: all planned releases are in the owner's ledger before they are made.

One process holds all parties, so nothing is released before `fit` returns; before that, the parties' own records are
compared with the plan.

Source: docs/estimator.md, "Fits add up".
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from fastlloyd.errors import InternalError
from fastlloyd.estimator.words import ParameterError
from fastlloyd.privacy.accountant import change_epsilon, spent
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.privacy.release import ADD_REMOVE, ADD_REMOVE_USER, ZERO_OUT_RECORD, Release
from fastlloyd.run.budget_terms import STATE_VERSION, Limit, read_kept, write_limit
from fastlloyd.run.session import Session

_PATIENCE_S = 60.0
"""How long a fit waits for the ledger file while other fits write to it, each for milliseconds."""

_ELSEWHERE = -1


class SharedAccount:
    """The spending of a model and of all its copies in this process, without a ledger file.

    Clones, copies and threads use one account, each fit under its lock, so together they cannot exceed a budget. In
    another process, after pickling or a fork, there is a copy: it continues to count, and refuses every budget.

    Parameters
    ----------
    releases : sequence of Release, optional
        Of earlier fits.
    limit : Limit, optional
        The budget of these.
    """

    def __init__(self, releases: Sequence[Release] = (), limit: Limit | None = None) -> None:
        self._releases = tuple(releases)
        self._limit = limit
        self._lock = threading.Lock()
        self._token = os.urandom(16)
        self._process = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        _ACCOUNTS[self._token] = self
        return _find_account, (self._token, self._releases, self._limit)

    def charge(
        self, releases: Sequence[Release], budget: float | tuple[float, float] | None, delta: float
    ) -> tuple[Ledger, Limit | None]:
        """Check a budget and count a fit, atomically; return the ledger so far, and the budget as a pair.

        Raises
        ------
        BudgetError
            The budget would be exceeded; nothing was counted.
        ParameterError
            There is a budget, and this is another process's account.
        """
        if budget is not None and self._process != os.getpid():
            raise ParameterError(
                "budget: expected a ledger file, got ledger=None: this model came here from another process, where "
                "other fits count against the same budget, unseen from here; give ledger=PATH, a file for all of them"
            )
        with self._lock:
            ledger = Ledger()
            ledger.record(self._releases)
            limit = _as_limit(budget, self._limit, delta)
            if limit is not None:
                ledger.check_budget(releases, limit.delta, limit.epsilon)
            ledger.record(releases)
            self._releases, self._limit = ledger.releases, limit or self._limit
        return ledger, limit

    @property
    def releases(self) -> tuple[Release, ...]:
        """What was counted so far."""
        return self._releases

    @property
    def limit(self) -> Limit | None:
        """The budget so far; None if there was none."""
        return self._limit

    def note(self, ledger: Ledger) -> None:
        """Count the releases of a ledger file, for a later fit without it."""
        with self._lock:
            known = {release.key: release for release in self._releases}
            known.update((release.key, release) for release in ledger.releases)
            self._releases = tuple(known.values())


_ACCOUNTS: WeakValueDictionary[bytes, SharedAccount] = WeakValueDictionary()


def _find_account(token: bytes, releases: Sequence[Release], limit: Limit | None) -> SharedAccount:
    """Return the account itself in its own process, elsewhere a copy."""
    account = _ACCOUNTS.get(token)
    if account is None:
        account = SharedAccount(releases, limit)
        account._token, account._process = token, _ELSEWHERE
        account = _ACCOUNTS.setdefault(token, account)
    return account


class Spending:
    """The spending of one fit: of one run, or of two where the bounds are found first.

    Parameters
    ----------
    model : FastLloyd

    Attributes
    ----------
    ledger : Ledger
        Holds this fit, once a party has asked.
    releases : tuple of Release
        Of this fit.
    plan : object
        The protocol's.
    limit : Limit or None
        The common budget, epsilon and delta, of all fits that count together.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.limit: Limit | None = None
        self.releases: tuple[Release, ...] = ()
        self.ledger = Ledger()
        self.plan: Any = None

    def so_far(self) -> tuple[Release, ...]:
        """Return what was released before, by everything that counts together."""
        if self._model.ledger is None:
            return self._model._account.releases  # type: ignore[no-any-return]
        with Ledger(Path(self._model.ledger), patience_s=_PATIENCE_S) as ledger:
            return ledger.releases

    def together(self, before: Sequence[Release], planned: Sequence[Release], delta: float) -> float:
        """Return what earlier and planned releases spend together, for the neighbours that the planned ones protect."""
        own = self.protecting(dataclasses.replace(release, run="00") for release in planned)
        ledger = Ledger()
        ledger.record([*before, *own])
        return ledger.epsilon(delta, own[0].neighbours)

    def delta_of_all(self, planned: float) -> float:
        """Return the delta at which everything together is stated after a release with the delta `planned`."""
        if self._model.budget is None:
            return max(float(self._model.delta_), planned)
        limit = self._limit_with(planned)
        return planned if limit is None else limit.delta

    def check_budget(self, planned: Iterable[Release], delta: float) -> None:
        """Check the budget for the releases of several runs, before the first of them.

        Raises
        ------
        BudgetError
            It would be exceeded; nothing was recorded.
        """
        limit = self._limit_with(delta)
        if limit is not None:
            ledger = Ledger()
            ledger.record(self.so_far())
            ledger.check_budget(self.protecting(planned), limit.delta, limit.epsilon)

    def _limit_with(self, delta: float) -> Limit | None:
        """Return the budget as one pair, with the delta of a first fit under it."""
        model, kept = self._model, self._model._account.limit
        if model.ledger is not None and model.budget is not None:
            kept = read_kept(Limit, Path(f"{model.ledger}.budget"))
        return _as_limit(model.budget, kept, delta)

    def protecting(self, planned: Iterable[Release]) -> tuple[Release, ...]:
        """Return planned releases with the neighbours that they protect."""
        return tuple(dataclasses.replace(release, neighbours=self._neighbours(release)) for release in planned)

    def afford(self, session: Session, planned: tuple[Release, ...], delta: float) -> None:
        """Check the budget and record all planned releases; the other parties plan the same.

        A budget without a delta uses that of its first fit, `delta`, which is stored with the ledger. A fit counts even
        if the run fails halfway: then too much is counted, never too little.

        Raises
        ------
        BudgetError
            It would be exceeded; nothing was recorded.
        ParameterError
            The ledger file holds another budget, or the budget is also used where this process cannot see it.
        """
        run = session.run_id.hex()
        releases = tuple(dataclasses.replace(release, run=run) for release in self.protecting(planned))
        if known := tuple(release for release in self.releases if release.run == run):
            if releases != known:
                raise InternalError("the parties of a fit have planned different releases")
            return
        self.plan = session.plan
        path, budget, account = self._model.ledger, self._model.budget, self._model._account
        if path is None:
            self.ledger, self.limit = account.charge(releases, budget, delta)
        else:
            with Ledger(Path(path), patience_s=_PATIENCE_S) as self.ledger:
                beside = Path(f"{path}.budget")
                kept = None if budget is None else read_kept(Limit, beside)
                self.limit = _as_limit(budget, kept, delta)
                if self.limit is not None:
                    if kept is not None and kept != self.limit:
                        raise ParameterError(
                            f"budget: expected the one that {beside} holds, {kept.epsilon:g} at delta {kept.delta:g}, "
                            f"got {self.limit.epsilon:g} at delta {self.limit.delta:g}; give that one, or remove the "
                            "file to set another"
                        )
                    self.ledger.check_budget(releases, self.limit.delta, self.limit.epsilon)
                    write_limit(beside, self.limit)
                self.ledger.record(releases)
            account.note(self.ledger)
        self.releases += releases

    def check(self, ledgers: Iterable[Ledger]) -> None:
        """Check that the parties released only what is in the ledger, before `fit` returns.

        Raises
        ------
        InternalError
            A party did not ask, or released something else.
        """
        planned = {_essence(release) for release in self.releases}
        if not planned or any(_essence(release) not in planned for ledger in ledgers for release in ledger.releases):
            raise InternalError("a party of this fit has released what was not planned")

    @property
    def delta(self) -> float:
        """The plan's delta; 0 if it has none."""
        return float(getattr(self.plan, "delta", 0.0))

    @property
    def neighbours(self) -> str:
        """The neighbours that the fit protects."""
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

    def _neighbours(self, release: Release) -> str:
        """Return the neighbours that a release protects: without a stated N, weaker ones than planned."""
        if self._model.n_total is None and release.neighbours == ADD_REMOVE_USER:
            raise ParameterError(
                "n_total: expected a public upper bound on the records, got None: whole users are to be protected, and "
                "without one of them there would be fewer records, and another noise"
            )
        counted = self._model.n_total is None and release.neighbours == ADD_REMOVE
        return ZERO_OUT_RECORD if counted else release.neighbours


def _as_limit(budget: float | tuple[float, float] | None, kept: Limit | None, delta: float) -> Limit | None:
    """Return a budget as one pair: its delta is that of the first fit under it, whatever later fits have."""
    if budget is None:
        return None
    pair = budget if isinstance(budget, tuple) else (budget, delta if kept is None else kept.delta)
    return Limit(STATE_VERSION, float(pair[0]), float(pair[1]))


def _essence(release: Release) -> Release:
    """Return a release without its neighbours and the fields that differ between parties."""
    return dataclasses.replace(release, data="", seen_by="", neighbours="")
