"""k-FED as a protocol: its plan, rounds and result, and who sees what. It is a baseline: nothing about it is private.

The server sees each client's centres and has the result; it writes the shared files where it shares their folder.

Source: docs/security.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.party.effects import Party
from fastlloyd.party.message import recall
from fastlloyd.protocol.horizontal import Horizontal
from fastlloyd.protocols.kfed.client import ClientResult, client
from fastlloyd.protocols.kfed.messages import MESSAGES, MergedCenters
from fastlloyd.protocols.kfed.plan import Plan, PublicParameters, Settings, check_plan, make_plan
from fastlloyd.protocols.kfed.server import ServerResult, server
from fastlloyd.protocols.kfed.work import estimate_work
from fastlloyd.report.outlook import PlanLine
from fastlloyd.report.quality import EXACT
from fastlloyd.report.sight import NOTHING, OWN_LABELS, Flow, Sight, Sights, recorded
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Result
from fastlloyd.run.session import Session
from fastlloyd.run.work import Work
from fastlloyd.wire.header import PartyId


class KFed(Horizontal[Plan]):
    """k-FED: one exchange of centres in the clear."""

    settings = Settings
    messages = MESSAGES
    plan_type = Plan
    public_type = PublicParameters
    server_has_result = True
    not_private = "means of the clients' records go to the server without noise or masks"

    def make_plan(self, public: PublicParameters, names: tuple[str, ...]) -> Plan:
        """Make the plan of a run; run by the server."""
        return make_plan(public, d=len(names), names=names)

    def check_plan(self, plan: Plan, public: PublicParameters, names: tuple[str, ...]) -> float:
        """Check the server's plan against a client's own configuration."""
        return check_plan(plan, public, d=len(names), names=names)

    def included(self, plan: Plan, t: int, reply: bytes) -> tuple[PartyId, ...]:
        """Name the clients whose centres were merged."""
        return recall(MergedCenters, reply, plan, "reply-0").included

    def play_server(self, session: Session, plan: Plan, secret: None, stored: StoredRounds) -> Party[ServerResult]:
        """Merge the clients' centres."""
        return server(plan, stored=stored)

    def play_client(
        self, session: Session, plan: Plan, points: GridPoints, secrets: None, stored: StoredRounds
    ) -> Party[ClientResult]:
        """Send the centres of a client's own records."""
        return client(session.me, points, plan, stored=stored)

    def result(self, session: Session, plan: Plan, end: ServerResult | ClientResult) -> Result:
        """Return the result that every party has at the end."""
        return self.make_result(session, plan, end.included, centers=end.centers, noise=EXACT)

    def work(self, config: RunConfig, plan: Plan) -> Work:
        """Estimate what a run computes at most."""
        return estimate_work(config, plan)

    def cost_lines(self, config: RunConfig, plan: Plan) -> list[PlanLine]:
        """Say how many bytes travel."""
        up, down = 8 * plan.most_elements, 8 * plan.k * plan.d
        return [PlanLine("one round", f"at most {up:,} bytes up from each client, {down:,} down to each")]

    def who_sees(self, protocol: str, parameters: Mapping[str, Any]) -> Sights:
        """Return who sees what, the network left out."""
        return Sights(
            (
                Sight("the server", "each client's own centres, each a mean of records of that client", NOTHING),
                Sight("each client", "its own records; the merged centres", NOTHING),
            ),
            (),
            recorded("each client's own centres", NOTHING),
        )

    def data_flow(self, protocol: str, facts: Mapping[str, Any]) -> Flow:
        """Return where data are and go."""
        return Flow(
            records="as means of this site's records, without noise or mask, readable by the server; a mean of one "
            "record is that record",
            labels=OWN_LABELS,
            result="the merged centres: the server and all clients",
            messages=self.messages,
        )


PROTOCOL = KFed()
