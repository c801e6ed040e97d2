"""Carries out what a party asks of its machine: ledger, state, transcript, clock.

Releases are written to the ledger at once, and a thread waits for the disk while the party goes on; no message leaves
before they are on it (`settle`).

Source: docs/protocol.md, "Resume"; docs/privacy.md, "The ledger".
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from fastlloyd.errors import InternalError
from fastlloyd.net.meter import Count
from fastlloyd.party.effects import (
    Afford,
    Attest,
    Effect,
    Elect,
    Expect,
    Heard,
    Identify,
    Keep,
    Load,
    Publish,
    Recall,
    Record,
    Save,
)
from fastlloyd.party.transcript import Transcript
from fastlloyd.privacy.release import Release
from fastlloyd.report.announcer import Announcer
from fastlloyd.report.view import View
from fastlloyd.run.budget_terms import cost_words
from fastlloyd.run.checks import build_numbers
from fastlloyd.run.outcome import Cost
from fastlloyd.run.session import Session
from fastlloyd.run.state import StateDir
from fastlloyd.wire.header import SERVER, SETUP_ROUND, PartyId

# How long a wait for the disk goes on if a signal has swallowed its end.
_LOST_RING_S = 0.05


class Host:
    """One party's machine.

    Parameters
    ----------
    session : Session
    state : StateDir, optional
        None where there is no state directory.
    afford : callable, optional
        Gets the planned releases before the budget in `state` is looked at, and the delta of a budget that is set with
        this run; raises what refuses the run.
    publish : callable, optional
        Gets (event, values) with the seconds since the last event.
    elect : callable, optional
        Gets the candidates for writing the shared files.
    view : View, optional
        Shows the lifetime budget and what this run leaves of it.
    tell : callable, optional
        Gets a sentence for this party's own people: what a new run adds to what was spent before.
    """

    def __init__(
        self,
        session: Session,
        *,
        state: StateDir | None = None,
        afford: Callable[[tuple[Release, ...], float], None] | None = None,
        publish: Callable[[str, dict[str, Any]], None] | None = None,
        elect: Callable[[tuple[PartyId, ...]], None] | None = None,
        view: View | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._ledger = session.ledger
        self._run = session.run_id.hex()
        self._resumed = session.resumed
        self._config = session.config
        self._state = state
        self._other_budget = afford
        self._publish = publish
        self._elect = elect
        self._view = view
        self._tell = tell
        self._data_digest = ""
        self._expected: dict[tuple[str, int, str], tuple[Release, Release]] = {}
        self.transcript = Transcript(session.digest)
        self._disk = _Disk(self._ledger.settle)
        self._last_event = time.perf_counter()

    def perform(self, effect: Effect) -> Any:
        """Carry out one effect and give the answer.

        Raises
        ------
        ConfigError, BudgetError
            Ledger or state cannot be written, or the budget would be exceeded.
        InternalError
            It is no effect of this kind.
        """
        if isinstance(effect, Record):
            return self._record(effect.releases)
        if isinstance(effect, Attest):
            return self.transcript.add(effect.speaker, effect.message, effect.round)
        if isinstance(effect, Save):
            self.settle()  # a resumed run sends what is saved: it must be in the ledger by then
            return None if self._state is None else self._state.save(effect.name, effect.content)
        if isinstance(effect, Publish):
            now = time.perf_counter()
            values = dict(effect.values, seconds=now - self._last_event)
            self._last_event = now
            return None if self._publish is None else self._publish(effect.event, values)
        if isinstance(effect, Identify):
            self._data_digest = effect.data_digest
            return None
        if isinstance(effect, Expect):
            self._expected = {release.key: (release, self._entry(release)) for release in effect.releases}
            return self._ledger.prepare(entry for _, entry in self._expected.values())
        if isinstance(effect, Afford):
            return self._afford(effect.releases, effect.delta)
        if isinstance(effect, Keep):
            if self._state is not None and not self._resumed and not self._state.keeps_own:
                build = build_numbers(self._config.protocol)
                self._state.start({"run_id": self._run, **build, **effect.values})
            return None
        if isinstance(effect, Recall):
            return self._state.rounds(effect.kind) if self._state is not None and self._resumed else {}
        if isinstance(effect, Load):
            return self._state.load(effect.name) if self._state is not None and self._resumed else None
        if isinstance(effect, Heard):
            return self.transcript
        if isinstance(effect, Elect):
            return None if self._elect is None else self._elect(effect.candidates)
        raise InternalError(f"a party yielded {type(effect).__name__}, which is no effect")

    def settle(self) -> None:
        """Wait until all that was recorded is on the disk."""
        self._disk.wait()
        if not self._ledger.settled:  # a signal came before the thread was asked
            self._ledger.settle()

    def close(self) -> None:
        """Wait for the disk, and end the thread that does."""
        self._disk.close()

    def _record(self, releases: tuple[Release, ...]) -> None:
        """Add run and data to the releases and write them down; `settle` waits for the disk."""
        self.settle()
        entries = []
        for release in releases:
            planned, entry = self._expected.pop(release.key, (None, None))
            entries.append(entry if entry is not None and planned == release else self._entry(release))
        self._ledger.begin(entries)
        if not self._ledger.settled:
            self._disk.start()

    def _entry(self, release: Release) -> Release:
        """Return a release as one of this run, of this party's data."""
        return dataclasses.replace(release, run=self._run, data=self._data_digest)

    def _afford(self, planned: tuple[Release, ...], delta: float) -> None:
        """Stop before a run that would exceed the lifetime budget."""
        if self._other_budget is not None:
            self._other_budget(planned, delta)
        if self._state is None:
            return
        limit = self._state.terms.limit(self._config.budget, delta, stated=self._config.budget_delta)
        if limit is not None:
            recorded = {(release.round, release.name) for release in self._ledger.releases if release.run == self._run}
            left = [release for release in planned if (release.round, release.name) not in recorded]
            self._ledger.check_budget(left, limit.delta, limit.epsilon)
            self._state.terms.keep_limit(limit)
            if self._view is not None:
                after = self._ledger.cost(planned, limit.delta)[1]
                self._view.budget, self._view.budget_left = limit.epsilon, limit.epsilon - after
        runs = {release.run for release in self._ledger.releases}
        if self._tell is not None and runs and not self._resumed:
            delta, budget = (delta, None) if limit is None else (limit.delta, limit.epsilon)
            before, after = self._ledger.cost(planned, delta)
            self._tell(cost_words(before, after, delta, runs=len(runs), budget=budget))


class CostKeeper:
    """Notes what set-up and rounds cost; whoever speaks tells people."""

    def __init__(self, session: Session, announcer: Announcer) -> None:
        self._session = session
        self._meter = session.meter
        self._announcer = announcer
        self._peers = tuple(party for party in (SERVER, *session.everybody) if party != session.me)
        self._since = 0.0
        self._message = 0

    def publish(self, event: str, values: dict[str, Any]) -> None:
        """Take in one event with the seconds since the last one; a round is reported with all its payload bytes."""
        if event == "setup":
            self._since = 0.0
            self._announcer.patience.end()
            self._session.end_setup()
            sent, received = self._meter.of_rounds(self._peers, [SETUP_ROUND])
            self._show(event, {"seconds": self._session.setup_seconds}, sent, received)
            return
        if event == "progress":
            self._since += values["seconds"]
            self._show(event, values, Count(), Count())
            return
        values = {"clients": len(self._peers), **values, "seconds": values["seconds"] + self._since}
        self._since = 0.0
        sent, received = self._meter.of_rounds(self._peers, self._messages(values["round"]))
        earlier = self._session.resumed and not sent.messages + received.messages
        self._session.round_costs.append(
            Cost() if earlier else Cost(values["seconds"], sent.link_bytes, received.link_bytes)
        )
        values["bytes"] = sent.payload_bytes + received.payload_bytes
        self._show(event, values, sent, received)

    def _messages(self, round_: int) -> range:
        """Return the numbers of a round's messages: its own, or all since the last where it takes several."""
        first = self._message
        while self._message <= round_ or any((peer, self._message) in self._meter.sent for peer in self._peers):
            self._message += 1
        return range(first, self._message)

    def _show(self, event: str, values: dict[str, Any], sent: Count, received: Count) -> None:
        """Let people see an event; whoever looks from outside sees the bytes on this party's links, too."""
        traffic = {"sent_bytes": sent.link_bytes, "received_bytes": received.link_bytes}
        self._announcer.view.take(event, {**values, **traffic})
        if self._announcer.speaks:
            self._announcer.event(event, **values)


class _Disk:
    """Waits for the disk in a separate thread, which begins with the first `start` and ends with `close`.

    A signal can raise in the waiting thread anywhere, even after it was woken. So finished work is counted, the lock
    only wakes, and a wait can be repeated.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._orders: SimpleQueue[bool] = SimpleQueue()
        # Released after each work. A queue of Python 3.11 may wait for ever once its timeout is over.
        self._rings = threading.Lock()
        self._rings.acquire()
        self._thread: threading.Thread | None = None
        self._ordered = 0
        self._done = 0
        self._error: BaseException | None = None

    def start(self) -> None:
        """Let the thread do its work once; `wait` before the next time."""
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name="ledger", daemon=True)
            thread.start()
            self._thread = thread
        self._orders.put(True)
        self._ordered += 1

    def wait(self) -> None:
        """Wait until the work is done, and raise what it raised."""
        while self._done < self._ordered:
            self._rings.acquire(timeout=_LOST_RING_S)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def close(self) -> None:
        """Wait and end the thread."""
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._orders.put(False)
                self._thread.join()
                self._thread = None

    def _serve(self) -> None:
        while self._orders.get():
            try:
                self._work()
            except BaseException as caught:
                self._error = caught
            self._done += 1
            if self._rings.locked():  # else one rings already
                self._rings.release()
