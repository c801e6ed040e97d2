"""A description of the clusters of a finished run: what is public, what is released, and what people read.

Each client labels its own records by the released centres and adds up, for each cluster, its size, the bins of each
column, and half the sum of the scaled values of each column of numbers; and over all clusters what says how good they
are. It is one masked sum with noise of one or both.

Source: docs/privacy.md, "Descriptions of clusters" and "Quality of clusters".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastlloyd.describe.coding import CodedRecords, Layout
from fastlloyd.describe.columns import DescribedColumn, columns_from_json, count_bins
from fastlloyd.describe.difference import compare
from fastlloyd.describe.estimates import (
    Consistent,
    Shown,
    describable_from,
    describe,
    grade,
    hide_small,
    make_consistent,
)
from fastlloyd.describe.quality import Judged, QualityVector, quality_csv
from fastlloyd.errors import ConfigError, format_count
from fastlloyd.party.option import option
from fastlloyd.privacy.accountant import SAMPLER_DELTA
from fastlloyd.privacy.calibration import gaussian_noise_multiplier, stated_delta
from fastlloyd.protocol.masked import masked_flow, masked_sights
from fastlloyd.protocol.sums import Floats, MaskedSums, Part, SumsEnd, SumsParameters, SumsPlan
from fastlloyd.protocols.describe.inputs import DescribedRecords, load_described
from fastlloyd.protocols.describe.rounds import (
    PART,
    QUALITY,
    LabelledRecords,
    add_up,
    add_up_quality,
    profile_csv,
)
from fastlloyd.report.display import csv_cell
from fastlloyd.report.names import DESCRIBED_NAMES, ClusterNames
from fastlloyd.report.outlook import PlanLine, Verdict
from fastlloyd.report.quality import ResultNoise
from fastlloyd.report.ranges import NORMAL_TAIL
from fastlloyd.report.sight import Flow, Sight, Sights
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Result
from fastlloyd.run.session import Session
from fastlloyd.wire.header import PartyId

_SUMS = "noisy sizes and noisy counts and sums of the described columns in each cluster, hence the description"
_QUALITY_SUMS = "five noisy sums over all records, hence how good the clusters are"
QUALITY_SHARE = 0.2
"""Of 1/sigma^2 for the quality in a description by columns, unless another share is given."""
_LEAST_SHARE = 0.001
# docs/privacy.md, "What the server learns of the run".
_NUMBER = Sight(
    "the server, of the run that is described",
    "how many clusters it released, and their names if people named them",
    "the noise of that run; nothing, if that run had common masks, whose noise the server knew, and its clients chose "
    "the number of clusters or left small ones out",
    bare=True,
)
Noisy = Mapping[str, Floats]
# Verdict and words on a release of the quality alone, by how much of it is shown.
_OF_QUALITY: dict[Shown, tuple[Verdict, str]] = {
    "fine": ("good", "numbers with ranges on how good the clusters are"),
    "coarse": ("fair", "wide ranges on how good the clusters are"),
    "nothing": ("noise", "too few records for this budget to say how good the clusters are"),
}
_RANGES = (
    "A range is about the noise of this release, for these records and the released centres. It holds no sampling: "
    "other patients of the same kind may differ by more."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeSettings:
    """What the parties describe; `settle` makes it.

    Attributes
    ----------
    columns : str
        The columns as JSON, the number of bins settled.
    run : str
        Id of the run whose clusters are described.
    quality : float
        Share of 1/sigma^2 for their quality: 0 for none, 1 without columns.
    names : str
        Names that people chose for the clusters, as JSON; empty for none.
    """

    columns: str = option("", "the columns as JSON, as `settle` of this package writes them")
    run: str = option("", "id of the finished run, as its report.json has it")
    quality: float = option(
        0.0, "share of the budget for the quality of the clusters: 0 for none, 1 without columns", least=0, most=1
    )
    names: str = option("", "names of the clusters by number, as JSON; public")

    @property
    def layout(self) -> Layout | None:
        """Where each number of the vector of columns stands; None without columns.

        Raises
        ------
        ConfigError
            The text is no columns, their number of bins is not settled, or the share for the quality does not fit.
        """
        if not self.columns:
            if self.quality == 1.0:
                return None
            raise ConfigError(
                "--set describe.columns: expected the columns that describe the clusters, or describe.quality=1 for "
                "their quality alone, got none"
            )
        if self.quality and not _LEAST_SHARE <= self.quality <= 1.0 - _LEAST_SHARE:
            raise ConfigError(
                f"--set describe.quality: expected 0, or with columns a share from {_LEAST_SHARE:g} to "
                f"{1.0 - _LEAST_SHARE:g}, got {self.quality:g}"
            )
        try:
            values = json.loads(self.columns)
        except ValueError as error:
            raise ConfigError(f"--set describe.columns: not valid JSON ({error})") from None
        layout = Layout(columns_from_json(values, "--set describe.columns"))
        _ = layout.width  # refuses columns whose bins are not settled
        return layout

    def called(self, k: int) -> ClusterNames:
        """Return the names of k clusters.

        Raises
        ------
        ConfigError
            The text is no names, or they do not fit.
        """
        if not self.names:
            return ClusterNames()
        where = "--set describe.names"
        try:
            values = json.loads(self.names)
        except ValueError as error:
            raise ConfigError(f"{where}: not valid JSON ({error})") from None
        if not isinstance(values, dict):
            raise ConfigError(f"{where}: expected names by the number of their cluster, got another value")
        return ClusterNames.check(values, where, k)


def settle(columns: tuple[DescribedColumn, ...], public: SumsParameters, *, share: float = 1.0) -> str:
    """Return the columns as JSON, the number of bins by the public rule where they name none.

    Parameters
    ----------
    columns : tuple of DescribedColumn
    public : SumsParameters
        Of the run that describes: its N, k, epsilon and masks.
    share : float
        Of 1/sigma^2 that is left for the columns.
    """
    delta = stated_delta(public.delta, public.n_total)
    sigma = gaussian_noise_multiplier(public.epsilon, delta - SAMPLER_DELTA) * public.all_noise
    noise = sigma * math.sqrt((1.0 + len(columns)) / share)
    bins = count_bins(n_total=public.n_total, k=public.k, noise=noise)
    return json.dumps([column.settle(bins).to_json() for column in columns], ensure_ascii=True)


def _of_clusters(found: Consistent, sizes: Floats) -> tuple[Verdict, str]:
    """Return verdict and words on clusters of these released sizes, by how much of each is shown."""
    grades = [grade(found.noise, size) for size in sizes.tolist()]
    fine, nothing, k = grades.count("fine"), grades.count("nothing"), len(grades)
    verdict: Verdict = "noise" if nothing == k else "poor" if nothing else "good" if fine == k else "fair"
    kinds = {"with numbers": fine, "with ranges alone": k - fine - nothing, "too small for this budget": nothing}
    about = ", ".join(f"{count} {words}" for words, count in kinds.items() if count)
    return verdict, f"of {format_count(k, 'cluster')} {about}"


class Describe(MaskedSums):
    """One round of noisy masked sums over the clusters of a finished run."""

    settings = DescribeSettings
    default_rounds: ClassVar[int] = 1

    def load(self, config: RunConfig, inputs: Any, me: PartyId) -> Any:
        """Load a client's own records, by clusters and bins; the server has none."""
        chosen: DescribeSettings = self.chosen(inputs.public.settings, config.protocol)
        columns = () if chosen.layout is None else chosen.layout.columns
        return None if me.is_server else load_described(config, inputs, me, columns, chosen.run)

    def layout(self, plan: SumsPlan) -> Layout | None:
        """Return where each number of the vector of columns stands; None without columns."""
        chosen: DescribeSettings = self.settings_of(plan)
        return chosen.layout

    def parts(self, k: int, d: int, chosen: DescribeSettings) -> tuple[Part, ...]:
        """Return the vector of the columns, that of the quality, or both, each with its share of 1/sigma^2.

        Notes
        -----
        Privacy: neighbours differ in one record, added or removed; `Layout.sensitivity` and `QualityVector.sensitivity`
        prove how far it moves each vector. The centres are public, and a record's cluster follows from it and from them
        alone.
        """
        chosen.called(k)  # refuses names that do not fit
        layout, found = chosen.layout, []
        if layout is not None:
            found.append(Part(PART, (k, layout.width), layout.sensitivity, 1.0 - chosen.quality))
        if chosen.quality:
            vector = QualityVector(k, d)
            found.append(Part(QUALITY, (vector.width,), vector.sensitivity, chosen.quality))
        return tuple(found)

    def unit_bits(self, plan: SumsPlan) -> int:
        """Return 0: `local` is on the grid already, for half sums are no whole numbers."""
        return 0

    def start(self, plan: SumsPlan) -> Noisy:
        """Return nothing: the centres that records are compared with are at the clients."""
        return {}

    def points(self, own: Any, plan: SumsPlan) -> Any:
        """Return a client's records by clusters and bins."""
        records: DescribedRecords = own
        return records.labelled

    def sample(self, plan: SumsPlan, n: int) -> LabelledRecords:
        """Return n made-up records, by which `plan` measures what the round takes."""
        random, layout = np.random.default_rng(0), self.layout(plan)
        columns = () if layout is None else layout.columns
        numbers = 0 if layout is None else len(layout.numbers)
        return LabelledRecords(
            raw_labels=random.integers(0, plan.k, n),
            raw_points=random.uniform(-1.0, 1.0, (n, plan.d)),
            centers=random.uniform(-1.0, 1.0, (plan.k, plan.d)),
            middle=np.zeros(plan.d),
            coded=CodedRecords(
                raw_bins=random.integers(0, [column.width for column in columns], (n, len(columns))),
                raw_scaled=random.uniform(-1.0, 1.0, (n, numbers)),
            ),
        )

    def labels(self, raw_points: Any, state: Noisy) -> NDArray[np.int64]:
        """Return the cluster of each of this client's records."""
        records: LabelledRecords = raw_points
        return records.raw_labels

    def local(self, raw_points: Any, state: Noisy, plan: SumsPlan) -> Mapping[str, NDArray[np.int64]]:
        """Return what this client's records add, in units of the grid."""
        layout, quality = self.layout(plan), self._quality(plan)
        return {
            **({} if layout is None else {PART: add_up(layout, raw_points, plan.k, plan.fraction_bits)}),
            **({} if quality is None else {QUALITY: add_up_quality(quality, raw_points, plan.fraction_bits)}),
        }

    def step(self, noisy: Noisy, state: Noisy, plan: SumsPlan, t: int) -> Noisy:
        """Return the noisy vectors."""
        return noisy

    def centers(self, state: Noisy) -> Floats:
        """Return no centres: this run makes none."""
        return np.zeros((0, 1))

    def result_noise(self, plan: SumsPlan, passed: Any, state: Noisy) -> ResultNoise:
        """Say how far off the sizes may be; the description has its own ranges."""
        layout = self.layout(plan)
        if layout is None:
            judged = self._judged(QualityVector(plan.k, plan.d), plan, state)
            return ResultNoise(without_centres=_OF_QUALITY[judged[0].shown])
        found = make_consistent(layout, state[PART], plan.noise_on(PART, 0))
        margin = NORMAL_TAIL * found.size_deviation
        ranges = np.clip(np.column_stack([found.sizes - margin, found.sizes + margin]), 0.0, plan.n_total)
        return ResultNoise(size_ranges=ranges, without_centres=_of_clusters(found, found.sizes))

    def result(self, session: Session, plan: SumsPlan, end: SumsEnd) -> Result:
        """Return sizes and description; `--min-size` holds for clusters and for numbers, and the others keep theirs."""
        layout, quality = self.layout(plan), self._quality(plan)
        silent = len(end.silent[0]) if end.silent else 0
        played = plan.played([plan.noise_with(len(end.included[0]), silent)])
        q, sizes, files = plan.fraction_bits, None, {}
        least, left, noise = session.config.min_size, 0, end.noise
        if layout is not None:
            chosen: DescribeSettings = self.settings_of(plan)
            noisy, spread = end.state[PART], played.noise_on(PART, 0)
            made_by = {*plan.names, *session.inputs.categories.columns}
            found = make_consistent(layout, noisy, spread)
            # Without clusters that are too small there is also no rest that holds them.
            kept = np.flatnonzero(found.sizes >= least) if least else np.arange(plan.k)
            noisy, sizes, left = noisy[kept], None if least else found.sizes, plan.k - len(kept)
            if least:
                noise = ResultNoise(without_centres=_of_clusters(found, found.sizes[kept]) if len(kept) else None)
            lines = describe(layout, noisy, noise=spread, n_total=plan.n_total, fraction_bits=q)
            differences = compare(layout, noisy, noise=spread, made_by=made_by, fraction_bits=q)
            if least:
                lines = hide_small(lines, least)
            of = [replace(line, cluster=int(kept[line.cluster])) for line in lines]
            apart = {(int(kept[key[0]]), *key[1:]): one for key, one in differences.items()}
            texts = {line.column for line in of} | {line.value for line in of}
            cells = {text: csv_cell(text) for text in texts}
            files["profile.csv"] = profile_csv(of, apart, made_by, cells)
            if called := chosen.called(plan.k):
                files["profile.csv"] = called.into(files["profile.csv"])
        if quality is not None:
            files["quality.csv"] = quality_csv(self._judged(quality, played, end.state))
        return self.make_result(
            session,
            plan,
            end.included,
            silent=end.silent,
            centers=None,
            sizes=sizes,
            noise=noise,
            extra=files,
            left_out=left if least else None,
        )

    def _quality(self, plan: SumsPlan) -> QualityVector | None:
        """Return the vector of the quality; None where it is not asked for."""
        chosen: DescribeSettings = self.settings_of(plan)
        return QualityVector(plan.k, plan.d) if chosen.quality else None

    def _judged(self, vector: QualityVector, plan: SumsPlan, state: Noisy) -> tuple[Judged, ...]:
        """Return how good the clusters are."""
        noise = plan.noise_on(QUALITY, 0)
        return vector.read(state[QUALITY], noise=noise, n_total=plan.n_total, fraction_bits=plan.fraction_bits)

    # What people read.

    def parameters(self, plan: SumsPlan, rounds: int) -> dict[str, Any]:
        """Return the public parameters for the report."""
        chosen: DescribeSettings = self.settings_of(plan)
        columns = [column.to_json() for column in chosen.layout.columns] if chosen.layout else []
        quality = self._quality(plan)
        return {
            **super().parameters(plan, rounds),
            "described_run": chosen.run,
            "described_columns": columns,
            **({DESCRIBED_NAMES: called.to_json()} if (called := chosen.called(plan.k)) else {}),
            **({} if quality is None else {"quality_share": chosen.quality, "quality_bound": quality.bound}),
        }

    def outlook(self, config: RunConfig, plan: SumsPlan) -> list[PlanLine]:
        """Say from how many people in a cluster it can be described, and how exact its quality will be."""
        lines, quality = [], self._quality(plan)
        if self.layout(plan) is not None:
            fine, coarse = describable_from(plan.noise_on(PART, 0))
            said = (
                f"clusters of at least {fine:,} records with numbers and ranges, of at least {coarse:,} with ranges; "
                "of smaller ones only the size"
            )
            if coarse > plan.n_total:
                said += f", and all together are at most {plan.n_total:,}: NOTHING to see; take a larger epsilon"
            lines.append(PlanLine("described", said))
        if quality is not None:
            lines.append(PlanLine("quality", quality.outlook(plan.noise_on(QUALITY, 0), plan.n_total)))
        return lines

    def who_sees(self, protocol: str, parameters: Mapping[str, Any]) -> Sights:
        """Return who sees what, the network left out."""
        # Before a run these are its plan, with the settings; after it those of the report.
        planned = self.chosen(parameters.get("settings", {}), protocol).quality
        share = float(parameters.get("quality_share", planned))
        both = [_SUMS] * (share < 1.0) + [_QUALITY_SUMS] * (share > 0.0)
        found = masked_sights(parameters, sums="; ".join(both))
        return replace(found, alone=(*found.alone, _NUMBER))

    def about_ranges(self, protocol: str) -> str:
        """Say what the ranges are about."""
        return _RANGES

    def data_flow(self, protocol: str, facts: Mapping[str, Any]) -> Flow:
        """Return where data are and go."""
        chosen: DescribeSettings = self.chosen(facts.get("settings", {}), protocol)
        names = [column.name for column in chosen.layout.columns] if chosen.columns and chosen.layout else []
        of = f" by {', '.join(names)}" if names else ""
        named = [f"the noisy description of the clusters{of}"] * (chosen.quality < 1.0)
        named += ["noisy figures on the quality of the clusters"] * (chosen.quality > 0.0)
        return masked_flow(facts, released=" and ".join(named))


PROTOCOL = Describe()
