"""Notes every path that a rank opens, from the interpreter's first moment on."""

import os
import sys

_rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK"))
if _rank is not None:
    _notes = os.open(f"{os.environ['RANK_NOTES']}/opened.{_rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _note(event: str, arguments: tuple) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes):
            os.write(_notes, os.fsencode(arguments[0]) + b"\n")

    sys.addaudithook(_note)
