"""`fastlloyd plan` of protocols whose clients hold records: what a run computes, and about how long a round takes."""

from __future__ import annotations

import re

import pytest

from fastlloyd.cli.plan import main
from fastlloyd.errors import ConfigError

NUMBER = r"([\d.,e+-]+)"
WORK = re.compile(
    rf"^work: about {NUMBER} processor seconds of set-up and {NUMBER} a round, {NUMBER} with \d+ rounds?: of all "
    rf"parties together, for as many records as N, on a machine like this one; with 0\.25 ms a message a round takes "
    rf"about {NUMBER} seconds, with 25 ms {NUMBER}$"
)


@pytest.fixture
def planned(capsys: pytest.CaptureFixture[str]):
    def read(*flags: str, n_total: int = 100_000, k: int = 5, d: int = 5) -> tuple[float, ...]:
        assert main(["--d", str(d), "--k", str(k), "--n-total", str(n_total), "--ring-bits", "64", *flags]) == 0
        (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("work:"))
        found = WORK.match(line)
        assert found is not None, line
        return tuple(float(value.replace(",", "")) for value in found.groups())

    return read


PROTOCOLS = [
    ("fastlloyd", ()),
    ("fastlloyd", ("--masking", "pairwise")),
    ("fastlloyd", ("--masking", "threshold", "-n", "6")),
    ("fastlloyd-plus", ()),
    ("glloyd", ()),
    ("sulloyd", ()),
    ("lloyd", ()),
    ("feddp", ("--set", "feddp.start=private")),
    ("feddp", ("--set", "feddp.start=sphere-packing", "--masking", "threshold", "-n", "6")),
]


@pytest.mark.parametrize(("protocol", "flags"), PROTOCOLS)
def test_a_plan_says_what_a_run_takes_and_that_longer_messages_take_longer(
    planned, protocol: str, flags: tuple[str, ...]
) -> None:
    setup, each, whole, lan, wan = planned("--protocol", protocol, *flags)
    assert 0.0 < setup <= whole and 0.0 < each <= whole
    messages = 4 if "threshold" in flags else 2
    # Both are written with two digits.
    assert wan - lan == pytest.approx(messages * (25e-3 - 2.5e-4), abs=0.06 * (wan + lan))


@pytest.mark.slow  # compares measured times
def test_a_round_grows_with_records_clusters_and_features(planned) -> None:
    _, few, *_ = planned("--protocol", "fastlloyd")
    for more in ({"n_total": 10_000_000}, {"k": 200}, {"d": 400}):
        assert planned("--protocol", "fastlloyd", **more)[1] > 2.0 * few


@pytest.mark.slow  # compares measured times
def test_a_step_of_feddp_grows_with_records_and_with_the_square_of_the_features(planned) -> None:
    flags = ("--protocol", "feddp", "--set", "feddp.start=private")
    few, more, wide = (planned(*flags, n_total=n, d=d)[1] for n, d in ((1000, 20), (1_000_000, 20), (1000, 800)))
    assert more > 5.0 * few and wide > 5.0 * few


@pytest.mark.slow  # compares measured times
def test_a_round_takes_as_long_as_its_largest_client(planned) -> None:
    n = 20_000_000
    equal = planned("--protocol", "fastlloyd", n_total=n)
    uneven = planned("--protocol", "fastlloyd", "--client-caps", f"{n - 10},10", n_total=n)
    many = planned("--protocol", "fastlloyd", "-n", "11", n_total=n)
    assert many[3] < 0.5 * equal[3] and equal[3] < 0.8 * uneven[3]


def test_caps_of_other_clients_are_refused(planned) -> None:
    with pytest.raises(ConfigError, match="--client-caps: expected one number for each of 2 clients, got 3"):
        planned("-n", "3", "--client-caps", "1,2,3")


def test_a_deadline_that_a_round_exceeds_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--protocol", "fastlloyd", "--d", "50", "--k", "50", "--ring-bits", "64", "--n-total", "2000000000"]
    assert main([*flags, "--deadline", "5"]) == 0
    said = capsys.readouterr().out
    assert re.search(
        r"warning: a round is estimated at \d+ seconds, --deadline is 5: give all parties --deadline \d", said
    )
    assert "time:" not in said


@pytest.mark.parametrize("chosen", ["kfed", "secfc", "secfc --set secfc.membership=true"])
def test_a_plan_says_at_most_where_the_records_decide(chosen: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*f"--protocol {chosen}".split(), "--d", "5", "--k", "5", "--n-total", "1000", "-n", "5"]) == 0
    assert re.search(r"work: .* and at most \S+ a round, .*; the records decide how many ", capsys.readouterr().out)


def test_a_plan_says_why_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--protocol", "vertical-dp", "--d", "6", "--k", "5", "--n-total", "1000", "-n", "3"]
    assert main([*flags, "--set", "vertical-dp.estimator=basic"]) == 0
    assert "work: processor seconds are not known beforehand: nobody measured" in capsys.readouterr().out
