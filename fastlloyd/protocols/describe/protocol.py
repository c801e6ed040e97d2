"""A description of the clusters of a finished run: what is public, what is released, and what people read.

Each client labels its own records by the released centres and adds up, for each cluster, its size, the bins of each
column, and half the sum of the scaled values of each column of numbers: one masked sum with noise.

Source: docs/privacy.md, "Descriptions of clusters".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastlloyd.describe.coding import Layout
from fastlloyd.describe.columns import DescribedColumn, columns_from_json, count_bins
from fastlloyd.describe.difference import compare
from fastlloyd.describe.estimates import describable_from, describe, grade, make_consistent
from fastlloyd.errors import ConfigError, format_count
from fastlloyd.party.option import option
from fastlloyd.privacy.accountant import SAMPLER_DELTA
from fastlloyd.privacy.calibration import gaussian_noise_multiplier, stated_delta
from fastlloyd.protocol.masked import masked_flow, masked_sights
from fastlloyd.protocol.sums import Floats, MaskedSums, Part, SumsEnd, SumsParameters, SumsPlan
from fastlloyd.protocols.describe.inputs import DescribedRecords, load_described
from fastlloyd.protocols.describe.rounds import PART, LabelledRecords, add_up, profile_csv
from fastlloyd.report.display import csv_cell
from fastlloyd.report.outlook import PlanLine, Verdict
from fastlloyd.report.quality import ResultNoise
from fastlloyd.report.ranges import NORMAL_TAIL
from fastlloyd.report.sight import Flow, Sights
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Result
from fastlloyd.run.session import Session
from fastlloyd.wire.header import PartyId

_SUMS = "noisy sizes and noisy counts and sums of the described columns in each cluster, hence the description"
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
    """

    columns: str = option("", "the columns as JSON, as `settle` of this package writes them")
    run: str = option("", "id of the finished run, as its report.json has it")

    @property
    def layout(self) -> Layout:
        """Where each number of the vector stands.

        Raises
        ------
        ConfigError
            The text is no columns, or their number of bins is not settled.
        """
        if not self.columns:
            raise ConfigError("--set describe.columns: expected the columns that describe the clusters, got none")
        try:
            values = json.loads(self.columns)
        except ValueError as error:
            raise ConfigError(f"--set describe.columns: not valid JSON ({error})") from None
        layout = Layout(columns_from_json(values, "--set describe.columns"))
        _ = layout.width  # refuses columns whose bins are not settled
        return layout


def settle(columns: tuple[DescribedColumn, ...], public: SumsParameters) -> str:
    """Return the columns as JSON, the number of bins by the public rule where they name none.

    Parameters
    ----------
    columns : tuple of DescribedColumn
    public : SumsParameters
        Of the run that describes: its N, k, epsilon and masks.
    """
    delta = stated_delta(public.delta, public.n_total)
    sigma = gaussian_noise_multiplier(public.epsilon, delta - SAMPLER_DELTA) * public.all_noise
    bins = count_bins(n_total=public.n_total, k=public.k, noise=sigma * float(np.sqrt(1.0 + len(columns))))
    return json.dumps([column.settle(bins).to_json() for column in columns], ensure_ascii=True)


class Describe(MaskedSums):
    """One round of noisy masked sums over the clusters of a finished run."""

    settings = DescribeSettings
    default_rounds: ClassVar[int] = 1

    def load(self, config: RunConfig, inputs: Any, me: PartyId) -> Any:
        """Load a client's own records, by clusters and bins; the server has none."""
        chosen: DescribeSettings = self.chosen(inputs.public.settings, config.protocol)
        return None if me.is_server else load_described(config, inputs, me, chosen.layout.columns, chosen.run)

    def layout(self, plan: SumsPlan) -> Layout:
        """Return where each number of the vector stands."""
        chosen: DescribeSettings = self.settings_of(plan)
        return chosen.layout

    def parts(self, k: int, d: int, chosen: DescribeSettings) -> tuple[Part, ...]:
        """Return the one vector.

        Notes
        -----
        Privacy: neighbours differ in one record, added or removed; `Layout.sensitivity` proves how far it moves the
        vector. The centres are public, and a record's cluster follows from it and from them alone.
        """
        layout = chosen.layout
        return (Part(PART, (k, layout.width), layout.sensitivity),)

    def unit_bits(self, plan: SumsPlan) -> int:
        """Return 0: `local` is on the grid already, for half sums are no whole numbers."""
        return 0

    def start(self, plan: SumsPlan) -> Floats:
        """Return zeros: the centres that records are compared with are at the clients."""
        return np.zeros((plan.k, self.layout(plan).width))

    def points(self, own: Any, plan: SumsPlan) -> Any:
        """Return a client's records by clusters and bins."""
        records: DescribedRecords = own
        return records.labelled

    def labels(self, raw_points: Any, state: Floats) -> NDArray[np.int64]:
        """Return the cluster of each of this client's records."""
        records: LabelledRecords = raw_points
        return records.raw_labels

    def local(self, raw_points: Any, state: Floats, plan: SumsPlan) -> Mapping[str, NDArray[np.int64]]:
        """Return what this client's records add, in units of the grid."""
        return {PART: add_up(self.layout(plan), raw_points, plan.k, plan.fraction_bits)}

    def step(self, noisy: Mapping[str, Floats], state: Floats, plan: SumsPlan, t: int) -> Floats:
        """Return the noisy vector."""
        return noisy[PART]

    def centers(self, state: Floats) -> Floats:
        """Return no centres: this run makes none."""
        return np.zeros((len(state), 1))

    def result_noise(self, plan: SumsPlan, passed: Any, state: Floats) -> ResultNoise:
        """Say how far off the sizes may be; the description has its own ranges."""
        found = make_consistent(self.layout(plan), state, plan.noise_on(PART, 0))
        margin = NORMAL_TAIL * found.size_deviation
        ranges = np.clip(np.column_stack([found.sizes - margin, found.sizes + margin]), 0.0, plan.n_total)
        grades = [grade(found.noise, size) for size in found.sizes.tolist()]
        fine, nothing, k = grades.count("fine"), grades.count("nothing"), len(grades)
        verdict: Verdict = "noise" if nothing == k else "poor" if nothing else "good" if fine == k else "fair"
        about = f"of {format_count(k, 'cluster')} {fine} with numbers, {k - fine - nothing} with ranges alone"
        return ResultNoise(
            size_ranges=ranges, without_centres=(verdict, f"{about}, {nothing} too small for this budget")
        )

    def result(self, session: Session, plan: SumsPlan, end: SumsEnd) -> Result:
        """Return sizes and description."""
        layout = self.layout(plan)
        silent = len(end.silent[0]) if end.silent else 0
        spread = plan.played([plan.noise_with(len(end.included[0]), silent)]).noise_on(PART, 0)
        q, made_by = plan.fraction_bits, {*plan.names, *session.inputs.categories.columns}
        lines = list(describe(layout, end.state, noise=spread, n_total=plan.n_total, fraction_bits=q))
        differences = compare(layout, end.state, noise=spread, made_by=made_by, fraction_bits=q)
        texts = {line.column for line in lines} | {line.value for line in lines}
        return self.make_result(
            session,
            plan,
            end.included,
            silent=end.silent,
            centers=None,
            sizes=make_consistent(layout, end.state, spread).sizes,
            noise=end.noise,
            extra={"profile.csv": profile_csv(lines, differences, made_by, {text: csv_cell(text) for text in texts})},
        )

    # What people read.

    def parameters(self, plan: SumsPlan, rounds: int) -> dict[str, Any]:
        """Return the public parameters for the report."""
        chosen: DescribeSettings = self.settings_of(plan)
        columns = [column.to_json() for column in chosen.layout.columns]
        return {**super().parameters(plan, rounds), "described_run": chosen.run, "described_columns": columns}

    def outlook(self, config: RunConfig, plan: SumsPlan) -> list[PlanLine]:
        """Say from how many people in a cluster it can be described."""
        fine, coarse = describable_from(plan.noise_on(PART, 0))
        return [
            PlanLine(
                "described",
                f"clusters of at least {fine:,} records with numbers and ranges, of at least {coarse:,} with ranges; "
                "of smaller ones only the size",
            )
        ]

    def who_sees(self, protocol: str, parameters: Mapping[str, Any]) -> Sights:
        """Return who sees what, the network left out."""
        return masked_sights(parameters, sums=_SUMS)

    def about_ranges(self, protocol: str) -> str:
        """Say what the ranges are about."""
        return _RANGES

    def data_flow(self, protocol: str, facts: Mapping[str, Any]) -> Flow:
        """Return where data are and go."""
        chosen: DescribeSettings = self.chosen(facts.get("settings", {}), protocol)
        names = [column.name for column in chosen.layout.columns] if chosen.columns else []
        of = f" by {', '.join(names)}" if names else ""
        return masked_flow(facts, released=f"the noisy description of the clusters{of}")


PROTOCOL = Describe()
