"""`python tests/forks/server.py NAME ROOM`: has imported everything, and forks for each process that asks."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import marshal
import os
import pickle
import runpy
import selectors
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests import forks
from tests.same_bits import SameBits

_ARG_START, _ARG_END, _ENV_START, _ENV_END = 45, 46, 47, 48
_PROGRAMS = ("fastlloyd.client", "fastlloyd.server", "fastlloyd.__main__")
# What they import when they run.
_WARM = (
    *("cli.join", "cli.plan", "cli.run", "cli.serve", "data.connection", "dossier.own_part", "dossier.verify"),
    *("net.delay", "net.mpi.transport", "net.tcp.hub", "net.tcp.spoke", "privacy.accountant", "privacy.calibration"),
    *(f"protocols.{name}.protocol" for name in ("fastlloyd", "feddp", "kfed", "secfc", "vertical_dp", "vertical_he")),
    *("report.announcer", "report.labelling", "report.plot", "report.table", "run.execute", "run.inputs"),
    *("supervise.lifeline", "supervise.offers", "supervise.supervisor", "watch.status"),
)
_WARM_OTHERS = (
    *("cryptography.hazmat.backends.openssl.backend", "encodings.ascii", "encodings.idna", "encodings.utf_8_sig"),
    *("tests.adversary.arena", "tests.adversary.losses", "tests.adversary.relay"),  # what prepares a process
    *("dp_accounting.pld.privacy_loss_distribution", "mpmath", "scipy.optimize", "scipy.special", "tenseal.sealapi"),
)


def main(name: str) -> None:
    """Serve until the last test process has gone."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(name)
    except OSError:
        return  # another worker was faster
    listener.listen(128)
    os.environ.pop("FASTLLOYD_TEST_ROOM", None)
    warm()
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    links: dict[socket.socket, tuple[int, int] | None] = {}  # of each: number and descriptor of its fork
    forks: dict[int, socket.socket] = {}
    while True:
        for key, _ in selector.select():
            source: Any = key.fileobj
            if source is listener:
                link, _ = listener.accept()
                if _peer(link)[1] != os.getuid():
                    link.close()
                    continue
                links[link] = None
                selector.register(link, selectors.EVENT_READ)
            elif source in forks:  # a fork has ended
                link = forks.pop(source)
                selector.unregister(source)
                pid, _ = links[link] or (0, 0)
                with contextlib.suppress(OSError):
                    link.sendall(os.waitpid(pid, 0)[1].to_bytes(4, "big"))
                os.close(source)
                _drop(selector, links, link)
            elif source in links:
                fork = links[source]
                asked = None if fork else _receive(source)
                if asked is not None:
                    pid = os.fork()
                    if not pid:
                        _be(_peer(source)[0], *asked)
                    for number in asked[1]:
                        os.close(number)
                    with contextlib.suppress(OSError):
                        source.sendall(pid.to_bytes(4, "big"))
                    descriptor = os.pidfd_open(pid)
                    links[source] = pid, descriptor
                    forks[descriptor] = source
                    selector.register(descriptor, selectors.EVENT_READ)
                elif fork:  # what was started is gone
                    os.kill(fork[0], signal.SIGKILL)
                    selector.unregister(source)
                else:
                    _drop(selector, links, source)
        if not links:
            Path(name).unlink()
            return


def warm() -> None:
    """Import what the programs import, but for the programs themselves."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    for name in (*_WARM_OTHERS, *(f"fastlloyd.{name}" for name in _WARM), *_PROGRAMS):
        importlib.import_module(name)
    for name in _PROGRAMS:
        del sys.modules[name]  # each fork runs it anew
    from fastlloyd.report import document

    document.machine()  # which reads the versions of packages once
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    importlib.import_module("mpi4py.MPI")
    gc.collect()
    gc.freeze()


def _peer(link: socket.socket) -> tuple[int, int]:
    """Return the number and the user of the process at the other end."""
    pid, user, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, user


def _drop(selector: selectors.BaseSelector, links: dict[socket.socket, Any], link: socket.socket) -> None:
    """Forget a link."""
    with contextlib.suppress(KeyError):
        selector.unregister(link)
    del links[link]
    link.close()


def _receive(link: socket.socket) -> tuple[Any, list[int]] | None:
    """Receive what a process was given, with its descriptors; None when it has gone."""
    head, descriptors, _, _ = socket.recv_fds(link, 4, 253)
    if not head:
        return None
    size = int.from_bytes(head, "big")
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            return None
        data += more
    return marshal.loads(data), descriptors


def _be(started: int, given: Any, descriptors: list[int]) -> NoReturn:
    """Be the process that was started: with its descriptors, environment, folder and arguments, run its program."""
    words, environment = given["words"], given["environment"]
    environment |= [forks.mark(started).split(b"=")]
    os.setsid()
    _enter(started)
    _take(dict(zip(given["numbers"], descriptors, strict=True)))
    os.environb.clear()
    os.environb.update(environment)
    _show(words, environment)
    os.chdir(given["folder"])
    if "umask" in given:
        os.umask(given["umask"])
    for number in (signal.SIGINT, *given.get("ignored", ())):
        signal.signal(number, signal.SIG_IGN if number in given.get("ignored", ()) else signal.default_int_handler)
    for name in given["absent"]:
        sys.modules[name] = None  # type: ignore[assignment]
    sys.orig_argv = list(words)
    sys.path[:] = given["path"]
    importlib.invalidate_caches()
    _open_streams(given["streams"], write_through=b"PYTHONUNBUFFERED" in environment)
    gc.enable()
    code = 0
    try:
        if "bits" in given:
            SameBits().stand_in(given["bits"])
        if "prepare" in given:
            pickle.loads(given["prepare"])()
        if words[1] == "-m":
            sys.argv = ["-m", *words[3:]]
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words[1:]
            sys.path.insert(0, str(Path(words[1]).parent))
            runpy.run_path(words[1], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt as error:
        _complain(error)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:
        _complain(error)
        code = 1
    # What the interpreter does at its end, but for taking itself apart.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if "mpi4py.MPI" in sys.modules and sys.modules["mpi4py.MPI"].Is_initialized():
        ctypes.PyDLL(None).exit(code)  # with what libraries do at the end: MPICH leaves its launcher then
    os._exit(code)


def _enter(started: int) -> None:
    """Enter the namespaces of users, mounts and networks in which a process was started."""
    kinds = ("user", "mnt", "net")
    theirs = [os.open(f"/proc/{started}/ns/{kind}", os.O_RDONLY) for kind in kinds]
    own = [Path("/proc/self/ns", kind).stat().st_ino for kind in kinds]
    for kind, number, inode in zip(kinds, theirs, own, strict=True):
        if os.fstat(number).st_ino != inode:
            assert ctypes.CDLL(None).setns(number, 0) == 0, f"no way into the {kind} namespace of process {started}"


def _complain(error: BaseException) -> None:
    """Print the traceback of the program, without what called it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        trace = trace.tb_next
    traceback.print_exception(error.with_traceback(trace))


def _open_streams(streams: Sequence[tuple[str, str]], *, write_through: bool) -> None:
    """Open standard input, output and error as the interpreter does, each with this encoding and handling of errors."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        encoding, errors = streams[number]
        raw = io.FileIO(number, mode, closefd=False)
        raw.name = f"<{name}>"
        buffered = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
        stream = io.TextIOWrapper(
            buffered,
            encoding,
            errors,
            line_buffering=mode == "w" and (os.isatty(number) or name == "stderr") and not write_through,
            write_through=write_through and mode == "w",
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _take(descriptors: dict[int, int]) -> None:
    """Have these descriptors under these numbers, and no others."""
    above = max((*descriptors, *descriptors.values())) + 1
    moved = {}
    for number, descriptor in descriptors.items():
        moved[number] = above
        os.dup2(descriptor, above)
        above += 1
    for number, descriptor in moved.items():
        os.dup2(descriptor, number)
    kept = sorted(moved)
    for low, high in zip((-1, *kept), (*kept, os.sysconf("SC_OPEN_MAX")), strict=True):
        if low + 1 < high:
            os.closerange(low + 1, high)


def _show(words: list[str], environment: dict[bytes, bytes]) -> None:
    """Have /proc show the words and the environment, where it shows those with which this server was started."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    for first, last, texts in (
        (_ARG_START, _ARG_END, [os.fsencode(word) for word in words]),
        (_ENV_START, _ENV_END, [name + b"=" + value for name, value in environment.items()]),
    ):
        start, room = int(fields[first]), int(fields[last]) - int(fields[first])
        shown = b"\0".join((*texts, b""))
        assert len(shown) <= room, f"the server that forks was started with room for {room} bytes, not {len(shown)}"
        ctypes.memset(start, 0, room)
        ctypes.memmove(start, shown, len(shown))


if __name__ == "__main__":
    main(sys.argv[1])
