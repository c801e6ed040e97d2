"""The estimator's parameters: types, ranges, bounds, and errors in the words of a Python caller.

`FastLloyd` stores what it is given; everything is checked here, when `fit` is called.

Source: docs/estimator.md, "Parameters".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fastlloyd.errors import BudgetError, ConfigError, DataError, RangeError
from fastlloyd.protocols.registry import names
from fastlloyd.run.config import PAPER_DELTA
from fastlloyd.run.run_file import read_k

_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?: FILE)?")
_PROCESSES = re.compile(r"start with -n (\d+)( or more)?(?: \(rank 0 serves\))?")
_NAMES = {"k": "n_clusters", "seed": "random_state", "set": "settings:"}


class StoredParameters(Protocol):
    """What `FastLloyd` stores of its parameters, unchecked."""

    n_clusters: Any
    epsilon: Any
    delta: Any
    accept_large_delta: Any
    n_total: Any
    bounds: Any
    protocol: Any
    rounds: Any
    random_state: Any
    ring_bits: Any
    settings: Any
    budget: Any
    ledger: Any
    server_data: Any
    _account: Any


class ParameterError(ConfigError, ValueError):
    """A parameter of the estimator is wrong; a ValueError too, as scikit-learn expects."""


@contextmanager
def in_own_words() -> Iterator[None]:
    """Say what is wrong in the words of this class rather than of the command line."""
    try:
        yield
    except (BudgetError, ParameterError):
        raise
    except (ConfigError, DataError, RangeError) as error:
        text = _FLAG.sub(lambda flag: _NAMES.get(flag[1], flag[1].replace("-", "_")), str(error))
        text = _PROCESSES.sub(lambda start: f"give fit_federated {int(start[1]) - 1} arrays{start[2] or ''}", text)
        raise ParameterError(text) from error


def check_parameters(model: StoredParameters) -> None:
    """Check types and ranges; what depends on X or on the protocol is checked later."""
    if model.bounds is None:
        raise ParameterError(
            "bounds: expected (lo, hi), the lowest and highest value that each feature may have, got None; they are "
            "never taken from X, for its extremes are the values of single records: state what is known beforehand, "
            "such as bounds=(0, 120) for an age; values outside count as the bound"
        )
    _check(
        model, "n_clusters", _is_number_of_clusters(model.n_clusters), "a whole number from 1 to 10000, or 'auto:KMAX'"
    )
    _check(model, "epsilon", _is_number(model.epsilon, 1e-3, 100), "a number from 0.001 to 100")
    delta = model.delta in ("auto", PAPER_DELTA) or _is_number(model.delta, 1e-11, 0.5)
    _check(model, "delta", delta, "'auto', 'paper' or a number from 1e-11 to 0.5")
    _check(model, "accept_large_delta", isinstance(model.accept_large_delta, (bool, np.bool_)), "True or False")
    _check(model, "n_total", model.n_total is None or _is_whole(model.n_total, 3, 10**12), "None or 3 to 10^12")
    _check(model, "protocol", model.protocol in names(), f"one of {', '.join(map(repr, names()))}")
    rounds = model.rounds == "auto" or _is_whole(model.rounds, 1, 1000)
    _check(model, "rounds", rounds, "'auto' or a whole number from 1 to 1000")
    seed = model.random_state is None or _is_whole(model.random_state, 0, 2**63)
    _check(model, "random_state", seed, "None or a whole number from 0 to 2^63 (a public seed, not a generator)")
    _check(model, "ring_bits", _is_whole(model.ring_bits, 32, 64) and model.ring_bits in (32, 64), "32 or 64")
    _check(model, "settings", model.settings is None or isinstance(model.settings, Mapping), "None or a mapping")
    _check(model, "budget", _is_budget(model.budget), "None, an epsilon from 0 to 10^6, or (epsilon, delta)")
    _check(model, "ledger", model.ledger is None or isinstance(model.ledger, (str, Path)), "None or a path")


def _check(model: StoredParameters, name: str, good: bool, expected: str) -> None:
    if not good:
        raise ParameterError(f"{name}: expected {expected}, got {getattr(model, name)!r}")


def _is_budget(value: object) -> bool:
    """Whether it is nothing, an epsilon, or an epsilon with a delta."""
    if isinstance(value, tuple):
        return len(value) == 2 and _is_number(value[0], 0, 1e6) and _is_number(value[1], 0, 0.5)
    return value is None or _is_number(value, 0, 1e6)


def _is_number_of_clusters(value: object) -> bool:
    """Whether it is k or, as a string, the largest k."""
    if not isinstance(value, str):
        return _is_whole(value, 1, 10_000)
    try:
        return _is_whole(read_k(value)["k"], 1, 10_000)
    except ConfigError:
        return False


def _is_whole(value: object, low: int, high: int) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral) and low <= int(value) <= high


def _is_number(value: object, low: float, high: float) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and low <= float(value) <= high
