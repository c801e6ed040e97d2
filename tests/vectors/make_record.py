"""Makes record.json: the end of a run through the server, and the signed record, for five clients.

From docs/protocol.md ("Comparison through the server", "Closing exchange", "Signed record") and RFCs 5869, 8032,
8439; it imports nothing
of the package. `python -m tests.vectors.make_record > tests/vectors/record.json` writes the file anew.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.vectors.make_sealed import CLIENTS, RUN_ID, alike, hkdf, label, u32

SEED, ROSTER, KEY = label("seed"), label("roster"), label("record key")
CONTEXT, BODIES = label("confirmation"), [b"plan", b"reply 0", b"reply 1"]
FILES = {"bounds.csv": "feature,lo,hi\na,0.0,10.0\n", "centroids.csv": "a\n1.5\n7.25\n"}
PUBLIC = {
    "protocol": "fastlloyd",
    "results_version": 1,
    "run": RUN_ID.hex(),
    "parties": {"clients": 5, "authenticated": True, "masking": "common"},
    "parameters": {"epsilon": 0.5, "k": 2},
    "releases": [],
    "included": [[1, 2, 3, 4, 5]],
}
SIZES = [40.25, 61.0]


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def sha(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def agreed() -> bytes:
    """The server's chain, then the digest of all chains; the bodies are messages of type 33 of rounds 0, 1, 2."""
    chain = sha(b"fastlloyd transcript 1" + CONTEXT + u32(0))
    for t, body in enumerate(BODIES):
        chain = sha(chain + bytes([33]) + u32(t) + len(body).to_bytes(8, "little") + body)
    return sha(b"fastlloyd transcript 1" + CONTEXT + u32(0) + chain)


def vectors() -> dict[str, Any]:
    """Return the content of record.json."""
    result = {"features": ["a"], "files": {name: sha(text.encode()).hex() for name, text in FILES.items()}}
    result["noisy_sizes"] = SIZES
    compared = sha(canonical([PUBLIC, result]))
    told, *told_pieces = alike(SEED, b"fastlloyd told alike", agreed())
    same, *same_pieces = alike(SEED, b"fastlloyd same result", RUN_ID + compared)
    openings = {i: hkdf(SEED, b"fastlloyd result opening", RUN_ID + u32(i)) for i in CLIENTS}
    commitment = hkdf(openings[2], b"fastlloyd result commitment", sha(canonical(result)))
    statement = {
        "run": RUN_ID.hex(),
        "roster": ROSTER.hex(),
        "agreed": agreed().hex(),
        "public": sha(canonical(PUBLIC)).hex(),
        "result": commitment.hex(),
    }
    signature = Ed25519PrivateKey.from_private_bytes(KEY).sign(b"fastlloyd signed record 2\0" + canonical(statement))
    return {
        "run_id": RUN_ID.hex(),
        "seed": SEED.hex(),
        "roster": ROSTER.hex(),
        "key": KEY.hex(),
        "context": CONTEXT.hex(),
        "bodies": [body.hex() for body in BODIES],
        "public": PUBLIC,
        "features": ["a"],
        "files": FILES,
        "noisy_sizes": SIZES,
        "agreed": agreed().hex(),
        "compared": compared.hex(),
        "openings": {i: opening.hex() for i, opening in openings.items()},
        "alike_tag": {
            i: (told + a + same + b).hex() for i, a, b in zip(CLIENTS, told_pieces, same_pieces, strict=True)
        },
        "alike_proof": (
            bytes([0b11111]) + u32(0) + sha(b"".join(told_pieces)) + u32(0) + sha(b"".join(same_pieces))
        ).hex(),
        "statement_of_2": canonical(statement).decode(),
        "signature_of_2": signature.hex(),
    }


if __name__ == "__main__":
    print(json.dumps(vectors()))
