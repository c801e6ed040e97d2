"""`fastlloyd report`: show a finished run again, make its page, or verify its privacy from the ledger alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.cli.options import Parser
from fastlloyd.dossier.verify import verify
from fastlloyd.errors import EXIT_OK, ConfigError, printable
from fastlloyd.gate.store import is_held
from fastlloyd.report.display import paint
from fastlloyd.report.document import load
from fastlloyd.report.files import PRIVATE_MODE, read_centroids, write_atomic
from fastlloyd.report.names import ClusterNames
from fastlloyd.report.page import result as page
from fastlloyd.report.page.cards import PROFILE
from fastlloyd.report.page.language import ENGLISH, LANGUAGES, language
from fastlloyd.report.table import render, render_server
from fastlloyd.wire.regular import read_regular_bytes


def main(argv: Sequence[str]) -> int:
    """Show or verify the run in a folder, or make its page; return 0.

    Raises
    ------
    ConfigError
        There is no finished run, a file is damaged, or report and ledger do not agree.

    Sees
    ----
    Everybody who reads the terminal or the page sees released values.
    """
    arguments = parser().parse_args(argv)
    folder: Path = arguments.folder
    if arguments.verify and arguments.names is not None:
        raise ConfigError("--names: expected without --verify, for nobody signs names; run both, one after the other")
    if arguments.profile is not None and arguments.names is None:
        raise ConfigError("--profile: expected with --names FILE: profile.csv of the run is the table without names")
    if arguments.html is not None or arguments.profile is not None:
        if arguments.verify:
            raise ConfigError("--html: expected without --verify, which writes no page; run both, one after the other")
        if arguments.html is not None:
            wrote = _write_page(folder, arguments.html, arguments.names, arguments.language)
            sys.stdout.write(printable(f"wrote {wrote}") + "\n")
        if arguments.profile is not None:
            _write_profile(folder, arguments.profile, arguments.names)
            sys.stdout.write(printable(f"wrote {arguments.profile}") + "\n")
        return EXIT_OK
    if arguments.language != ENGLISH:
        raise ConfigError("--language: expected with --html: only the page is in other languages; add --html")
    if arguments.roster is not None and not arguments.verify:
        raise ConfigError("--roster: expected with --verify, which checks the signatures; add --verify")
    if arguments.approval is not None and (not arguments.verify or arguments.roster is None):
        raise ConfigError(
            "--approval: expected with --verify and --roster: the roster has the key of the approval's signer; add them"
        )
    if arguments.verify:
        sys.stdout.write(printable(verify(folder, arguments.roster, arguments.approval), lines=True) + "\n")
        return EXIT_OK
    if not (folder / "report.json").exists() and (folder / "server.json").exists():
        sys.stdout.write(paint(render_server(load(folder / "server.json", "server")), sys.stdout))
        return EXIT_OK
    document = load(folder / "report.json")
    centroids = read_centroids(folder / "centroids.csv", document["result"])
    table = render(document, centroids, names=_names(arguments.names, document, centroids))
    sys.stdout.write(paint(table, sys.stdout))
    if is_held(folder):
        sys.stdout.write("not released: this result waits for `fastlloyd release` or `fastlloyd discard`\n")
    return EXIT_OK


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd report", description="Show a finished run again, make its page, or verify its privacy."
    )
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?", default=Path("fastlloyd-run"))
    parser.add_argument("--verify", action="store_true", help="recompute epsilon from DIR/ledger.jsonl and compare")
    parser.add_argument(
        "--roster", metavar="FILE", type=Path, help="with --verify: check the parties' signatures against this roster"
    )
    parser.add_argument(
        "--approval",
        metavar="FILE",
        type=Path,
        help="with --verify and --roster: compare the report with the file from `fastlloyd agree`",
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        type=Path,
        nargs="?",
        const=Path(),
        help="write the page of the result (default DIR/report.html)",
    )
    parser.add_argument(
        "--language", choices=LANGUAGES, default=ENGLISH, help="of the page (default %(default)s); with --html"
    )
    parser.add_argument(
        "--names", metavar="FILE.toml", type=Path, help="names of clusters by number, for table, page and --profile"
    )
    parser.add_argument(
        "--profile", metavar="FILE", type=Path, help="with --names: write a copy of profile.csv with the names"
    )
    return parser


def _names(path: Path | None, document: Mapping[str, Any], centroids: NDArray[np.float64] | None) -> ClusterNames:
    """Return the names of a file, of clusters that the result has; without one those that its parties agreed on."""
    if path is None:
        return ClusterNames.agreed(document["parameters"])
    return ClusterNames.read(path, page.count_clusters(document, centroids))


def _write_profile(folder: Path, target: Path, names: Path | None) -> None:
    """Write profile.csv with names to a file other than those of the run."""
    if target.is_dir() or target.resolve().parent == folder.resolve():
        raise ConfigError(
            f"--profile {target}: expected a file outside of {folder}, whose files are as the parties signed them"
        )
    if is_held(folder):
        raise ConfigError(f"--profile: {folder} holds a result that waits for a decision; release it first")
    document = load(folder / "report.json")
    if PROFILE not in document["output"]:
        raise ConfigError(f"--profile: {folder} has no {PROFILE}; give the folder of a description")
    text = _names(names, document, None).into(_content(folder / PROFILE).decode("utf-8", "strict"))
    write_atomic(target, text, mode=PRIVATE_MODE, flag="--profile")


def _write_page(folder: Path, target: Path, names: Path | None, code: str) -> Path:
    """Write the page of a finished run, to report.html in the folder if `target` is empty; return its path."""
    if target.is_dir() and target != Path():
        raise ConfigError(f"--html {target}: expected a file, got a folder; type `fastlloyd report DIR --html [FILE]`")
    if is_held(folder) and (target == Path() or is_held(target.parent)):
        raise ConfigError(f"--html: {folder} holds a result that waits for a decision; name a FILE in another folder")
    document = load(folder / "report.json")
    centroids = read_centroids(folder / "centroids.csv", document["result"])
    named = [name for name in page.FILES if name in document["output"] and (folder / name).exists()]
    files = {name: _content(folder / name) for name in named}
    text = page.result_page(document, centroids, files, _names(names, document, centroids), language(code))
    place = folder / page.NAME if target == Path() else target
    write_atomic(place, text, mode=PRIVATE_MODE, flag="--html")
    return place


def _content(path: Path) -> bytes:
    """Return the content of a released file."""
    try:
        return read_regular_bytes(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; give the folder of a finished run") from error
