"""A fit takes effect as a whole or not at all, and no display shows what is private of it."""

from __future__ import annotations

import copy
import html
import inspect
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from fastlloyd.data.bounds import Bounds
from fastlloyd.errors import BudgetError
from fastlloyd.estimator import estimator as module
from fastlloyd.estimator.estimator import FastLloyd, ParameterError

PACKAGE = str(Path(module.__file__).parents[1])
LO, HI = np.array([0.0, -5000.0]), np.array([120.0, 5000.0])
N = 2917

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def people(n: int = N, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centers = np.array([[20.0, -3000.0], [60.0, 3000.0], [100.0, -2000.0]])
    return centers[rng.integers(0, 3, n)] + rng.normal(0, 1, (n, 2)) * [3.0, 250.0]


def model(**changes: Any) -> FastLloyd:
    return FastLloyd(**{"n_clusters": 3, "epsilon": 5.0, "bounds": (LO, HI), "n_total": 4000, "rounds": 2, **changes})


def state(fitted: FastLloyd) -> dict[str, int]:
    """Everything that an object has, by identity."""
    return {name: id(value) for name, value in vars(fitted).items()}


class Interruption:
    """Raise KeyboardInterrupt at the n-th call, line or return within the package; count them where n is None."""

    def __init__(self, at: int | None, only: Callable[[Any], bool] = lambda frame: True, opcodes: bool = False) -> None:
        self.at, self.seen, self.only, self.opcodes = at, 0, only, opcodes

    def __enter__(self) -> Interruption:
        self.before = sys.gettrace()
        sys.settrace(self.begin)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)

    def begin(self, frame: Any, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE) or not self.only(frame):
            return None
        frame.f_trace_opcodes = self.opcodes
        return self.step(frame, event, argument)

    def step(self, frame: Any, event: str, argument: object) -> Any:
        if event in ("call", "opcode"):
            self.seen += 1
            # Python drops what is raised in a generator that is thrown away: the next step has it.
            if self.at is not None and self.seen >= self.at and frame.f_code.co_name != "<genexpr>":
                self.at = None
                raise KeyboardInterrupt
        return self.step if self.opcodes else None


def interrupted(fitted: FastLloyd, X: Any, watch: Interruption) -> bool:
    """Fit under a watch; say whether it was interrupted."""
    try:
        with watch:
            fitted.fit(X)
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.parametrize("protocol", ["fastlloyd-plus", "secfc"])
def test_an_interrupt_anywhere_leaves_the_object_as_it_was_and_what_was_spent_counted(protocol: str) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(people(60), columns=["age", "cost"])
    parts, swapped = [table[i::3] for i in range(3)], [table[["cost", "age"]][i::3] for i in range(3)]
    settings = {"reveal_centers": True} if protocol == "secfc" else None
    fitted = model(protocol=protocol, settings=settings, bounds=(-5000, 5000), n_total=400).fit_federated(parts)
    before, labels = state(fitted), fitted.predict(table)
    with Interruption(None) as counting:
        clone(fitted).fit_federated(swapped)
    points = np.unique(np.linspace(1, counting.seen, 25).astype(int))
    spent = len(clone(fitted).fit_federated(swapped).ledger_.releases) - len(fitted.ledger_.releases)
    charged = 0
    for at in points:
        known = len(fitted._account.releases)
        with pytest.raises(KeyboardInterrupt), Interruption(int(at)):
            fitted.fit_federated(swapped)
        assert state(fitted) == before
        charged += len(fitted._account.releases) > known
    # All before the releases are counted, or all after it: the first points are before, the last ones after.
    assert spent > 0 and 0 < charged < len(points)
    assert fitted.feature_names_in_.tolist() == ["age", "cost"]
    assert (fitted.predict(table) == labels).all()


def test_an_interrupt_while_a_fit_takes_effect_comes_before_it_or_after() -> None:
    X = people(60)
    fitted = model(rounds=1).fit(X)
    parts = ("whole", "_unfitted")
    inside = lambda frame: frame.f_code.co_filename == module.__file__ and frame.f_code.co_qualname.startswith(parts)  # noqa: E731
    with Interruption(None, inside, opcodes=True) as counting:
        fitted.fit(X)
    outcomes = set()
    # Fits do not take exactly as many steps each: to the first one that is over before it is interrupted.
    for at in (*range(1, counting.seen - 50, 60), *range(counting.seen - 50, 2 * counting.seen)):
        before, ledger = state(fitted), fitted.ledger_
        whole = not interrupted(fitted, X, Interruption(at, inside, opcodes=True))
        if state(fitted) == before:
            outcomes.add("before")
        else:
            outcomes.add("after")
            assert len(fitted.ledger_.releases) > len(ledger.releases)
            assert (fitted.predict(X) == fitted.labels_).all()
        if whole:  # Python 3.14 reports no step after the one in which a fit takes effect
            break
    assert outcomes == {"before", "after"}


def test_a_refused_fit_leaves_columns_and_centres() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(people(), columns=["age", "cost"])
    fitted = model(bounds=Bounds(LO, HI, ("age", "cost")), budget=6.0).fit(table)
    before, labels = state(fitted), fitted.predict(table)
    for refused, error in (
        (table[["cost", "age"]], BudgetError),
        (table.assign(more=1.0), ParameterError),
        (table.rename(columns={"age": "years"}), ParameterError),
        (people()[:, :1], ParameterError),
        (table * np.nan, ValueError),
    ):
        with pytest.raises(error):
            fitted.fit(refused)
        with pytest.raises(error):
            fitted.fit_federated([refused])
        assert state(fitted) == before
    for method in (fitted.predict, fitted.transform, fitted.score):
        with pytest.raises(ValueError, match="feature names"):
            method(table[["cost", "age"]])
        assert state(fitted) == before
    assert (fitted.predict(table) == labels).all()


def test_an_unfitted_object_stays_unfitted_after_a_refusal() -> None:
    fresh = model(n_total=10)
    with pytest.raises(ParameterError, match="n_total"):
        fresh.fit(people())
    assert not hasattr(fresh, "n_features_in_") and not hasattr(fresh, "labels_") and not hasattr(fresh, "bounds_")


def test_parameters_are_set_together_or_not_at_all() -> None:
    fitted = model().fit(people())
    before = state(fitted)
    with pytest.raises(ValueError, match="nonsense"):
        fitted.set_params(epsilon=2.0, nonsense=1)
    assert state(fitted) == before
    assert fitted.set_params(epsilon=2.0, n_clusters=4) is fitted
    assert (fitted.epsilon, fitted.n_clusters) == (2.0, 4) and hasattr(fitted, "labels_")


# -- displays --


def shown(fitted: FastLloyd) -> dict[str, str]:
    """Everything that a notebook shows of an object, and may save."""
    bundle = fitted._repr_mimebundle_()
    pipeline = make_pipeline(copy.copy(fitted))
    return {
        "repr": repr(fitted),
        "str": str(fitted),
        "html": fitted._repr_html_(),
        "pipeline": pipeline._repr_html_(),
        "vars": repr(vars(fitted)),
        "dir": repr(dir(fitted)),
        # What scikit-learn's display of fitted attributes goes through, and any other that looks at an object.
        "members": repr([value for name, value in inspect.getmembers(fitted) if not name.startswith("__")]),
        **{f"bundle {key}": str(value) for key, value in bundle.items()},
    }


@pytest.mark.parametrize("federated", [False, True])
def test_no_display_shows_a_label_or_the_number_of_records(federated: bool) -> None:
    X = people()
    fitted = model().fit_federated([X[:1000], X[1000:]]) if federated else model().fit(X)
    for where, text in shown(fitted).items():
        plain = html.unescape(re.sub(r"<(style|script).*?</\1>", "", text, flags=re.DOTALL))
        assert "labels_ " not in plain and "labels_'" not in plain.replace("'_labels'", ""), where
        for number in (N, N - 1000):
            assert not re.search(rf"(?<![\d.]){number}(?!\d)", plain), where


def test_labels_are_there_for_their_owner() -> None:
    fitted = model().fit(people())
    assert fitted.labels_.shape == (N,) and fitted.labels_.dtype == np.int64
    for again in (copy.copy(fitted), copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        assert (again.labels_ == fitted.labels_).all()
        assert "labels_" not in dir(again)
    assert (model().fit_predict(people()) >= 0).all()
    del fitted.labels_
    assert not hasattr(fitted, "labels_") and hasattr(fitted, "cluster_centers_")
    with pytest.raises(AttributeError, match="not fitted yet, or they were deleted"):
        fitted.labels_
    assert not hasattr(clone(fitted.fit(people())), "labels_")


def test_a_public_copy_predicts_and_has_nothing_of_the_owner(tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((317, 2))
    values = {"n_clusters": 2, "epsilon": 50.0, "bounds": (0, 1), "n_total": 400, "budget": 99.0}
    fitted = FastLloyd(**values, ledger=tmp_path / "ledger.jsonl").fit(X)
    with pytest.raises(NotFittedError):
        FastLloyd(**values).public()
    handed = pickle.loads(pickle.dumps(fitted.public()))
    assert (handed.predict(X) == fitted.labels_).all() and handed.epsilon_ == fitted.epsilon_
    assert not hasattr(handed, "labels_") and not hasattr(handed, "ledger_") and not hasattr(handed, "epsilon_spent_")
    assert handed._account.releases == () and handed.ledger is None and handed.budget is None
    content = pickle.dumps(fitted.public())
    assert str(tmp_path).encode() not in content and b"317" not in content
    assert len(fitted.labels_) == 317 and "releases of 1 run>" in repr(fitted.ledger_)
