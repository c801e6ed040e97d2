"""What the faces share: the refusal to resume."""

from __future__ import annotations

import pytest

from fastlloyd.errors import ConfigError, Reason
from fastlloyd.run.config import RunConfig
from fastlloyd.run.session import find_face

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
        find_face(protocol).gather(config, 2)
    assert caught.value.reason is Reason.RESUME
