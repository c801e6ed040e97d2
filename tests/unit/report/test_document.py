import copy
import functools
import json
import math
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.errors import ConfigError
from fastlloyd.lifecycle.closing import Account, Sent
from fastlloyd.net.sockets import WireBytes
from fastlloyd.report import document
from fastlloyd.report.claim import Claim
from fastlloyd.report.document import schema, validate
from fastlloyd.run.closing import traffic_entry
from fastlloyd.wire.header import SERVER
from tests.unit.report.figures import NO_NOISE, RUN, common, privacy, releases, report, round_entry, server_report

jsonschema = pytest.importorskip("jsonschema")


@functools.cache
def validator(definition):
    return jsonschema.Draft202012Validator({**schema(), "$ref": f"#/$defs/{definition}"})


def accepted_by_jsonschema(value, definition="report"):
    return validator(definition).is_valid(value)


def accepted(value, definition="report"):
    try:
        validate(value, definition)
    except ConfigError:
        return False
    return True


def test_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(schema())


def test_report_has_every_section_and_reads_back(tmp_path):
    made = report()
    path = tmp_path / "report.json"
    path.write_text(document.encode(made))
    assert document.load(path) == made
    assert accepted_by_jsonschema(made)
    assert made["schema"] == 6 and made["run"] == RUN
    assert made["parties"] == {"clients": 2, "authenticated": False, "masking": "common"}
    assert made["rounds"][1] == {
        "round": 1,
        "seconds": 0.25,
        "clients_included": [1, 2],
        "sent_bytes": 95,
        "received_bytes": 96,
    }
    assert made["result"]["movement"] == [{"largest": 0.25, "mean": 0.125}, {"largest": 0.03, "mean": 0.0125}]
    assert made["timing"] == {
        "setup_seconds": 1.5,
        "rounds_seconds": 0.5,
        "seconds_per_round": 0.25,
        "total_seconds": 2.0,
    }
    assert made["traffic"]["payload_bytes_per_round"] == 96
    assert made["output"] == ["centroids.csv", "report.json"]
    assert made["machine"]["cpu_count"] >= 1 and "numpy" in made["machine"]["packages"]
    assert made["machine"]["platform"].startswith(f"{platform.system()}-{platform.release()}-{platform.machine()}")
    assert made["not_private"] is False and made["not_private_reason"] is None
    assert made["evaluation"] is None


@pytest.mark.parametrize("made, definition", [(report, "report"), (server_report, "server")])
def test_the_version_of_the_results_is_there_from_schema_5_on(made, definition):
    document = made()
    assert document["results_version"] == 1
    del document["results_version"]
    assert not accepted(document, definition) and not accepted_by_jsonschema(document, definition)
    for schema_ in (2, 3, 4):
        older = {**document, "schema": schema_}
        assert accepted(older, definition) and accepted_by_jsonschema(older, definition)


@pytest.mark.parametrize("made, definition", [(report, "report"), (server_report, "server")])
def test_how_the_links_keys_were_agreed_is_there_from_schema_6_on(made, definition):
    document = made()
    for known in (["X25519"], ["X25519", "X25519MLKEM768"], [], None):
        document["network"]["key_exchange"] = known
        assert accepted(document, definition) and accepted_by_jsonschema(document, definition)
    del document["network"]["key_exchange"]
    assert not accepted(document, definition) and not accepted_by_jsonschema(document, definition)
    older = {**document, "schema": 5}
    assert accepted(older, definition) and accepted_by_jsonschema(older, definition)


@pytest.mark.parametrize("made, definition", [(report, "report"), (server_report, "server")])
def test_with_threshold_masks_each_round_says_who_was_silent_and_how_much_noise_there_was(made, definition):
    document = made()
    document["parties"]["masking"] = "threshold"
    assert not accepted(document, definition) and not accepted_by_jsonschema(document, definition)
    older = {**document, "schema": 5}
    assert accepted(older, definition) and accepted_by_jsonschema(older, definition)
    for lacking in ("clients_silent", "noise"):
        for entry in document["rounds"]:
            entry |= {"clients_silent": [], "noise": 1.4}
        assert accepted(document, definition) and accepted_by_jsonschema(document, definition)
        del document["rounds"][1][lacking]
        assert not accepted(document, definition) and not accepted_by_jsonschema(document, definition)


def test_claim_names_neighbours_bound_and_adversary_and_never_understates_epsilon():
    made = report(privacy=privacy(spent_epsilon=0.98761))
    assert made["claim"] == (
        "Differential privacy with epsilon = 0.9877 and delta = 8e-07 for neighbours that differ in one record "
        "(add-remove record), against any single other client, on condition that all clients together hold at most "
        "12,345 records and that ChaCha20 is indistinguishable from random bits."
    )
    assert made["privacy"]["unit"] == "one record"


def test_claim_points_out_a_large_delta():
    made = report(privacy=privacy(delta=1e-5))["claim"]
    assert "random bits. Note that N times delta is 0.12, above 0.01" in made
    claim = Claim(epsilon=1.0, delta=1e-5, against="all")
    assert "Note" not in claim.sentence(0.9, n_total=None)


@given(st.floats(1e-6, 1e6))
def test_epsilon_in_words_is_rounded_up(epsilon):
    text = Claim(epsilon=epsilon, delta=1e-6, against="all").sentence(epsilon, n_total=None)
    shown = float(text.split("epsilon = ")[1].split()[0])
    assert epsilon <= shown <= epsilon * 1.002


def test_infinite_epsilon_is_null_and_the_report_says_why():
    made = report(privacy=privacy(**NO_NOISE))
    assert made["privacy"]["epsilon"] is None and made["privacy"]["spent_epsilon"] is None
    assert made["not_private"] is True
    assert made["claim"] == f"No privacy claim: {made['not_private_reason']}."
    assert "Infinity" not in document.encode(made)


def test_evaluation_makes_a_report_not_private():
    made = report(evaluation={"nicv": 0.5, "nicv_central": 0.25, "silhouette": math.nan, "accuracy": None})
    assert made["not_private"] is True and "--evaluate" in made["not_private_reason"]
    assert made["evaluation"]["silhouette"] is None
    assert accepted_by_jsonschema(made)


def test_ledger_over_several_runs():
    made = report(privacy=privacy(lifetime_epsilon=2.5, lifetime_delta=1e-6, budget=3.0))
    assert made["privacy"]["lifetime_epsilon"] == 2.5 and made["privacy"]["budget"] == 3.0
    assert "note" not in made["privacy"]


def test_digest_of_the_data_stays_out_of_the_servers_report():
    assert '"data": "ab"' in json.dumps([release.to_dict() for release in releases()])
    assert '"data"' not in document.encode(server_report())


def test_server_sees_releases_without_values_and_no_result():
    made = server_report()
    assert accepted_by_jsonschema(made, "server")
    assert not made.keys() & {"result", "evaluation", "privacy", "claim", "output"}
    assert len(made["releases"]) == len(releases())
    for forbidden in ({"result": report()["result"]}, {"centroids": [[1.0]]}):
        with pytest.raises(ConfigError, match="does not belong here"):
            validate({**made, **forbidden}, "server")


def test_rounds_before_a_resume_count_for_nothing_in_the_timing():
    made = report(
        common=common(
            rounds=[
                round_entry(0, seconds=None, sent_bytes=None, received_bytes=None),
                round_entry(1, seconds=0.5),
            ]
        )
    )
    assert made["timing"]["seconds_per_round"] == 0.5
    assert made["traffic"]["payload_bytes_per_round"] == 192


def test_no_rounds_at_all():
    made = report(common=common(rounds=[]), privacy=privacy(releases=[]))
    assert made["timing"]["seconds_per_round"] == 0.0 and made["traffic"]["payload_bytes_per_round"] == 0


def test_time_is_written_in_utc():
    written = datetime.strptime(report()["created"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - written).total_seconds()) < 600


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_wrong_figures_are_refused_where_they_are_built(value):
    with pytest.raises(ConfigError, match="finite"):
        report(noisy_sizes=[value, 1.0, 2.0])
    with pytest.raises(ConfigError, match="at least 0"):
        report(common=common(traffic={**common()["traffic"], "messages": -1}))


@pytest.mark.parametrize(
    ("schema_", "words"),
    [
        (
            1,
            "written by an older build of fastlloyd .version '0.0.7'.; .* schemas 2 to 6: read it with that build",
        ),
        (7, "written by a newer build of fastlloyd .version '0.0.7'.; .* schemas 2 to 6: install it"),
    ],
)
def test_a_report_of_a_schema_that_is_not_read_says_which_build_reads_it(tmp_path, schema_, words):
    (tmp_path / "report.json").write_text(json.dumps({"schema": schema_, "version": "0.0.7"}))
    with pytest.raises(ConfigError, match=f"a report of schema {schema_}, {words}"):
        document.load(tmp_path / "report.json")


CHANGES = [
    ("schema", 1),
    ("schema", 2),
    ("schema", 2.0),
    ("schema", 3),
    ("schema", 5),
    ("schema", True),
    ("run", "XYZ"),
    ("run", 5),
    ("created", "yesterday"),
    ("version", ""),
    ("claim", None),
    ("not_private", "no"),
    ("not_private", True),
    ("not_private_reason", "because"),
    ("parties", {"clients": 0, "authenticated": True}),
    ("parties", {"clients": 2}),
    ("parties", {"clients": 2, "authenticated": 1}),
    ("parties", {"clients": 2, "authenticated": True, "names": []}),
    ("parameters", {"k": 3, "rounds": 2}),
    ("parameters", {"k": 3, "rounds": 2, "n_total": 10, "anything": {"else": 1}}),
    ("rounds", [{"round": 0, "seconds": None, "clients_included": [1]}]),
    ("rounds", [{"round": 0, "seconds": None, "clients_included": [1], "sent_bytes": None, "received_bytes": None}]),
    ("rounds", [{"round": 0, "seconds": 1, "clients_included": [1], "sent_bytes": -1, "received_bytes": 1}]),
    ("rounds", [{"round": 0, "seconds": 1, "clients_included": [0]}]),
    ("rounds", [{"round": 0.5, "seconds": 1, "clients_included": [1]}]),
    ("rounds", [{"round": 1.0, "seconds": 1, "clients_included": [1]}]),
    ("rounds", {}),
    ("evaluation", {"nicv": 1.0}),
    ("evaluation", {"nicv": 1.0, "nicv_central": None, "own": 2.0}),
    ("evaluation", {"nicv": 1.0, "nicv_central": None, "own": "2"}),
    ("evaluation", {"nicv": 1.0, "nicv_central": 1.0, "accuracy": 1.5}),
    ("result", {"features": [], "noisy_sizes": None}),
    ("result", {"features": ["a"], "noisy_sizes": None}),
    ("result", {"features": ["a"], "noisy_sizes": None, "movement": None}),
    ("result", {"features": ["a"], "noisy_sizes": None, "movement": [None, {"largest": 0.5, "mean": 0.25}]}),
    ("result", {"features": ["a"], "noisy_sizes": None, "movement": [{"largest": 0.5}]}),
    ("result", {"features": ["a"], "noisy_sizes": None, "movement": [{"largest": 0.5, "mean": -0.25}]}),
    ("result", {"features": ["a"], "noisy_sizes": [None]}),
    ("network", {"transport": "shm", "delay_seconds": -1}),
    ("output", ["../elsewhere"]),
    ("quality", None),
    ("quality", {**report()["quality"], "verdict": "excellent"}),
    ("quality", {**report()["quality"], "sentence": ""}),
    ("quality", {**report()["quality"], "empty": [-1]}),
    ("quality", {**report()["quality"], "overlapping": [[0, 1]], "size_ranges": [[0.0, 1.5]]}),
    ("quality", {**report()["quality"], "expected": {"centre_noise": None, "verdict": "unknown", "sentence": "no"}}),
    ("quality", {**report()["quality"], "more": 1}),
    ("output", []),
    ("unknown", 1),
]


@pytest.mark.parametrize(("section", "value"), CHANGES)
def test_own_check_agrees_with_jsonschema_on_changed_sections(section, value):
    changed = {**report(), section: value}
    assert accepted(changed) == accepted_by_jsonschema(changed)


@pytest.mark.parametrize("section", sorted(report()))
def test_every_section_is_required(section):
    changed = report()
    del changed[section]
    assert not accepted(changed)
    assert not accepted_by_jsonschema(changed)


def test_reports_of_the_schemas_before_are_read_without_what_came_later():
    def fits(old, definition="report"):
        ours, theirs = accepted(old, definition), accepted_by_jsonschema(old, definition)
        assert ours == theirs
        return ours

    old, server = report(), server_report()
    del old["result"]["movement"]
    assert not fits(old)
    for document_ in (old, server):
        for entry in document_["rounds"]:
            del entry["sent_bytes"], entry["received_bytes"]
    assert not fits(server, "server")
    old["schema"] = server["schema"] = 3
    assert fits(old) and fits(server, "server")
    del old["quality"]
    assert not fits(old)
    old["schema"] = 2
    assert fits(old)


def test_bytes_on_the_network_are_the_links_and_what_comes_on_top():
    counted = WireBytes(stream_bytes=4090, outer_tls_bytes=20, tcp_ip_bytes=300, launcher_bytes=5)
    traffic = traffic_entry(
        {SERVER: Account(sent=Sent(payload_bytes=192, link_bytes=4000, messages=0, setup_bytes=0), wire=counted)},
        common()["rounds"],
    )
    made = document.build_server_report(common(traffic=traffic), releases=[each.to_dict() for each in releases()])
    assert made["traffic"]["wire_bytes"] == 4395
    assert made["traffic"]["wire"] == {
        "counted": "sockets",
        "framing_bytes": 70,
        "outer_tls_bytes": 20,
        "tcp_ip_bytes": 300,
        "launcher_bytes": 5,
    }
    for name in ("wire", "wire_bytes"):
        lacks = {**made, "traffic": {key: value for key, value in made["traffic"].items() if key != name}}
        assert not accepted(lacks, "server") and not accepted_by_jsonschema(lacks, "server")
        lacks["schema"] = 4
        assert accepted(lacks, "server") and accepted_by_jsonschema(lacks, "server")


def test_each_round_of_this_schema_has_its_bytes_and_the_server_no_movement():
    made = report()
    del made["rounds"][0]["sent_bytes"]
    assert not accepted(made) and not accepted_by_jsonschema(made)
    assert "movement" not in document.encode(server_report())
    assert [entry["received_bytes"] for entry in server_report()["rounds"]] == [96, 96]


def places(value, path=()):
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield from places(entry, (*path, key))


@given(st.data())
def test_own_check_agrees_with_jsonschema_on_random_damage(data):
    damaged = {"root": report(evaluation={"nicv": 0.5, "nicv_central": 0.25})}
    path = ("root", *data.draw(st.sampled_from(list(places(damaged["root"])))))
    spot = damaged
    for key in path[:-1]:
        spot = spot[key]
    if data.draw(st.booleans()) and isinstance(spot, dict):
        del spot[path[-1]]
    else:
        damages = [None, True, -1, 0, 1.5, 2.0, "", "text", [], {}, [1], {"a": 1}]
        spot[path[-1]] = copy.deepcopy(data.draw(st.sampled_from(damages)))
    if "root" in damaged:
        assert accepted(damaged["root"]) == accepted_by_jsonschema(damaged["root"])


def test_message_names_the_place_and_the_mend():
    changed = report()
    changed["privacy"]["releases"][1]["mechanism"] = "magic"
    with pytest.raises(ConfigError, match=r"privacy\.releases\[1\]\.mechanism: expected one of .* got 'magic'"):
        validate(changed)


@pytest.mark.parametrize("text", ["", "[", '{"schema": NaN}', '{"schema": 1}', "[1]", "\udcff"])
def test_damaged_files_are_refused(tmp_path, text):
    path = tmp_path / "report.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError):
        document.load(path)


def test_missing_file_says_what_to_give(tmp_path):
    with pytest.raises(ConfigError, match="folder of a finished run"):
        document.load(tmp_path / "report.json")


def test_shipped_schema_is_canonical_json():
    json.dumps(schema(), allow_nan=False)
    assert schema()["$defs"]["report"]["properties"]["schema"]["enum"] == [2, 3, 4, 5, document.SCHEMA]
    assert schema()["$id"] == f"urn:fastlloyd:report:{document.SCHEMA}"


def declared_names(rules):
    for name, inner in rules.get("properties", {}).items():
        yield name
        yield from declared_names(inner)
    if isinstance(rules.get("items"), dict):
        yield from declared_names(rules["items"])


def test_every_declared_entry_is_explained():
    """The schema declares an entry; docs/report.md says what it is."""
    text = (Path(__file__).parents[3] / "docs" / "report.md").read_text()
    explained = set(re.findall(r"`([^`]+)`", text))
    names = {name for rules in schema()["$defs"].values() for name in declared_names(rules)}
    assert names - explained == set()
