"""`fastlloyd datasets download` and `make`: fetches the papers' data sets, and makes those that nobody may hand on."""

from __future__ import annotations

import argparse
from pathlib import Path

from fastlloyd.data.form import DATA_DIR_VARIABLE
from fastlloyd.errors import EXIT_OK, ConfigError, DataError, FastLloydError, did_you_mean
from fastlloyd_papers.sets.download import EMBEDDED, Get, download, get_file
from fastlloyd_papers.sets.make import MAKERS, make_sets
from fastlloyd_papers.sets.origin import ORIGINS

ALL = "all"


def run(options: argparse.Namespace, *, get: Get = get_file) -> int:
    """Fetch or make sets and return 0.

    Parameters
    ----------
    options : argparse.Namespace
        As `fastlloyd.cli.datasets.parser` reads them, with an action.
    get : callable
        Fetches one file.

    Raises
    ------
    ConfigError
        The folder does not exist or is not named, or a set is unknown.
    DataError
        A file is unreadable, cannot be had, or is another one.
    """
    if options.action == "make":
        return _make(options.names, options.source, options.data_dir, options.force)
    if options.source is not None:
        raise ConfigError("--from means nothing to a download; it is for `fastlloyd datasets make NAME`")
    return _download(options.names, options.data_dir, options.force, get)


def _make(names: list[str], source: str | None, data_dir: str | None, force: bool) -> int:
    """Make the sets of one maker, or say what it needs."""
    if len(names) != 1 or names[0] not in MAKERS:
        close = did_you_mean(names[0], MAKERS) if len(names) == 1 else ""
        raise ConfigError(f"expected what to make, one of {', '.join(MAKERS)}{close}")
    if source is None:
        raise ConfigError(f"expected --from DIR, a folder with {MAKERS[names[0]].needs}")
    if data_dir is None:
        raise ConfigError(f"expected --data-dir DIR (or ${DATA_DIR_VARIABLE}): where to put the files")
    for line in make_sets(names[0], Path(source), Path(data_dir), force=force):
        print(line)
    return EXIT_OK


def _download(names: list[str], data_dir: str | None, force: bool, get: Get) -> int:
    """Fetch sets one after the other; one that fails does not keep the others from being fetched."""
    if not names:
        raise ConfigError(f"expected the names of sets to fetch: {', '.join(ORIGINS)}, or {ALL}")
    if data_dir is None:
        raise ConfigError(f"expected --data-dir DIR (or ${DATA_DIR_VARIABLE}): where to put the files")
    unknown = [name for name in names if name not in (*ORIGINS, *EMBEDDED, ALL)]
    if unknown:
        close = did_you_mean(unknown[0], (*ORIGINS, *EMBEDDED, ALL))
        raise ConfigError(
            f"no address is known for {', '.join(unknown)}{close}; known are {', '.join(ORIGINS)}, and {ALL}"
        )
    wanted = dict.fromkeys(one for name in names for one in (ORIGINS if name == ALL else (name,)))
    failed: list[FastLloydError] = []
    for name in wanted:
        try:
            print(download(name, Path(data_dir), force=force, get=get), flush=True)
        except (ConfigError, DataError) as error:
            failed.append(error)
            if len(wanted) > 1:
                print(f"{name}: failed", flush=True)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise DataError("; ".join(map(str, failed)))
    return EXIT_OK
