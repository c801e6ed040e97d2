import numpy as np
import pytest

from fastlloyd.kmeans.update import movements


def test_a_shift_is_the_root_mean_square_over_features_in_shares_of_their_range():
    before = np.array([[-1.0, 0.0], [0.5, 0.5]])
    after = np.array([[-1.0 + 0.6, 0.8], [0.5, 0.5]])  # 0.3 and 0.4 of the range 2
    (moved,) = movements([before, after])
    assert moved is not None
    assert moved.largest == pytest.approx(np.sqrt((0.3**2 + 0.4**2) / 2)) and moved.mean == pytest.approx(
        moved.largest / 2
    )


def test_a_centre_across_the_whole_domain_moves_by_one():
    (moved,) = movements([np.full((1, 7), -1.0), np.full((1, 7), 1.0)])
    assert moved == (1.0, 1.0)


def test_rounds_without_centres_before_or_after_have_none():
    centres = np.zeros((2, 2))
    assert movements([None, None, centres, centres]) == (None, None, (0.0, 0.0))
    assert movements([centres]) == () == movements([None])
