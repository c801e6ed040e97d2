"""Digests of records for their owner's ledger, under a key that is stored beside it.

Source: docs/privacy.md, "The ledger".
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, Reason
from fastlloyd.wire.regular import read_regular_bytes, replace_file, sync_directory

DIGEST_KEY_BYTES = 32
PRIVATE_MODE = 0o600


def keyed_digest(key: bytes, content: bytes | NDArray[Any]) -> str:
    """Return a digest of records; without the key it cannot be used to test guesses.

    Parameters
    ----------
    key : bytes
        As `Ledger.digest_key` gives it.
    content : bytes or array
        For an array its type and shape count too.

    Returns
    -------
    str
        HMAC-SHA256, 64 hexadecimal digits.

    Privacy
    -------
    A plain hash of a table with few possible values could be guessed; keep the key where the data is.
    """
    if isinstance(content, np.ndarray):
        return digest_blocks(key, content.dtype, content.shape, [content])
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def digest_blocks(key: bytes, kind: np.dtype[Any], shape: tuple[int, ...], raw_blocks: Iterable[NDArray[Any]]) -> str:
    """Return the digest of an array, as `keyed_digest` does, by blocks of its rows in their order."""
    mac = hmac.new(key, f"{kind.str} {shape}\n".encode(), hashlib.sha256)
    for block in raw_blocks:
        mac.update(np.ascontiguousarray(block).data)
    return mac.hexdigest()


def key_path(ledger: Path) -> Path:
    """Return where the key of a ledger's digests is kept."""
    return ledger.with_name(f"{ledger.name}.key")


def load_key(path: Path, *, create: bool = True) -> bytes:
    """Return the key of a ledger's digests; with `create`, it is made atomically at first use, under the ledger's lock.

    Raises
    ------
    ConfigError
        The file cannot be read or made, or has another length.
    """
    try:
        if create and not path.exists():
            replace_file(path, [os.urandom(DIGEST_KEY_BYTES)], mode=PRIVATE_MODE, draft=f"{path.name}.new")
            sync_directory(path.parent)
        key = read_regular_bytes(path)
    except FileNotFoundError as error:
        raise ConfigError(
            f"expected the key {path} beside the ledger, whose lines name the records under it, got none; restore it "
            f"from a copy, or, without one, make another (head -c {DIGEST_KEY_BYTES} /dev/urandom > {path}): earlier "
            "runs then look like runs with other records, and still count against the budget",
            reason=Reason.STATE,
        ) from error
    except OSError as error:
        problem = f"cannot keep the key {path}: {error.strerror}; check its directory"
        raise ConfigError(problem, reason=Reason.STATE) from error
    if len(key) != DIGEST_KEY_BYTES:
        raise ConfigError(
            f"expected {DIGEST_KEY_BYTES} bytes in the key {path}, got {len(key)}; restore it from a copy",
            reason=Reason.STATE,
        )
    return key
