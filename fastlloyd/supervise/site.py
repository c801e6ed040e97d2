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

import dataclasses
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from fastlloyd.crypto.link.identity import load_key
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.errors import EXIT_OK, EXIT_PEER, ConfigError, PeerError, PeerTimeout, printable
from fastlloyd.report.earlier import find_earlier
from fastlloyd.run.config import OPTIONS
from fastlloyd.run.rank import stop_signals
from fastlloyd.run.run_file import to_toml
from fastlloyd.run.state import LEDGER, check_made, interrupted_since, own_folder
from fastlloyd.supervise.offers import MOST_OFFERS, NAME, SUFFIX, SiteSettings, check_offer, keep_offer, take_offer
from fastlloyd.supervise.process import Process
from fastlloyd.supervise.runs import (
    BegunRun,
    SiteEnding,
    UnwritableError,
    is_running,
    keep,
    locked_log,
    read_begun,
    read_cause,
    read_ending,
    size_of,
    unwritable,
)
from fastlloyd.watch.metrics import MODE, render_site
from fastlloyd.wire.regular import replace_file

_MOST_SHOWN = 300
_MOST_SAID = 2000
_STORED_EVERY_S = 1.0
_BEAT_S = 30.0
"""How often the service says that it is alive, at least."""
_LOOK_S = 0.5
_STATUS = "status.json"
_KINDS = ("approvals", "declined", "outcomes", "results", "logs", "runs")

WAITS_FOR_CONSENT, WAITS_FOR_HOUR, WAITS_FOR_SERVER = "waits for consent", "waits for the hour", "waits for the server"
WAITS_FOR_DISK = "waits for the disk"
DECLINED, OFFERED_AGAIN = "declined", "offered again"
RUNNING, DONE, FAILED, REFUSED = "running", "done", "failed", "refused"
STATUS_VERSION = 1
_STATES = (
    *(WAITS_FOR_CONSENT, WAITS_FOR_HOUR, WAITS_FOR_SERVER, WAITS_FOR_DISK, DECLINED, OFFERED_AGAIN),
    *(RUNNING, DONE, FAILED, REFUSED),
)


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
        roster = Roster.load(Path(settings.own["roster"]))
        roster.check_complete()
        owner = roster.owner(load_key(Path(settings.own["key"])))
        if owner is None or owner.party.is_server:
            raise ConfigError("site.toml: key: expected the key of one of the roster's clients")
        self._me = owner.party
        self._state = str(settings.folder / "state")
        check_made(self._state, self._me)
        self._own = own_folder(self._state, self._me)
        self._last = settings.folder / "runs" / "last.json"
        self._states: dict[str, tuple[str, str]] = {}
        self._instances: dict[str, str] = {}
        self._endings: dict[str, SiteEnding] = {}
        self._silent = ""
        self._last_code: int | None = None
        self._troubles = {"": "", _STATUS: ""}
        self._looked_at = ""
        self._checked: dict[Path, tuple[tuple[int, ...], str]] = {}
        self._stored_at: float | None = None
        self._process: subprocess.Popen[bytes] | Process | None = None
        self._stopped = self._settled = False

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
            while not self._stopped:
                self._look()
                if once:
                    for trouble in filter(None, self._troubles.values()):
                        raise ConfigError(trouble)
                    break
                self._wait()
        return EXIT_OK

    def _look(self) -> None:
        """Handle all offers as far as possible now; what cannot be written is tried again at the next look."""
        self._looked_at = _now()
        settings = self._settings
        try:
            for kind in _KINDS:
                _make(settings.folder / kind, 0o700)
            if settings.offers == settings.folder / "offers":
                _make(settings.offers, 0o777)
            self._keep_endings()
            if not self._settled:
                self._settle()
        except UnwritableError as error:
            self._report("", str(error))
            return
        self._ask_server()
        offered = self._offered()
        self._states = {name: state for name, state in self._states.items() if name in offered}
        paths = set(offered.values())
        self._checked = {path: found for path, found in self._checked.items() if path in paths}
        for name, path in offered.items():
            if not self._stopped:
                self._consider(name, path)
        self._report("", "")
        self._store()

    def _report(self, what: str, trouble: str) -> None:
        """Report news of what keeps the service from its work, or from writing its status; empty: nothing does."""
        if trouble and trouble != self._troubles[what]:
            self._say(printable(trouble))
        self._troubles[what] = trouble

    def _ask_server(self) -> None:
        """Store the server's offer and report news; a server that is away is asked again at the next look."""
        if self._ask is None:
            return
        self._silent = ""
        try:
            content = self._ask()
            self._instances.clear()
            answer = "it offers no run"
            if content:
                offered = keep_offer(self._settings, content)
                self._instances[offered.name] = offered.instance
                answer = f"it offers {offered.name} (run of {offered.instance})"
        except (ConfigError, PeerError) as error:
            answer = str(error)
            if isinstance(error, PeerTimeout):
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
            ended = self._endings.get(name) or read_ending(settings.place("outcomes", name, ".json"))
            if ended is not None and not (self._is_new(name, ended) and settings.repeat):
                self._note(name, *self._describe(name, ended))
                return
            if settings.place("declined", name, ".json").exists():
                self._note(name, DECLINED, f"fastlloyd site {settings.folder} --agree {name} agrees after all")
                return
            self._check(path)
            approval = settings.place("approvals", name, ".json")
            if not approval.exists():
                self._note(name, WAITS_FOR_CONSENT, f"fastlloyd site {settings.folder} --agree {name}")
            elif not settings.open_at(now := datetime.now(UTC)):
                self._note(name, WAITS_FOR_HOUR, settings.describe_hours(now))
            elif self._silent:
                self._note(name, WAITS_FOR_SERVER, self._silent)
            else:
                self._join(name, path, approval)
        except UnwritableError as error:
            self._note(name, WAITS_FOR_DISK, str(error))
        except ConfigError as error:
            self._note(name, REFUSED, str(error))

    def _is_new(self, name: str, ended: SiteEnding) -> bool:
        """Whether the server offers another run under the name of one that has ended."""
        return self._instances.get(name, ended.instance) != ended.instance

    def _describe(self, name: str, ended: SiteEnding) -> tuple[str, str]:
        """Return state and further words of an offer whose run has ended."""
        again = f"fastlloyd site {self._settings.folder} --again {name}"
        if self._is_new(name, ended):
            when = self._instances[name]
            return OFFERED_AGAIN, f"{ended.said}; the server offered another run of {when}: {again} joins it"
        if ended.code == EXIT_OK:
            return DONE, ended.said
        begun = read_begun(self._last)
        resumes = begun is not None and begun.name == name and self._may_resume(begun)
        return FAILED, f"{ended.said}; {again} {'goes on where it broke off' if resumes else 'joins it anew'}"

    def _may_resume(self, begun: BegunRun) -> bool:
        """Whether the run that began last broke off after its round 0, and its protocol can go on."""
        return begun.resumes and interrupted_since(self._state, self._me) is not None

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

    def _join(self, name: str, path: Path, approval: Path) -> None:
        """Run `fastlloyd join`, and store how it ended; a run that spent nothing is tried again at the next look."""
        settings = self._settings
        config = take_offer(
            path, {**settings.own, "state_dir": self._state, "output": str(self._results(name)), "print_result": False}
        )
        # Only an interrupted run of the same offer may be resumed.
        last = read_begun(self._last)
        resumed = last is not None and last.name == name and config.row.resumes and self._may_resume(last)
        if last is not None and resumed:
            config = dataclasses.replace(config, resume=True, output=str(settings.place("results", last.output)))
        run_file, own_file = (settings.place("runs", name, suffix) for suffix in (SUFFIX, f".own{SUFFIX}"))
        mine = {key for key, option in OPTIONS.items() if option.own} | {"roster"}
        keep(run_file, to_toml(config, run_file.parent, only=OPTIONS.keys() - mine))
        keep(own_file, to_toml(dataclasses.replace(config, settings={}), own_file.parent, only=mine))
        begun = BegunRun(
            name=name,
            instance=self._instances.get(name, ""),
            output=Path(config.output).name,
            result=f"the result waits for a decision: fastlloyd release {self._own}"
            if config.review
            else f"results in {config.output}",
            resumes=config.row.resumes,
            ledger=size_of(self._own / LEDGER),
            log=size_of(settings.place("logs", name, ".log")),
        )
        keep(self._last, begun)
        settings.place("outcomes", name, ".json").unlink(missing_ok=True)  # of an earlier run
        self._note(name, RUNNING, "it resumes where it broke off" if resumed else "")
        files = ("--config", str(run_file), "--site", str(own_file), "--approval", str(approval))
        code, said = self._run(begun, *files, "--patience", f"{settings.patience_s:g}")
        self._finish(begun, code, said)

    def _results(self, name: str) -> Path:
        """Return the folder of a run's results: one without files of an earlier run."""
        folder, number = self._settings.place("results", name), 1
        while not self._settings.own.get("overwrite") and find_earlier(folder).files:
            number += 1
            folder = self._settings.place("results", f"{name}-{number}")
        return folder

    def _run(self, begun: BegunRun, *flags: str) -> tuple[int, str]:
        """Run `fastlloyd join`; return its code and why it failed."""
        log = self._settings.place("logs", begun.name, ".log")
        words = [sys.executable, "-m", "fastlloyd", "join", "--server", self._settings.server, *flags]
        with locked_log(log) as descriptor:
            try:
                process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor)
            except OSError as error:
                raise UnwritableError(f"{words[0]}: cannot be started ({error.strerror})") from error
        self._process = process
        try:
            with suppress(UnwritableError):
                keep(self._last, dataclasses.replace(begun, pid=process.pid))
            if self._stopped:  # stopped between the look and the start
                process.terminate()
            while (code := _wait(process)) is None:
                self._beat()
        finally:
            self._process = None
        return code, read_cause(log, begun.log, self._own)

    def _settle(self) -> None:
        """Wait for a run that an earlier service began, and store how it ended.

        Raises
        ------
        UnwritableError
            It cannot be stored now.
        """
        begun = read_begun(self._last)
        if begun is None or begun.over or self._settings.place("outcomes", begun.name, ".json").exists():
            self._settled = True
            return
        log = self._settings.place("logs", begun.name, ".log")
        if is_running(log):
            self._note(begun.name, RUNNING, "an earlier service began it, and its process goes on")
            self._process = Process(begun.pid) if begun.pid else None
            while is_running(log):
                if self._stopped and self._process is not None:
                    self._process.signal(signal.SIGTERM)
                time.sleep(_LOOK_S)
                self._beat()
            self._process = None
        self._settled = True
        self._finish(begun, None, read_cause(log, begun.log, self._own))

    def _finish(self, begun: BegunRun, code: int | None, said: str) -> None:
        """Store how a run ended.

        Parameters
        ----------
        begun : BegunRun
        code : int or None
            None if an earlier service began it, so that nobody saw its code.
        said : str
            Why it failed; empty if it did not say so.
        """
        spent = size_of(self._own / LEDGER) != begun.ledger
        broken = interrupted_since(self._state, self._me) is not None
        if code is None and spent and not broken:
            code = EXIT_OK  # a run removes what a resume needs once it has ended well, and not before
        killed = self._stopped or (code is None and not said)
        free = not spent and (killed or code in (None, EXIT_PEER))
        goes_on = killed and spent and self._may_resume(begun)
        if code != EXIT_OK and (free or goes_on):
            self._note(begun.name, WAITS_FOR_SERVER, said or "the service was stopped")
        else:
            if code is None or code < 0:
                said = said or "its process was killed"
            cause = begun.result if code == EXIT_OK else said or f"it ended with code {code}; its log says no more"
            code = EXIT_PEER if code is None or code < 0 else code
            ended = SiteEnding(1, code, cause[:_MOST_SAID], _now(), begun.instance)
            self._endings[begun.name] = ended
            self._last_code = code
            self._note(begun.name, *self._describe(begun.name, ended))
            self._keep_endings()
        keep(self._last, dataclasses.replace(begun, over=True))
        self._store()

    def _keep_endings(self) -> None:
        """Store what could not be stored before: while it is not, its run is not joined again."""
        for name, ended in list(self._endings.items()):
            keep(self._settings.place("outcomes", name, ".json"), ended)
            del self._endings[name]

    def _note(self, name: str, state: str, more: str) -> None:
        """Store the state of an offer; report news."""
        now = (state, printable(more)[:_MOST_SAID])
        if self._states.get(name) == now:
            return
        self._states[name] = now
        self._say(f"{name}: {state}" + (f": {now[1]}" if more else ""))
        if state == RUNNING or self._stored_at is None or time.monotonic() - self._stored_at > _STORED_EVERY_S:
            self._store()

    def _beat(self) -> None:
        """Store, every while, that the service is alive."""
        if self._stored_at is None or time.monotonic() - self._stored_at >= _BEAT_S:
            self._store()

    def _store(self) -> None:
        """Store the states of all offers; of very many news not after each."""
        self._stored_at = time.monotonic()
        offers = {key: {"state": kind, "more": text} for key, (kind, text) in sorted(self._states.items())}
        content = {"status": STATUS_VERSION, "at": _now(), "looked_at": self._looked_at, "offers": offers}
        try:
            keep(self._settings.folder / _STATUS, content)
            self._measure()
            self._report(_STATUS, "")
        except UnwritableError as error:
            self._report(_STATUS, str(error))

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
            path.stem, str(self._me), alive=time.time(), looked=looked, offers=offers, code=self._last_code
        )
        try:
            replace_file(path, [text.encode()], mode=MODE)
        except OSError as error:
            raise unwritable(path, error) from error

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
        waits = name in self._instances or not outcome.exists()
        return NAME.fullmatch(name) is not None and approval.exists() and waits

    def _wait(self) -> None:
        """Pause until the next look, or until stopped."""
        end = time.monotonic() + self._settings.every_s
        while not self._stopped and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_S))
            self._beat()

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
            self._stopped = True
            if isinstance(self._process, Process):
                self._process.signal(signal.SIGTERM)
            elif self._process is not None:
                self._process.terminate()

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
    keep(path, {"site": 1, "declined_at": _now()})
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


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    """Return the code of a process, None if it has not ended within a while."""
    try:
        return process.wait(_BEAT_S)
    except subprocess.TimeoutExpired:
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
