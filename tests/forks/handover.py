"""The side of the process that was started: gives all that it has to a fork, waits, and ends as that one does.

It imports nothing that a starting interpreter has not imported: each module would cost every start.
"""

import _signal
import _socket
import marshal
import os
import sys

_PASSED = (1, 2, 3, 10, 12, 15)
# Variables of the interpreter that change nothing in a fork, or that it obeys.
_SAME = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")


def hand_over() -> None:
    """Let a warm process run this one's program, and end with it; return where only this one can run it."""
    name, _, rest = os.environ.get("FASTLLOYD_TEST_FORKS", "").partition(":")
    prefix, _, root = rest.partition(":")
    if not is_near(name) or sys.prefix != prefix or not _is_served(root):
        return
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    if link.connect_ex(name):
        return  # the tests have ended
    ask(link, _own(link))
    pid = read(link)
    if pid is None:
        return
    for number in _PASSED:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, lambda number, _: os.kill(pid, number))
    status = read(link)
    if status is None:
        os._exit(71)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != _signal.SIGKILL:
            _signal.signal(number, _signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def is_near(name: str) -> bool:
    """Whether the server of this name gives processes the numbers that they have here."""
    return name.endswith(f"-{os.stat('/proc/self/ns/pid').st_ino}")  # noqa: PTH116


def ask(link: _socket.socket, given: dict[str, object], descriptors: list[int] | None = None) -> None:
    """Ask the server for a fork with these descriptors, under the numbers that `given` has for them."""
    told = marshal.dumps(given)
    passed = given["numbers"] if descriptors is None else descriptors
    rights = b"".join(number.to_bytes(4, sys.byteorder) for number in passed)
    link.sendmsg([len(told).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    link.sendall(told)


def read(link: _socket.socket) -> int | None:
    """Read a number; None: the other side is gone."""
    data = b""
    while len(data) < 4:
        more = link.recv(4 - len(data))
        if not more:
            return None
        data += more
    return int.from_bytes(data, "big")


def _own(link: _socket.socket) -> dict[str, object]:
    """Return all that this process was given."""
    listed = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    umask = os.umask(0)
    os.umask(umask)
    return {
        "words": sys.orig_argv,
        "environment": dict(os.environb),
        "folder": os.getcwdb(),  # noqa: PTH109
        "numbers": [number for number in listed if number != link.fileno() and _is_open(number)],
        "umask": umask,
        "ignored": [number for number in _PASSED if _signal.getsignal(number) == _signal.SIG_IGN],
        "absent": [name for name, module in sys.modules.items() if module is None],
        "path": sys.path,
        "streams": [(stream.encoding, stream.errors) for stream in (sys.stdin, sys.stdout, sys.stderr)],
    }


def _is_served(root: str) -> bool:
    """Whether the program is one of this checkout, started plainly: with no option of the interpreter, in UTF-8."""
    words = sys.orig_argv[1:]
    program, module = (*words, "", "")[:2]
    if program == "-m":
        if module.partition(".")[0] not in ("fastlloyd", "tests"):
            return False
    elif program != f"{sys.prefix}/bin/fastlloyd" and not program.startswith(f"{root}/tests/"):
        return False
    if any(name.startswith("PYTHON") and name not in _SAME for name in os.environ):
        return False
    if not all(stream is not None and stream.encoding == "utf-8" for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return False
    places = (place for place in ("", *sys.path) if os.access(f"{place or '.'}/fastlloyd/__init__.py", os.F_OK))
    return os.path.realpath(next(places, root)) == os.path.realpath(root)


def _is_open(number: int) -> bool:
    """Whether a descriptor is open, and not the one that listed them."""
    try:
        os.get_inheritable(number)
    except OSError:
        return False
    return True
