"""Whether a finished run complied with an approval: compares its report with what was signed before.

Source: docs/data-protection.md, "Approvals"; docs/report.md, "Verify".
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from fastlloyd.data.bounds import Bounds
from fastlloyd.dossier.approval import Approval, read_expiry
from fastlloyd.errors import ConfigError
from fastlloyd.wire.values import differences, list_differences

# Determined by the run; the claim covers delta and the noise of all rounds.
_SETTLED_LATER = ("rounds", "delta")
_WORDS = "{}: approved {}, the report has {}"


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
