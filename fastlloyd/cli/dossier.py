"""`fastlloyd dossier`: what a data protection officer needs to know of a run, before it happens."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fastlloyd.cli.options import Parser, add_planned_run_options, given_options
from fastlloyd.crypto.link.identity import write_atomically
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.dossier.blocks import to_markdown
from fastlloyd.dossier.content import make_dossier
from fastlloyd.dossier.planned_run import plan_run
from fastlloyd.dossier.study import read_study
from fastlloyd.errors import EXIT_OK, ConfigError
from fastlloyd.report.files import PUBLIC_MODE
from fastlloyd.report.page.render import available, render
from fastlloyd.run.run_file import load_config, refuse_own_keys

FORMATS = ("md", "html")


def main(argv: Sequence[str]) -> int:
    """Write the dossier; opens no records and contacts nobody.

    Raises
    ------
    ConfigError
        Run file or roster are wrong, or a file cannot be written.
    """
    options = parser().parse_args(argv)
    config = load_config(options.config, given_options(options), links=False, site=options.site)
    if config.roster is not None:
        refuse_own_keys(options.config)
    roster = None if config.roster is None else Roster.load(Path(config.roster))
    if roster is not None:
        roster.check_complete(options.clients)
    elif options.clients is None:
        raise ConfigError("--clients: expected the number of clients, or a --roster, which lists them")
    clients = len(roster.entries) - 1 if roster is not None else options.clients
    folders = [Path(folder) for folder in options.earlier or ()]
    earlier = read_study(folders, None if config.roster is None else Path(config.roster))
    purpose = " ".join((options.purpose or "").split())
    if purpose and config.purpose not in (None, purpose):
        raise ConfigError(
            f"--purpose: {options.config} states another purpose, which all parties agree on ({config.purpose}); leave "
            "the flag out, or change the file at all parties"
        )
    run = plan_run(config, clients, roster, d=options.d, purpose=purpose, earlier=earlier)
    document = make_dossier(run)
    formats = options.format or ([*FORMATS] if options.output is not None and available() else ["md"])
    texts = {"md": to_markdown(document)}
    if "html" in formats:
        texts["html"] = render("dossier.html", dossier=document)
    if options.output is None:
        if formats != ["md"]:
            raise ConfigError("--output: expected a folder for the files; only --format md is printed")
        sys.stdout.write(texts["md"])
        return EXIT_OK
    folder = Path(options.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--output {folder}: cannot be made ({error.strerror}); name another folder") from error
    for kind in formats:
        path = folder / f"dossier.{kind}"
        write_atomically(path, texts[kind].encode(), PUBLIC_MODE)
        print(path)
    return EXIT_OK


def _formats(text: str) -> list[str]:
    """Read md, html or both."""
    chosen = list(dict.fromkeys(text.split(",")))
    if not set(chosen) <= set(FORMATS):
        raise ConfigError(f"--format: expected md, html or md,html, got {text!r}")
    return chosen


def parser() -> Parser:
    """Return the parser of the flags."""
    made = Parser(
        prog="fastlloyd dossier",
        description="Write what a data protection officer needs to know of a run before it happens, from the run file "
        "and public facts alone; opens no records and contacts nobody (docs/data-protection.md).",
    )
    add_planned_run_options(made)
    made.add_argument("--clients", type=int, metavar="M", help="number of clients, if there is no roster")
    made.add_argument(
        "--earlier",
        action="append",
        metavar="DIR",
        help="folder of a finished run on the same records, for the sum; once for each run",
    )
    made.add_argument("--purpose", metavar="TEXT", help="what the run is for, if the run file does not say it")
    made.add_argument("--output", metavar="DIR", help="folder for dossier.md and dossier.html (default: printed)")
    made.add_argument(
        "--format",
        type=_formats,
        metavar="md|html|md,html",
        help="default both; only md if it is printed, or if jinja2 is not installed",
    )
    return made
