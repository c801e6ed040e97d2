"""Public values that parties send each other, and how a difference is named; a peer may send anything."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastlloyd.protocols.registry import find, names
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import encode_public
from fastlloyd.run.run_file import with_values
from fastlloyd.run.session import find_protocol
from fastlloyd.wire.values import COMPARE, MOST_VALUES_BYTES, explain

PUBLIC: dict[str, Any] = {"data": "own.csv", "bounds": "0,10", "n_total": 150, "k": 3}


def text(**changed: Any) -> bytes:
    config = with_values(RunConfig(**PUBLIC), changed)
    return encode_public(*find_protocol(config.protocol).gather(config, 3), None)


OWN = text()
HERE = find("fastlloyd-plus").results


def written(values: Any) -> bytes:
    return json.dumps(values).encode()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"k": 4}, "k is 4 there and 3 here"),
        ({"delta": 1e-5}, "delta is 1e-05 there and not set here"),
        ({"resume": True, "state_dir": "here"}, "resume is true there and false here"),
        ({"fastlloyd-plus": {"reach": 0.7}}, "settings.reach is 0.7 there and nothing here"),
        ({"bounds": "0,12"}, "bounds.every feature is 0, 12 there and 0, 10 here"),
        ({"k": 4, "epsilon": 2}, "k is 4 there and 3 here; epsilon is 2 there and 1 here"),
    ],
)
def test_each_value_that_differs_is_named_with_both(changed: dict[str, Any], sentence: str) -> None:
    found = explain(text(**changed), OWN)
    assert sorted(found.split("; ")) == sorted([*sentence.split("; "), COMPARE])


@pytest.mark.parametrize("protocol", names())
def test_every_protocol_tells_what_its_own_parties_can_read(protocol: str) -> None:
    needed = {"server_data": "s.csv"} if protocol == "feddp" else {}
    one, other = text(protocol=protocol, **needed), text(protocol=protocol, seed=7, **needed)
    assert explain(one, other) == f"seed is 0 there and 7 here; {COMPARE}"


def test_long_values_are_cut_to_where_they_differ() -> None:
    columns = [f"feature_{i}" for i in range(300)]
    others = [*columns[:250], "other", *columns[251:]]
    found = explain(text(columns=others), text(columns=columns))
    assert "feature_249, other, feature_251" in found and "feature_249, feature_250, feature_251" in found
    assert len(found) < 300


def test_very_many_differences_are_counted() -> None:
    assert explain(written({f"k{i}": i for i in range(100)}), written({})).endswith(f"; and 88 more; {COMPARE}")


def test_values_that_are_too_long_are_not_sent() -> None:
    columns = [f"{'x' * 1000}{i}" for i in range(1100)]
    long = text(columns=columns)
    assert json.loads(long) == {"protocol": "fastlloyd-plus", "results_version": HERE} and len(OWN) <= MOST_VALUES_BYTES
    for one, other in ((long, OWN), (OWN, long), (long, long), (b"", OWN), (OWN, b"")):
        assert explain(one, other) == f"its values are too many to be sent; {COMPARE}"


def test_another_build_is_named_with_both_numbers_whatever_else_differs_and_however_long_the_rest_is() -> None:
    other = {"protocol": "fastlloyd-plus", "results_version": HERE + 1}
    sentence = (
        f"its build of fastlloyd has version {HERE + 1} of the results of fastlloyd-plus, this one has version {HERE}, "
        "and they compute different results; install the same build at all parties"
    )
    for theirs in (other, json.loads(OWN) | other, json.loads(text(k=4)) | other):
        assert explain(written(theirs), OWN) == sentence
    # Numbers of different protocols are not compared.
    apart = written(json.loads(text(protocol="lloyd")) | {"results_version": 2})
    assert "protocol is lloyd there and fastlloyd-plus here" in explain(apart, OWN)
    assert "results_version is x there" in explain(written(json.loads(OWN) | {"results_version": "x"}), OWN)


@pytest.mark.parametrize(
    ("theirs", "sentence"),
    [
        (b"[1]", "expected an object, got [1]"),
        (b"1", "expected an object, got 1"),
        (b"{", "expected JSON"),
        (b"\xff\xfe", "expected JSON in UTF-8"),
        (b'{"k":1,"k":2}', "expected each key once"),
        (b'{"k":NaN}', "expected finite numbers"),
        (b'{"k":' + b"[" * 20 + b"]" * 20 + b"}", "at most 16 levels"),
        (b'{"k":"\\ud800"}', "surrogates not allowed"),
        (b" " * (MOST_VALUES_BYTES + 1), "at most 1048576 bytes"),
    ],
)
def test_nonsense_is_said_to_be_nonsense(theirs: bytes, sentence: str) -> None:
    found = explain(theirs, OWN)
    assert found.startswith("the values that it sent cannot be read (") and sentence in found and found.isprintable()


def test_control_characters_and_long_texts_of_a_peer_do_not_reach_the_terminal() -> None:
    theirs = written(json.loads(OWN) | {"k\x1b[2J" + "x" * 1000: "\x1b]0;owned\x07" + "y" * 100_000, "k": "\u202e3"})
    found = explain(theirs, OWN)
    assert found.isprintable() and len(found) < 600
    assert "\\x1b[2J" in found and "k is \\u202e3 there and 3 here" in found


def test_the_same_values_under_another_digest_are_another_program() -> None:
    assert explain(OWN, OWN) == f"all configured values are the same, so the programs differ; {COMPARE}"
