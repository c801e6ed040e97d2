"""Text of others costs time linear in its length: every function that formats, compares or reads it is measured.

Which functions those are is found in the sources: what applies a regular expression, or a function of `_LIBRARIES` or
`_TOOLS`, and every public function of the modules about text. What calls one of them once does no more work than it;
what loops over one collection inside a loop over the same one is found, too. A function that is found and not listed
fails the test. The time is that of the processor, the least of three, and four times the length may take no more than
nine times the time.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastlloyd import errors
from fastlloyd.crypto.link import identity
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.data import bounds, categories, database, form, reading, spreadsheet, vertical
from fastlloyd.data.delimited import Delimited
from fastlloyd.describe.columns import read_columns
from fastlloyd.dossier import blocks
from fastlloyd.dossier.approval import Approval, check_approval, read_approval, read_expiry
from fastlloyd.errors import FastLloydError
from fastlloyd.gate.decisions import Decisions
from fastlloyd.lifecycle import hello
from fastlloyd.lifecycle.align.columns import Columns, read_features
from fastlloyd.lifecycle.closing import Account, Accounts, Sent
from fastlloyd.net.link.frame import confirm
from fastlloyd.net.tcp import forwarded
from fastlloyd.party.option import read_settings
from fastlloyd.privacy.chain import read_line
from fastlloyd.privacy.release import Release
from fastlloyd.protocols import registry
from fastlloyd.protocols.secfc.settings import Settings
from fastlloyd.report import display, document, earlier, files, label, names
from fastlloyd.report.page import cards, render
from fastlloyd.report.page.language import language
from fastlloyd.report.table import _wrapped
from fastlloyd.run import config as run_config
from fastlloyd.run import history, run_file
from fastlloyd.supervise import offers, output
from fastlloyd.wire import decode, toml, values
from fastlloyd.wire.header import PartyId, clients

PACKAGE = Path(errors.__file__).parent
_LIBRARIES = {"re", "difflib", "textwrap", "unicodedata", "tomllib", "csv"}
_TOOLS = {
    *("get_close_matches", "load_json", "parse_toml", "read_toml", "read_rows"),
    *("differences", "explain", "did_you_mean"),
}
_MODULES = ("errors", "wire.values", "wire.decode", "wire.toml", "report.display", "dossier.blocks")

LENGTHS = (1 << 9, 1 << 11, 1 << 13, 1 << 15)
LONG = (1 << 14, 1 << 16, 1 << 18)
_SLOW_S = 0.02
"""Below this the time says nothing."""
_MOST_GROWTH = 9.0
_PIECES = (
    *("a", "://:", "x://u:", "a.", '"', "\\", "_", "-", "--a", "[", "client 1 ", "\x1b", "1,", "' ", "a b\n"),
    *("1.111", "=", "\u3164", "{a=", "<=   PID "),
)

Measured = Callable[[str, Path], object]


def _text(call: Callable[[str], object]) -> Measured:
    return lambda text, _: call(text)


def _file(name: str, call: Callable[[Path], object], head: str = "", tail: str = "") -> Measured:
    def measured(text: str, folder: Path) -> None:
        (folder / name).write_text(head + text + tail, "utf-8", newline="")
        call(folder / name)

    return measured


def _keys(text: str, step: int = 16) -> dict[str, Any]:
    """Return many names with values, together of about this length."""
    return {f"{at:x}{text[at : at + step]}": at for at in range(0, len(text), step)}


def _nested(text: str) -> dict[str, Any]:
    """Return many names below one long one."""
    return {text[: len(text) // 2]: _keys(text[len(text) // 2 :])}


def _names(text: str) -> tuple[str, ...]:
    return tuple(_keys(text))


def _twice(text: str) -> tuple[str, ...]:
    return (*_names(text), *_names(text))


def _each(*made: Callable[[str], object]) -> Callable[[str], object]:
    """Call all, whatever one of them raises."""

    def call(text: str) -> None:
        for one in made:
            with contextlib.suppress(FastLloydError, ValueError):
                one(text)

    return call


def _pairs(names: tuple[str, ...]) -> bounds.Bounds:
    return bounds.Bounds(np.zeros(len(names)), np.ones(len(names)), names)


def _lines(text: str) -> list[str]:
    return [text, *text.splitlines()[:1000]]


def _banner(text: str) -> None:
    kept = output.BannerFilter()
    for line in ("=" * 80, text, "-" * 80, text, "=   PID 1 RUNNING AT x", "-" * 80):
        kept.feed(line)
    _ = kept.signal, kept.host


def _approval(approved: Mapping[str, Any]) -> Approval:
    return Approval(
        rank=1, name="a", approved_at="a", claim=approved, digest="0" * 64, values=approved, signature="0" * 128
    )


def _read(text: str, encoding: str = "utf-8") -> None:
    source = Delimited(Path("own.csv"), io.BufferedReader(io.BytesIO(text.encode(encoding))), form.PLAIN)  # type: ignore[arg-type]
    list(source.chunks(range(len(source.names))))
    list(source.chunks((), range(len(source.names))))


@dataclass
class _Header:
    """The header of a table."""

    names: tuple[str, ...]
    place: str = "own.csv"
    numeric: tuple[bool, ...] = (True, True)


_OWN = values.canonical({"protocol": "lloyd", "results_version": 1, "bounds": {"a": [0, 1]}, "k": 3})

MEASURED: dict[str, Measured] = {
    # Modules about text.
    "errors:printable": _text(_each(errors.printable, partial(errors.printable, lines=True))),
    "errors:_without_password": _text(errors.printable),
    "errors:unusable_path": _text(lambda text: errors.unusable_path(OSError(36, "File name too long", text))),
    "errors:name_some": _text(lambda text: errors.name_some(_names(text))),
    "errors:format_count": _text(lambda text: errors.format_count(2, text)),
    "errors:did_you_mean": _text(lambda text: errors.did_you_mean(text[:64], (*_names(text), text, text[:63]))),
    "wire.values:canonical": _text(lambda text: values.canonical(_nested(text))),
    "wire.values:digest": _text(lambda text: values.digest(_nested(text))),
    "wire.values:flatten": _text(lambda text: list(values.flatten({"bounds": _keys(text)}))),
    "wire.values:explain": _text(
        lambda text: [values.explain(json.dumps(made(text)).encode(), _OWN) for made in (_keys, _nested, _dots)]
    ),
    "wire.values:list_differences": _text(lambda text: values.list_differences([text])),
    "wire.values:differences": _text(
        _each(
            lambda text: values.differences(_keys(text), {}),
            lambda text: values.differences(_dots(text), _nested(text)),
            lambda text: values.differences({"a": f"{text}b"}, {"a": f"{text}c"}),
        )
    ),
    "wire.values:show_value": _text(_each(values.show_value, lambda text: values.show_value(list(_names(text))))),
    "wire.decode:load_json": _text(_each(decode.load_json, lambda text: decode.load_json(json.dumps(_nested(text))))),
    "wire.decode:_check_shape": _text(decode._check_shape),
    "wire.decode:decode": _text(
        _each(
            lambda text: decode.decode(Columns, _keys(text), text),
            lambda text: decode.decode(Columns, {"names": _twice(text), "lo": text, "hi": []}, ""),
        )
    ),
    "wire.decode:reader": _text(lambda text: decode.reader(str)(text)),
    "wire.decode:choice": _text(lambda text: decode.choice(("a", text))(text)),
    "wire.decode:one_of": _text(lambda text: decode.one_of(_names(text))),
    "wire.decode:show": _text(_each(decode.show, lambda text: decode.show(_nested(text)))),
    "wire.toml:parse_toml": _text(
        _each(
            lambda text: toml.parse_toml(text.encode()),
            lambda text: toml.parse_toml(f'a = "{text}'.encode()),
            lambda text: toml.parse_toml("".join(f"[t{at}]\nk = {at}\n" for at in range(len(text) // 16)).encode()),
            lambda text: toml.parse_toml(f"{'a.' * 60}b = 1\n".encode() * (len(text) // 1024)),
        )
    ),
    "describe.columns:read_columns": _file("columns.toml", read_columns),
    "wire.toml:read_toml": _file("any.toml", lambda path: toml.read_toml(path, "the file")),
    "report.display:_shows": _text(display.csv_cell),
    "report.display:csv_cell": _text(display.csv_cell),
    "report.display:csv_text": _text(_each(display.csv_text, lambda text: display.csv_text("'" * len(text)))),
    "report.display:with_names": _text(lambda text: display.with_names(text, {1: "north"})),
    "report.display:narrowed": _text(lambda text: display.narrowed(text, 40)),
    "report.display:_narrowed": _text(lambda text: display.narrowed(" a" * (len(text) // 2), 40)),
    "report.display:paint": _text(lambda text: display._PLACES.sub("", text)),
    "dossier.blocks:escape": _text(blocks.escape),
    "dossier.blocks:to_markdown": _text(
        lambda text: blocks.to_markdown(
            blocks.Dossier(title=text, private=True, summary=[text], sections=[], made_by="a")
        )
    ),
    # What others send or offer.
    "crypto.link.identity:visible": _text(identity.visible),
    "crypto.link.identity:look": _text(identity.look),
    "crypto.link.roster:Roster.parse": _text(_each(Roster.parse, lambda text: Roster.parse(_entry(text)))),
    "data.bounds:Bounds.match": _text(lambda text: _pairs(_names(text)).match((text, *_names(text)))),
    "data.bounds:_read_bounds": _file("bounds.csv", bounds._read_bounds, "feature,lo,hi\n", ",0,1\n"),
    "data.categories:_read_lists": _file("lists.csv", categories.Categories.read, "feature,category\n"),
    "data.form:read_rows": _file("rows.csv", lambda path: form.read_rows(path, "a", "b")),
    "data.vertical:_read_owners": _file("owners.csv", lambda path: vertical._read_owners(path, ("a",), 2)),
    "dossier.approval:read_expiry": _text(read_expiry),
    "dossier.approval:read_approval": _file("a.json", lambda path: read_approval(path, Roster())),
    "dossier.approval:check_approval": _text(lambda text: check_approval(_approval(_keys(text)), {"k": 3}, "--a")),
    "lifecycle.closing:Account.__post_init__": _text(
        lambda text: Account(sent=Sent(payload_bytes=0, link_bytes=0, messages=0, setup_bytes=0), signature=text)
    ),
    "lifecycle.closing:Accounts.read": _text(lambda text: Accounts.read(text.encode(), clients(3))),
    "lifecycle.hello:Document.read": _text(
        _each(
            lambda text: hello.Hello.read(text.encode(), None),
            lambda text: hello.Hello.read(json.dumps({"names": _twice(text), "rounds_done": 0}).encode(), None),
            lambda text: read_features(Columns(_twice(text), (0.0,) * len(_twice(text)), (1.0,) * len(_twice(text)))),
            lambda text: hello._different(PartyId(1), _names(text), PartyId(2), _names(text)[::-1]),
        )
    ),
    "net.link.frame:Confirmation._how": _text(
        lambda text: confirm(bytes(32), b"", lambda theirs: values.explain(theirs, _OWN)).difference(
            PartyId(1), bytes([9, *bytes(31), 1]) + json.dumps(_keys(text)).encode(), with_server=True
        )
    ),
    "net.tcp.forwarded:_decode_v1": _text(lambda text: forwarded.decode(f"PROXY TCP4 {text}\r\n".encode())),
    "party.option:read_settings": _text(lambda text: read_settings(Settings(), "secfc", _keys(text))),
    "privacy.chain:read_line": _text(lambda text: read_line(text.encode(), bytes(32), "a", sealed=False)),
    "privacy.release:Release.from_json": _text(lambda text: Release.from_json(text, "a")),
    "protocols.registry:find": _text(registry.find),
    "data.reading:_chosen": _text(
        lambda text: reading._chosen(_Header(("a", "b")), _names(text), (), categories.Categories())  # type: ignore[arg-type]
    ),
    "run.run_file:_read_file": _file("run.toml", lambda path: run_file.load_config(path, links=False)),
    "run.run_file:with_values": _text(lambda text: run_file.with_values(run_config.RunConfig(), _keys(text))),
    "run.run_file:read_k": _text(run_file.read_k),
    "run.config:_in_file": _text(lambda text: run_file.with_values(run_config.RunConfig(), {"bounds": text})),
    "run.config:read_bytes": _text(run_config.read_bytes),
    "supervise.offers:check_offer": _file("an.toml", offers.check_offer, 'k = 3\nn_total = 9\nbounds = "', '"\n'),
    "supervise.offers:_hours": _text(lambda text: offers._hours(Path("a"), text)),
    # What is read of a file that another party may have written.
    "data.delimited:Delimited.__init__": _text(_each(_read, lambda text: _read(",".join(["a", text, *_names(text)])))),
    "data.delimited:_Records.__init__": _text(_each(_read, lambda text: _read("\n".join(["a,b", *_names(text)])))),
    "data.spreadsheet:_extent": _text(lambda text: spreadsheet._extent(io.BytesIO(text.encode("utf-8", "replace")))),
    "data.form:is_identifier": _text(form.is_identifier),
    "data.form:_has_fraction": _text(form._has_fraction),
    "data.form:may_be_thousands": _text(form.may_be_thousands),
    "data.form:doubts_thousands": _text(lambda text: form.doubts_thousands([text, text], form.PLAIN)),
    "data.form:parse_number": _text(lambda text: form.parse_number(text, ",", ".")),
    "data.form:_divides": _text(lambda text: form._divides(_lines(text), ";", form.PLAIN)),
    "data.form:_cuts": _text(lambda text: form._cuts(_lines(text), ";", form.PLAIN)),
    "data.database:refuse_password": _text(database.refuse_password),
    "data.database:_split": _text(database._split),
    "data.database:move_address": _text(database.move_address),
    "gate.decisions:Decisions._read": _file("decisions.jsonl", lambda path: Decisions(path.parent)),
    "run.history:read_notes": _file("runs.jsonl", lambda path: history.read_notes(path.parent)),
    "run.history:run_lines": _text(
        lambda text: list(history.run_lines([history.PastRun(run="a", title=text, said=text, parties=_names(text))]))
    ),
    "report.document:load": _file("report.json", document.load),
    "report.earlier:_read": _file("report.json", lambda path: earlier.find_earlier(path.parent)),
    "report.earlier:find_earlier": _file("report.json", lambda path: earlier.find_earlier(path.parent), '{"run": "'),
    "report.earlier:_owner": _text(earlier._owner),
    "report.files:read_centroids": _file(
        "centroids.csv", lambda path: files.read_centroids(path, {"features": [], "noisy_sizes": None})
    ),
    "report.names:_fits": _text(names._fits),
    "report.names:ClusterNames.check": _text(lambda text: names.ClusterNames.check({"0": text, text: "a"}, "--names")),
    "report.names:ClusterNames.read": _file("names.toml", names.ClusterNames.read, '0 = "'),
    "report.names:ClusterNames.into": _text(lambda text: names.ClusterNames({0: "a"}).into(f"cluster,x\n0,{text}\n")),
    "report.page.cards:_read": _text(lambda text: cards._read(f"cluster,column\n0,{text}\n".encode(), 1)),
    **dict.fromkeys(
        (f"report.label:{name}" for name in ("_extends", "_continues", "_units", "_width")),
        _text(_each(label.width_of, lambda text: label.short_labels([*_names(text), text, f"{text}b"]))),
    ),
    "report.page.render:keep_flags_whole": _text(render.keep_flags_whole),
    "report.page.render:wrap_name": _text(render.wrap_name),
    "report.page.render:keep_units": _text(render.keep_units),
    "report.page.language:Language.page": _text(lambda text: language("de").page(f"<p>{text}</p>")),
    "report.page.render:number_captions": _text(render.number_captions),
    "report.table:_wrapped": _text(lambda text: list(_wrapped([("a", text)], 80))),
    "supervise.output:BannerFilter._sort": _text(_banner),
    "supervise.output:BannerFilter._feed_block": _text(_banner),
    "supervise.output:BannerFilter.signal": _text(_banner),
    "supervise.output:BannerFilter.host": _text(_banner),
}

OWN = {
    "text of the person who types it": (
        *("__main__:_command", "cli.init:_run_file", "cli.options:Parser._meant", "cli.options:join_negative_values"),
        *("cli.options:read_tables", "cli.run:_host_list", "estimator.records:_validate", "estimator.words:in_python"),
        *("estimator.parameter:_in_order", "data.dataset:_split_by_file", "data.public.named:_find"),
        *("supervise.offers:read_settings", "supervise.offers:write_offer", "supervise.offers:offer_path"),
        *("run.vertical:Alignment.__post_init__", "party.option:Option.wrong"),
        *("cli.bounds:_configured", "data.mysql:ask_mysql", "data.mysql:_settings"),
    ),
    "text of this package, or of this machine": (
        *("cli.run:_protocols_help", "net.mpi.launcher:launcher_ports", "net.mpi.launcher:_openmpi_tcp"),
        *(
            "net.mpi.launcher:_ask_version",
            "data.connection:_data_bytes",
            "protocols.registry:_refuse_misspelled",
            "protocols.registry:_load",
        ),
        *("estimator.description:read_lines", "report.files:refuse_running", "wire.decode:plain"),
        *("report.earlier:Earlier.clear", "gate.held:_waiting", "report.document:<lambda>"),
        *("report.citation:reference", "report.page.language:Language.__init__", "report.page.language:_literal"),
        *("report.page.language:_compiled", "report.page.language:catalogue"),
    ),
    "one line at most of a bounded length": (
        *(
            f"report.page.language:Language.{name}"
            for name in ("say", "_run", "_find", "_line", "_inner", "_wrapped", "_number")
        ),
        "report.page.language:Language._pieces",
        "net.tcp.proxy:_answer",
        "supervise.offers:keep_offer",
        "supervise.runs:_complaint",
    ),
    "one call of a listed function for each file of this party's state": (
        *(
            "run.history:_note",
            "run.budget_terms:read_kept",
            "run.state:StateDir.interrupted_run",
            "run.state:StateDir._mark_in",
        ),
        "dossier.own_part:check_own",
        *(
            "run.state:StateDir._files",
            "run.state:StateDir._read",
            "supervise.runs:read_begun",
            "supervise.runs:read_ending",
        ),
    ),
    "one call of a listed function for a name that this party's own table lacks": (
        "data.spreadsheet:Sheet.__init__",
        *("data.source:Source.index", "data.reading:Reading._index_beside", "data.form:Form.renamed"),
    ),
    "one call of a listed function on the whole": (
        *("dossier.approval:_check_claim", "dossier.verify:compare_report", "report.page.result:_bounds"),
        *("report.page.result:_found_bounds", "report.page.result:_costs", "report.page.judged:_rows"),
        "report.page.result:result_page",
        *("describe.columns:_by_name", "describe.columns:_table"),
    ),
    "lines of a dossier or warnings of a run, made from public numbers and names": (
        *("dossier.consent:ask_consent", "report.figure.drawing:Drawing.printed"),
    ),
}


def _dots(text: str) -> dict[str, Any]:
    """Return one name of many parts, and what has it as its beginning."""
    name = ("a." * len(text))[: len(text) // 2]
    return {name: 1, f"{name}b": {"c": 2}, "a": {"a": text[: len(text) // 2]}}


def _entry(text: str) -> str:
    return f'[[party]]\nname = "{text}"\nrole = "client"\nrank = {text[:5000]}\ncertificate = "{text}"\n'


@cache
def sources() -> tuple[tuple[str, ast.Module], ...]:
    paths = sorted(PACKAGE.rglob("*.py"))
    names = (".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__") for path in paths)
    return tuple((name, ast.parse(path.read_text("utf-8"))) for name, path in zip(names, paths, strict=True))


def functions(node: ast.AST, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions of a module and of its classes, each with those inside it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield ".".join((*place, child.name)), child
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, (*place, child.name))


def handles_text(function: ast.FunctionDef, patterns: set[str]) -> bool:
    """Whether a function applies a pattern, or calls what looks at text."""
    for node in ast.walk(ast.Module(function.body, [])):
        if isinstance(node, ast.Name) and node.id in patterns:
            return True
        if isinstance(node, ast.Call):
            library, name = dotted(node.func)
            if name in _TOOLS or (library in _LIBRARIES and name != "writer"):
                return True
    return False


def dotted(node: ast.AST) -> tuple[str, str]:
    """Return what stands before the last name of a function that is called, and that name."""
    if isinstance(node, ast.Attribute):
        return (node.value.id if isinstance(node.value, ast.Name) else ""), node.attr
    return "", node.id if isinstance(node, ast.Name) else ""


def found() -> set[str]:
    """Return the functions of the package that handle text."""
    names = set()
    for module, tree in sources():
        patterns = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and dotted(node.value.func) == ("re", "compile")
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for name, function in functions(tree):
            public = module in _MODULES and "." not in name and not name.startswith("_")
            if public or handles_text(function, patterns):
                names.add(f"{module}:{name}")
    return names


def test_every_function_that_handles_text_is_listed() -> None:
    own = [name for names in OWN.values() for name in names]
    listed = {*MEASURED, *own} - {"report.document:<lambda>"}
    assert len(set(own)) == len(own) and not set(own) & MEASURED.keys()
    assert found() - listed == set(), "list what is new: measured, or why its text is not another's"
    assert listed - found() == set(), "no longer there, or no longer about text"
    assert len(MEASURED) > 60


def loops_over(node: ast.AST) -> set[str]:
    """Return the names of the collections that a loop or a comprehension goes over."""
    if isinstance(node, ast.For):
        return {ast.unparse(node.iter)}
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return {ast.unparse(part.iter) for part in node.generators}
    return set()


def sequences(function: ast.FunctionDef) -> set[str]:
    """Return the parameters of a function that are sequences, in which a name is searched from the start."""
    kinds = {part.arg: ast.unparse(part.annotation) for part in function.args.args if part.annotation is not None}
    return {name for name, kind in kinds.items() if kind.startswith(("Sequence[", "tuple[", "list["))}


def again(function: ast.AST) -> Iterator[str]:
    """Yield each collection that is gone over, counted or searched once for each entry of itself or of another."""
    if isinstance(function, ast.FunctionDef):
        loops = [node for node in ast.walk(function) if loops_over(node)]
        tests = [node for loop in loops for node in ast.walk(loop) if isinstance(node, ast.Compare)]
        for node in tests:
            if isinstance(node.ops[0], ast.In | ast.NotIn):
                yield from sequences(function) & {dotted(node.comparators[0])[1]}
        calls = [node for loop in loops for node in ast.walk(loop) if isinstance(node, ast.Call)]
        yield from {dotted(node.func)[1] for node in calls} & {"did_you_mean", "get_close_matches"}
    for outer in ast.walk(function):
        names = {name for name in loops_over(outer) if name.replace(".", "").isidentifier()}
        for inner in ast.walk(outer) if names else ():
            if inner is not outer:
                yield from names & loops_over(inner)
            if isinstance(inner, ast.Call) and dotted(inner.func)[1] in ("count", "index"):
                yield from names & {dotted(inner.func)[0]}


NESTED = {
    "points of parties, of which there are few: each with each other is the formula": (
        *("masking.threshold.shamir:weights", "protocols.secfc.field.lagrange:barycentric"),
    ),
    "a reference, in the words of its paper": (
        *("protocols.kfed.reference:_local", "protocols.vertical_he.reference:_share_of_second"),
    ),
    "for the first name that is wrong, or the first eight": (
        *("cli.options:read_tables", "party.option:read_settings", "run.run_file:with_values"),
        *("supervise.offers:read_settings", "data.reading:_chosen", "describe.columns:_table"),
        "data.mysql:_settings",
    ),
    "for the few functions of an installed package": ("protocols.registry:_refuse_misspelled",),
}


def test_nothing_goes_over_names_once_for_each_of_them() -> None:
    found = {f"{module}:{name}" for module, tree in sources() for name, part in functions(tree) if any(again(part))}
    assert found == {name for names in NESTED.values() for name in names}


@pytest.mark.parametrize(
    "line",
    [
        "[a for a in names if any(b < a for b in names)]",
        "{a for a in names if names.count(a) > 1}",
        "[a for a in other if a not in names]",
    ],
)
def test_a_loop_over_names_for_each_of_them_is_found(line: str) -> None:
    (function,) = ast.parse(f"def f(names: Sequence[str], other: set[str]):\n    return {line}").body
    assert set(again(function)) == {"names"}


def cost(call: Callable[[], object], repeats: int = 1) -> float:
    """Return the least processor time of some calls, which may raise what refuses the text."""
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        with contextlib.suppress(FastLloydError, ValueError, IndexError, csv.Error):
            call()
        times.append(time.process_time() - begun)
    return min(times)


def too_slow(call: Callable[[str], object], piece: str, lengths: Sequence[int] = LENGTHS) -> str:
    """Return how the time of a call grows with the length of its text, if it grows too fast; else ''."""
    text = [(piece * (length // len(piece) + 1))[:length] for length in lengths]
    before = cost(partial(call, text[0]))
    for at in range(1, len(text)):
        now = cost(partial(call, text[at]))
        if now > _SLOW_S and now > _MOST_GROWTH * before:
            before, now = cost(partial(call, text[at - 1]), 3), cost(partial(call, text[at]), 3)
            if now > _SLOW_S and now > _MOST_GROWTH * before:
                return f"{piece!r}: {before:.3f} s for {lengths[at - 1]} characters, {now:.3f} s for {lengths[at]}"
        before = now
    return ""


@pytest.mark.parametrize("lengths", [LENGTHS, pytest.param(LONG, marks=pytest.mark.slow)], ids=["short", "long"])
@pytest.mark.parametrize("name", MEASURED)
def test_the_time_grows_linearly_with_the_length(name: str, lengths: Sequence[int], tmp_path: Path) -> None:
    slow = [too_slow(lambda text: MEASURED[name](text, tmp_path), piece, lengths) for piece in _PIECES]
    assert not any(slow), slow


def _quadratic(text: str) -> int:
    return sum(text[at:].count("ab") for at in range(0, len(text), 8))


def _with_each_other(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if any(other.startswith(f"{name}.") for other in names)]


def _counted(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if names.count(name) > 1]


_EARLIER = re.compile(r"(://[^\s/@:]*:)[^\s@]+@")


@pytest.mark.parametrize(
    ("planted", "piece"),
    [
        (_quadratic, "a"),
        (lambda text: _EARLIER.sub("", text), "://:"),
        (lambda text: _with_each_other(_names(text)), "a"),
        (lambda text: _counted(_names(text)), "a"),
    ],
    ids=["slices", "a pattern that looks again", "each name with each other", "each name counted"],
)
def test_a_quadratic_function_is_caught(planted: Callable[[str], object], piece: str) -> None:
    assert too_slow(planted, piece)
