"""Start the ranks of one run or of two, with a configuration instead of the words of a command line.

`--bounds private` makes two runs: one that finds the bounds, then the one that clusters with them. What the first
released is used, also when the second is resumed, and never released again.

Source: docs/privacy.md, "Bounds that nobody knows"; docs/operations.md, "How a run ends".
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fastlloyd.errors import EXIT_OK, ConfigError
from fastlloyd.gate.held import SHOWN_DIGITS
from fastlloyd.protocols.private_bounds.inputs import BOUNDS, ROW, BothRuns, split_run
from fastlloyd.report.document import load
from fastlloyd.report.files import output_folder
from fastlloyd.run.config import RunConfig
from fastlloyd.run.files import check_folders
from fastlloyd.run.run_file import to_toml, with_absolute_paths
from fastlloyd.run.state import StateDir, check_budgets, interrupted_protocol
from fastlloyd.wire.header import PartyId

Start = Callable[[list[str], RunConfig], int]
"""Runs all ranks with these words, which mean this configuration; returns the exit code."""


def start_configured(config: RunConfig, start: Start) -> int:
    """Run all ranks with a configuration that no flags of the command line state, and return the exit code."""
    with TemporaryDirectory(prefix="fastlloyd-") as folder:
        path = Path(folder) / "run.toml"
        path.write_text(to_toml(with_absolute_paths(config)), "utf-8")
        return start(["--config", str(path)], config)


def run_with_private_bounds(config: RunConfig, ranks: int, start: Start) -> int:
    """Find the bounds of a run, then run it with them; return the exit code.

    Parameters
    ----------
    config : RunConfig
        With a share for the bounds (`RunConfig.bounds_share`).
    ranks : int
        Clients, and the server.
    start : callable

    Raises
    ------
    ConfigError
        As `split_run`; a folder holds files of another run; the results are to wait for a person; or the bounds are
        there already, or are those of another run.
    BudgetError
        The two runs together would exceed a budget.
    DataError
        A column got no bounds.
    """
    if config.review:
        raise ConfigError(
            f"--bounds {config.bounds}: expected a run without --review, since it tells its server the bounds at once; "
            "find the bounds with `fastlloyd bounds --review`, release them, then give the run that file"
        )
    both = split_run(config, ranks - 1)
    if not config.quiet:
        sys.stdout.write(f"{both.line()}\n")
        sys.stdout.flush()
    done = _find_report(both.bounds, ranks)
    resumes = False
    if config.resume and done is not None:
        _check_own(both, done, ranks)
        parties = map(PartyId, range(ranks))
        resumes = any(interrupted_protocol(config.state_dir or "", me) == config.protocol for me in parties)
        ended = None if resumes else _find_report(config, ranks)
        if ended is not None:
            raise ConfigError(
                f"--resume: expected a run that was interrupted, got the result {ended}; another run with the same "
                f"bounds has --bounds {done.parent / BOUNDS}, and spends anew"
            )
    elif done is not None and not config.overwrite:
        raise ConfigError(
            f"--bounds {config.bounds}: {done.parent} has bounds already: a run with them has --bounds "
            f"{done.parent / BOUNDS} --epsilon {both.run.epsilon:g}, one that was interrupted goes on with --resume; "
            "--overwrite finds others, and spends again"
        )
    else:
        if not config.resume:
            check_budgets(config, ranks, both.releases, both.delta)
            for me in map(PartyId, range(ranks)):  # the second run would be refused when the first is paid for
                check_folders(config, me)
        code = start_configured(both.bounds, start)
        if code != EXIT_OK:
            return code
        done = _find_report(both.bounds, ranks)
    if done is None:
        raise ConfigError(f"--output {both.bounds.output}: expected the bounds that a client wrote there, got none")
    run = replace(both.with_found(done.parent / BOUNDS), resume=resumes, new_state=False)
    return start_configured(run, start)


def _find_report(config: RunConfig, ranks: int) -> Path | None:
    """Return the report that one of the clients of a run wrote, after all its other files; None: none did."""
    paths = (output_folder(config.output, PartyId(rank)) / "report.json" for rank in range(1, ranks))
    return next((path for path in paths if path.exists()), None)


def _check_own(both: BothRuns, report: Path, ranks: int) -> None:
    """Refuse to go on with bounds that another run found, or that the ledgers of this one do not count.

    Raises
    ------
    ConfigError
        They are.
    """
    document = load(report)
    ledgers = []
    for me in map(PartyId, range(1, ranks)):
        with StateDir(both.run.state_dir or "", me).open_ledger() as ledger:
            ledgers.append({release.run for release in ledger.releases})
    same = document["protocol"] == ROW.name and document["parameters"]["epsilon"] == both.bounds.epsilon
    if not same or not all(document["run"] in runs for runs in ledgers):
        raise ConfigError(
            f"--resume: expected in {report.parent} the bounds that the interrupted run found with epsilon "
            f"{both.bounds.epsilon:g}, and that the ledgers in {both.run.state_dir} count, got those of run "
            f"{document['run'][:SHOWN_DIGITS]}; give the flags and the folders of the first start"
        )
