"""fastlloyd: private federated k-means that organisations can actually run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastlloyd.version import __version__

if TYPE_CHECKING:
    from fastlloyd.estimator.estimator import Budget, FastLloyd

__all__ = ["Budget", "FastLloyd", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the estimator only when it is asked for: parties never need scikit-learn."""
    if name in ("Budget", "FastLloyd"):
        from fastlloyd.estimator import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module 'fastlloyd' has no attribute {name!r}")
