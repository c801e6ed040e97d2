"""What all parties of a histogram agree on, and what it releases.

Each record lies in one of k bins of equal width between the bounds of the column. Each client counts its own records;
the server adds the masked counts and noise; the clients take the masks off.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, RangeError
from fastlloyd.party.plain_plan import ACCOUNTING_SLACK, PlainPlan, check_epsilon, same_named
from fastlloyd.privacy.accountant import SAMPLER_DELTA
from fastlloyd.privacy.calibration import calibrate, gaussian_noise_multiplier, stated_delta
from fastlloyd.privacy.limits import check_clients, check_numbers
from fastlloyd.privacy.release import Release

RING_BITS = 32
# The noise passes that many standard deviations with a chance below 2^-100.
_TAIL = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicParameters:
    """What is configured alike at all parties.

    Attributes
    ----------
    k : int
        Bins.
    n_total : int
        Public upper bound N on all records together.
    delta : float or None
        None: the default, 1 / (100 N).

    Raises
    ------
    ConfigError
        A value is out of range.
    """

    protocol: str = "histogram"
    clients: int
    k: int
    n_total: int
    epsilon: float
    delta: float | None

    def __post_init__(self) -> None:
        check_clients(self.clients)
        if not 2 <= self.k <= 10_000:
            raise ConfigError(f"--k: expected 2 to 10000 bins, got {self.k}")
        check_numbers(n_total=self.n_total, epsilon=self.epsilon, delta=self.delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(PlainPlan):
    """Everything public that one run needs; the server proposes it, each client checks it.

    Attributes
    ----------
    min_clients : int
        All of them: the histogram is one round.
    scale : float
        Standard deviation of the noise on each count.
    """

    protocol: str
    clients: int
    min_clients: int
    k: int
    names: tuple[str, ...]
    n_total: int
    epsilon: float
    delta: float
    scale: float

    def all_releases(self) -> tuple[Release, ...]:
        """Return what the run releases: its only round's."""
        return self.releases(0)

    def releases(self, t: int) -> tuple[Release, ...]:
        """Return what round t, the only one, releases.

        Notes
        -----
        Neighbours: one record added or removed. Sensitivity: a record is counted in one bin, so one of the k counts
        moves by 1 and the vector of all counts by 1 in the L2 norm. Noise: rounded normal on each count, which is the
        normal noise on integers, rounded afterwards.
        """
        return _releases(self.scale)


def _releases(scale: float) -> tuple[Release, ...]:
    counts = Release(round=0, name="counts", mechanism="gaussian", norm="l2", sensitivity=1.0, noise_scale=scale)
    return (counts,)


def make_plan(public: PublicParameters, names: tuple[str, ...]) -> Plan:
    """Make the plan; run by the server, and by each client to check the server's.

    Raises
    ------
    ConfigError
        There is more than one column.
    RangeError
        The counts and their noise do not fit the ring.
    """
    if len(names) != 1:
        raise ConfigError(f"histogram takes one column, got {len(names)}: name it with --columns")
    delta = stated_delta(public.delta, public.n_total)
    start = gaussian_noise_multiplier(public.epsilon, delta - SAMPLER_DELTA)
    scale, _ = calibrate(_releases, public.epsilon, delta, start)
    if public.n_total + _TAIL * scale >= 1 << (RING_BITS - 1):
        raise RangeError(f"--n-total: counts of {public.n_total} records with this noise do not fit {RING_BITS} bits")
    return Plan(
        **same_named(Plan, public),
        min_clients=public.clients,
        names=names,
        delta=delta,
        scale=scale,
    )


def check_plan(plan: Plan, public: PublicParameters, names: tuple[str, ...]) -> float:
    """Check the server's plan against a client's own configuration; gives the epsilon that it spends.

    Raises
    ------
    ValueError
        It differs, or spends more than the client agreed to: the server is at fault.
    """
    own = make_plan(public, names)
    plan.compare({name: value for name, value in own.values().items() if name != "scale"})
    if not plan.scale <= own.scale * (1.0 + ACCOUNTING_SLACK):
        raise ValueError(f"it has noise of scale {plan.scale:g}, expected at most {own.scale:g}")
    return check_epsilon(plan.all_releases, plan.delta, most=public.epsilon)


def bins_of(points: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Return each record's bin, int64, shape (n,), from values scaled to [-1, 1], shape (n, 1)."""
    return np.clip(np.floor((points[:, 0] + 1.0) * (k / 2.0)), 0, k - 1).astype(np.int64)


def middles(k: int) -> NDArray[np.float64]:
    """Return the middle of each bin in the scaled domain, shape (k, 1)."""
    return ((2.0 * np.arange(k) + 1.0) / k - 1.0)[:, np.newaxis]
