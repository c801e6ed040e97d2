"""What each party writes at the end: result files and report, and what it says on its own terminal.

The same for every protocol: report, table, plots and files follow from the values of an `Outcome`. On a shared folder
one party writes the shared files; every client writes the labels of its own records (mode 0600).

Source: docs/report.md; docs/protocol.md, "Output".
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.dataset import Dataset
from fastlloyd.errors import ConfigError, FastLloydError, InternalError, Interrupted
from fastlloyd.gate.decisions import Decision
from fastlloyd.gate.held import SHOWN_DIGITS
from fastlloyd.gate.store import draft_folder, drop_draft, hold
from fastlloyd.privacy.accountant import ACCOUNTANT, spent
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.privacy.release import Release
from fastlloyd.report import document
from fastlloyd.report.earlier import Earlier, find_earlier
from fastlloyd.report.figure.drawing import Drawing
from fastlloyd.report.figure.paint import file_of
from fastlloyd.report.figure.released import warning_words
from fastlloyd.report.files import PRIVATE_MODE, RunFolder, clusters_csv, labels_csv, output_folder
from fastlloyd.report.page import result as page
from fastlloyd.report.page.render import HOW_TO_INSTALL, available
from fastlloyd.report.signed import sign_report
from fastlloyd.run.budget_terms import Limit, Terms
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Claim, Outcome, Result
from fastlloyd.run.run_file import to_toml, with_absolute_paths
from fastlloyd.run.session import Session
from fastlloyd.run.state import StateDir, own_folder
from fastlloyd.wire.header import PartyId

_log = logging.getLogger(__name__)
_REPEATED = "this ledger started empty: repeated runs on the same data add up (--state-dir counts them)"


class ServerFiles:
    """The files of a server that learns no result: server.json, and nothing in it that this server may not see.

    Parameters
    ----------
    session : Session
    """

    left_out: Sequence[str] = ()

    def __init__(self, session: Session) -> None:
        self._session = session
        self._folder = RunFolder(session.config.output, session.run_id, session.me)
        self._earlier = _find_earlier(session)

    @property
    def last_line(self) -> str:
        """Say that all is over, and who has the result."""
        return f"done: the clients have the result; what was released stands in {self._folder.path / 'server.json'}"

    def choose_writer(self, candidates: Sequence[PartyId]) -> None:
        """Nothing is shared."""

    def write(self, outcome: Outcome) -> None:
        """Write server.json."""
        record = outcome.record
        if record is None:
            raise InternalError("a server without a result has no report")
        self._session.ledger.close()
        try:
            shared = _shared(self._session, record.common, outcome)
            report = document.build_server_report(shared, releases=record.releases)
            self._folder.write("server.json", document.encode(report))
            # A client that shares the folder has its marker there, or has written its report, or will if it is let.
            own_run, review = self._session.run_id.hex(), self._session.config.review
            if (
                not review
                and len(self._folder.here()) == 1
                and find_earlier(self._folder.path).runs.get("report.json") != own_run
            ):
                self._earlier.clear(lambda _: True, self._folder.written)
        finally:
            self._folder.discard()

    def discard(self) -> None:
        """Leave no marker behind."""
        self._folder.discard()

    def announce(self, note: Callable[[str], None]) -> None:
        """The server reports nothing: the result is the clients'."""


class ResultFiles:
    """A party's files: its ledger while it runs, its labels, and the shared files if it is the one to write them.

    Parameters
    ----------
    session : Session
        Without a state directory it gets a ledger of this run only, in the folder.
    folder : str, optional
        Where the files go; by default as `--output` says.

    Attributes
    ----------
    left_out : list of str
        Why optional files, which are pictures and the page, were not written.
    """

    def __init__(self, session: Session, folder: str | None = None) -> None:
        self._session = session
        self._folder = RunFolder(session.config.output if folder is None else folder, session.run_id, session.me)
        self._own_ledger = None if session.config.state_dir is not None else self._folder.ledger_path
        self._writes_shared = False
        self._here: frozenset[int] = frozenset()
        self.left_out: list[str] = []
        self._document: dict[str, Any] | None = None
        self._centroids: NDArray[np.float64] | None = None
        try:
            self._earlier = _find_earlier(session) if folder is None else Earlier(self._folder.path, {}, ())
            if self._own_ledger is not None:
                session.ledger = Ledger(self._own_ledger)
        except BaseException:
            self._folder.discard()
            raise

    @property
    def last_line(self) -> str:
        """Say that all is over."""
        return "done"

    def choose_writer(self, candidates: Sequence[PartyId]) -> None:
        """Find out whether to write the shared files; before the final exchange, while all are there."""
        self._writes_shared = self._folder.writes_shared(candidates)
        self._here = self._folder.here()

    def write(self, outcome: Outcome) -> None:
        """Write this party's labels, and the shared files if this party is the one to do it."""
        own: dict[str, str | Iterable[str]] = dict(outcome.raw_files)
        if outcome.raw_labels is not None:
            own[f"labels_{self._session.me.rank}.csv"] = labels_csv(outcome.raw_labels, outcome.raw_rows)
        for name, text in own.items():
            self._folder.write(name, text, mode=PRIVATE_MODE)
        if self._writes_shared and outcome.result is not None:
            self._write_shared(outcome.result, outcome, list(own))
        # Of the earlier run, remove this party's files. The party that writes for all also removes those of parties
        # that are not here.
        me, shared = self._session.me.rank, self._writes_shared
        self._earlier.clear(lambda rank: rank == me or (shared and rank not in self._here), self._folder.written)
        self._session.ledger.close()
        self._remove_own_ledger()
        self._folder.discard()

    def _write_shared(self, result: Result, outcome: Outcome, own: list[str]) -> None:
        texts = {
            "config.toml": self._run_file(),
            "ledger.jsonl": "".join(release.to_json() + "\n" for release in result.releases),
            **result.files,
            **_clusters(result),
        }
        for name, text in texts.items():
            if name == "config.toml":
                self._folder.write(name, text)
            else:
                self._folder.write(name, text, mode=PRIVATE_MODE)
        self._centroids = result.centroids
        names = [*texts, "report.json", *own, *self._of_others(own)]
        self._write_report(self._report(result, outcome, names))
        self._write_optional(result, outcome, {name: text.encode() for name, text in texts.items()}, names)

    def _of_others(self, own: Iterable[str]) -> list[str]:
        """Return the files that the other parties write to this folder at the same time."""
        me = self._session.me.rank
        named = [name.replace(f"_{me}.", f"_{rank}.") for rank in self._here - {0, me} for name in own]
        return named if me == 0 or 0 not in self._here else [*named, "server.json"]

    def _write_report(self, report: dict[str, Any]) -> None:
        self._folder.write("report.json", document.encode(report), mode=PRIVATE_MODE)
        self._document = report

    def _write_optional(self, result: Result, outcome: Outcome, known: dict[str, bytes], names: Sequence[str]) -> None:
        """Write pictures and the page once all else is written, and list them in the report; or leave them out."""
        optional, report = list[str](), None
        forms = self._session.config.figures
        shown = self._document or {}
        for name, picture in draw_result(self._session.inputs.dataset, result, shown, self.left_out, forms).items():
            with _noting(self.left_out, name):
                self._folder.write(name, picture, mode=PRIVATE_MODE)
                known[name] = picture
                optional.append(name)
        if available():
            known = {name: known[name] for name in page.FILES if name in known}
            with _noting(self.left_out, page.NAME):
                made = self._report(result, outcome, [*names, *optional, page.NAME])
                text = page.result_page(made, result.centroids, known)
                self._folder.write(page.NAME, text, mode=PRIVATE_MODE)
                optional.append(page.NAME)
                report = made
        if not optional:
            return
        try:
            self._write_report(report or self._report(result, outcome, [*names, *optional]))
        except ConfigError as error:  # the report without them stays
            self._folder.remove(optional)
            self.left_out.append(f"{', '.join(optional)}: left out ({error}); the other files are whole")

    def _report(self, result: Result, outcome: Outcome, names: Sequence[str]) -> dict[str, Any]:
        """Return the report of a run with these files, signed where the parties sign."""
        made = document.build_report(
            _shared(self._session, result.common, outcome),
            claim=result.claim,
            privacy=privacy_entry(result.claim, result.releases, *self._lifetime()),
            evaluation=evaluate_result(self._session, result),
            result=result.entry,
            quality=result.quality.to_dict(),
            output=names,
            signatures=outcome.signatures,
        )
        if outcome.signatures is not None:
            made["signatures"]["writer"]["signature"] = sign_report(made, self._session.identity)
        return made

    def _lifetime(self) -> tuple[Ledger | None, Limit | None]:
        """Return the ledger over all runs, and the budget that it is held to, where this party keeps them."""
        root, ledger = self._session.config.state_dir, self._session.ledger
        return (ledger, Terms(own_folder(root, self._session.me)).kept) if root and ledger.releases else (None, None)

    def _run_file(self) -> str:
        """Return the configuration, so that it reads back from the output folder."""
        return to_toml(self._session.config, self._folder.path)

    def _remove_own_ledger(self) -> None:
        """Without a state directory the run's ledger now stands in ledger.jsonl."""
        if self._own_ledger is not None:
            for path in (self._own_ledger, self._own_ledger.with_name(self._own_ledger.name + ".key")):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Leave nothing half-written; a ledger with releases in it stays, for they were paid for."""
        self._session.ledger.close()
        if self._session.ledger.releases and self._own_ledger is not None:
            kept = f"interrupted-{self._session.run_id.hex()[:8]}-client-{self._session.me.rank}.ledger.jsonl"
            with contextlib.suppress(OSError):
                self._own_ledger.replace(self._folder.path / kept)
        self._remove_own_ledger()
        self._folder.discard()

    def announce(self, note: Callable[[str], None]) -> None:
        """Print the table, if this party wrote the shared files; values only where they may be printed."""
        if self._document is None:
            return
        from fastlloyd.report.table import render

        note(render(self._document, self._centroids if self._session.prints else None))
        note(f"files in {self._folder.path}")
        if not available():
            note(f"no {page.NAME}: {HOW_TO_INSTALL}")


class HeldFiles(ResultFiles):
    """A party's files under `--review`: whole in its state folder, until a person of its site decides.

    Parameters
    ----------
    session : Session
    state : Path
        The party's state folder.
    """

    def __init__(self, session: Session, state: Path) -> None:
        self._state = state
        # Signs that they are held.
        self._key = None if session.roster is None else session.identity.key
        self._last: Decision | None = None
        super().__init__(session, str(draft_folder(state, session.run_id.hex())))

    @property
    def last_line(self) -> str:
        """Say that all is over, and that nothing has left."""
        return "done: nothing has left this party's state folder"

    def write(self, outcome: Outcome) -> None:
        """Write this party's files, and let them wait."""
        super().write(outcome)
        config, me = self._session.config, self._session.me
        own = [name for name in self._folder.written if name.startswith("labels_") or name in outcome.raw_files]
        waiting = Decision(
            run=self._session.run_id.hex(),
            what="held",
            output=str(output_folder(config.output, me).resolve()),
            files=dict.fromkeys(own, ""),
            own=tuple(sorted(own)),
            key_file="" if self._key is None else str(output_folder(config.key or "", me).resolve()),
        )
        self._last = hold(self._state, waiting, self._key)

    def discard(self) -> None:
        """Leave nothing half-written."""
        super().discard()
        drop_draft(self._state, self._session.run_id.hex())

    def announce(self, note: Callable[[str], None]) -> None:
        """Say that a result waits, or that it was decided about before the run was resumed; no value of it."""
        if self._last is None:
            return
        run, me, last = self._last.run[:SHOWN_DIGITS], self._session.me, self._last
        if last.what != "held":
            note(f"{me}: run {run} was {last.what} at {last.at}, before it was resumed; nothing more is held")
            return
        note(
            f"{me}: the result of run {run} is held in {self._state}; look at it and let it go with `fastlloyd release "
            f"{self._state}`, or refuse it with `fastlloyd discard {self._state}`"
        )

    def _run_file(self) -> str:
        """Return the configuration with absolute paths: a person may release it to any folder."""
        return to_toml(with_absolute_paths(self._session.config))


Files = ServerFiles | ResultFiles
"""What a party writes, from the start of its session to the end."""


def _find_earlier(session: Session) -> Earlier:
    """Return what another run has left in this party's folder: there is nothing unless `--overwrite` allowed it."""
    folder = output_folder(session.config.output, session.me)
    earlier = find_earlier(folder)
    replaced = session.config.overwrite and not earlier.is_of(session.run_id.hex())
    return earlier if replaced else Earlier(folder, {}, ())


def privacy_entry(
    claim: Claim, releases: Sequence[Release], ledger: Ledger | None = None, limit: Limit | None = None
) -> dict[str, Any]:
    """Return the report's entry: the claim's numbers, and what was spent by this run and by all in the ledger.

    Parameters
    ----------
    claim : Claim
    releases : sequence of Release
        Of this run.
    ledger : Ledger, optional
        Over all runs; None if it holds this run only.
    limit : Limit, optional
        The budget of the party's state directory; what all have spent is composed at its delta.
    """
    entry = {
        "epsilon": document.finite(claim.epsilon),
        "delta": claim.delta,
        "spent_epsilon": document.finite(spent(releases, claim.delta)) if claim.private else None,
        "neighbours": claim.neighbours,
        "unit": claim.unit,
        "accountant": ACCOUNTANT,
        "budget": None if limit is None else limit.epsilon,
        "releases": document.public_releases([release.to_dict() for release in releases]),
    }
    if ledger is None:
        return {**entry, "note": _REPEATED}
    delta = claim.delta if claim.lifetime_delta is None else claim.lifetime_delta
    delta = delta if limit is None else limit.delta
    lifetime = document.finite(ledger.epsilon(delta, claim.neighbours)) if claim.private else None
    return {**entry, "lifetime_epsilon": lifetime, "lifetime_delta": delta}


def _shared(session: Session, common: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    """Return the entries that report.json and server.json share."""
    return {**common, "traffic": outcome.traffic, "machine": document.machine(session.mpi)}


@contextlib.contextmanager
def _noting(left_out: list[str], name: str) -> Iterator[None]:
    """Note what keeps an optional file from being made: the run is paid for, and its result does not depend on it."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:  # Python 3.11 wraps what a signal raises while a class is made: in an import, say
            if isinstance(cause, Interrupted):
                raise cause from None
            cause = cause.__cause__ or cause.__context__
        _log.debug("%s is left out", name, exc_info=True)
        why = str(error) if isinstance(error, FastLloydError) else f"{type(error).__name__}: {error}"
        left_out.append(f"{name} is left out ({why}); the other files are whole")


def _clusters(result: Result) -> dict[str, str]:
    """Return the file for people about each cluster, where the centres are shown."""
    if result.centroids is None:
        return {}
    text = clusters_csv(result.features, result.centroids, result.noisy_sizes, result.quality, result.bounds)
    return {"clusters.csv": text}


def draw_result(
    dataset: Dataset | None,
    result: Result,
    report: Mapping[str, Any],
    left_out: list[str],
    forms: Sequence[str] = ("png",),
) -> dict[str, bytes]:
    """Draw pictures and figures of released values; what cannot be drawn is noted in `left_out`.

    Parameters
    ----------
    dataset : Dataset or None
        Public.
    result : Result
    report : mapping
        The report of the run.
    left_out : list of str
    forms : sequence of str
        Of the figures; a picture is a PNG. SVG needs no matplotlib.
    """
    centroids = result.centroids
    if centroids is None or not np.isfinite(centroids).all():
        return {}
    from fastlloyd.report import plot

    draw: dict[str, Callable[[], bytes]] = {}
    if dataset is not None and dataset.image_shape is not None:
        draw["palette.png"] = partial(
            plot.palette_picture,
            dataset.image_shape,
            dataset.values,
            centroids,
            doubtful=bool(result.quality.warnings),
        )
    points = None if dataset is None else dataset.values
    for form in forms:
        for kind in figure_kinds(result) if form == "svg" or plot.available() else ():
            draw[f"{kind}.{form}"] = partial(_figure_file, kind, result, report, points, form)
    drawn = {}
    for name, make in draw.items():
        with _noting(left_out, name):
            drawn[name] = make()
    return drawn


def figure_kinds(result: Result) -> list[str]:
    """Return which figures a result with centres has, by the names of their files."""
    from fastlloyd.report.figure.profile import MOST_PANELS

    k, d = 0 if result.centroids is None else len(result.centroids), len(result.features)
    kinds = {"centroids": True, "profiles": d > 1 and k <= MOST_PANELS, "plane": d == 2}
    return [*(kind for kind, there in kinds.items() if there), *([] if result.costs is None else ["elbow"])]


def draw_figure(
    kind: str, result: Result, report: Mapping[str, Any], public_points: NDArray[np.float64] | None = None
) -> Drawing:
    """Draw one of `figure_kinds`; `report` is that of the result."""
    from fastlloyd.report.figure import heat, plane, profile
    from fastlloyd.report.figure.released import Centres, made_words

    if kind == "elbow":
        assert result.costs is not None
        return plane.elbow(result.costs, result.chosen, made_words(report))
    assert result.centroids is not None
    released = Centres.of(report, result.centroids, np.stack([result.bounds.lo, result.bounds.hi]))
    if kind == "plane":
        return plane.plane(released, public_points)
    return {"centroids": heat.heat_map, "profiles": profile.profiles}[kind](released)


def _figure_file(
    kind: str, result: Result, report: Mapping[str, Any], points: NDArray[np.float64] | None, form: str
) -> bytes:
    return file_of(draw_figure(kind, result, report, points), form, warning_words(report))


def evaluate_result(session: Session, result: Result) -> dict[str, float | None] | None:
    """Compare with the public data set, if asked; figures are None where there is nothing to compare."""
    dataset = session.inputs.dataset
    if not session.config.evaluate or dataset is None:
        return None
    if result.evaluated is None:
        return {"nicv": None, "nicv_central": None}
    from fastlloyd.data.bounds import scale
    from fastlloyd.kmeans.metrics import evaluate

    values, labels = dataset.values, dataset.labels
    if result.evaluated_rows is not None:
        values = values[result.evaluated_rows]
        labels = None if labels is None else labels[result.evaluated_rows]
    columns = [dataset.names.index(name) for name in result.features]
    return evaluate(scale(values[:, columns], result.bounds), result.evaluated, labels)


def check_folders(config: RunConfig, me: PartyId) -> None:
    """Refuse a party's folders that do not fit, before anybody waits.

    Raises
    ------
    ConfigError
        Another run's files stand in the output folder (a resumed run has its own), or the state directory is not there,
        cannot be written, or holds no run to resume.
    """
    if not config.overwrite and not config.resume:
        find_earlier(output_folder(config.output, me)).refuse(None)
    if config.state_dir is not None and (config.row.resumes or not config.resume):
        StateDir(config.state_dir, me, resume=config.resume, new=config.new_state)
