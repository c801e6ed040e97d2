"""A client of `fastlloyd` with threshold masks, from docs/protocol.md alone: a second implementation.

It imports nothing of the package. Whoever runs it carries its messages and hands over what the links have agreed on,
the roster's keys, its records, the bytes that it draws, and a sampler of discrete Gaussians.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from tests.vectors.make_start import sphere_packing, to_grid
from tests.vectors.mlkem768 import encapsulate

SETUP, COMPARE, FINAL = 0xFFFFFFFF, 0xFFFFFFFD, 0xFFFFFFFE
P = 2**255 - 19
OWN, PAIRS, BOX = KINDS = range(3)
K_BYTES, CT_BYTES, SIGNATURE = 1216, 1088, 64
Steps = Generator[tuple[str, int, int, int, bytes], bytes, Any]
"""What it sends or waits for: ('send' or 'receive', type, round, step, body). What comes is the answer."""
Draw = Callable[[float, Fraction, int], NDArray[np.int64]]
"""Discrete Gaussians: standard deviation, share of the variance, how many."""


def hkdf(secret: bytes, purpose: bytes, context: bytes = b"", salt: bytes = bytes(32)) -> bytes:
    """HKDF-SHA256, one block of output; info = u32 length of purpose | purpose | context."""
    info = struct.pack("<I", len(purpose)) + purpose + context
    return hmac.new(hmac.new(salt, secret, hashlib.sha256).digest(), info + b"\x01", hashlib.sha256).digest()


def chacha(key: bytes, length: int, nonce: bytes = bytes(12)) -> bytes:
    """The first bytes of a key stream."""
    return Cipher(ChaCha20(key, bytes(4) + nonce), mode=None).encryptor().update(bytes(length))


def sha(*pieces: bytes) -> bytes:
    """SHA-256 of pieces in a row."""
    return hashlib.sha256(b"".join(pieces)).digest()


def u32(*numbers: int) -> bytes:
    """Numbers of 32 bits."""
    return struct.pack(f"<{len(numbers)}I", *numbers)


def compact(value: Any) -> bytes:
    """JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def cut(content: bytes, *sizes: int) -> list[bytes]:
    """Pieces of these sizes, again and again, to the end."""
    pieces, at = [], 0
    while at < len(content):
        for size in sizes:
            pieces.append(content[at : at + size])
            at += size
    assert at == len(content)
    return pieces


@dataclass
class Ended:
    """What a client has at the end: centres in [-1, 1], the cluster of each own record, and who was in each round."""

    centers: NDArray[np.float64]
    labels: NDArray[np.int64]
    included: list[list[int]]
    silent: list[list[int]]


class Pair:
    """A key for one run and one purpose."""

    def __init__(self, raw: bytes, rank: int, purpose: bytes, run_id: bytes) -> None:
        self._x25519 = X25519PrivateKey.from_private_bytes(raw[:32])
        self._mlkem = MLKEM768PrivateKey.from_seed_bytes(raw[32:])
        self._rank, self._purpose, self._run_id = rank, purpose, run_id
        self.public = self._x25519.public_key().public_bytes_raw() + self._mlkem.public_key().public_bytes_raw()

    def make(self, other: int, public: bytes, drawn: bytes) -> tuple[bytes, bytes]:
        """The secret with another client, and what it needs to have it too."""
        secret, made = encapsulate(public[32:], drawn)
        return self._combine(other, public, made, secret), made

    def take(self, other: int, public: bytes, made: bytes) -> bytes:
        """The secret that another client made."""
        return self._combine(other, public, made, self._mlkem.decapsulate(made))

    def _combine(self, other: int, public: bytes, made: bytes, secret: bytes) -> bytes:
        x = self._x25519.exchange(X25519PublicKey.from_public_bytes(public[:32]))
        (i, first), (j, second) = sorted([(self._rank, self.public), (other, public)])
        return hkdf(secret + x, self._purpose, u32(i, j) + first + second + made, self._run_id)


@dataclass
class Client:
    """One client.

    Attributes
    ----------
    rank, run_id, agreed
        `agreed` are the values in the links' confirmation.
    key, keys
        Its roster key, and the others' by rank, 0 for the server.
    names, points
        Its features, and its records in [-1, 1].
    draw
        From a purpose and a number to so many bytes.
    encapsulation
        From a purpose and the receiver's rank to 32 bytes.
    noise
        From two keys of streams to a sampler.
    """

    rank: int
    run_id: bytes
    agreed: Mapping[str, Any]
    key: Ed25519PrivateKey
    keys: Mapping[int, Ed25519PublicKey]
    names: list[str]
    points: NDArray[np.float64]
    draw: Callable[[str, int], bytes]
    encapsulation: Callable[[bytes, int], bytes]
    noise: Callable[[bytes, bytes], Draw]
    history: bytes = field(default=u32(0))

    def live(self) -> Steps:
        """The whole run."""
        self.links = sha(self.run_id, sha(json.dumps(self.agreed, sort_keys=True).encode()))
        self.chain = sha(b"fastlloyd transcript 1", self.links, u32(0))
        yield self.send(8, SETUP, compact({"names": self.names, "rounds_done": 0}))
        proposal = yield self.receive(9, SETUP)
        self.hear(9, SETUP, proposal)
        self.plan = plan = json.loads(proposal)["plan"]
        self.M, self.T, self.c, self.t = (plan[n] for n in ("clients", "min_clients", "colluding", "known_shares"))
        self.everybody, self.D, self.q = range(1, self.M + 1), self.M - self.T, plan["fraction_bits"]
        self.dtype = np.dtype(f"<u{plan['ring_bits'] // 8}")
        public = sha(json.dumps(plan, sort_keys=True).encode())
        grid = np.array(to_grid(sphere_packing(plan["k"], plan["d"], plan["seed"]), self.q), dtype="<i8")
        self.seed = yield from self.agree_seed(sha(self.links, public, grid.tobytes()))
        yield from self.set_up(sha(self.links, public))
        yield self.send(12, SETUP, compact({}))
        yield self.receive(13, SETUP)
        ended = yield from self.rounds(grid)
        told = sha(b"fastlloyd transcript 1", self.links, u32(0), self.chain)
        # Of the result only the centres: the report is no part of this implementation.
        result = sha(ended.centers.tobytes())
        yield from self.compare(
            COMPARE, {b"fastlloyd told alike": told, b"fastlloyd same result": self.run_id + result}
        )
        nothing = {"payload_bytes": 0, "link_bytes": 0, "messages": 0, "setup_bytes": 0}
        own = {"sent": nothing, "signature": "", "covers": "public", "wire": None}
        yield self.send(10, FINAL, compact({"accounts": {str(self.rank): own}}))
        yield self.receive(11, FINAL)
        return ended

    # Messages.

    def send(self, kind: int, round_: int, body: bytes, step: int = 0) -> tuple[str, int, int, int, bytes]:
        return "send", kind, round_, step, body

    def receive(self, kind: int, round_: int) -> tuple[str, int, int, int, bytes]:
        return "receive", kind, round_, 0, b""

    def hear(self, kind: int, round_: int, body: bytes) -> None:
        """Go on with the chain of what the server sends to all."""
        self.chain = sha(self.chain, struct.pack("<BIQ", kind, round_, len(body)), body)

    def sign(self, label: bytes, *statement: bytes) -> bytes:
        return self.key.sign(label + b"\0" + b"".join(statement))

    def check(self, rank: int, signature: bytes, label: bytes, *statement: bytes) -> None:
        self.keys[rank].verify(signature, label + b"\0" + b"".join(statement))

    def bitmap(self, ranks: Iterable[int]) -> bytes:
        return sum(1 << rank - 1 for rank in ranks).to_bytes((self.M + 7) // 8, "little")

    def ranks(self, bitmap: bytes) -> list[int]:
        return [rank for rank in self.everybody if int.from_bytes(bitmap, "little") >> rank - 1 & 1]

    @property
    def others(self) -> list[int]:
        return [rank for rank in self.everybody if rank != self.rank]

    # "Seed" and "Comparison through the server".

    def agree_seed(self, context: bytes) -> Steps:
        """The common seed."""
        run, contributors, parts = self.links, list(self.everybody)[:3], {}
        if self.rank in contributors:
            parts[self.rank] = self.draw("seed", 32)
        purpose = b"fastlloyd seal secret"
        key = Pair(self.draw("seed", 96), self.rank, purpose, self.run_id)
        signature = self.sign(b"fastlloyd seal key 2", run, u32(self.rank), key.public)
        yield self.send(19, SETUP, key.public + signature)

        def digest(sender: int) -> bytes:
            return hkdf(parts[sender], b"fastlloyd seed part", u32(sender) + context)

        def sealer(secret: bytes, sender: int, committed: bytes) -> ChaCha20Poly1305:
            return ChaCha20Poly1305(hkdf(secret, b"fastlloyd seed seal", u32(sender) + context + committed))

        if self.rank in contributors:
            theirs = cut((yield self.receive(20, SETUP)), K_BYTES, SIGNATURE)
            body = context + digest(self.rank)
            for other, public, signature in zip(self.everybody, theirs[::2], theirs[1::2], strict=True):
                if other == self.rank:
                    continue
                self.check(other, signature, b"fastlloyd seal key 2", run, u32(other), public)
                secret, made = key.make(other, public, self.encapsulation(purpose, other))
                box = sealer(secret, self.rank, digest(self.rank)).encrypt(bytes(12), parts[self.rank], None)
                said = (run, u32(self.rank, other), key.public, public, context, digest(self.rank), made, box)
                body += made + box + self.sign(b"fastlloyd sealed part 2", *said)
            yield self.send(21, SETUP, body)
        came = cut((yield self.receive(22, SETUP)), K_BYTES, 32, 32, CT_BYTES, 48, SIGNATURE)
        senders = [sender for sender in contributors if sender != self.rank]
        for sender, at in zip(senders, range(0, len(came), 6), strict=True):
            public, their_context, committed, made, box, signature = came[at : at + 6]
            said = (run, u32(sender, self.rank), public, key.public, their_context, committed, made, box)
            self.check(sender, signature, b"fastlloyd sealed part 2", *said)
            assert their_context == context
            parts[sender] = sealer(key.take(sender, public, made), sender, committed).decrypt(bytes(12), box, None)
            assert digest(sender) == committed
        self.seed = hkdf(b"".join(parts[one] for one in contributors), b"fastlloyd common seed", self.run_id)
        yield from self.compare(SETUP, {b"fastlloyd seed alike": self.run_id + context})
        return self.seed

    def compare(self, round_: int, things: Mapping[bytes, bytes]) -> Steps:
        """Show that all clients have the same."""
        streams = [
            cut(chacha(hkdf(self.seed, purpose, value), 32 * (self.M + 1)), 32) for purpose, value in things.items()
        ]
        yield self.send(23, round_, b"".join(stream[0] + stream[self.rank] for stream in streams))
        proof = yield self.receive(24, round_)
        start = len(self.bitmap([]))
        pieces = cut(proof[start:], 4, 32)
        for stream, odd, found in zip(streams, pieces[::2], pieces[1::2], strict=True):
            assert (odd, found) == (u32(0), sha(*(stream[rank] for rank in self.ranks(proof[:start]))))

    # "Threshold masks: set-up" and "Threshold masks: numbers, parts, secrets".

    def set_up(self, context: bytes) -> Steps:
        """A secret with each other client, and this client's own in words."""
        purpose = b"fastlloyd threshold pair"
        key = Pair(self.draw("threshold", 96), self.rank, purpose, self.run_id)
        signature = self.sign(b"fastlloyd threshold key 1", self.run_id, context, u32(self.rank), key.public)
        yield self.send(25, SETUP, key.public + signature)
        theirs = cut((yield self.receive(26, SETUP)), K_BYTES, SIGNATURE)
        publics = dict(zip(self.everybody, theirs[::2], strict=True))
        for other, signature in zip(self.everybody, theirs[1::2], strict=True):
            self.check(other, signature, b"fastlloyd threshold key 1", self.run_id, context, u32(other), publics[other])
        assert publics[self.rank] == key.public and len(set(publics.values())) == self.M
        keys, body, secrets = sha(*publics.values()), b"", {}
        for other in range(self.rank + 1, self.M + 1):
            secrets[other], made = key.make(other, publics[other], self.encapsulation(purpose, other))
            said = (self.run_id, u32(self.rank, other), keys, made)
            body += made + self.sign(b"fastlloyd threshold cipher 1", *said)
        yield self.send(27, SETUP, body)
        came = cut((yield self.receive(28, SETUP)), CT_BYTES, SIGNATURE)
        for other, made, signature in zip(range(1, self.rank), came[::2], came[1::2], strict=True):
            said = (self.run_id, u32(other, self.rank), keys, made)
            self.check(other, signature, b"fastlloyd threshold cipher 1", *said)
            secrets[other] = key.take(other, publics[other], made)
        rho = min(1, max(0, self.T - self.c - 1))
        numbers = u32(self.M, self.T, self.c, self.t, rho)
        self.G = sha(b"fastlloyd threshold group 1", context, numbers, keys)
        self.root = self.draw("threshold", 32)
        self.pairs = {o: hkdf(secrets[o], b"fastlloyd threshold round") for o in self.others}
        start = self.root, self.pairs
        words, self.own = b"", []
        for r in range(len(self.plan["rounds"])):
            content, shares = self.deal(r)
            words, self.own = words + content, [*self.own, shares]
            self.forward()
        self.root, self.pairs = start
        digest = sha(b"fastlloyd threshold words 1", u32(self.rank), words)
        signature = self.sign(b"fastlloyd threshold words signed 1", self.run_id, self.G, digest)
        yield self.send(29, SETUP, signature + words)

    def forward(self) -> None:
        """Go on to the next round, and forget this one."""
        self.root = hkdf(self.root, b"fastlloyd threshold next")
        self.pairs = {o: hkdf(secret, b"fastlloyd threshold next") for o, secret in self.pairs.items()}

    def secret(self, kind: int) -> bytes:
        """g(r, kind), 32 bytes."""
        key = hkdf(self.root, b"fastlloyd threshold secret", bytes([kind]))
        return (int.from_bytes(chacha(key, 64), "little") % P).to_bytes(32, "little")

    def pad(self, dealer: int, holder: int, kind: int) -> int:
        """What hides a share of a pair."""
        pair = self.pairs[dealer if holder == self.rank else holder]
        key = hkdf(pair, b"fastlloyd threshold pad", u32(dealer, holder) + bytes([kind]))
        return int.from_bytes(chacha(key, 64), "little") % P

    def deal(self, r: int) -> tuple[bytes, list[bytes]]:
        """Words, table and checks of a round, and what stays here."""
        words, own, checks = b"", [], b""
        for kind in KINDS:
            drawn = cut(self.draw("threshold", 64 * (self.T - 1)), 64)
            g = self.secret(kind)
            coefficients = [int.from_bytes(g, "little"), *(int.from_bytes(one, "little") for one in reversed(drawn))]
            shares = {j: sum(a * j**power for power, a in enumerate(coefficients)) % P for j in self.everybody}
            for j in self.others:
                words += ((shares[j] - self.pad(self.rank, j, kind)) % P).to_bytes(32, "little")
            own.append(shares[self.rank].to_bytes(32, "little"))
            checks += sha(b"fastlloyd threshold check 1", u32(self.rank, r), bytes([kind]), g)
        hidden = cut(chacha(hkdf(self.secret(PAIRS), b"fastlloyd threshold table"), 32 * self.M), 32)
        table = b"".join(bytes(map(int.__xor__, self.pair_key(j), hidden[j - 1])) for j in self.others)
        return words + table + checks, own

    def pair_key(self, other: int) -> bytes:
        """The key of a pair's mask."""
        return hkdf(self.pairs[other], b"fastlloyd threshold mask")

    def taken_off(self, included: int) -> list[int]:
        """The parts of the noise that go with so many clients in the set: for M <= 32."""
        return list(range(self.M - included + 1, self.D + 1))

    def stream(self, t: int, secret: bytes, purpose: bytes, context: bytes, length: int) -> bytes:
        """A mask's key stream in round t."""
        nonce_key = hkdf(secret, purpose + b" nonce", context)
        nonce = hashlib.blake2b(u32(t, 0) + self.history, key=nonce_key, digest_size=12).digest()
        return chacha(hkdf(secret, purpose, context), length, nonce)

    def ring(self, t: int, secret: bytes, purpose: bytes, count: int) -> NDArray[Any]:
        """A mask's ring elements in round t."""
        return np.frombuffer(self.stream(t, secret, purpose, b"", count * self.dtype.itemsize), self.dtype)

    def common_mask(self, t: int, client: int, count: int) -> NDArray[Any]:
        """r_i - r_(i + 1), each in whole blocks."""
        size = count * self.dtype.itemsize
        blocks = -(-size // 64) * 64
        content = self.stream(t, self.seed, b"fastlloyd mask", self.run_id, blocks * (client + 1))
        first, second = (
            np.frombuffer(content[at : at + size], self.dtype) for at in (blocks * (client - 1), blocks * client)
        )
        return first - second

    def parts(self, t: int) -> list[NDArray[np.int64]]:
        """The parts of this client's noise in round t."""
        M, shapes, planned = self.M, [Fraction(1, self.M - self.t)], self.plan["rounds"][t]
        shapes += [Fraction(1, (M - j + 1 - self.t) * (M - j - self.t)) for j in range(1, self.D + 1)]
        found = []
        for j, shape in enumerate(shapes):
            context = u32(j, t) + self.history
            labels = (b"fastlloyd threshold part", b"fastlloyd threshold part, further bits")
            draw = self.noise(*(hkdf(self.root, label, context) for label in labels))
            sums, counts = self.plan["k"] * self.plan["d"], self.plan["k"]
            drawn = [draw(planned["sum_scale"], shape, sums), draw(planned["count_scale"], shape, counts)]
            found.append(np.concatenate(drawn))
        return found

    def quick(self) -> bytes:
        """What opens a round for everybody."""
        return b"".join(self.given(dealer, kind) for kind in (OWN, BOX) for dealer in self.everybody)

    def given(self, dealer: int, kind: int) -> bytes:
        """This client's pad, or own share, of a dealer's secret."""
        own = self.own[0][kind]
        return own if dealer == self.rank else self.pad(dealer, self.rank, kind).to_bytes(32, "little")

    # "Rounds", "Arithmetic" and "Threshold masks: a round".

    def rounds(self, grid: NDArray[np.int64]) -> Steps:
        """All rounds."""
        ended = Ended(grid / 2.0**self.q, np.zeros(0, np.int64), [], [])
        points = np.rint(self.points * 2.0**self.q).astype(np.int64)
        for t, planned in enumerate(self.plan["rounds"]):
            grid = np.rint(ended.centers * 2.0**self.q).astype(np.int64)
            vector = self.vector(points, grid, planned)
            reply = yield from self.masked(t, vector)
            self.hear(33, t, reply)
            width = len(self.bitmap([]))
            ended.included.append(self.ranks(reply[:width]))
            ended.silent.append(self.ranks(reply[width : 2 * width]))
            total = np.frombuffer(reply[2 * width :], self.dtype)
            for client in ended.included[-1]:
                total = total - self.common_mask(t, client, len(total))
            noisy = total.astype(f"<i{self.dtype.itemsize}").astype(np.float64) / 2.0**self.q
            ended.centers = self.move(noisy, grid / 2.0**self.q, planned)
            self.history = hashlib.blake2b(self.history + reply, digest_size=32).digest()
            self.forward()
            del self.own[0]
        ended.labels = nearest(points, np.rint(ended.centers * 2.0**self.q).astype(np.int64))
        return ended

    def vector(self, points: NDArray[np.int64], grid: NDArray[np.int64], planned: Mapping[str, Any]) -> NDArray[Any]:
        """Sums of x - c, row by row, and 2^q times the counts."""
        labels, sums, counts = nearest(points, grid), np.zeros_like(grid), np.zeros(len(grid), np.int64)
        for point, label in zip(points, labels, strict=True):
            step = point - grid[label]
            if planned["radius"] is None or step @ step <= planned["radius"] ** 2:
                sums[label] += step if self.plan["relative"] else point
                counts[label] += 1
        return np.concatenate([sums.ravel(), counts << self.q]).astype(self.dtype)

    def move(self, noisy: NDArray[np.float64], grid: NDArray[np.float64], planned: Mapping[str, Any]) -> Any:
        """The next centroids."""
        sums, counts = noisy[: grid.size].reshape(grid.shape), noisy[grid.size :]
        step = sums / np.maximum(counts, 1.0)[:, None]
        if self.plan["clip"]:
            longest = planned["radius"] / 2.0**self.q
            for row in step:
                squared = 0.0
                for value in row:
                    squared += value * value
                length = np.sqrt(squared)
                if length > longest:
                    row *= longest / length
        moved = grid + step if self.plan["relative"] else step
        assert self.plan["domain"] == "fold"
        y = np.mod(moved + 1.0, 4.0)
        return np.where(y > 2.0, 4.0 - y, y) - 1.0

    def masked(self, t: int, vector: NDArray[Any]) -> Steps:
        """Send the vector with its noise under all masks, and help to open the sum; return the reply."""
        count, parts, h = len(vector), self.parts(t), self.history if t else bytes(32)

        def excess(included: int) -> NDArray[Any]:
            off = [parts[j] for j in self.taken_off(included)]
            return np.sum(off, axis=0).astype(self.dtype) if off else np.zeros(count, self.dtype)

        covered = vector + np.sum(parts, axis=0).astype(self.dtype) + self.common_mask(t, self.rank, count)
        covered = covered + self.ring(t, self.secret(OWN), b"fastlloyd threshold own mask", count)
        for other in self.others:
            mask = self.ring(t, self.pair_key(other), b"fastlloyd threshold pair mask", count)
            covered = covered + mask if self.rank < other else covered - mask
        body = covered.tobytes()
        if self.D:
            box = excess(self.M) + self.ring(t, self.secret(BOX), b"fastlloyd threshold box mask", count)
            body += box.tobytes()
        yield self.send(32, t, body)
        said = yield self.receive(34, t)
        bitmap, stated = said[32:-SIGNATURE], (self.run_id, self.G, u32(t), h)
        members = self.ranks(bitmap)
        assert said[:32] == h and len(members) >= self.T
        if len(members) == self.M:
            self.check(0, said[-SIGNATURE:], b"fastlloyd threshold all 1", *stated)
            yield self.send(35, t, self.quick(), 1)
            return (yield self.receive(33, t))
        self.check(0, said[-SIGNATURE:], b"fastlloyd threshold set 1", *stated, bitmap)
        vote = (*stated, bitmap, bytes(32))
        yield self.send(36, t, self.sign(b"fastlloyd threshold vote 1", *vote), 1)
        votes = yield self.receive(37, t)
        voters, signatures = self.ranks(votes[: len(bitmap)]), cut(votes[len(bitmap) :], SIGNATURE)
        assert len(voters) >= self.T
        for voter, signature in zip(voters, signatures, strict=True):
            self.check(voter, signature, b"fastlloyd threshold vote 1", *vote)
        answer = b"".join(self.given(dealer, OWN if dealer in members else PAIRS) for dealer in self.everybody)
        if self.rank in members and self.taken_off(len(members)):
            answer += excess(len(members)).tobytes()
        yield self.send(38, t, answer, 2)
        return (yield self.receive(33, t))


def nearest(points: NDArray[np.int64], grid: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lowest index of the nearest centre, in integers."""
    return np.argmin((grid * grid).sum(axis=1)[None, :] - 2 * points @ grid.T, axis=1)
