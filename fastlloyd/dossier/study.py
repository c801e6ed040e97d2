"""Finished runs on the same records, as the dossier of a further one lists them: what each released, and the sum.

Source: docs/data-protection.md, "The dossier of a run"; docs/privacy.md, "The ledger".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fastlloyd.dossier.verify import read_ledger, verify
from fastlloyd.errors import ConfigError
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.privacy.release import Release
from fastlloyd.report.document import load


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRun:
    """A finished run, from the folder of its result.

    Attributes
    ----------
    run : str
        Its id.
    protocol, created : str
    delta : float
        0 where the run promises nothing.
    spent : float
        Epsilon of its releases at that delta; infinite where there is no noise.
    after : str
        Id of the run that it goes on from; empty: of none.
    releases : tuple of Release
    """

    run: str
    protocol: str
    created: str
    delta: float
    spent: float
    after: str
    releases: tuple[Release, ...] = field(repr=False)


def read_study(folders: Iterable[Path], roster: Path | None = None) -> tuple[StudyRun, ...]:
    """Read the folders of finished runs, each compared with what its parties signed; in the order of their time.

    Raises
    ------
    ConfigError
        A folder holds no result of a run, differs from what was signed, or stands there twice.
    """
    found: dict[str, StudyRun] = {}
    for folder in folders:
        try:
            verify(folder, roster)
        except ConfigError as error:
            raise ConfigError(f"--earlier {folder}: {error}") from error
        report = load(folder / "report.json")
        run, privacy = report["run"], report["privacy"]
        if run in found:
            raise ConfigError(
                f"--earlier {folder}: its run {run[:16]} was given already; name the folder of each run once"
            )
        releases = tuple(one for one in read_ledger(folder / "ledger.jsonl") if one.run == run)
        ledger = Ledger()
        ledger.record(releases)
        found[run] = StudyRun(
            run=run,
            protocol=report["protocol"],
            created=report["created"],
            delta=privacy["delta"],
            spent=ledger.total(privacy["delta"]),
            after=report["parameters"].get("described_run", ""),
            releases=releases,
        )
    return tuple(sorted(found.values(), key=lambda one: one.created))


def spent_together(runs: Sequence[StudyRun], planned: Sequence[Release], delta: float) -> tuple[float, float]:
    """Return epsilon and delta of finished runs and of one that is planned, composed as if all were fixed in advance.

    Parameters
    ----------
    runs : sequence of StudyRun
    planned : sequence of Release
    delta : float
        Of the planned run; the largest of all is taken.
    """
    ledger, most = Ledger(), max([delta, *(one.delta for one in runs)])
    ledger.record(
        [*(release for one in runs for release in one.releases), *(replace(one, run="00") for one in planned)]
    )
    return ledger.total(most), most
