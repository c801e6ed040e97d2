"""How much of a result is signal: what the noise leaves of what was released.

A protocol says how much noise lies on what it released (`ResultNoise`); this module judges it, the same for every
protocol.

Privacy: post-processing. Everything here follows from public numbers, from released values and from the known
distribution of the noise; no record, label or exact count enters. So everybody who may read the result may read it.

Source: docs/report.md, "Quality".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import format_count, name_some
from fastlloyd.report.outlook import ADVICE, Expected, Verdict, grade, most_for_good, percent
from fastlloyd.report.ranges import MOST_CLUSTERS, NORMAL_TAIL, overlapping, pinned_words

# Limits chosen on generated data: docs/report.md, "How the verdict was calibrated".
_MERGE_OVER_NOISE, _MERGE_OVER_OTHERS, _LEFT_OVER_SHAPELESS = 30.0, 0.275, 1.0
_BLIND_OVER_NOISE, _BLIND_OVER_OTHERS, _BLIND_APART = 20.0, 0.19, 0.5  # no release contains the spread
_HALVES_APART, _MERGE_OVER_SPLIT, _LEAST_SHARE = 0.8, 0.08, 0.1
_MORE_TO_GAIN, _LEFT_OVER_APART, _LEFT_OVER_CUBES, _EVEN = 1.2, 0.5, 2.0, 1.5
_STEPS_OVER_NOISE, _STEPS_OVER_OTHERS = 4.5, 0.0025
_HALVES_OVER_LEFT, _NOISE_IS_SEEN, _NOISE_IS_UNSEEN = 8.0, 0.1, 0.03
# With a larger share of far records the share explained says too little.
_FAR = 0.05
_LISTED, _NAMED_FEATURES = 12, 3
# A centre on a bound counts where the noise on that coordinate is at least this share of the range, for records may lie
# on a bound as well.
_LEAST_ON_BOUND = 0.01
_AGAIN = "another run spends epsilon again and needs new approvals"
# How often each sign was right: papers/benchmarks/results/verdicts.md.
_ELSEWHERE = (
    "nine of ten generated results with this sign were clearly worse than the best; another --seed or another number "
    f"of clusters may do better ({_AGAIN})"
)
_NO_REASON = (
    "two of three generated results with this sign were about as good as the best: no reason to spend epsilon again"
)
_LONGER = f"take more --rounds or another --seed ({_AGAIN})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultNoise:
    """How far off a released result may be by the noise alone, in the order of its clusters.

    Attributes
    ----------
    exact : bool
        No noise was added at all.
    size_ranges : float64 array, shape (k, 2), or None
        95 % ranges of the sizes, records; None without sizes, or if their noise is not known.
    centre_deviations : float64 array, shape (k, d), or None
        Standard deviation on each coordinate, scaled domain [-1, 1]; infinite if the centre may be anywhere.
    unsettled : float64 array, shape (k, d), or None
        Standard deviation of errors other than noise: the parts of a centre may not have converged. It only widens the
        ranges of centres.
    tail : float
        Half the width of a 95 % range over the standard deviation.
    spread : float or None
        Mean squared distance of all records from their mean, scaled domain, from a release; None if none contains it.
    spread_deviation : float
        Standard deviation of the noise on `spread`.
    steps : float64 array, shape (k, d), or None
        Full step of each centre in the last round's release, scaled domain; None if the release does not contain it.
    step_deviations : float64 array, shape (k,), or None
        Standard deviation of the noise on each coordinate of a step.
    stands_out : bool or None
        Whether the number of clusters that was chosen stands out; None if it was given.
    measured : mapping from str to (float, float, float)
        Released figures on the quality of the clusters by their measure, as quality.csv has them: number, low and high
        end of its 95 % range; empty where none was released.
    expected : Expected or None
        What the plan said.
    without_centres : (str, str) or None
        Verdict, and what it is about, of a result that has no centres by itself, such as a description.
    """

    exact: bool = False
    size_ranges: NDArray[np.float64] | None = None
    centre_deviations: NDArray[np.float64] | None = None
    unsettled: NDArray[np.float64] | None = None
    tail: float = NORMAL_TAIL
    spread: float | None = None
    spread_deviation: float = 0.0
    steps: NDArray[np.float64] | None = None
    step_deviations: NDArray[np.float64] | None = None
    stands_out: bool | None = None
    measured: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    expected: Expected | None = None
    without_centres: tuple[Verdict, str] | None = None

    def only(self, kept: NDArray[np.int64]) -> ResultNoise:
        """Return the same for some of the clusters; `kept` holds their numbers."""
        names = ("size_ranges", "centre_deviations", "unsettled", "steps", "step_deviations")
        parts: dict[str, Any] = {name: values[kept] for name in names if (values := getattr(self, name)) is not None}
        return replace(self, **parts)


EXACT = ResultNoise(exact=True)
UNKNOWN = ResultNoise()


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The verdict on a result; `to_dict` is the entry `quality` of report.json.

    Attributes
    ----------
    verdict : {'good', 'fair', 'poor', 'noise', 'exact', 'unknown'}
        'exact': no noise was added; 'unknown': no release shows the noise.
    sentence : str
        The same in words, with the figure.
    warnings : tuple of str
        Sentences; empty without doubts.
    expected : Expected or None
    size_ranges : float64 array, shape (k, 2), or None
        Records.
    centre_margins : float64 array, shape (k, d), or None
        Half the width of the 95 % range of each coordinate, original units.
    empty, at_bounds : tuple of int
        Clusters whose size may be 0; clusters whose centre the noise may have moved onto a bound.
    overlapping : tuple of pairs of int
        Centres that cannot be told apart.
    """

    verdict: Verdict
    sentence: str
    warnings: tuple[str, ...] = ()
    expected: Expected | None = None
    size_ranges: NDArray[np.float64] | None = None
    centre_margins: NDArray[np.float64] | None = None
    empty: tuple[int, ...] = ()
    at_bounds: tuple[int, ...] = ()
    overlapping: tuple[tuple[int, int], ...] = ()

    def __repr__(self) -> str:
        more = f"; {format_count(len(self.warnings), 'warning')}" if self.warnings else ""
        return f"<Quality: {self.sentence}{more}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the report."""
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "warnings": list(self.warnings),
            "expected": None if self.expected is None else self.expected.to_dict(),
            "size_ranges": None if self.size_ranges is None else self.size_ranges.tolist(),
            "centre_margins": None if self.centre_margins is None else self.centre_margins.tolist(),
            "empty": list(self.empty),
            "at_bounds": list(self.at_bounds),
            "overlapping": [list(pair) for pair in self.overlapping],
        }


def judge(
    noise: ResultNoise,
    *,
    centroids: NDArray[np.float64] | None,
    sizes: Sequence[float] | None,
    lo: NDArray[np.float64],
    hi: NDArray[np.float64],
    extreme: NDArray[np.bool_] | None = None,
    names: Sequence[str] | None = None,
) -> Quality:
    """Judge a result.

    Parameters
    ----------
    noise : ResultNoise
    centroids : float64 array, shape (k, d), or None
        Released, in original units.
    sizes : sequence of float, length k, or None
        Released.
    lo, hi : float64 array, shape (d,)
        The public bounds.
    extreme : bool array, shape (d,), optional
        Features whose values lie on the bounds by nature, such as categories: a centre there is no sign of a fault.
    names : sequence of str, length d, optional
        Of the features, for warnings.

    Privacy
    -------
    Post-processing of released values and of the known noise.
    """
    if noise.exact:
        return Quality(verdict="exact", sentence="exact: no noise was added to this result")
    half = (hi - lo) / 2.0
    empty: tuple[int, ...] = ()
    if noise.size_ranges is not None:
        empty = tuple(np.flatnonzero(noise.size_ranges[:, 0] < 1.0).tolist())
    if noise.without_centres is not None:
        verdict, about = noise.without_centres
        return Quality(
            verdict=verdict,
            sentence=f"{verdict}: {about}",
            warnings=tuple(_warnings(verdict, about, None, empty=empty)),
            size_ranges=noise.size_ranges,
            empty=empty,
        )
    if centroids is None or noise.centre_deviations is None or not np.isfinite(centroids).all():
        return _unknown(noise, empty)
    scaled = (centroids - (lo + hi) / 2.0) / half
    deviations = np.minimum(noise.centre_deviations, 2.0)
    whole = deviations if noise.unsettled is None else np.hypot(deviations, noise.unsettled)
    # Nothing lies outside the domain, so a range ends where the domain does.
    margins = np.minimum(noise.tail * whole, 1.0 + np.abs(scaled))
    at_bounds = _at_bounds(scaled, noise.tail * deviations, extreme)
    pairs = tuple(pair for pair in overlapping(scaled, deviations) if not set(pair) & set(empty))
    weights = _weights(sizes, len(scaled))
    added = float(weights @ (deviations**2).sum(axis=1))
    left = _left(scaled, weights, added, noise)
    usual = grade(added / half.size, k=scaled.shape[0], d=scaled.shape[1])
    graded = _seen(usual, added, left, noise)
    doubts = [] if empty or pairs else _doubtful(scaled, weights, added, left, noise)
    doubts += _unclear(len(scaled), noise.stands_out)
    kept = [cluster for cluster in range(len(scaled)) if cluster not in empty]
    on_bound = pinned_words(scaled[kept], noise.tail * whole[kept], extreme=extreme, names=names)
    lost = len({*empty, *(max(pair) for pair in pairs)})
    verdict = _lower(graded, doubtful=bool(doubts or on_bound), lost=lost, k=len(scaled))
    figure = f"noise of {percent(math.sqrt(added / half.size) / 2.0)} of the range on a centre"
    known = "" if verdict == "noise" else f"{_known(margins * half, weights, names)}; "
    compared = _limit(*scaled.shape) if left is None or graded == usual else _over_spread(added, left)
    sentence = f"{verdict}: {known}{figure} ({compared})"
    if lost and verdict != graded:
        unclear = " or ".join(["empty"] * bool(empty) + ["another"] * bool(pairs))
        of = format_count(len(scaled), "cluster")
        sentence = f"{verdict}: {lost} of {of} cannot be told from {unclear}; {figure}"
    elif verdict != graded:
        sentence += ", but its clusters may lie badly" if doubts else ", but a feature lies on its bound"
    sentence += _measured_words(noise.measured)
    reason = "" if graded == "good" else figure
    if left is not None and added > _NOISE_IS_SEEN * left:
        reason = _over_spread(added, left)
    warnings = _warnings(verdict, reason, noise.expected, empty=empty, at_bounds=at_bounds, pairs=pairs)
    return Quality(
        verdict=verdict,
        sentence=sentence,
        warnings=(*warnings, *doubts, *on_bound),
        expected=noise.expected,
        size_ranges=noise.size_ranges,
        centre_margins=margins * half,
        empty=empty,
        at_bounds=at_bounds,
        overlapping=pairs,
    )


def _limit(k: int, d: int) -> str:
    """Say up to which noise k centres of d features are good: more clusters lie closer together."""
    most = percent(most_for_good(k=k, d=d))
    return f"good is up to {most} for {format_count(k, 'cluster')} and {format_count(d, 'feature')}"


def _over_spread(added: float, left: float) -> str:
    """Say how much of the spread within clusters the noise is."""
    if added >= left:
        return "it is as large as the spread within clusters, or larger"
    return f"it adds about {percent(added / left)} to the spread within clusters"


def _known(margins: NDArray[np.float64], weights: NDArray[np.float64], names: Sequence[str] | None) -> str:
    """Say how well centres are known, in the units of the features: half of a usual 95 % range.

    Parameters
    ----------
    margins : float64 array, shape (k, d)
        Half of each coordinate's range, original units.
    weights : float64 array, shape (k,)
        Each cluster's share of the records.
    names : sequence of str, length d, or None
    """
    usual = (weights @ margins).tolist()
    called = [f"feature {place + 1}" for place in range(len(usual))] if names is None else names
    # Two digits, and no exponent before a person with a table of euros.
    said = [f"{float(f'{one:.2g}'):.12g} in {name}" for one, name in zip(usual, called, strict=True)][:_NAMED_FEATURES]
    *first, last = said
    listed = f"{', '.join(first)} and {last}" if first else last
    return f"centres are known to about {listed}" + (f", of {len(usual)} features" if len(usual) > len(said) else "")


def _measured_words(measured: Mapping[str, tuple[float, float, float]]) -> str:
    """Say what was released on the quality of the clusters, as ranges; nothing where nothing was."""
    words = {"explained": "share of the spread explained", "silhouette": "silhouette", "far": "share of far records"}
    said = [f"{words[name]} {measured[name][1]:.2g} to {measured[name][2]:.2g}" for name in words if name in measured]
    return f"; released with 95 % ranges: {', '.join(said)}" if said else ""


def _at_bounds(
    scaled: NDArray[np.float64], reach: NDArray[np.float64], extreme: NDArray[np.bool_] | None
) -> tuple[int, ...]:
    """Return the clusters whose centre noise may have moved onto a bound; `reach` is half of a centre's range."""
    on_bound = (np.abs(scaled) >= 1.0 - 1e-9) & (reach >= 2.0 * _LEAST_ON_BOUND)
    if extreme is not None:
        on_bound &= ~extreme
    return tuple(np.flatnonzero(on_bound.any(axis=1)).tolist())


def _lower(graded: Verdict, *, doubtful: bool, lost: int, k: int) -> Verdict:
    """Return the grade of the noise, or a lower one for doubts and for clusters that are empty or equal."""
    if lost and 2 * lost >= k:
        return "noise"
    if lost and graded in ("good", "fair"):
        return "poor"
    return "fair" if doubtful and graded == "good" else graded


def _weights(sizes: Sequence[float] | None, k: int) -> NDArray[np.float64]:
    """Return each cluster's share of the records; sizes below zero count as none."""
    weights = np.ones(k) if sizes is None else np.maximum(np.asarray(sizes, dtype=np.float64), 0.0)
    if weights.sum() <= 0.0:
        weights = np.ones(k)
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def _doubtful(
    centres: NDArray[np.float64], weights: NDArray[np.float64], added: float, left: float | None, noise: ResultNoise
) -> list[str]:
    """Return sentences why k-means may have stopped at a poor local optimum, although the noise is small.

    Merging two clusters adds w_i w_j / (w_i + w_j) |c_i - c_j|^2 to the cost per record. If the cheapest merge costs
    little, compared with the noise or with the distances of the others, probably one cluster was cut in two, and
    another one holds two: one that gains more from a split than most. Merging a small cluster far from all others also
    costs little, but it is no half of another: it is doubted only if splitting another cluster could gain much more, or
    if it is tiny. The spread that is left shows a poor optimum only if clusters of similar size are not far apart.
    If the rounds ended too early, the last steps are longer than their noise.

    Two halves of a normal cluster lie 1.6 of its deviations apart. So where a release contains the spread, clusters
    that lie further apart than what is left within clusters explains are no halves. Elsewhere the limits are narrower.
    """
    k, d = centres.shape
    if not 1 < k <= MOST_CLUSTERS:
        return []
    apart = ((centres[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    both = np.maximum(weights[:, None] + weights[None, :], 1e-12)
    cost = weights[:, None] * weights[None, :] / both * apart
    for matrix in (apart, cost):
        np.fill_diagonal(matrix, np.inf)
    one, other = sorted(int(place) for place in np.unravel_index(np.argmin(cost), cost.shape))
    near = apart.min(axis=1)
    least, others = float(cost.min()), float(weights @ near)
    # What a split may gain grows with a cluster's records and with how far away its neighbours are.
    gain = float(np.delete(weights * near, [one, other]).max(initial=0.0))
    over_noise, over_others, share_apart = _MERGE_OVER_NOISE, _MERGE_OVER_OTHERS, _HALVES_APART
    if left is None:
        over_noise, over_others, share_apart = _BLIND_OVER_NOISE, _BLIND_OVER_OTHERS, _BLIND_APART
    halves = apart[one, other] < share_apart * others or least < _MERGE_OVER_SPLIT * gain
    noisy = least < over_noise * added and gain * k > _MORE_TO_GAIN * others
    separate = left is not None and apart[one, other] * d > _HALVES_OVER_LEFT * left
    then = _ELSEWHERE if left is None else _NO_REASON
    said = []
    if (noisy or (halves and least * k < over_others * others)) and not separate:
        said.append(f"clusters {one} and {other} may be one that was cut in two, and another may hold two: {then}")
    tiny = tuple(np.flatnonzero(weights * k < _LEAST_SHARE).tolist())
    if tiny:
        have = "have" if len(tiny) > 1 else "has"
        said.append(
            f"{_named('cluster', tiny)} {have} less than a tenth of an equal share of the records, perhaps outliers, "
            f"and {'the other' if k == 2 else 'another'} may hold two: {then}"
        )
    # Equal cubes leave a twelfth of d times the square of their distance. A few outliers far away set nothing apart.
    even = float(weights.max()) * k < _EVEN
    far = min(_LEFT_OVER_APART, _LEFT_OVER_CUBES * d / 12.0) * others * even
    shapeless = _LEFT_OVER_SHAPELESS * _spread(noise) * float(k ** (-2.0 / d))
    if left is not None and left > max(shapeless, far) and not _surely_explained(noise.measured, k, d):
        said.append(
            "the clusters leave as much of the spread as clusters of data without structure would, so these features "
            f"may hold no separate clusters: {_NO_REASON}"
        )
    if (moved := _moved(weights, noise)) > _STEPS_OVER_OTHERS * others:
        said.append(
            f"the centres still moved in the last round, by about {percent(math.sqrt(moved / others))} of the distance "
            f"between neighbours: {_LONGER}"
        )
    return said


def _surely_explained(measured: Mapping[str, tuple[float, float, float]], k: int, d: int) -> bool:
    """Return whether the released share of the spread is surely more than clusters without structure would explain."""
    if not {"explained", "far"} <= measured.keys() or measured["far"][2] > _FAR:
        return False  # distances of far records count less than they are
    return measured["explained"][1] > 1.0 - float(k ** (-2.0 / d))


def _unclear(k: int, stands_out: bool | None) -> list[str]:
    """Return a sentence if the number of clusters that was chosen does not stand out."""
    if stands_out is None or stands_out:
        return []
    return [
        f"no number of clusters stands out, and {k} is uncertain: on generated data about half of such choices were "
        f"right; give --k the number that you need ({_AGAIN})"
    ]


def _spread(noise: ResultNoise) -> float:
    """Return the mean squared distance of all records from their mean, taken one deviation larger than released."""
    return (noise.spread or 0.0) + noise.spread_deviation


def _left(centres: NDArray[np.float64], weights: NDArray[np.float64], added: float, noise: ResultNoise) -> float | None:
    """Return the spread that is left within clusters, of a spread as `_spread`; None if no release contains it."""
    if noise.spread is None:
        return None
    return _spread(noise) - float(weights @ ((centres - weights @ centres) ** 2).sum(axis=1)) + added


def _seen(graded: Verdict, added: float, left: float | None, noise: ResultNoise) -> Verdict:
    """Return the grade of the noise, which supposes usual features, corrected by the spread within clusters if known.

    The noise adds `added` to the cost per record, and `left` is what the cost is without it.
    """
    if left is None:
        return graded
    if graded == "good" and added > _NOISE_IS_SEEN * left:
        return "fair"
    if graded == "fair" and added < _NOISE_IS_UNSEEN * (left - 3.0 * noise.spread_deviation):
        return "good"
    return graded


def _moved(weights: NDArray[np.float64], noise: ResultNoise) -> float:
    """Return the mean square of the centres' last steps without that of their noise; 0 if noise explains them."""
    if noise.steps is None or noise.step_deviations is None:
        return 0.0
    d, variances = noise.steps.shape[1], noise.step_deviations**2
    moved = float(weights @ ((noise.steps**2).sum(axis=1) - d * variances))
    # The squares of d normal numbers add up to d variances, with a deviation of sqrt(2 d) variances.
    doubt = math.sqrt(2.0 * d * float((weights**2) @ variances**2))
    return moved if moved > _STEPS_OVER_NOISE * doubt else 0.0


def _unknown(noise: ResultNoise, empty: tuple[int, ...]) -> Quality:
    """Judge a result with centres whose noise is not known."""
    expected = noise.expected
    verdict: Verdict = "poor" if empty else "unknown"
    sentence = f"{verdict}: nothing that was released tells how much noise lies on the centres"
    if expected is not None and expected.centre_noise is not None:
        sentence += f"; the plan expected {expected.sentence}"
    return Quality(
        verdict=verdict,
        sentence=sentence,
        warnings=tuple(_warnings(verdict, "", expected, empty=empty)),
        expected=expected,
        size_ranges=noise.size_ranges,
        empty=empty,
    )


def _warnings(
    verdict: Verdict,
    figure: str,
    expected: Expected | None,
    *,
    empty: Sequence[int],
    at_bounds: Sequence[int] = (),
    pairs: Sequence[tuple[int, int]] = (),
) -> list[str]:
    """Return what is doubtful, each in one sentence."""
    said = []
    if verdict == "noise":
        said.append(
            f"this result is mostly noise{f' ({figure})' if figure else ''}: do not use it; {ADVICE} ({_AGAIN})"
        )
    elif verdict in ("fair", "poor") and figure:
        said.append(f"noise may have made this result worse than it could be ({figure})")
    said_before = ("fair", "poor", "noise") if verdict == "unknown" else ("noise",)
    if expected is not None and expected.verdict in said_before:
        said.append(f"the plan said: {expected.sentence}")
    if empty:
        said.append(f"{_named('cluster', empty)} cannot be told from empty: 0 lies within the 95 % range of the size")
    if at_bounds:
        said.append(f"{_named('centre', at_bounds)} may lie on a bound for the noise alone")
    if pairs:
        shown = ", ".join(f"{one} and {other}" for one, other in pairs[:_LISTED])
        more = f" and {len(pairs) - _LISTED} more pairs" if len(pairs) > _LISTED else ""
        said.append(f"centres {shown}{more} cannot be told apart by more than noise")
    return said


def _named(noun: str, numbers: Sequence[int]) -> str:
    """Name clusters by their numbers.

    Examples
    --------
    >>> _named("cluster", [1]), _named("cluster", [1, 3])
    ('cluster 1', 'clusters 1, 3')
    """
    return f"{noun}{'s' if len(numbers) > 1 else ''} {name_some(numbers, _LISTED)}"
