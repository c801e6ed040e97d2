"""`fastlloyd datasets`: list the sets that `--dataset NAME` knows; `papers/` fetches them and makes others."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fastlloyd.cli.options import Parser, load_command
from fastlloyd.data.form import DATA_DIR_VARIABLE
from fastlloyd.data.public.named import DEFAULT_DATASET, list_named
from fastlloyd.errors import EXIT_OK, ConfigError


def main(argv: Sequence[str]) -> int:
    """Print one line per data set, fetch some, or make some from the user's files; return 0.

    Raises
    ------
    ConfigError
        The folder does not exist or is not named, a set is unknown, or fastlloyd-papers, which fetches and makes them,
        is not installed.
    DataError
        A file in the folder is unreadable, or another one cannot be fetched or has unexpected content.
    """
    options = parser().parse_args(argv)
    if options.action is not None:
        code: int = load_command("datasets").run(options)
        return code
    if options.force or options.source is not None:
        flag = "--force" if options.force else "--from"
        raise ConfigError(
            f"{flag} has no meaning for a list; it is for `fastlloyd datasets download NAME` or `make NAME`"
        )
    return _list(options.data_dir)


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd datasets",
        description="List the public data sets for --dataset NAME, fetch them, or make them from public files.",
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=("download", "make"),
        help="fetch sets over https and check them, or make sets from files that you have fetched",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="which sets; without a name, `download` and `make` list them",
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="DIR",
        help="make: folder of the public files; `fastlloyd datasets make NAME` says which files, and where to get them",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        default=os.environ.get(DATA_DIR_VARIABLE) or None,
        help=f"folder of NAME.csv.gz and NAME.labels.csv.gz files (default: ${DATA_DIR_VARIABLE})",
    )
    parser.add_argument("--force", action="store_true", help="replace existing files")
    return parser


def _list(data_dir: str | None) -> int:
    listed = list_named(data_dir)
    width = max(len(one.name) for one in listed)
    print(f"{'name':<{width}}  {'rows':>9}  {'features':>8}  {'k':>4}  labels  where     licence")
    for one in listed:
        print(
            f"{one.name:<{width}}  {one.rows:>9,}  {one.features:>8}  {one.k or '-':>4}  "
            f"{'yes' if one.has_labels else 'no':<6}  {'embedded' if one.embedded else 'folder':<8}  {one.licence}"
        )
    print(f"default: {DEFAULT_DATASET}")
    if data_dir is None:
        print(
            f"more: set --data-dir or ${DATA_DIR_VARIABLE} to a folder of NAME.csv.gz files; "
            "`fastlloyd datasets download all --data-dir DIR` fetches some"
        )
    return EXIT_OK
