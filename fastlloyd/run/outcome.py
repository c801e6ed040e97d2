"""What a party has at the end, as values: claim, result, and what came out of the closing exchange.

The protocol says which party has the result, and what it claims. `run/files.py` writes all of it down.

Source: docs/report.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.categories import Categories
from fastlloyd.data.records import RawRows
from fastlloyd.errors import PeerError
from fastlloyd.kmeans.update import Movement
from fastlloyd.privacy.release import Release
from fastlloyd.report.claim import Claim, no_claim
from fastlloyd.report.files import bounds_csv, centroids_csv, elbow_csv, sizes_csv
from fastlloyd.report.outlook import Expected
from fastlloyd.report.quality import UNKNOWN, Quality, ResultNoise, judge
from fastlloyd.report.signed import Covers, SignedRecord
from fastlloyd.wire.header import PartyId

__all__ = ["Claim", "Cost", "Foreseen", "Outcome", "Result", "common_part", "no_claim"]
_NONE_LEFT = "no cluster reaches the run's --min-size, so none is published"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one round has cost a party: seconds, and bytes on its own links; None where it was done before a resume."""

    seconds: float | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None


def common_part(facts: Any, **given: Any) -> dict[str, Any]:
    """Return `Session.shared_entries`: faces of other packages still call this, with `session.facts`."""
    entries: dict[str, Any] = facts.shared_entries(**given)
    return entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """What a run would claim and release, from public numbers alone.

    Attributes
    ----------
    claim : Claim
        As the report of that run will have it.
    releases : sequence of Release
        All that are planned.
    parameters : mapping
        As in the report.
    masking : {'common', 'pairwise'} or None
    note : str
        What was assumed because it is not known before the run; empty: nothing.
    expected : Expected or None
        What the planned noise leaves of the result; None where the protocol cannot tell.
    """

    claim: Claim
    releases: Sequence[Release]
    parameters: Mapping[str, Any]
    masking: str | None = None
    note: str = ""
    expected: Expected | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a party that has the result knows of it: plain values, from which report, files, plots and tables follow.

    Attributes
    ----------
    common : mapping
        What `Session.shared_entries` gave.
    claim : Claim
    features : tuple of str
    bounds : Bounds
        Of these features, in this order.
    centroids : float64 array, shape (k, d), or None
        Released, in original units; None where the centres are not revealed.
    noisy_sizes : tuple of float, or None
    exact_sizes : tuple of int, or None
        Of a protocol without noise that shows them in a file of their own.
    left_out : int or None
        How many clusters are not in this result because they are smaller than `--min-size`; None without that.
    noise : ResultNoise
        How far off the released values may be.
    releases : sequence of Release
        Of this run, as they stand in the ledger.
    evaluated : float64 array, shape (k, d), or None
        Scaled centres that `--evaluate` compares with the true records of a public set; None if there are none.
    evaluated_rows : int64 array or None
        The rows of the public set that the clients hold; None for all.
    movement : sequence of Movement or None, or None
        How far the released centres moved in each round; None where they did not, or carry no noise.
    costs : float64 array, or None
        Costs that the number of clusters was chosen by.
    extra : mapping from file name to text
        Further shared files.
    covers : {'result', 'centroids'}
        What this party has of it and signs: all, or all but the noisy sizes.
    """

    common: Mapping[str, Any]
    claim: Claim
    features: tuple[str, ...]
    bounds: Bounds
    centroids: NDArray[np.float64] | None
    noisy_sizes: tuple[float, ...] | None
    releases: Sequence[Release]
    evaluated: NDArray[np.float64] | None
    evaluated_rows: NDArray[np.int64] | None = None
    movement: Sequence[Movement | None] | None = None
    costs: NDArray[np.float64] | None = None
    noise: ResultNoise = UNKNOWN
    exact_sizes: tuple[int, ...] | None = None
    left_out: int | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    covers: Covers = "result"

    @property
    def files(self) -> dict[str, str]:
        """The files that are the same at every party with the result, by name."""
        made = {"bounds.csv": bounds_csv(self.features, self.bounds), **self.extra}
        if self.exact_sizes is not None:
            made["sizes.csv"] = sizes_csv(self.exact_sizes)
        if self.centroids is not None:
            made = {"centroids.csv": centroids_csv(self.features, self.centroids), **made}
            if self.costs is not None:
                made["elbow.csv"] = elbow_csv(self.costs, self.chosen)
        return made

    @property
    def chosen(self) -> int:
        """The number of clusters that the run came to, those that are left out included."""
        return (0 if self.centroids is None else len(self.centroids)) + (self.left_out or 0)

    def without_small(self, least: int) -> tuple[Result, NDArray[np.int64] | None]:
        """Leave out each cluster whose size is below a public threshold; a size that is not known is below it.

        Parameters
        ----------
        least : int
            1 or more.

        Returns
        -------
        Result
            The others, in their order, with the values that they had.
        int64 array, shape (k,), or None
            The new number of each cluster; of one that is left out, that of the nearest one that stays, by their
            centres, or -1 where no centre tells. None: no cluster stays.

        Notes
        -----
        Privacy: post-processing. It reads released values and a public number alone, so the result satisfies whatever
        claim the released values satisfy, and spends nothing.
        """
        sizes = np.array(self.noisy_sizes if self.exact_sizes is None else self.exact_sizes or (), dtype=np.float64)
        if self.noisy_sizes is None and self.exact_sizes is None:
            sizes = np.full(0 if self.centroids is None else len(self.centroids), -np.inf)
        kept = np.flatnonzero(sizes >= least)
        count, left = len(sizes), len(sizes) - len(kept)
        if not left:
            return replace(self, left_out=0), np.arange(count)
        evaluated = self.evaluated
        if evaluated is not None:
            evaluated = evaluated[kept] if len(kept) and len(evaluated) == count else None
        exact = None if self.exact_sizes is None else tuple(self.exact_sizes[place] for place in kept)
        if not len(kept):
            noise = ResultNoise(exact=self.noise.exact, expected=self.noise.expected)
            none = replace(self, centroids=None, noisy_sizes=None, noise=noise, evaluated=None)
            return replace(none, exact_sizes=exact, left_out=left), None
        numbers = np.full(count, -1)
        numbers[kept] = np.arange(len(kept))
        if self.centroids is not None:
            half = (self.bounds.hi - self.bounds.lo) / 2.0
            apart = (((self.centroids[:, None, :] - self.centroids[None, kept, :]) / half) ** 2).sum(axis=2)
            apart[np.isnan(apart)] = np.inf  # a protocol may hide the centre of a cluster
            near = apart.argmin(axis=1)
            gone = (numbers < 0) & np.isfinite(apart.min(axis=1))
            numbers[gone] = near[gone]
        result = replace(
            self,
            centroids=None if self.centroids is None else self.centroids[kept],
            noisy_sizes=None if self.noisy_sizes is None else tuple(self.noisy_sizes[place] for place in kept),
            exact_sizes=exact,
            noise=self.noise.only(kept),
            evaluated=evaluated,
            left_out=left,
        )
        return result, numbers

    @property
    def quality(self) -> Quality:
        """How much of the result is signal."""
        if self.left_out and self.left_out == self.chosen and self.noise.without_centres is None:
            sentence = f"unknown: {_NONE_LEFT}"
            return Quality(verdict="unknown", sentence=sentence, warnings=(_NONE_LEFT,), expected=self.noise.expected)
        lo, hi = self.bounds.lo, self.bounds.hi
        categories = Categories.from_json(self.common["parameters"].get("categories", {})).names
        extreme = np.array([name in categories for name in self.features], dtype=np.bool_)
        return judge(
            self.noise,
            centroids=self.centroids,
            sizes=self.noisy_sizes,
            lo=lo,
            hi=hi,
            extreme=extreme,
            names=self.features,
        )

    @property
    def entry(self) -> dict[str, Any]:
        """The report's entry `result`."""
        return {
            "features": list(self.features),
            "noisy_sizes": None if self.noisy_sizes is None else list(self.noisy_sizes),
            "movement": None if self.movement is None else [one and one._asdict() for one in self.movement],
            **({} if self.left_out is None else {"left_out": self.left_out}),
        }

    def record(self) -> SignedRecord:
        """Return what a party signs of it."""
        return SignedRecord(
            common=self.common,
            releases=[release.to_dict() for release in self.releases],
            features=self.features,
            noisy_sizes=self.noisy_sizes,
            left_out=self.left_out,
            files=self.files,
            covers=self.covers,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a party has at the end of its session; its files' `write` stores it.

    Attributes
    ----------
    traffic : mapping
        The report's entry: of all parties whose counters came.
    signatures : mapping or None
        The report's entry, the writer's still to come; None without a roster.
    fault : PeerError or None
        What a peer did wrong in the last exchange: the result stands, and what that peer says of others counts less.
    result : Result or None
        None for a party that does not have it.
    record : SignedRecord or None
        What a server without the result signed, and its report says.
    late : frozenset of PartyId
        Clients that missed the last round; the end does not wait for them.
    raw_labels : int64 array, shape (n,), or None
        Of its own records.
    raw_rows : RawRows or None
        The rows of its file behind these records.
    raw_files : mapping from file name to text
        Further files that are this party's alone.
    """

    traffic: Mapping[str, Any]
    signatures: Mapping[str, Any] | None = None
    fault: PeerError | None = None
    result: Result | None = None
    record: SignedRecord | None = None
    late: frozenset[PartyId] = frozenset()
    raw_labels: NDArray[np.int64] | None = field(default=None, repr=False)
    raw_rows: RawRows | None = field(default=None, repr=False)
    raw_files: Mapping[str, str] = field(default_factory=dict, repr=False)
