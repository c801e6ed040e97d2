"""Evaluation is refused before a run where it could not be done after it."""

from __future__ import annotations

import sys

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans import metrics


def test_evaluation_without_scikit_learn_is_refused_without_importing_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(sys.modules)
    metrics.check_available()
    assert {name for name in set(sys.modules) - before if name.startswith("sklearn.")} == set()
    monkeypatch.setattr(metrics, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"--evaluate needs scikit-learn: pip install 'fastlloyd\[ml\]'"):
        metrics.check_available()
