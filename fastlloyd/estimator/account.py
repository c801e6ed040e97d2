"""The cost of a fit: all planned releases are in the owner's ledger before they are made.

One process holds all parties, so nothing is released before `fit` returns; before that, the parties' own records are
compared with the plan.

Source: docs/estimator.md, "Fits add up".
"""

from __future__ import annotations

import dataclasses
import math
import os
import threading
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Self
from weakref import WeakValueDictionary

from fastlloyd.errors import InternalError
from fastlloyd.estimator.parameter import plain_value
from fastlloyd.estimator.words import ParameterError
from fastlloyd.privacy.accountant import change_epsilon, spent
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.privacy.release import ADD_REMOVE, ADD_REMOVE_USER, ZERO_OUT_RECORD, Release
from fastlloyd.run.budget_terms import STATE_VERSION, Limit, read_kept, write_limit
from fastlloyd.run.session import Session
from fastlloyd.wire.decode import Within, reader, show

_PATIENCE_S = 60.0
"""How long a fit waits for the ledger file while other fits write to it, each for milliseconds."""

_ELSEWHERE = -1
_EPSILON, _DELTA = reader(Annotated[float, Within(0, 1e6)]), reader(Annotated[float, Within(0, 0.5)])


class SharedAccount:
    """What was released in one process, without a ledger file, by whatever counts together.

    In another process, after pickling or a fork, there is a copy: it continues to count, and `is_here` is false.

    Parameters
    ----------
    releases : sequence of Release, optional
        Of earlier fits.
    limit : Limit, optional
        The budget of these.
    """

    def __init__(self, releases: Sequence[Release] = (), limit: Limit | None = None) -> None:
        self.releases = tuple(releases)
        self.limit = limit
        self.lock = threading.Lock()
        self._token = os.urandom(16)
        self._process = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        _ACCOUNTS[self._token] = self
        return _find_account, (self._token, self.releases, self.limit)

    @property
    def is_here(self) -> bool:
        """Whether this is the account itself, and no copy in another process."""
        return self._process == os.getpid()

    def note(self, ledger: Ledger) -> None:
        """Count the releases of a ledger file, for a later fit without it."""
        with self.lock:
            known = {release.key: release for release in self.releases}
            known.update((release.key, release) for release in ledger.releases)
            self.releases = tuple(known.values())


_ACCOUNTS: WeakValueDictionary[bytes, SharedAccount] = WeakValueDictionary()
_OPEN: list[tuple[Budget, ...]] = []
"""The `with` blocks that are open, each after those around it, of all threads."""
_OWN: ContextVar[tuple[Budget, ...]] = ContextVar("blocks", default=())
"""The blocks that this thread has opened, and those around a task of asyncio."""


def _find_account(token: bytes, releases: Sequence[Release], limit: Limit | None) -> SharedAccount:
    """Return the account itself in its own process, elsewhere a copy."""
    account = _ACCOUNTS.get(token)
    if account is None:
        account = SharedAccount(releases, limit)
        account._token, account._process = token, _ELSEWHERE
        account = _ACCOUNTS.setdefault(token, account)
    return account


class Budget:
    """What fits may spend together: an account that models share.

    Every model with `FastLloyd(budget=this)` counts in it, and so do its copies, threads and searches. In a `with`
    block it is the budget of all fits of this process that have none; of nested blocks, of the innermost alone.

    Parameters
    ----------
    epsilon : float or None
        Limit, from 0 to 10^6; None only counts.
    delta : float, optional
        At which epsilon is read, from 0 to 0.5; by default that of the first fit, which is then kept. Without a limit
        none is kept: then `spent` is read at 0, and is infinite after Gaussian noise.
    ledger : path, optional
        File that keeps the releases, for all processes, and the limit beside it. Without, what came to another process
        by pickling or a fork refuses a limit there, since the original may spend it.

    Raises
    ------
    ParameterError
        A value is out of range.

    Notes
    -----
    Privacy: fits are composed, for neighbours that all of them protect. A fit that would exceed the limit is refused
    before anything is released. Use one budget for one data set.

    Source: docs/estimator.md, "Fits add up".

    Examples
    --------
    >>> with Budget(2.0, 1e-6) as budget:
    ...     budget.remaining()
    2.0
    """

    def __init__(
        self,
        epsilon: float | None,
        delta: float | None = None,
        *,
        ledger: str | Path | None = None,
        _account: SharedAccount | None = None,
    ) -> None:
        try:
            self.epsilon = None if epsilon is None else _EPSILON(plain_value(epsilon))
            self.delta = None if delta is None else _DELTA(plain_value(delta))
        except ValueError:
            given = show(epsilon if delta is None else (epsilon, delta))
            raise ParameterError(
                "budget: expected None, an epsilon from 0 to 10^6, or (epsilon, delta) with a delta from 0 to 0.5, or "
                f"a Budget of these, got {given}"
            ) from None
        if not isinstance(ledger, str | Path | None):
            raise ParameterError(f"ledger: expected None or a path, got {show(ledger)}")
        self.ledger = ledger
        self._account = SharedAccount() if _account is None else _account

    def __repr__(self) -> str:
        shown = (self.epsilon, *(() if self.delta is None else (self.delta,)))
        more = "" if self.ledger is None else f", ledger={str(self.ledger)!r}"
        return f"Budget({', '.join(map(str, shown))}{more})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __enter__(self) -> Self:
        blocks: tuple[Budget, ...] = (*_OWN.get(), self)
        _OWN.set(blocks)
        _OPEN.append(blocks)
        return self

    def __exit__(self, *_: object) -> None:
        _OWN.set(tuple(block for block in _OWN.get() if block is not self))
        _OPEN.remove(next(blocks for blocks in reversed(_OPEN) if blocks[-1] is self))

    @property
    def releases(self) -> tuple[Release, ...]:
        """What was released so far."""
        if self.ledger is None:
            return self._account.releases
        with Ledger(Path(self.ledger), patience_s=_PATIENCE_S) as ledger:
            return ledger.releases

    def spent(self) -> float:
        """Return epsilon of all releases together, at the account's delta; infinite if some have none.

        Raises
        ------
        ParameterError
            This came from another process, and there is no file.
        """
        self._refuse_elsewhere()
        limit = self.limit(self.delta or 0.0)
        ledger = Ledger()
        ledger.record(self.releases)
        return ledger.total(self.delta or 0.0 if limit is None else limit.delta)

    def remaining(self) -> float:
        """Return what is left of the limit, infinity without one; raises as `spent`.

        Releases compose to less than the sum of their epsilons, so a fit that asks for somewhat more may pass.
        """
        return math.inf if self.epsilon is None else max(0.0, self.epsilon - self.spent())

    def limit(self, delta: float) -> Limit | None:
        """Return the limit as one pair, with `delta` if no fit has settled it; None without a limit."""
        if self.epsilon is None:
            return None
        kept = self._account.limit if self.ledger is None else read_kept(Limit, self._beside)
        settled = delta if kept is None else kept.delta
        return Limit(STATE_VERSION, self.epsilon, settled if self.delta is None else self.delta)

    def charge(self, releases: Sequence[Release], delta: float) -> tuple[Ledger, Limit | None]:
        """Check the limit and count a fit, atomically; return the ledger so far, and the limit as a pair.

        Raises
        ------
        BudgetError
            It would be exceeded; nothing was counted.
        ParameterError
            The file holds another limit, or this came from another process and there is no file.
        """
        if self.ledger is not None:
            return self._charge_file(Path(self.ledger), releases, delta)
        if self.epsilon is not None:
            self._refuse_elsewhere()
        account = self._account
        with account.lock:
            ledger = Ledger()
            ledger.record(account.releases)
            limit = self.limit(delta)
            if limit is not None:
                ledger.check_budget(releases, limit.delta, limit.epsilon)
            ledger.record(releases)
            account.releases, account.limit = ledger.releases, limit or account.limit
        return ledger, limit

    def _charge_file(self, path: Path, releases: Sequence[Release], delta: float) -> tuple[Ledger, Limit | None]:
        with Ledger(path, patience_s=_PATIENCE_S) as ledger:
            limit = self.limit(delta)
            if limit is not None:
                kept = read_kept(Limit, self._beside)
                if kept is not None and kept != limit:
                    raise ParameterError(
                        f"budget: expected the one that {self._beside} holds, {kept.epsilon:g} at delta {kept.delta:g}"
                        f", got {limit.epsilon:g} at delta {limit.delta:g}; give that one, or remove the file to set "
                        "another"
                    )
                ledger.check_budget(releases, limit.delta, limit.epsilon)
                write_limit(self._beside, limit)
            ledger.record(releases)
        self._account.note(ledger)
        return ledger, limit

    @property
    def _beside(self) -> Path:
        return Path(f"{self.ledger}.budget")

    def _refuse_elsewhere(self) -> None:
        if self.ledger is None and not self._account.is_here:
            raise ParameterError(
                "budget: expected a ledger file, got ledger=None: this model came here from another process, where "
                "other fits count against the same budget, unseen from here; give ledger=PATH, a file for all of them"
            )


def block_of(model: Any) -> Budget | None:
    """Return the `with` block that a fit of a model counts in; also in a process that the model was sent to from it.

    Raises
    ------
    ParameterError
        This thread has opened none, and several others have: any of them may have started it.
    """
    if own := _OWN.get():
        return own[-1]
    blocks = list(_OPEN)
    if not blocks:
        block: Budget | None = model._block
        return block
    if any(blocks[-1][: len(around)] != around for around in blocks):
        raise ParameterError(
            "budget: expected one open `with` block, got blocks of several threads, and this thread has opened none; "
            "open the block in the thread that fits"
        )
    return blocks[-1][-1]


def budget_of(model: Any) -> Budget:
    """Return what the fits of a model count in: a `Budget`, or its parameters `budget` and `ledger` as one.

    Raises
    ------
    ParameterError
        A parameter is of another type or out of range, or two budgets are given.
    """
    given, block = model.budget, block_of(model)
    if block is not None:
        if given is not None and not (isinstance(given, Budget) and given._account is block._account):
            raise ParameterError(
                f"budget: expected None in a `with` block of {block!r}, in which this fit counts, got {show(given)}; "
                "leave it out, or fit after the block"
            )
        given = block
    if isinstance(given, Budget):
        if model.ledger is not None and str(model.ledger) != str(given.ledger):
            raise ParameterError(
                f"ledger: expected None beside {given!r}, which says where its releases are kept, got "
                f"{show(str(model.ledger))}; give the Budget this ledger"
            )
        return given
    numbers = given if isinstance(given, tuple) and len(given) == 2 else (given,)
    return Budget(*numbers, ledger=model.ledger, _account=model._account)


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
        self._budget = budget_of(model)
        self.limit: Limit | None = None
        self.releases: tuple[Release, ...] = ()
        self.ledger = Ledger()
        self.plan: Any = None

    def so_far(self) -> tuple[Release, ...]:
        """Return what was released before, by everything that counts together."""
        return self._budget.releases

    def together(self, before: Sequence[Release], planned: Sequence[Release], delta: float) -> float:
        """Return what earlier and planned releases spend together, for the neighbours that the planned ones protect."""
        own = self.protecting(dataclasses.replace(release, run="00") for release in planned)
        ledger = Ledger()
        ledger.record([*before, *own])
        return ledger.epsilon(delta, own[0].neighbours)

    def delta_of_all(self, planned: float) -> float:
        """Return the delta at which everything together is stated after a release with the delta `planned`."""
        limit = self._budget.limit(planned)
        return max(float(self._model.delta_), planned) if limit is None else limit.delta

    def check_budget(self, planned: Iterable[Release], delta: float) -> None:
        """Check the budget for the releases of several runs, before the first of them.

        Raises
        ------
        BudgetError
            It would be exceeded; nothing was recorded.
        """
        limit = self._budget.limit(delta)
        if limit is not None:
            ledger = Ledger()
            ledger.record(self.so_far())
            ledger.check_budget(self.protecting(planned), limit.delta, limit.epsilon)

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
        self.ledger, self.limit = self._budget.charge(releases, delta)
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


def _essence(release: Release) -> Release:
    """Return a release without its neighbours and the fields that differ between parties."""
    return dataclasses.replace(release, data="", seen_by="", neighbours="")
