"""Makes masks.json: common and pairwise masks. From docs/protocol.md ("Seed", "Masks") and RFCs 5869, 7748, 8439 alone.

It imports nothing of the package. `python -m tests.vectors.make_masks > tests/vectors/masks.json` writes the file anew.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

ELEMENTS = 9
ROUNDS = (0, 1, 4_000_000_000)
CLIENTS = 3
RUN_ID = bytes(range(0xA0, 0xB0))
SEED = hashlib.sha256(b"test vector: common seed").digest()
REPLIES = [b"test vector: reply %d" % t for t in range(3)]
CONTRIBUTIONS = [hashlib.sha256(b"test vector: contribution %d" % i).digest() for i in (1, 2, 3)]
PRIVATE_KEYS = [hashlib.sha256(b"test vector: X25519 key %d" % i).digest() for i in (1, 2, 3)]


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


def pair_secrets() -> dict[tuple[int, int], bytes]:
    """The secrets s_ij of all pairs i < j."""
    private = [X25519PrivateKey.from_private_bytes(key) for key in PRIVATE_KEYS]
    public = [key.public_key().public_bytes_raw() for key in private]
    found = {}
    for i in range(1, CLIENTS + 1):
        for j in range(i + 1, CLIENTS + 1):
            shared = private[i - 1].exchange(private[j - 1].public_key())
            context = struct.pack("<II", i, j) + public[i - 1] + public[j - 1]
            found[i, j] = hkdf(shared, b"fastlloyd pair secret", context, salt=RUN_ID)
    return found


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
        "private_keys": [key.hex() for key in PRIVATE_KEYS],
        "pair_secrets": {f"{i} {j}": secret.hex() for (i, j), secret in pair_secrets().items()},
        "common": {str(bits): common(bits) for bits in (32, 64)},
        "pairwise": {str(bits): pairwise(bits) for bits in (32, 64)},
    }


if __name__ == "__main__":
    print(json.dumps(vectors()))
