"""A rank like `fastlloyd.client`, but with plain links and zero masks: what TLS and masks cost is the rest.

For `round_cost.py` only: it protects nothing.
"""

from __future__ import annotations

import sys
import time
from collections import deque

import numpy as np

import fastlloyd.masking.mask as mask
import fastlloyd.run.execute as execute
from fastlloyd.client import main
from fastlloyd.net.link.secure import SecureLinks


class PlainLinks(SecureLinks):
    """Brings the links up as usual, then sends messages in clear."""

    def __init__(self, *arguments, **keywords) -> None:
        super().__init__(*arguments, **keywords)
        self._plain: deque = deque()

    def send(self, peer, message, *, payload_bytes, round) -> None:
        frame = b"\xff" + message
        self._transport.send(peer, frame)
        self._meter.sent[peer, round].add(1, payload_bytes, len(frame))

    def receive(self, timeout_s):
        end = time.monotonic() + timeout_s
        while True:
            if self._inbox:
                return self._inbox.popleft()
            found = self._transport.receive(max(end - time.monotonic(), 0.0))
            if found is None:
                return None
            peer, frame = found
            if frame[:1] == b"\xff":
                return peer, frame[1:]
            self._take(peer, frame)


def no_mask(self, round_, history, first, after):
    return np.zeros(self._elements, dtype=self._ring.dtype)


execute.SecureLinks = PlainLinks
mask.MaskGenerator._between = no_mask
sys.exit(main())
