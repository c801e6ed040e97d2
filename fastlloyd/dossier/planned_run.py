"""A run before it happens, and what follows from its public facts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastlloyd.crypto.link.roster import Roster
from fastlloyd.dossier.study import StudyRun
from fastlloyd.gate.held import party_folders
from fastlloyd.protocols.registry import FOLLOWING
from fastlloyd.report.sight import Flow, Sight, Sights, who_sees, words_in_mode
from fastlloyd.run.budget_terms import Limit, Terms
from fastlloyd.run.config import VERTICAL, RunConfig
from fastlloyd.run.inputs import PublicInputs, count_features, public_values
from fastlloyd.run.outcome import Claim, Foreseen
from fastlloyd.run.promise import plan_words
from fastlloyd.run.run_file import without_records
from fastlloyd.run.session import find_protocol
from fastlloyd.run.vertical import VerticalInputs
from fastlloyd.wire.values import flatten, show_value

_ANY_FEATURES = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run before it happens.

    Attributes
    ----------
    config : RunConfig
        From the protocol's `gather`.
    inputs : PublicInputs
    clients : int
    roster : Roster or None
    foreseen : Foreseen or None
        None if the number of features is not known, or the protocol does not provide it.
    expected : str or None
        The expected result, and, if it is not good, the nearest settings with a good one.
    sized : bool
        Whether the number of features is known.
    terms : Claim or None
        Where it is not: the claim of a run of any number, of which epsilon and delta hold for every number.
    purpose : str
        What the run is for; empty: to be filled in.
    limits : tuple of Limit
        Lifetime limits that stand in the state directory, where one is named and there: of each party in it that has
        one.
    earlier : tuple of StudyRun
        Finished runs on the same records.
    """

    config: RunConfig
    inputs: PublicInputs
    clients: int
    roster: Roster | None = None
    foreseen: Foreseen | None = None
    expected: str | None = None
    sized: bool = True
    terms: Claim | None = None
    purpose: str = ""
    limits: tuple[Limit, ...] = ()
    earlier: tuple[StudyRun, ...] = ()

    @property
    def follows(self) -> str:
        """Id of the finished run that this one goes on from; empty: of none."""
        return str(self.config.own_settings.get("run", "")) if self.config.row in FOLLOWING else ""

    @property
    def limited(self) -> bool:
        """Whether a lifetime limit is known: it is asked for, or an earlier run has set it."""
        return self.config.budget is not None or bool(self.limits)

    @property
    def values(self) -> dict[str, Any]:
        """Everything public that the parties agree on."""
        return public_values(self.config, self.inputs, self.roster)

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Everything public, formatted for people, each value once, with automatic numbers from the plan."""
        planned = {} if self.foreseen is None else self.foreseen.parameters
        flat, rows = dict(flatten(self.values)), []
        for name, value in flat.items():
            asked = name.removeprefix("settled.")
            number = planned.get(asked) if asked != name and value is None else None
            if isinstance(number, int | float):
                rows.append((name, f"{number:.6g} (automatic)"))
            elif asked == name or asked not in flat or flat[asked] != value:  # else it was settled as it was asked for
                rows.append((name, show_value(value)))
        return rows

    @property
    def summary(self) -> str:
        """What the protocol does in this run."""
        return words_in_mode(self.config.protocol, self.facts).get("summary", self.config.row.summary)

    @property
    def claim(self) -> dict[str, Any] | None:
        """The claim of the run, by name, as far as known; None if nothing is known."""
        if self.foreseen is not None:
            return self.foreseen.claim.values()
        return None if self.terms is None else {name: self.terms.values()[name] for name in ("epsilon", "delta")}

    @property
    def facts(self) -> dict[str, Any]:
        """The facts on which the tables of messages and sights depend."""
        parameters = dict(self.config.own_settings) if self.foreseen is None else dict(self.foreseen.parameters)
        return {
            **parameters,
            "private": self.unit is not None,
            "masking": self.masking,
            "known_shares": self.config.known_shares,
            "roster": self.roster is not None,
            "align": self.values.get(VERTICAL, {}).get("align"),
        }

    @property
    def masking(self) -> str | None:
        """How masks are made, if the protocol has a choice."""
        return self.config.masking if self.foreseen is None else self.foreseen.masking

    @property
    def vertical(self) -> bool:
        """Whether the parties hold columns of the same people."""
        return self.config.row.partition == "vertical"

    @property
    def unit(self) -> str | None:
        """The difference between neighbours; None if nothing is private."""
        if self.foreseen is not None and not self.foreseen.claim.private:
            return None
        return find_protocol(self.config.protocol).privacy_unit(self.config)

    @property
    def why_unforeseen(self) -> str:
        """Why claim and releases are not known."""
        if not self.sized:
            return "the number of features is not known here (give it with --d)"
        return "the package that adds this protocol does not say them beforehand"

    @property
    def delta(self) -> float | None:
        """Delta of the promise; None if it is not known yet."""
        return None if self.foreseen is None else self.foreseen.claim.delta

    @property
    def n_total(self) -> int:
        """The public bound on the number of records."""
        return int(self.inputs.public.n_total)

    @property
    def flow(self) -> Flow | None:
        """Where data are and go; None if a protocol of another distribution does not provide it."""
        return find_protocol(self.config.protocol).data_flow(self.config.protocol, self.facts)

    @property
    def sights(self) -> Sights | None:
        """Who sees what."""
        return who_sees(self.config.protocol, self.facts, masking=self.masking, authenticated=self.roster is not None)

    @property
    def unprotected(self) -> list[Sight]:
        """Who would see what, put together, with nothing between that and records; launchers and hosts left out."""
        sights = self.sights
        together = () if sights is None else sights.together
        return [one for one in together if one.open]


def plan_run(
    config: RunConfig,
    clients: int,
    roster: Roster | None,
    *,
    d: int | None,
    purpose: str = "",
    earlier: tuple[StudyRun, ...] = (),
) -> PlannedRun:
    """Return a run before it happens, from its run file.

    Parameters
    ----------
    d : int or None
        Number of features; None: as the bounds or columns name them.
    purpose : str
        For a dossier of a run whose file states none.
    earlier : tuple of StudyRun
        Finished runs on the same records.

    Raises
    ------
    ConfigError
        Public parameters that do not fit.
    """
    config = without_records(config)
    protocol = find_protocol(config.protocol)
    filled, inputs = protocol.gather(config, clients)
    bounds = inputs.bounds if inputs.dataset is None else None
    features = d if d is not None else count_features(config.columns, bounds, inputs.categories)
    if isinstance(inputs, VerticalInputs) and inputs.alignment.columns:
        features = sum(inputs.alignment.columns) if d is None else d
    known = features is not None or inputs.dataset is not None
    any_d = protocol.foresee(filled, clients, _ANY_FEATURES * (clients + 1)) if not known else None
    return PlannedRun(
        config=filled,
        inputs=inputs,
        clients=clients,
        roster=roster,
        foreseen=protocol.foresee(filled, clients, features) if known else None,
        expected=plan_words(filled, clients, features).get("expected") if known else None,
        sized=known,
        terms=None if any_d is None else any_d.claim,
        purpose=purpose or filled.purpose or "",
        limits=_kept_limits(config.state_dir),
        earlier=earlier,
    )


def _kept_limits(root: str | None) -> tuple[Limit, ...]:
    """Return the lifetime limits of a state directory; of '{client}' no folder is known."""
    folders = [] if root is None else party_folders(Path(root))
    return tuple(limit for folder in folders if (limit := Terms(folder).kept) is not None)
