"""Bounds of columns that nobody knows: what is public, what is released, and what people read.

Each client counts the values of each column in bins that double in width about a public origin: one masked sum with
noise. From it all clients come to the same bounds.

Source: docs/privacy.md, "Bounds that nobody knows".
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, format_count, name_some
from fastlloyd.protocol.masked import masked_flow, masked_sights
from fastlloyd.protocol.sums import Floats, MaskedSums, Part, SumsEnd, SumsParameters, SumsPlan
from fastlloyd.protocols.private_bounds.plan_lines import GOOD, MOST, check_share
from fastlloyd.protocols.private_bounds.rounds import ALPHA, BINS, count, ends, find
from fastlloyd.report.display import csv_cell
from fastlloyd.report.outlook import PlanLine, Verdict, percent
from fastlloyd.report.quality import ResultNoise
from fastlloyd.report.sight import Flow, Sights
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Result
from fastlloyd.run.own_records import load_own
from fastlloyd.run.session import Session
from fastlloyd.wire.header import PartyId

PART = "counts in bins"
"""Name of the release."""
_SUMS = "noisy counts of the values of each column in bins that double in width, hence the bounds"
_RANGES = (
    "Bounds found like this are not the smallest and largest values: they follow from noisy counts in public bins."
)
_SHOWN = 8


class PrivateBounds(MaskedSums):
    """One round of noisy masked sums of counts."""

    default_rounds: ClassVar[int] = 1

    def load(self, config: RunConfig, inputs: Any, me: PartyId) -> Any:
        """Load a client's own records; a missing value that a later run would fill counts nowhere."""
        return None if me.is_server else load_own(config, inputs, me, gaps=True)

    def public_parameters(self, config: RunConfig, clients: int, n_total: int, k: int) -> SumsParameters:
        """Return the public parameters of a run.

        Raises
        ------
        ConfigError
            The masks are common. The bounds are for a run whose server gets them as public values, and with common
            masks the server knows the noise behind them.
        """
        if config.masking == "common":
            raise ConfigError(
                f"--masking common: {config.protocol} expects threshold or pairwise; the run that follows tells the "
                "bounds to its server, and with common masks the server knows their noise"
            )
        return super().public_parameters(config, clients, n_total, k)

    def make_plan(self, public: SumsParameters, names: tuple[str, ...]) -> SumsPlan:
        """Make the plan of a run.

        Raises
        ------
        ConfigError
            The noise would hide where the values lie.
        RangeError
            The ring is too narrow for the sums and their noise.
        """
        check_share(public, len(names))
        return super().make_plan(public, names)

    def parts(self, k: int, d: int, chosen: Any) -> tuple[Part, ...]:
        """Return the counts of all d columns.

        Notes
        -----
        Privacy: neighbours differ in one record, added or removed. The box, hence every bin, is public, so every other
        record is in the same bins for both. The record adds 1 to at most one bin of each of the d columns, and nothing
        elsewhere: the squares add up to d at most, and a record that lacks no value reaches it.
        """
        return (Part(PART, (d, BINS), math.sqrt(d)),)

    def start(self, plan: SumsPlan) -> Floats:
        """Return zeros: nothing is known before."""
        return np.zeros((plan.d, BINS))

    def local(self, raw_points: Floats, state: Floats, plan: SumsPlan) -> Mapping[str, NDArray[np.int64]]:
        """Return what this client's records add."""
        return {PART: count(raw_points)}

    def step(self, noisy: Mapping[str, Floats], state: Floats, plan: SumsPlan, t: int) -> Floats:
        """Return the noisy counts."""
        return noisy[PART]

    def labels(self, raw_points: Floats, state: Floats) -> None:
        """Return None: there are no clusters."""

    def centers(self, state: Floats) -> Floats:
        """Return no centres: this run makes none."""
        return np.zeros((1, len(state)))

    def result_noise(self, plan: SumsPlan, passed: Any, state: Floats) -> ResultNoise:
        """Say how many columns got bounds, and how much noise there was."""
        noise = plan.noise_on(PART, 0)
        found = dict(zip(plan.names, find(state, noise), strict=True))
        refused = [name for name, bins in found.items() if bins is None]
        ends = [name for name, bins in found.items() if bins is not None and (bins[0] == 0 or bins[1] == BINS - 1)]
        share = noise / plan.n_total
        about = f"bounds of {len(found) - len(refused)} of {format_count(len(found), 'column')}, noise on a count of "
        about += f"{percent(share)} of N"
        if refused:
            about += f"; no bounds where no value but the origin stands out of the noise: {name_some(refused, _SHOWN)}"
        if ends:
            about += f"; values of {name_some(ends, _SHOWN)} may lie beyond the box that was searched"
        verdict: Verdict = "fair" if share > GOOD else "good"
        if refused or ends:
            verdict = "noise" if len(refused) == len(found) else "poor"
        return ResultNoise(without_centres=(verdict, about))

    def result(self, session: Session, plan: SumsPlan, end: SumsEnd) -> Result:
        """Return the bounds."""
        silent = len(end.silent[0]) if end.silent else 0
        noise = plan.played([plan.noise_with(len(end.included[0]), silent)]).noise_on(PART, 0)
        return self.make_result(
            session,
            plan,
            end.included,
            silent=end.silent,
            centers=None,
            noise=end.noise,
            extra={"bounds.csv": _bounds_file(session, plan, end.state, noise)},
        )

    # What people read.

    def parameters(self, plan: SumsPlan, rounds: int) -> dict[str, Any]:
        """Return the public parameters for the report."""
        return {**super().parameters(plan, rounds), "alpha": ALPHA}

    def size_line(self, plan: SumsPlan) -> PlanLine:
        """Say how many records, columns and clients a run has."""
        sizes = (format_count(plan.d, "column"), format_count(plan.clients, "client"))
        return PlanLine(plan.protocol, f"{format_count(plan.n_total, 'record')} at most, {', '.join(sizes)}")

    def outlook(self, config: RunConfig, plan: SumsPlan) -> list[PlanLine]:
        """Say whether the bounds will be good."""
        share = plan.noise_on(PART, 0) / plan.n_total
        words = "good" if share <= GOOD else f"fair; up to {percent(GOOD)} they are good"
        lines = [
            PlanLine("expected", f"noise on a count of {percent(share)} of N: {words}, above {percent(MOST)} none")
        ]
        return [*lines, PlanLine("alpha", f"{ALPHA:g}: how often one of all empty bins may begin or end bounds")]

    def who_sees(self, protocol: str, parameters: Mapping[str, Any]) -> Sights:
        """Return who sees what, the network left out."""
        return masked_sights(parameters, sums=_SUMS)

    def about_ranges(self, protocol: str) -> str:
        """Say what the bounds are."""
        return _RANGES

    def data_flow(self, protocol: str, facts: Mapping[str, Any]) -> Flow:
        """Return where data are and go."""
        released = f"the noisy bounds of each column (alpha {ALPHA:g}), which the run that follows tells its server"
        return masked_flow(facts, released=released, labels="there are no clusters")


def _bounds_file(session: Session, plan: SumsPlan, noisy: Floats, noise: float) -> str:
    """Return the file that `--bounds` reads: where it comes from as comments, and a row for each column with bounds."""
    box = session.inputs.bounds.match(plan.names)
    found = ends(noisy, noise)
    parties = format_count(plan.clients, "client") + " without a roster"
    if session.roster is not None:
        parties = name_some([entry.name for entry in session.roster.entries], _SHOWN)
    refused = [name for name, bounds in zip(plan.names, found, strict=True) if bounds is None]
    about = [
        "# found by fastlloyd with noise; not the smallest and largest values",
        f"# run {session.run_id.hex()}: {parties}",
        f"# epsilon {plan.epsilon:g}; delta {plan.delta:.6g}; alpha {ALPHA:g}; at most {plan.n_total} records",
        f"# noise of standard deviation {noise:.6g} on each count: {percent(noise / plan.n_total)} of the records",
        *(f"# no bounds of {csv_cell(name)}: no value but the origin stands out of the noise" for name in refused),
    ]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerows([line] for line in about)
    table.writerow(("feature", "lo", "hi"))
    for at, bounds in enumerate(found):
        if bounds is not None:
            lo, hi = (float(box.middle[at] + box.half_width[at] * end) for end in bounds)
            table.writerow((csv_cell(plan.names[at]), repr(lo), repr(hi)))
    return text.getvalue()


PROTOCOL = PrivateBounds()
