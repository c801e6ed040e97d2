"""Hash keys of the parties' groups, and the set-up of parties before the protocol itself.

Keys come from secrets that the parties agree on over links between them, so the server cannot know them. They are made
for one run, kept in memory that is overwritten after the sketches are sent, and never written: an interrupted run
starts again with new keys and new releases. (Python may leave copies in memory until the process exits.)

Source: Vertical DP, §4.3 ("hash keys must be unknown to the central server"); docs/vertical-dp-privacy.md.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fastlloyd.errors import ConfigError, InternalError
from fastlloyd.lifecycle.align.ids import check_ids, intersect_ids
from fastlloyd.lifecycle.shared_secrets import agree_pairs, agree_seed
from fastlloyd.masking.pairwise import PairSecrets
from fastlloyd.party.effects import Party
from fastlloyd.protocols.vertical_dp.math.weights import Group
from fastlloyd.protocols.vertical_dp.plan import Plan
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import derive
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import PartyId, clients

ALIGNMENTS = ("check", "intersect")


@dataclass(frozen=True, slots=True)
class GroupKeys:
    """One party's keys, by group.

    Attributes
    ----------
    keys : mapping from Group to bytearray of length 32
        Excluded from `repr`.
    """

    keys: Mapping[Group, bytearray] = field(repr=False)

    def of(self, group: Group) -> bytes:
        """Return one group's key.

        Raises
        ------
        InternalError
            It has been erased, or this party is not in the group.
        """
        if group not in self.keys or not any(self.keys[group]):
            raise InternalError("a sketch key is used after it was erased, or by a party outside its group")
        return bytes(self.keys[group])

    def erase(self) -> None:
        """Overwrite all keys."""
        for key in self.keys.values():
            key[:] = bytes(len(key))


@dataclass(frozen=True, slots=True)
class SetUp:
    """A party's result of the set-up.

    Attributes
    ----------
    keys : GroupKeys
    raw_ids : tuple of str
        The common ids: its own ids, or those that all parties hold.
    """

    keys: GroupKeys
    raw_ids: tuple[str, ...] = field(repr=False)


def set_up(
    me: PartyId,
    plan: Plan,
    raw_ids: Sequence[str],
    *,
    align: str,
    run_id: bytes,
    context: bytes,
    secret: SecretRandom,
) -> Party[SetUp]:
    """Agree on secrets, align the records, and derive the hash keys; run by each party.

    Parameters
    ----------
    me : PartyId
    plan : Plan
    raw_ids : sequence of str
        Own ids, ascending (`VerticalTable.raw_ids`).
    align : {'check', 'intersect'}
    run_id : bytes
    context : bytes
        Digest of roster, public parameters and plan.
    secret : SecretRandom

    Raises
    ------
    DataError
        The parties hold different ids, or none in common.
    SecurityError
        Two parties do not agree on a secret or on the public set-up.

    Notes
    -----
    Sees: see `lifecycle/align/`; the server learns nothing.
    """
    if align not in ALIGNMENTS:
        raise ConfigError(f"--set vertical.align: expected 'check' or 'intersect', got {align!r}")
    parties = clients(plan.clients)
    pairs = yield from agree_pairs(me, parties, run_id=run_id, context=context, secret=secret)
    common = tuple(raw_ids)
    if align == "intersect":
        common = yield from intersect_ids(me, parties, common, run_id=run_id, most=plan.n_total, secret=secret)
    yield from check_ids(common, pairs, run_id=run_id)
    seed = b""
    if any(len(group) > 2 for group in plan.key_groups):
        # §4.3: every party's random number, "via some secure peer-to-peer channels".
        seed = yield from agree_seed(pairs, run_id=run_id, context=context, secret=secret)
    return SetUp(derive_keys(plan, pairs, seed, run_id=run_id), common)


def derive_keys(plan: Plan, pairs: PairSecrets, seed: bytes, *, run_id: bytes) -> GroupKeys:
    """Derive the keys of a party's groups from a pair's secret, or from the seed of all parties.

    Parameters
    ----------
    plan : Plan
    pairs : PairSecrets
    seed : bytes of length 32
        Not used if all groups are pairs.
    run_id : bytes
    """
    place = pairs.me.rank - 1
    keys = {}
    for group in plan.key_groups:
        if place not in group:
            continue
        shared = seed
        if len(group) == 2:
            shared = pairs.secrets[PartyId(1 + next(other for other in group if other != place))]
        context = run_id + struct.pack(f"<{len(group)}I", *group)
        keys[group] = bytearray(derive(shared, domains.SKETCH_KEY, context))  # §4.3: zeta, one key for all rows
    return GroupKeys(keys)
