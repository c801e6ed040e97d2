"""Before round 0, among the clients only: the secrets that masks come from, fresh or, on resume, the stored ones.

Source: docs/protocol.md, "Seed" and "Masks".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastlloyd.crypto.link.identity import Credentials
from fastlloyd.errors import ConfigError, Reason
from fastlloyd.lifecycle.sealed import Sealing
from fastlloyd.lifecycle.shared_secrets import agree_pairs, agree_seed, confirm_pairs
from fastlloyd.masking.pairwise import PairSecrets
from fastlloyd.party.effects import Keep, Load, Party, Save
from fastlloyd.randomness.prg import KEY_BYTES
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import PartyId

_SEED, _PAIRS = "seed", "pairs"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskAgreement:
    """How one client comes by the secrets of its masks.

    Attributes
    ----------
    me : PartyId
    clients : tuple of PartyId
        All clients, `me` among them.
    run_id : bytes
    context : bytes
        Digest of everything that must be equal at all clients: roster, public parameters, plan, first centres.
    to_keep : mapping
        What a resume compares: the plan, and the digest of this party's records.
    resumed : bool
        Take the stored secrets and compare them with the others'; never make new ones.
    kept : bool
        Whether new ones are kept for a resume.
    run : bytes
        Digest of run id, roster and public parameters.
    credentials : Credentials
        What this client signs with, and the others' certificates.

    Notes
    -----
    Sees: the clients; the server passes on what it cannot open.
    """

    me: PartyId
    clients: tuple[PartyId, ...]
    run_id: bytes
    context: bytes
    to_keep: Mapping[str, Any]
    resumed: bool
    kept: bool = True
    run: bytes = b""
    credentials: Credentials = field(default_factory=Credentials)

    def seed(self) -> Party[bytes]:
        """Agree on the common seed through the server, or confirm the stored one.

        Raises
        ------
        ConfigError
            A resumed run has no seed, or it is damaged.
        SecurityError
            The clients do not agree; names the culprit.
        """
        sealing = Sealing(
            me=self.me,
            clients=self.clients,
            run_id=self.run_id,
            run=self.run,
            context=self.context,
            credentials=self.credentials,
        )
        stored = yield from self._stored(_SEED)
        if stored is not None:
            if len(stored) != KEY_BYTES:
                raise _damaged(f"expected {KEY_BYTES} bytes, got {len(stored)}")
            yield from sealing.confirm(stored)
            return stored
        seed = yield from sealing.agree(SecretRandom())
        yield from self._keep(_SEED, seed)
        return seed

    def linked_seed(self) -> Party[bytes]:
        """Agree on a common seed over the clients' own links, for this run only.

        Raises
        ------
        SecurityError
            A pair does not agree; names it.
        """
        return (
            yield from agree_seed(
                self.me, self.clients, run_id=self.run_id, context=self.context, secret=SecretRandom()
            )
        )

    def pairs(self) -> Party[PairSecrets]:
        """Agree on a secret with each other client, or confirm the stored ones.

        Raises
        ------
        ConfigError
            A resumed run has no secrets, or they are damaged.
        SecurityError
            A pair does not agree; names it.
        """
        stored = yield from self._stored(_PAIRS)
        if stored is None:
            pairs = yield from agree_pairs(
                self.me, self.clients, run_id=self.run_id, context=self.context, secret=SecretRandom()
            )
            yield from self._keep(_PAIRS, pairs.to_bytes())
            return pairs
        try:
            pairs = PairSecrets.from_bytes(self.me, [party for party in self.clients if party != self.me], stored)
        except ValueError as error:
            raise _damaged(str(error)) from error
        yield from confirm_pairs(pairs, run_id=self.run_id, context=self.context)
        return pairs

    def _stored(self, name: str) -> Party[bytes | None]:
        """Return what the interrupted run stored; None for a new run."""
        if not self.resumed:
            return None
        content: bytes | None = yield Load(name)
        if content is None:
            raise ConfigError(f"--resume: the stored run has no {name}; start anew", reason=Reason.RESUME)
        return content

    def _keep(self, name: str, content: bytes) -> Party[None]:
        """Have written down what a resume needs."""
        if self.kept:
            yield Keep(self.to_keep)
            yield Save(name, content)


def _damaged(why: str) -> ConfigError:
    """Return the error of a resume whose secrets cannot be used."""
    return ConfigError(f"--resume: the stored secrets are damaged ({why}); start anew", reason=Reason.RESUME)
