"""Makes sealed.json: the agreement on the common seed through the server, message by message.

From docs/protocol.md ("Seed") and RFCs 5869, 7748, 8032, 8439 alone; it imports nothing of the package. `python -m
tests.vectors.make_sealed > tests/vectors/sealed.json` writes the file anew.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

CLIENTS = range(1, 6)
CONTRIBUTORS = range(1, 4)
RUN_ID = bytes(range(0xA0, 0xB0))


def label(text: str, i: int | str = "") -> bytes:
    """32 bytes that nobody chose."""
    return hashlib.sha256(f"test vector: {text} {i}".encode()).digest()


RUN, CONTEXT = label("run"), label("context")
SIGNING = {i: label("Ed25519 key", i) for i in CLIENTS}
KEYS = {i: label("X25519 key", i) for i in CLIENTS}
PARTS = {i: label("part", i) for i in CONTRIBUTORS}


def hkdf(secret: bytes, purpose: bytes, context: bytes, salt: bytes = b"") -> bytes:
    """HKDF-SHA256 with one block of output; info = u32 length of purpose | purpose | context."""
    pseudorandom = hmac.new(salt or b"\x00" * 32, secret, hashlib.sha256).digest()
    info = struct.pack("<I", len(purpose)) + purpose + context
    return hmac.new(pseudorandom, info + b"\x01", hashlib.sha256).digest()


def u32(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def sign(i: int, statement: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(SIGNING[i]).sign(statement)


def public(i: int) -> bytes:
    return X25519PrivateKey.from_private_bytes(KEYS[i]).public_key().public_bytes_raw()


def pair_secret(i: int, j: int) -> bytes:
    """s_ij, i < j, as with pairwise masks."""
    shared = X25519PrivateKey.from_private_bytes(KEYS[i]).exchange(
        X25519PrivateKey.from_private_bytes(KEYS[j]).public_key()
    )
    return hkdf(shared, b"fastlloyd pair secret", u32(i, j) + public(i) + public(j), salt=RUN_ID)


def seal_key(i: int) -> bytes:
    return public(i) + sign(i, b"fastlloyd seal key 1\0" + RUN + u32(i) + public(i))


def digest(c: int) -> bytes:
    return hkdf(PARTS[c], b"fastlloyd seed part", u32(c) + CONTEXT)


def box(c: int, i: int) -> bytes:
    """The part of contributor c, sealed for client i and signed."""
    key = hkdf(pair_secret(min(c, i), max(c, i)), b"fastlloyd seed seal", u32(c) + CONTEXT + digest(c))
    sealed = ChaCha20Poly1305(key).encrypt(bytes(12), PARTS[c], None)
    said = u32(c, i) + public(c) + public(i) + CONTEXT + digest(c) + sealed
    return sealed + sign(c, b"fastlloyd sealed part 1\0" + RUN + said)


def alike(secret: bytes, purpose: bytes, context: bytes) -> list[bytes]:
    """The tag, then the piece of each client."""
    cipher = Cipher(ChaCha20(hkdf(secret, purpose, context), bytes(16)), mode=None).encryptor()
    stream = cipher.update(bytes(32 * (1 + len(CLIENTS))))
    return [stream[32 * i : 32 * i + 32] for i in range(1 + len(CLIENTS))]


def vectors() -> dict[str, object]:
    """Return the content of sealed.json."""
    seed = hkdf(b"".join(PARTS.values()), b"fastlloyd common seed", RUN_ID)
    tag, *pieces = alike(seed, b"fastlloyd seed alike", RUN_ID + CONTEXT)
    proof = bytes([0b11111]) + u32(0) + hashlib.sha256(b"".join(pieces)).digest()
    return {
        "run_id": RUN_ID.hex(),
        "run": RUN.hex(),
        "context": CONTEXT.hex(),
        "signing_keys": {i: key.hex() for i, key in SIGNING.items()},
        "private_keys": {i: key.hex() for i, key in KEYS.items()},
        "parts": {i: part.hex() for i, part in PARTS.items()},
        "seal_key": {i: seal_key(i).hex() for i in CLIENTS},
        "seal_keys": b"".join(map(seal_key, CLIENTS)).hex(),
        "sealed_parts": {
            c: (CONTEXT + digest(c) + b"".join(box(c, i) for i in CLIENTS if i != c)).hex() for c in CONTRIBUTORS
        },
        "sealed_seed": {
            i: b"".join(public(c) + CONTEXT + digest(c) + box(c, i) for c in CONTRIBUTORS if c != i).hex()
            for i in CLIENTS
        },
        "seed": seed.hex(),
        "alike_tag": {i: (tag + piece).hex() for i, piece in zip(CLIENTS, pieces, strict=True)},
        "alike_proof": proof.hex(),
    }


if __name__ == "__main__":
    print(json.dumps(vectors()))
