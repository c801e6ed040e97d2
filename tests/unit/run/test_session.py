"""What the protocols share: the refusal to resume, and a run's own releases in a ledger of several."""

from __future__ import annotations

import dataclasses

import pytest

from fastlloyd.crypto.link.identity import make_identity
from fastlloyd.errors import ConfigError, Reason
from fastlloyd.party.effects import Identify, Record
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.privacy.release import Release
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import PublicInputs
from fastlloyd.run.machine import Host
from fastlloyd.run.session import Session, find_protocol
from fastlloyd.wire.header import PartyId, clients

REFUSED = {
    "secfc": "secfc starts anew after an interruption, for fresh shares under the same masks .* nothing is spent twice",
    "vertical-dp": "vertical-dp starts anew after an interruption, for its keys are kept nowhere; .* in the ledger",
    "vertical-plain": "vertical-plain starts anew",
    "vertical-he": "vertical-he starts anew after an interruption, for its keys are kept nowhere; .* in the ledger",
}


@pytest.mark.parametrize(("protocol", "sentence"), REFUSED.items())
def test_a_run_that_cannot_go_on_says_so(protocol: str, sentence: str) -> None:
    config = RunConfig(protocol=protocol, dataset="iris", k=3, bounds="0,10", resume=True, state_dir="s")
    with pytest.raises(ConfigError, match=f"^--resume: {sentence}") as caught:
        find_protocol(protocol).gather(config, 2)
    assert caught.value.reason is Reason.RESUME


def test_a_run_finds_its_own_releases_in_a_ledger_of_several_runs() -> None:
    ledger, me = Ledger(), PartyId(1)
    common = PublicInputs(public=None, bounds=None, caps=(), dataset=None, splits=None)

    def session(run: bytes) -> Session:
        return Session(
            me=me,
            everybody=clients(2),
            config=RunConfig(),
            inputs=common,
            identity=make_identity(str(me), me.rank),
            run_id=run,
            ledger=ledger,
        )

    planned = {
        run: tuple(
            Release(round=t, name="sums", mechanism="gaussian", sensitivity=1.0, norm="l2", noise_scale=scale)
            for t in range(2)
        )
        for run, scale in ((b"first run", 2.0), (b"second run", 3.0))
    }
    for run, releases in planned.items():
        host = Host(session(run))
        for effect in (Identify("digest of the data"), Record(releases)):
            host.perform(effect)
        host.settle()
    assert len(ledger.releases) == 4
    for run, releases in planned.items():
        assert session(run).own_releases() == [dataclasses.replace(release, run=run.hex()) for release in releases]
