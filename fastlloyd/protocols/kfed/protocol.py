"""k-FED as a protocol: its plan, rounds and result, and who sees what. It is a baseline: nothing about it is private.

The server sees each client's centres and has the result; it writes the shared files where it shares their folder.

Source: docs/security.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlloyd.dossier.shared_messages import BEGINNING, CHAINS_OF_ALL, COUNTERS, HELLO, PLAN_PROPOSAL, READY
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.party.effects import Party
from fastlloyd.party.message import recall
from fastlloyd.party.message_bounds import MessageBounds
from fastlloyd.party.stored import StoredRounds
from fastlloyd.protocol.horizontal import Horizontal
from fastlloyd.protocols.kfed.client import ClientResult, centers_format, client
from fastlloyd.protocols.kfed.messages import MergedCenters
from fastlloyd.protocols.kfed.parameters import PublicParameters
from fastlloyd.protocols.kfed.plan import Plan, check_plan, make_plan
from fastlloyd.protocols.kfed.server import ServerResult, server
from fastlloyd.protocols.kfed.settings import Settings
from fastlloyd.protocols.kfed.sizes import bounds
from fastlloyd.report.flow import DOWN, OWN_LABELS, UP, Flow, MessageClass
from fastlloyd.report.outlook import PlanLine
from fastlloyd.report.quality import EXACT
from fastlloyd.report.sight import NOTHING, Sight, Sights
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Result
from fastlloyd.run.session import Session
from fastlloyd.wire import numbers
from fastlloyd.wire.header import PartyId

_OWN = (
    MessageClass(
        name="LocalCenters (kfed)",
        about="the centres of this site's own records",
        route=UP,
        server="means of the client's records",
        others="never sent to them",
        types=(numbers.LOCAL_CENTERS,),
    ),
    MessageClass(
        name="MergedCenters (kfed)",
        about="the result",
        route=DOWN,
        server="what it computed",
        others="the merged centres",
        types=(numbers.MERGED_CENTERS,),
    ),
)


class KFed(Horizontal[Plan]):
    """k-FED: one exchange of centres in the clear."""

    settings = Settings
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

    def bounds(self, plan: Plan) -> MessageBounds:
        """Return the bounds of what a peer may send once the plan is known."""
        return bounds(plan)

    def included(self, plan: Plan, t: int, reply: bytes) -> tuple[PartyId, ...]:
        """Name the clients whose centres were merged."""
        return recall(MergedCenters, reply, centers_format(plan), "reply-0").included

    def play_server(
        self, session: Session, plan: Plan, stored: Mapping[int, bytes], rounds_done: Mapping[PartyId, int]
    ) -> Party[ServerResult]:
        """Merge the clients' centres."""
        return server(plan, stored=stored, rounds_done=rounds_done)

    def play_client(
        self, session: Session, plan: Plan, points: GridPoints, secrets: None, stored: StoredRounds
    ) -> Party[ClientResult]:
        """Send the centres of a client's own records."""
        return client(session.me, points, plan, stored=stored)

    def result(self, session: Session, plan: Plan, end: ServerResult | ClientResult) -> Result:
        """Return the result that every party has at the end."""
        return self.make_result(session, plan, end.included, centers=end.centers, noise=EXACT)

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
        )

    def data_flow(self, protocol: str, facts: Mapping[str, Any]) -> Flow:
        """Return where data are and go."""
        return Flow(
            records="as means of this site's records, without noise or mask, readable by the server; a mean of one "
            "record is that record",
            labels=OWN_LABELS,
            result="the merged centres: the server and all clients",
            messages=(*BEGINNING, HELLO, PLAN_PROPOSAL, READY, *_OWN, CHAINS_OF_ALL, COUNTERS),
        )


PROTOCOL = KFed()
