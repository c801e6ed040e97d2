"""Which benchmarks there are; each is a module with `run(options)`, imported when it is asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fastlloyd.errors import ConfigError

DEFAULT_OUTPUT = Path("benchmarks") / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user may ask of a benchmark.

    Attributes
    ----------
    quick : bool
        A cut-down version, at most four minutes on two cores.
    output : Path
        Where CSV, Markdown, PNG and the partial results stand.
    data_dir : str or None
        Folder of NAME.csv.gz files.
    peer : Path or None
        The user's own checkout of the paper's code, to be timed in turn with ours.
    peer_python : str
        The interpreter that has what that code imports.
    shaped : bool
        Also over network namespaces with shaped links.
    progress : bool
        Draw a progress bar on standard error.
    """

    quick: bool = False
    output: Path = DEFAULT_OUTPUT
    data_dir: str | None = None
    peer: Path | None = None
    peer_python: str = field(default_factory=lambda: sys.executable)
    shaped: bool = False
    progress: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One benchmark: its name, module, one line about it, and which optional flags mean something to it."""

    name: str
    module: str
    summary: str
    accepts: frozenset[str] = frozenset()


BENCHES = (
    Bench(
        name="fastlloyd-table3",
        module="fastlloyd.bench.table3",
        summary="FastLloyd Table 3: time and bytes of a round, lan and wan, rings of 32 and 64 bits",
        accepts=frozenset({"peer", "shaped"}),
    ),
    Bench(
        name="fastlloyd-scaling",
        module="fastlloyd.bench.scaling",
        summary="time and bytes of a round against records, clusters, features and clients",
    ),
    Bench(
        name="feddp-fig1",
        module="fastlloyd.bench.feddp_fig1",
        summary="FedDP-KMeans Figures 1, 8, 9: cost against epsilon, one record protected",
    ),
    Bench(
        name="feddp-fig2",
        module="fastlloyd.bench.feddp_fig2",
        summary="FedDP-KMeans Figures 2, 10 to 14: cost against epsilon, all records of a user protected",
    ),
    Bench(
        name="feddp-fig3",
        module="fastlloyd.bench.feddp_fig3",
        summary="FedDP-KMeans Figures 3 to 6: clusters that the server data lack",
    ),
    Bench(
        name="feddp-fig7",
        module="fastlloyd.bench.feddp_fig7",
        summary="FedDP-KMeans Figure 7: choosing k by the elbow",
    ),
    Bench(
        name="feddp-tables2-5",
        module="fastlloyd.bench.feddp_tables",
        summary="FedDP-KMeans Tables 2 to 5: parts of the budget and Lloyd steps of the best runs",
    ),
    Bench(
        name="secfc-table1",
        module="fastlloyd.bench.secfc_table1",
        summary="SecFC Table 1: accuracy on Gaussian mixtures, sigma 1",
    ),
    Bench(
        name="secfc-table2",
        module="fastlloyd.bench.secfc_table2",
        summary="SecFC Table 2: accuracy on Gaussian mixtures, sigma 20",
    ),
    Bench(
        name="secfc-table3",
        module="fastlloyd.bench.secfc_table3",
        summary="SecFC Table 3: accuracy on rotated MNIST digits",
    ),
    Bench(
        name="secfc-fig1",
        module="fastlloyd.bench.secfc_fig1",
        summary="SecFC Figure 1: time of an iteration against clients, features, records and clusters",
    ),
)


def find_bench(name: str) -> Bench:
    """Find a benchmark by its name.

    Raises
    ------
    ConfigError
        There is none of that name; names those there are.
    """
    for bench in BENCHES:
        if bench.name == name:
            return bench
    known = ", ".join(bench.name for bench in BENCHES)
    raise ConfigError(f"no benchmark {name!r}; known are {known}")


def run_bench(name: str, options: Options) -> str:
    """Run a benchmark, write its files, and give its Markdown.

    Raises
    ------
    ConfigError
        The name is unknown, a flag means nothing to this benchmark, or a run under it failed.
    """
    bench = find_bench(name)
    asked = {"peer": options.peer is not None, "shaped": options.shaped}
    for flag, given in asked.items():
        if given and flag not in bench.accepts:
            users = ", ".join(other.name for other in BENCHES if flag in other.accepts)
            raise ConfigError(f"--{flag} means nothing to {name}; it is for {users}")
    run: Callable[[Options], str] = importlib.import_module(bench.module).run
    return run(options)
