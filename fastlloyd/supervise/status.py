"""What the service of a site says: news to people, the state of each offer in a file, and metrics.

Source: docs/sites.md, "A permanent service at a site".
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime

from fastlloyd.errors import printable
from fastlloyd.supervise.offers import SiteSettings
from fastlloyd.supervise.runs import UnwritableError, keep, unwritable
from fastlloyd.watch.metrics import MODE, render_site
from fastlloyd.wire.header import PartyId
from fastlloyd.wire.regular import replace_file

MOST_SAID = 2000
BEAT_S = 30.0
"""How often the service says that it is alive, at least."""
_STORED_EVERY_S = 1.0
_STATUS = "status.json"

WAITS_FOR_CONSENT, WAITS_FOR_HOUR, WAITS_FOR_SERVER = "waits for consent", "waits for the hour", "waits for the server"
WAITS_FOR_DISK = "waits for the disk"
DECLINED, OFFERED_AGAIN = "declined", "offered again"
RUNNING, DONE, FAILED, REFUSED = "running", "done", "failed", "refused"
STATUS_VERSION = 1
_STATES = (
    *(WAITS_FOR_CONSENT, WAITS_FOR_HOUR, WAITS_FOR_SERVER, WAITS_FOR_DISK, DECLINED, OFFERED_AGAIN),
    *(RUNNING, DONE, FAILED, REFUSED),
)


class SiteStatus:
    """The states of a service's offers, as in `status.json`.

    Parameters
    ----------
    settings : SiteSettings
    me : PartyId
    say : callable
        Receives each line for people.

    Attributes
    ----------
    code : int or None
        Of the run that ended last.
    """

    def __init__(self, settings: SiteSettings, me: PartyId, say: Callable[[str], None]) -> None:
        self.code: int | None = None
        self._settings = settings
        self._me = me
        self._say = say
        self._states: dict[str, tuple[str, str]] = {}
        self._troubles = {"": "", _STATUS: ""}
        self._looked_at = ""
        self._stored_at: float | None = None
        self._ended: float | None = None

    @property
    def troubles(self) -> Iterable[str]:
        """What keeps the service from its work, or from writing its status, now."""
        return filter(None, self._troubles.values())

    def look(self) -> None:
        """Note that the service looks at its offers now."""
        self._looked_at = now_text()

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the states of all other offers."""
        self._states = {name: state for name, state in self._states.items() if name in names}

    def note(self, name: str, state: str, more: str) -> None:
        """Store the state of an offer; report news."""
        now = (state, printable(more)[:MOST_SAID])
        if self._states.get(name) == now:
            return
        self._states[name] = now
        self._say(f"{name}: {state}" + (f": {now[1]}" if more else ""))
        # The first look stores nothing before it knows all offers, unless it begins a run.
        late = self._stored_at is not None and time.monotonic() - self._stored_at > _STORED_EVERY_S
        if state == RUNNING or late:
            self.store()

    def beat(self) -> None:
        """Store, every while, that the service is alive."""
        if self._stored_at is None or time.monotonic() - self._stored_at >= BEAT_S:
            self.store()

    def store(self) -> None:
        """Store the states of all offers; of very many news not after each."""
        self._stored_at = time.monotonic()
        offers = {key: {"state": kind, "more": text} for key, (kind, text) in sorted(self._states.items())}
        content = {"status": STATUS_VERSION, "at": now_text(), "looked_at": self._looked_at, "offers": offers}
        try:
            keep(self._settings.folder / _STATUS, content)
            self._measure()
            self.report(_STATUS, "")
        except UnwritableError as error:
            self.report(_STATUS, str(error))

    def end(self) -> None:
        """Note that a service that looks once has ended: its silence from now on is meant."""
        self._ended = time.time()
        self.store()

    def report(self, what: str, trouble: str) -> None:
        """Report news of what keeps the service from its work, or from writing its status; empty: nothing does."""
        if trouble and trouble != self._troubles[what]:
            self._say(printable(trouble))
        self._troubles[what] = trouble

    def _measure(self) -> None:
        """Write the metrics of the service.

        Raises
        ------
        UnwritableError
            They cannot be written.
        """
        path = self._settings.metrics
        if path is None:
            return
        counts = Counter(state for state, _ in self._states.values())
        looked = datetime.fromisoformat(self._looked_at).timestamp()
        offers = {state: counts[state] for state in _STATES}
        text = render_site(
            path.stem,
            str(self._me),
            alive=time.time(),
            looked=looked,
            offers=offers,
            code=self.code,
            ended=self._ended,
        )
        try:
            replace_file(path, [text.encode()], mode=MODE)
        except OSError as error:
            raise unwritable(path, error) from error


def now_text() -> str:
    """Return the time of now, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
