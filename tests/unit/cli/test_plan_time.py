"""`fastlloyd plan` for the Lloyd family: about how long the rounds take."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from fastlloyd.cli.plan import main
from fastlloyd.errors import ConfigError

TIME = re.compile(
    r"^time: about (?P<lan>[\d.]+) ms a round on a lan \(0\.25 ms per message\), (?P<wan>[\d.]+) ms on a wan "
    r"\(25 ms\); (?P<all_lan>[-\d.e+]+) s and (?P<all_wan>[-\d.e+]+) s for all rounds, on a machine like that of the "
    r"benchmarks$"
)


@pytest.fixture
def plan_times(capsys: pytest.CaptureFixture[str]):
    def read(*flags: str, n_total: int = 100_000, k: int = 5, d: int = 5) -> dict[str, float]:
        assert main(["--d", str(d), "--k", str(k), "--n-total", str(n_total), "--ring-bits", "64", *flags]) == 0
        (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("time:"))
        found = TIME.match(line)
        assert found is not None, line
        return {name: float(value) for name, value in found.groupdict().items()}

    return read


@pytest.mark.parametrize("protocol", ["fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "lloyd"])
def test_a_wan_costs_two_longer_messages_a_round(plan_times, protocol: str) -> None:
    times = plan_times("--protocol", protocol)
    assert times["wan"] - times["lan"] == pytest.approx(2 * (25 - 0.25), abs=0.02)


def test_time_grows_with_records_clusters_and_features(plan_times) -> None:
    by_records = [plan_times(n_total=n)["lan"] for n in (1_000, 100_000, 1_000_000, 10_000_000)]
    by_clusters = [plan_times(k=k)["lan"] for k in (2, 5, 16, 128)]
    by_features = [plan_times(d=d)["lan"] for d in (2, 16, 128)]
    for times in (by_records, by_clusters, by_features):
        assert all(shorter < longer for shorter, longer in pairwise(times))


def test_all_rounds_take_their_number_times_one(plan_times) -> None:
    times = plan_times("--rounds", "7")
    assert times["all_lan"] == pytest.approx(7 * times["lan"] / 1e3, rel=0.01)
    assert times["all_wan"] == pytest.approx(7 * times["wan"] / 1e3, rel=0.01)


def test_the_largest_client_counts(plan_times) -> None:
    equal, uneven = plan_times(), plan_times("--client-caps", "90000,10000")
    more = plan_times("-n", "11")
    assert more["lan"] < equal["lan"] < uneven["lan"]
    with pytest.raises(ConfigError, match="--client-caps: expected one number for each of 2 clients, got 3"):
        plan_times("-n", "3", "--client-caps", "1,2,3")


# Rows of fastlloyd-table3.md (lan) and fastlloyd-scaling.md, measured with two clients: the estimate is a rough one.
@pytest.mark.parametrize(
    "n_total,k,d,measured_ms",
    [
        (10_000, 2, 2, 1.40),
        (10_000, 5, 5, 1.52),
        (100_000, 2, 2, 1.61),
        (100_000, 5, 5, 2.35),
        (100_000, 5, 5, 3.27),
        (1_000_000, 5, 5, 15.18),
        (100_000, 16, 5, 5.24),
        (100_000, 64, 5, 14.47),
        (100_000, 128, 5, 28.93),
        (100_000, 512, 5, 70.41),
        (100_000, 5, 16, 4.94),
        (100_000, 5, 128, 21.09),
        (100_000, 5, 512, 80.07),
    ],
)
def test_the_estimate_is_near_what_was_measured(plan_times, n_total: int, k: int, d: int, measured_ms: float) -> None:
    assert plan_times("--protocol", "fastlloyd", n_total=n_total, k=k, d=d)["lan"] == pytest.approx(
        measured_ms, rel=0.35
    )
