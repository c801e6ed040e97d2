"""A run whose bounds nobody knows, and the run before it that finds them: what each is, and what both spend.

Source: docs/privacy.md, "Bounds that nobody knows".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastlloyd.data.bounds import Bounds, parse_bounds
from fastlloyd.data.categories import Categories
from fastlloyd.errors import ConfigError, DataError, InternalError, name_some
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.calibration import stated_delta
from fastlloyd.privacy.release import GAUSSIAN_SHARES, Release
from fastlloyd.protocol.sums import MaskedSums, SumsParameters
from fastlloyd.protocols.private_bounds.plan_lines import split_epsilon
from fastlloyd.protocols.private_bounds.protocol import PROTOCOL, PrivateBounds
from fastlloyd.protocols.registry import FOLLOWING
from fastlloyd.report.outlook import PlanLine
from fastlloyd.run.config import OPTIONS, RunConfig
from fastlloyd.run.inputs import public_dataset, settle_size
from fastlloyd.run.session import find_protocol

ROW = next(row for row in FOLLOWING if row.finds_bounds)
OF_CLUSTERS = (*ROW.unused, "quality", "min_size", "memory", "workers", "network", "server_data", "described")
"""Options that a run file has for the run that clusters, and that mean nothing in the one before it."""
BOUNDS = "bounds.csv"
"""The file of a result that holds the bounds."""
_ADDING = ("gaussian", GAUSSIAN_SHARES)
_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BothRuns:
    """A run that finds bounds, and the one that clusters with them.

    Attributes
    ----------
    bounds : RunConfig
    run : RunConfig
        As it was given, with what is left of its epsilon; its bounds are not known yet.
    epsilon, delta : float
        What both were given together.
    releases : tuple of Release
        All that both plan.
    """

    bounds: RunConfig
    run: RunConfig
    epsilon: float
    delta: float
    releases: tuple[Release, ...]

    def plan_lines(self, clients: int, d: int | None) -> list[PlanLine]:
        """Describe what both would do; `d` as for the run's own plan."""
        m = len(self.bounds.columns) or d
        lines = [self.line(), PlanLine("first", "the run that finds the bounds")]
        lines += [*PROTOCOL.plan_lines(self.bounds, clients, m), PlanLine("then", "the run that clusters with them")]
        return [*lines, *find_protocol(self.run.protocol).plan_lines(self.run, clients, d)]

    def line(self) -> PlanLine:
        """Say what each spends, and both together."""
        return PlanLine(
            "both runs",
            f"epsilon {self.bounds.epsilon:g} finds the bounds ({self.run.bounds_share:g} of 1/sigma^2), "
            f"{self.run.epsilon:g} is left for the clusters; together {spent(self.releases, self.delta):.6g} of "
            f"{self.epsilon:g} at delta {self.delta:.3g}",
        )

    def with_found(self, path: Path) -> RunConfig:
        """Return the configuration of the run that clusters, with the bounds in the file that the first run wrote.

        Raises
        ------
        DataError
            A column has no bounds. It is named, with what the person can do; nothing is released.
        """
        found = parse_bounds(str(path))
        lacking = [name for name in self._wanted(found) if name not in (found.names or ())]
        if lacking:
            raise DataError(
                f"no bounds of {name_some(lacking, _SHOWN)}: no value but the origin stands out of the noise. {path} "
                f"has those of the other columns, and they are paid for: leave {name_some(lacking, _SHOWN)} out of "
                f"--columns, or add a row feature,lo,hi that needs no look at the records, then run with --bounds "
                f"{path} --epsilon {self.run.epsilon:g}"
            )
        return replace(self.run, bounds=str(path))

    def _wanted(self, found: Bounds) -> Sequence[str]:
        """Return the columns that need bounds; those of the file where only the records name them."""
        return self.bounds.columns or (found.names or ())


def bounds_config(config: RunConfig) -> RunConfig:
    """Return the configuration of the run that finds the bounds for another: all that concerns it, at that epsilon.

    Raises
    ------
    ConfigError
        Categories are listed, and no option says which columns are numbers.
    """
    columns = config.columns
    if config.categories is not None:
        columns = columns_of_numbers(columns, config.categories)
    unset: dict[str, Any] = {name: OPTIONS[name].default for name in OF_CLUSTERS}
    return replace(
        config,
        **unset,
        protocol=ROW.name,
        choose_k=False,
        least_k=0,
        columns=columns,
        bounds=None,
        settings={},
        output=f"{config.output}-bounds",
    )


def columns_of_numbers(columns: Sequence[str], categories: str | Path) -> tuple[str, ...]:
    """Return the columns whose bounds do not follow from a file of categories.

    Raises
    ------
    ConfigError
        None is named: then only the records would tell which there are.
    """
    listed = Categories.read(categories).columns
    found = tuple(name for name in columns if name not in listed)
    if not found:
        raise ConfigError(
            f"--columns: expected the columns of numbers by name, since {categories} lists others, got none whose "
            "bounds could be found"
        )
    return found


class InOneProcess(PrivateBounds):
    """The same where all parties are one process, which knows the records anyway: no server learns the noise.

    So common masks will do, which add less noise.
    """

    def public_parameters(self, config: RunConfig, clients: int, n_total: int, k: int) -> SumsParameters:
        """Return the public parameters of a run, whatever its masks."""
        return MaskedSums.public_parameters(self, config, clients, n_total, k)


IN_ONE_PROCESS = InOneProcess()


def split_run(config: RunConfig, clients: int, d: int | None = None, finding: PrivateBounds = PROTOCOL) -> BothRuns:
    """Split a run with `--bounds private` in two, within the epsilon of one.

    Parameters
    ----------
    config : RunConfig
        With a share for the bounds.
    clients : int
    d : int, optional
        Number of features; None: that of the columns or the public set, or 1 where only the records tell. What is
        spent does not depend on it.
    finding : PrivateBounds
        The protocol of the first run.

    Raises
    ------
    ConfigError
        The noise of the protocol does not add up with that of the bounds, the masks are common, or the noise would hide
        where the values lie.
    """
    share = config.bounds_share or 0.0
    bounds = bounds_config(config)
    dataset = None
    if config.dataset is not None or (config.data is None and config.n_total is None):
        _, dataset = public_dataset(replace(config, bounds=None))
    records, k = settle_size(config, dataset)
    delta = stated_delta(finding.public_parameters(bounds, clients, records, 1).delta, records)
    own, left = split_epsilon(config.epsilon, delta, share)
    if d is None:
        d = len(dataset.names) if dataset is not None else len(config.columns) or 1
    bounds, run = replace(bounds, epsilon=own), replace(config, epsilon=left)
    try:
        first = finding.foresee(replace(bounds, n_total=records), clients, len(bounds.columns) or d).releases
    except ConfigError as error:
        raise ConfigError(f"--bounds {config.bounds}, the first run, with {share:g} of 1/sigma^2: {error}") from error
    foreseen = find_protocol(config.protocol).foresee(replace(run, n_total=records, k=k), clients, d)
    then = () if foreseen is None else foreseen.releases
    if not then or any(one.mechanism not in _ADDING or one.neighbours != first[0].neighbours for one in then):
        raise ConfigError(
            f"--bounds {config.bounds}: expected a protocol of Gaussian noise for the same records, such as "
            f"fastlloyd-plus, got {config.protocol}: find the bounds with `fastlloyd bounds`, then give each run its "
            "own --epsilon"
        )
    releases = (*first, *(replace(release, run="00") for release in then))
    if spent(releases, delta) > config.epsilon:
        raise InternalError(f"the bounds and the run spend more than the epsilon {config.epsilon:g} of both")
    return BothRuns(bounds=bounds, run=run, epsilon=config.epsilon, delta=delta, releases=releases)
