"""Makes sealed.json: the agreement on the common seed through the server, message by message.

From docs/protocol.md ("Secrets of two clients", "Seed"), FIPS 203 and RFCs 5869, 7748, 8032, 8439 alone; it imports
nothing of the package. `python -m tests.vectors.make_sealed > tests/vectors/sealed.json` writes the file anew.
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

from tests.vectors import mlkem768

CLIENTS = range(1, 6)
CONTRIBUTORS = range(1, 4)
RUN_ID = bytes(range(0xA0, 0xB0))


def label(text: str, i: int | str = "") -> bytes:
    """32 bytes that nobody chose."""
    return hashlib.sha256(f"test vector: {text} {i}".encode()).digest()


RUN, CONTEXT = label("run"), label("context")
SIGNING = {i: label("Ed25519 key", i) for i in CLIENTS}
KEYS = {i: label("X25519 key", i) for i in CLIENTS}
MLKEM_SEEDS = {i: label("ML-KEM d", i) + label("ML-KEM z", i) for i in CLIENTS}
MESSAGES = {(c, i): label(f"ML-KEM message {c}", i) for c in CONTRIBUTORS for i in CLIENTS if i != c}
"""The random bytes of the encapsulation by contributor c for client i."""
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
    """K_i."""
    x25519 = X25519PrivateKey.from_private_bytes(KEYS[i]).public_key().public_bytes_raw()
    return x25519 + mlkem768.public_key(MLKEM_SEEDS[i])


def secret(c: int, i: int) -> tuple[bytes, bytes]:
    """ct_ci, and the secret s_ci that contributor c makes for client i."""
    secret, made = mlkem768.encapsulate(mlkem768.public_key(MLKEM_SEEDS[i]), MESSAGES[c, i])
    shared = X25519PrivateKey.from_private_bytes(KEYS[c]).exchange(
        X25519PrivateKey.from_private_bytes(KEYS[i]).public_key()
    )
    low, high = sorted((c, i))
    context = u32(low, high) + public(low) + public(high) + made
    return made, hkdf(secret + shared, b"fastlloyd seal secret", context, salt=RUN_ID)


def seal_key(i: int) -> bytes:
    return public(i) + sign(i, b"fastlloyd seal key 2\0" + RUN + u32(i) + public(i))


def digest(c: int) -> bytes:
    return hkdf(PARTS[c], b"fastlloyd seed part", u32(c) + CONTEXT)


def box(c: int, i: int) -> bytes:
    """The part of contributor c, sealed for client i and signed."""
    made, shared = secret(c, i)
    key = hkdf(shared, b"fastlloyd seed seal", u32(c) + CONTEXT + digest(c))
    sealed = ChaCha20Poly1305(key).encrypt(bytes(12), PARTS[c], None)
    said = u32(c, i) + public(c) + public(i) + CONTEXT + digest(c) + made + sealed
    return made + sealed + sign(c, b"fastlloyd sealed part 2\0" + RUN + said)


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
        "private_keys": {i: (KEYS[i] + MLKEM_SEEDS[i]).hex() for i in CLIENTS},
        "messages": {f"{c} {i}": message.hex() for (c, i), message in MESSAGES.items()},
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
