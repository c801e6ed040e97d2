"""`fastlloyd compare`: protocols, baselines and own estimators side by side on one's own tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastlloyd.cli.options import Parser
from fastlloyd.data.form import DATA_DIR_VARIABLE
from fastlloyd.errors import EXIT_OK, ConfigError
from fastlloyd_papers.command import stoppable
from fastlloyd_papers.compare.method import DEFAULTS, choose_methods
from fastlloyd_papers.compare.study import EPSILONS, REPEATS, Study, run_study
from fastlloyd_papers.compare.table import load_tables


def parser() -> Parser:
    """Return the parser of the flags."""
    made = Parser(
        prog="fastlloyd compare",
        description="Run protocols, baselines and own estimators on tables, and write a tidy CSV, a page and curves "
        "with intervals. The figures are computed without noise: they are for those who may see the records.",
    )
    made.add_argument(
        "--data", required=True, metavar="DATA", help="files or public sets with commas between, or a folder of tables"
    )
    made.add_argument("--k", type=int, metavar="K", help="clusters (default: those of a public set)")
    made.add_argument("--bounds", metavar="LO,HI", help="or a CSV, as for a run; auto-public for public data")
    made.add_argument(
        "--protocols",
        metavar="NAME,...",
        default=",".join(DEFAULTS),
        help="protocols and baselines, or all (default: %(default)s)",
    )
    made.add_argument(
        "--own",
        metavar="NAME=MODULE:FACTORY",
        action="append",
        default=[],
        help="your estimator: FACTORY(n_clusters, epsilon, delta, random_state) with fit, and cluster_centers_ or "
        "predict; may be repeated",
    )
    made.add_argument("--epsilons", metavar="E,...", default=",".join(map(str, EPSILONS)), help="default: %(default)s")
    made.add_argument("--repeats", type=int, default=REPEATS, metavar="N", help="default: %(default)s")
    made.add_argument("--clients", type=int, default=3, metavar="M", help="owners in equal parts (default: 3)")
    made.add_argument("--public", action="store_true", help="anybody may see these data")
    made.add_argument("--seed", type=int, metavar="N", help="repeat simulated noise; for public data only")
    made.add_argument(
        "--data-dir", metavar="DIR", default=os.environ.get(DATA_DIR_VARIABLE) or None, help="public sets"
    )
    made.add_argument(
        "--output", type=Path, default=Path("fastlloyd-compare"), metavar="DIR", help="default: %(default)s"
    )
    made.add_argument("--jobs", type=int, metavar="N", help="processes (default: one per core)")
    made.add_argument("--quiet", action="store_true", help="no progress bar")
    return made


def main(argv: Sequence[str]) -> int:
    """Compare and return 0.

    Raises
    ------
    ConfigError
        A flag, a table, a method or the folder does not fit.
    Interrupted
        A signal said stop; what was measured is kept.
    """
    given = parser().parse_args(list(argv))
    own: dict[str, Any] = dict(_pair(word) for word in given.own)
    study = Study(
        tables=load_tables(given.data, k=given.k, bounds=given.bounds, public=given.public, data_dir=given.data_dir),
        methods=choose_methods([word for word in given.protocols.split(",") if word], own),
        epsilons=_numbers(given.epsilons),
        repeats=given.repeats,
        clients=given.clients,
        seed=given.seed,
    )
    kept = {"protocols": given.protocols, "epsilons": given.epsilons, "repeats": given.repeats, "seed": given.seed}
    command = " ".join(f"--{flag} {value}" for flag, value in kept.items() if value not in (None, ""))
    command = f"fastlloyd compare --data DATA {command}" + "".join(f" --own {word}" for word in given.own)

    with stoppable():
        found = run_study(study, given.output, jobs=given.jobs, command=command, progress=not given.quiet)
    sys.stdout.write(found.page)
    return EXIT_OK


def _pair(word: str) -> tuple[str, str]:
    name, equals, target = word.partition("=")
    if not (name and equals and ":" in target):
        raise ConfigError(f"--own: expected NAME=MODULE:FACTORY, got {word!r}")
    return name, target


def _numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise ConfigError(f"--epsilons: expected numbers with commas between, got {text!r}") from None
