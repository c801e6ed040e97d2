"""Verification of a finished run: its privacy from its ledger, its signatures, and what a site approved before it.

Source: docs/report.md, "Verify"; docs/data-protection.md, "Approvals".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fastlloyd.crypto.link.roster import Roster
from fastlloyd.data.bounds import Bounds, parse_bounds
from fastlloyd.dossier.approval import Approval, read_approval, read_expiry
from fastlloyd.errors import ConfigError
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.registry import find
from fastlloyd.report.citation import STUDY
from fastlloyd.report.document import load, public_releases
from fastlloyd.report.signed import verify_signatures
from fastlloyd.report.unit import format_count
from fastlloyd.wire.regular import read_regular
from fastlloyd.wire.values import differences, list_differences

_SLACK = 1e-6
"""How far a recomputed epsilon may differ between two versions of the accounting library."""
_ANOTHER = "take both files as the run wrote them, or trust neither"
# Determined by the run; the claim covers delta and the noise of all rounds.
_SETTLED_LATER = ("rounds", "delta")
_WORDS = "{}: approved {}, the report has {}"


def verify(folder: Path, roster: Path | None = None, approval: Path | None = None) -> str:
    """Recompute the spent epsilon from the ledger and compare it, and each release, with the report.

    Parameters
    ----------
    folder : Path
    roster : Path, optional
        The run's; then the parties' signatures are checked too.
    approval : Path, optional
        Of a party of that roster; then the report is compared with it, too.

    Returns
    -------
    str
        What was verified, and what was not.

    Raises
    ------
    ConfigError
        Report and ledger do not agree, or the report does not say what the parties signed, or what was approved.

    Notes
    -----
    Verifies the accounting and, with a roster, its signatures; not that the noise was drawn, which the tests of the
    sampler check.
    """
    document = load(folder / "report.json")
    privacy = document["privacy"]
    releases = [release for release in read_ledger(folder / "ledger.jsonl") if release.run == document["run"]]
    _compare_releases(privacy["releases"], releases, document["run"])
    _check_rounds(document, releases)
    epsilon = spent(releases, privacy["delta"])
    _compare_epsilon(privacy, epsilon)
    if math.isinf(epsilon) and not document["not_private"]:
        raise ConfigError(
            f"the releases carry no noise, but report.json does not say that the run is not private; {_ANOTHER}"
        )
    value = "an infinite epsilon" if math.isinf(epsilon) else f"epsilon {epsilon:.9g}"
    asked = "" if privacy["epsilon"] is None else f", asked for was {privacy['epsilon']:g}"
    accounting = (
        f"verified: ledger.jsonl holds the {format_count(len(releases), 'release')} of report.json, together {value} "
        f"at delta {privacy['delta']:.3g}, as report.json says{asked}"
    )
    lines = [accounting, _signed(folder, document, roster)]
    if approval is not None and roster is not None:
        approved = read_approval(approval, Roster.load(roster))
        # A run that finds bounds has those that it found there.
        named = "bounds.csv" in document["output"] and not find(document["protocol"]).finds_bounds
        bounds = parse_bounds(str(folder / "bounds.csv")) if named else None
        lines.append(f"verified: {compare_report(approved, document, bounds, f'--approval {approval}')}")
    return "\n".join(lines)


def _signed(folder: Path, document: Mapping[str, Any], roster: Path | None) -> str:
    """Check the signatures, or return why they were not checked."""
    if roster is not None:
        return f"verified: {verify_signatures(folder, document, Roster.load(roster))}"
    if document["signatures"] is None:
        return "not verified: who wrote it, for the run had no roster and its report is unsigned"
    return "not verified: who signed it; give the roster of the run with --roster FILE"


def read_ledger(path: Path) -> list[Release]:
    """Read all releases of a ledger without locking or repairing it.

    Raises
    ------
    ConfigError
        The file is missing, a line is damaged, or a release occurs twice.
    """
    try:
        lines = read_regular(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the ledger {path}: {error}; give the folder of a finished run") from error
    releases = [Release.from_json(line, f"line {number} of {path}") for number, line in enumerate(lines, start=1)]
    if len({release.key for release in releases}) != len(releases):
        raise ConfigError(f"{path}: a release of one run, round and name occurs twice; restore the file from a copy")
    return releases


def _compare_releases(reported: Sequence[Mapping[str, Any]], releases: Sequence[Release], run: str) -> None:
    """Check that report and ledger have the same releases."""
    known = {(r.round, r.name): public_releases([r.to_dict()])[0] for r in releases}
    claimed = {(entry["round"], entry["name"]): entry for entry in reported}
    if len(claimed) != len(reported):
        raise ConfigError(f"report.json names a release of one round and name twice; {_ANOTHER}")
    for key in claimed.keys() ^ known.keys():
        here, there = ("ledger.jsonl", "report.json") if key in known else ("report.json", "ledger.jsonl")
        raise ConfigError(
            f"the release {key[1]!r} of round {key[0]} is in {here} but not in {there} (run {run}); {_ANOTHER}"
        )
    for key, entry in claimed.items():
        for field, value in entry.items():
            if known[key].get(field) != value:
                raise ConfigError(
                    f"the release {key[1]!r} of round {key[0]} has {field} = {value!r} in report.json, but "
                    f"{known[key].get(field)!r} in ledger.jsonl; {_ANOTHER}"
                )


def _check_rounds(document: Mapping[str, Any], releases: Sequence[Release]) -> None:
    """Check that the ledger has a release of every round."""
    if all(release.mechanism == "none" for release in releases):
        return  # nothing is claimed, so one entry is enough for all rounds
    accounted = {release.round for release in releases}
    for entry in document["rounds"]:
        if entry["round"] not in accounted:
            raise ConfigError(f"round {entry['round']} took place, but no release of it is in ledger.jsonl; {_ANOTHER}")


def _compare_epsilon(privacy: Mapping[str, Any], epsilon: float) -> None:
    """Check the reported epsilon, and that it is at most the requested one."""
    said = math.inf if privacy["spent_epsilon"] is None else privacy["spent_epsilon"]
    if said != epsilon and not math.isclose(said, epsilon, rel_tol=_SLACK):
        raise ConfigError(
            f"report.json says that epsilon {said:.9g} was spent, but the releases in ledger.jsonl compose to "
            f"{epsilon:.9g} at delta {privacy['delta']:.3g}; {_ANOTHER}"
        )
    if privacy["epsilon"] is not None and epsilon > privacy["epsilon"] * (1.0 + _SLACK):
        raise ConfigError(
            f"the run spent epsilon {epsilon:.9g}, more than the {privacy['epsilon']:g} asked for: its plan was not "
            "kept; show this to the people who answer for the run"
        )


def compare_report(approval: Approval, report: Mapping[str, Any], bounds: Bounds | None, source: str) -> str:
    """Compare a report with an approval.

    Parameters
    ----------
    approval : Approval
    report : mapping
        A valid report.json.
    bounds : Bounds or None
        From the folder of the run, if they are public beforehand.
    source : str
        Beginning of the error.

    Returns
    -------
    str
        What agrees, in one sentence.

    Raises
    ------
    ConfigError
        Names each value that differs, or the end of the approval, if the run began after it.
    """
    seconds = report["timing"]["setup_seconds"] + report["timing"]["rounds_seconds"]
    began = datetime.fromisoformat(report["created"]) - timedelta(seconds=seconds)
    if approval.expires is not None and began >= read_expiry(approval.expires):
        raise ConfigError(
            f"{source}: the approval of {approval.party} had ended, it held until {approval.expires}, and the run "
            f"began about {began:%Y-%m-%dT%H:%M:%SZ}; show this to the people who answer for the run"
        )
    approved, reported = _values(approval, report, bounds)
    claimed, stated = _claim(approval, report)
    found = differences({"values": approved, "claim": claimed}, {"values": reported, "claim": stated}, _WORDS)
    if found:
        raise ConfigError(
            f"{source}: the report is not of the run that {approval.party} approved: {list_differences(found)}; show "
            "this to the people who answer for the run"
        )
    claim = f", and what it claims ({', '.join(claimed)})" if claimed else "; the approval has no claim"
    return (
        f"the report agrees with what {approval.name} ({approval.party}) approved at {approval.approved_at}: "
        f"{', '.join(sorted(approved))}{claim}"
    )


def _values(
    approval: Approval, report: Mapping[str, Any], bounds: Bounds | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the public values that are in both, as approved and as reported."""
    values, parameters, signatures = approval.values, report["parameters"], report["signatures"]
    settled = values.get("settled")
    expected: dict[str, Any] = {
        **(settled if isinstance(settled, Mapping) else {}),
        "settings": values.get("settings"),
        "client_caps": values.get("caps"),
        "unit": values.get("unit"),
    }
    later = (*_SETTLED_LATER, *(("k",) if values.get("choose_k") else ()))
    shared = [name for name in expected if name in parameters and name not in later]
    if expected.get("min_clients") is None and "min_clients" in shared:
        shared.remove("min_clients")
    approved = {name: expected[name] for name in shared}
    reported = {name: parameters[name] for name in shared}
    approved |= {"protocol": values.get("protocol"), "roster": values.get("roster")}
    reported |= {"protocol": report["protocol"], "roster": None if signatures is None else signatures["roster"]}
    if "results_version" in report:  # from schema 5 on
        approved["results_version"], reported["results_version"] = (
            values.get("results_version"),
            report["results_version"],
        )
    for name in (name for name in STUDY if name in values):  # not of older versions
        approved[name], reported[name] = values[name] or None, report.get(name)
    if "min_size" in values:
        approved["min_size"], reported["min_size"] = values["min_size"], parameters.get("min_size", 0)
    stated = values.get("bounds")
    if isinstance(stated, Mapping) and bounds is not None and bounds.names is not None:
        found = zip(bounds.names, bounds.lo.tolist(), bounds.hi.tolist(), strict=True)
        sides = {name: [low, high] for name, low, high in found}
        every = stated.get("every feature")
        approved["bounds"] = dict.fromkeys(sides, every) if len(stated) == 1 and every is not None else dict(stated)
        reported["bounds"] = sides
    return approved, reported


def _claim(approval: Approval, report: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the approved claim, and the report's values of it; a text counts as present if the claim contains it."""
    privacy, approved = report["privacy"], dict(approval.claim or {})
    reported: dict[str, Any] = {}
    for name, expected in approved.items():
        if name in privacy:
            reported[name] = privacy[name]
        elif name == "not_private_reason" and expected is not None:
            reported[name] = report[name]
        elif name in ("against", "conditions") and not report["not_private"]:
            parts = [expected] if isinstance(expected, str) else list(expected)
            reported[name] = expected if all(str(part) in report["claim"] for part in parts) else report["claim"]
    return {name: value for name, value in approved.items() if name in reported}, reported
