"""Before a resumed run goes on: what each client has already given shares for.

::

    client i                                   server
      ReturnNonce  32 fresh bytes      ------>
                   <------  ReturnNonces   of all clients
      GivenState   last set voted or answered for, signed over all nonces ------>
                   <------  GivenStates    of all clients

A client whose state was restored from an older copy learns here for which round the others have given shares, and for
which set: it treats the rounds before as over, and that set as its own decision. Old statements do not pass, since they
do not have this client's nonce.

All M statements are asked for; the proof needs Q of them (`Numbers.statements`). A message with fewer is malformed,
each must be signed over all nonces, and the server waits for all. With only T of them a single vector could be opened:
two sets of T may have no client in common but the one that was set back.

From then on votes are about all nonces, and the set of everybody needs votes too: a client that was set back may have
answered at once, or voted, before any other did.

Source: docs/protocol.md, "Threshold masks: coming back"; docs/privacy.md, "Threshold masks".
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fastlloyd.crypto.link.identity import SIGNATURE_BYTES
from fastlloyd.errors import PeerError, Reason, SecurityError, name_some
from fastlloyd.lifecycle.threshold.client import GivenSet
from fastlloyd.lifecycle.threshold.group import Group
from fastlloyd.lifecycle.threshold.messages import (
    NOT_YET,
    GivenState,
    GivenStates,
    ReturnNonce,
    ReturnNonces,
)
from fastlloyd.lifecycle.threshold.server import StatedSet
from fastlloyd.party.effects import Gather, Party, Receive, Send
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import KEY_BYTES
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SERVER, SETUP_ROUND, PartyId


@dataclass(frozen=True, slots=True)
class Returned:
    """What a client knows once it has heard the others.

    Attributes
    ----------
    decisions : mapping from round to GivenSet
        Its own, and the others' in the newest round.
    known : mapping from round to bytes of length 32
        The history of each round for which a client has given shares.
    group : Group
        Whose votes are about this return.
    """

    decisions: dict[int, GivenSet]
    known: dict[int, bytes]
    group: Group


def come_back(
    group: Group, me: PartyId, decisions: Mapping[int, GivenSet], replies: int, secret: SecretRandom
) -> Party[Returned]:
    """State what this client has given shares for, and learn the same of the others; run by every client.

    Parameters
    ----------
    group : Group
    me : PartyId
    decisions : mapping from round to GivenSet
        Stored.
    replies : int
        How many are stored.
    secret : SecretRandom

    Raises
    ------
    SecurityError
        The server passed on other statements than clients made, or two sets were opened in one round; names it.
    """
    count = group.numbers.clients
    nonce = secret.bytes(KEY_BYTES)
    yield Send((SERVER,), ReturnNonce(nonce), SETUP_ROUND)
    nonces: ReturnNonces = yield Receive(SERVER, ReturnNonces, SETUP_ROUND, count)
    if nonces.pieces[me.rank - 1].nonce != nonce:
        raise _lie("passed on other random bytes than this client sent")
    content = nonces.body()
    yield Send((SERVER,), sign_state(group, _own_state(group, decisions, replies), content), SETUP_ROUND)
    said: GivenStates = yield Receive(SERVER, GivenStates, SETUP_ROUND, count)
    found = dict(decisions)
    known: dict[int, bytes] = {}
    sets: dict[int, GivenState] = {}
    for party, state in zip(group.everybody, said.states, strict=True):
        if not _is_signed(group, party, state, content):
            raise _lie(f"passed on a statement that {party} did not make")
        if state.round == NOT_YET:
            continue
        if not group.is_stated(state.round, state.history, state.included, state.stated):
            raise SecurityError(
                f"{party} names a set of round {state.round} that the server has not signed; compare its version",
                rank=party.rank,
            )
        first = sets.setdefault(state.round, state)
        if (first.included, first.history) != (state.included, state.history):
            raise _two_sets(state.round, first.included, state.included)
        known[state.round] = state.history
    for round_, state in sets.items():
        own = decisions.get(round_)
        if own is not None and (own.included, own.history) != (state.included, state.history):
            raise _two_sets(round_, own.included, state.included)
    if known and max(known) not in found:
        newest = sets[max(known)]
        found[newest.round] = GivenSet(newest.included, False, newest.stated, newest.history)
    return Returned(found, known, _returned(group, nonces))


def relay_states(group: Group, sets: Mapping[int, bytes], replies: int) -> Party[Group]:
    """Pass on nonces and states; run by the server. Gives the group whose votes are about this return.

    Parameters
    ----------
    group : Group
    sets : mapping from round to bytes
        The stated sets, stored.
    replies : int
        How many are stored.

    Raises
    ------
    PeerError
        A client did not sign its statement, or names a set that this server never stated (the client is named), or
        clients have given shares for a set that this server no longer has: the round stays closed.
    """
    everybody, count = group.everybody, group.numbers.clients
    nonces: Mapping[PartyId, ReturnNonce] = yield Gather(everybody, ReturnNonce, SETUP_ROUND, count)
    passed = ReturnNonces(tuple(nonces[party] for party in everybody))
    yield Send(everybody, passed, SETUP_ROUND)
    states: Mapping[PartyId, GivenState] = yield Gather(everybody, GivenState, SETUP_ROUND, count, count)
    for party, state in states.items():
        if not _is_signed(group, party, state, passed.body()):
            raise PeerError(
                f"{party} has not signed what it states in the resumed run; compare its version and roster",
                rank=party.rank,
            )
        if state.round == NOT_YET:
            continue
        if not group.is_stated(state.round, state.history, state.included, state.stated):
            raise PeerError(
                f"{party} names a set of round {state.round} that this server has not signed; compare its version",
                rank=party.rank,
            )
        if state.round < replies:
            continue
        stored = sets.get(state.round)
        if stored is None or StatedSet.from_bytes(stored, count).included != state.included:
            raise PeerError(
                f"{party} has given shares for a set of round {state.round} that this server's state folder does not "
                "have; the round counts as released and stays closed: restore the server's state folder, or start anew",
                rank=SERVER.rank,
                reason=Reason.RESUME,
            )
    yield Send(everybody, GivenStates(tuple(states[party] for party in everybody)), SETUP_ROUND)
    return _returned(group, passed)


def _returned(group: Group, nonces: ReturnNonces) -> Group:
    return replace(group, returned=hashlib.sha256(nonces.body()).digest())


def _own_state(group: Group, decisions: Mapping[int, GivenSet], replies: int) -> GivenState:
    count = group.numbers.clients
    if not decisions:
        return GivenState(NOT_YET, (), bytes(KEY_BYTES), bytes(SIGNATURE_BYTES), replies, count)
    newest = max(decisions)
    own = decisions[newest]
    return GivenState(newest, own.included, own.history, own.stated, replies, count)


def _about(group: Group, state: GivenState, nonces: bytes) -> bytes:
    return group.run_id + group.digest + hashlib.sha256(nonces).digest() + state.statement


def sign_state(group: Group, state: GivenState, nonces: bytes) -> GivenState:
    """Return a client's state, signed over the nonces of all clients, 32 M bytes."""
    signature = group.credentials.sign(_about(group, state, nonces), domains.THRESHOLD_STATE)
    return replace(state, signature=signature)


def _is_signed(group: Group, party: PartyId, state: GivenState, nonces: bytes) -> bool:
    return group.credentials.signed(party, _about(group, state, nonces), state.signature, domains.THRESHOLD_STATE)


def _two_sets(round_: int, one: tuple[PartyId, ...], other: tuple[PartyId, ...]) -> SecurityError:
    return _lie(
        f"stated two sets for round {round_}, both signed: {name_some(one)}, and {name_some(other)}; it could open "
        "single vectors with them"
    )


def _lie(what: str) -> SecurityError:
    return SecurityError(f"the server {what}; this client does not go on: ask the operator", rank=SERVER.rank)
