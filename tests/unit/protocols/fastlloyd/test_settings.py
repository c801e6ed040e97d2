"""Settings of the five protocols of the folder: own defaults, own names, and two numbers that belong together."""

from __future__ import annotations

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.protocols.fastlloyd.settings import PLUS_ROUNDS, settings_from


@pytest.mark.parametrize(
    "protocol,domain,rounds",
    [
        ("fastlloyd", "fold", 7),
        ("glloyd", "none", 7),
        ("lloyd", "none", 7),
        ("fastlloyd-plus", "truncate", PLUS_ROUNDS),
    ],
)
def test_each_protocol_has_defaults_of_its_own(protocol: str, domain: str, rounds: int) -> None:
    settings = settings_from(protocol, {})
    assert (settings.domain, settings.max_rounds) == (domain, rounds)


@pytest.mark.parametrize(
    "protocol,values,sentence",
    [
        ("fastlloyd", {"rho": 0.2}, "fastlloyd has no setting 'rho'; it has alpha, clip, count_ratio"),
        ("sulloyd", {"rho": 2}, "--set sulloyd.rho: expected a number, above 0 and at most 1, got 2"),
        ("lloyd", {"domain": "fold"}, "lloyd has no setting 'domain'; it has max_rounds"),
        ("glloyd", {"min_rounds": 8}, "--set max_rounds: expected at least min_rounds = 8, got 7"),
    ],
)
def test_what_does_not_fit_is_refused(protocol: str, values: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from(protocol, values)
    assert str(caught.value).startswith(sentence)
    assert settings_from("glloyd", {"min_rounds": 7}).min_rounds == 7
