"""Checks at the start of a run."""

import pytest

from fastlloyd.errors import ConfigError, Reason
from fastlloyd.run.checks import refuse_other_protocol


def test_a_run_goes_on_with_its_own_protocol_only():
    with pytest.raises(
        ConfigError, match="is one of fastlloyd, this is one of fastlloyd-plus; go on with --protocol"
    ) as caught:
        refuse_other_protocol({"protocol": "fastlloyd", "k": 3}, "fastlloyd-plus")
    assert caught.value.reason is Reason.RESUME
    refuse_other_protocol({"protocol": "fastlloyd-plus"}, "fastlloyd-plus")
    refuse_other_protocol({"k": 3}, "vertical-he")  # a plan that names none
