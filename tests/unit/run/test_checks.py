"""Checks at the start of a run."""

import pytest

from fastlloyd.errors import ConfigError, Reason
from fastlloyd.run.checks import build_numbers, refuse_other_build, refuse_other_protocol


def test_a_run_goes_on_with_its_own_protocol_only():
    with pytest.raises(
        ConfigError, match="is one of fastlloyd, this is one of fastlloyd-plus; go on with --protocol"
    ) as caught:
        refuse_other_protocol({"protocol": "fastlloyd", "k": 3}, "fastlloyd-plus")
    assert caught.value.reason is Reason.RESUME
    refuse_other_protocol({"protocol": "fastlloyd-plus"}, "fastlloyd-plus")
    refuse_other_protocol({"k": 3}, "vertical-he")  # a plan that names none


def test_a_run_goes_on_with_a_build_of_the_same_versions_only():
    begun = build_numbers("lloyd")
    refuse_other_build({"run_id": "ab", **begun}, "lloyd")
    older = {**begun, "protocol_version": begun["protocol_version"] - 1}
    for facts, words in [
        ({**begun, "results_version": 7}, "begun with version 7 of the results of lloyd, this build has version"),
        (older, f"begun with version {older['protocol_version']} of messages, this build has version"),
        ({"run_id": "ab"}, "begun by a build that noted no version of messages, this build has version"),
        ({"protocol_version": begun["protocol_version"]}, "a build that noted no version of the results of lloyd"),
    ]:
        with pytest.raises(ConfigError, match=words) as caught:
            refuse_other_build(facts, "lloyd")
        assert caught.value.reason is Reason.RESUME
