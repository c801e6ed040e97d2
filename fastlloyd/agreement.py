"""Before round 0, among the clients only: the secrets that masks come from, fresh or, on resume, the stored ones.

Source: docs/protocol.md, "Seed" and "Masks".
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from fastlloyd.crypto.mask import MaskGenerator, Masks
from fastlloyd.crypto.pairwise import PairSecrets, PairwiseMasks
from fastlloyd.errors import ConfigError, Reason
from fastlloyd.privacy.secret import SecretRandom
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.rounds import first_centers
from fastlloyd.protocols.pairs import agree_pairs, confirm_pairs
from fastlloyd.protocols.seed import agree_seed, confirm_seed
from fastlloyd.ring.fixed import Ring
from fastlloyd.run import Driver
from fastlloyd.state import StateDir
from fastlloyd.wire import PartyId

_SEED, _PAIRS = "seed", "pairs"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskAgreement:
    """How one client comes by its masks.

    Attributes
    ----------
    me : PartyId
    clients : tuple of PartyId
        All clients, `me` among them.
    run_id, set_up : bytes
        `set_up` is the digest that the links were confirmed with.
    state : StateDir or None
    resumed : bool
        Take the stored secrets and compare them with the others'; never make new ones.
    """

    me: PartyId
    clients: tuple[PartyId, ...]
    run_id: bytes
    set_up: bytes
    state: StateDir | None
    resumed: bool

    def masks(self, driver: Driver, plan: Plan, data_digest: str) -> Masks:
        """Agree with the other clients; write down what a resume needs.

        Raises
        ------
        ConfigError
            A resumed run has no secrets, or those of another run.
        SecurityError
            A pair does not agree; names it.

        Notes
        -----
        Sees: the clients; nothing of it passes the server.
        """
        shared = json.dumps(plan.to_json(), sort_keys=True).encode()
        start = first_centers(plan).grid.tobytes()
        context = hashlib.sha256(self.set_up + hashlib.sha256(shared).digest() + start).digest()
        pairwise = plan.masking == "pairwise"
        stored = self._stored(_PAIRS if pairwise else _SEED)
        ring = Ring(plan.ring_bits)
        if pairwise:
            pairs = self._pairs(driver, stored, context)
            content = pairs.to_bytes()
            masks: Masks = PairwiseMasks(pairs, ring, plan.elements, self.run_id)
        else:
            content = self._seed(driver, stored, context)
            masks = MaskGenerator(content, ring, plan.elements, self.run_id)
        if stored is None and self.state is not None:
            self.state.start({"run_id": self.run_id.hex(), "plan": plan.to_json(), "data": data_digest})
            self.state.save(_PAIRS if pairwise else _SEED, content)
        return masks

    def _stored(self, name: str) -> bytes | None:
        """Give what the interrupted run stored; None for a new run."""
        if not self.resumed or self.state is None:
            return None
        content = self.state.load(name)
        if content is None:
            raise ConfigError(f"--resume: the stored run has no {name}; start anew", reason=Reason.RESUME)
        return content

    def _seed(self, driver: Driver, stored: bytes | None, context: bytes) -> bytes:
        """Agree on the common seed, or confirm the stored one."""
        if stored is None:
            agreement = agree_seed(self.me, self.clients, run_id=self.run_id, context=context, secret=SecretRandom())
            seed: bytes = driver.drive(agreement)
            return seed
        driver.drive(confirm_seed(self.me, self.clients, stored, run_id=self.run_id, context=context))
        return stored

    def _pairs(self, driver: Driver, stored: bytes | None, context: bytes) -> PairSecrets:
        """Agree on a secret with each other client, or confirm the stored ones."""
        if stored is None:
            agreement = agree_pairs(self.me, self.clients, run_id=self.run_id, context=context, secret=SecretRandom())
            fresh: PairSecrets = driver.drive(agreement)
            return fresh
        try:
            pairs = PairSecrets.from_bytes(self.me, [party for party in self.clients if party != self.me], stored)
        except ValueError as error:
            raise ConfigError(
                f"--resume: the stored secrets are damaged ({error}); start anew", reason=Reason.RESUME
            ) from error
        driver.drive(confirm_pairs(pairs, run_id=self.run_id, context=context))
        return pairs
