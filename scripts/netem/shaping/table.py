"""Measurements and profiles as text, Markdown and JSON documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .profile import Profile
from .verdict import Measurement, Row

_PROFILE_HEAD = ("profile", "Mbit/s", "delay ms", "jitter ms", "loss %", "burst kB", "quantum", "r2q", "description")
_ROW_HEAD = ("profile", "back end", "quantity", "asked", "seen", "allowed", "verdict", "remark")


def profile_lines(profiles: Iterable[Profile]) -> list[str]:
    """Return a table of profiles."""
    rows = [
        (
            one.name,
            _plain(one.rate_mbit),
            f"{one.delay_ms:g}",
            f"{one.jitter_ms:g}",
            f"{one.loss_percent:g}",
            _plain(one.burst_kbyte),
            _plain(one.quantum_bytes),
            _plain(one.r2q),
            one.description,
        )
        for one in profiles
    ]
    return _columns([_PROFILE_HEAD, *rows])


def measurement_lines(measurements: Iterable[Measurement], *, markdown: bool) -> list[str]:
    """Return a table of what was asked and seen."""
    rows = [(one.profile, one.backend, *_cells(row)) for one in measurements for row in one.rows]
    if not markdown:
        return _columns([_ROW_HEAD, *rows])
    return ["| " + " | ".join(cells) + " |" for cells in (_ROW_HEAD, ("---",) * len(_ROW_HEAD), *rows)]


def measurement_document(measurement: Measurement) -> dict[str, Any]:
    """Return one measurement for `--json`."""
    rows = [
        {
            "quantity": row.quantity,
            "unit": row.unit,
            "asked": row.asked,
            "seen": row.seen,
            "allowed": None if row.allowed is None else list(row.allowed),
            "verdict": row.verdict,
            "remark": row.remark,
        }
        for row in measurement.rows
    ]
    return {"profile": measurement.profile, "backend": measurement.backend, "met": measurement.met, "rows": rows}


def status_lines(document: dict[str, Any]) -> list[str]:
    """Return a set-up in words."""
    working = "" if document["working"] else "; BROKEN, run `netem down`"
    head = f"{document['name']}: profile {document['profile']}, back end {document['backend']}{working}"
    rows = [
        (host["hostname"], host["namespace"], host["address"], host["interface"], f"{host['processes']} processes")
        for host in document["hosts"]
    ]
    return [head, *("  " + line for line in _columns(rows))]


def counter_lines(document: dict[str, Any]) -> list[str]:
    """Return a set-up's counters as a table."""
    keys = ("tx_bytes", "rx_bytes", "tx_packets", "rx_packets", "tx_dropped", "rx_dropped")
    rows = [(host["namespace"], *(str(host[key]) for key in keys)) for host in document["hosts"]]
    return _columns([("host", *keys), *rows])


def _cells(row: Row) -> tuple[str, ...]:
    """Return a row's cells after profile and back end."""
    allowed = "" if row.allowed is None else f"{row.allowed[0]:.4g} to {row.allowed[1]:.4g}"
    asked = "" if row.asked is None else f"{row.asked:g}"
    return f"{row.quantity} {row.unit}", asked, f"{row.seen:.4g}", allowed, row.verdict, row.remark


def _plain(value: float | None) -> str:
    """Return a number, or a dash where the profile has none."""
    return "-" if value is None else f"{value:g}"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align cells under each other."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
