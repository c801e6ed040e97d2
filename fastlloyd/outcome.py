from __future__ import annotations
from dataclasses import dataclass, field
from pathlib import Path
import numpy as np

@dataclass(slots=True, kw_only=True)
class Facts:
    config: object
    common: object
    run_id: bytes
    authenticated: bool
    started: float
    me: object
    resumed: bool
    setup_seconds: float = 0.0
    round_seconds: list = field(default_factory=list)

def own_traffic(meter):
    return {"x": meter.total_sent().payload_bytes}

class ServerOutcome:
    def __init__(self, facts, plan, result, traffic):
        self.facts=facts; self.late=result.late; self.traffic=traffic
    def write(self): pass
    def discard(self): pass
    def announce(self, note): note(f"traffic {self.traffic} rounds {self.facts.round_seconds}")

class ClientOutcome:
    def __init__(self, facts, bounds, names):
        self.facts=facts; self.bounds=bounds; self.late=False
        self.ledger_path=Path(f"/tmp/ledger-{facts.run_id.hex()}-{facts.me.rank}")
    def write(self): pass
    def discard(self): pass
    def announce(self, note):
        from fastlloyd.data.bounds import unscale
        if self.facts.me.rank==1: note(str(unscale(self.result.centers.exact,self.bounds))+str(self.result.centers.noisy_counts)+str(self.epsilon)+str(self.traffic)+str(self.facts.round_seconds))
