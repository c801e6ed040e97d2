"""The ledger of decisions: the results of a party that wait for a person, were released, or were discarded.

A file of JSON lines in the party's state folder, mode 0600. Each line has the digest of all lines before it and, if the
party has a key, its signature::

    held                  a run under `--review` has ended; its files wait in held/RUN
    held     -> released  a person has released them
    held     -> discarded a person has discarded them

A line is written before its decision is carried out, so that no result leaves without one. It does not concern privacy:
the privacy ledger has what a run has spent, whatever is decided here.

Source: docs/sites.md, "A gate before release"; docs/protocol.md, "Decisions".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fastlloyd.crypto.link.identity import sign_with, verifies_with
from fastlloyd.errors import ConfigError, Reason
from fastlloyd.randomness import domains
from fastlloyd.wire.decode import Within, decode, load_json
from fastlloyd.wire.regular import read_regular_bytes, replace_file, sync_directory
from fastlloyd.wire.values import canonical

NAME = "decisions.jsonl"
MODE = 0o600
MOST_NOTE = 2000
"""Longest note, in characters."""
_MOST_BYTES = 1 << 26
_FIRST = hashlib.sha256(domains.DECISIONS).hexdigest()
_HEX = frozenset("0123456789abcdef")

What = Literal["held", "released", "discarded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One line of the ledger.

    Attributes
    ----------
    decision : int
        Version of this format, 1.
    previous : str
        SHA-256 of a label and all lines before it, with their ends; hexadecimal.
    run : str
        The run's id, 32 hexadecimal digits.
    what : {'held', 'released', 'discarded'}
    at : str
        UTC, as ISO 8601, by the clock of the site.
    note : str
        Remark of the person who decided.
    output : str
        The output folder of the run (held) or of the release (released); else empty.
    files : mapping of str to str
        Names of the files that wait or were released, with their digests under the key of the privacy ledger
        (`privacy.record_digest`).
    own : tuple of str
        Of these, the names of private files of this party.
    key_file : str
        Path of the run's key; empty without a roster.
    public_key : str
        Ed25519 key that the line is signed with, hexadecimal; empty: not signed.
    signature : str
        Over all other fields, hexadecimal; empty: not signed.
    """

    decision: Literal[1] = 1
    previous: Annotated[str, Within(64, 64)] = _FIRST
    run: Annotated[str, Within(32, 32)]
    what: What
    at: Annotated[str, Within(1, 40)] = ""
    note: Annotated[str, Within(0, MOST_NOTE)] = ""
    output: Annotated[str, Within(0, 1 << 14)] = ""
    files: Annotated[Mapping[str, str], Within(0, 1 << 16)]
    own: tuple[str, ...] = ()
    key_file: Annotated[str, Within(0, 1 << 14)] = ""
    public_key: Annotated[str, Within(0, 64)] = ""
    signature: Annotated[str, Within(0, 128)] = ""

    def __post_init__(self) -> None:
        if not set(self.run) <= _HEX:
            raise ValueError(f"expected hexadecimal digits as run, got {self.run!r}")
        for name in self.files:
            # A changed file must not make a release write elsewhere.
            if not name or Path(name).name != name or name.startswith(".") or not name.isprintable():
                raise ValueError(f"expected the name of a file, got {name!r}")
        if not set(self.own) <= self.files.keys():
            raise ValueError("expected own to name some of the files")

    @property
    def names(self) -> tuple[str, ...]:
        """The files, report.json last: if it exists, all do."""
        return tuple(sorted(self.files, key=lambda name: (name == "report.json", name)))

    def statement(self) -> bytes:
        """Return the bytes that are signed: all fields except the signature."""
        return canonical({name: value for name, value in self._content().items() if name != "signature"})

    def line(self) -> bytes:
        """Return the line with its end."""
        return canonical(self._content()) + b"\n"

    def genuine(self) -> bool:
        """Whether the signature is of the key in the line; True for an unsigned line."""
        if not self.signature and not self.public_key:
            return True
        try:
            key, signature = bytes.fromhex(self.public_key), bytes.fromhex(self.signature)
            return verifies_with(key, self.statement(), signature, domains.DECISION)
        except ValueError:
            return False

    def _content(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def public_hex(key: Ed25519PrivateKey) -> str:
    """Return a key's public key, hexadecimal, as in decisions."""
    return key.public_key().public_bytes_raw().hex()


class Decisions:
    """The ledger of one party, read whole and checked.

    Parameters
    ----------
    folder : Path
        The party's state folder. Adding a line requires its lock (`store.locked`).

    Raises
    ------
    ConfigError
        The file cannot be read, or a line was changed, removed or inserted.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._link = hashlib.sha256(domains.DECISIONS)
        try:
            self._content = read_regular_bytes(self._path, _MOST_BYTES)
        except FileNotFoundError:
            self._content = b""
        except OSError as error:
            raise problem(f"the ledger of decisions {self._path} cannot be read ({error.strerror})") from error
        self._entries = list(self._read())

    def __len__(self) -> int:
        return len(self._entries)

    def last(self, run: str) -> Decision | None:
        """Return the last line about a run."""
        return next((entry for entry in reversed(self._entries) if entry.run == run), None)

    def held(self, run: str) -> Decision | None:
        """Return the line with the files of a run that wait for a decision."""
        return next((entry for entry in reversed(self._entries) if entry.run == run and entry.what == "held"), None)

    def runs(self) -> tuple[str, ...]:
        """Return all runs, oldest first."""
        return tuple(dict.fromkeys(entry.run for entry in self._entries))

    def add(self, decision: Decision, key: Ed25519PrivateKey | None) -> Decision:
        """Write a line durably; return it with date, link and signature.

        Raises
        ------
        ConfigError
            The disk is full or not writable; the ledger is unchanged.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        made = replace(decision, previous=self._link.hexdigest(), at=now)
        if key is not None:
            made = replace(made, public_key=public_hex(key))
            made = replace(made, signature=sign_with(key, made.statement(), domains.DECISION).hex())
        content = self._content + made.line()
        try:
            replace_file(self._path, [content], mode=MODE, draft=f".{NAME}.part")
            sync_directory(self._path.parent)
        except OSError as error:
            raise problem(f"the ledger of decisions {self._path} cannot be written ({error.strerror})") from error
        self._content = content
        self._link.update(made.line())
        self._entries.append(made)
        return made

    def _read(self) -> Iterator[Decision]:
        """Yield the lines, each checked against those before it."""
        so_far: dict[str, What] = {}
        for number, line in enumerate(self._content.splitlines(keepends=True), start=1):
            try:
                entry = decode(Decision, load_json(line), "")
                if entry.line() != line:
                    raise ValueError("it is not in the format of fastlloyd")
                if entry.previous != self._link.hexdigest():
                    raise ValueError("it does not follow the lines before it")
                if not entry.genuine():
                    raise ValueError("its signature is not of the key that it names")
                _check_order(so_far.get(entry.run), entry.what)
            except ValueError as error:
                raise problem(
                    f"line {number} of the ledger of decisions {self._path}: {error}; it was changed, cut or restored: "
                    "restore the newest copy"
                ) from error
            so_far[entry.run] = entry.what
            self._link.update(line)
            yield entry


def _check_order(before: What | None, now: What) -> None:
    """Refuse an impossible order: a decision without a held run, or another one after the first."""
    allowed: Sequence[What | None] = ("held",) if now == "discarded" else ("held", "released")
    if (now == "held" and before not in (None, "held")) or (now != "held" and before not in allowed):
        raise ValueError(f"it says {now} of a run that {'was not held' if before is None else f'is {before}'}")


def problem(text: str) -> ConfigError:
    """Return an error of which the other parties receive only the reason."""
    return ConfigError(text, reason=Reason.STATE)


def check_note(note: str) -> None:
    """Refuse a note that the ledger of decisions cannot hold."""
    if len(note) > MOST_NOTE:
        raise ConfigError(f"--note: expected at most {MOST_NOTE} characters, got {len(note)}")
