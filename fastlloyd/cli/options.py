"""The flags of a run, alike for `fastlloyd run` and `python -m fastlloyd.client`."""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Sequence
from typing import Any

from fastlloyd.cli.arguments import join_negative_values
from fastlloyd.data.public.folder import DATA_DIR_VARIABLE
from fastlloyd.errors import ConfigError
from fastlloyd.protocols.registry import PROTOCOLS, names
from fastlloyd.run.config import (
    LOG_LEVELS,
    MASKINGS,
    MISSING_RULES,
    PAPER_DELTA,
    TRANSPORTS,
    VERTICAL,
    RunConfig,
    has_table,
    load_config,
    with_values,
)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ConfigErrors: the caller decides who prints them."""

    def error(self, message: str) -> Any:
        """Raise instead of printing."""
        raise ConfigError(f"{message}; see {self.prog} --help")


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add every flag of a run; the defaults are those of `RunConfig`."""
    add = parser.add_argument
    add("--config", metavar="FILE.toml", help="any flag below may stand in it; flags win")
    add("--protocol", metavar=f"{{{','.join(PROTOCOLS)}}}", help="default fastlloyd")
    data = parser.add_argument_group("data")
    data.add_argument(
        "--data",
        metavar="TEMPLATE",
        help="this rank's records: '{client}' becomes 1..M; csv, csv.gz, npy, npz, parquet",
    )
    data.add_argument("--dataset", metavar="NAME|FILE", help="demonstration: one public set, split among the clients")
    data.add_argument(
        "--server-data", metavar="FILE", help="feddp: records that the server may use and the clients may see"
    )
    data.add_argument("--data-dir", metavar="DIR", help="where --dataset NAME is looked up (default $FASTLLOYD_DATA)")
    data.add_argument("--split", metavar="iid|label|even|CSV", help="how --dataset is split (default iid)")
    data.add_argument("--columns", type=_names, metavar="A,B,..", help="feature columns by name (default: all numeric)")
    data.add_argument(
        "--missing", choices=MISSING_RULES, help="missing values: refuse (default), drop the row, midpoint"
    )
    data.add_argument("--bounds", metavar="LO,HI|FILE|auto-public", help="public bounds of the features")
    data.add_argument("--n-total", type=_whole, metavar="N", help="public upper bound on all records together")
    data.add_argument("--client-caps", type=_wholes, metavar="N1,N2,..", help="public cap per client (default N // M)")
    data.add_argument("--evaluate", action="store_true", default=None, help="metrics on the true data (--dataset only)")
    task = parser.add_argument_group("clustering and privacy")
    task.add_argument(
        "--k", type=_clusters, metavar="K|auto:KMAX", help="number of clusters; auto:KMAX lets feddp choose"
    )
    task.add_argument("--epsilon", type=float, help="total epsilon of the run (default 1)")
    task.add_argument(
        "--delta", type=_delta, metavar="D|auto|paper", help="default auto: 1 / (100 N); paper: the protocol's paper's"
    )
    task.add_argument(
        "--accept-large-delta",
        action="store_true",
        default=None,
        help="allow a delta above 1 / N, which promises little",
    )
    task.add_argument(
        "--rounds", type=_auto_whole, metavar="T|auto", help="default auto: the protocol's public formula"
    )
    task.add_argument("--budget", type=float, metavar="E", help="lifetime limit on epsilon; needs --state-dir")
    task.add_argument("--seed", type=_whole, help="public randomness only: start and splits (default 0)")
    task.add_argument(
        "--set",
        action="append",
        metavar="PROTOCOL.KEY=VALUE",
        dest="set_",
        help="a setting of one protocol (repeatable)",
    )
    secure = parser.add_argument_group("aggregation and links")
    secure.add_argument(
        "--masking", choices=MASKINGS, help="common (default), or pairwise: noise in shares by the clients"
    )
    secure.add_argument(
        "--known-shares", type=_whole, metavar="T", help="pairwise: shares that an observer may know (default 1)"
    )
    secure.add_argument("--ring-bits", type=_whole, choices=(32, 64), help="default 32")
    secure.add_argument("--min-clients", type=_whole, metavar="M", help="go on without slow clients (default: all)")
    secure.add_argument("--roster", metavar="FILE", help="TOML of pinned certificates; without it: demonstration")
    secure.add_argument("--key", metavar="FILE", help="this party's own key; '{client}' becomes the rank")
    secure.add_argument(
        "--workers", type=_whole, metavar="W", help="vertical-he: processes that compute (default: cores)"
    )
    secure.add_argument("--transport", choices=TRANSPORTS, help="shm (default) or tcp, also on one host")
    secure.add_argument("--network", metavar="PROFILE", help="fastlloyd run: a host per rank, shaped (scripts/netem)")
    secure.add_argument("--shaping", help=argparse.SUPPRESS)
    secure.add_argument("--delay", type=float, metavar="SECONDS", help="injected per message")
    secure.add_argument("--deadline", type=float, metavar="SECONDS", help="per round (default 60)")
    secure.add_argument("--setup-deadline", type=float, metavar="SECONDS", help="before round 0 (default 300)")
    out = parser.add_argument_group("state and output")
    out.add_argument(
        "--state-dir", metavar="DIR", help="ledger over runs, and what --resume needs (private to each party)"
    )
    out.add_argument(
        "--resume", action="store_true", default=None, help="go on with the interrupted run in --state-dir"
    )
    out.add_argument("--output", metavar="DIR", help="default ./fastlloyd-run; may contain '{client}'")
    out.add_argument(
        "--print-result",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="print the table (default: one host)",
    )
    out.add_argument("--quiet", action="store_true", default=None, help="no progress, no table")
    out.add_argument("--log-level", choices=LOG_LEVELS, help="default warning")
    out.add_argument("--events", action="store_true", help=argparse.SUPPRESS)
    out.add_argument("--log-file", metavar="FILE", help="'{client}' becomes the rank; default: standard error")


def parse_run_options(
    parser: argparse.ArgumentParser, argv: Sequence[str], *, links: bool = True
) -> tuple[RunConfig, argparse.Namespace]:
    """Parse flags and run file into one configuration.

    Parameters
    ----------
    links : bool
        As for `load_config`.

    Raises
    ------
    ConfigError
        Any flag, key or value that does not fit.
    """
    arguments = parser.parse_args(join_negative_values(list(argv), ("--bounds",)))
    given = {
        key: value
        for key, value in vars(arguments).items()
        if key in RunConfig.__dataclass_fields__ and value is not None
    }
    given.update(_tables(arguments.set_ or (), given.get("protocol", PROTOCOLS[0])))
    if arguments.config is None:
        config = with_values(RunConfig(), given)
        if links:
            config.check_links()
    else:
        config = load_config(arguments.config, given, links=links)
    if config.data_dir is None and DATA_DIR_VARIABLE in os.environ:
        config = with_values(config, {"data_dir": os.environ[DATA_DIR_VARIABLE]})
    return config, arguments


def _tables(pairs: Sequence[str], protocol: str) -> dict[str, dict[str, Any]]:
    """Turn 'protocol.key=value' pairs into tables."""
    tables: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        path, equals, text = pair.partition("=")
        owner, dot, key = path.partition(".")
        if not equals or not dot or not key or not owner:
            raise ConfigError(f"--set: expected PROTOCOL.KEY=VALUE, got {pair!r}, as in --set {protocol}.alpha=0.8")
        if not has_table(owner):
            raise ConfigError(f"--set: unknown protocol {owner!r}; known are {', '.join((*names(), VERTICAL))}")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        tables.setdefault(owner, {})[key] = value
    return tables


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None


def _clusters(text: str) -> int | str:
    return text if text.startswith("auto") else _whole(text)


def _wholes(text: str) -> list[int]:
    return [_whole(part) for part in text.split(",")]


def _delta(text: str) -> float | str:
    return text if text in ("auto", PAPER_DELTA) else float(text)


def _auto_whole(text: str) -> int | str:
    return text if text == "auto" else _whole(text)
