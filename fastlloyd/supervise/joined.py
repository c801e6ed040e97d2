"""The runs that the service of a site joins: each is begun, watched, and its end stored, also by a later service.

Source: docs/sites.md, "A permanent service at a site".
"""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from fastlloyd.errors import EXIT_OK, EXIT_PEER, ConfigError
from fastlloyd.gate.decisions import Decisions
from fastlloyd.report.earlier import find_earlier
from fastlloyd.run.config import OPTIONS
from fastlloyd.run.run_file import to_toml
from fastlloyd.run.state import LEDGER, check_made, interrupted_since, own_folder
from fastlloyd.supervise.offers import SUFFIX, Offered, SiteSettings, take_offer
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
    why_silent,
)
from fastlloyd.supervise.status import (
    BEAT_S,
    DONE,
    FAILED,
    MOST_SAID,
    OFFERED_AGAIN,
    RUNNING,
    WAITS_FOR_SERVER,
    SiteStatus,
    now_text,
)
from fastlloyd.wire.header import PartyId

LOOK_S = 0.5
"""How long the service waits before it sees that it was stopped, at most."""
_STOPPED = "the service was stopped"


class JoinedRuns:
    """The runs of one site, one after the other.

    Parameters
    ----------
    settings : SiteSettings
    me : PartyId
    status : SiteStatus
        Where the states of their offers are noted.

    Attributes
    ----------
    stopped : bool
        Whether the service was stopped.

    Raises
    ------
    ConfigError
        The folder has no state yet.
    """

    def __init__(self, settings: SiteSettings, me: PartyId, status: SiteStatus) -> None:
        self.stopped = False
        self._settings = settings
        self._me = me
        self._status = status
        self._state = str(settings.folder / "state")
        check_made(self._state, me)
        self._own = own_folder(self._state, me)
        self._last = settings.folder / "runs" / "last.json"
        self._endings: dict[str, SiteEnding] = {}
        self._settled = False
        self._process: subprocess.Popen[bytes] | Process | None = None

    def stop(self) -> None:
        """End the service, and the run that it watches."""
        self.stopped = True
        if isinstance(self._process, Process):
            self._process.signal(signal.SIGTERM)
        elif self._process is not None:
            self._process.terminate()

    def ending(self, name: str) -> SiteEnding | None:
        """Return how the run of an offer ended; None if it has not.

        Raises
        ------
        ConfigError
            Its outcome is damaged.
        """
        return self._endings.get(name) or read_ending(self._settings.place("outcomes", name, ".json"))

    def describe(self, name: str, ended: SiteEnding, served: Offered | None) -> tuple[str, str]:
        """Return state and further words of an offer whose run has ended.

        Parameters
        ----------
        name : str
        ended : SiteEnding
        served : Offered or None
            What the server offers under this name now.

        Returns
        -------
        tuple of two str
        """
        again = f"fastlloyd site {self._settings.folder} --again {name}"
        if served is not None and served.instance != ended.instance:
            return OFFERED_AGAIN, f"{ended.said}; the server offered another run of {served.instance}: {again} joins it"
        decision = self._decision(ended.run)
        if ended.code == EXIT_OK:
            return DONE, decision or ended.said
        begun = read_begun(self._last)
        resumes = begun is not None and begun.name == name and self._may_resume(begun)
        what = "goes on where it broke off, if the server does (serve --resume)" if resumes else "joins it anew"
        return FAILED, "; ".join(filter(None, (ended.said, decision, f"{again} {what}")))

    def _decision(self, run: str) -> str:
        """Return what was decided about the result of a run, as it stands now; empty for one that was not held."""
        if not run:
            return ""
        try:
            last = Decisions(self._own).last(run)
        except ConfigError as error:
            return str(error)
        if last is None or last.what == "held":
            return self._to_decide()
        return f"{last.what} at {last.at}" + (f": results in {last.output}" if last.output else "")

    def _to_decide(self) -> str:
        return f"the result waits for a decision: fastlloyd release {self._own}"

    def _held_runs(self) -> tuple[str, ...]:
        """Return the runs whose result was held."""
        try:
            return Decisions(self._own).runs()
        except ConfigError:  # whoever decides will read why
            return ()

    def _held(self, begun: BegunRun) -> str:
        """Return the id of a run that is over, if its result was held; else ''."""
        held = self._held_runs()
        return held[-1] if len(held) > begun.decided or (held and begun.resumed) else ""

    def _may_resume(self, begun: BegunRun) -> bool:
        """Whether the run that began last broke off after its round 0, and its protocol can go on."""
        return begun.resumes and interrupted_since(self._state, self._me) is not None

    def paused(self, name: str) -> str:
        """Return what to add to the state of an offer whose run was stopped with the service; empty for any other."""
        begun = read_begun(self._last)
        if begun is None or begun.name != name or not begun.waits:
            return ""
        return f"; it goes on where it broke off, if the server does (serve --resume){self._where(begun)}"

    def superseded(self, name: str, served: Offered | None) -> SiteEnding | None:
        """Store, and return, the end of a run that was stopped with the service, once the server begins another.

        Parameters
        ----------
        name : str
        served : Offered or None
            What the server offers under this name now.

        Returns
        -------
        SiteEnding or None
            None if there is no such run, or it may still go on.

        Raises
        ------
        UnwritableError
            It cannot be stored now.
        """
        begun = read_begun(self._last)
        if served is None or served.resume or begun is None or begun.name != name or not begun.waits:
            return None
        return self._give_up(begun)

    def _give_up(self, begun: BegunRun) -> SiteEnding:
        """Store how a run ended that was stopped with the service: a person decides about another one."""
        log = self._settings.place("logs", begun.name, ".log")
        said = read_cause(log, begun.log, self._own) or _STOPPED
        ended = self._store(begun, EXIT_PEER, said + self._where(begun))
        keep(self._last, dataclasses.replace(begun, waits=False))
        return ended

    def _where(self, begun: BegunRun) -> str:
        """Return where the result of a run that failed is: another party failed while all took their leave."""
        written = self._settings.place("results", begun.output)
        if self._settings.own.get("overwrite") or not find_earlier(written).files:
            return ""
        return f"; its result is in {written}"

    def join(self, name: str, path: Path, approval: Path, served: Offered | None) -> None:
        """Run `fastlloyd join`, and store how it ended; a run that spent nothing is tried again at the next look.

        Parameters
        ----------
        name : str
            Of the offer.
        path, approval : Path
            The offer, and the signed approval of it.
        served : Offered or None
            What the server offers under this name: it says whether a run that broke off goes on.

        Raises
        ------
        ConfigError
            The offer names this site's files, or is no run file.
        UnwritableError
            What the run needs cannot be written now.
        """
        settings = self._settings
        own = settings.brings(path)
        config = take_offer(path, {**own, "output": str(self._results(name)), "print_result": False})
        # Only an interrupted run of the same offer may be resumed, and not if the server begins another.
        last = read_begun(self._last)
        goes_on = config.row.resumes and (served is None or served.resume)
        resumed = last is not None and last.name == name and goes_on and self._may_resume(last)
        if last is not None and last.waits and last.name != name:
            self._give_up(last)
        if last is not None and resumed:
            config = dataclasses.replace(config, resume=True, output=str(settings.place("results", last.output)))
        run_file, own_file = (settings.place("runs", name, suffix) for suffix in (SUFFIX, f".own{SUFFIX}"))
        mine = {key for key, option in OPTIONS.items() if option.own} | {"roster"}
        keep(run_file, to_toml(config, run_file.parent, only=OPTIONS.keys() - mine))
        keep(own_file, to_toml(dataclasses.replace(config, settings={}), own_file.parent, only=mine))
        begun = BegunRun(
            name=name,
            instance="" if served is None else served.instance,
            output=Path(config.output).name,
            result=self._to_decide() if config.review else f"results in {config.output}",
            resumes=config.row.resumes,
            resumed=resumed,
            waits=last is not None and resumed and last.waits,
            ledger=size_of(self._own / LEDGER),
            log=size_of(settings.place("logs", name, ".log")),
            decided=len(self._held_runs()),
        )
        keep(self._last, begun)
        settings.place("outcomes", name, ".json").unlink(missing_ok=True)  # of an earlier run
        self._status.note(name, RUNNING, "it resumes where it broke off" if resumed else "")
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
            if self.stopped:  # stopped between the look and the start
                process.terminate()
            while (code := _wait(process)) is None:
                self._status.beat()
        finally:
            self._process = None
        return code, read_cause(log, begun.log, self._own)

    def settle(self) -> None:
        """Wait, once, for a run that an earlier service began, and store how it ended.

        Raises
        ------
        UnwritableError
            It cannot be stored now.
        """
        begun = None if self._settled else read_begun(self._last)
        if begun is None or begun.over or self._settings.place("outcomes", begun.name, ".json").exists():
            self._settled = True
            return
        log = self._settings.place("logs", begun.name, ".log")
        if is_running(log):
            self._status.note(begun.name, RUNNING, "an earlier service began it, and its process goes on")
            self._process = Process(begun.pid) if begun.pid else None
            while is_running(log):
                if self.stopped and self._process is not None:
                    self._process.signal(signal.SIGTERM)
                time.sleep(LOOK_S)
                self._status.beat()
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
        if (code is None or code < 0) and (spent or begun.resumed) and not broken:
            code = EXIT_OK  # a run removes what a resume needs once it has ended well, and not before
        killed = self.stopped or (code is None and not said)
        free = not spent and (killed or code in (None, EXIT_PEER))
        goes_on = killed and spent and self._may_resume(begun)
        if code != EXIT_OK and (free or goes_on):
            self._status.note(begun.name, WAITS_FOR_SERVER, (said or _STOPPED) + self._where(begun))
            waits = goes_on or begun.waits
        else:
            waits = False
            if code is None or code < 0:
                said = said or "its process was killed"
            said = said or f"it ended with code {code}; {why_silent(self._settings.place('logs', begun.name, '.log'))}"
            cause = begun.result if code == EXIT_OK else said + self._where(begun)
            self._store(begun, EXIT_PEER if code is None or code < 0 else code, cause)
        keep(self._last, dataclasses.replace(begun, over=True, waits=waits))
        self._status.store()

    def _store(self, begun: BegunRun, code: int, cause: str) -> SiteEnding:
        """Note and store how a run ended."""
        ended = SiteEnding(1, code, cause[:MOST_SAID], now_text(), begun.instance, self._held(begun))
        self._endings[begun.name] = ended
        self._status.code = code
        self._status.note(begun.name, *self.describe(begun.name, ended, None))
        self.keep_endings()
        return ended

    def keep_endings(self) -> None:
        """Store what could not be stored before: while it is not, its run is not joined again.

        Raises
        ------
        UnwritableError
            It cannot be stored now either.
        """
        for name, ended in list(self._endings.items()):
            keep(self._settings.place("outcomes", name, ".json"), ended)
            del self._endings[name]


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    """Return the code of a process, None if it has not ended within a while."""
    try:
        return process.wait(BEAT_S)
    except subprocess.TimeoutExpired:
        return None
