"""Agreement over the clients' own links on a secret for each pair of clients, and on a common seed.

::

    client i < j                               client j        a secret of the pair
      public key K_i               ------->      (over the link i-j only; a key of this run)
                                   <-------    public key K_j
      ciphertext ct for K_j        ------->
      s_ij (`crypto/hybrid.py`)                the same

    client i                                   client j        a common seed, after that
      contribution c_i (32 bytes),
        sealed under s_ij          ------->      (over the link i-j only)
                                   <-------    contribution c_j, sealed
      seed = HKDF(c_1 | .. | c_M; run id)      the same

    and then, for either
      tag_i                        ------->    compare
      compare                      <-------    tag_j

Contributions are sealed although the links are encrypted: a recorded link may be opened one day (`crypto/hybrid.py`).
Tags are derived from the secret, the run and a digest of the public set-up (roster, public parameters, initial
centres), so clients that disagree on any of these stop before they send anything masked.

`lifecycle/sealed.py` agrees on a common seed through the server instead.

Source: FastLloyd, §3 ("clients share a common secret"), Fig. 1; Bonawitz et al. (2017), §4; docs/protocol.md, "Seed",
"Secrets of two clients" and "Masks".
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastlloyd.crypto.hybrid import CIPHERTEXT_BYTES, PUBLIC_BYTES, RAW_BYTES, TAG_BYTES, HybridKey, seal, unseal
from fastlloyd.errors import SecurityError
from fastlloyd.masking.pairwise import PairSecrets
from fastlloyd.party.declaration import ACROSS, Seen, pairwise
from fastlloyd.party.effects import Party, Receive, Send
from fastlloyd.party.message import FixedBytes
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import KEY_BYTES, derive
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SETUP_ROUND, PartyId


@dataclass(frozen=True, slots=True)
class SetupBytes(FixedBytes):
    """A set-up message of one byte string."""

    SIZES = (KEY_BYTES,)
    value: bytes = field(repr=False)


class SeedContribution(SetupBytes):
    """A client's part of the seed, sealed; only its receiver can open it."""

    __slots__ = ()
    TYPE = 16
    SIZES = (KEY_BYTES + TAG_BYTES,)
    SEEN = ()


class SeedConfirmation(SetupBytes):
    """A tag that shows that both clients have the same secret and public set-up."""

    __slots__ = ()
    TYPE = 17
    SEEN = ()


class PairPublicKey(SetupBytes):
    """A client's key for its pairs; it reveals nothing by itself."""

    __slots__ = ()
    TYPE = 18
    SIZES = (PUBLIC_BYTES,)
    SEEN = Seen(
        ACROSS,
        "agree on the masks of each pair of clients",
        server="nothing",
        others="a public key or ciphertext and a tag each, hence their pair's secret and no other pair's",
        variant="pairwise",
        when=pairwise,
    )


class PairCiphertext(SetupBytes):
    """What the client with the higher rank needs besides the other's key."""

    __slots__ = ()
    TYPE = 15
    SIZES = (CIPHERTEXT_BYTES,)
    SEEN = ()


def agree_pairs(
    me: PartyId, clients: tuple[PartyId, ...], *, run_id: bytes, context: bytes, secret: SecretRandom
) -> Party[PairSecrets]:
    """Agree on a secret with each other client; run by every client.

    Parameters
    ----------
    me : PartyId
    clients : tuple of PartyId
        All clients in roster order, `me` among them.
    run_id : bytes
    context : bytes
        Digest of roster, public parameters and initial centres.
    secret : SecretRandom

    Raises
    ------
    SecurityError
        A key or ciphertext is unusable, or a confirmation tag differs; names the pair.

    Notes
    -----
    Sees: each client learns its own pairs' secrets, and no other pair's; the server learns nothing.
    """
    others = tuple(party for party in clients if party != me)
    own = HybridKey(secret.bytes(RAW_BYTES), me, purpose=domains.PAIR, run_id=run_id)
    yield Send(others, PairPublicKey(own.public), SETUP_ROUND)
    keys: dict[PartyId, bytes] = {}
    for party in others:
        key: PairPublicKey = yield Receive(party, PairPublicKey, SETUP_ROUND)
        keys[party] = key.value
    secrets = {}
    for party, theirs in keys.items():
        if me < party:
            made, secrets[party] = own.encapsulate(party, theirs)
            yield Send((party,), PairCiphertext(made), SETUP_ROUND)
    for party, theirs in keys.items():
        if party < me:
            got: PairCiphertext = yield Receive(party, PairCiphertext, SETUP_ROUND)
            secrets[party] = own.decapsulate(party, theirs, got.value)
    pairs = PairSecrets(me, {party: secrets[party] for party in others})
    yield from confirm_pairs(pairs, run_id=run_id, context=context)
    return pairs


def agree_seed(pairs: PairSecrets, *, run_id: bytes, context: bytes, secret: SecretRandom) -> Party[bytes]:
    """Agree on a common seed; run by every client, after `agree_pairs`.

    Parameters
    ----------
    pairs : PairSecrets
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
        A contribution does not open, or a confirmation tag differs; names the pair.

    Notes
    -----
    Sees: each client learns the seed; the server, which relays nothing here, learns nothing.
    """
    me = pairs.me
    contributions = {me: secret.bytes(KEY_BYTES)}

    def bound(sender: PartyId) -> bytes:
        return run_id + struct.pack("<I", sender.rank)

    for party, shared in pairs.secrets.items():
        sealed = seal(contributions[me], shared, domains.SEED_CONTRIBUTION, bound(me))
        yield Send((party,), SeedContribution(sealed), SETUP_ROUND)
    for party, shared in pairs.secrets.items():
        message: SeedContribution = yield Receive(party, SeedContribution, SETUP_ROUND)
        try:
            contributions[party] = unseal(message.value, shared, domains.SEED_CONTRIBUTION, bound(party))
        except ValueError as error:
            raise SecurityError(
                f"the contribution of {party} to the common seed does not open at {me}: expected one that was sealed "
                "for this run under the secret of the two; check its version",
                rank=party.rank,
            ) from error
    seed = derive(b"".join(contributions[party] for party in sorted(contributions)), domains.SEED, run_id)
    yield from _confirm(me, dict.fromkeys(pairs.secrets, seed), domains.SEED_CONFIRMATION, run_id, context)
    return seed


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
