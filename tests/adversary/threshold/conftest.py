"""What the tests of lying servers share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pytest

from fastlloyd.crypto.link import identity


@pytest.fixture(autouse=True, scope="package")
def signatures_checked_once() -> Iterator[None]:
    """Check a signature once for all clients of this process: each gets the same statements, and half the time went."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity, "verifies_with", lru_cache(maxsize=1 << 14)(identity.verifies_with))
        yield
