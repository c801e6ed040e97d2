"""The largest body of each message before a vertical protocol begins."""

from __future__ import annotations

from fastlloyd.crypto.blinding import POINT_BYTES
from fastlloyd.lifecycle.align.messages import BlindedIds, Columns, IdTag, OpenedIds, RecordCount
from fastlloyd.randomness.prg import KEY_BYTES

_NUMBER_BYTES = 64


def align_sizes(most: int) -> dict[int, int]:
    """Return the sizes for `most` records, the public N."""
    return {
        Columns.TYPE: Columns.MOST_BYTES,
        RecordCount.TYPE: _NUMBER_BYTES,
        IdTag.TYPE: KEY_BYTES,
        BlindedIds.TYPE: POINT_BYTES * most,
        OpenedIds.TYPE: POINT_BYTES * most,
    }
