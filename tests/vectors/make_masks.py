"""Makes masks.json: common and pairwise masks, secrets of pairs, sealed contributions to a seed.

From docs/protocol.md ("Secrets of two clients", "Seed", "Masks"), FIPS 203 and RFCs 5869, 7748, 8439 alone; it imports
nothing of the package. `python -m tests.vectors.make_masks > tests/vectors/masks.json` writes the file anew.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from tests.vectors import mlkem768

ELEMENTS = 9
ROUNDS = (0, 1, 4_000_000_000)
CLIENTS = 3
RUN_ID = bytes(range(0xA0, 0xB0))
SEED = hashlib.sha256(b"test vector: common seed").digest()
REPLIES = [b"test vector: reply %d" % t for t in range(3)]
CONTRIBUTIONS = [hashlib.sha256(b"test vector: contribution %d" % i).digest() for i in (1, 2, 3)]
PRIVATE_KEYS = [hashlib.sha256(b"test vector: X25519 key %d" % i).digest() for i in (1, 2, 3)]
MLKEM_SEEDS = [hashlib.sha512(b"test vector: ML-KEM seed %d" % i).digest() for i in (1, 2, 3)]
PAIRS = [(i, j) for i in range(1, CLIENTS + 1) for j in range(i + 1, CLIENTS + 1)]
MESSAGES = {(i, j): hashlib.sha256(b"test vector: ML-KEM message %d %d" % (i, j)).digest() for i, j in PAIRS}
"""The random bytes of the encapsulation by client i for client j."""


def hkdf(secret: bytes, purpose: bytes, context: bytes, salt: bytes = b"") -> bytes:
    """HKDF-SHA256 with one block of output; info = u32 length of purpose | purpose | context."""
    pseudorandom = hmac.new(salt or b"\x00" * 32, secret, hashlib.sha256).digest()
    info = struct.pack("<I", len(purpose)) + purpose + context
    return hmac.new(pseudorandom, info + b"\x01", hashlib.sha256).digest()


def stream(key: bytes, nonce: bytes, bits: int, number: int = 0) -> list[int]:
    """Ring elements from one of the streams that a key stream is cut into; each takes whole blocks of 64 bytes."""
    cipher = Cipher(ChaCha20(key, struct.pack("<I", 0) + nonce), mode=None).encryptor()
    size = ELEMENTS * bits // 8
    while size % 64:
        size += 1
    cipher.update(bytes(size * number))
    return list(struct.unpack_from(f"<{ELEMENTS}{'I' if bits == 32 else 'Q'}", cipher.update(bytes(size))))


def nonce(key: bytes, t: int) -> bytes:
    """A round's nonce: 12 bytes of keyed BLAKE2b of round, tensor and history."""
    return hashlib.blake2b(struct.pack("<II", t, 0) + history(t), key=key, digest_size=12).digest()


def history(t: int) -> bytes:
    """Four zero bytes before round 0, then BLAKE2b(history | body of the reply), 32 bytes, reply by reply."""
    found = bytes(4)
    for reply in REPLIES[:t]:
        found = hashlib.blake2b(found + reply, digest_size=32).digest()
    return found


def common(bits: int) -> dict[str, dict[str, list[int]]]:
    """Masks by round and client: r_i - r_(i+1)."""
    found = {}
    for t in ROUNDS:
        key, nonce_key = (hkdf(SEED, b"fastlloyd mask" + end, RUN_ID) for end in (b"", b" nonce"))
        r = [stream(key, nonce(nonce_key, t), bits, number) for number in range(CLIENTS + 1)]
        found[str(t)] = {
            str(i): [(a - b) % 2**bits for a, b in zip(r[i - 1], r[i], strict=True)] for i in range(1, CLIENTS + 1)
        }
    return found


def public(i: int) -> bytes:
    """K_i."""
    x25519 = X25519PrivateKey.from_private_bytes(PRIVATE_KEYS[i - 1]).public_key().public_bytes_raw()
    return x25519 + mlkem768.public_key(MLKEM_SEEDS[i - 1])


def ciphertext(i: int, j: int) -> tuple[bytes, bytes]:
    """What client i sends client j > i, and ML-KEM's secret."""
    secret, made = mlkem768.encapsulate(mlkem768.public_key(MLKEM_SEEDS[j - 1]), MESSAGES[i, j])
    return made, secret


def pair_secrets() -> dict[tuple[int, int], bytes]:
    """The secrets s_ij of all pairs i < j."""
    private = [X25519PrivateKey.from_private_bytes(key) for key in PRIVATE_KEYS]
    found = {}
    for i, j in PAIRS:
        made, secret = ciphertext(i, j)
        shared = private[i - 1].exchange(private[j - 1].public_key())
        context = struct.pack("<II", i, j) + public(i) + public(j) + made
        found[i, j] = hkdf(secret + shared, b"fastlloyd pair secret 2", context, salt=RUN_ID)
    return found


def contribution(i: int, j: int) -> bytes:
    """What client i sends client j of a common seed over their link."""
    secret = pair_secrets()[min(i, j), max(i, j)]
    key = hkdf(secret, b"fastlloyd seed contribution", RUN_ID + struct.pack("<I", i))
    return ChaCha20Poly1305(key).encrypt(bytes(12), CONTRIBUTIONS[i - 1], None)


def pairwise(bits: int) -> dict[str, dict[str, list[int]]]:
    """Masks by round and client: plus the streams with higher ranks, minus those with lower ones."""
    found: dict[str, dict[str, list[int]]] = {}
    for t in ROUNDS:
        streams = {}
        for (i, j), secret in pair_secrets().items():
            context = RUN_ID + struct.pack("<II", i, j)
            key, nonce_key = (hkdf(secret, b"fastlloyd pair mask" + end, context) for end in (b"", b" nonce"))
            streams[i, j] = stream(key, nonce(nonce_key, t), bits)
        found[str(t)] = {}
        for me in range(1, CLIENTS + 1):
            mask = [0] * ELEMENTS
            for (i, j), common_stream in streams.items():
                if me in (i, j):
                    sign = 1 if me == i else -1
                    mask = [(a + sign * b) % 2**bits for a, b in zip(mask, common_stream)]
            found[str(t)][str(me)] = mask
    return found


def vectors() -> dict[str, object]:
    """Return the content of masks.json."""
    return {
        "run_id": RUN_ID.hex(),
        "elements": ELEMENTS,
        "replies": [reply.hex() for reply in REPLIES],
        "contributions": [contribution.hex() for contribution in CONTRIBUTIONS],
        "seed_of_contributions": hkdf(b"".join(CONTRIBUTIONS), b"fastlloyd common seed", RUN_ID).hex(),
        "seed": SEED.hex(),
        "private_keys": [x25519.hex() + mlkem.hex() for x25519, mlkem in zip(PRIVATE_KEYS, MLKEM_SEEDS, strict=True)],
        "public_keys": [public(i + 1).hex() for i in range(CLIENTS)],
        "messages": {f"{i} {j}": message.hex() for (i, j), message in MESSAGES.items()},
        "ciphertexts": {f"{i} {j}": ciphertext(i, j)[0].hex() for i, j in PAIRS},
        "sealed_contributions": {f"{i} {j}": contribution(i, j).hex() for one in PAIRS for i, j in (one, one[::-1])},
        "pair_secrets": {f"{i} {j}": secret.hex() for (i, j), secret in pair_secrets().items()},
        "common": {str(bits): common(bits) for bits in (32, 64)},
        "pairwise": {str(bits): pairwise(bits) for bits in (32, 64)},
    }


if __name__ == "__main__":
    print(json.dumps(vectors()))
