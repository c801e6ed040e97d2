"""A server with very many clients over TLS on this machine: joins, set-up, rounds, clients that are killed, memory.

    python papers/benchmarks/many_sites.py [--clients 10 100 1000] [--aggregators 0] [--rounds 10] [--kill 50] [--output papers/benchmarks/results]

The server is `fastlloyd serve` as it is. The clients are light: hundreds to a process, a thread and a TCP connection with
TLS each, of 50 records each. They live the life of every client, from joining to the comparison at the end; but what
follows from public values alone (plan, start) is computed once for each process, and nobody writes files or checks the
signatures of the others. The clients to be killed are a process of their own, which gets SIGKILL in a round. Run it
alone: server and clients share the cores.

With --aggregators N nobody is killed, and each number of clients runs without and with N aggregators (`serve --parent`), one
for the clients of each process. What the server itself takes is compared: processor time and memory.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

HERE = Path(__file__).resolve()
RECORDS, FEATURES, CLUSTERS = 50, 5, 5
KILL_IN_ROUND = 4
DEADLINE_S = 60.0
JOIN_AT_ONCE = 64
STACK_BYTES = 1 << 20
SWITCH_S = 0.5
LIMIT_S = 900.0


def configuration(folder: Path, clients: int, rounds: int, least: int, reconnect: float | None = None) -> Any:
    """Return the public configuration of the run."""
    from fastlloyd.run.config import RunConfig

    return RunConfig(
        protocol="fastlloyd",
        data="(of each client)",
        bounds="-1,1",
        k=CLUSTERS,
        n_total=RECORDS * clients,
        rounds=rounds,
        epsilon=1.0,
        min_clients=least,
        roster=str(folder / "roster.toml"),
        key=str(folder / "party_{client}.key"),
        setup_deadline=LIMIT_S,
        deadline=DEADLINE_S,
        reconnect=reconnect,
    )


def make_parties(folder: Path, clients: int) -> None:
    """Write keys, certificates and roster."""
    from fastlloyd.crypto.link.identity import make_identity, save_identity
    from fastlloyd.crypto.link.roster import Roster, RosterEntry

    entries = []
    for rank in range(clients + 1):
        identity = make_identity(f"site {rank}", rank)
        save_identity(identity, folder / f"party_{rank}.key", folder / f"party_{rank}.pem")
        entries.append(RosterEntry(identity.name, "client" if rank else "server", rank, identity.certificate_pem))
    Roster(tuple(entries)).save(folder / "roster.toml")


class Crowd:
    """The light clients of one process.

    Parameters
    ----------
    folder : Path
    clients, rounds, least : int
        Of the whole run.
    port : int
    """

    def __init__(self, folder: Path, clients: int, rounds: int, least: int, port: int) -> None:
        from fastlloyd.crypto.link.roster import Roster
        from fastlloyd.run.inputs import encode_public
        from fastlloyd.run.session import find_protocol

        self.roster = Roster.load(folder / "roster.toml")
        self.certificates = self.roster.certificates()
        self.config, self.common = find_protocol("fastlloyd").gather(
            configuration(folder, clients, rounds, least), clients
        )
        self.told = encode_public(self.config, self.common, self.roster)
        self.public_digest = self.common.digest(self.config, self.roster.digest())
        self.folder, self.port = folder, port
        self.doors = threading.Semaphore(JOIN_AT_ONCE)

    def live(self, rank: int) -> None:
        """Live as one client, from joining to the end."""
        from fastlloyd.crypto.link.identity import Identity, load_key
        from fastlloyd.crypto.link.tls import pinned_context
        from fastlloyd.net.link.control import agree_start, leave_together
        from fastlloyd.net.link.secure import SecureLinks
        from fastlloyd.net.meter import Meter
        from fastlloyd.net.tcp.address import Address
        from fastlloyd.net.tcp.admission import Keys
        from fastlloyd.net.tcp.route import Route
        from fastlloyd.net.tcp.spoke import join
        from fastlloyd.wire.header import SERVER, PartyId

        me, config = PartyId(rank), self.config
        der, server = self.certificates[me], self.certificates[SERVER]
        identity = Identity(f"site {rank}", der, load_key(self.folder / f"party_{rank}.key"))
        with self.doors:
            keys = Keys(pinned_context(identity, (server,), server_side=False), {server: SERVER})
            transport = join(
                Route(Address("127.0.0.1", self.port), rank, keys), deadline_s=LIMIT_S, note=lambda text: None
            )
        meter = Meter()
        with transport, SecureLinks(transport, identity, self.certificates, meter, linked=(SERVER,)) as links:
            run_id = agree_start(links, None, deadline_s=LIMIT_S)
            self.meet_and_live(me, links, meter, identity, run_id)
            leave_together(links, deadline_s=config.setup_deadline)

    def meet_and_live(self, me: Any, links: Any, meter: Any, identity: Any, run_id: bytes) -> None:
        """Bring the link to the server up and drive the client's life."""
        import hashlib

        import numpy as np

        from fastlloyd.data.records import OwnRecords
        from fastlloyd.lifecycle.messages import setup_bounds
        from fastlloyd.run.driver import Deadlines, Driver
        from fastlloyd.run.machine import Host
        from fastlloyd.run.session import Session, find_protocol
        from fastlloyd.wire.header import clients

        bounds, config = setup_bounds(me), self.config
        links.bound(message_bytes=bounds.largest, ahead_bytes=bounds.ahead_bytes)
        digest = hashlib.sha256(run_id + self.public_digest).digest()
        links.connect(digest, deadline_s=LIMIT_S, values=self.told)
        names = tuple(f"x{i + 1}" for i in range(FEATURES))
        points = np.random.default_rng(me.rank).uniform(-1, 1, (RECORDS, FEATURES))
        session = Session(
            me=me,
            everybody=clients(len(links.peers)),
            config=config,
            inputs=self.common,
            own=OwnRecords(raw_points=points, names=names, bounds=self.common.bounds.match(names)),
            run_id=run_id,
            digest=digest,
            identity=identity,
            roster=self.roster,
            meter=meter,
            carrier="serve/join",
        )
        host = Host(session)
        deadlines = Deadlines(setup_s=config.setup_deadline, round_s=config.deadline)
        Driver(me, links, meter, deadlines, host).drive(find_protocol("fastlloyd").take_part(session))


def lighten() -> None:
    """Let the clients of this process compute once what follows from public values, and leave without a result."""
    from fastlloyd.protocol import horizontal
    from fastlloyd.protocols.fastlloyd import client, protocol

    lock, found = threading.Lock(), dict[str, Any]()

    def once(work: Callable[..., Any]) -> Callable[..., Any]:
        def remembered(plan: Any, *more: Any, **rest: Any) -> Any:
            with lock:
                key = f"{work.__name__} {plan}"
                if key not in found:
                    found[key] = work(plan, *more, **rest)
                return found[key]

        return remembered

    changes: dict[str, Any] = {
        "check_plan": once(protocol.check_plan),
        "first_centers": once(protocol.first_centers),
    }
    vars(protocol).update(changes)
    vars(horizontal).update(conclude=leave)
    protocol.FastLloydFamily.result = lambda *_: None  # type: ignore[method-assign]
    vars(client).update(first_centers=changes["first_centers"])


def leave(session: Any, made: Any, *, took_part: Any, seed: bytes, **rest: Any) -> Iterator[Any]:
    """Compare and count as every client does at its end, but make no result, sign nothing and check no signature."""
    from fastlloyd.lifecycle.closing import Account, Counters, Sent, compare_through_server
    from fastlloyd.party.effects import Heard, Receive, Send
    from fastlloyd.wire.header import FINAL_ROUND, SERVER

    transcript = yield Heard()
    yield from compare_through_server(
        session.me, session.everybody, took_part, transcript, secret=seed, result=session.run_id
    )
    total = session.meter.total_sent()
    sent = Sent(
        payload_bytes=total.payload_bytes,
        link_bytes=total.link_bytes,
        messages=total.messages,
        setup_bytes=session.meter.setup_sent().link_bytes,
    )
    yield Send((SERVER,), Counters({session.me: Account(sent=sent, signature="00" * 64)}), FINAL_ROUND)
    yield Receive(SERVER, UnreadTotals, FINAL_ROUND)


@dataclass(frozen=True)
class UnreadTotals:
    """The server's last message, of which a light client reads nothing."""

    TYPE: ClassVar[int] = 11
    size: int = 0

    def body(self) -> bytes:
        """Return nothing: it is never sent."""
        return b""

    @property
    def payload_bytes(self) -> int:
        """The closing exchange is link bytes."""
        return 0

    @classmethod
    def read(cls, body: bytes, format: Any) -> Self:
        """Keep the length."""
        return cls(len(body))


def live_all(chosen: argparse.Namespace) -> int:
    """Be a process of light clients; print what went wrong, and give the number of clients that came to the end."""
    first, last = map(int, chosen.live.split("-"))
    lighten()
    crowd = Crowd(chosen.folder, chosen.clients[0], chosen.rounds, chosen.least, chosen.port)
    good: list[int] = []

    def one(rank: int) -> None:
        try:
            crowd.live(rank)
            good.append(rank)
        except Exception as error:
            print(f"client {rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    threading.stack_size(STACK_BYTES)
    # Hundreds of threads that each look every 5 ms whether they may go on would take more time than their work.
    sys.setswitchinterval(SWITCH_S)
    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(first, last + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0 if len(good) == len(threads) else 1


@dataclass
class Measured:
    """What one run came to; times in seconds, memory in kB."""

    joined_s: float = 0.0
    set_up_s: float = 0.0
    rounds_s: list[float] = field(default_factory=list)
    included: list[int] = field(default_factory=list)
    ended_s: float = 0.0
    code: int = -1
    clients_good: int = 0
    memory_kb: dict[str, int] = field(default_factory=dict)
    server_cpu_s: dict[str, float] = field(default_factory=dict)


def processor_s(pid: int) -> float:
    """Return the processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_kb(pid: int, what: str) -> int:
    """Return VmRSS or VmHWM of a process."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return 0 if found is None else int(found[1])


def measure(
    clients: int, rounds: int, kill: int, processes: int, *, aggregators: int = 0, reconnect: float | None = None
) -> Measured:
    """Run once."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        make_parties(folder, clients)
        least = max(1, clients - kill)
        return _measure(folder, clients, rounds, least, kill, processes, aggregators, reconnect, stack)


def start_aggregators(folder: Path, port: int, count: int, stack: contextlib.ExitStack) -> list[int]:
    """Start aggregators below the server; give their ports, or the server's where there are none."""
    ports = []
    for _ in range(count):
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "fastlloyd", "serve", "--listen", "127.0.0.1:0"),
                *("--parent", f"127.0.0.1:{port}", "--config", str(folder / "run.toml")),
                *("--key", str(folder / "party_0.key")),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(stop, process)
        assert process.stdout is not None
        found = next(found for line in process.stdout if (found := re.search(r"listening at .*:(\d+) as", line)))
        # It tells of each client that joins, which nobody reads.
        threading.Thread(target=process.stdout.read, daemon=True).start()
        ports.append(int(found[1]))
    return ports or [port]


def _measure(
    folder: Path,
    clients: int,
    rounds: int,
    least: int,
    kill: int,
    processes: int,
    aggregators: int,
    reconnect: float | None,
    stack: contextlib.ExitStack,
) -> Measured:
    from fastlloyd.run.run_file import to_toml

    measured = Measured()
    (folder / "run.toml").write_text(to_toml(configuration(folder, clients, rounds, least, reconnect)))
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "fastlloyd", "serve", "--listen", "127.0.0.1:0"),
            *("--config", str(folder / "run.toml"), "--key", str(folder / "party_0.key")),
            *("--output", str(folder / "out"), "--overwrite"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.callback(stop, server)
    lines = iter(server.stdout.readline, "") if server.stdout is not None else iter(())
    port = 0
    crowds: list[subprocess.Popen[Any]] = []
    doomed: subprocess.Popen[Any] | None = None
    began = time.perf_counter()
    joined = 0
    for line in lines:
        now = time.perf_counter() - began
        if found := re.search(r"listening at .*:(\d+) ", line):
            port = int(found[1])
            measured.memory_kb["before"] = memory_kb(server.pid, "VmRSS")
            measured.server_cpu_s["before"] = processor_s(server.pid)
            ports = start_aggregators(folder, port, aggregators, stack)
            began = time.perf_counter()
            for i, (first, last) in enumerate(shares(clients, kill, processes)):
                crowds.append(start_crowd(folder, clients, rounds, least, ports[i % len(ports)], first, last, stack))
            doomed = crowds[0] if kill else None
        elif "joined from" in line:
            joined += 1
            if joined == clients:
                measured.joined_s = now
                measured.memory_kb["joined"] = memory_kb(server.pid, "VmRSS")
                measured.server_cpu_s["joined"] = processor_s(server.pid)
        elif found := re.search(r"^setup.*|set-up", line):
            measured.set_up_s = now
            measured.server_cpu_s["set up"] = processor_s(server.pid)
        elif found := re.search(r"round (\d+) of \d+: ([\d,]+) clients?, ([\d.]+) (ms|s)", line):
            if not measured.rounds_s:
                measured.memory_kb["first round"] = memory_kb(server.pid, "VmRSS")
            measured.rounds_s.append(float(found[3]) / (1e3 if found[4] == "ms" else 1.0))
            measured.included.append(int(found[2].replace(",", "")))
            if doomed is not None and int(found[1]) == KILL_IN_ROUND:
                doomed.send_signal(signal.SIGKILL)
                doomed = None
            measured.server_cpu_s["last round"] = processor_s(server.pid)
            measured.memory_kb["last round"] = memory_kb(server.pid, "VmRSS")
            with contextlib.suppress(OSError):
                measured.memory_kb["peak until the last round"] = memory_kb(server.pid, "VmHWM")
        else:
            print(line, end="", flush=True)
        if server.poll() is None:
            with contextlib.suppress(OSError):
                measured.memory_kb["peak"] = max(measured.memory_kb.get("peak", 0), memory_kb(server.pid, "VmHWM"))
    measured.ended_s = time.perf_counter() - began
    measured.code = server.wait()
    measured.clients_good = sum(crowd.wait() == 0 for crowd in crowds)
    return measured


def shares(clients: int, kill: int, processes: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last rank of each process, those to be killed first."""
    if kill:
        yield clients - kill + 1, clients
    left = clients - kill
    for i in range(processes):
        first, last = 1 + left * i // processes, left * (i + 1) // processes
        if first <= last:
            yield first, last


def start_crowd(
    folder: Path, clients: int, rounds: int, least: int, port: int, first: int, last: int, stack: contextlib.ExitStack
) -> subprocess.Popen[Any]:
    """Start a process of light clients."""
    flags = {"clients": clients, "rounds": rounds, "least": least, "port": port, "live": f"{first}-{last}"}
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    process = subprocess.Popen([sys.executable, str(HERE), "--folder", str(folder), *words])
    stack.callback(stop, process)
    return process


def stop(process: subprocess.Popen[Any]) -> None:
    """End a process that was started here, if it has not ended."""
    if process.poll() is None:
        process.kill()
    process.wait()


@cache
def raise_limit() -> None:
    """Let this process and those that it starts open as many files as they may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1_000])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--kill", type=int, default=50, help="at most a tenth of the clients is killed")
    parser.add_argument("--processes", type=int, default=2, help="of light clients")
    parser.add_argument("--aggregators", type=int, default=0, help="between the clients and the server")
    parser.add_argument("--output", type=Path, help="folder for many_sites.md; without, the figures are only printed")
    for name, kind in {"folder": Path, "least": int, "port": int, "live": str}.items():
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    raise_limit()
    if chosen.live is not None:
        return live_all(chosen)
    from fastlloyd_papers.engine.quiet import begin_quietly

    before = begin_quietly()
    if chosen.aggregators:
        trees = {}
        for clients, aggregators in itertools.product(chosen.clients, (0, chosen.aggregators)):
            one = measure(clients, chosen.rounds, 0, chosen.processes, aggregators=aggregators)
            print(clients, aggregators, json.dumps(vars(one)), flush=True)
            trees[clients, aggregators] = one
        report_tree(trees, before, chosen)
        return 0
    found = {}
    for clients in chosen.clients:
        kill = min(chosen.kill, clients // 10)
        for case in [(clients, 0, None), *([(clients, kill, None), (clients, kill, 0.0)] if kill else [])]:
            found[case] = measure(clients, chosen.rounds, case[1], chosen.processes, reconnect=case[2])
            print(*case, json.dumps(vars(found[case])), flush=True)
    report(found, before, chosen)
    return 0


def report_tree(found: dict[tuple[int, int], Measured], before: float, chosen: argparse.Namespace) -> None:
    """Print the page about aggregators, and write it where that was asked for."""
    from fastlloyd_papers.engine.machine import describe_machine

    def row(clients: int, aggregators: int, one: Measured) -> str:
        cpu, memory = one.server_cpu_s, one.memory_kb
        set_up, rounds = cpu["set up"] - cpu["before"], cpu["last round"] - cpu["set up"]
        each = (memory["peak until the last round"] - memory["before"]) / clients
        ended = "good" if one.code == 0 and one.included == [clients] * chosen.rounds else f"exit code {one.code}"
        return (
            f"| {clients:,} | {aggregators} | {set_up:.2f} | {rounds / chosen.rounds * 1e3:,.0f} | {each:,.0f} | "
            f"{one.set_up_s:.0f} | {statistics.median(one.rounds_s):.2f} | {ended} |"
        )

    lines = "\n".join(row(*key, one) for key, one in found.items())
    text = f"""# A server with aggregators below it

{describe_machine()}, load before the first run {before:.1f}. `fastlloyd serve` with a roster, `fastlloyd serve --parent` for each
aggregator, and light clients in {chosen.processes} processes, all on this machine, as in [a server with many sites](many_sites.md):
`python papers/benchmarks/many_sites.py --aggregators {chosen.aggregators}`. Protocol `fastlloyd`, k = d = {CLUSTERS}, {RECORDS} records a client,
{chosen.rounds} rounds; all clients are in every sum. Processor time is that of the server's own process, after it began to listen. Memory: resident, of that
process, beyond what it takes before the first client comes, over the number of clients. Elapsed times are of everything on these cores,
whatever else ran there: they say how long it took here, and nothing about trees.

| clients | aggregators | server: processor time to the end of the set-up, s | server: processor time of a round, ms | server: kB per client | elapsed: set up, s | elapsed: round, median, s | end |
|---:|---:|---:|---:|---:|---:|---:|---|
{lines}
"""
    print(text)
    if chosen.output is not None:
        chosen.output.mkdir(parents=True, exist_ok=True)
        (chosen.output / "aggregators.md").write_text(text)


def report(found: dict[tuple[int, int, float | None], Measured], before: float, chosen: argparse.Namespace) -> None:
    """Print the page, and write it where that was asked for."""
    from fastlloyd_papers.engine.machine import describe_machine

    def row(clients: int, kill: int, reconnect: float | None, one: Measured) -> str:
        rounds = sorted(one.rounds_s) or [0.0]
        base = one.memory_kb.get("before", 0)
        late, peak = ((one.memory_kb.get(name, 0) - base) / clients for name in ("peak until the last round", "peak"))
        least = min(one.included, default=0)
        ended = "good" if one.code == 0 and len(one.included) == chosen.rounds else f"exit code {one.code}"
        return (
            f"| {clients:,} | {kill} | {DEADLINE_S / 2 if reconnect is None else reconnect:.0f} | {one.joined_s:.1f} | {one.set_up_s:.1f} | {statistics.median(rounds) * 1e3:,.0f} | "
            f"{rounds[-1] * 1e3:,.0f} | {least:,} | {one.ended_s:.1f} | {late:,.0f} | {peak:,.0f} | {ended} |"
        )

    lines = "\n".join(row(*key, one) for key, one in found.items())
    text = f"""# A server with many sites

{describe_machine()}, load before the first run {before:.1f}. `fastlloyd serve` with a roster, and light clients in
{chosen.processes} processes on the same machine (one more for those that are killed), each with a TLS connection of its own:
`python papers/benchmarks/many_sites.py`. Protocol `fastlloyd`, k = d = {CLUSTERS}, {RECORDS} records a client, {chosen.rounds} rounds. Times in seconds from
the moment the server listens, rounds in ms; starting the clients' processes is part of them. Killed: so many clients in one
process get SIGKILL when the server has closed round {KILL_IN_ROUND}. "May come back": for how long
a cut connection is waited for (`--reconnect`; by default half of `--deadline`, which is {DEADLINE_S:.0f} s here); the server cannot tell
a killed client from a cut connection, so that round takes as long. Memory: resident, of the server, beyond what it takes before the first
client comes, over the number of clients, at its highest; "whole run" includes the exchange of counters and signatures at the end.

| clients | killed | may come back, s | joined, s | set up, s | round, median, ms | longest, ms | in the smallest sum | whole run, s | kB per client, to the last round | whole run, kB | end |
|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|
{lines}
"""
    print(text)
    if chosen.output is not None:
        chosen.output.mkdir(parents=True, exist_ok=True)
        (chosen.output / "many_sites.md").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
