"""Before a description: its run file from the folder of the finished run, and what both spend together.

Source: docs/privacy.md, "Descriptions of clusters".
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastlloyd.describe.columns import DescribedColumn
from fastlloyd.dossier.verify import read_ledger
from fastlloyd.errors import ConfigError
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.describe.inputs import read_finished
from fastlloyd.protocols.describe.protocol import PROTOCOL, settle
from fastlloyd.protocols.registry import FOLLOWING
from fastlloyd.report.document import load
from fastlloyd.report.names import ClusterNames
from fastlloyd.report.outlook import PlanLine
from fastlloyd.run.config import OPTIONS, RunConfig
from fastlloyd.run.run_file import load_config, to_toml

# Half the interval in which the epsilon for --total is found, over that epsilon.
_CLOSE = 1e-4
_LEAST, _MOST = OPTIONS["epsilon"].within.ends
# What belongs to a run and not to the one that describes it.
_LEFT = (
    "rounds",
    "evaluate",
    "min_size",
    "memory",
    "resume",
    "new_state",
    "overwrite",
    "title",
    "purpose",
    "output",
    "choose_k",
    "least_k",
    "quality",
    "server_data",
)
_ONE = [{"name": "x", "lo": 0.0, "hi": 1.0, "bins": 2}]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDescription:
    """A description that the parties may run.

    Attributes
    ----------
    config : RunConfig
        Of all parties; `data` and what is each party's own as in the finished run's file.
    clients : int
    features : int
    run : sequence of Release
        What the finished run released.
    delta : float
        At which both are composed.
    reveals : tuple of str
        What the server learns by it of the run's result, although it knew the run's noise; empty for nothing.
    """

    config: RunConfig
    clients: int
    features: int
    run: Sequence[Release]
    delta: float
    reveals: tuple[str, ...] = ()

    @property
    def described(self) -> str:
        """Id of the finished run."""
        found: str = self.config.settings[FOLLOWING[0].name]["run"]
        return found

    @property
    def epsilon_before(self) -> float:
        """Of the finished run alone."""
        return self._compose(self.run)

    @property
    def epsilon_after(self) -> float:
        """Of run and description together, composed as if fixed in advance."""
        plan = PROTOCOL.planned(self.config, self.clients, self.features)
        return self._compose([*self.run, *(replace(one, run="00") for one in plan.all_releases())])

    def run_file(self, folder: Path) -> str:
        """Return the run file for all parties, to stand in a folder; it may be an offer to a site, too.

        The roster is left out, which each party has for itself.
        """
        left = {"roster"} if self.config.dataset is not None else {"roster", "split"}
        return to_toml(self.config, folder, only={name for name, one in OPTIONS.items() if not one.own} - left)

    def _compose(self, releases: Sequence[Release]) -> float:
        ledger = Ledger()
        ledger.record(releases)
        return ledger.total(self.delta)

    def lines(self) -> list[PlanLine]:
        """Say what the description would do, and what it adds to the run."""
        before, after = (f"{value:.4g}" for value in (self.epsilon_before, self.epsilon_after))
        total = f"epsilon {after} for run and description together, {before} for the run alone (delta {self.delta:.3g})"
        lines = [*PROTOCOL.plan_lines(self.config, self.clients, self.features), PlanLine("total", total)]
        if not self.reveals:
            return lines
        about = f"learns {' and '.join(self.reveals)}; it drew the noise that this follows from (common masks)"
        return [*lines, PlanLine("server", f"{about}, so nothing is promised about it against the server")]


def plan_description(
    folder: Path,
    columns: tuple[DescribedColumn, ...],
    *,
    epsilon: float | None = None,
    total: float | None = None,
    quality: float | None = None,
    names: Path | None = None,
    changes: dict[str, Any] | None = None,
) -> PlannedDescription:
    """Plan the description of a finished run.

    Parameters
    ----------
    folder : Path
        Of the run, with its config.toml.
    columns : tuple of DescribedColumn
        None for the quality alone.
    epsilon : float, optional
        Of the description.
    total : float, optional
        Of run and description together; one of the two is given.
    quality : float, optional
        Share of 1/sigma^2 for the quality of the clusters; without columns it has all.
    names : Path, optional
        File of names of the clusters.
    changes : mapping, optional
        Options of the description that differ from the run's, by name.

    Raises
    ------
    ConfigError
        The folder cannot be described, or the total leaves nothing for it.
    """
    finished = read_finished(folder, flag="RESULT")
    report = load(folder / "report.json")
    base = load_config(folder / "config.toml", links=False)
    if base.row.partition == "vertical":
        raise ConfigError(
            f"{folder}: its parties hold columns of the same records; a description needs records at each site"
        )
    defaults = {name: RunConfig.__dataclass_fields__[name].default for name in _LEFT}
    first = {
        **defaults,
        "protocol": FOLLOWING[0].name,
        "k": len(finished.centroids),
        "n_total": int(report["parameters"]["n_total"]),
        "epsilon": 1.0 if epsilon is None else epsilon,
        "described": str(folder),
        "settings": {FOLLOWING[0].name: {"columns": json.dumps(_ONE), "run": finished.run}},
    }
    config = replace(base, **{**first, **(changes or {})})
    clients, features = int(report["parties"]["clients"]), len(finished.names)
    releases = [one for one in read_ledger(folder / "ledger.jsonl") if one.run == finished.run]
    stated = PROTOCOL.planned(config, clients, features).delta
    delta = max(float(report["privacy"]["delta"]), stated)

    called = ClusterNames() if names is None else ClusterNames.read(names, len(finished.centroids))
    terms, shown = report["parameters"], report["result"]
    reveals = []
    if terms.get("masking") == "common":
        reveals += ["how many clusters the clients chose"] * ("k_max" in terms)
        reveals += ["how many clusters were too small to show"] * ("left_out" in shown)
        reveals += ["the names of the clusters"] * bool(called)

    def planned(own: float) -> PlannedDescription:
        of = replace(config, epsilon=own)
        public = PROTOCOL.public_parameters(of, clients, config.n_total or 0, len(finished.centroids))
        share = quality or 0.0 if columns else 1.0
        table: dict[str, Any] = {"run": finished.run, **({"quality": share} if share else {})}
        if called:
            table["names"] = json.dumps(called.to_json(), ensure_ascii=True)
        if columns:
            table["columns"] = settle(columns, public, share=1.0 - share)
        of = replace(of, settings={FOLLOWING[0].name: table})
        return PlannedDescription(
            config=of, clients=clients, features=features, run=releases, delta=delta, reveals=tuple(reveals)
        )

    if total is None:
        return planned(config.epsilon)
    before = planned(1.0).epsilon_before
    if not math.isfinite(before) or planned(_LEAST).epsilon_after > total:
        raise ConfigError(
            f"--total {total:g}: expected more than the run alone has spent, epsilon {before:.4g} at delta {delta:.3g}"
        )
    return planned(epsilon_within(lambda own: planned(own).epsilon_after, total))


def epsilon_within(after: Callable[[float], float], total: float) -> float:
    """Return about the largest epsilon of a release with which everything together spends at most `total`.

    Parameters
    ----------
    after : callable
        From the epsilon of the release to that of everything; rising, and at most `total` for the least epsilon.
    total : float
    """
    low, high = _LEAST, min(_MOST, total)
    while high > low * (1.0 + _CLOSE):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if after(middle) <= total else (low, middle)
    return low
