"""A private file with a path, for libraries that read and write only by path."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


class HiddenFile:
    """A file that is open for reading and writing, and removed by `close`.

    On Linux it is in memory, outside of every file system. Elsewhere it is a file of mode 0600 in the user's temporary
    folder; a killed process leaves it there.

    Attributes
    ----------
    descriptor : int
    path : str
        Valid for this process and, outside Linux, for others of the same user.
    """

    def __init__(self) -> None:
        self._named = not hasattr(os, "memfd_create")
        if self._named:
            self.descriptor, self.path = tempfile.mkstemp(prefix="fastlloyd-")
        else:
            self.descriptor = os.memfd_create("fastlloyd", os.MFD_CLOEXEC)
            self.path = f"/proc/self/fd/{self.descriptor}"

    def write(self, content: bytes) -> None:
        """Replace the content.

        Raises
        ------
        OSError
            Not all of it can be written.
        """
        os.ftruncate(self.descriptor, 0)
        place, rest = 0, memoryview(content)
        while rest:
            written = os.pwrite(self.descriptor, rest, place)
            place, rest = place + written, rest[written:]

    def close(self) -> None:
        """Close and remove the file."""
        os.close(self.descriptor)
        if self._named:
            Path(self.path).unlink(missing_ok=True)
