"""How close `plan` comes to the processor seconds of a run, over shapes drawn at random.

    python papers/benchmarks/planned_work.py [PROTOCOL ...] [--draws N] [--seed S] [--processes] [--output papers/benchmarks/results]

Each shape is planned and run in a fresh process with all parties in one thread, after a small run that reads all libraries. Ratios are
processor seconds taken over those planned, set-up and rounds together; above 1 the plan said too little. In one thread the parties share
first centres and compositions of noise; each party's own are added to what was taken. With --processes each shape is
run once more, by `fastlloyd run` over TCP with TLS; from the processor seconds of all its processes those of a small run with as many
processes are taken away, which leaves no number where it is not above a second. Processor seconds are little disturbed by other load,
but are not free of it: run it alone for a page of results.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fastlloyd_papers.engine.machine import describe_commit, describe_machine
from fastlloyd_papers.engine.quiet import begin_quietly
from fastlloyd_papers.engine.tables import markdown_table

HEADER = (
    "protocol",
    "N",
    "records",
    "columns",
    "k",
    "parties",
    "rounds",
    "more",
    "planned s",
    "taken s",
    "ratio",
    "processes",
)
VERTICAL = ("vertical-he", "vertical-dp")
PROTOCOLS = (*VERTICAL, "fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "lloyd", "feddp")
"""Those of which `plan` says more than that it does not know; descriptions follow a run, and are left out."""
MOST_PRODUCTS, MOST_VALUES = 3e9, 4e7
LEAST_SECONDS = 1.0


def draw(protocol: str, stream: random.Random) -> dict[str, Any]:
    """Draw a shape that a machine of two cores runs in minutes."""
    if protocol not in VERTICAL:
        return draw_of_records(protocol, stream)
    circuits = protocol == "vertical-he"
    parties = stream.choice((2, 2, 2, 3)) if circuits else stream.randint(2, 5)
    records = round(10 ** stream.uniform(2.0, 4.3))
    k = stream.choice((2, 3, 4) if circuits else (2, 3, 5, 8, 12))
    most = 40 if not circuits else 30 if records < 3000 else 6
    align = stream.choice(("check", "check", "intersect"))
    # People that a party may have and has not take time only where ids are intersected.
    more = stream.choice((1.0, 1.0, 3.0)) if align == "intersect" else 1.0
    return {
        "protocol": protocol,
        "records": records,
        "n_total": round(records * more),
        "d": stream.randint(parties, max(parties, most)),
        "k": k,
        "parties": parties,
        "rounds": None if protocol == "vertical-dp" else stream.randint(2, 8),
        "settings": {"vertical": {"align": align}},
    }


def draw_of_records(protocol: str, stream: random.Random) -> dict[str, Any]:
    """Draw a shape for clients that hold records."""
    feddp, wide = protocol == "feddp", 2.8 if protocol == "feddp" else 3.3
    records, d, k = 0, 0, 1
    while not 5 * k < records or records * k * d > MOST_PRODUCTS or records * d > MOST_VALUES:
        records, d = round(10 ** stream.uniform(2.0, 5.3)), round(10 ** stream.uniform(0.2, wide))
        k = round(10 ** stream.uniform(0.3, 1.3 if feddp else 2.3))
    masking = stream.choice(("pairwise", "threshold") if feddp else ("common", "common", "pairwise", "threshold"))
    parties = max(round(10 ** stream.uniform(0.31, 1.3)), 4 if masking == "threshold" else 2)
    start = stream.choice(("private", "private", "sphere-packing"))
    return {
        "protocol": protocol,
        "records": records,
        "n_total": records,
        "d": d,
        "k": k,
        "parties": parties,
        "rounds": None,
        "masking": masking,
        "settings": {"feddp": {"start": start}} if feddp else {},
    }


def clients_of(shape: dict[str, Any]) -> int:
    """Return the ranks but 0: the key holder and the computing party of two are ranks 0 and 1."""
    both = shape["protocol"] == "vertical-he" and shape["parties"] == 2
    return int(shape["parties"]) - both


def config_of(shape: dict[str, Any], folder: str) -> Any:
    """Return the configuration of a shape, on generated records; those of clients that hold records are in the folder."""
    from fastlloyd.run.config import RunConfig

    if shape["protocol"] not in VERTICAL:
        stream, path = np.random.default_rng(0), Path(folder) / f"{shape['records']}.npy"
        means = stream.uniform(-0.7, 0.7, (shape["k"], shape["d"]))
        chosen = means[stream.integers(0, shape["k"], shape["records"])]
        np.save(path, np.clip(chosen + 0.1 * stream.standard_normal(chosen.shape), -1.0, 1.0))
        return RunConfig(
            protocol=shape["protocol"],
            dataset=str(path),
            bounds="-1,1",
            n_total=shape["n_total"],
            k=shape["k"],
            masking=shape["masking"],
            ring_bits=64,
            settings=shape["settings"],
            workers=1,
        )
    return RunConfig(
        protocol=shape["protocol"],
        dataset=f"vertical-mixture:n={shape['records']},d={shape['d']},k={shape['k']},spread=0.1",
        bounds="auto-public",
        n_total=shape["n_total"],
        k=shape["k"],
        rounds=shape["rounds"],
        settings=shape["settings"],
        workers=1,
    )


def measure(shape: dict[str, Any]) -> tuple[float | None, float]:
    """Return the processor seconds that the plan says, None where it does not know, and those that a run takes."""
    from fastlloyd.run.session import find_protocol
    from fastlloyd.run.simulation import run_together
    from fastlloyd.wire.header import SERVER
    from fastlloyd.wire.header import clients as names

    protocol, clients = find_protocol(shape["protocol"]), clients_of(shape)
    with tempfile.TemporaryDirectory() as folder:
        run_together(config_of(small(shape), folder), clients)
        config, inputs = protocol.gather(config_of(shape, folder), clients)
        owned = {me: protocol.load(config, inputs, me) for me in (SERVER, *names(clients))}
        work = protocol.work(config, protocol.planned(config, clients, None))
    with each_its_own() as (centers, compositions):
        begin = time.process_time()
        run_together(config, clients, inputs=inputs, owned=owned)
        taken = time.process_time() - begin
    # The server composes several times to find the noise, each client once.
    taken += (clients - 1) * sum(centers) + clients * max(compositions, default=0.0)
    return None if isinstance(work, str) else work.total, taken


@contextlib.contextmanager
def each_its_own() -> Iterator[tuple[list[float], list[float]]]:
    """Measure what the parties of one thread share, so that it is computed once: first centres, and compositions of noise."""
    from fastlloyd.kmeans import initial
    from fastlloyd.privacy import accountant

    def timed(cached: Any, found: list[float]) -> Any:
        def compute(*given: Any) -> Any:
            begin = time.process_time()
            made = cached.__wrapped__(*given)
            found.append(time.process_time() - begin)
            return made

        return functools.lru_cache(None)(compute)

    centers, compositions = [], []
    packing, compose = initial.sphere_packing, accountant._compose
    users = [module for module in sys.modules.values() if getattr(module, "sphere_packing", None) is packing]
    once = timed(packing, centers)
    for module in users:
        module.sphere_packing = once
    accountant._compose = timed(compose, compositions)
    try:
        yield centers, compositions
    finally:
        for module in users:
            module.sphere_packing = packing
        accountant._compose = compose


def small(shape: dict[str, Any]) -> dict[str, Any]:
    """Return the smallest shape of the same parties."""
    settings = {} if shape["protocol"] in VERTICAL else shape["settings"]
    return {**shape, "records": 200, "n_total": 200, "d": shape["parties"], "k": 2, "settings": settings}


def run_processes(shape: dict[str, Any]) -> float:
    """Return the processor seconds of all processes of a run over TCP."""
    before = children()
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(shape, folder)
        flags = [
            "--protocol",
            config.protocol,
            "--dataset",
            config.dataset,
            "--bounds",
            config.bounds,
            "--workers",
            "1",
        ]
        flags += ["--n-total", str(config.n_total), "--k", str(config.k), "--output", f"{folder}/o", "--quiet"]
        flags += ["--setup-deadline", "3600", "--deadline", "3600"]
        flags += ["--masking", config.masking, "--ring-bits", str(config.ring_bits)] if "masking" in shape else []
        flags += [] if config.rounds is None else ["--rounds", str(config.rounds)]
        for table, values in shape["settings"].items():
            flags += [word for name, value in values.items() for word in ("--set", f"{table}.{name}={value}")]
        run = [sys.executable, "-m", "fastlloyd", "run", "-n", str(1 + clients_of(shape)), *flags]
        subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
    return children() - before


def children() -> float:
    """Return the processor seconds of all processes that this one has ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def row_of(shape: dict[str, Any], processes: bool) -> list[str]:
    """Measure a shape in a fresh process, and in a run's; return its row."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, "--one", json.dumps(shape)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode:
        refused = done.stderr.strip().splitlines()[-1]
        planned, taken = None, None
        print(f"left out: {shape}: {refused}", file=sys.stderr)
    else:
        planned, taken = json.loads(done.stdout.splitlines()[-1])
    ratio = "" if planned is None else f"{taken / planned:.2f}"
    beyond = ""
    if processes and planned is not None:
        more = run_processes(shape) - run_processes(small(shape))
        beyond = f"{more / planned:.2f}" if more > LEAST_SECONDS else ""
    return [
        shape["protocol"],
        *(f"{shape[name]:,}" for name in ("n_total", "records", "d", "k", "parties")),
        str(shape["rounds"] or ("" if "masking" in shape else 1)),
        shape["settings"].get("vertical", {}).get("align", "")
        or shape["settings"].get("feddp", {}).get("start", "")
        or shape["masking"],
        "not known" if planned is None else f"{planned:.2f}",
        "refused" if taken is None else f"{taken:.2f}",
        ratio,
        beyond,
    ]


def summary(rows: list[list[str]]) -> str:
    """Say the median and the worst ratio of each protocol, in one thread and in processes."""
    lines = []
    for protocol in dict.fromkeys(row[0] for row in rows):
        for place, where in ((10, "in one thread"), (11, "in processes, less their start")):
            ratios = [float(row[place]) for row in rows if row[0] == protocol and row[place]]
            if ratios:
                worst = max(ratios, key=lambda ratio: max(ratio, 1.0 / ratio))
                within = sum(0.5 <= ratio <= 2.0 for ratio in ratios)
                median = statistics.median(ratios)
                lines.append(
                    f"- {protocol}, {where}: median {median:.2f}, worst {worst:.2f}; {within} of {len(ratios)} within a "
                    "factor of 2"
                )
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(json.loads(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("protocols", nargs="*", default=PROTOCOLS)
    parser.add_argument("--draws", type=int, default=12, help="shapes of each protocol")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    before = begin_quietly() if arguments.output is not None else None
    rows = []
    for protocol in arguments.protocols:
        stream = random.Random(f"{protocol} {arguments.seed}")
        for _ in range(arguments.draws):
            rows.append(row_of(draw(protocol, stream), arguments.processes))
            print(" | ".join(rows[-1]), flush=True)
    found = summary(rows)
    print(found)
    if arguments.output is not None:
        commit = describe_commit(Path(__file__).parent, Path(__file__).name)
        text = f"""# What `plan` says of processor seconds, and what runs take

{describe_machine()}, commit {commit}; load before the first run {before:.1f}. Ratios are processor seconds taken over those planned, set-up
and rounds together, on shapes drawn at random (seed {arguments.seed}). Made by `python papers/benchmarks/planned_work.py`.

{found}

{markdown_table(HEADER, rows)}
"""
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "planned_work.md").write_text(text)


if __name__ == "__main__":
    main()
