"""Agreement over the clients' own links on a common seed, or on a secret for each pair of clients.

::

    client i                                   client j        a common seed
      contribution c_i (32 bytes)  ------->      (over the link i-j only)
                                   <-------    contribution c_j
      seed = HKDF(c_1 | .. | c_M; run id)      the same

    client i                                   client j        a secret of the pair
      public key g^a               ------->      (over the link i-j only; a key of this run)
                                   <-------    public key g^b
      s_ij = HKDF(g^ab; run id, both keys)     the same

    and then, for either
      tag_i                        ------->    compare
      compare                      <-------    tag_j

Tags are derived from the secret, the run and a digest of the public set-up (roster, public parameters, initial
centres), so clients that disagree on any of these stop before they send anything masked.

`lifecycle/sealed.py` agrees on a common seed through the server instead.

Source: FastLloyd, §3 ("clients share a common secret"), Fig. 1; RFC 7748; Bonawitz et al. (2017), §4;
docs/protocol.md, "Seed" and "Masks".
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastlloyd.errors import SecurityError
from fastlloyd.masking.pairwise import PairKey, PairSecrets
from fastlloyd.party.declaration import ACROSS, Seen, common, pairwise
from fastlloyd.party.effects import Party, Receive, Send
from fastlloyd.party.message import FixedBytes
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import KEY_BYTES, derive
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SETUP_ROUND, PartyId


@dataclass(frozen=True, slots=True)
class SetupBytes(FixedBytes):
    """A set-up message of 32 bytes."""

    SIZES = (KEY_BYTES,)
    value: bytes = field(repr=False)


class SeedContribution(SetupBytes):
    """A client's part of the seed; only its receiver sees it."""

    __slots__ = ()
    TYPE = 16
    SEEN = Seen(
        ACROSS, "agree on the seed of the masks", server="nothing", others="32 bytes each, hence the seed", when=common
    )


class SeedConfirmation(SetupBytes):
    """A tag that shows that both clients have the same secret and public set-up."""

    __slots__ = ()
    TYPE = 17
    SEEN = ()


class PairPublicKey(SetupBytes):
    """A client's X25519 key for one pair; it reveals nothing by itself."""

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
    contributions = {me: secret.bytes(KEY_BYTES)}
    if others:
        yield Send(others, SeedContribution(contributions[me]), SETUP_ROUND)
    for party in others:
        message = yield Receive(party, SeedContribution, SETUP_ROUND)
        contributions[party] = message.value
    seed = derive(b"".join(contributions[party] for party in clients), domains.SEED, run_id)
    yield from _confirm(me, dict.fromkeys(others, seed), domains.SEED_CONFIRMATION, run_id, context)
    return seed


def agree_pairs(
    me: PartyId, clients: tuple[PartyId, ...], *, run_id: bytes, context: bytes, secret: SecretRandom
) -> Party[PairSecrets]:
    """Agree on a secret with each other client; run by every client. Parameters as for `agree_seed`.

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
    yield from _confirm(pairs.me, pairs.secrets, domains.PAIR_CONFIRMATION, run_id, context)


def _confirm(
    me: PartyId, secrets: Mapping[PartyId, bytes], purpose: bytes, run_id: bytes, context: bytes
) -> Party[None]:
    """Compare tags of the secret shared with each other client, bound to the run and the public set-up."""

    def tag(party: PartyId, sender: PartyId) -> SeedConfirmation:
        content = run_id + struct.pack("<I", sender.rank) + context
        return SeedConfirmation(derive(secrets[party], purpose, content))

    for party in secrets:
        yield Send((party,), tag(party, me), SETUP_ROUND)
    for party in secrets:
        message = yield Receive(party, SeedConfirmation, SETUP_ROUND)
        if not hmac.compare_digest(message.value, tag(party, party).value):
            what = "seed" if purpose == domains.SEED_CONFIRMATION else "secret"
            raise SecurityError(
                f"{me} and {party} do not agree on their common {what} or on the public set-up: expected the same "
                "confirmation tag on both sides; compare the rosters, configurations and versions of the two",
                rank=party.rank,
            )
