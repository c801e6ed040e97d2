"""What mpirun starts: `fastlloyd.client`, and in the liar's process a changed `SecureLinks.send`.

`python -m tests.adversary.rank FLAGS`, with the lie as JSON in ADVERSARY_LIE and a folder in ADVERSARY_FOLDER.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

LIE, FOLDER = "ADVERSARY_LIE", "ADVERSARY_FOLDER"


def own_rank() -> int:
    """Return this process's rank as the launcher says it."""
    return int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])


def main() -> int:
    """Run one rank."""
    sys.modules["matplotlib"] = None  # type: ignore[assignment]
    if os.environ.get(LIE):
        from tests.adversary.lie import Lie, install

        lie = Lie.from_json(os.environ[LIE])
        if lie.rank == own_rank():
            install(lie, Path(os.environ[FOLDER]) / "told.jsonl")
    from fastlloyd.client import main as client

    return client()


if __name__ == "__main__":
    sys.exit(main())
