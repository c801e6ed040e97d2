"""Runs in one thread on disks that forget what was not synced: the power fails at a random moment, and all come back.

Each party has a state directory of its own and the product's `StateDir`, ledger and `Host`. A disk keeps the content
that a file had when it was synced, under the names that its folder had when that was synced. When the power fails at a
machine, each later change is there, missing, or a torn part of it, at random. At the others the process only stops.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import stat
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from fastlloyd.crypto.link.identity import make_identity
from fastlloyd.errors import FastLloydError
from fastlloyd.lifecycle.threshold.messages import SetVote, SetVotes
from fastlloyd.run.config import RunConfig
from fastlloyd.run.machine import Host
from fastlloyd.run.session import Session, find_protocol
from fastlloyd.run.simulation import Simulation
from fastlloyd.run.state import StateDir
from fastlloyd.wire.header import COMPARE_ROUND, FINAL_ROUND, SERVER, SETUP_ROUND, Header, PartyId, clients

M = 3
MOST_SESSIONS = 6


class PowerCut(BaseException):
    """The power fails: nothing of this package catches it."""


class Disk:
    """What is durable below a folder; all that is there now is.

    Parameters
    ----------
    root : Path
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}
        self._held: dict[int, int] = {}
        for path in (root, *root.rglob("*")):
            descriptor = os.open(path, os.O_RDONLY)
            self.sync(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Give up what keeps the numbers of removed files from being used again."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held = {}

    def sync(self, descriptor: int) -> None:
        """Note what is durable from now on."""
        place = Path(f"/proc/self/fd/{descriptor}")
        number = self._hold(place)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self._names[number] = {child.name: (self._hold(child), child.is_dir()) for child in place.iterdir()}
        else:
            self._contents[number] = place.read_bytes()

    def _hold(self, path: Path) -> int:
        """Return the number of a file or folder, which no other one gets from now on."""
        number = path.stat().st_ino
        if number not in self._held:
            self._held[number] = os.open(path, os.O_RDONLY)
        return number

    def left(self, draw: Random) -> dict[Path, bytes | None]:
        """Return what may be found after a power cut: files with their content, folders with None."""
        found: dict[Path, bytes | None] = {}
        self._collect(self.root, self.root.stat().st_ino, found, draw)
        return found

    def _collect(self, path: Path, number: int, found: dict[Path, bytes | None], draw: Random) -> None:
        now = {}
        if path.exists() and path.stat().st_ino == number:
            now = {child.name: child for child in path.iterdir()}
        durable = self._names.get(number, {})
        for name in sorted({*durable, *now}):
            there = (now[name].stat().st_ino, now[name].is_dir()) if name in now else None
            kept = durable.get(name)
            if there != kept and draw.random() < 0.3:
                kept = there
            if kept is None:
                continue
            current = now.get(name) if kept == there else None
            chosen, is_folder = kept
            if is_folder:
                found[path / name] = None
                self._collect(path / name, chosen, found, draw)
                continue
            content = self._contents.get(chosen, b"")
            if current is not None and current.read_bytes() != content and draw.random() < 0.5:
                whole = current.read_bytes()
                at_least = len(content) if whole.startswith(content) else 0  # what was appended may be torn
                content = whole[: draw.randint(at_least, len(whole))]
            found[path / name] = content

    def put_back(self, left: dict[Path, bytes | None]) -> None:
        """Leave this and nothing else."""
        for child in self.root.iterdir():
            shutil.rmtree(child) if child.is_dir() else child.unlink()
        for path, content in left.items():
            if content is None:
                path.mkdir(mode=0o700)
            else:
                path.write_bytes(content)
                path.chmod(0o600)


@dataclass
class Story:
    """One run with power cuts, until it ends.

    Attributes
    ----------
    config : RunConfig
    folder : Path
    draw : Random
    faults : list of str
        What must not be.
    sent : dict from (party, type, round) to set of bytes
        What left, but for votes, which are about a session.
    cuts : int
        How often the power failed.
    moments : int
        Messages and syncs of the last session.
    released : set of (round, name)
        By the clients in the end.
    """

    config: RunConfig
    folder: Path
    draw: Random
    faults: list[str] = field(default_factory=list)
    sent: dict[tuple[int, int, int], set[bytes]] = field(default_factory=lambda: defaultdict(set))
    cuts: int = 0
    moments: int = 0
    released: set[tuple[int, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._everybody = (SERVER, *clients(M))
        self._run_id = self.draw.randbytes(16)
        self._seen, self._at, self._dark = 0, 0, False
        self._left: dict[int, dict[Path, bytes | None]] = {}
        self._disks: dict[int, Disk] = {}
        self._rounds_begun = self._ended = False
        self._made: set[PartyId] = set()
        for party in self._everybody:
            (self.folder / str(party.rank)).mkdir(parents=True)

    def tell(self, moments: int = 0) -> None:
        """Cut the power at one of so many moments, resume, and again, until the run has ended or was refused."""
        at, resume = self.draw.randint(1, moments) if moments else 0, False
        for number in range(MOST_SESSIONS):
            try:
                self._session(at, resume=resume)
            except PowerCut:
                self.cuts += 1
                if self._ended:  # whoever still has its run has its result, too
                    break
            except FastLloydError as error:
                if self._rounds_begun:
                    self.faults.append(f"refused: {error}")
                    return
                # The server had not begun it, so nothing was opened: a new run takes its place.
                resume, at, self._run_id = False, 0, self.draw.randbytes(16)
                self.sent.clear()
                continue
            else:
                break
            self._check_ledgers()
            resume = True
            at = self.draw.randint(1, moments) if number < MOST_SESSIONS - 2 and self.draw.random() < 0.5 else 0
        else:
            self.faults.append("it did not end")
            return
        self._check_ledgers()
        self.faults += [
            f"rank {rank} sent {len(bodies)} different messages of type {kind} in round {t}"
            for (rank, kind, t), bodies in self.sent.items()
            if len(bodies) > 1
        ]

    def _session(self, at: int, *, resume: bool) -> None:
        """Run all parties until they end, or the power fails after so many messages and syncs; 0 for never."""
        self._seen, self._at, self._dark, self._left = 0, at, False, {}
        self._disks = {party.rank: Disk(self.folder / str(party.rank)) for party in self._everybody}
        self._lost = self.draw.choice([None, *clients(M)]) if self.config.masking == "threshold" else None
        self._failing = self.draw.sample(self._everybody, self.draw.randint(1, M + 1))
        states: dict[PartyId, StateDir] = {}
        sessions: dict[PartyId, Session] = {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", self._sync)
            try:
                self._open(states, sessions, resume=resume)
                self._hosts = {me: Host(session, state=states[me]) for me, session in sessions.items()}
                protocol = sessions[SERVER].protocol
                parties = {
                    me: protocol.serve(one) if me.is_server else protocol.take_part(one) for me, one in sessions.items()
                }
                Simulation(parties, self._tap, hosts=self._hosts).run()
                self._ended = True
                for state in states.values():
                    state.finish()
            finally:
                self.moments = self._seen
                for session in sessions.values():
                    session.ledger.close()
                for rank, disk in self._disks.items():
                    if rank in self._left:
                        disk.put_back(self._left[rank])
                    disk.close()

    def _open(self, states: dict[PartyId, StateDir], sessions: dict[PartyId, Session], *, resume: bool) -> None:
        protocol = find_protocol(self.config.protocol)
        config, inputs = protocol.gather(dataclasses.replace(self.config, resume=resume, state_dir="dir"), M)
        for me in self._everybody:
            root = str(self.folder / str(me.rank) / "state" / "dir")
            if me not in self._made:
                StateDir(root, me, new=True).open_ledger().close()
                self._made.add(me)
            states[me] = state = StateDir(root, me, resume=resume)
            ledger = state.open_ledger()
            sessions[me] = session = Session(
                me=me,
                everybody=clients(M),
                config=config,
                inputs=inputs,
                own=protocol.load(config, inputs, me),
                identity=make_identity(str(me), me.rank),
                ledger=ledger,
            )
            if resume:
                session.stored = state.interrupted_run()
            session.begin_run(self._run_id)

    def _moment(self) -> None:
        """Let the power fail if it is time."""
        if self._dark:
            raise PowerCut
        self._seen += 1
        if self._seen == self._at:
            self._dark = True
            self._left = {party.rank: self._disks[party.rank].left(self.draw) for party in self._failing}
            raise PowerCut

    def _sync(self, descriptor: int) -> None:
        """In the place of `os.fsync`; that of a ledger's thread is no moment by itself: others write meanwhile."""
        if threading.current_thread() is threading.main_thread():
            self._moment()
        elif self._dark:
            raise PowerCut
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        rank = path.relative_to(self.folder).parts[0]
        self._disks[int(rank)].sync(descriptor)

    def _tap(self, sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes | None:
        """Wait for the disk as the driver does, then let the message leave; one client's vectors may be lost."""
        self._hosts[sender].settle()
        self._moment()
        if header.round not in (SETUP_ROUND, COMPARE_ROUND, FINAL_ROUND):
            self._rounds_begun = self._rounds_begun or sender.is_server
            if header.type not in (SetVote.TYPE, SetVotes.TYPE):
                self.sent[sender.rank, header.type, header.round].add(body)
            if sender == self._lost and header.step == 0:
                return None
        return body

    def _check_ledgers(self) -> None:
        """Each client's ledger has each release once, and all of each round of which a message has left."""
        for rank in range(1, M + 1):
            path = self.folder / str(rank) / "state" / "dir" / f"client-{rank}" / "ledger.jsonl"
            lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
            entries = [json.loads(line) for line in lines]
            counts = Counter((entry["round"], entry["name"]) for entry in entries if entry["run"] == self._run_id.hex())
            lacking = {t for sender, _, t in self.sent if sender == rank} - {t for t, _ in counts}
            if lacking or set(counts.values()) - {1}:
                self.faults.append(f"client {rank} has sent messages of {sorted(self.sent)}, its ledger has {counts}")
            self.released |= set(counts)
