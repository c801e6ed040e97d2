"""Agreement on a common seed over the clients' own links, for protocols that have these anyway.

Through the server, without such links: `lifecycle/sealed.py`.

::

    client i                                   client j
      contribution c_i (32 bytes)  ------->      (over the link i-j only)
                                   <-------    contribution c_j
      seed = HKDF(c_1 | .. | c_M; run id)      the same
      tag_i                        ------->    compare
      compare                      <-------    tag_j

Tags are derived from the seed, the run and a digest of the public set-up (roster, public parameters,
initial centres), so clients that disagree on any of these stop before they send anything masked.

Source: FastLloyd, §3 ("clients share a common secret"), Fig. 1; docs/protocol.md, "Seed".
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field
from typing import Any, Self

from fastlloyd.errors import SecurityError
from fastlloyd.party.declaration import ACROSS, Seen, common
from fastlloyd.party.effects import Party, Receive, Send
from fastlloyd.party.message import NoPayload
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import KEY_BYTES, derive
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SETUP_ROUND, PartyId


@dataclass(frozen=True, slots=True)
class SetupBytes(NoPayload):
    """A set-up message of 32 bytes; none of them payload, none of them shown."""

    MOST_BYTES = KEY_BYTES
    value: bytes = field(repr=False)

    def body(self) -> bytes:
        """Return the 32 bytes."""
        return self.value

    @classmethod
    def read(cls, body: bytes, format: Any) -> Self:
        """Check the length."""
        if len(body) != KEY_BYTES:
            raise ValueError(f"expected {KEY_BYTES} bytes, got {len(body)}")
        return cls(body)


class SeedContribution(SetupBytes):
    """A client's part of the seed; the receiver and nobody else sees it."""

    __slots__ = ()
    TYPE = 16
    SEEN = Seen(
        ACROSS, "agree on the seed of the masks", server="nothing", others="32 bytes each, hence the seed", when=common
    )


class SeedConfirmation(SetupBytes):
    """A tag that shows that both ends have the same secret and public set-up."""

    __slots__ = ()
    TYPE = 17
    SEEN = ()


def agree_seed(
    me: PartyId, clients: tuple[PartyId, ...], *, run_id: bytes, context: bytes, secret: SecretRandom
) -> Party[bytes]:
    """Agree on the common seed; run by every client.

    Parameters
    ----------
    me : PartyId
    clients : tuple of PartyId
        All clients in roster order, `me` among them.
    run_id : bytes
    context : bytes
        Digest of roster, public parameters and initial centres.
    secret : SecretRandom

    Returns
    -------
    bytes of length 32

    Raises
    ------
    SecurityError
        A confirmation tag differs; names the pair.

    Notes
    -----
    Sees: each client learns the seed; the server, which relays nothing here, learns nothing.
    """
    others = tuple(party for party in clients if party != me)
    own = secret.bytes(KEY_BYTES)
    contributions = {me: own}
    if others:
        yield Send(others, SeedContribution(own), SETUP_ROUND)
    for party in others:
        message = yield Receive(party, SeedContribution, SETUP_ROUND)
        contributions[party] = message.value
    seed = derive(b"".join(contributions[party] for party in clients), domains.SEED, run_id)
    if others:
        yield Send(others, SeedConfirmation(_tag(seed, run_id, context, me)), SETUP_ROUND)
    for party in others:
        message = yield Receive(party, SeedConfirmation, SETUP_ROUND)
        if not hmac.compare_digest(message.value, _tag(seed, run_id, context, party)):
            raise SecurityError(
                f"{me} and {party} do not agree on the common seed or on the public set-up: expected the same "
                "confirmation tag on both sides; compare the rosters, configurations and versions of the two",
                rank=party.rank,
            )
    return seed


def _tag(seed: bytes, run_id: bytes, context: bytes, sender: PartyId) -> bytes:
    """Bind seed, run, context and sender."""
    return derive(seed, domains.SEED_CONFIRMATION, run_id + struct.pack("<I", sender.rank) + context)
