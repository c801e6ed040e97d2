"""What one party keeps between runs and across a crash: its ledger, and the interrupted run.

::

    DIR/client-1/ledger.jsonl        every release of this party's data, over all runs (mode 0600)
    DIR/client-1/ledger.jsonl.head   how long the ledger was when it was last opened or closed, and its last link
    DIR/client-1/budget.json         the lifetime limit on epsilon and its delta, once a run had --budget
    DIR/client-1/unit.json           the column that names people, where the ledger counts them instead of rows
    DIR/client-1/run/...             the run under way: public values, secrets, uplinks, sets, replies (mode 0600)

Stored uplinks and replies are sent again byte for byte on resume: a mask never covers two vectors, and no noise is
drawn twice. The run's folder is removed once the run has ended well; the ledger stays.

Each file of `run/` begins with a label: version, run, name, digest, and the mark of the ledger as it was on the disk
by then. So a file that was cut, changed or taken from another run is refused, and so is a ledger that is shorter than
any label says. An honest crash gives neither: the ledger is on the disk before anything that rests on it.

Source: docs/protocol.md, "Resume"; docs/operations.md, "State directory, budget, resume".
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from fastlloyd.errors import ConfigError, Reason
from fastlloyd.privacy.chain import Mark
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.privacy.record_digest import key_path, load_key
from fastlloyd.privacy.release import Release
from fastlloyd.run.budget_terms import STATE_VERSION, Terms, problem, read_kept, write
from fastlloyd.run.config import RunConfig
from fastlloyd.wire.decode import Within, decode, load_json, show
from fastlloyd.wire.header import PartyId
from fastlloyd.wire.regular import make_directory, read_regular_bytes, sync_directory

LEDGER: Final = "ledger.jsonl"
_VALUES = "facts.json"
_KEYS = {"run_id", "plan", "data", "protocol_version", "results_version"}
_SECRETS = ("seed", "pairs", "threshold")
_SETUP = ("group", "words")
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_ROUND = re.compile(r"0|[1-9][0-9]{0,8}")
_MOST_LABEL_BYTES = 1024
_MOST_DIGITS = 7


@dataclass(frozen=True, slots=True)
class _Head:
    """What stands beside a ledger."""

    state: Literal[2]
    ledger: Mark


@dataclass(frozen=True, slots=True)
class _Label:
    """The first line of a file of `run/`; `digest` is the SHA-256 of what follows it."""

    state: Literal[2]
    run: Annotated[str, Within(32, 32)]
    name: Annotated[str, Within(1, 64)]
    ledger: Mark
    digest: Annotated[str, Within(64, 64)]


class StateDir:
    """One party's state directory.

    Parameters
    ----------
    root : str
        As given by `--state-dir`; '{client}' becomes the rank.
    me : PartyId
    resume : bool
        An interrupted run has to stand there; else nothing is made.
    new : bool
        Make it: nothing may have been released under it yet. Without it, it has to be there: a volume that is not
        mounted, or a mistyped path, must not look like a budget of which nothing is spent.

    Attributes
    ----------
    path : Path
        The party's own folder.
    terms : Terms
        What holds over all runs in it.

    Raises
    ------
    ConfigError
        The directory is not there, or is there although it should be new; it cannot be made or written, or holds no
        run to resume.
    """

    def __init__(self, root: str, me: PartyId, *, resume: bool = False, new: bool = False) -> None:
        self.path = own_folder(root, me)
        self.terms = Terms(self.path)
        self._run = self.path / "run"
        self._run_id = ""
        self._ledger: Ledger | None = None
        if resume:
            self._check_interrupted()
        else:
            self._check_made(root, me, new=new)
        try:
            make_directory(self._run, mode=0o700)
            self.path.chmod(0o700)
        except OSError as error:
            raise ConfigError(
                f"--state-dir {root}: cannot be made or written ({error.strerror}); check path and rights",
                reason=Reason.STATE,
            ) from error

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Open a party's own folder, such as DIR/client-1; raises as the class.

        Raises
        ------
        ConfigError
            It has no party's name.
        """
        rank = "0" if folder.resolve().name == "server" else folder.resolve().name.removeprefix("client-")
        if not (rank.isascii() and rank.isdigit() and len(rank) < _MOST_DIGITS):
            raise problem(f"{folder}: expected a folder named server or client-1, client-2, .., as runs make them")
        return cls(str(folder.resolve().parent), PartyId(int(rank)))

    def open_ledger(self) -> Ledger:
        """Open the ledger over all runs, and check that nothing of it is missing.

        Raises
        ------
        ConfigError
            It cannot be opened, is damaged, or is shorter than its head or a file of the interrupted run says.
        """
        ledger = Ledger(self._ledger_path)
        try:
            self._check_whole(ledger)
            self._ledger = ledger
            self.note_ledger()
        except BaseException:
            ledger.close()
            raise
        return ledger

    def note_ledger(self) -> None:
        """Write down, durably, how long the ledger is."""
        if self._ledger is not None:
            head = _Head(STATE_VERSION, self._ledger.mark)
            write(self._head_path, json.dumps(asdict(head)).encode())

    def keep_unit(self, column: str | None) -> None:
        """Keep to what the ledger counts; see `Terms.keep_unit`."""
        self.terms.keep_unit(column, empty=self._ledger is None or not self._ledger.releases)

    def start(self, values: Mapping[str, Any]) -> None:
        """Begin a new run: forget the last one, write down the public values of this one."""
        self._remove_run()
        self._run_id = values["run_id"]
        try:
            make_directory(self._run, mode=0o700)
        except OSError as error:
            raise problem(
                f"--state-dir: {self._run} cannot be made ({error.strerror}); check path and rights"
            ) from error
        self.save(_VALUES, json.dumps(dict(values), sort_keys=True).encode())

    def interrupted_run(self) -> dict[str, Any]:
        """Return what is kept of the interrupted run: id, plan, versions, and at a client the digest of its records.

        Raises
        ------
        ConfigError
            There is none to resume, or a file of it is damaged or of another version.
        """
        self._check_interrupted()
        label, content = self._read(_VALUES)
        self._run_id = label.run
        try:
            values = load_json(content)
            if not isinstance(values, dict) or not {"run_id", "plan"} <= set(values) <= _KEYS:
                raise ValueError("expected run_id, plan, versions and at a client data")
            if values["run_id"] != label.run or not _RUN_ID.fullmatch(label.run):
                raise ValueError(f"expected 32 hexadecimal digits as run_id, got {show(values['run_id'])}")
            if not isinstance(values["plan"], dict) or not isinstance(values.get("data", ""), str):
                raise ValueError("expected an object as plan and a text as data")
        except ValueError as error:
            raise self._damaged(_VALUES, error) from error
        for path in self._files():
            self._read(path.name)
        return values

    def save(self, name: str, content: bytes) -> None:
        """Keep content under a name, durably: written aside, synced, renamed.

        Raises
        ------
        ConfigError
            The disk is full or not writable.
        """
        mark = Ledger().mark if self._ledger is None else self._ledger.mark
        label = _Label(STATE_VERSION, self._run_id, name, mark, hashlib.sha256(content).hexdigest())
        write(self._run / name, json.dumps(asdict(label)).encode() + b"\n" + content)

    def load(self, name: str) -> bytes | None:
        """Return what was kept under a name, or None.

        Raises
        ------
        ConfigError
            The file is damaged.
        """
        return self._read(name)[1] if (self._run / name).exists() else None

    def rounds(self, prefix: str) -> dict[int, bytes]:
        """Return what was kept as prefix-T for any round T.

        Raises
        ------
        ConfigError
            A file is damaged.
        """
        kept = [path.name for path in self._files() if path.name.startswith(f"{prefix}-")]
        return {int(name.removeprefix(f"{prefix}-")): self._read(name)[1] for name in kept}

    def finish(self) -> None:
        """Forget the run that ended well, its secrets first."""
        self.note_ledger()
        for secret in _SECRETS:
            with contextlib.suppress(OSError):
                (self._run / secret).unlink(missing_ok=True)
        self._remove_run()

    @property
    def interrupted(self) -> bool:
        """Whether a run that has not ended well stands here."""
        return (self._run / _VALUES).exists()

    @property
    def keeps_own(self) -> bool:
        """Whether it is the run that was started or resumed here."""
        return bool(self._run_id) and self.interrupted

    def _check_made(self, root: str, me: PartyId, *, new: bool) -> None:
        """Refuse to take a missing directory for one under which nothing was spent, and the other way round."""
        if not new:
            check_made(root, me)
        elif self._ledger_path.exists() and self._ledger_path.stat().st_size:
            raise problem(
                f"{self.path} holds the ledger of earlier runs, which count (fastlloyd ledger {root} shows them): "
                "init-state and --new-state are for a party that has none; use the folder without them"
            )

    @property
    def _ledger_path(self) -> Path:
        return self.path / LEDGER

    def _check_interrupted(self) -> None:
        if not self.interrupted:
            raise ConfigError(
                f"--resume: {self.path} holds no interrupted run; start it without --resume", reason=Reason.RESUME
            )

    @property
    def _head_path(self) -> Path:
        return self.path / "ledger.jsonl.head"

    def _check_whole(self, ledger: Ledger) -> None:
        """Compare the ledger with its head and with the labels of the interrupted run; its key must be there."""
        marks = [(path.name, mark) for path in self._files() if (mark := self._mark_in(path)) is not None]
        head = read_kept(_Head, self._head_path)
        if head is not None:
            marks.append((self._head_path.name, head.ledger))
        elif ledger.chained:
            raise problem(
                f"expected {self._head_path} beside the ledger, got none; restore both from their newest copy"
            )
        if any(release.data for release in ledger.releases):
            load_key(key_path(self._ledger_path), create=False)
        for name, mark in marks:
            if not ledger.includes(mark):
                raise problem(
                    f"expected the ledger of {self.path} to go on from the {mark.entries} entries that {name} notes, "
                    f"got another one of {ledger.mark.entries}: it was cut, changed or restored from an old copy; "
                    "restore the newest copy"
                )

    def _mark_in(self, path: Path) -> Mark | None:
        """Return the mark in a file's label, if it has one; a new run does not care for a damaged file."""
        try:
            first = read_regular_bytes(path, _MOST_LABEL_BYTES).partition(b"\n")[0]
            return decode(_Label, load_json(first), "the label").ledger
        except (OSError, ValueError):
            return None

    def _files(self) -> Iterator[Path]:
        """Yield the files of the interrupted run; a file that a crash left half-written is not one of them."""
        known = (_VALUES, *_SECRETS, *_SETUP)
        try:
            paths = sorted(self._run.iterdir())
        except OSError as error:
            raise problem(f"--state-dir: {self._run} cannot be read ({error.strerror}); check rights") from error
        for path in paths:
            kind, _, number = path.name.partition("-")
            if path.name in known or (kind in ("uplink", "reply", "set") and _ROUND.fullmatch(number)):
                yield path

    def _read(self, name: str) -> tuple[_Label, bytes]:
        """Read a file of the interrupted run, and check it against its label."""
        try:
            first, _, content = read_regular_bytes(self._run / name).partition(b"\n")
            label = decode(_Label, load_json(first, most_bytes=_MOST_LABEL_BYTES), "the label")
            if label.name != name or (self._run_id and label.run != self._run_id):
                raise ValueError(f"it belongs to {label.name!r} of run {label.run}")
            if label.digest != hashlib.sha256(content).hexdigest():
                raise ValueError("its content does not fit its digest")
        except OSError as error:
            raise problem(f"--resume: {self._run / name} cannot be read ({error.strerror})", Reason.RESUME) from error
        except ValueError as error:
            raise self._damaged(name, error) from error
        return label, content

    def _damaged(self, name: str, error: ValueError) -> ConfigError:
        return problem(
            f"--resume: {self._run / name} is damaged or of another version of fastlloyd ({error}); resume with the "
            "version that wrote it, or start anew without --resume (what was released stays in the ledger)",
            Reason.RESUME,
        )

    def _remove_run(self) -> None:
        """Remove the interrupted run."""
        try:
            shutil.rmtree(self._run)
            sync_directory(self.path)
        except OSError as error:
            raise problem(f"--state-dir: {self._run} cannot be removed ({error.strerror}); check its rights") from error


def interrupted_since(root: str, me: PartyId) -> float | None:
    """Return when the run began, in seconds since the epoch, that stands interrupted in a party's state directory."""
    try:
        return (own_folder(root, me) / "run" / _VALUES).stat().st_mtime
    except OSError:
        return None


def interrupted_protocol(root: str, me: PartyId) -> str | None:
    """Return the protocol of the run that stands interrupted in a party's state directory; None if none does.

    Raises
    ------
    ConfigError
        It is damaged.
    """
    if interrupted_since(root, me) is None:
        return None
    plan = StateDir(root, me, resume=True).interrupted_run()["plan"]
    return str(plan.get("protocol"))


def check_budgets(config: RunConfig, ranks: int, planned: Sequence[Release], delta: float) -> None:
    """Refuse what the ledgers of the parties on this machine cannot afford, before several runs begin.

    Parameters
    ----------
    config : RunConfig
    ranks : int
        Clients, and the server.
    planned : sequence of Release
        Of all these runs.
    delta : float
        Of a budget that is set with them.

    Raises
    ------
    BudgetError
        A ledger and these runs together would exceed its budget.
    ConfigError
        A state directory is damaged, or holds another budget.
    """
    for me in map(PartyId, range(ranks)):
        if config.state_dir is None or not (own_folder(config.state_dir, me) / LEDGER).exists():
            continue
        state = StateDir(config.state_dir, me)
        with state.open_ledger() as ledger:
            limit = state.terms.limit(config.budget, delta, stated=config.budget_delta)
            if limit is not None:
                ledger.check_budget(planned, limit.delta, limit.epsilon)


def check_made(root: str, me: PartyId) -> None:
    """Refuse a state directory without a ledger of this party.

    Raises
    ------
    ConfigError
        It was never made, or it is not where it was.
    """
    folder = own_folder(root, me)
    if (folder / LEDGER).exists():
        return
    others = [] if me.is_server else sorted(path.parent.name for path in folder.parent.glob(f"client-*/{LEDGER}"))
    renumbered = "" if len(others) != 1 else f", or, if the roster gave this party another rank, rename {others[0]}"
    raise problem(
        f"--state-dir {root}: expected the state of {me} in {folder}, found no ledger there. If runs were made "
        f"before, their ledger is missing: check the path, and that its disk is mounted{renumbered}. Before this "
        f"party's first run, make it: fastlloyd init-state {root} --rank {me.rank}, or --new-state, once"
    )


def own_folder(root: str, me: PartyId) -> Path:
    """Return a party's folder in `--state-dir`."""
    return Path(root.replace("{client}", str(me.rank))) / ("server" if me.is_server else f"client-{me.rank}")


def resume_words(state: Path) -> str:
    """Say of a run that failed that it can go on."""
    return (
        f"what was done is kept in {state}: fix the cause, and run the same command with --resume at all parties: it "
        "goes on from there and spends nothing twice"
    )
