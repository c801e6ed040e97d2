"""`fastlloyd report`: shows a finished run again, makes its page, or verifies its privacy from the ledger alone."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.cli.options import Parser
from fastlloyd.errors import EXIT_OK, ConfigError, printable
from fastlloyd.gate.store import is_held
from fastlloyd.privacy.release import Release
from fastlloyd.report.colour import paint
from fastlloyd.report.display import csv_text
from fastlloyd.report.document import load, public_releases
from fastlloyd.report.files import PRIVATE_MODE, write_atomic
from fastlloyd.report.page import result as page
from fastlloyd.report.table import render, render_server
from fastlloyd.report.unit import format_count
from fastlloyd.wire.regular import read_regular, read_regular_bytes

# How far a recomputed epsilon may differ between two versions of the accounting library.
_SLACK = 1e-6
_ANOTHER = "take both files as the run wrote them, or trust neither"


def main(argv: Sequence[str]) -> int:
    """Show or verify the run in a folder, or make its page.

    Returns
    -------
    int
        0 when the run was shown or verified, or the page was written.

    Raises
    ------
    ConfigError
        There is no finished run, a file is damaged, or report and ledger do not agree.

    Sees
    ----
    Whoever reads the terminal or the page sees released values.
    """
    arguments = parser().parse_args(list(argv))
    folder: Path = arguments.folder
    if arguments.html is not None:
        if arguments.verify:
            raise ConfigError("--html: expected without --verify, which writes no page; run both, one after the other")
        sys.stdout.write(printable(f"wrote {write_page(folder, arguments.html)}") + "\n")
        return EXIT_OK
    if arguments.roster is not None and not arguments.verify:
        raise ConfigError("--roster: expected with --verify, which checks the signatures; add --verify")
    if arguments.approval is not None and (not arguments.verify or arguments.roster is None):
        raise ConfigError(
            "--approval: expected with --verify and --roster: an approval counts by the key of its signer; add them"
        )
    if arguments.verify:
        sys.stdout.write(printable(verify(folder, arguments.roster, arguments.approval), lines=True) + "\n")
        return EXIT_OK
    if not (folder / "report.json").exists() and (folder / "server.json").exists():
        sys.stdout.write(paint(render_server(load(folder / "server.json", "server")), sys.stdout))
        return EXIT_OK
    document = load(folder / "report.json")
    table = render(document, read_centroids(folder / "centroids.csv", document["result"]))
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
        help="with --verify and --roster: compare the report with what `fastlloyd agree` signed before the run",
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        type=Path,
        nargs="?",
        const=Path(),
        help="write the page of the result, DIR/report.html if no FILE is given",
    )
    return parser


def write_page(folder: Path, target: Path) -> Path:
    """Write the page of a finished run, from its report.json and the released files that this names.

    Parameters
    ----------
    folder : Path
    target : Path
        An empty path is report.html in the folder.

    Returns
    -------
    Path
        Where the page is.

    Raises
    ------
    ConfigError
        There is no result in the folder, its files are damaged, or jinja2 is not installed.
    """
    if target.is_dir() and target != Path():
        raise ConfigError(f"--html {target}: expected a file, got a folder; type `fastlloyd report DIR --html [FILE]`")
    if is_held(folder) and (target == Path() or is_held(target.parent)):
        raise ConfigError(f"--html: {folder} holds a result that waits for a decision, as it is; name a FILE elsewhere")
    if not (folder / "report.json").exists() and (folder / "server.json").exists():
        raise ConfigError(f"--html: {folder} has no result, only what the server saw; the clients have the result")
    document = load(folder / "report.json")
    centroids = read_centroids(folder / "centroids.csv", document["result"])
    named = [name for name in page.FILES if name in document["output"] and (folder / name).exists()]
    files = {name: _content(folder / name) for name in named}
    text = page.result_page(document, centroids, files)
    place = folder / page.NAME if target == Path() else target
    write_atomic(place, text, mode=PRIVATE_MODE, flag="--html")
    return place


def _content(path: Path) -> bytes:
    """Return what a released file holds."""
    try:
        return read_regular_bytes(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; give the folder of a finished run") from error


def verify(folder: Path, roster: Path | None = None, approval: Path | None = None) -> str:
    """Recompute the spent epsilon from the ledger and compare it, and each release, with the report.

    Parameters
    ----------
    folder : Path
    roster : Path, optional
        Of the run: then the parties' signatures are checked too.
    approval : Path, optional
        Of a party of that roster: then the report is compared with it, too.

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
    Verifies the accounting and, with a roster, who vouches for it; not that the noise was drawn: that is what the tests
    of the sampler are for.
    """
    from fastlloyd.privacy.accountant import spent

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
        lines.append(_approved(folder, document, roster, approval))
    return "\n".join(lines)


def _signed(folder: Path, document: Mapping[str, Any], roster: Path | None) -> str:
    """Check the signatures, or say why they were not checked."""
    from fastlloyd.crypto.link.roster import Roster
    from fastlloyd.report.signed import verify_signatures

    if roster is not None:
        return f"verified: {verify_signatures(folder, document, Roster.load(roster))}"
    if document["signatures"] is None:
        return "not verified: who wrote it, for the run had no roster and its report is unsigned"
    return "not verified: who signed it; give the roster of the run with --roster FILE"


def _approved(folder: Path, document: Mapping[str, Any], roster: Path, approval: Path) -> str:
    """Compare the report with an approval."""
    from fastlloyd.crypto.link.roster import Roster
    from fastlloyd.data.bounds import parse_bounds
    from fastlloyd.dossier.approval import read_approval
    from fastlloyd.dossier.kept import compare_report

    signed = read_approval(approval, Roster.load(roster))
    bounds = parse_bounds(str(folder / "bounds.csv")) if "bounds.csv" in document["output"] else None
    return f"verified: {compare_report(signed, document, bounds, f'--approval {approval}')}"


def read_ledger(path: Path) -> list[Release]:
    """Read all releases of a ledger without locking or mending it.

    Raises
    ------
    ConfigError
        The file is missing, a line is damaged, or a release stands twice.
    """
    try:
        lines = read_regular(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the ledger {path}: {error}; give the folder of a finished run") from error
    releases = [Release.from_json(line, f"line {number} of {path}") for number, line in enumerate(lines, start=1)]
    if len({release.key for release in releases}) != len(releases):
        raise ConfigError(f"{path}: a release of one run, round and name stands twice; restore the file from a copy")
    return releases


def read_centroids(path: Path, result: Mapping[str, Any]) -> NDArray[np.float64] | None:
    """Read centroids.csv, float64 array of shape (k, d); None where the protocol reveals none.

    Parameters
    ----------
    path : Path
    result : mapping
        What report.json says of it.

    Raises
    ------
    ConfigError
        The file is not what the run wrote.
    """
    if not path.exists():
        return None
    try:
        header, *rows = csv.reader(io.StringIO(read_regular(path), newline=""))
        centroids = np.array([[float(cell) for cell in row] for row in rows], dtype=np.float64)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: expected a header and rows of numbers ({error}); run it again") from error
    features, sizes = list(result["features"]), result["noisy_sizes"]
    if [csv_text(name) for name in header] != features or centroids.shape[1:] != (len(features),):
        raise ConfigError(f"{path}: expected the features of report.json, got other columns; run it again")
    if sizes is not None and len(sizes) != len(centroids):
        raise ConfigError(f"{path}: expected a row for each size of report.json, got other ones; run it again")
    return centroids


def _compare_releases(reported: Sequence[Mapping[str, Any]], releases: Sequence[Release], run: str) -> None:
    """Check that report and ledger hold the same releases."""
    known = {(r.round, r.name): public_releases([r.to_dict()])[0] for r in releases}
    claimed = {(entry["round"], entry["name"]): entry for entry in reported}
    if len(claimed) != len(reported):
        raise ConfigError(f"report.json names a release of one round and name twice; {_ANOTHER}")
    for key in claimed.keys() ^ known.keys():
        here, there = ("ledger.jsonl", "report.json") if key in known else ("report.json", "ledger.jsonl")
        raise ConfigError(
            f"the release {key[1]!r} of round {key[0]} stands in {here} but not in {there} (run {run}); {_ANOTHER}"
        )
    for key, entry in claimed.items():
        for field, value in entry.items():
            if known[key].get(field) != value:
                raise ConfigError(
                    f"the release {key[1]!r} of round {key[0]} has {field} = {value!r} in report.json, but "
                    f"{known[key].get(field)!r} in ledger.jsonl; {_ANOTHER}"
                )


def _check_rounds(document: Mapping[str, Any], releases: Sequence[Release]) -> None:
    """Check that every round that took place has released something that is accounted for."""
    if all(release.mechanism == "none" for release in releases):
        return  # nothing is claimed, so one entry may stand for all rounds
    accounted = {release.round for release in releases}
    for entry in document["rounds"]:
        if entry["round"] not in accounted:
            raise ConfigError(
                f"round {entry['round']} took place, but no release of it stands in ledger.jsonl; {_ANOTHER}"
            )


def _compare_epsilon(privacy: Mapping[str, Any], epsilon: float) -> None:
    """Check the reported epsilon, and that it is within what was asked for."""
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
