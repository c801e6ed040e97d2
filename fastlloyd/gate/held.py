"""The results that wait at a party: to be checked, released, or discarded by a person.

Source: docs/sites.md, "A gate before release".
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fastlloyd.crypto.link import identity
from fastlloyd.errors import ConfigError, Reason
from fastlloyd.gate.decisions import NAME, Decision, Decisions, problem, public_hex
from fastlloyd.gate.store import HELD, blocks, digest_file, digest_key, locked, remove
from fastlloyd.privacy.record_digest import load_key
from fastlloyd.report.earlier import find_earlier
from fastlloyd.report.files import PRIVATE_MODE, PUBLIC_MODE
from fastlloyd.wire.regular import replace_file, sync_directory

SHOWN_DIGITS = 8
"""Of a run's id, for people."""
_OPEN_TO_ALL = ("config.toml",)
_RUN = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The result of one run at one party that a person decides about.

    Attributes
    ----------
    state : Path
        The party's state folder.
    run : str
        The run's id.
    """

    state: Path
    run: str

    @property
    def folder(self) -> Path:
        """Where its files wait."""
        return self.state / HELD / self.run

    def check(self, key: Ed25519PrivateKey | None) -> Decision:
        """Compare ledger, files and key, and return the line that says what waits.

        Parameters
        ----------
        key : Ed25519PrivateKey or None
            This site's; must be the one that the run signed with, None if it signed with none.

        Raises
        ------
        ConfigError
            They do not match: something was changed since the run.
        """
        held = self._held(Decisions(self.state), key)
        try:
            found = {path.name for path in self.folder.iterdir()}
            if found != held.files.keys():
                other = ", ".join(sorted(found ^ held.files.keys()))
                raise problem(
                    f"{self.folder} does not hold the files that the run left, but for {other}: it was changed since; "
                    "discard it, or put back what the run wrote"
                )
            for name in held.names:
                if digest_file(self.state, self.folder / name) != held.files[name]:
                    raise _changed(self.folder / name)
        except OSError as error:
            raise problem(f"{self.folder} cannot be read ({error.strerror}); check its rights") from error
        return held

    def release(self, output: Path, *, overwrite: bool, note: str, key: Ed25519PrivateKey | None) -> Decision:
        """Enter the decision in the ledger, and move the files out; continue a release that broke off.

        Parameters
        ----------
        output : Path
            Output folder, absolute.
        overwrite : bool
            Replace the files of another run there.
        note : str
        key : Ed25519PrivateKey or None
            As for `check`.

        Raises
        ------
        ConfigError
            The files were changed, another decision was made, or the output cannot be written.

        Sees
        ----
        From here on, all who may read the output folder.
        """
        with locked(self.state):
            held = self.check(key)
            decisions = Decisions(self.state)
            last = decisions.last(self.run)
            earlier = find_earlier(output)
            begun = last if last is not None and last.what == "released" and last.output == str(output) else None
            # If another client of this host has released this run's result there, only this client's own files are new.
            beside = begun is None and earlier.runs.get("report.json") == self.run
            names = begun.names if begun is not None else held.own if beside else held.names
            if begun is None and not (overwrite or beside):
                earlier.refuse(self.run if earlier.runs else None)
            try:
                output.mkdir(parents=True, exist_ok=True)
                entered = decisions.add(
                    Decision(
                        run=self.run,
                        what="released",
                        note=note,
                        output=str(output),
                        files={name: held.files[name] for name in names},
                    ),
                    key,
                )
                for name in names:
                    mode = PUBLIC_MODE if name in _OPEN_TO_ALL else PRIVATE_MODE
                    replace_file(output / name, self._verified(name, held.files[name]), mode=mode)
            except OSError as error:
                raise ConfigError(
                    f"--output {output}: cannot be written ({error.strerror}); fix it and release again",
                    reason=Reason.OUTPUT,
                ) from error
            if overwrite and not beside:
                server = {"server.json"} if earlier.runs.get("server.json") == self.run else set()
                earlier.clear(lambda _: True, {*names, *server})
            self._forget()
        return entered

    def discard(self, *, note: str, key: Ed25519PrivateKey | None) -> Decision:
        """Enter the decision in the ledger, and remove the files; continue a removal that broke off.

        Raises
        ------
        ConfigError
            The result was released already, or something cannot be written.
        """
        with locked(self.state):
            decisions = Decisions(self.state)
            last = decisions.last(self.run)
            if last is None or last.what == "held":
                self._held(decisions, key)
                last = decisions.add(Decision(run=self.run, what="discarded", note=note, files={}), key)
            elif last.what == "released":
                raise ConfigError(
                    f"run {self.run[:SHOWN_DIGITS]} was released at {last.at} to {last.output}, and cannot be "
                    "discarded; finish with `fastlloyd release`"
                )
            self._forget()
        return last

    def _held(self, decisions: Decisions, key: Ed25519PrivateKey | None) -> Decision:
        """Return the line with the waiting files; it must be signed with this key, or unsigned without one."""
        held, last = decisions.held(self.run), decisions.last(self.run)
        if held is None or last is None:
            raise problem(
                f"{self.folder} holds files that the ledger of decisions {self.state / NAME} does not name: it was cut "
                "or restored, or the run broke off; restore the newest copy, resume the run, or remove the folder"
            )
        if last.what == "discarded":
            raise ConfigError(
                f"run {self.run[:SHOWN_DIGITS]} was discarded at {last.at}, and cannot be released; only a new run has "
                "a result again"
            )
        own = "" if key is None else public_hex(key)
        if held.public_key != own:
            found = "is not signed" if not held.public_key else "is signed with another key"
            given = "no --key was given" if key is None else "--key is given"
            raise ConfigError(
                f"what run {self.run[:SHOWN_DIGITS]} left {found}, and {given}: give the key that this site had in the "
                "run, and none for a run without a roster"
            )
        return held

    def _verified(self, name: str, digest: str) -> Iterator[bytes]:
        """Yield a file in blocks, and raise at its end if its digest differs."""
        mac = hmac.new(load_key(digest_key(self.state), create=False), digestmod=hashlib.sha256)
        for block in blocks(self.folder / name):
            mac.update(block)
            yield block
        if mac.hexdigest() != digest:
            raise _changed(self.folder / name)

    def _forget(self) -> None:
        """Remove the files that waited."""
        try:
            remove(self.folder)
            sync_directory(self.folder.parent)
        except OSError as error:
            raise problem(
                f"{self.folder} cannot be removed ({error.strerror}); the decision is entered: check its rights and "
                "give the same command again"
            ) from error


def find_held(folder: Path, run: str = "") -> Held:
    """Find the one result that waits in a state directory.

    Parameters
    ----------
    folder : Path
        As given by `--state-dir`, or one party's folder in it.
    run : str
        Prefix of the run's id; may be empty if there is only one.

    Raises
    ------
    ConfigError
        None waits, or several do.
    """
    states = [folder] if (folder / NAME).exists() or (folder / HELD).exists() else party_folders(folder)
    known = [(state, Decisions(state)) for state in states]
    found = [
        Held(state=state, run=each)
        for state, _ in known
        for each in sorted(_waiting(state / HELD))
        if each.startswith(run)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        listed = "; ".join(f"run {each.run[:SHOWN_DIGITS]} in {each.state}" for each in found)
        raise ConfigError(f"{folder}: several results wait ({listed}); name one with --run, or give its party's folder")
    decided = [decisions.last(each) for _, decisions in known for each in decisions.runs() if each.startswith(run)]
    last = next((each for each in reversed(decided) if each is not None), None)
    if last is None:
        raise ConfigError(
            f"{folder}: no result waits for a decision here; expected the --state-dir of a run with --review"
        )
    if last.what == "held":
        raise problem(
            f"{folder}: run {last.run[:SHOWN_DIGITS]} was held at {last.at}, and its files are gone: the folder "
            f"{HELD} was removed or restored; restore the newest copy"
        )
    where = f" to {last.output}" if last.output else ""
    raise ConfigError(
        f"{folder}: no result waits for a decision; run {last.run[:SHOWN_DIGITS]} was {last.what} at {last.at}{where}"
    )


def party_folders(folder: Path) -> list[Path]:
    """Return the parties' folders in a state directory, sorted."""
    return [path for path in sorted([folder / "server", *folder.glob("client-*")]) if path.is_dir()]


def _waiting(folder: Path) -> Iterator[str]:
    """Yield the ids of the runs whose files wait."""
    try:
        yield from (path.name for path in folder.iterdir() if _RUN.fullmatch(path.name) and path.is_dir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise problem(f"{folder} cannot be read ({error.strerror}); check its rights") from error


def _changed(path: Path) -> ConfigError:
    return problem(f"{path} is not what the run wrote: it was changed since; discard the result, or put the file back")


def site_key(held: Held, given: Path | None) -> Ed25519PrivateKey | None:
    """Load the key of this site: the one that is given, or else the one that the run had."""
    if given is not None:
        return identity.load_key(given)
    line = Decisions(held.state).held(held.run)
    return identity.load_key(Path(line.key_file)) if line is not None and line.key_file else None
