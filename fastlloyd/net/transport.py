"""The interface every transport offers: frames of bytes between numbered parties, nothing else.

A transport knows nothing of k-means, messages or encryption. Frames from one peer arrive whole and in
the order they were sent; frames of different peers may interleave in any order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

from fastlloyd.errors import InternalError, PeerError
from fastlloyd.net.sockets import WireBytes
from fastlloyd.wire.header import PartyId

MAX_FRAME_BYTES = 1 << 30


class Transport(ABC):
    """Moves frames between this party and its peers.

    Attributes
    ----------
    me : PartyId
    peers : tuple of PartyId
        All other parties, in rank order.
    most_frame : int
        A longer frame of a peer is refused as soon as its length is known, before memory is allocated.
    """

    me: PartyId
    peers: tuple[PartyId, ...]
    most_frame: int = MAX_FRAME_BYTES

    @abstractmethod
    def send(self, peer: PartyId, frame: bytes | bytearray | memoryview) -> None:
        """Hand over a frame for delivery; never wait for the peer to read it.

        The caller may change the buffer afterwards. Point to point: no other party is involved.

        Raises
        ------
        PeerGone
            The peer's connection is known to have ended.
        """

    @abstractmethod
    def receive(self, timeout_s: float) -> tuple[PartyId, bytes] | None:
        """Return the next frame of any peer, or None when `timeout_s` seconds pass without one.

        `timeout_s = 0` polls once.

        Raises
        ------
        PeerGone
            A peer's connection ended, and all of its frames were returned.
        PeerError
            A peer announced a frame longer than `most_frame`.
        """

    @abstractmethod
    def close(self, *, lost: bool = False) -> None:
        """Flush and release everything; idempotent.

        Parameters
        ----------
        lost : bool
            A peer is lost: do not wait for any peer (for MPI: never finalise).
        """

    @property
    def absent(self) -> frozenset[PartyId]:
        """Peers that have not joined yet; empty if a launcher starts all parties."""
        return frozenset()

    @property
    def refused(self) -> str:
        """Why a client that no key named was not let in, for the sentence about an absent one; empty if none was."""
        return ""

    @property
    def carrier(self) -> str | None:
        """What carries the frames, as observed so far, for the report; None if that is clear."""
        return None

    def wire(self, ahead: Sequence[int] = ()) -> WireBytes | None:
        """Count the bytes on the network for this party's frames; None if they cannot be counted.

        Parameters
        ----------
        ahead : sequence of int
            Sizes of the frames that this party will still send; they and the end of connections are added.
        """
        return None

    def opens(self, peer: PartyId) -> bool:
        """Whether an aggregator has opened the peer's link: messages are in clear, inside the aggregator's TLS."""
        return False

    def order(self, order: bytes) -> None:  # noqa: B027 - few transports have aggregators
        """Order the aggregators, if any, to add up messages (`net/link/sums.py`)."""

    def flush(self) -> None:  # noqa: B027 - few transports keep anything back
        """Send frames that are held back because several peers might get the same."""

    def check_send(self, peer: PartyId, size: int) -> None:
        """Refuse a frame without a receiver, or one above `MAX_FRAME_BYTES`.

        Raises
        ------
        InternalError
            The caller is at fault: only a bug addresses such a frame.
        """
        if peer not in self.peers:
            names = ", ".join(str(other) for other in self.peers)
            raise InternalError(f"{self.me} cannot send to {peer}: its peers are {names}")
        if size > MAX_FRAME_BYTES:
            raise InternalError(
                f"a frame of {size} bytes for {peer} is above the limit of {MAX_FRAME_BYTES} bytes: split it"
            )

    def too_long(self, sender: PartyId, size: int) -> PeerError:
        """Return the error for a frame that is longer than the sender's messages can be now."""
        return PeerError(
            f"{sender} announced {size} bytes at once, expected at most {self.most_frame} in this part of the run",
            rank=sender.rank,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(lost=kind is not None)
