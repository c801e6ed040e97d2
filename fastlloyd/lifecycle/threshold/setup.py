"""The set-up of threshold masks through the server: three messages of each client, all clients present.

::

    client i                                         server
      RunKey       K_i, signed               ------>
                   <------  RunKeys          K_1, .., K_M
      DealtCiphers ct_ij for each j > i, signed ---->
                   <------  RunCiphers       ct_ji of each j < i
      DealtWords   words, tables, checks of all rounds, signed ---->

Every pair of clients then has a secret s_ij that the server does not have, and the server has every client's secrets of
all rounds in hidden shares, which T clients can open. Keys and ciphertexts are signed with roster keys, so the server
cannot put its own in their place; it checks the signatures itself, so a client that receives a wrong one knows that the
server is dishonest. Without a roster the signatures are zeros and prove nothing.

Source: Bonawitz et al. (2017), Figure 4, rounds 0 and 1, once for all rounds; docs/protocol.md, "Threshold masks:
set-up".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from fastlloyd.crypto.hybrid import RAW_BYTES, HybridKey
from fastlloyd.crypto.link.identity import Credentials
from fastlloyd.errors import PeerError, SecurityError
from fastlloyd.lifecycle.signed import check_passed_on, check_sent, forged
from fastlloyd.lifecycle.threshold.group import KEPT_BYTES, Group, digest_keys
from fastlloyd.lifecycle.threshold.messages import (
    DealtCiphers,
    DealtWords,
    RunCiphers,
    RunKey,
    RunKeys,
    SignedCipher,
)
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.secrets import ClientSecrets
from fastlloyd.masking.threshold.words import Words
from fastlloyd.party.effects import Gather, Party, Receive, Send
from fastlloyd.party.message import check_size
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import KEY_BYTES
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SERVER, SETUP_ROUND, PartyId, clients


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdSetup:
    """What all parties know before the set-up.

    Attributes
    ----------
    numbers : Numbers
    rounds : int
    run_id : bytes
    context : bytes of length 32
        Digest of run id, roster and public parameters: what the links were confirmed with.
    credentials : Credentials
    """

    numbers: Numbers
    rounds: int
    run_id: bytes
    context: bytes
    credentials: Credentials

    def group(self, kept: bytes) -> Group:
        """Return the group that was kept in these bytes, 64: its own context, for a resume has other public parameters.

        Raises
        ------
        ValueError
            There are more or fewer.
        """
        check_size(kept, KEPT_BYTES)
        return Group(self.numbers, self.run_id, kept[:KEY_BYTES], kept[KEY_BYTES:], self.credentials)

    def deal(self, me: PartyId, secret: SecretRandom) -> Party[tuple[Group, ClientSecrets]]:
        """Agree on a secret with each other client, and share this client's own; run by every client.

        Raises
        ------
        SecurityError
            A key or ciphertext is not what its sender signed; names the culprit.

        Notes
        -----
        Sees: public keys, and the secrets of its own pairs; the server relays keys and ciphertexts, and keeps words,
        all uniform to it.
        """
        everybody = clients(self.numbers.clients)
        key = HybridKey(secret.bytes(RAW_BYTES), me, purpose=domains.THRESHOLD_PAIR, run_id=self.run_id)
        yield Send((SERVER,), RunKey(key.public, self._sign_key(me, key.public)), SETUP_ROUND)
        keys: RunKeys = yield Receive(SERVER, RunKeys, SETUP_ROUND, len(everybody))
        self._check_keys(me, key.public, keys)
        digest = digest_keys([one.public for one in keys.pieces])
        pairs: dict[PartyId, bytes] = {}
        boxes = []
        for other, theirs in zip(everybody, keys.pieces, strict=True):
            if other > me:
                ciphertext, pairs[other] = key.encapsulate(other, theirs.public)
                statement = self._about_cipher(me, other, digest, ciphertext)
                boxes.append(SignedCipher(ciphertext, self.credentials.sign(statement, domains.THRESHOLD_CIPHER)))
        yield Send((SERVER,), DealtCiphers(tuple(boxes)), SETUP_ROUND)
        ciphers: RunCiphers = yield Receive(SERVER, RunCiphers, SETUP_ROUND, me.rank - 1)
        for other, box in zip(everybody, ciphers.pieces, strict=False):
            statement = self._about_cipher(other, me, digest, box.ciphertext)
            what = f"a ciphertext of {other}"
            check_passed_on(
                self.credentials, other, statement, box.signature, label=domains.THRESHOLD_CIPHER, what=what
            )
            pairs[other] = key.decapsulate(other, keys.pieces[other.rank - 1].public, box.ciphertext)
        del key  # the run's private keys: from here on only the pairs' secrets remain
        group = self.group(self.context + digest)
        secrets, words = ClientSecrets.deal(self.numbers, me, pairs, self.rounds, secret)
        signature = self.credentials.sign(group.about_words(words), domains.THRESHOLD_WORDS_SIGNED)
        yield Send((SERVER,), DealtWords(signature, words.to_bytes()), SETUP_ROUND)
        return group, secrets

    def relay(self) -> Party[tuple[Group, dict[PartyId, Words]]]:
        """Relay keys and ciphertexts and collect the words; run by the server.

        Returns
        -------
        Group, and the words of each client

        Raises
        ------
        SecurityError
            A client did not sign what it sent; names it.

        Notes
        -----
        Sees: public keys, ciphertexts, and words that are uniform without what the clients keep.
        """
        everybody = clients(self.numbers.clients)
        keys: Mapping[PartyId, RunKey] = yield Gather(everybody, RunKey, SETUP_ROUND, len(everybody))
        for party, key in keys.items():
            statement, what = self._about_key(party, key.public), "its key of this run"
            check_sent(self.credentials, party, statement, key.signature, label=domains.THRESHOLD_KEY, what=what)
        seen: dict[bytes, PartyId] = {}
        for party in everybody:
            first = seen.setdefault(keys[party].public, party)
            if first != party:
                raise PeerError(
                    f"{party} sent the same key of this run as {first}, expected a fresh one; check its version",
                    rank=party.rank,
                )
        yield Send(everybody, RunKeys(tuple(keys[party] for party in everybody)), SETUP_ROUND)
        group = self.group(self.context + digest_keys([keys[party].public for party in everybody]))
        # Each sends another number of ciphertexts, so each has its own format.
        dealt: dict[PartyId, DealtCiphers] = {}
        for party in everybody:
            later = everybody[party.rank :]
            dealt[party] = yield Receive(party, DealtCiphers, SETUP_ROUND, len(later))
            for other, box in zip(later, dealt[party].pieces, strict=True):
                statement = self._about_cipher(party, other, group.keys, box.ciphertext)
                what = f"its ciphertext for {other}"
                check_sent(self.credentials, party, statement, box.signature, label=domains.THRESHOLD_CIPHER, what=what)
        for party in everybody:
            own = tuple(dealt[other].pieces[party.rank - other.rank - 1] for other in everybody[: party.rank - 1])
            yield Send((party,), RunCiphers(own), SETUP_ROUND)
        sent: Mapping[PartyId, DealtWords] = yield Gather(
            everybody, DealtWords, SETUP_ROUND, len(everybody), Words.size(self.numbers, self.rounds)
        )
        words = {party: self._read_words(group, party, said) for party, said in sent.items()}
        return group, words

    def _read_words(self, group: Group, party: PartyId, said: DealtWords) -> Words:
        """Decode the words of one client."""
        try:
            words = Words.from_bytes(self.numbers, self.rounds, party, said.words)
        except ValueError as error:
            raise PeerError(f"{party} sent malformed words: {error}; check its version", rank=party.rank) from error
        statement, label = group.about_words(words), domains.THRESHOLD_WORDS_SIGNED
        check_sent(self.credentials, party, statement, said.signature, label=label, what="the words of its shares")
        return words

    def read_stored(self, content: bytes) -> tuple[Group, dict[PartyId, Words]]:
        """Read what a server stored of the set-up.

        Raises
        ------
        ValueError
            It is malformed.
        """
        everybody = clients(self.numbers.clients)
        size = Words.size(self.numbers, self.rounds)
        check_size(content, KEPT_BYTES + size * len(everybody))
        starts = range(KEPT_BYTES, len(content), size)
        words = {
            party: Words.from_bytes(self.numbers, self.rounds, party, content[start : start + size])
            for party, start in zip(everybody, starts, strict=True)
        }
        return self.group(content[:KEPT_BYTES]), words

    def _sign_key(self, me: PartyId, public: bytes) -> bytes:
        return self.credentials.sign(self._about_key(me, public), domains.THRESHOLD_KEY)

    def _about_key(self, party: PartyId, public: bytes) -> bytes:
        return self.run_id + self.context + struct.pack("<I", party.rank) + public

    def _about_cipher(self, sender: PartyId, receiver: PartyId, keys: bytes, ciphertext: bytes) -> bytes:
        return self.run_id + struct.pack("<II", sender.rank, receiver.rank) + keys + ciphertext

    def _check_keys(self, me: PartyId, own: bytes, keys: RunKeys) -> None:
        """Refuse keys that the server changed, swapped or repeated."""
        for party, key in zip(clients(self.numbers.clients), keys.pieces, strict=True):
            statement, what = self._about_key(party, key.public), f"a key of {party}"
            check_passed_on(self.credentials, party, statement, key.signature, label=domains.THRESHOLD_KEY, what=what)
            if party == me and key.public != own:
                raise forged(party, what)
        if len({key.public for key in keys.pieces}) < len(keys.pieces):
            raise SecurityError("the server passed on the same key for two clients, expected fresh ones", rank=0)
