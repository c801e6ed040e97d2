"""Agreement on a secret for each pair of clients, which nobody else can know.

::

    client i                                   client j
      public key g^a  ------------------->       (over the link i-j only; a key of this run)
                      <-------------------     public key g^b
      s_ij = HKDF(g^ab; run id, both keys)       the same
      tag_i           ------------------->     compare
      compare         <-------------------     tag_j

Tags are bound to the run and to a digest of the public set-up, as in `lifecycle/seed.py`.

Source: RFC 7748; Bonawitz et al. (2017), §4; docs/protocol.md, "Masks".
"""

from __future__ import annotations

import hmac
import struct

from fastlloyd.errors import SecurityError
from fastlloyd.lifecycle.seed import SeedConfirmation, SetupBytes
from fastlloyd.masking.pairwise import PairKey, PairSecrets
from fastlloyd.party.declaration import ACROSS, Seen, pairwise
from fastlloyd.party.effects import Party, Receive, Send
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import KEY_BYTES, derive
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SETUP_ROUND, PartyId


class PairPublicKey(SetupBytes):
    """A client's X25519 key for one pair; it tells nothing by itself."""

    __slots__ = ()
    TYPE = 18
    SEEN = Seen(
        ACROSS,
        "agree on the masks of each pair of clients",
        server="nothing",
        others="a public key and a tag each, hence their pair's secret and no other pair's",
        variant="pairwise",
        when=pairwise,
    )


def agree_pairs(
    me: PartyId, clients: tuple[PartyId, ...], *, run_id: bytes, context: bytes, secret: SecretRandom
) -> Party[PairSecrets]:
    """Agree on a secret with each other client; run by every client.

    Parameters
    ----------
    me : PartyId
    clients : tuple of PartyId
        All clients, `me` among them.
    run_id : bytes
    context : bytes
        Digest of roster, public parameters and initial centres.
    secret : SecretRandom

    Raises
    ------
    SecurityError
        A key is unusable or a confirmation tag differs; names the pair.

    Notes
    -----
    Sees: each client learns its own pairs' secrets, and no other pair's; the server learns nothing.
    """
    others = tuple(party for party in clients if party != me)
    own = PairKey(secret.bytes(KEY_BYTES))
    yield Send(others, PairPublicKey(own.public), SETUP_ROUND)
    secrets = {}
    for party in others:
        message = yield Receive(party, PairPublicKey, SETUP_ROUND)
        secrets[party] = own.secret_with(me, party, message.value, run_id)
    pairs = PairSecrets(me, secrets)
    yield from confirm_pairs(pairs, run_id=run_id, context=context)
    return pairs


def confirm_pairs(pairs: PairSecrets, *, run_id: bytes, context: bytes) -> Party[None]:
    """Compare confirmation tags with every other client; on resume, of the stored secrets."""
    me = pairs.me
    for party, shared in pairs.secrets.items():
        yield Send((party,), SeedConfirmation(_tag(shared, run_id, context, me)), SETUP_ROUND)
    for party, shared in pairs.secrets.items():
        message = yield Receive(party, SeedConfirmation, SETUP_ROUND)
        if not hmac.compare_digest(message.value, _tag(shared, run_id, context, party)):
            raise SecurityError(
                f"{me} and {party} do not agree on their common secret or on the public set-up: expected the same "
                "confirmation tag on both sides; compare the rosters, configurations and versions of the two",
                rank=party.rank,
            )


def _tag(shared: bytes, run_id: bytes, context: bytes, sender: PartyId) -> bytes:
    """Bind secret, run, context and sender."""
    return derive(shared, domains.PAIR_CONFIRMATION, run_id + struct.pack("<I", sender.rank) + context)
