"""Features of which all centres lie on one bound: what the released centres tell of a wrong unit.

A value outside of the bounds counts as the bound. So where all values of a feature lie beyond one, all centres lie
there, give or take the noise; and where all centres lie there, the feature tells no clusters apart.

Privacy: post-processing of released centres and of the known noise. How many values were clipped is known to the owner
of the records alone (`data/bounds.py`), and does not enter.

Source: docs/report.md, "Quality".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Halves of a 95 % range: the noise keeps a centre whose records all lie on a bound within these, all but surely.
_REACH = 2.0
_LISTED = 12


def pinned_words(
    scaled: NDArray[np.float64],
    reach: NDArray[np.float64],
    *,
    extreme: NDArray[np.bool_] | None = None,
    names: Sequence[str] | None = None,
) -> list[str]:
    """Name the features whose centres all lie within the noise of the same bound; a sentence for each side.

    Parameters
    ----------
    scaled : float64 array, shape (k, d)
        Released centres, scaled domain [-1, 1]; of clusters that are not empty.
    reach : float64 array, shape (k, d)
        Half of each coordinate's 95 % range.
    extreme : bool array, shape (d,), optional
        Features that lie on their bounds by nature, as categories do.
    names : sequence of str, length d, optional
    """
    said: list[str] = []
    for side, sign in (("upper", 1.0), ("lower", -1.0)):
        on_bound = (1.0 - sign * scaled <= _REACH * reach).all(axis=0) & bool(len(scaled))
        places = np.flatnonzero(on_bound if extreme is None else on_bound & ~extreme).tolist()
        if places:
            listed = ", ".join(str(place + 1) if names is None else names[place] for place in places[:_LISTED])
            more = f" and {len(places) - _LISTED} more" if len(places) > _LISTED else ""
            each, its = ("features", "their") if len(places) > 1 else ("feature", "its")
            said.append(
                f"all centres lie within the noise of the {side} bound in {each} {listed}{more}: nearly all values lie "
                f"there or beyond, or the other bound is far off; check {its} units and bounds"
            )
    return said
