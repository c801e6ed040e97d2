r"""Flajolet-Martin partition sketches of several parties, private as one mechanism: their shape, making and privacy.

Parties that hold different columns of the same n users have each sorted the users into k' local clusters. With a key
that they share and the server does not know, every user gets M pseudo-random levels, one per row. A party's sketch
holds, per row and local cluster, the highest level among the cluster's users and some phantoms; the server combines
sketches by maxima and estimates how many users any union, hence any intersection, of clusters has.

The joint row of all parties is epsilon'-differentially private
---------------------------------------------------------------
All parties hash a user with the same key, so their sketches are one mechanism, not independent ones: a user alone in
its cluster at two parties shows the same extreme level twice. (The paper composes over the parties and adds phantoms
to each party's clusters on their own; its Theorem 4 does not hold.) Here phantoms are users of the grid [k']^s of all
combinations of local clusters of the s parties that share the key: n_p of them in each grid cell, their levels drawn
from the shared key, so that each party enters a phantom into its own coordinate of the cell.

1. *The grid's row.* Let G_c be the highest level among the users and phantoms of grid cell c, and
   G'_c = max(G_c, alpha_min). Under an ideal hash function the cells are independent, as each user is in one cell.
2. *One user.* Counting a user or not changes one cell, from N to N + 1 users. By the bound at the head of
   `level.py` every probability of G'_c changes by a factor within e^(+-epsilon'), epsilon' =
   ln(1 + 1 / n_p), whatever N is, so also for a user who is alone in the cell. Hence the row (G'_c)_c is epsilon'-DP.
3. *Post-processing.* Party l's entry for its cluster a is max(alpha_min, highest level of users and phantoms with
   coordinate a) = max over the cells c with c_l = a of G'_c. So what all parties send together is a function of
   (G'_c)_c, and epsilon'-DP as a whole: there is no factor s and nothing to split over the parties.
4. *Rows and groups.* Rows, and groups of parties with separate keys, use independent levels. M rows for each of g
   groups are M g mechanisms of pure epsilon', and any adaptive composition of these is dominated by as many randomised
   responses (Kairouz, Oh, Viswanath 2015); `privacy/accountant.py` composes these exactly.

The levels come from ChaCha20 under a key of 256 bits in place of an ideal hash function: the claim is computational,
and holds towards parties that do not know the key. The local clusters are a function of the user's own row and released
centres, so removing one user changes no other user's cell.

Cost: (k')^(s - 1) n_p phantoms are in each local cluster. For s > 2 parties one key and sketch per pair of parties
keeps that at k' n_p; every user is then in s (s - 1) / 2 groups.

Words
-----
A user's words are bytes of one ChaCha20 key stream: record r has its own 4 M bytes, at the offset that its place in
the agreed order gives. The word of row i is the i-th of these, little-endian. Records are taken 256 to a nonce, so
that no counter wraps and memory stays bounded. Phantoms have a stream under another key: 8 bytes per row and grid
cell, row after row.

On the wire
-----------
Each level takes as many bits as the levels from floor to top need, and no more. Levels are written as
level - alpha_min, highest bit first, row after row, clusters in order; bits that are left over at the end are 0. The
length depends on public parameters only. With the defaults a level takes 16 bits or fewer, where the paper's code
ships 64.

Source: Vertical DP, Lemma 1, Algorithms 2 and 3, corrected, §4.4 "Communication cost"; RFC 8439 (ChaCha20);
docs/vertical-dp-privacy.md.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, DataError, RangeError
from fastlloyd.privacy.release import SKETCH_ROWS, Release
from fastlloyd.protocols.vertical_dp.sketch.level import (
    WORD_BITS,
    LevelTable,
    PhantomTable,
    check_phantoms,
    level_table,
    phantom_table,
    phantoms_for,
    row_epsilon,
)
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import derive
from fastlloyd.randomness.secret import SecretRandom

GRID_PHANTOMS = "grid"
PAPER_PHANTOMS = "paper"
MAX_ROWS = 1 << 16
MAX_CLUSTERS = 256
MAX_CELLS = 1 << 18
Levels = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchShape:
    """What all parties of a group, and the server, agree on; everything here is public.

    Attributes
    ----------
    rows : int
        Paper: M.
    clusters : int
        Paper: k'.
    parties : int
        s, the parties that share the key of this sketch: 2 for pairs.
    gamma : float
        Paper: gamma.
    phantoms : int
        Paper: n_p, per grid cell; per local cluster with the paper's phantoms.
    scheme : {'grid', 'paper'}
        'paper' draws phantoms per party and cluster, for comparison only: it is not private as claimed.
    word_bits : int
        32; fewer only for tests that enumerate all words.

    Raises
    ------
    ConfigError
        A value is out of range.
    """

    rows: int
    clusters: int
    parties: int = 2
    gamma: float = 2.0**-11
    phantoms: int
    scheme: str = GRID_PHANTOMS
    word_bits: int = WORD_BITS

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= MAX_ROWS:
            raise ConfigError(f"vertical-dp.rows: expected 1 to {MAX_ROWS} rows per sketch, got {self.rows}")
        if not 1 <= self.clusters <= MAX_CLUSTERS:
            raise ConfigError(f"expected 1 to {MAX_CLUSTERS} local clusters, got {self.clusters}; lower local clusters")
        if self.parties < 2:
            raise ConfigError(f"expected a sketch shared by 2 or more parties, got {self.parties}")
        if self.scheme not in (GRID_PHANTOMS, PAPER_PHANTOMS):
            raise ConfigError(f"vertical-dp.phantoms: expected 'grid' or 'paper', got {self.scheme!r}")
        if self.cells > MAX_CELLS:
            raise ConfigError(
                f"expected at most {MAX_CELLS} grid cells in one sketch, got {self.clusters}^{self.parties}; "
                "take one sketch per pair of parties (weights = '2pest') or fewer local clusters"
            )
        # The table of the phantoms takes a while: made when asked for.
        level_table(self.gamma, self.word_bits)
        check_phantoms(self.phantoms)

    @property
    def cells(self) -> int:
        """(k')^s."""
        return int(self.clusters**self.parties)

    @property
    def user_levels(self) -> LevelTable:
        """The distribution of a user's level."""
        return level_table(self.gamma, self.word_bits)

    @property
    def phantom_levels(self) -> PhantomTable:
        """The distribution of the highest level of n_p phantoms."""
        return phantom_table(self.gamma, self.phantoms, self.word_bits)

    @property
    def floor(self) -> int:
        """Paper: alpha_min, the lowest level that is ever reported."""
        return self.user_levels.floor(self.phantoms)

    @property
    def top(self) -> int:
        """The highest level."""
        return self.user_levels.top

    @property
    def row_epsilon(self) -> float:
        """Epsilon' of one joint row of all parties of the group, pure.

        Raises
        ------
        ConfigError
            The phantoms are the paper's: no such claim holds.
        """
        if self.scheme != GRID_PHANTOMS:
            raise ConfigError("phantoms = 'paper' has no (epsilon, delta); take phantoms = 'grid' for a private run")
        return row_epsilon(self.gamma, self.phantoms, self.word_bits)


def make_sketch(
    raw_labels: NDArray[np.int64], position: int, key: bytes, shape: SketchShape, secret: SecretRandom | None = None
) -> Levels:
    """Make one party's sketch of its local clusters.

    Parameters
    ----------
    raw_labels : int64 array, shape (n,)
        Local cluster 0..k'-1 of each user, in the order that all parties of the group agreed on; -1 for a user that
        does not count.
    position : int
        This party's coordinate in the grid, 0..s-1, in the group's order.
    key : bytes of length 32
        Shared by the group's parties, unknown to the server, used for this sketch only and forgotten afterwards.
    shape : SketchShape
    secret : SecretRandom, optional
        Only for the paper's phantoms, which each party draws on its own.

    Returns
    -------
    int64 array, shape (M, k')
        Levels from `shape.floor` to `shape.top`: released.

    Raises
    ------
    DataError
        A label is out of range.

    Notes
    -----
    Sees: the raw maxima stay in this call. All parties' sketches of the group together go to the server.

    Privacy: each joint row is pure `shape.row_epsilon`-DP for one user counted or not, and all M rows are M such
    mechanisms; nothing of the sort holds for the paper's phantoms.

    Memory: 256 records' words at a time, so bounded whatever n is.

    Source: Vertical DP, Algorithm 3, corrected.
    """
    if raw_labels.ndim != 1 or (len(raw_labels) and not -1 <= raw_labels.min() <= raw_labels.max() < shape.clusters):
        raise DataError(f"expected labels -1 to {shape.clusters - 1} in one vector, got other values or another shape")
    if not 0 <= position < shape.parties:
        raise DataError(f"expected a position from 0 to {shape.parties - 1} in the group, got {position}")
    words = raw_maxima(raw_labels, shape.clusters, shape.rows, key, shape.word_bits)
    if shape.scheme == PAPER_PHANTOMS:
        fresh = SecretRandom() if secret is None else secret
        phantoms = fresh.uint64(shape.rows * shape.clusters).reshape(shape.rows, shape.clusters)
    else:
        blocks = cell_blocks(key, shape.rows, shape.cells)
        phantoms = np.concatenate([party_phantoms(cells, position, shape) for cells in blocks])
    return join_levels(words, phantoms, shape)


def party_phantoms(words: NDArray[np.uint64], position: int, shape: SketchShape) -> NDArray[np.uint64]:
    """Enter the grid's phantoms into one party's clusters.

    Parameters
    ----------
    words : uint64 array, shape (rows, (k')^s)
        One word per row and grid cell, cells in row-major order of the parties' coordinates.
    position : int
    shape : SketchShape

    Returns
    -------
    uint64 array, shape (rows, k')
        The largest word over the cells whose coordinate `position` is this cluster.
    """
    grid = words.reshape(len(words), *([shape.clusters] * shape.parties))
    others = tuple(axis for axis in range(1, shape.parties + 1) if axis != position + 1)
    return np.asarray(grid.max(axis=others))


def join_levels(words: NDArray[np.uint32], phantoms: NDArray[np.uint64], shape: SketchShape) -> Levels:
    """Turn largest words into reported levels: the higher of users' and phantoms', at least the floor.

    Parameters
    ----------
    words : uint32 array, shape (M, k')
        Largest word of the users of each cluster; 0 without users, which is below the floor.
    phantoms : uint64 array, shape (M, k')
        Largest phantom word.
    shape : SketchShape
    """
    return np.maximum(np.maximum(shape.user_levels.levels(words), shape.phantom_levels.levels(phantoms)), shape.floor)


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


def level_bits(shape: SketchShape) -> int:
    """Return the bits that one level takes."""
    return max(1, (shape.top - shape.floor).bit_length())


def sketch_bytes(shape: SketchShape) -> int:
    """Return the bytes that one party's sketch takes."""
    return -(-shape.rows * shape.clusters * level_bits(shape) // 8)


def pack_sketch(levels: Levels, shape: SketchShape) -> bytes:
    """Write a sketch.

    Parameters
    ----------
    levels : int64 array, shape (M, k')
    shape : SketchShape

    Raises
    ------
    RangeError
        The array's shape or a level does not fit.
    """
    _check(levels, shape)
    places = np.arange(level_bits(shape) - 1, -1, -1, dtype=np.int64)
    bits = (levels.reshape(-1, 1) - shape.floor) >> places & 1
    return np.packbits(bits.astype(np.uint8)).tobytes()


def unpack_sketch(content: bytes, shape: SketchShape) -> Levels:
    """Read what `pack_sketch` wrote.

    Returns
    -------
    int64 array, shape (M, k')

    Raises
    ------
    RangeError
        The length, the bits left over at the end or a level does not fit.
    """
    if len(content) != sketch_bytes(shape):
        raise RangeError(f"expected a sketch of {sketch_bytes(shape)} bytes, got {len(content)}; check gamma and rows")
    width = level_bits(shape)
    used = shape.rows * shape.clusters * width
    bits = np.unpackbits(np.frombuffer(content, dtype=np.uint8))
    if bits[used:].any():
        raise RangeError("expected zeros after the last level of a sketch, got other bits; check the sender's version")
    places = np.arange(width - 1, -1, -1, dtype=np.int64)
    values = (bits[:used].reshape(-1, width).astype(np.int64) << places).sum(axis=1)
    levels: Levels = values.reshape(shape.rows, shape.clusters) + shape.floor
    _check(levels, shape)
    return levels


def _check(levels: Levels, shape: SketchShape) -> None:
    """Check the array's shape and the range of levels."""
    if levels.shape != (shape.rows, shape.clusters):
        raise RangeError(f"expected a sketch of shape {(shape.rows, shape.clusters)}, got {levels.shape}")
    low, high = int(levels.min()), int(levels.max())
    if not shape.floor <= low <= high <= shape.top:
        raise RangeError(f"expected levels from {shape.floor} to {shape.top} in a sketch, got {low} to {high}")


ZERO_OUT = "zero-out of one user's row"
_NAME = "partition sketches"


def sketch_release(shape: SketchShape, groups: int = 1) -> Release:
    """Return the release of all parties' sketches together, as each party records it before it sends its own.

    Parameters
    ----------
    shape : SketchShape
    groups : int
        Groups of parties with a separate key and sketches: s (s - 1) / 2 for pairs among s parties.

    Returns
    -------
    Release
        M `groups` rows of pure `shape.row_epsilon`; without noise for the paper's phantoms, which promise nothing.

    Notes
    -----
    Privacy: neighbours are zero-out: one user's row counted or replaced by nothing, at all parties. For a change of
    the row's values to others, two cells of each row change: take half the noise scale (`change_release`).
    """
    if shape.scheme != GRID_PHANTOMS:
        return Release(
            round=0, name=_NAME, mechanism="none", sensitivity=1.0, norm="l1", noise_scale=0.0,
            neighbours=ZERO_OUT, seen_by="server",
        )  # fmt: skip
    return Release(
        round=0, name=_NAME, mechanism=SKETCH_ROWS, sensitivity=1.0, norm="pure",
        noise_scale=1.0 / shape.row_epsilon, unit="one user", neighbours=ZERO_OUT, seen_by="server",
        rows=shape.rows * groups,
    )  # fmt: skip


def change_release(release: Release) -> Release:
    """Return the same release for neighbours that differ in the values of one user's row: it moves twice as far."""
    return replace(release, sensitivity=2.0 * release.sensitivity, neighbours="change of one user's row", run="")


def paper_phantoms(rows: int, epsilon: float, delta: float) -> int:
    """Return the paper's n_p for one party's share: epsilon' = epsilon / (4 sqrt(M log(1 / delta))).

    Notes
    -----
    Source: Vertical DP, Algorithm 3 line 1, with epsilon_2 = b epsilon / (2 S) and delta_2 = delta / S.
    """
    if not (0.0 < delta < 1.0 and epsilon > 0.0):
        raise ConfigError(f"expected a positive epsilon and delta between 0 and 1, got {epsilon} and {delta}")
    return phantoms_for(epsilon / (4.0 * math.sqrt(rows * math.log(1.0 / delta))))
