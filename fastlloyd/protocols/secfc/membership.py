"""A private union of tags by a mix among the clients: all records, without their owners (§6).

::

    client i                     client 1          client 2    ..   client n
      layer key  <----------->     <---------------------------------->
      n_i tags, each in n layers ->  all in one list
                                   open, shuffle --> open, shuffle --> .. open the last: tags and marks
      Union: tags of records       <------------------------------------  sorted, padding left out

Tags are fresh random 128-bit numbers of their owner, never derived from a record or an identity. Each client makes as
many as its public padded size, and marks padding inside the innermost layer.

Everybody learns the number of records of all clients together, and client n the amount of padding. Nobody learns which
client made which tag, as long as two clients do not collude (computational: the first of the two that shuffles unlinks
the others' tags). The steps after the mix keep this for up to t colluding clients (`sharing.py`). Clients are assumed
to follow the protocol: one that drops tags is noticed, but it may learn whose they were before the run ends.

Source: SecFC, §6 "Private ID alignment", App. B. Differs from the paper: no identities or hashes of them enter, because
anybody who can guess an identity could look up its hash in the union.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import DataError, PeerError
from fastlloyd.party.effects import Party, Receive, Send
from fastlloyd.protocols.secfc.math.onion import CONTENT_BYTES, TAG_BYTES, LayerKey, seal, sealed_bytes, shuffle
from fastlloyd.protocols.secfc.messages import LayerPublicKey, SealedTags, TagFormat, Union
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SETUP_ROUND, PartyId

_RECORD, _PADDING = b"\x01", b"\x00"


def agree_order(
    me: PartyId, raw_count: int, plan: Plan, *, run_id: bytes, secret: SecretRandom
) -> Party[tuple[NDArray[np.int64], int]]:
    """Agree on an order of all clients' records; run by every client.

    Parameters
    ----------
    me : PartyId
    raw_count : int
        Own records.
    plan : Plan
    run_id : bytes
    secret : SecretRandom

    Returns
    -------
    raw_rows : int64 array, shape (raw_count,)
        Places of this party's records, in 0..m-1. Random and independent of the records.
    records : int
        m.

    Raises
    ------
    DataError
        More records than the public padded size.
    PeerError
        A layer does not open, or the union lacks own tags or holds own padding.
    """
    size = plan.sizes[me.rank - 1]
    if raw_count > size:
        raise DataError(
            f"{me} has {raw_count} records, expected at most its public padded size of {size}; agree on larger "
            "client caps, or use fewer records"
        )
    key = LayerKey(secret)
    public = yield from _exchange_keys(me, plan, key, secret)
    tags = [secret.bytes(TAG_BYTES) for _ in range(size)]
    marked = [tag + (_RECORD if i < raw_count else _PADDING) for i, tag in enumerate(tags)]
    keys = [public[party] for party in plan.everybody]
    # All layers around each tag, client 1's outermost; in random order, so that places do not reveal padding.
    sealed = [seal(content, keys, run_id=run_id, secret=secret) for content in shuffle(marked, secret)]
    opened = yield from _mix(me, sealed, key, plan, run_id=run_id, secret=secret)
    union = yield from _publish(me, opened, plan)  # §6: the "private set union"
    places = {tag: place for place, tag in enumerate(union)}
    last = plan.everybody[-1]
    if any(tag not in places for tag in tags[:raw_count]) or any(tag in places for tag in tags[raw_count:]):
        raise PeerError(
            f"the union of tags that {last} sent does not fit what {me} put in: a client dropped or changed tags in "
            "the mix; start again, and look at the clients' versions",
            rank=last.rank,
        )
    # §6: the map between the union and [m], which gives client j its I_j.
    return np.array([places[tag] for tag in tags[:raw_count]], dtype=np.int64), len(union)


def _exchange_keys(me: PartyId, plan: Plan, key: LayerKey, secret: SecretRandom) -> Party[dict[PartyId, bytes]]:
    """Send this party's public key to all, and check each that arrives."""
    others = tuple(party for party in plan.everybody if party != me)
    public = {me: key.public}
    yield Send(others, LayerPublicKey(key.public), SETUP_ROUND)
    for party in others:
        message: LayerPublicKey = yield Receive(party, LayerPublicKey, SETUP_ROUND)
        try:
            seal(b"", [message.value], run_id=b"", secret=secret)
        except ValueError as error:
            raise PeerError(
                f"{party} sent a key that cannot be used, expected a fresh X25519 key; check its version",
                rank=party.rank,
            ) from error
        public[party] = message.value
    return public


def _mix(
    me: PartyId, sealed: list[bytes], key: LayerKey, plan: Plan, *, run_id: bytes, secret: SecretRandom
) -> Party[list[bytes]]:
    """Open this party's layer of all tags, shuffle and pass on; return the contents at client n, else nothing."""
    first, total = plan.everybody[0], sum(plan.sizes)
    layer = me.rank - 1
    if me == first:
        entries = sealed
        for party in plan.everybody[1:]:
            shape = TagFormat(plan.sizes[party.rank - 1], sealed_bytes(plan.clients))
            message: SealedTags = yield Receive(party, SealedTags, SETUP_ROUND, shape)
            entries = entries + list(message.entries)
        # Client 1 has each tag from its owner, so it knows whose does not open.
        senders = [party for party in plan.everybody for _ in range(plan.sizes[party.rank - 1])]
    else:
        yield Send((first,), SealedTags(tuple(sealed)), SETUP_ROUND)
        sender = plan.everybody[layer - 1]
        shape = TagFormat(total, sealed_bytes(plan.clients - layer))
        passed: SealedTags = yield Receive(sender, SealedTags, SETUP_ROUND, shape)
        entries, senders = list(passed.entries), [sender] * total
    opened = []
    for entry, sender in zip(entries, senders, strict=True):
        try:
            opened.append(key.open(entry, layer=layer, run_id=run_id))
        except ValueError as error:
            raise PeerError(
                f"a sealed tag from {sender} does not open: that client, or one before it, changed tags; "
                "start again, and look at the clients' versions",
                rank=sender.rank,
            ) from error
    opened = shuffle(opened, secret)
    if me == plan.everybody[-1]:
        return opened
    yield Send((plan.everybody[me.rank],), SealedTags(tuple(opened)), SETUP_ROUND)
    return []


def _publish(me: PartyId, opened: list[bytes], plan: Plan) -> Party[tuple[bytes, ...]]:
    """Send or receive the sorted tags of records, which client n finds; return them."""
    last = plan.everybody[-1]
    if me == last:
        union = tuple(sorted(entry[:TAG_BYTES] for entry in opened if entry[TAG_BYTES:] == _RECORD))
        if len({entry[:TAG_BYTES] for entry in opened}) != len(opened):
            before = plan.everybody[-2]
            raise PeerError(
                f"{before} passed the same tag on twice, expected tags of {CONTENT_BYTES} bytes, all different; start "
                "again, and look at the clients' versions",
                rank=before.rank,
            )
        yield Send(plan.everybody[:-1], Union(union), SETUP_ROUND)
        return union
    shape = TagFormat(None, TAG_BYTES, sum(plan.sizes))
    message: Union = yield Receive(last, Union, SETUP_ROUND, shape)
    if list(message.entries) != sorted(set(message.entries)):
        raise PeerError(
            f"{last} sent an invalid union of tags, expected sorted tags, each once; check its version",
            rank=last.rank,
        )
    return message.entries
