"""What one party keeps between runs and across a crash: its ledger, and the interrupted run.

::

    DIR/client-1/ledger.jsonl     every release of this party's data, over all runs (mode 0600)
    DIR/client-1/run/...          the run under way: public facts, secrets, uplinks, replies (mode 0600)

Stored uplinks and replies are sent again byte for byte on resume: a mask never covers two vectors, and
no noise is drawn twice. The run's folder is removed once the run has ended well; the ledger stays.

Source: docs/protocol.md, "Resume".
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError, Reason
from fastlloyd.wire import PartyId

_FACTS = "facts.json"


class StateDir:
    """One party's state directory.

    Parameters
    ----------
    root : str
        As given by `--state-dir`; '{client}' becomes the rank.
    me : PartyId

    Raises
    ------
    ConfigError
        The directory cannot be made or written.
    """

    def __init__(self, root: str, me: PartyId) -> None:
        own = "server" if me.is_server else f"client-{me.rank}"
        self.path = Path(root.replace("{client}", str(me.rank))) / own
        self._run = self.path / "run"
        try:
            self._run.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.chmod(0o700)
        except OSError as error:
            raise ConfigError(
                f"--state-dir {root}: cannot be made or written ({error.strerror}); check path and rights"
            ) from error

    @property
    def ledger_path(self) -> Path:
        """Where the ledger over all runs lies."""
        return self.path / "ledger.jsonl"

    def start(self, facts: Mapping[str, Any]) -> None:
        """Begin a new run: forget the last one, write down the public facts of this one."""
        shutil.rmtree(self._run)
        self._run.mkdir(mode=0o700)
        self.save(_FACTS, json.dumps(dict(facts), sort_keys=True).encode())

    def facts(self) -> dict[str, Any]:
        """Give the facts of the interrupted run.

        Raises
        ------
        ConfigError
            There is none to resume.
        """
        content = self.load(_FACTS)
        if content is None:
            raise ConfigError(
                f"--resume: {self.path} holds no interrupted run; start it without --resume", reason=Reason.RESUME
            )
        facts = json.loads(content)
        if not isinstance(facts, dict):
            raise ConfigError(f"--resume: {self._run / _FACTS} is damaged", reason=Reason.RESUME)
        return facts

    def save(self, name: str, content: bytes) -> None:
        """Keep content under a name, durably: written aside, synced, renamed.

        Raises
        ------
        ConfigError
            The disk is full or not writable.
        """
        target = self._run / name
        aside = self._run / f".{name}.part"
        try:
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(target)
            folder = os.open(self._run, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise ConfigError(f"--state-dir: {target} cannot be written ({error.strerror})") from error

    def load(self, name: str) -> bytes | None:
        """Give what was kept under a name, or None."""
        try:
            return (self._run / name).read_bytes()
        except FileNotFoundError:
            return None

    def rounds(self, prefix: str) -> dict[int, bytes]:
        """Give what was kept as prefix-T for any round T."""
        return {int(path.name.removeprefix(f"{prefix}-")): path.read_bytes() for path in self._run.glob(f"{prefix}-*")}

    def finish(self) -> None:
        """Forget the run that ended well, its secrets first."""
        for secret in ("seed", "pairs"):
            (self._run / secret).unlink(missing_ok=True)
        shutil.rmtree(self._run)
