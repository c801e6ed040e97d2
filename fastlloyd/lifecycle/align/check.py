"""Check that all parties hold the same ids: one keyed digest of the sorted list, compared by each pair.

::

    party i                                party j
      IdTag  HKDF(s_ij; run, i, digest)  ------->   compare with its own digest's tag
      compare                            <-------   IdTag

The key is the pair's secret, so the server, or whoever else sees the tags, cannot try lists of ids. A mismatch
says that the lists differ and nothing else: not where, not in how many ids.

Source: docs/protocol.md, "Alignment".
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Sequence

from fastlloyd.errors import DataError, InternalError
from fastlloyd.lifecycle.align.messages import IdTag
from fastlloyd.masking.pairwise import PairSecrets
from fastlloyd.party.effects import Party, Receive, Send
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import derive
from fastlloyd.wire.header import SETUP_ROUND, PartyId


def check_ids(raw_ids: Sequence[str], pairs: PairSecrets, *, run_id: bytes) -> Party[None]:
    """Compare this party's ids with every other party's; run by each party.

    Parameters
    ----------
    raw_ids : sequence of str
        Ascending, each once (`VerticalTable.raw_ids`).
    pairs : PairSecrets
    run_id : bytes

    Raises
    ------
    DataError
        Another party holds other ids.

    Notes
    -----
    Sees: each pair learns whether its two lists are equal; the server learns nothing unless a party ends the run.
    """
    digest = digest_ids(raw_ids)
    for party, shared in pairs.secrets.items():
        yield Send((party,), IdTag(_tag(shared, run_id, pairs.me, digest)), SETUP_ROUND)
    differing = []
    for party, shared in pairs.secrets.items():
        message = yield Receive(party, IdTag, SETUP_ROUND)
        if not hmac.compare_digest(message.value, _tag(shared, run_id, party, digest)):
            differing.append(party)
    if differing:
        others = " and ".join(map(str, differing))
        raise DataError(
            f"{pairs.me} and {others} do not hold the same ids: expected one record for each person at every party; "
            "compare the id columns (spelling, leading zeros, missing rows), or let the parties keep the common ids "
            "with --set vertical.align=intersect"
        )


def digest_ids(raw_ids: Sequence[str]) -> bytes:
    """Return 32 bytes that stand for a list of ids.

    Raises
    ------
    InternalError
        The list is not strictly ascending.
    """
    state = hashlib.sha256(domains.IDS)
    before = None
    for name in raw_ids:
        if before is not None and not before < name:
            raise InternalError("the ids are not sorted before they are compared")
        text = name.encode()
        state.update(struct.pack("<I", len(text)) + text)
        before = name
    return state.digest()


def _tag(shared: bytes, run_id: bytes, sender: PartyId, digest: bytes) -> bytes:
    """Bind secret, run, sender and ids."""
    return derive(shared, domains.ID_CONFIRMATION, run_id + struct.pack("<I", sender.rank) + digest)
