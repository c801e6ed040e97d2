"""What is said of a plan's noise, in one sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.report.outlook import Expected, percent


@pytest.mark.parametrize(
    ("share", "verdict", "words"),
    [
        (0.004, "good", "noise of 0.4 % of the range on an average centre: good"),
        (0.05, "poor", "poor; take fewer"),
        (4.789, "noise", "noise of 479 % of the range on an average centre: this result would be noise; take fewer"),
        (None, "unknown", "cannot be told"),
    ],
)
def test_what_to_expect_is_one_sentence(share, verdict, words):
    found = Expected(centre_noise=share, k=2, d=2)
    assert found.verdict == verdict and words in found.sentence


@given(st.floats(0, 1e4))
def test_percent_is_near(share):
    assert float(percent(share).removesuffix(" %")) == pytest.approx(100 * share, rel=0.06, abs=1e-12)


@pytest.mark.parametrize(
    ("least", "verdict", "words"),
    [
        (
            0.004,
            "unknown",
            "cannot be told before the run; noise of at least 0.4 % of the range on an average centre, if",
        ),
        (
            4.789,
            "noise",
            "noise of at least 479 % of the range on an average centre, if it is: this result would be noise",
        ),
    ],
)
def test_where_only_the_least_noise_is_known_nothing_is_called_good(least, verdict, words):
    found = Expected(centre_noise=None, k=2, d=2, least=least, if_least="if it is")
    assert found.verdict == verdict and words in found.sentence
    assert found.to_dict()["centre_noise"] is None
