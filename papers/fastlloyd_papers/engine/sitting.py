"""Runs all benchmarks, one after the other; a sitting that was interrupted goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from fastlloyd.errors import ConfigError, DataError
from fastlloyd_papers.engine.cells import CellStore
from fastlloyd_papers.engine.publish import check_folder
from fastlloyd_papers.engine.registry import BENCHES, Options, describe_run, find_bench, flags_of, run_bench

NAME = "all"


def run_all(options: Options, *, skip: Sequence[str] = (), say: Callable[[str], None]) -> str:
    """Run all benchmarks, or those that `options.only` names, but for some; and say what became of each.

    A benchmark that fails does not end the sitting. Flags go to the benchmarks that they mean something to.

    Parameters
    ----------
    options : Options
    skip : sequence of str
    say : callable
        Told each benchmark's name as it begins.

    Raises
    ------
    ConfigError
        A name is unknown; or, after all others have run, some failed.
    """
    for name in (*options.only, *skip):
        find_bench(name)
    names = [
        bench.name for bench in BENCHES if bench.name not in skip and bench.name in (options.only or (bench.name,))
    ]
    check_folder(options.output)
    store = CellStore(options.output / f"{NAME}.partial.json", {"bench": NAME, "shaped": options.shaped})
    failed = {}
    for number, name in enumerate(names, start=1):
        own = _own(name, options)
        try:
            # Other data, other code: not done before.
            done = {key: value for key, value in asdict(describe_run(find_bench(name), own)).items() if key != "date"}
            if store.find(done):
                say(f"{number} of {len(names)}: {name} was done before")
                continue
            say(f"{number} of {len(names)}: {name}")
            run_bench(name, own)
        except (ConfigError, DataError) as error:
            failed[name] = str(error)
            say(f"{name} failed: {error}")
        else:
            store.keep(done, "done")
    if failed:
        raise ConfigError(
            f"{len(failed)} of {len(names)} benchmarks failed ({', '.join(failed)}), the first with: "
            f"{next(iter(failed.values()))}; the same command runs these again"
        )
    store.remove()
    return f"{len(names)} benchmarks are done: {', '.join(names)}\n"


def _own(name: str, options: Options) -> Options:
    """Leave out the flags that mean nothing to a benchmark."""
    plain, known = Options(), flags_of(find_bench(name))
    # With `all`, --only names benchmarks.
    unknown = {"peer", "shaped", "jobs", "noisy"} - known
    return replace(options, only=(), **{flag: getattr(plain, flag) for flag in unknown})
