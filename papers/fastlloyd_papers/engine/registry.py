"""Which benchmarks there are; each is a module with `run(options)`, imported when it is asked for."""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import fastlloyd
from fastlloyd.errors import ConfigError, did_you_mean
from fastlloyd.version import __version__
from fastlloyd_papers.engine.machine import describe_code, describe_machine
from fastlloyd_papers.engine.origin import FULL, QUICK, SEEDED, UNSEEDED, Origin, describe_software, read_origins
from fastlloyd_papers.engine.publish import Desk, check_folder, check_replaceable, publish
from fastlloyd_papers.engine.quiet import Watch
from fastlloyd_papers.sets.present import find_sets

RESULTS = Path("papers") / "benchmarks" / "results"
_ELSEWHERE = {FULL: Path("bench-results"), QUICK: Path("bench-quick")}
_MODULES = ("scipy", "sklearn", "threadpoolctl", "tqdm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user may ask of a benchmark.

    Attributes
    ----------
    quick : bool
        A cut-down version, at most four minutes on two cores.
    output : Path
        Where a benchmark writes CSV, Markdown and PNG; `run_bench` puts them in place from there.
    desk : Desk or None
        Where the partial results stand, and what was measured; `run_bench` makes it.
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
    output: Path = RESULTS
    desk: Desk | None = None
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
    data : tuple of str
        Sets that it reads from --data-dir, or that are part of fastlloyd.
    timed : bool
        Whether it measures time: then it needs a quiet machine. Errors do not.
    seeded : bool
        Whether noise and keys follow from the names of its measurements. Runs of parties draw theirs.
    """

    name: str
    module: str
    summary: str
    accepts: frozenset[str] = frozenset()
    data: tuple[str, ...] = ()
    timed: bool = False
    seeded: bool = True


_REAL = ("iris", "lsun", "s1", "house", "adult", "wine", "breast", "yeast", "mnist", "birch2")
_G2 = tuple(f"g2_{d}_30" for d in (2, 4, 8, 16, 32, 64, 128, 256))
_CENSUS = ("census-federal", "census-nonprofit", "census-self")
_STACKOVERFLOW = tuple(
    f"stackoverflow-{pair}"
    for pair in ("github-pdf", "facebook-hibernate", "machine-learning-math", "plotting-cookies")
)

BENCHES = (
    Bench(
        name="fastlloyd-table3",
        module="fastlloyd_papers.fastlloyd.table3",
        summary="FastLloyd Table 3: time and bytes of a round, lan and wan, rings of 32 and 64 bits",
        data=("lsun", "s1"),
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
        data=_REAL,
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="fastlloyd-fig3",
        module="fastlloyd_papers.fastlloyd.fig3",
        summary="FastLloyd Figure 3: error against features (G2) and clusters (Synth-K)",
        data=_G2,
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
        data=_REAL,
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="fastlloyd-plus",
        module="fastlloyd_papers.fastlloyd.plus",
        summary="fastlloyd-plus against fastlloyd: NICV on ten real sets",
        data=_REAL,
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
        data=(*_REAL, "letter"),
        accepts=frozenset({"jobs", "only"}),
    ),
    Bench(
        name="feddp-fig1",
        module="fastlloyd_papers.feddp.fig1",
        summary="FedDP-KMeans Figures 1, 8, 9: cost against epsilon, one record protected",
        data=_CENSUS,
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="feddp-kfed",
        module="fastlloyd_papers.feddp.kfed",
        summary="FedDP-KMeans Figure 1: k-FED on the mixture, by both local steps",
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="feddp-fig2",
        module="fastlloyd_papers.feddp.fig2",
        summary="FedDP-KMeans Figures 2, 10 to 14: cost against epsilon, all records of a user protected",
        data=_STACKOVERFLOW,
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
        data=(*_CENSUS, *_STACKOVERFLOW),
    ),
    Bench(
        name="feddp-assumptions",
        module="fastlloyd_papers.feddp.assumptions",
        summary="FedDP-KMeans Table 1, App. G.2: radius of the data, and what the theory asks of them",
        data=_CENSUS,
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
        data=("mnist",),
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
        data=("iris",),
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
        data=("s1", "har", "taxi", "bank", "loan", "g2_2_30", "g2_4_30", "house", "iris"),
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
        seeded=False,
        data=("s1",),
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="vertical-he-weighing",
        module="fastlloyd_papers.vertical_he.weighing",
        summary="vertical-he on real sets: NICV with weighed centres and with sum over count",
        data=("breast", "iris", "wine", "lsun", "house", "s1", "yeast", "adult", "letter"),
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="vertical-dp-fig3",
        module="fastlloyd_papers.vertical_dp.fig3",
        summary="Vertical DP Figures 3, 4 and 7: loss, V-score, error of the weights, two and four parties",
        data=("letter", "taxi", "loan"),
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="vertical-dp-fig5",
        module="fastlloyd_papers.vertical_dp.fig5",
        summary="Vertical DP Figure 5: uneven numbers of columns",
        data=("loan",),
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="vertical-dp-fig6",
        module="fastlloyd_papers.vertical_dp.fig6",
        summary="Vertical DP Figure 6: loss against the number of parties",
        data=("letter", "loan"),
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="vertical-dp-fig8",
        module="fastlloyd_papers.vertical_dp.fig8",
        summary="Vertical DP Figure 8: privacy of the local clusters or of the weights alone",
        data=("letter", "taxi", "loan"),
        accepts=frozenset({"jobs"}),
    ),
    Bench(
        name="vertical-dp-fig9",
        module="fastlloyd_papers.vertical_dp.fig9",
        summary="Vertical DP Figure 9: loss against the number of local clusters",
        data=("letter", "taxi", "loan"),
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
    for module in _MODULES:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"the module {error.name or module} is not installed; `pip install ./papers` brings what is needed"
            ) from error
    check_folder(options.output)
    origin = describe_run(bench, options)
    check_replaceable(options.output, origin, frozenset(bench.data))
    run: Callable[[Options], str] = importlib.import_module(bench.module).run
    key = {"data": origin.data, "size": origin.size, "commit": origin.commit, "software": origin.software}
    desk, begun = Desk(folder=options.output, key=dict(key)), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fastlloyd-bench-") as folder:
        aside = replace(
            options, output=Path(folder), desk=desk, watch=Watch(noisy=options.noisy) if bench.timed else None
        )
        text = run(aside)
        minutes = "" if desk.resumed else f"{(time.monotonic() - begun) / 60:.1f}"
        counted = {"measurements": str(desk.cells or ""), "runs": str(desk.runs or "")}
        page = publish(Path(folder), options.output, replace(origin, minutes=minutes, **counted))
    for drop in desk.drops:
        drop()
    return page or text


def describe_run(bench: Bench, options: Options) -> Origin:
    """Say how results of this code, on this machine and these data, come about.

    Raises
    ------
    ConfigError
        A set is not the one that its name says.
    DataError
        A file is unreadable.
    """
    words = ["fastlloyd", "bench", bench.name]
    words += [f"--{flag}" for flag in ("quick", "shaped", "noisy") if getattr(options, flag)]
    words += ["--only", ",".join(options.only)] if options.only else []
    words += ["--jobs", str(options.jobs)] if options.jobs else []
    words += ["--data-dir", "DIR"] if options.data_dir else []
    words += ["--peer", "DIR"] if options.peer else []
    return Origin(
        benchmark=bench.name,
        size=QUICK if options.quick else FULL,
        noisy="" if not bench.timed else "yes" if options.noisy else "no",
        command=" ".join(words),
        seed=UNSEEDED if bench.timed or not bench.seeded else SEEDED,
        data=" ".join(found.word for found in find_sets(bench.data, options.data_dir)),
        **describe_here(),
    )


def describe_here() -> dict[str, str]:
    """Return the fields of an `Origin` that this code, machine and day decide."""
    return {
        "commit": describe_code(Path(fastlloyd.__file__).resolve().parents[1]) or "",
        "machine": describe_machine(),
        "version": __version__,
        "date": datetime.now(UTC).date().isoformat(),
        "software": describe_software(),
    }


def default_output(*, quick: bool) -> Path:
    """Return where results go unless a folder is named: what is quick never goes to the committed ones."""
    return RESULTS if RESULTS.is_dir() and not quick else _ELSEWHERE[QUICK if quick else FULL]


def list_benches(folder: Path = RESULTS) -> str:
    """Write a line for each benchmark: what it is, its data, and how long it took where a folder's results say so."""
    origins, width = read_origins(folder), max(len(bench.name) for bench in BENCHES)
    lines = []
    for bench in BENCHES:
        took = origins[bench.name].minutes if bench.name in origins else ""
        machine = origins[bench.name].machine if took else ""
        needs = f"data: {', '.join(bench.data) or 'made here'}"
        lasts = f"full: {took} minutes on {machine}" if took else "full: time not recorded"
        lines.append(f"{bench.name:<{width}}  {bench.summary}; {needs}; {lasts}; quick: at most 4 minutes on 2 cores\n")
    return "".join(lines)
