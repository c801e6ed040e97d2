"""A run as an NVFlare job: the server's party is the job's workflow, a client's is at each site.

The job only names a run. Each site's own run file, `local/fastlloyd/NAME.toml` in its NVFlare workspace, determines the
configuration, records and keys; so a job cannot access a site's private data. NVFlare carries calls between the sites
and authenticates the caller (`nvflare.collab`); the links inside are encrypted end to end, so its server relays
messages that it cannot read. NVFlare may send a site's log to its server, so the party writes its messages to the
site's own file, and NVFlare's log has only public facts.

Source: docs/nvflare.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nvflare.collab import collab
from nvflare.collab.runtime.cell_dispatcher import CellDispatcher

from fastlloyd.crypto.link.roster import Roster
from fastlloyd.dossier.approval import approved, approved_by_all
from fastlloyd.errors import EXIT_BUG, Aborted, ConfigError, FastLloydError, InternalError, name_some
from fastlloyd.net.calls import BEAT_S, CLOSE_S, CallTransport
from fastlloyd.net.link.control import Ending
from fastlloyd.report.announcer import Announcer
from fastlloyd.report.lines import Journal
from fastlloyd.run.config import RunConfig
from fastlloyd.run.own_rank import find_own_rank
from fastlloyd.run.rank import carry_out, limit_threads, start_log
from fastlloyd.run.run_file import load_config, refuse_own_keys, without_records
from fastlloyd.supervise.offers import NAME, SUFFIX
from fastlloyd.wire.header import SERVER, PartyId, clients

if TYPE_CHECKING:
    from fastlloyd.run.execute import Approve

    _Read = tuple[RunConfig | FastLloydError, Approve | None]

CARRIER = "NVFlare"
FOLDER = "fastlloyd"
"""In a site's `local` folder."""
_SERVER_NAME = "server"
_CALL_S = 10.0
"""A call without progress for this time has failed."""
_BEATS = 10
"""Most calls per second with which the server checks that its clients are reachable."""
_LEAVE_S = 30.0
_LOOK_S = 0.2

F = TypeVar("F", bound=Callable[..., Any])
_log = logging.getLogger(__name__)
_public = logging.getLogger("nvflare.fastlloyd")


# What NVFlare calls: other sites a published method, the job its workflow and what ends it.
_published: Callable[[F], F] = collab.publish
_main: Callable[[F], F] = collab.main
_final: Callable[[F], F] = collab.final


class Party:
    """One party in the process of a job: the common part of server and clients.

    Parameters
    ----------
    run : str
        Name of the site's run file, from the job: letters, digits, dashes and underscores.
    """

    def __init__(self, run: str = "run") -> None:
        self._run = run
        self._ranks: Mapping[str, PartyId] = {}
        self._transport: CallTransport | None = None

    @_published
    def take(self, content: object) -> bool:
        """Accept frames of another site; False asks for a later repetition of the call.

        Raises
        ------
        ValueError
            They are not frames of a party of this run.
        """
        sender = self._ranks.get(collab.caller)
        if self._transport is None or sender is None:
            raise ValueError("this site takes part in no run")
        return self._transport.take(sender, content)

    def _read(self, rank: int, check: Callable[[RunConfig, Path], Approve | None]) -> _Read:
        """Read this site's run file, and start its own log; paths in the file are relative to its folder.

        Parameters
        ----------
        rank : int
        check : callable
            Receives the configuration and the folder; refuses it, or returns a check of the run for later.
        """
        # Absolute: relative paths of the run file already start there, and would be joined twice.
        folder = Path(collab.workspace.get_site_config_dir()).absolute() / FOLDER
        approve: Approve | None = None
        config: RunConfig | FastLloydError = RunConfig()
        try:
            if not isinstance(self._run, str) or not NAME.fullmatch(self._run):
                raise ConfigError(
                    f"the job asks for the run {self._run!r}: expected letters, digits, dashes and underscores; make "
                    "the job again with such a name"
                )
            _begin_log(RunConfig(), folder / f"{self._run}.log", rank)
            own = folder / f"{self._run}.own{SUFFIX}"
            if own.exists():
                refuse_own_keys(folder / f"{self._run}{SUFFIX}")
            config = load_config(folder / f"{self._run}{SUFFIX}", site=own if own.exists() else None)
            config = replace(config, output=str(folder / config.output))
            approve = check(config, folder)
        except FastLloydError as error:
            config = error
        except Exception:  # its text must not be sent
            _log.exception("unforeseen error")
            config = InternalError("an unforeseen error; this is a bug in fastlloyd, please report it")
        return config, approve

    def _begin(self, names: Sequence[str], me: PartyId, config: RunConfig | FastLloydError) -> None:
        """Create the transport, ready for frames of the others."""
        usable = config if isinstance(config, RunConfig) else RunConfig()
        parties = (SERVER, *clients(len(names)))
        proxies = {proxy.name: proxy for proxy in collab.clients} | {_SERVER_NAME: collab.server}
        peers = {party: proxies[name] for party, name in zip(parties, (_SERVER_NAME, *names), strict=True)}
        signal = collab.context.abort_signal

        def call(peer: PartyId, content: bytes) -> object:
            if signal.triggered:  # NVFlare does not return answers any more
                peers[peer](expect_result=False).take(content)
                return True
            return peers[peer](timeout=_CALL_S).take(content)

        self._ranks = dict(zip((_SERVER_NAME, *names), parties, strict=True))
        self._transport = CallTransport(
            me,
            tuple(party for party in parties if party != me),
            call,
            gone_s=usable.reconnect_s,
            first_s=usable.setup_deadline,
            stopped=lambda: bool(signal.triggered),
            beat_s=max(BEAT_S, len(names) / _BEATS),
            close_deadline_s=max(CLOSE_S, usable.reconnect_s),
        )

    def _run_party(self, config: RunConfig | FastLloydError, approve: Approve | None) -> Ending:
        """Run the party to its end."""
        assert self._transport is not None
        announcer = Announcer(self._transport.me, own_terminal=True, carrier=CARRIER, journal=Journal.LOG)
        try:
            ending, carrier = carry_out(config, self._transport, announcer, approve=approve)
            carrier.close(lost=ending.lost)
        except Exception:  # its text must not reach NVFlare's log
            _log.exception("unforeseen error")
            raise RuntimeError(f"fastlloyd: exit code {EXIT_BUG}; this site's own log says more") from None
        finally:
            self._transport.close(lost=True)
        why = Aborted(rank=ending.rank, reason=ending.reason, code=ending.code, by=ending.by)
        _public.log(
            logging.ERROR if ending.code else logging.INFO,
            "fastlloyd: exit code %d%s; this site's own log, in its folder local/%s, says more",
            ending.code,
            f": {why}" if ending.code else "",
            FOLDER,
        )
        return ending


class Server(Party):
    """The server's party: the workflow of the job."""

    @_main
    def serve(self) -> None:
        """Start the clients' parties, run, and wait until they have ended.

        Raises
        ------
        RuntimeError
            The run failed, and so the job; names the exit code and the party at fault.
        """
        _prepare_process()
        proxies = {proxy.name: proxy for proxy in collab.clients}
        names = _in_order(None, proxies)

        def check(config: RunConfig, folder: Path) -> Approve | None:
            names[:] = _in_order(config, proxies)
            approvals = folder / f"{self._run}.approvals"
            return approved_by_all(approvals, config) if approvals.exists() else None

        config, approve = self._read(SERVER.rank, check)
        if isinstance(config, RunConfig):
            config = without_records(config)
        self._begin(names, SERVER, config)
        assert self._transport is not None
        for peer, name in zip(self._transport.peers, names, strict=True):
            try:
                proxies[name](timeout=_CALL_S).start(list(names))
            except Exception as error:  # whatever NVFlare raises
                self._transport.lose(peer, f"its site {name!r} does not take part ({str(error)[:200]})")
        ending = self._run_party(config, approve)
        end = time.monotonic() + _LEAVE_S
        for name in names:
            while not _has_ended(proxies[name]) and time.monotonic() < end and not collab.is_aborted:
                time.sleep(_LOOK_S)
        if ending.code:
            why = Aborted(rank=ending.rank, reason=ending.reason, code=ending.code, by=ending.by)
            raise RuntimeError(f"fastlloyd: exit code {ending.code}: {why}")


class Client(Party):
    """A client's party, in a thread of the site's job process."""

    def __init__(self, run: str = "run") -> None:
        super().__init__(run)
        self._thread: threading.Thread | None = None

    @_published
    def start(self, names: object) -> None:
        """Start this site's party.

        Parameters
        ----------
        names : list of str
            All sites, in the order of ranks, as the server counts them.

        Raises
        ------
        ValueError
            They are not the sites of this job, the caller is not its server, or the party has started already.
        """
        sites = [proxy.name for proxy in collab.clients]
        if collab.caller != _SERVER_NAME or self._thread is not None:
            raise ValueError("expected the job's server, and one call")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("expected a list of sites")
        if sorted(names) != sorted(sites):
            raise ValueError(f"expected the {len(sites)} sites of this job, each once")
        _prepare_process()
        me = PartyId(names.index(collab.site_name) + 1)

        def check(config: RunConfig, folder: Path) -> Approve | None:
            if _in_order(config, sites) != names:
                raise ConfigError(
                    "NVFlare's server counts the sites in another order than this one: compare the rosters"
                )
            approval = folder / f"{self._run}.approval.json"
            return approved(approval, config, find_own_rank(config, me.rank)) if approval.exists() else None

        config, approve = self._read(me.rank, check)
        self._begin(names, me, config)
        self._thread = threading.Thread(target=self._take_part, args=(config, approve), name="fastlloyd", daemon=True)
        self._thread.start()

    @_published
    def ended(self) -> bool:
        """Whether this site's party has ended, successfully or not."""
        return self._thread is not None and not self._thread.is_alive()

    @_final
    def leave(self) -> None:
        """Wait until the party has written its files."""
        if self._thread is not None:
            self._thread.join(_LEAVE_S)

    def _take_part(self, config: RunConfig | FastLloydError, approve: Approve | None) -> None:
        try:
            self._run_party(config, approve)
        except RuntimeError as error:
            _public.error("%s", error)


def _in_order(config: RunConfig | None, sites: Collection[str]) -> list[str]:
    """Return the sites in rank order: that of the roster, which uses NVFlare's names, or sorted by name without one.

    Raises
    ------
    ConfigError
        The roster has other clients.
    """
    if config is None or config.roster is None:
        return sorted(sites, key=lambda name: (len(name), name))
    roster = Roster.load(Path(config.roster))
    roster.check_complete()
    ranked = {entry.rank: entry.name for entry in roster.entries}
    names = [ranked[party.rank] for party in clients(len(ranked) - 1)]
    if sorted(names) != sorted(sites):
        raise ConfigError(
            f"--roster: its clients are {name_some(names)}, and the job runs at {name_some(sorted(sites))}: give the "
            "clients in the roster the names that NVFlare knows the sites by, and send the job to all of them"
        )
    return names


def _prepare_process() -> None:
    """Use one thread for sums, and reduce NVFlare's log, which has two lines per call."""
    limit_threads()
    logging.getLogger(f"{CellDispatcher.__module__}.{CellDispatcher.__qualname__}").setLevel(logging.WARNING)


def _begin_log(config: RunConfig, path: Path, rank: int) -> None:
    """Write the party's messages to its owner's file, and not to NVFlare's log.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """
    logging.getLogger("fastlloyd").propagate = False
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.touch(mode=0o600)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); check path and rights") from error
    start_log(replace(config, log_file=str(path), log_level="info"), rank)


def _has_ended(proxy: Any) -> bool:
    """Whether a site's party has ended or cannot be reached."""
    try:
        return bool(proxy(timeout=_CALL_S).ended())
    except Exception:  # whatever NVFlare raises
        return True
