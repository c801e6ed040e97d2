"""Prints what a process sees of itself, and then does what it is asked."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

OWN = "FASTLLOYD_TEST_"


def seen(place: str) -> list[str]:
    """Return the words or variables that /proc has of this process."""
    return [text for text in Path("/proc/self", place).read_text().split("\0") if not text.startswith(OWN)]


if __name__ == "__main__":
    umask = os.umask(0)
    os.umask(umask)
    facts = {
        "words": [sys.argv, sys.orig_argv, [word for word in seen("cmdline") if word]],
        "environment": [
            sorted({*seen("environ"), ""}),
            {name: os.environ[name] for name in os.environ if OWN not in name},
        ],
        "path": sys.path,
        "folder": [str(Path.cwd()), umask],
        "descriptors": sorted(int(path.name) for path in Path("/proc/self/fd").iterdir())[:-1],
        "streams": [
            [stream.name, stream.encoding, stream.errors, stream.line_buffering]
            for stream in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "signals": [str(signal.getsignal(number)) for number in range(1, 32)],
        "absent": [name for name, module in sys.modules.items() if module is None],
        "read": sys.stdin.read(),
        "threads": len(list(Path("/proc/self/task").iterdir())),
    }
    print(json.dumps([os.getpid(), facts]), flush=True)
    what = sys.argv[1]
    if what == "raise":
        raise ValueError("as asked")
    if what == "die":
        os.kill(os.getpid(), signal.SIGUSR2)
    if what == "wait":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(41))
        print("waits", flush=True)
        time.sleep(60)
    sys.exit(what)
