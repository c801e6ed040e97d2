"""Protocols of other distributions: what is wrong with one is a sentence about it, and harms no other."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.protocol import Horizontal
from fastlloyd.protocols import registry
from fastlloyd.protocols.registry import GROUP, PROTOCOLS, ROWS, Row, find, knows, names, results_versions, summaries
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import ServerInputs
from fastlloyd.run.session import Adapter, find_protocol

MUST = sorted(Adapter.__abstractmethods__)
ROW = "from fastlloyd.protocols.registry import Row\nROW = Row({name!r}, {package!r}, {partition!r}, 'a line')\n"


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Gives what adds an entry point whose module has this source."""
    points: list[EntryPoint] = []
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_entry_points", lambda: iter(points))

    def add(name: str, source: str, module: str = "stranger") -> None:
        (tmp_path / f"{module}.py").write_text(source)
        points.append(EntryPoint(name, f"{module}:ROW", GROUP))

    yield add
    for module in [name for name in sys.modules if name.startswith("stranger")]:
        del sys.modules[module]


def row(name: str, package: str = "stranger", partition: str = "horizontal") -> str:
    return ROW.format(name=name, package=package, partition=partition)


def test_a_row_states_the_version_of_its_results_or_has_the_first(added) -> None:
    added("one", row("one"))
    added("two", row("two").replace("'a line'", "'a line', results=3"), "stranger_two")
    registry_points = dict(results_versions())
    assert (registry_points["one"], registry_points.get("two")) == (1, 3)


def test_a_row_of_another_distribution_is_found(added) -> None:
    added("other", row("other"))
    assert knows("other") and names() == (*PROTOCOLS, "other") and find("other").summary == "a line"
    assert ("other", "a line") in list(summaries())


@pytest.mark.parametrize(
    ("name", "source", "why"),
    [
        ("other", "raise RuntimeError('no')", r"it cannot be imported \(RuntimeError: no\)"),
        ("other", "raise SystemExit(0)", r"it cannot be imported \(SystemExit: 0\)"),
        ("other", "import nowhere_at_all", "it cannot be imported"),
        ("other", "ROW = 5", "expected a Row named 'other', got 5"),
        ("other", row("third"), "expected a Row named 'other'"),
        ("other", row("other", partition="diagonal"), "expected the partition horizontal or vertical, got 'diagonal'"),
        *(
            ("other", row("other").replace("'a line'", f"'a line', results={number}"), f"1 or more .*, got {number}")
            for number in ("0", "-1", "True", "1.0", "None")
        ),
        ("vertical", row("vertical"), "or is taken"),
        ("Other!", row("Other!"), "small letters"),
    ],
)
def test_a_distribution_at_fault_is_named_and_the_others_go_on(added, name: str, source: str, why: str) -> None:
    added(name, source)
    with pytest.raises(ConfigError, match=f"--protocol {name}: a distribution adds it as 'stranger:ROW', but .*{why}"):
        find(name)
    assert dict(summaries())[name].startswith("cannot be used")
    assert dict(summaries())["kfed"].startswith("k-FED") and find_protocol("kfed") is not None


@pytest.mark.parametrize(
    ("package", "why"),
    [("stranger_missing", "it cannot be imported"), ("fastlloyd.net.link", "it cannot be imported")],
)
def test_a_module_that_is_not_there_is_the_distributions_fault(added, package: str, why: str) -> None:
    added("other", row("other", package=package))
    with pytest.raises(ConfigError, match=why):
        find_protocol("other")


@pytest.fixture
def with_module(added, tmp_path: Path):
    """Gives what adds a protocol whose module `protocol`, or another, has this source."""

    def add(source: str, module: str = "protocol") -> None:
        (tmp_path / "stranger_package").mkdir()
        (tmp_path / "stranger_package" / "__init__.py").write_text("")
        (tmp_path / "stranger_package" / f"{module}.py").write_text(source)
        added("other", row("other", package="stranger_package"))

    return add


def methods(*named: str) -> str:
    lines = "".join(f"    def {name}(self, *given): return {name!r}\n" for name in (*MUST, *named))
    return f"from fastlloyd.run.session import Adapter\nclass Other(Adapter):\n{lines}PROTOCOL = Other()\n"


def functions(*named: str) -> str:
    return "".join(f"def {name}(*given): return {name!r}\n" for name in (*MUST, *named))


def test_a_protocol_is_one_value_and_what_it_leaves_out_has_a_default(with_module) -> None:
    with_module(methods("who_sees", "helper", "_links_client"))
    found, config = find_protocol("other"), RunConfig()
    assert found is find_protocol("other")
    assert found.gather(config, 2) == "gather" and found.who_sees("other", {}) == "who_sees"
    assert found.foresee(config, 2, None) is found.people(config) is found.data_flow("other", {}) is None
    assert found.links_clients(config) and not found.adds_up(config)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (methods("link_clients"), "stranger_package.protocol.Other.link_clients looks like links_clients misspelled"),
        (methods("data_flows"), "data_flows looks like data_flow misspelled: name it so, or begin it with '_'"),
        ("PROTOCOL = 5\n", "expected stranger_package.protocol.PROTOCOL to be a protocol, an instance, got 5"),
        ("", "expected stranger_package.protocol.PROTOCOL to be a protocol, an instance, got None"),
        (methods().replace("def serve", "def serves"), "Can't instantiate abstract class Other .*'?serve'?"),
    ],
)
def test_a_protocol_that_was_meant_otherwise_is_refused(with_module, source: str, why: str) -> None:
    with_module(source)
    with pytest.raises(ConfigError, match=why):
        find_protocol("other")


MESSAGE = "class {0}(NoPayload):\n    TYPE = {1}\n    MOST_BYTES = 0\n    SEEN = ()\n"
FIRST = "from fastlloyd.party.message import NoPayload\n"


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ({"One": 130, "Other": 130}, "stranger.One and stranger.Other both have the number 130; change TYPE of one"),
        ({"One": 127}, "stranger.One: expected a TYPE from 128 to 255 for a message of another package .*, got 127"),
        ({"One": 256}, "stranger.One: expected a TYPE from 128 to 255 .*, got 256"),
    ],
)
def test_numbers_of_messages_that_do_not_fit_are_refused_where_the_class_is_made(
    messages: dict[str, int], why: str
) -> None:
    listed = f"({', '.join(messages)},)"
    source = FIRST + "".join(MESSAGE.format(*message) for message in messages.items())
    names_ = {"__name__": "stranger"}
    exec(source, names_)
    with pytest.raises(TypeError, match=why):
        type("Mine", (Horizontal,), {"messages": eval(listed, names_)})


def test_two_packages_may_use_one_number() -> None:
    for module in ("stranger_one", "stranger_two"):
        names_: dict[str, Any] = {"__name__": module}
        exec(FIRST + MESSAGE.format("Mine", 130), names_)
        type("Mine", (Horizontal,), {"messages": (names_["Mine"],)})


@pytest.mark.parametrize("one_value", [False, True])
def test_a_module_face_of_an_old_package_is_read_once_with_a_warning(with_module, one_value: bool) -> None:
    offered = ", ".join(f"{name}={name}" for name in MUST)
    made = f"from fastlloyd.run.session import Face\nFACE = Face(adds_up=add, claim_of=claim_of, {offered})\n"
    with_module(functions("add", "claim_of", "helper") + (made if one_value else ""), "face")
    with pytest.warns(FutureWarning, match="a distribution adds the protocol 'other' by a module 'face'.*derive a cl"):
        found = find_protocol("other")
    assert found is find_protocol("other") and isinstance(found, Adapter)
    assert found.gather(RunConfig(), 2) == "gather" and found.claim(RunConfig(), None) == "claim_of"
    assert found.foresee(RunConfig(), 2, None) is None
    assert found.adds_up(RunConfig()) == ("add" if one_value else False)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def gather(): ...\ndef load(): ...\n", "stranger_package.face has no plan_lines, privacy_unit, serve"),
        (functions("link_clients"), "stranger_package.face.link_clients looks like links_clients misspelled"),
        ("FACE = 5\n", "stranger_package.face has no gather"),
    ],
)
def test_an_old_face_that_lacks_something_is_refused(with_module, source: str, why: str) -> None:
    with_module(source, "face")
    with pytest.raises(ConfigError, match=why):
        find_protocol("other")


def test_two_of_one_name_are_refused(added) -> None:
    added("other", row("other"))
    added("other", row("other"), module="stranger2")
    with pytest.raises(ConfigError, match="a distribution adds another of this name"):
        find("other")
    assert names().count("other") == 1


def test_no_distribution_takes_a_name_of_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("kfed", "nowhere:ROW", GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    assert names() == PROTOCOLS and find("kfed").package == "fastlloyd.protocols.kfed"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_says_whether_the_server_may_have_records(row: Row) -> None:
    _, common = find_protocol(row.name).gather(RunConfig(protocol=row.name, dataset="iris", bounds="0,10", k=3), 3)
    assert isinstance(common, ServerInputs) == row.server_data


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_says_whether_a_run_can_be_resumed(row: Row) -> None:
    config = RunConfig(protocol=row.name, dataset="iris", bounds="0,10", k=3, state_dir="state", resume=True)
    if row.resumes:
        find_protocol(row.name).gather(config, 5)
    else:
        with pytest.raises(ConfigError, match="--resume: "):
            find_protocol(row.name).gather(config, 5)
