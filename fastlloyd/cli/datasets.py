"""`fastlloyd datasets`: lists the public data sets that `--dataset NAME` knows."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fastlloyd.cli.options import Parser
from fastlloyd.config import DATA_DIR_VARIABLE
from fastlloyd.data.named import DEFAULT_DATASET, list_named
from fastlloyd.errors import EXIT_OK


def main(argv: Sequence[str]) -> int:
    """Print one line per data set.

    Returns
    -------
    int
        0.

    Raises
    ------
    ConfigError
        The folder does not exist.
    DataError
        A file in it is unreadable.
    """
    parser = Parser(
        prog="fastlloyd datasets", description="List the public data sets for --dataset NAME.", allow_abbrev=False
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        default=os.environ.get(DATA_DIR_VARIABLE) or None,
        help=f"folder of NAME.csv.gz and NAME.labels.csv.gz files (default: ${DATA_DIR_VARIABLE})",
    )
    options = parser.parse_args(list(argv))
    listed = list_named(options.data_dir)
    width = max(len(one.name) for one in listed)
    print(f"{'name':<{width}}  {'rows':>9}  {'features':>8}  {'k':>4}  labels  where     licence")
    for one in listed:
        print(
            f"{one.name:<{width}}  {one.rows:>9,}  {one.features:>8}  {one.k or '-':>4}  "
            f"{'yes' if one.has_labels else 'no':<6}  {'embedded' if one.embedded else 'folder':<8}  {one.licence}"
        )
    print(f"default: {DEFAULT_DATASET}")
    if options.data_dir is None:
        print(f"more: set --data-dir or ${DATA_DIR_VARIABLE} to a folder of NAME.csv.gz files")
    return EXIT_OK
