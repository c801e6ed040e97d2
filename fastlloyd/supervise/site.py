"""A permanent client: it takes run files from a folder, waits for consent, and joins one run after the other.

::

    DIR/site.toml             the server, and this site's own settings: records, key, roster, budget
    DIR/offers/NAME.toml      run files with only public values, from people who plan runs or from the server
    DIR/approvals/NAME.json   signed by a person of this site: `fastlloyd site DIR --agree NAME`
    DIR/declined/NAME.json    a person of this site declined it: `fastlloyd site DIR --decline NAME`
    DIR/outcomes/NAME.json    how the run ended: it is not joined again automatically
    DIR/results/NAME/         the files of `fastlloyd join`
    DIR/state/                one ledger over all runs
    DIR/logs/NAME.log         the messages of `fastlloyd join` (mode 0600)
    DIR/status.json           each offer and its state

An offer is hostile: it cannot name this site's files, and none is joined without an approval of exactly its values.

Source: docs/sites.md, "A permanent service at a site".
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from fastlloyd.crypto.link.identity import load_key
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.errors import EXIT_OK, EXIT_PEER, ConfigError, PeerError, printable
from fastlloyd.run.config import OPTIONS
from fastlloyd.run.rank import stop_signals
from fastlloyd.run.run_file import to_toml
from fastlloyd.run.state import check_made, interrupted_since, own_folder
from fastlloyd.supervise.offers import MOST_OFFERS, NAME, SUFFIX, SiteSettings, check_offer, keep_offer, take_offer
from fastlloyd.wire.regular import open_regular, read_regular, replace_file

_MOST_SHOWN = 300
_MOST_SAID = 2000
_STORED_EVERY_S = 1.0
_TAIL_BYTES = 1 << 14
_LAST = "last"

WAITS_FOR_CONSENT, WAITS_FOR_HOUR, WAITS_FOR_SERVER = "waits for consent", "waits for the hour", "waits for the server"
DECLINED = "declined"
RUNNING, DONE, FAILED, REFUSED = "running", "done", "failed", "refused"
STATUS_VERSION = 1


@dataclass(frozen=True, slots=True)
class SiteEnding:
    """How a run ended, as in `outcomes/NAME.json`.

    Attributes
    ----------
    code : int
        Of `fastlloyd join`.
    said : str
        Its last sentence.
    """

    site: Literal[1]
    code: int
    said: str
    ended_at: str


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
        check_made(str(settings.folder / "state"), self._me)
        self._states: dict[str, tuple[str, str]] = {}
        self._checked: dict[Path, tuple[tuple[int, ...], str]] = {}
        self._stored_at: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        for kind in ("approvals", "declined", "outcomes", "results", "logs", "runs"):
            (settings.folder / kind).mkdir(mode=0o700, exist_ok=True)
        if settings.offers == settings.folder / "offers":
            settings.offers.mkdir(exist_ok=True)

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
                self._ask_server()
                offered = self._offered()
                self._states = {name: state for name, state in self._states.items() if name in offered}
                paths = set(offered.values())
                self._checked = {path: found for path, found in self._checked.items() if path in paths}
                for name, path in offered.items():
                    if not self._stopped:
                        self._consider(name, path)
                self._store()
                if once:
                    break
                self._wait()
        return EXIT_OK

    def _ask_server(self) -> None:
        """Store the server's offer and report news; a server that is away is asked again at the next look."""
        if self._ask is None:
            return
        try:
            content = self._ask()
            answer = f"it offers {keep_offer(self._settings, content)}" if content else "it offers no run"
        except (ConfigError, PeerError) as error:
            answer = str(error)
        if answer != self._last_answer:
            self._last_answer = answer
            self._say(f"asked {self._settings.server}: {printable(answer)}")

    def _consider(self, name: str, path: Path) -> None:
        """Handle one offer as far as possible now."""
        settings = self._settings
        try:
            if not NAME.fullmatch(path.stem):
                raise ConfigError("expected a name of letters, digits, dashes and underscores")
            ended = _outcome(settings.place("outcomes", name, ".json"))
            if ended is not None:
                self._note(name, DONE if ended.code == EXIT_OK else FAILED, ended.said)
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
            else:
                self._join(name, path, approval)
        except ConfigError as error:
            self._note(name, REFUSED, str(error))

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
        state = str(settings.folder / "state")
        own = own_folder(state, self._me)
        # Only an interrupted run of the same offer may be resumed.
        last = settings.folder / "runs" / _LAST
        interrupted = interrupted_since(state, self._me) is not None and last.exists() and read_regular(last) == name
        config = take_offer(
            path,
            {
                **settings.own,
                "state_dir": state,
                "output": str(settings.place("results", name)),
                "print_result": False,
                "resume": interrupted,
            },
        )
        run_file, own_file = (settings.place("runs", name, suffix) for suffix in (SUFFIX, f".own{SUFFIX}"))
        mine = {key for key, option in OPTIONS.items() if option.own} | {"roster"}
        public = to_toml(config, run_file.parent, only=OPTIONS.keys() - mine)
        replace_file(run_file, [public.encode()], mode=0o600)
        private = to_toml(dataclasses.replace(config, settings={}), own_file.parent, only=mine)
        replace_file(own_file, [private.encode()], mode=0o600)
        replace_file(last, [name.encode()], mode=0o600)
        self._note(name, RUNNING, "it resumes where it broke off" if interrupted else "")
        spent = _size(own / "ledger.jsonl")
        patience = f"{settings.patience_s:g}"
        files = ("--config", str(run_file), "--site", str(own_file), "--approval", str(approval))
        code, said = self._run(name, *files, "--patience", patience)
        if code == EXIT_OK:
            said = f"results in {config.output}"
            if config.review:
                said = f"the result waits for a decision: fastlloyd release {own}"
        if self._stopped:
            self._note(name, WAITS_FOR_SERVER, "this service was stopped")
        elif code == EXIT_PEER and _size(own / "ledger.jsonl") == spent:
            self._note(name, WAITS_FOR_SERVER, said)
        else:
            ended = SiteEnding(1, code, said, datetime.now(UTC).isoformat(timespec="seconds"))
            replace_file(settings.place("outcomes", name, ".json"), [_json(asdict(ended))], mode=0o600)
            self._note(name, DONE if code == EXIT_OK else FAILED, said)
        self._store()

    def _run(self, name: str, *flags: str) -> tuple[int, str]:
        """Run `fastlloyd join`; return its code and its last line."""
        log = self._settings.place("logs", name, ".log")
        words = [sys.executable, "-m", "fastlloyd", "join", "--server", self._settings.server, *flags]
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            start = os.fstat(descriptor).st_size
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor)
            if self._stopped:  # stopped between the look and the start
                self._process.terminate()
            code = self._process.wait()
        finally:
            self._process = None
            os.close(descriptor)
        return code, _last_line(log, start)

    def _note(self, name: str, state: str, more: str) -> None:
        """Store the state of an offer; report news."""
        now = (state, printable(more)[:_MOST_SAID])
        if self._states.get(name) == now:
            return
        self._states[name] = now
        self._say(f"{name}: {state}" + (f": {now[1]}" if more else ""))
        if state == RUNNING or self._stored_at is None or time.monotonic() - self._stored_at > _STORED_EVERY_S:
            self._store()

    def _store(self) -> None:
        """Store the states of all offers; of very many news not after each."""
        self._stored_at = time.monotonic()
        offers = {key: {"state": kind, "more": text} for key, (kind, text) in sorted(self._states.items())}
        content = {"status": STATUS_VERSION, "at": datetime.now(UTC).isoformat(timespec="seconds"), "offers": offers}
        replace_file(self._settings.folder / "status.json", [_json(content)], mode=0o600)

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
        """Whether an offer has an approval and no outcome yet."""
        approval, outcome = (self._settings.place(kind, name, ".json") for kind in ("approvals", "outcomes"))
        return NAME.fullmatch(name) is not None and approval.exists() and not outcome.exists()

    def _wait(self) -> None:
        """Pause until the next look, or until stopped."""
        end = time.monotonic() + self._settings.every_s
        while not self._stopped and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep out a second process, which would also spend budget."""
        descriptor = os.open(self._settings.folder / "site.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
            if self._process is not None:
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
    content = {"site": 1, "declined_at": datetime.now(UTC).isoformat(timespec="seconds")}
    replace_file(path, [_json(content)], mode=0o600)
    settings.place("approvals", name, ".json").unlink(missing_ok=True)


def _outcome(path: Path) -> SiteEnding | None:
    """Read how a run ended; None if it has not."""
    from fastlloyd.wire.decode import decode, load_json

    try:
        return decode(SiteEnding, load_json(read_regular(path)), "")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}; if the run may be joined again, remove it") from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _last_line(log: Path, start: int) -> str:
    """Return the last line that a run wrote."""
    with open_regular(log) as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(start, end - _TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _json(content: object) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
