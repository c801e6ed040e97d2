"""What each party writes at the end: result files, report, and what it says on its own terminal.

The server sees no centroid (with pairwise masking, the noisy sums that they follow from), and writes
`server.json` only. On a shared folder the lowest included client writes the shared files; every client writes the
labels of its own records (mode 0600).

Source: docs/report.md; docs/protocol.md, "Output".
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.config import RunConfig, to_toml
from fastlloyd.data.bounds import Bounds, scale, unscale
from fastlloyd.errors import InternalError
from fastlloyd.inputs import Common
from fastlloyd.net.meter import Meter
from fastlloyd.privacy.accountant import ACCOUNTANT, spent
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.protocols.fastlloyd.client import ClientResult
from fastlloyd.protocols.fastlloyd.plan import Plan, lifetime_delta
from fastlloyd.protocols.fastlloyd.server import ServerResult
from fastlloyd.report import document
from fastlloyd.report.files import PRIVATE_MODE, RunFolder, centroids_csv, labels_csv
from fastlloyd.wire import PartyId


@dataclass(slots=True, kw_only=True)
class Facts:
    """Public facts of one party's run, filled in as it goes on."""

    config: RunConfig
    common: Common
    run_id: bytes
    authenticated: bool
    started: float
    me: PartyId
    resumed: bool
    carrier: str
    mpi: str | None = None
    prints: bool = False
    setup_seconds: float = 0.0
    round_seconds: list[float] = field(default_factory=list)


_COUNTERS = ("payload_bytes", "link_bytes", "messages", "setup_bytes")
_AGAINST = (
    "any single other client, over all it sees (the server sees masked values only; server and a client together "
    "can take masks and noise off)"
)


def _against(plan: Plan) -> str:
    """Say from whom the claim protects."""
    if plan.masking != "pairwise":
        return _AGAINST
    known = "one client" if plan.known_shares == 1 else f"up to {plan.known_shares} clients together"
    return (
        f"{known}, the server, or both together, over all they see (each client adds a share of the noise; the "
        "server sees the noisy sums)"
    )


def own_traffic(meter: Meter) -> dict[str, int]:
    """Give this party's counters for the final exchange."""
    total = meter.total_sent()
    return {
        "messages": total.messages,
        "payload_bytes": total.payload_bytes,
        "link_bytes": total.link_bytes,
        "setup_bytes": meter.setup_sent().link_bytes,
    }


def _common(
    facts: Facts, plan: Plan, included: tuple[tuple[PartyId, ...], ...], traffic: Mapping[str, Any]
) -> document.Common:
    """Give what report and server.json have in common."""
    resumed = len(included) - len(facts.round_seconds)  # rounds closed before a resume were not timed
    seconds = [None] * resumed + facts.round_seconds
    parameters = {key: value for key, value in plan.to_json().items() if key not in ("rounds", "names", "protocol")}
    total = {key: sum(int(counts[key]) for counts in traffic.values()) for key in _COUNTERS}
    return document.Common(
        run=facts.run_id.hex(),
        protocol=plan.protocol,
        clients=plan.clients,
        authenticated=facts.authenticated,
        masking=facts.config.masking,
        parameters={
            **parameters,
            **({"noise_price": plan.noise_price} if plan.masking == "pairwise" else {}),
            "rounds": len(plan.rounds),
            "settings": dict(facts.common.public.settings),
            "client_caps": list(facts.common.caps),
        },
        rounds=[
            document.Round(round=t, seconds=seconds[t], clients_included=[party.rank for party in parties])
            for t, parties in enumerate(included)
        ],
        setup_seconds=facts.setup_seconds,
        traffic=document.Traffic(**total),
        network=document.Network(
            transport=facts.carrier,
            delay_seconds=facts.config.delay,
            profile=facts.config.network,
            shaping=facts.config.shaping,
        ),
        mpi=facts.mpi,
    )


class ServerOutcome:
    """What rank 0 has at the end: who was included, and traffic."""

    def __init__(self, facts: Facts, plan: Plan, result: ServerResult, traffic: Mapping[str, Any]) -> None:
        self._facts = facts
        self._plan = plan
        self._result = result
        self._traffic = traffic
        self.late = result.late

    def write(self) -> None:
        """Write server.json: nothing in it that the server may not see."""
        folder = RunFolder(self._facts.config.output, self._facts.run_id, self._facts.me)
        try:
            common = _common(self._facts, self._plan, self._result.included, self._traffic)
            run = self._facts.run_id.hex()
            releases = [dataclasses.replace(r, run=run).to_dict() for r in self._plan.all_releases()]
            report = document.build_server_report(common, releases=releases)
            folder.write("server.json", document.encode(report))
        finally:
            folder.discard()

    def discard(self) -> None:
        """Nothing stays behind."""

    def announce(self, note: Callable[[str], None]) -> None:
        """The server has nothing to tell: the result is the clients'."""


class ClientOutcome:
    """What a client has at the end; its parts are filled in by `execute`.

    Parameters
    ----------
    facts : Facts
    bounds : Bounds
        Matched to the features.
    names : tuple of str
    """

    def __init__(self, facts: Facts, bounds: Bounds, names: tuple[str, ...]) -> None:
        self._facts = facts
        self._bounds = bounds
        self._names = names
        self._folder = RunFolder(facts.config.output, facts.run_id, facts.me)
        self._written: list[str] = []
        self._document: dict[str, Any] | None = None
        self._writes_shared = False
        self.late: frozenset[PartyId] = frozenset()
        self.ledger: Ledger | None = None
        self.plan: Plan | None = None
        self.result: ClientResult | None = None
        self.traffic: Mapping[str, Any] = {}

    @property
    def ledger_path(self) -> Any:
        """Where this run's ledger stands without a state directory."""
        return self._folder.ledger_path

    def choose_writer(self) -> None:
        """Find out whether to write the shared files; before the final exchange, while all are there."""
        if self.result is None:
            raise InternalError("the writer is chosen after the last round")
        self._writes_shared = self._folder.writes_shared(self.result.included[-1])

    def write(self) -> None:
        """Write the own labels, and the shared files if this client is the one to do it."""
        if self.plan is None or self.result is None or self.ledger is None:
            raise InternalError("a client's outcome is incomplete")
        me = self._facts.me
        self._folder.write(f"labels_{me.rank}.csv", labels_csv(self.result.raw_labels), mode=PRIVATE_MODE)
        if self._writes_shared:
            self._write_shared(self.plan, self.result, self.ledger)
        self.ledger.close()
        self._remove_own_ledger()
        self._folder.discard()

    def _write_shared(self, plan: Plan, result: ClientResult, ledger: Ledger) -> None:
        config = self._facts.config
        centroids = self.centroids()
        run = self._facts.run_id.hex()
        releases = [dataclasses.replace(r, data="") for r in ledger.releases if r.run == run]
        pictures = self._draw(centroids, result)
        shared = ["centroids.csv", "config.toml", "ledger.jsonl", "report.json"]
        self._document = document.build_report(
            _common(self._facts, plan, result.included, self.traffic),
            privacy=document.Privacy(
                epsilon=plan.epsilon if plan.private else math.inf,
                delta=plan.delta,
                spent_epsilon=spent(releases, plan.delta) if plan.private else math.inf,
                neighbours="add-remove record",
                accountant=ACCOUNTANT,
                releases=[release.to_dict() for release in releases],
                lifetime_epsilon=ledger.epsilon(lifetime_delta(plan)) if config.state_dir else None,
                budget=config.budget,
            ),
            features=self._names,
            noisy_sizes=[float(size) for size in result.centers.noisy_counts],
            against=_against(plan),
            evaluation=self._evaluate(result.centers.exact),
            output=[*shared, *pictures, f"labels_{self._facts.me.rank}.csv"],
        )
        self._folder.write("centroids.csv", centroids_csv(self._names, centroids), mode=PRIVATE_MODE)
        self._folder.write("config.toml", to_toml(config))
        self._folder.write("ledger.jsonl", "".join(release.to_json() + "\n" for release in releases), mode=PRIVATE_MODE)
        self._folder.write("report.json", document.encode(self._document), mode=PRIVATE_MODE)

    def centroids(self) -> NDArray[np.float64]:
        """Give the released centroids in original units, shape (k, d)."""
        if self.result is None:
            raise InternalError("no centroids yet")
        return unscale(self.result.centers.exact, self._bounds)

    def _evaluate(self, centers: NDArray[np.float64]) -> dict[str, float | None] | None:
        """Compare with the public data set, if asked."""
        dataset = self._facts.common.dataset
        if not self._facts.config.evaluate or dataset is None:
            return None
        from fastlloyd.kmeans.metrics import evaluate

        return evaluate(scale(dataset.values, self._bounds), centers, dataset.labels)

    def _draw(self, centroids: NDArray[np.float64], result: ClientResult) -> list[str]:
        """Draw pictures and plots of released values; a missing plotting library costs the plots only."""
        from fastlloyd.report import picture, plot

        dataset = self._facts.common.dataset
        drawn = {}
        if dataset is not None and dataset.image_shape is not None:
            drawn["palette.png"] = picture.palette_picture(dataset.image_shape, dataset.values, centroids)
        if plot.available():
            sizes = [float(size) for size in result.centers.noisy_counts]
            lo, hi = self._bounds.lo, self._bounds.hi
            drawn["centroids.png"] = plot.heat_map(self._names, centroids, lo, hi, noisy_sizes=sizes)
            if len(self._names) == 2:
                points = None if dataset is None else dataset.values
                drawn["plane.png"] = plot.plane(self._names, centroids, lo, hi, noisy_sizes=sizes, public_points=points)
        for name, content in drawn.items():
            self._folder.write(name, content, mode=PRIVATE_MODE)
        return list(drawn)

    def _remove_own_ledger(self) -> None:
        """Without a state directory the run's ledger now stands in ledger.jsonl."""
        if self._facts.config.state_dir is None:
            for path in (self.ledger_path, self.ledger_path.with_name(self.ledger_path.name + ".key")):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Leave nothing half-written; a ledger with releases in it stays, for they were paid for."""
        if self.ledger is not None:
            self.ledger.close()
            if self.ledger.releases and self._facts.config.state_dir is None:
                kept = f"interrupted-{self._facts.run_id.hex()[:8]}-client-{self._facts.me.rank}.ledger.jsonl"
                with contextlib.suppress(OSError):
                    self.ledger_path.replace(self._folder.path / kept)
            self._remove_own_ledger()
        self._folder.discard()

    def announce(self, note: Callable[[str], None]) -> None:
        """Print the table, if this client wrote the shared files; values only where they may be printed."""
        if self._document is None:
            return
        from fastlloyd.report.table import render

        note(render(self._document, self.centroids() if self._facts.prints else None))
        note(f"files in {self._folder.path}")
