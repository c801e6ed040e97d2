"""What epsilon and delta say, in plain words and no more than they say.

Source: docs/privacy.md, "The promise".
"""

from __future__ import annotations

import math

from fastlloyd.privacy.release import ADD_REMOVE
from fastlloyd.report.unit import format_epsilon

_BASE = 0.01
_SURE = 1.0


def factor_words(epsilon: float) -> str:
    """Write e^epsilon, rounded up: 2.72, 148.5 or 'a factor above a million'.

    Examples
    --------
    >>> factor_words(1.0), factor_words(20.0)
    ('2.719', 'more than a million')
    """
    return "more than a million" if epsilon > math.log(1e6) else format_epsilon(math.exp(epsilon))


def promise_words(epsilon: float, delta: float, unit: str, neighbours: str = ADD_REMOVE) -> list[str]:
    """Say what (epsilon, delta) promises about one unit of privacy.

    Parameters
    ----------
    epsilon, delta : float
    unit : str
        What neighbours differ in.
    neighbours : str
        How they differ, as releases name it.

    Returns
    -------
    list of str
        Two sentences or three, each true by the definition alone.
    """
    plus = f" plus {delta:.3g}" if delta > 0.0 else ""
    allowed = math.exp(min(epsilon, 50.0)) * _BASE + delta
    if allowed < _SURE:
        example = (
            "For example, whatever somebody would conclude with chance 1 % in the second world, they conclude with "
            f"chance at most {100.0 * allowed:.3g} % in the first."
        )
    else:
        example = (
            "For example, what somebody would conclude with chance 1 % in the second world, they may conclude with "
            "certainty in the first: an epsilon of this size limits little by itself."
        )
    return [
        f"Take {unit}. Compare two worlds: {worlds(neighbours)}, and all else is the same. The chance of any outcome "
        f"in the one world is at most {factor_words(epsilon)} times its chance in the other{plus}. This holds for "
        "all messages that those whom the promise is against receive in this run (not for when they come), for "
        "whatever they compute from them, and whatever else they know.",
        example,
        *(_delta_words(delta) if delta > 0.0 else []),
    ]


def worlds(neighbours: str) -> str:
    """Say how the two worlds differ that the promise compares."""
    if neighbours.startswith("add-remove"):
        return "in one it takes part in the run, in the other it does not"
    return (
        f"in one its values count, in the other they do not ({neighbours}); that it is among the records is known in "
        "both"
    )


def _delta_words(delta: float) -> list[str]:
    return [
        f"Delta, {delta:.3g}, is what the promise leaves out: by itself it would not exclude that a record comes out "
        "whole with that chance."
    ]
