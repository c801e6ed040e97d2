"""The keyed hash of users and phantoms, and the largest words per cluster.

A user's words are bytes of one ChaCha20 key stream: record r has its own 4 M bytes, at the offset that its place in
the agreed order gives. The word of row i is the i-th of these, little-endian. Records are taken 256 to a nonce, so
that no counter wraps and memory stays bounded. Phantoms have a stream under another key: 8 bytes per row and grid
cell, row after row.

Source: RFC 8439 (ChaCha20); Vertical DP, Algorithm 2 (hash function H).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import derive

RECORDS_PER_NONCE = 256

_WORD_BYTES = 4
_CELL_BYTES = 8
_BLOCK_BYTES = 1 << 19


def raw_maxima(
    raw_labels: NDArray[np.int64], clusters: int, rows: int, key: bytes, word_bits: int = 32
) -> NDArray[np.uint32]:
    """Find the largest word per row and cluster.

    Parameters
    ----------
    raw_labels : int64 array, shape (n,)
        0..k'-1, or -1 for a record that does not count.
    clusters, rows : int
    key : bytes of length 32
    word_bits : int
        Words are cut to their highest `word_bits` bits.

    Returns
    -------
    uint32 array, shape (rows, clusters)
        0 for a cluster without records.

    Notes
    -----
    Sees: nobody but the caller. Equal raw maxima of two parties show common members: they must never be sent.
    """
    best = np.zeros((clusters + 1, rows), dtype=np.uint32)
    per_read = max(1, min(RECORDS_PER_NONCE, _BLOCK_BYTES // (_WORD_BYTES * rows)))
    zeros = bytes(per_read * rows * _WORD_BYTES)
    buffer = bytearray(len(zeros))
    words = np.frombuffer(buffer, dtype="<u4").reshape(per_read, rows)
    users = derive(key, domains.SKETCH_USERS)
    for first in range(0, len(raw_labels), RECORDS_PER_NONCE):
        nonce = bytes(4) + struct.pack("<QI", first // RECORDS_PER_NONCE, 0)
        stream = Cipher(ChaCha20(users, nonce), mode=None).encryptor()
        labels = raw_labels[first : first + RECORDS_PER_NONCE].tolist()
        for start in range(0, len(labels), per_read):
            part = labels[start : start + per_read]
            size = len(part) * rows * _WORD_BYTES
            stream.update_into(memoryview(zeros)[:size], memoryview(buffer)[:size])
            # Label -1 is the last line of `best`, which is dropped; one line at a time stays in the cache.
            for line, label in enumerate(part):
                np.maximum(best[label], words[line], out=best[label])
    return np.ascontiguousarray((best[:clusters] >> np.uint32(32 - word_bits)).T)


def cell_blocks(key: bytes, rows: int, cells: int) -> Iterator[NDArray[np.uint64]]:
    """Yield one word per row and grid cell for the phantoms, some rows at a time.

    Parameters
    ----------
    key : bytes of length 32
    rows, cells : int
        Together below 2^35 words, the length of one key stream.

    Yields
    ------
    uint64 array, shape (some rows, cells)
    """
    stream = Cipher(ChaCha20(derive(key, domains.SKETCH_PHANTOMS), bytes(16)), mode=None).encryptor()
    step = max(1, _BLOCK_BYTES // (_CELL_BYTES * cells))
    for first in range(0, rows, step):
        count = min(step, rows - first)
        content = stream.update(bytes(count * cells * _CELL_BYTES))
        yield np.frombuffer(content, dtype="<u8").astype(np.uint64).reshape(count, cells)
