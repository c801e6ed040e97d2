"""What `plan` says of a run's computing: it is about what the run takes, and deadlines that are too short are named."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastlloyd.cli.plan import main
from fastlloyd.run.config import RunConfig
from fastlloyd.run.session import find_protocol
from fastlloyd.run.simulation import run_together
from fastlloyd.run.work import Work, machine_factor, measured_linear, work_lines
from fastlloyd.wire.header import SERVER
from fastlloyd.wire.header import clients as names

_FACTOR = 3.0
"""Processor seconds vary with what else a machine does; papers/benchmarks/planned_work.py measures more closely."""


def config_of(protocol: str, n: int, d: int, k: int, **more: object) -> RunConfig:
    values = {"dataset": f"vertical-mixture:n={n},d={d},k={k},spread=0.1", "bounds": "auto-public"}
    return RunConfig(protocol=protocol, k=k, workers=1, **{**values, **more})


@pytest.mark.slow  # it measures time
@pytest.mark.parametrize(
    ("config", "clients"),
    [
        (config_of("vertical-he", 20_000, 2, 4), 1),  # linear
        (config_of("vertical-he", 100, 40, 2, rounds=2), 1),  # the circuit, with many columns
        (config_of("vertical-he", 600, 2, 2, n_total=4000, settings={"vertical": {"align": "intersect"}}), 1),
        (config_of("vertical-dp", 50_000, 4, 5), 2),
        (config_of("vertical-dp", 8_000, 12, 4), 4),  # sketches of six pairs
    ],
    ids=["records", "columns", "ids", "sketches", "pairs"],
)
def test_a_run_takes_about_the_processor_seconds_that_its_plan_says(config: RunConfig, clients: int) -> None:
    protocol = find_protocol(config.protocol)
    plan = protocol.planned(config, clients, None)
    work = protocol.work(config, plan)
    assert isinstance(work, Work)
    run_together(config, clients)  # libraries are read, contexts made
    begin = time.process_time()
    run_together(config, clients)
    ratio = (time.process_time() - begin) / (work.setup + work.rounds * work.round)
    assert 1 / _FACTOR < ratio < _FACTOR


def planned_and_taken(
    folder: Path, protocol: str, n: int, d: int, k: int, clients: int, more: dict[str, Any]
) -> tuple[Work, float, int]:
    """Plan and make a run of records; gives the work, its processor seconds, and its rounds."""
    random = np.random.default_rng(0)
    means = random.uniform(-0.7, 0.7, (k, d))
    points = np.clip(means[random.integers(0, k, n)] + 0.1 * random.standard_normal((n, d)), -1.0, 1.0)
    np.save(folder / "points.npy", points)
    settings = {"dataset": str(folder / "points.npy"), "bounds": "-1,1", "ring_bits": 64, "workers": 1, **more}
    asked = RunConfig(protocol=protocol, k=k, n_total=n, **settings)
    of = find_protocol(protocol)
    config, inputs = of.gather(asked, clients)
    owned = {me: of.load(config, inputs, me) for me in (SERVER, *names(clients))}
    run_together(config, clients, inputs=inputs, owned=owned)  # libraries are read, the first centres computed
    work = of.work(config, of.planned(config, clients, None))
    assert isinstance(work, Work)
    begin = time.process_time()
    ended = run_together(config, clients, inputs=inputs, owned=owned)
    taken = time.process_time() - begin
    results = (outcome.result for outcome in ended.outcomes.values())
    return work, taken, next(len(result.common["rounds"]) for result in results if result is not None)


@pytest.mark.slow  # it measures time
@pytest.mark.parametrize(
    ("protocol", "n", "d", "k", "clients", "more"),
    [
        ("fastlloyd", 300_000, 20, 20, 3, {}),
        ("fastlloyd", 20_000, 5, 5, 20, {"masking": "threshold"}),
        ("fastlloyd-plus", 20_000, 20, 60, 3, {}),
        ("lloyd", 400, 2_000, 40, 2, {"rounds": 10}),
        ("feddp", 5_000, 400, 5, 3, {"settings": {"feddp": {"start": "private"}}}),
    ],
    ids=["passes", "openings", "swaps", "numbers", "shares"],
)
def test_a_run_of_records_takes_about_what_its_plan_says(
    tmp_path: Path, protocol: str, n: int, d: int, k: int, clients: int, more: dict[str, Any]
) -> None:
    work, taken, _ = planned_and_taken(tmp_path, protocol, n, d, k, clients, more)
    assert 1 / _FACTOR < taken / work.total < _FACTOR


def test_a_plan_of_a_thousand_million_people_is_quick_and_says_what_they_would_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["-n", "3", "--protocol", "vertical-dp", "--d", "4", "--k", "3", "--n-total", "1000000000"]
    begin = time.process_time()
    assert main(flags) == 0
    assert time.process_time() - begin < 30
    assert "warning: the set-up is estimated at" in capsys.readouterr().out


@pytest.mark.slow  # it measures time
def test_the_time_of_this_machine_is_measured_once_and_does_not_depend_on_what_ran_before() -> None:
    """Arrays that needed new pages made it three times as long in a fresh process."""
    fresh = "from fastlloyd.run.work import machine_factor; print(machine_factor())"
    done = subprocess.run([sys.executable, "-c", fresh], capture_output=True, text=True, check=True)
    held = [np.zeros(1 << 20) for _ in range(8)]
    del held
    again = machine_factor.__wrapped__()
    assert 0.5 < float(done.stdout) / again < 2.0
    assert machine_factor() == machine_factor()


@pytest.mark.slow  # it measures time
@pytest.mark.parametrize(
    ("protocol", "n", "d", "k", "clients", "least", "more"),
    [
        ("secfc", 4000, 2, 2, 4, 0.25, {}),  # seeds
        ("secfc", 2000, 20, 8, 5, 0.25, {}),
        ("secfc", 2000, 4, 3, 4, 0.25, {"settings": {"secfc": {"membership": True}}, "client_caps": (500,) * 4}),
        ("kfed", 60_000, 10, 10, 3, 0.0, {}),  # the records need a tenth of the steps
        ("kfed", 20_000, 40, 5, 3, 0.0, {}),
    ],
    ids=["seeds", "iterations", "owners hidden", "few columns", "many columns"],
)
def test_rounds_take_at_most_what_their_plan_says(
    tmp_path: Path, protocol: str, n: int, d: int, k: int, clients: int, least: float, more: dict[str, Any]
) -> None:
    work, taken, rounds = planned_and_taken(tmp_path, protocol, n, d, k, clients, more)
    assert work.most and least < taken / (work.setup + rounds * work.round) < 1.5


def test_an_unknown_cost_is_said_to_be_unknown() -> None:
    (line,) = work_lines(RunConfig(), "nobody measured this")
    assert str(line) == "work: processor seconds are not known beforehand: nobody measured this"


def test_rounds_that_the_records_decide_are_the_most_there_can_be() -> None:
    work = Work(rounds=300, setup=1.0, round=2.0, setup_wait=0.5, round_wait=90.0, most="the records decide")
    line, warning = map(str, work_lines(RunConfig(), work))
    assert "at most 2 a round, at most 600 with 300 rounds: " in line and line.endswith("; the records decide")
    assert warning.startswith("warning: a round may take 90 seconds, --deadline is 60: ")


def test_a_round_of_messages_takes_their_delays_as_well() -> None:
    work = Work(rounds=10, setup=1.0, round=2.0, setup_wait=0.5, round_wait=1.0, messages=4, ending=3.0)
    (line,) = map(str, work_lines(RunConfig(), work))
    assert "24 with 10 rounds" in line and line.endswith(
        "; with 0.25 ms a message a round takes about 1 seconds, with 25 ms 1.1"
    )


def test_a_job_is_measured_on_two_numbers_of_records() -> None:
    def prepare(n: int) -> Callable[[], object]:
        return lambda: sum(range(100_000)) + sum(range(1000 * n))

    found = measured_linear(prepare, 4000)
    assert found.each > 0.0 and found.fixed < found.of(1000) < found.of(2000)
    assert measured_linear(prepare, 1).fixed == 0.0


def test_deadlines_that_the_estimate_exceeds_are_named_with_what_to_give() -> None:
    work = Work(rounds=10, setup=1700.0, round=41.0, setup_wait=849.2, round_wait=80.0, because="ids")
    first, *warnings = map(str, work_lines(RunConfig(), work))
    assert first.startswith("work: about 1,700 processor seconds of set-up (ids) and 41 a round, 2,100 with 10 rounds:")
    assert warnings == [
        "warning: the set-up is estimated at 849 seconds, --setup-deadline is 300: give all parties --setup-deadline "
        "1274 or more",
        "warning: a round is estimated at 80 seconds, --deadline is 60: give all parties --deadline 120 or more",
    ]
    assert len(work_lines(RunConfig(setup_deadline=900.0, deadline=81.0), work)) == 1


def test_a_plan_says_that_common_ids_of_a_large_n_take_long(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["-n", "2", "--protocol", "vertical-he", "--d", "2", "--k", "3", "--set", "vertical.align=intersect"]
    assert main([*flags, "--n-total", "20000000"]) == 0
    said = capsys.readouterr().out
    assert "of set-up (mostly to find the common ids in lists of N entries)" in said
    assert "warning: the set-up is estimated at" in said and "give all parties --setup-deadline" in said
    assert main([*flags, "--n-total", "5000", "--setup-deadline", "86400"]) == 0
    assert "warning" not in capsys.readouterr().out
