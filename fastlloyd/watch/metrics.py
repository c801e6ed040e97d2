"""The metrics of one party's run as a file in Prometheus' text format, for node_exporter's textfile collector.

A separate thread writes, so no round waits for the disk. Each write is atomic, within a second of a change and every
15 seconds without one, so that the age of the file shows whether the process is gone.

Source: Prometheus, "Exposition formats" and "Metric and label naming"; docs/operations.md, "Monitoring".
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from fastlloyd.errors import ConfigError, Reason
from fastlloyd.report.view import STAGES, View
from fastlloyd.version import __version__
from fastlloyd.wire.regular import replace_file

MODE = 0o644
"""The collector runs as another user."""
EVERY_S = 15.0
_LOOK_S = 1.0
_END_S = 5.0
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

_log = logging.getLogger(__name__)


def render(view: View, task: str) -> str:
    """Write the values of a run in the text format, version 0.0.4.

    Parameters
    ----------
    view : View
    task : str
        The value of the label `task`, which distinguishes several runs on one host.
    """
    own = {"task": task, "party": str(view.me)}
    return "".join(
        f"# HELP {name} {about}\n# TYPE {name} {kind}\n{values}" for name, kind, about, values in _all(view, own)
    )


def _all(view: View, own: dict[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type, help and samples of each metric."""

    def one(name: str, kind: str, about: str, value: float, **more: str) -> tuple[str, str, str, str]:
        return name, kind, about, _sample(name, own | more, value)

    info = {"version": __version__, "protocol": view.protocol, "run": view.run}
    yield one("fastlloyd_run_info", "gauge", "Version, protocol and id of the run; always 1.", 1, **info)
    stages = "".join(
        _sample("fastlloyd_run_stage", own | {"stage": stage}, float(view.stage == stage)) for stage in STAGES
    )
    yield "fastlloyd_run_stage", "gauge", "1 for the stage that the run is in, 0 for all others.", stages
    yield one("fastlloyd_run_start_time_seconds", "gauge", "When the process began, in Unix time.", view.started)
    yield one("fastlloyd_run_clients", "gauge", "Clients that take part.", view.clients)
    yield one("fastlloyd_run_clients_joined", "gauge", "Clients that have joined.", len(view.joined))
    yield one("fastlloyd_run_clients_included", "gauge", "Clients in the last closed round.", view.included)
    yield one("fastlloyd_run_epsilon", "gauge", "Epsilon that the run asks for.", view.epsilon)
    yield one("fastlloyd_run_setup_seconds", "gauge", "Seconds before round 0; 0 until then.", view.setup_seconds)
    yield one("fastlloyd_run_rounds_planned", "gauge", "Rounds of the run; 0 until the first is closed.", view.rounds)
    yield one("fastlloyd_run_rounds_closed", "gauge", "Rounds that are closed.", view.rounds_done)
    yield one("fastlloyd_run_last_round_seconds", "gauge", "Seconds of the last closed round.", view.round_seconds)
    yield one("fastlloyd_run_rounds_seconds_total", "counter", "Seconds of all closed rounds.", view.rounds_seconds)
    about = "Payload of this party in closed rounds, sent and received."
    yield one("fastlloyd_run_payload_bytes_total", "counter", about, view.payload_bytes)
    name = "fastlloyd_run_link_bytes_total"
    ways = {"sent": view.sent_bytes, "received": view.received_bytes}
    samples = "".join(_sample(name, own | {"direction": way}, value) for way, value in ways.items())
    yield name, "counter", "Bytes on this party's links in set-up and closed rounds, all headers included.", samples
    if view.budget:
        about = "Lifetime limit on epsilon of this party's ledger."
        yield one("fastlloyd_run_budget_epsilon", "gauge", about, view.budget)
        about = "What is left of the lifetime limit on epsilon after this run."
        yield one("fastlloyd_run_budget_left_epsilon", "gauge", about, view.budget_left)
    if view.certificate_ends:
        about = "When this party's certificate expires, in Unix time."
        yield one("fastlloyd_run_certificate_end_time_seconds", "gauge", about, view.certificate_ends)
    if view.exit_code is not None:
        yield one("fastlloyd_run_end_time_seconds", "gauge", "When the run ended, in Unix time.", view.ended)
        yield one("fastlloyd_run_exit_code", "gauge", "Exit code, once the run has ended.", view.exit_code)


def render_site(
    task: str,
    party: str,
    *,
    alive: float,
    looked: float,
    offers: Mapping[str, int],
    code: int | None,
    ended: float | None = None,
) -> str:
    """Write the values of a site's service in the same format.

    Parameters
    ----------
    task, party : str
        Values of these labels.
    alive, looked : float
        When the service wrote this, and when it last looked for offers, in Unix time.
    offers : mapping of str to int
        How many offers are in each state.
    code : int or None
        Exit code of the run that ended last; None if none has ended since the service was started.
    ended : float, optional
        When a service that looks once (`--once`, by a timer) ended, in Unix time: until the next it is not alive.
    """
    own = {"task": task, "party": party}

    def one(name: str, about: str, samples: str) -> str:
        return f"# HELP {name} {about}\n# TYPE {name} gauge\n{samples}"

    names = ("fastlloyd_site_alive_time_seconds", "fastlloyd_site_look_time_seconds", "fastlloyd_site_offers")
    text = one(names[0], "When the service was last alive, in Unix time.", _sample(names[0], own, alive))
    text += one(names[1], "When the service last looked for offers, in Unix time.", _sample(names[1], own, looked))
    counts = "".join(_sample(names[2], own | {"state": state}, count) for state, count in sorted(offers.items()))
    text += one(names[2], "Offers by state.", counts)
    if code is not None:
        name = "fastlloyd_site_last_exit_code"
        text += one(name, "Exit code of the run that ended last.", _sample(name, own, code))
    if ended is not None:
        name = "fastlloyd_site_end_time_seconds"
        text += one(name, "When a service that looks once has ended, in Unix time.", _sample(name, own, ended))
    return text


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    written = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
    return f"{name}{{{written}}} {value!r}\n"


class MetricsFile:
    """Keeps the file up to date until the run has ended.

    Parameters
    ----------
    path : Path
    view : View
    look_s, every_s : float
        How often to look for a change, and to write without one.

    Raises
    ------
    ConfigError
        It cannot be written. Later a failed write is only logged.
    """

    def __init__(self, path: Path, view: View, *, look_s: float = _LOOK_S, every_s: float = EVERY_S) -> None:
        self._path = path
        self._view = view
        self._look_s, self._every_s = look_s, every_s
        self._over = threading.Event()
        self._written = ""
        self._failed = False
        try:
            self._write()
        except OSError as error:
            raise ConfigError(
                f"--metrics {path}: cannot be written ({error.strerror}); check path and rights", reason=Reason.OUTPUT
            ) from error
        self._thread = threading.Thread(target=self._keep, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the end of the run; do not wait for a disk that hangs."""
        self._over.set()
        self._thread.join(_END_S)

    def _keep(self) -> None:
        last = time.monotonic()
        over = False
        while not over:
            over = self._over.wait(self._look_s)
            if over or time.monotonic() - last >= self._every_s or self._text() != self._written:
                last = time.monotonic()
                try:
                    self._write()
                except OSError as error:
                    if not self._failed:
                        _log.warning("--metrics %s: cannot be written any longer (%s)", self._path, error.strerror)
                    self._failed = True

    def _write(self) -> None:
        text = self._text()
        replace_file(self._path, [text.encode()], mode=MODE)
        self._written = text

    def _text(self) -> str:
        return render(self._view, self._path.stem)
