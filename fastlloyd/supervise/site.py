"""A permanent client: it takes run files from a folder, waits for consent, and joins one run after the other.

::

    DIR/site.toml             the server, and this site's own settings: records, key, roster, budget
    DIR/offers/NAME.toml      run files with only public values, from people who plan runs or from the server
    DIR/approvals/NAME.json   signed by a person of this site: `fastlloyd site DIR --agree NAME`
    DIR/declined/NAME.json    a person of this site declined it: `fastlloyd site DIR --decline NAME`
    DIR/outcomes/NAME.json    how the run ended, and why: it is not joined again automatically
    DIR/results/NAME/         the files of `fastlloyd join`; NAME-2, NAME-3, .. of repeated runs
    DIR/state/                one ledger over all runs
    DIR/logs/NAME.log         the messages of `fastlloyd join` (mode 0600)
    DIR/runs/last.json        the run that began last
    DIR/status.json           each offer and its state; when the service last looked, and was last alive

An offer is hostile: it cannot name this site's files, and none is joined without an approval of exactly its values.

Source: docs/sites.md, "A permanent service at a site".
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from fastlloyd.crypto.link.identity import load_key
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.errors import EXIT_OK, ConfigError, PeerError, PeerTimeout, printable
from fastlloyd.run.rank import stop_signals
from fastlloyd.supervise.joined import LOOK_S, JoinedRuns
from fastlloyd.supervise.offers import MOST_OFFERS, NAME, SUFFIX, Offered, SiteSettings, check_offer, keep_offer
from fastlloyd.supervise.runs import UnwritableError, keep, unwritable
from fastlloyd.supervise.status import (
    DECLINED,
    REFUSED,
    WAITS_FOR_CONSENT,
    WAITS_FOR_DISK,
    WAITS_FOR_HOUR,
    WAITS_FOR_SERVER,
    SiteStatus,
    now_text,
)

_MOST_SHOWN = 300
_KINDS = ("approvals", "declined", "outcomes", "results", "logs", "runs")


class Site:
    """The service of one folder.

    Parameters
    ----------
    settings : SiteSettings
    say : callable
        Receives each line for people.
    ask : callable, optional
        Returns the server's offer, empty for none; raises as `net.tcp.route.Route.ask`.

    Raises
    ------
    ConfigError
        Key and roster do not match, or the folder has no state yet.
    """

    def __init__(
        self, settings: SiteSettings, say: Callable[[str], None], ask: Callable[[], bytes] | None = None
    ) -> None:
        self._settings = settings
        self._say = say
        self._ask = ask
        self._last_answer = ""
        self._last_dates: tuple[str, ...] = ()
        roster = Roster.load(Path(settings.own["roster"]))
        roster.check_complete()
        owner = roster.owner(load_key(Path(settings.own["key"]), settings.own.get("passphrase_file")))
        if owner is None or owner.party.is_server:
            raise ConfigError("site.toml: key: expected the key of one of the roster's clients")
        self._status = SiteStatus(settings, owner.party, say)
        self._runs = JoinedRuns(settings, owner.party, self._status)
        self._served: Offered | None = None
        self._silent = ""
        self._checked: dict[Path, tuple[tuple[int, ...], str]] = {}

    def serve(self, *, once: bool = False) -> int:
        """Look for offers, join approved ones, and repeat until stopped.

        Parameters
        ----------
        once : bool
            Look only once.

        Returns
        -------
        int
            0.

        Raises
        ------
        ConfigError
            Another process serves this folder, or it cannot be written.
        """
        with self._alone(), self._until_stopped():
            while not self._runs.stopped:
                self._look()
                if once:
                    self._status.end()
                    for trouble in self._status.troubles:
                        raise ConfigError(trouble)
                    break
                self._wait()
        return EXIT_OK

    def _look(self) -> None:
        """Handle all offers as far as possible now; what cannot be written is tried again at the next look."""
        self._status.look()
        settings = self._settings
        try:
            for kind in _KINDS:
                _make(settings.folder / kind, 0o700)
            if settings.offers == settings.folder / "offers":
                _make(settings.offers, 0o777)
            self._runs.keep_endings()
            self._runs.settle()
        except UnwritableError as error:
            self._status.report("", str(error))
            return
        self._check_dates()
        self._ask_server()
        offered = self._offered()
        self._status.keep_only(offered)
        paths = set(offered.values())
        self._checked = {path: found for path, found in self._checked.items() if path in paths}
        for name, path in offered.items():
            if not self._runs.stopped:
                self._consider(name, path)
        self._status.report("", "")
        self._status.store()

    def _check_dates(self) -> None:
        """Say once which certificates expire soon, or that one has expired: nobody else looks at a service."""
        try:
            dates = Roster.load(Path(self._settings.own["roster"])).check_dates()
        except ConfigError as error:
            dates = (str(error),)
        if dates != self._last_dates:
            self._last_dates = dates
            for sentence in dates:
                self._say(printable(sentence))

    def _ask_server(self) -> None:
        """Store the server's offer and report news; a server that is away is asked again at the next look."""
        if self._ask is None:
            return
        self._silent, content, answer = "", b"", "it offers no run"
        try:
            content = self._ask()
            self._served = None
            if content:
                self._served = keep_offer(self._settings, content)
                answer = f"it offers {self._served.name} (run of {self._served.instance})"
        except (ConfigError, PeerError) as error:
            answer = str(error)
            if isinstance(error, PeerTimeout) or content:  # joined to what it offers, any other run ends it for all
                self._silent = answer
        if answer != self._last_answer:
            self._last_answer = answer
            self._say(f"asked {self._settings.server}: {printable(answer)}")

    def _consider(self, name: str, path: Path) -> None:
        """Handle one offer as far as possible now."""
        settings = self._settings
        try:
            if not NAME.fullmatch(path.stem):
                raise ConfigError("expected a name of letters, digits, dashes and underscores")
            served = None if self._served is None or self._served.name != name else self._served
            ended = self._runs.ending(name) or self._runs.superseded(name, served)
            is_new = ended is not None and served is not None and served.instance != ended.instance
            if ended is not None and not (is_new and settings.repeat):
                self._status.note(name, *self._runs.describe(name, ended, served))
                return
            if settings.place("declined", name, ".json").exists():
                self._status.note(name, DECLINED, f"fastlloyd site {settings.folder} --agree {name} agrees after all")
                return
            self._check(path)
            approval = settings.place("approvals", name, ".json")
            if not approval.exists():
                self._status.note(name, WAITS_FOR_CONSENT, f"fastlloyd site {settings.folder} --agree {name}")
            elif not settings.open_at(now := datetime.now(UTC)):
                self._status.note(name, WAITS_FOR_HOUR, settings.describe_hours(now))
            elif self._silent:
                self._status.note(name, WAITS_FOR_SERVER, self._silent + self._runs.paused(name))
            elif self._served is not None and served is None:
                other = f"the server offers {self._served.name} now"
                self._status.note(name, WAITS_FOR_SERVER, other + self._runs.paused(name))
            else:
                self._runs.join(name, path, approval, served)
        except UnwritableError as error:
            self._status.note(name, WAITS_FOR_DISK, str(error))
        except ConfigError as error:
            self._status.note(name, REFUSED, str(error))

    def _check(self, path: Path) -> None:
        """Refuse an offer that is not public; one whose file did not change is not read again at each look."""
        mark: tuple[int, ...] = ()
        with suppress(OSError):
            found = path.stat()
            mark = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        known, problem = self._checked.get(path, ((), ""))
        if not mark or known != mark:
            try:
                check_offer(path)
                problem = ""
            except ConfigError as error:
                problem = str(error)
            self._checked[path] = (mark, problem)
        if problem:
            raise ConfigError(problem)

    def _offered(self) -> dict[str, Path]:
        """List the run files by their printable names; those that a person of this site agreed to come first, and all.

        Others may offer whatever they like: very many hide none that is approved.
        """
        try:
            paths = sorted(path for path in self._settings.offers.iterdir() if path.suffix == SUFFIX)
        except OSError as error:
            raise ConfigError(
                f"{self._settings.offers}: cannot be read ({error.strerror}); make this folder"
            ) from error
        agreed = [path for path in paths if self._is_agreed(path.stem)]
        rest = [path for path in paths if not self._is_agreed(path.stem)][:MOST_OFFERS]
        return {printable(path.stem)[:_MOST_SHOWN]: path for path in (*agreed, *rest)}

    def _is_agreed(self, name: str) -> bool:
        """Whether an offer has an approval, and no outcome yet or the server offers it now."""
        approval, outcome = (self._settings.place(kind, name, ".json") for kind in ("approvals", "outcomes"))
        waits = (self._served is not None and self._served.name == name) or not outcome.exists()
        return NAME.fullmatch(name) is not None and approval.exists() and waits

    def _wait(self) -> None:
        """Pause until the next look, or until stopped."""
        end = time.monotonic() + self._settings.every_s
        while not self._runs.stopped and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_S))
            self._status.beat()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep out a second process, which would also spend budget."""
        path = self._settings.folder / "site.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"{path}: cannot be written ({error.strerror}); make room, or fix the folder's permissions"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise ConfigError(
                f"{self._settings.folder}: another `fastlloyd site` serves this folder; end it first, or name another "
                "folder"
            ) from None
        finally:
            os.close(descriptor)

    @contextmanager
    def _until_stopped(self) -> Iterator[None]:
        """Stop at a signal that says so, and stop the current run too."""

        def stop(number: int, _: object) -> None:
            self._runs.stop()

        before = {number: signal.signal(number, stop) for number in stop_signals()}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)


def try_again(settings: SiteSettings, name: str) -> None:
    """Remove the outcome of a run, so that the next look joins it again.

    Raises
    ------
    ConfigError
        It has not ended.
    """
    try:
        settings.place("outcomes", name if NAME.fullmatch(name) else "-", ".json").unlink()
    except FileNotFoundError:
        raise ConfigError(f"{name!r} has not ended: there is nothing to try again") from None


def decline(settings: SiteSettings, name: str) -> None:
    """Note that this site declines an offer; an earlier approval is withdrawn.

    Raises
    ------
    ConfigError
        Its run has ended.
    """
    if settings.place("outcomes", name, ".json").exists():
        raise ConfigError(f"{name!r} has ended: there is nothing to decline")
    path = settings.place("declined", name, ".json")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    keep(path, {"site": 1, "declined_at": now_text()})
    settings.place("approvals", name, ".json").unlink(missing_ok=True)


def _make(folder: Path, mode: int) -> None:
    """Make a folder of the service, unless it is there.

    Raises
    ------
    UnwritableError
        It cannot be made.
    """
    try:
        folder.mkdir(mode=mode, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
