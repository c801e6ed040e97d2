"""Make the common key of threshold mode, of which each party has a share; `he/keyshare.py` explains it.

Source: Vertical HE, §4.2; Mouchet et al. (2021), Protocols 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastlloyd.errors import InternalError
from fastlloyd.party.effects import Party, Receive, Send
from fastlloyd.protocols.vertical_he.frame import (
    blaming,
    closing_format,
    common_format,
    contribution_format,
    lead_format,
)
from fastlloyd.protocols.vertical_he.he.ckks import Context, Refresher
from fastlloyd.protocols.vertical_he.he.keyshare import KeyShare, add_parts, join_relin_key
from fastlloyd.protocols.vertical_he.messages import KeyContribution, KeyMaterial, KeyPiece
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SETUP_ROUND, PartyId

Deal = Callable[[], KeyPiece]
_KEY, _SHARE = "key", "contribution to the key"


def collect_key(plan: Plan, context: Context, share: KeyShare) -> Party[tuple[bytes, ...]]:
    """Make the common key, as the computing party.

    Returns
    -------
    tuple of bytes
        The public key, and the relinearisation key if the scheme needs one.

    Raises
    ------
    PeerError
        A contribution does not fit the agreed parameters; names its sender.

    Notes
    -----
    Sees: contributions, which look random without their senders' shares.
    """
    me, further, digits = plan.computing, tuple(map(PartyId, plan.openers)), plan.digits
    others = tuple(PartyId(rank) for rank in plan.owners if rank != me)
    half = plan.encryption.key_half_bytes
    if plan.holder == me:
        lead = share.lead(1 + digits)
        sums = (*(part[:half] for part in lead), *share.contribute(lead, zeros=False))
        yield Send(others, KeyMaterial(lead), SETUP_ROUND)
    else:
        holder = PartyId(plan.holder)
        begun: KeyMaterial = yield Receive(holder, KeyMaterial, SETUP_ROUND, lead_format(plan))
        lead = begun.parts
        with blaming(holder, _KEY):
            sums = share.contribute(lead)
            sums = (*add_parts(context, sums[: 1 + digits], [part[:half] for part in lead]), *sums[1 + digits :])
    for peer in others if digits else further:
        form = contribution_format(plan, peer.rank)
        message: KeyContribution = yield Receive(peer, KeyContribution, SETUP_ROUND, form)
        with blaming(peer, _SHARE):
            known = len(sums) - len(message.parts)  # the leader's z came with its lead
            sums = (*sums[:known], *add_parts(context, sums[known:], message.parts))
    public = sums[0] + lead[0][half:]
    yield Send(others, KeyMaterial((public, *sums[1:])), SETUP_ROUND)  # §4.2: under it every party encrypts
    if not digits:
        return (public,)
    zeros, gadgets = sums[1 : 1 + digits], sums[1 + digits :]
    closed = share.close(zeros, gadgets)
    for peer in others:
        last: KeyContribution = yield Receive(peer, KeyContribution, SETUP_ROUND, closing_format(plan))
        with blaming(peer, _SHARE):
            closed = add_parts(context, closed, last.parts)
    return public, join_relin_key(context, closed, zeros)


def share_key(
    me: PartyId, plan: Plan, context: Context, deal: Deal | None = None
) -> Party[tuple[tuple[KeyPiece, ...], KeyShare, Refresher]]:
    """Make the common key, as any party but the computing one.

    Parameters
    ----------
    deal : callable, optional
        Makes a piece of the key; needed where more than two parties share it.

    Returns
    -------
    pieces : tuple of KeyPiece
        Those that this party holds, in the order of `Plan.held`; only its group knows each.
    share : KeyShare
        Secret of this party.
    encrypter : Refresher
        Encrypts under the common public key.

    Raises
    ------
    PeerError
        A message of the computing party does not fit the agreed parameters.

    Notes
    -----
    Sees: public keys and sums of contributions.
    """
    computing, half = PartyId(plan.computing), plan.encryption.key_half_bytes
    leads, pieces = me.rank == plan.holder, tuple[KeyPiece, ...]()
    if leads:
        share = KeyShare(context, SecretRandom())  # §4.2: "a share of the secret key"
        lead = share.lead(1 + plan.digits)
        yield Send((computing,), KeyMaterial(lead), SETUP_ROUND)
    else:
        begun: KeyMaterial = yield Receive(computing, KeyMaterial, SETUP_ROUND, lead_format(plan))
        lead = begun.parts
        pieces = yield from _share_pieces(me, plan, deal)
        first = [plan.groups[number][0] == me.rank for number in plan.held(me.rank)]
        own_pieces = [piece.coefficients for piece, mine in zip(pieces, first, strict=True) if mine]
        total = np.sum([np.zeros(context.degree, np.int64), *own_pieces], axis=0)
        share = KeyShare(context, SecretRandom(), total)  # §4.2: the same; of pieces that others have, too
    with blaming(computing, _KEY):
        own = share.contribute(lead, zeros=not leads)
    if own:
        yield Send((computing,), KeyContribution(own), SETUP_ROUND)
    common: KeyMaterial = yield Receive(computing, KeyMaterial, SETUP_ROUND, common_format(plan))
    with blaming(computing, _KEY):
        zero = lead[0][:half] if leads else own[0]
        encrypter = join_common(context, zero + lead[0][half:], common.parts[0])
        closed = share.close(common.parts[1 : 1 + plan.digits], common.parts[1 + plan.digits :])
    if closed:
        yield Send((computing,), KeyContribution(closed), SETUP_ROUND)
    return pieces, share, encrypter


def _share_pieces(me: PartyId, plan: Plan, deal: Deal | None) -> Party[tuple[KeyPiece, ...]]:
    """Make the pieces of the groups that this party leads, and receive the others that it holds."""
    if deal is None:
        raise InternalError("a party of a shared key was given no noise")
    pieces: list[KeyPiece] = []
    for number in plan.held(me.rank):
        first, *others = map(PartyId, plan.groups[number])
        if first == me:
            piece = deal()
            yield Send(tuple(others), piece, SETUP_ROUND)
        else:
            piece = yield Receive(first, KeyPiece, SETUP_ROUND, plan)
        pieces.append(piece)
    return tuple(pieces)


def join_common(context: Context, own_key: bytes, common_key: bytes) -> Refresher:
    """Return an encrypter for the common public key, which has the agreed seed but is not this party's own key.

    Raises
    ------
    ValueError
        It is damaged or was not made from this party's key: the sender is at fault.

    Notes
    -----
    This finds mistakes, not a computing party that deviates: the other half may belong to a key that only it knows.
    """
    own, common = (context.read_public_key(key) for key in (own_key, common_key))
    if own.second != common.second or (own.first == common.first).all():
        raise ValueError("the common key was not made from this party's")
    return Refresher(context, context.load_public_key(common_key))
