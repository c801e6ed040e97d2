"""What a client kept of an interrupted run.

Source: docs/protocol.md, "Resume".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StoredRounds:
    """What a client kept of an interrupted run.

    Attributes
    ----------
    uplinks, replies : mapping from round to the bytes that were sent or accepted
    server_done : int
        Rounds that the server has closed.
    """

    uplinks: Mapping[int, bytes] = field(default_factory=dict)
    replies: Mapping[int, bytes] = field(default_factory=dict)
    server_done: int = 0
