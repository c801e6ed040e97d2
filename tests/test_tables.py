"""The tables of protocols, message numbers and domain labels: complete, and without repetition."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import fastlloyd
from fastlloyd.lifecycle.hello import Ready
from fastlloyd.party.declaration import Declared, OfPlan, kinds_of, rows_of
from fastlloyd.party.message import NoPayload
from fastlloyd.protocols.registry import PROTOCOLS, ROWS, find
from fastlloyd.randomness import domains
from fastlloyd.run.session import find_protocol
from fastlloyd.wire import numbers
from tests.parsed import parsed

ROOT = Path(fastlloyd.__file__).parent
LABELS = {name: value for name, value in vars(domains).items() if name.isupper()}


def messages() -> Iterator[type[Declared]]:
    """Every class of the package that travels in a frame."""
    rooms = [(str(ROOT / room), f"fastlloyd.{room}.") for room in ("protocols", "lifecycle")]
    for module in (module for path, prefix in rooms for module in pkgutil.walk_packages([path], prefix)):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if "TYPE" in vars(kind) and kind.__module__ == module.name:
                yield kind


def test_each_message_has_a_number_that_no_other_has() -> None:
    taken = [kind.TYPE for kind in messages()]
    assert len(taken) == len(set(taken)) > 40
    assert all(0 < number < numbers.FIRST_OUTSIDE for number in taken)


@pytest.mark.parametrize("kind", [*messages()], ids=lambda kind: kind.__name__)
def test_each_message_declares_its_size_and_who_can_read_it(kind: type[Declared]) -> None:
    assert isinstance(kind.MOST_BYTES, int | OfPlan)
    rows = rows_of((Ready, kind))[1 if kind.SEEN else 0 :]
    assert rows and all(kind in row.kinds for row in rows)
    for row in rows:
        assert row.route and row.about and row.server and row.others


def test_a_message_that_declares_nothing_is_found() -> None:
    class Silent(NoPayload):
        TYPE = 200

    with pytest.raises(AttributeError, match="SEEN"):
        rows_of((Silent,))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocol_sends_declared_messages_and_each_is_sent_by_one(protocol: str) -> None:
    flow = find_protocol(protocol).data_flow(protocol, {})
    assert flow is not None
    package = f"{find(protocol).package}."
    own = {kind for kind in messages() if kind.__module__.startswith(package)}
    assert own <= set(kinds_of(flow.messages)) <= set(messages())


def test_each_use_has_a_label_of_its_own() -> None:
    texts = [value if isinstance(value, bytes) else value.encode() for value in LABELS.values()]
    # Those of masks go with another ending as well.
    texts += [label + b" nonce" for label in (domains.MASK, domains.PAIR_MASK)]
    assert len(texts) == len(set(texts))


def test_no_label_stands_outside_the_table() -> None:
    for path in ROOT.rglob("*.py"):
        if path.name == "domains.py":
            continue
        for node in parsed(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
                assert not node.value.startswith(b"fastlloyd "), f"{path}: put {node.value!r} into domains.py"
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "PublicStream":
                assert not isinstance(node.args[1], ast.Constant), f"{path}: put the label into randomness/domains.py"


# What is no folder of a protocol and may name one, with what it may name it for.
MAY_NAME_PROTOCOLS = {
    "protocols": "the table, the default, and each protocol itself",
    "dossier/choice.py": "it says which protocol fits, and compares those of this package",
}
OWN_NAME = "fastlloyd"
"""Of a protocol, of the package, of its command and of its log."""


def named_protocols(path: Path) -> Iterator[str]:
    """Each string that is a protocol's name; that of the package too where it is compared or chosen as one."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and node.value in PROTOCOLS and node.value != OWN_NAME:
            yield node.value
        chosen = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        chosen += [node.value] if isinstance(node, ast.keyword) and node.arg == "protocol" else []
        yield from (OWN_NAME for one in chosen if isinstance(one, ast.Constant) and one.value == OWN_NAME)


def test_no_protocol_is_named_outside_its_folder() -> None:
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(tuple(MAY_NAME_PROTOCOLS)):
            found = set(named_protocols(path))
            assert not found, f"{name} names {found}: what is so of a protocol stands in its row or its class"


def test_a_named_protocol_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        'def f(p, run):\n    return p == "sulloyd" or p == "fastlloyd" or run(protocol="fastlloyd")\n'
    )
    assert sorted(named_protocols(tmp_path / "one.py")) == [OWN_NAME, OWN_NAME, "sulloyd"]


def test_each_protocol_has_one_row_and_a_folder_with_code() -> None:
    assert len(set(PROTOCOLS)) == len(PROTOCOLS) == len(ROWS)
    for row in ROWS:
        assert find_spec(f"{row.package}.protocol")
        assert len(row.summary) <= 60


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_row_leads_to_what_runs_the_protocol(name: str) -> None:
    system = find_protocol(name)
    for part in ("gather", "load", "serve", "take_part", "plan_lines", "settings_help"):
        assert callable(getattr(system, part))
    assert find(name).partition == ("vertical" if "Vertical" in type_of_common(system) else "horizontal")


def type_of_common(system: object) -> str:
    """Name the type of what all parties know alike."""
    return str(inspect.signature(system.gather).return_annotation)


def test_a_public_class_has_a_name_of_its_own() -> None:
    """But protocols may have the same parts: a Plan, Settings, a ClientResult."""
    places: dict[str, list[Path]] = {}
    for path in ROOT.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path.relative_to(ROOT))
    for name, paths in places.items():
        protocols = {path.parts[1] for path in paths if path.parts[0] == "protocols"}
        assert len(paths) == 1 or len(protocols) == len(paths), f"{name} means several things: {paths}"
