"""Which benchmarks there are; each is a module with `run(options)`, imported when it is asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from fastlloyd.errors import ConfigError, did_you_mean
from fastlloyd_papers.engine.cells import earlier_commits
from fastlloyd_papers.engine.origin import describe_origin, keep_origin
from fastlloyd_papers.engine.quiet import Watch

DEFAULT_OUTPUT = Path("papers") / "benchmarks" / "results"


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
    jobs : int or None
        Processes to measure with; None for as many as there are cores.
    only : tuple of str
        Methods to measure anew, the others' figures being taken from the last time; empty for all.
    noisy : bool
        Measure times on a machine that is not quiet; such rows are marked unusable.
    watch : Watch or None
        What a benchmark of times is to measure under; `run_bench` makes it.
    progress : bool
        Draw a progress bar on standard error.
    """

    quick: bool = False
    output: Path = DEFAULT_OUTPUT
    data_dir: str | None = None
    peer: Path | None = None
    peer_python: str = field(default_factory=lambda: sys.executable)
    shaped: bool = False
    jobs: int | None = None
    only: tuple[str, ...] = ()
    noisy: bool = False
    watch: Watch | None = None
    progress: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One benchmark: its name, module, one line about it, and which optional flags mean something to it.

    Attributes
    ----------
    timed : bool
        Whether it measures time: then it needs a quiet machine. Errors do not.
    """

    name: str
    module: str
    summary: str
    accepts: frozenset[str] = frozenset()
    timed: bool = False


BENCHES = (
    Bench(
        name="fastlloyd-table3",
        module="fastlloyd_papers.fastlloyd.table3",
        summary="FastLloyd Table 3: time and bytes of a round, lan and wan, rings of 32 and 64 bits",
        accepts=frozenset({"peer", "shaped"}),
        timed=True,
    ),
    Bench(
        name="fastlloyd-scaling",
        module="fastlloyd_papers.fastlloyd.scaling",
        summary="time and bytes of a round against records, clusters, features and clients",
        timed=True,
    ),
    Bench(
        name="fastlloyd-fig2",
        module="fastlloyd_papers.fastlloyd.fig2",
        summary="FastLloyd Figure 2: NICV against epsilon on ten real sets",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="fastlloyd-fig3",
        module="fastlloyd_papers.fastlloyd.fig3",
        summary="FastLloyd Figure 3: error against features (G2) and clusters (Synth-K)",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="fastlloyd-fig4",
        module="fastlloyd_papers.fastlloyd.fig4",
        summary="FastLloyd Figure 4: error on Synth by clusters and features",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="fastlloyd-fig5",
        module="fastlloyd_papers.fastlloyd.fig5",
        summary="FastLloyd Figure 5: alpha, radius clipping and folding",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="fastlloyd-fig6-8",
        module="fastlloyd_papers.fastlloyd.fig6_8",
        summary="FastLloyd Figures 6 to 8: silhouette, Davies-Bouldin, centroid error",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="fastlloyd-plus",
        module="fastlloyd_papers.fastlloyd.plus",
        summary="fastlloyd-plus against fastlloyd: NICV on ten real sets",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="fastlloyd-plus-generated",
        module="fastlloyd_papers.fastlloyd.plus_generated",
        summary="fastlloyd-plus against fastlloyd: part by part, and by clusters and features",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="utility-league",
        module="fastlloyd_papers.utility.league",
        summary="every private k-means at hand side by side: NICV on 11 real sets and on unequal sizes",
        accepts=frozenset({"jobs", "only"}),
    ),
    Bench(
        name="feddp-fig1",
        module="fastlloyd_papers.feddp.fig1",
        summary="FedDP-KMeans Figures 1, 8, 9: cost against epsilon, one record protected",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="feddp-fig2",
        module="fastlloyd_papers.feddp.fig2",
        summary="FedDP-KMeans Figures 2, 10 to 14: cost against epsilon, all records of a user protected",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="feddp-fig3",
        module="fastlloyd_papers.feddp.fig3",
        summary="FedDP-KMeans Figures 3 to 6: clusters that the server data lack",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="feddp-fig7",
        module="fastlloyd_papers.feddp.fig7",
        summary="FedDP-KMeans Figure 7: choosing k by the elbow",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="feddp-tables2-5",
        module="fastlloyd_papers.feddp.tables",
        summary="FedDP-KMeans Tables 2 to 5: parts of the budget and Lloyd steps of the best runs",
    ),
    Bench(
        name="feddp-assumptions",
        module="fastlloyd_papers.feddp.assumptions",
        summary="FedDP-KMeans Table 1, App. G.2: radius of the data, and what the theory asks of them",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="secfc-table1",
        module="fastlloyd_papers.secfc.table1",
        summary="SecFC Table 1: accuracy on Gaussian mixtures, sigma 1",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="secfc-table2",
        module="fastlloyd_papers.secfc.table2",
        summary="SecFC Table 2: accuracy on Gaussian mixtures, sigma 20",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="secfc-table3",
        module="fastlloyd_papers.secfc.table3",
        summary="SecFC Table 3: accuracy on rotated MNIST digits",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="secfc-fig1",
        module="fastlloyd_papers.secfc.fig1",
        summary="SecFC Figure 1: time of an iteration against clients, features, records and clusters",
        timed=True,
    ),
    Bench(
        name="secfc-attacks",
        module="fastlloyd_papers.secfc.attacks",
        summary="SecFC: what attacks recover from what the server decodes, with each protection and without",
    ),
    Bench(
        name="vertical-he-table3",
        module="fastlloyd_papers.vertical_he.table3",
        summary="Vertical HE Table 3: ten iterations, one column at each of two parties, under ten networks",
        accepts=frozenset({"jobs", "shaped"}),
        timed=True,
    ),
    Bench(
        name="vertical-he-table4",
        module="fastlloyd_papers.vertical_he.table4",
        summary="Vertical HE Table 4: loss and accuracy at epsilon = 1 beside plain k-means",
        accepts=frozenset({"jobs"}),
        timed=True,
    ),
    Bench(
        name="vertical-he-fig4",
        module="fastlloyd_papers.vertical_he.fig4",
        summary="Vertical HE Figure 4: ten iterations against the number of columns",
        accepts=frozenset({"jobs"}),
        timed=True,
    ),
    Bench(
        name="vertical-he-fig5",
        module="fastlloyd_papers.vertical_he.fig5",
        summary="Vertical HE Figure 5: loss and accuracy on S1 against epsilon",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="vertical-he-weighing",
        module="fastlloyd_papers.vertical_he.weighing",
        summary="vertical-he on real sets: NICV with weighed centres and with sum over count",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="vertical-dp-fig3",
        module="fastlloyd_papers.vertical_dp.fig3",
        summary="Vertical DP Figures 3, 4 and 7: loss, V-score, error of the weights, two and four parties",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="vertical-dp-fig5",
        module="fastlloyd_papers.vertical_dp.fig5",
        summary="Vertical DP Figure 5: uneven numbers of columns",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="vertical-dp-fig6",
        module="fastlloyd_papers.vertical_dp.fig6",
        summary="Vertical DP Figure 6: loss against the number of parties",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="vertical-dp-fig8",
        module="fastlloyd_papers.vertical_dp.fig8",
        summary="Vertical DP Figure 8: privacy of the local clusters or of the weights alone",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="vertical-dp-fig9",
        module="fastlloyd_papers.vertical_dp.fig9",
        summary="Vertical DP Figure 9: loss against the number of local clusters",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="vertical-dp-table1",
        module="fastlloyd_papers.vertical_dp.table1",
        summary="Vertical DP Table 1: bytes from a party, seconds of the server's estimate",
        timed=True,
    ),
    Bench(
        name="vertical-dp-lemma5",
        module="fastlloyd_papers.vertical_dp.lemma5",
        summary="Vertical DP Lemma 5: mean and variance of levels with a floor and without",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="vertical-dp-theorem7",
        module="fastlloyd_papers.vertical_dp.theorem7",
        summary="Vertical DP Theorem 7: the loss beside the bound that its parts imply",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="vertical-dp-sketch",
        module="fastlloyd_papers.vertical_dp.sketch",
        summary="Vertical DP: errors of sketches against theory, and the price of phantoms",
    ),
)


# Data that benchmarks take from --data-dir and that this project may not or does not hand on.
NOT_SHIPPED = {
    "census": "the census files are not shipped (`fastlloyd datasets make census`)",
    "stackoverflow": "the Stack Overflow files are not shipped (`fastlloyd datasets make stackoverflow`)",
    "taxi": "Kaggle's file is not shipped (`fastlloyd datasets make taxi`)",
    "loan": "Kaggle's file is not shipped (`fastlloyd datasets make loan`)",
    "har": "UCI's `har.csv` is not shipped (docs/results.md says what goes into --data-dir)",
    "bank": "UCI's `bank.csv` is not shipped (docs/results.md says what goes into --data-dir)",
    "mnist": "`mnist.csv.gz` is fetched by `fastlloyd datasets download`",
}


def why_absent(name: str, data: str = "") -> str:
    """Say why there is no result of a benchmark on some data."""
    return f"no result: {NOT_SHIPPED[data]}" if data in NOT_SHIPPED else f"not run yet: `fastlloyd bench {name}`"


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
    known = [bench.name for bench in BENCHES]
    raise ConfigError(f"no benchmark {name!r}{did_you_mean(name, known)}; known are {', '.join(known)}")


def flags_of(bench: Bench) -> frozenset[str]:
    """Return which optional flags mean something to a benchmark."""
    return bench.accepts | {"noisy"} if bench.timed else bench.accepts


def run_bench(name: str, options: Options) -> str:
    """Run a benchmark, write its files and where they come from, and give its Markdown.

    Raises
    ------
    ConfigError
        The name is unknown, a flag means nothing to this benchmark, or a run under it failed.
    """
    bench = find_bench(name)
    known = flags_of(bench)
    asked = {
        "peer": options.peer is not None,
        "shaped": options.shaped,
        "jobs": options.jobs is not None,
        "only": bool(options.only),
        "noisy": options.noisy,
    }
    for flag, given in asked.items():
        if given and flag not in known:
            users = ", ".join(other.name for other in BENCHES if flag in flags_of(other))
            raise ConfigError(f"--{flag} means nothing to {name}; it is for {users}")
    if options.jobs is not None and options.jobs < 1:
        raise ConfigError(f"--jobs: expected at least 1 process, got {options.jobs}; leave it out for one per core")
    run: Callable[[Options], str] = importlib.import_module(bench.module).run
    earlier = earlier_commits(options.output / f"{name}.partial.json")
    origin = describe_origin(name, quick=options.quick, noisy=options.noisy if bench.timed else None, earlier=earlier)
    text = run(replace(options, watch=Watch(noisy=options.noisy) if bench.timed else None))
    keep_origin(options.output, origin)
    return text
