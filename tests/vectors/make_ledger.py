"""Makes ledger.json: the lines of a chained ledger. From docs/privacy.md ("The ledger") and docs/report.md alone.

It imports nothing of the package. `python -m tests.vectors.make_ledger > tests/vectors/ledger.json` writes the file.
"""

from __future__ import annotations

import hashlib
import json

RUN = hashlib.sha256(b"test vector: run").hexdigest()[:32]
OLD_RUN = hashlib.sha256(b"test vector: run of an older version").hexdigest()[:32]


def release(run: str, t: int, name: str, sensitivity: float, noise_scale: float) -> dict[str, object]:
    """One Gaussian release in the order of its fields."""
    return {
        "run": run,
        "round": t,
        "name": name,
        "mechanism": "gaussian",
        "sensitivity": sensitivity,
        "norm": "l2",
        "noise_scale": noise_scale,
        "unit": "grid of 2^-12",
        "neighbours": "add-remove record",
        "seen_by": "clients",
        "data": hashlib.sha256(b"test vector: records").hexdigest(),
        "noise_multiplier": noise_scale / sensitivity,
    }


def chain(old: list[dict[str, object]], new: list[dict[str, object]]) -> tuple[list[str], list[str]]:
    """The lines of a ledger whose first entries are of an older version, and the link after each line."""
    link = hashlib.sha256(b"fastlloyd ledger 2").digest()
    lines, links = [], []
    for entry in (*old, *({"previous": None, **entry} for entry in new)):
        if "previous" in entry:
            entry["previous"] = link.hex()
        line = json.dumps(entry)
        link = hashlib.sha256(link + line.encode()).digest()
        lines.append(line)
        links.append(link.hex())
    return lines, links


def vectors() -> list[dict[str, object]]:
    """Return the content of ledger.json."""
    new = [release(RUN, t, name, 3276.0, 13104.5 + t) for t in range(2) for name in ("relative sums", "counts")]
    old = [release(OLD_RUN, 0, "counts", 4096.0, 8192.0), release(OLD_RUN, 1, "counts", 4096.0, 8192.25)]
    cases = []
    for before in ([], old):
        lines, links = chain(before, new)
        cases.append({"old": len(before), "releases": before + new, "lines": lines, "links": links})
    return cases


if __name__ == "__main__":
    print(json.dumps(vectors()))
