"""Protocols of other distributions: what is wrong with one is a sentence about it, and harms no other."""

from __future__ import annotations

import dataclasses
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.protocols import registry
from fastlloyd.protocols.registry import GROUP, PROTOCOLS, ROWS, Row, find, knows, names, results_versions, summaries
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import ServerInputs
from fastlloyd.run.session import Face, find_face

MUST = [entry.name for entry in dataclasses.fields(Face) if entry.default is dataclasses.MISSING]
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
    assert dict(summaries())["kfed"].startswith("k-FED") and find_face("kfed") is not None


@pytest.mark.parametrize(
    ("package", "why"),
    [("stranger_missing", "it cannot be imported"), ("fastlloyd.net.link", "it cannot be imported")],
)
def test_a_face_that_is_not_there_is_the_distributions_fault(added, package: str, why: str) -> None:
    added("other", row("other", package=package))
    with pytest.raises(ConfigError, match=why):
        find_face("other")


@pytest.fixture
def with_face(added, tmp_path: Path):
    """Gives what adds a protocol whose face has this source."""

    def add(source: str) -> None:
        (tmp_path / "stranger_package").mkdir()
        (tmp_path / "stranger_package" / "__init__.py").write_text("")
        (tmp_path / "stranger_package" / "face.py").write_text(source)
        added("other", row("other", package="stranger_package"))

    return add


def functions(*named: str) -> str:
    return "".join(f"def {name}(*given): return {name!r}\n" for name in (*MUST, *named))


def test_a_face_must_offer_all(with_face) -> None:
    with_face("def gather(): ...\ndef load(): ...\n")
    with pytest.raises(ConfigError, match="stranger_package.face has no writes_result, serve, take_part"):
        find_face("other")


def test_a_face_of_functions_is_read_once_and_what_it_leaves_out_has_a_default(with_face) -> None:
    with_face(functions("who_sees", "helper", "_links_client"))
    face, config = find_face("other"), RunConfig()
    assert face is find_face("other")
    assert face.gather(config, 2) == "gather" and face.who_sees("other", {}) == "who_sees"
    assert face.foresee(config, 2, None) is face.people(config) is face.data_flow("other", {}) is None
    assert face.links_clients(config) and not face.adds_up(config)


def test_a_face_may_be_one_value(with_face) -> None:
    offered = ", ".join(f"{name}={name}" for name in MUST)
    made = f"from fastlloyd.run.session import Face\nFACE = Face(adds_up=add, {offered})\n"
    with_face(functions("add", "foresee") + made)
    face = find_face("other")
    assert face.adds_up(RunConfig()) == "add" and face.foresee(RunConfig(), 2, None) is None


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (functions("link_clients"), "stranger_package.face.link_clients looks like links_clients misspelled"),
        (functions("data_flows"), "data_flows looks like data_flow misspelled: name it so, or begin it with '_'"),
        ("FACE = 5\n", "expected stranger_package.face.FACE to be a Face, got 5"),
    ],
)
def test_a_face_that_was_meant_otherwise_is_refused(with_face, source: str, why: str) -> None:
    with_face(source)
    with pytest.raises(ConfigError, match=why):
        find_face("other")


def test_every_face_of_this_package_is_one_value() -> None:
    assert all(isinstance(find_face(row.name), Face) for row in ROWS)


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
    _, common = find_face(row.name).gather(RunConfig(protocol=row.name, dataset="iris", bounds="0,10", k=3), 3)
    assert isinstance(common, ServerInputs) == row.server_data


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_says_whether_a_run_can_be_resumed(row: Row) -> None:
    config = RunConfig(protocol=row.name, dataset="iris", bounds="0,10", k=3, state_dir="state", resume=True)
    if row.resumes:
        find_face(row.name).gather(config, 5)
    else:
        with pytest.raises(ConfigError, match="--resume: "):
            find_face(row.name).gather(config, 5)
