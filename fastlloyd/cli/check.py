"""`fastlloyd check`: check one party's records alone, before any run; contacts nobody.

The summary is for the owner: it is printed on this terminal only, and counts stay here. Smallest and largest values
are not shown, because bounds chosen from them would reveal single records.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastlloyd.cli.options import (
    Parser,
    add_form_options,
    add_site_option,
    name_list,
    number,
    read_form,
)
from fastlloyd.crypto.link.own_key import check_links, own_place
from fastlloyd.data.bounds import Bounds, clipping_words, count_outside, parse_bounds
from fastlloyd.data.categories import Categories
from fastlloyd.data.database import Place, check_question, find_place, names_client
from fastlloyd.data.form import Form
from fastlloyd.data.merge import MERGE_RULES, Unit
from fastlloyd.data.missing import MISSING_RULES, missing_words
from fastlloyd.data.table import Table, read_table
from fastlloyd.data.vertical import read_sorted
from fastlloyd.errors import EXIT_OK, ConfigError, DataError, printable
from fastlloyd.protocols.registry import find
from fastlloyd.report.unit import format_count
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import share_caps
from fastlloyd.run.promise import plan_words, unit_sentence
from fastlloyd.run.run_file import load_config, refuse_own_keys
from fastlloyd.run.vertical import read_alignment
from fastlloyd.wire.decode import Within

_SHOWN = 20


def main(argv: Sequence[str]) -> int:
    """Check one file and print a summary; return 0 if the records are ready, even if a run needs more than them.

    Raises
    ------
    DataError, ConfigError
        The records are not ready, and why.

    Sees
    ----
    Everybody who reads this terminal.
    """
    question = _question(parser().parse_args(argv))
    bounds = None if question.bounds is None else parse_bounds(_own_name(question.bounds, "--bounds", question))
    categories = Categories() if question.categories is None else Categories.read(question.categories)
    if bounds is not None or categories.lists:
        bounds = categories.bounds(bounds)
    table = _read(question, bounds, categories)
    matched = None if bounds is None else bounds.match(table.names)
    for line in (
        *_summary(table, question),
        f"unit      {question.promise}",
        *_bounds_lines(table, matched),
        *_hints(table.values, table.names, None if question.vertical else question.k),
        *_outlook(question, len(table.names)),
    ):
        print(printable(line))
    _check_cap(len(table.values), question)
    links = check_links(question.roster, question.key, question.client)
    for line in links.lines:
        print(printable(line))
    doubts = _doubts(table, matched)
    missing = [*_not_given(question, bounds), *([] if links.missing is None else [links.missing])]
    print(printable(f"records ready{doubts}; still missing: {', '.join(missing)}" if missing else f"ready{doubts}"))
    return EXIT_OK


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd check",
        description="Check one party's records alone. Contacts nobody; the summary stays on this terminal.",
    )
    parser.add_argument(
        "--data", metavar="FILE", help="this party's records, or their database; '{client}' becomes --client"
    )
    parser.add_argument("--config", metavar="FILE.toml", help="run file; flags win")
    add_site_option(parser)
    parser.add_argument("--bounds", metavar="LO,HI|FILE", help="public bounds of the features")
    parser.add_argument("--columns", type=name_list, metavar="A,B", help="features to use, by name")
    parser.add_argument("--missing", choices=MISSING_RULES, help="rule for missing values (default refuse)")
    parser.add_argument("--id", metavar="COLUMN", help="column that names the rows: no feature")
    parser.add_argument("--unit", metavar="COLUMN", help="column that names people, whose rows are merged")
    parser.add_argument("--per-unit", choices=MERGE_RULES, help="with --unit: how (default mean)")
    parser.add_argument("--categories", metavar="FILE", help="public lists feature,category,weight")
    parser.add_argument("--k", type=number(int, 1), help="clusters")
    parser.add_argument(
        "--n-total", type=number(int, 1), metavar="N", help="public bound on the records of all clients"
    )
    add_form_options(parser, "query", "table", "client_caps", "epsilon")
    parser.add_argument("--roster", metavar="FILE", help="TOML of pinned certificates")
    parser.add_argument("--key", metavar="FILE", help="this party's own key; '{client}' becomes --client")
    parser.add_argument("--d", type=number(int, 1), help="vertical protocols: columns of all parties together")
    parser.add_argument("--client", type=int, metavar="I", help="which client this is, from 1")
    parser.add_argument("--clients", type=number(int, 1), metavar="M", help="how many clients will take part")
    return parser


@dataclass(frozen=True, slots=True)
class _Question:
    """What to check, from the run file and the flags; a run needs more values."""

    data: str | None
    query: str | None
    table: str | None
    bounds: str | None
    columns: tuple[str, ...]
    missing: str
    k: int | None
    n_total: int | None
    client_caps: tuple[int, ...]
    roster: str | None
    key: str | None
    client: int | None
    clients: int | None
    id: str | None
    unit: str | None
    per_unit: str
    categories: str | None
    promise: str
    config: RunConfig
    form: Form
    d: int | None

    @property
    def vertical(self) -> bool:
        """Whether all parties hold columns of the same people."""
        return self.config.row.partition == "vertical"

    @property
    def record(self) -> str:
        """The noun for a record in the summary."""
        return "row" if self.unit is None else "record"


_COMMON = (
    *("data", "query", "table", "bounds", "columns", "missing", "id", "unit", "per_unit", "categories"),
    *("k", "n_total", "client_caps", "roster", "key"),
)
"""Values that have the same name as a flag and as a key of the run file."""


def _question(options: argparse.Namespace) -> _Question:
    """Merge the flags and the run file; flags win."""
    config = load_config(options.config, links=False, site=options.site)
    if options.config is not None and (options.roster or config.roster):
        refuse_own_keys(options.config)
    if options.epsilon is not None:
        config = replace(config, epsilon=options.epsilon)
    given = options.roster or config.roster, options.key or config.key
    rank, clients = own_place(*given)
    client = rank if options.client is None else options.client
    if None not in (client, options.clients) and client > options.clients:
        raise ConfigError(f"--client {client}: expected a number up to --clients {options.clients}")
    clients = options.clients or clients
    values = {name: getattr(config, name) for name in _COMMON}
    values |= {name: getattr(options, name) for name in _COMMON if getattr(options, name) is not None}
    _check_numbers(options, config.protocol)
    question = _Question(
        form=read_form(options, config),
        **values,
        client=client,
        clients=clients,
        promise=unit_sentence(replace(config, unit=values["unit"]))
        or f"none: {config.protocol} promises no differential privacy",
        config=config,
        d=options.d,
    )
    if question.n_total is not None and (question.k or 0) > question.n_total:
        raise ConfigError(f"--k {question.k}: more clusters than records (--n-total {question.n_total}); lower --k")
    caps = question.client_caps
    if caps and question.n_total is not None:
        share_caps(replace(config, client_caps=caps), clients or len(caps), question.n_total)
    return question


def _check_numbers(options: argparse.Namespace, protocol: str) -> None:
    """Refuse numbers that no run accepts."""
    vertical = find(protocol).partition == "vertical"
    if options.d is not None and not vertical:
        raise ConfigError(f"--d {options.d}: {protocol} counts the columns of this file; leave --d out")
    if options.client is not None:
        Within(0 if vertical else 1).check("--client", options.client)


def _read(question: _Question, bounds: Bounds | None, categories: Categories) -> Table:
    """Read this party's file, as the run would."""
    if question.data is None:
        raise ConfigError("nothing to check: give this party's file with --data")
    no_feature = question.id
    if question.vertical:
        merging = replace(question.config, id=question.id, unit=question.unit, categories=question.categories)
        no_feature = read_alignment(merging).id
    file = _place(question, question.data, no_feature or question.unit)
    if question.vertical and no_feature is not None:
        return read_sorted(
            file, id_column=no_feature, columns=question.columns, missing=question.missing, bounds=bounds
        )
    return read_table(
        file,
        columns=question.columns,
        ignore=() if no_feature is None else (no_feature,),
        missing=question.missing,
        bounds=bounds,
        unit=None if question.unit is None else Unit(question.unit, question.per_unit),
        categories=categories,
    )


def _place(question: _Question, data: str, key: str | None) -> Place:
    """Return the place of this party's records, with its number filled in; `key` names rows of a database."""
    check_question(data, question.query, question.table)
    if question.client is None and names_client(data, question.query, question.table):
        raise ConfigError(f"--data {data} stands for one file or query per client: say which with --client")
    return find_place(data, question.form, number=question.client, query=question.query, table=question.table, key=key)


def _own_name(path: str, flag: str, question: _Question) -> str:
    """Fill this party's number into the name of a file."""
    if "{client}" not in path:
        return path
    if question.client is None:
        raise ConfigError(f"{flag} {path} stands for one file per client: say which with --client")
    return path.replace("{client}", str(question.client))


def _cap(question: _Question) -> tuple[int, str] | None:
    """Return the largest number of rows that this client may bring, and the name of that number."""
    if question.client_caps:
        if question.client is None:
            return None
        if question.client > len(question.client_caps):
            raise ConfigError(
                f"--client {question.client}: caps are given for "
                f"{format_count(len(question.client_caps), 'client')} only; give one for each with --client-caps, or "
                "correct --client"
            )
        return question.client_caps[question.client - 1], f"the cap of client {question.client}"
    if question.n_total is None:
        return None
    if question.vertical:
        return question.n_total, "the public N"
    if question.clients is not None:
        each = "the one client" if question.clients == 1 else f"each of {question.clients} clients"
        return question.n_total // question.clients, f"the cap of {each}"
    return question.n_total, "the public N of all clients together"


def _check_cap(rows: int, question: _Question) -> None:
    cap = _cap(question)
    if cap is not None and rows > cap[0]:
        raise DataError(
            f"{format_count(rows, question.record, 'are')} more than {cap[0]:,}, {cap[1]}; agree on a larger "
            "--n-total or larger --client-caps with the other parties, or bring fewer rows"
        )


def _summary(table: Table, question: _Question) -> Iterator[str]:
    """Yield what was read."""
    yield f"file      {table.source}"
    if question.unit is None:
        yield f"rows      {len(table.values):,}"
    elif table.raw_records is not None:
        yield f"rows      {len(table.raw_records):,}"
        yield f"people    {len(table.values):,} with one record each (--unit {question.unit}, {question.per_unit})"
    yield f"columns   {len(table.names)} used: {_listed(table.names)}"
    if table.ignored:
        yield f"          {len(table.ignored)} ignored: {_listed(table.ignored)}"
    outcome = {"refuse": "none", "drop": "dropped", "midpoint": "filled with the middle of the bounds"}
    rows = "" if question.missing == "refuse" else f"{format_count(table.missing_rows, question.record)} "
    yield f"missing   {rows}{outcome[question.missing]} (rule: {question.missing})"
    if table.missing_in:
        yield f"          values: {missing_words(table.missing_in)}"
    cap = _cap(question)
    if cap is not None:
        yield f"cap       {format_count(cap[0], question.record)}, {cap[1]}"
    elif question.client_caps:
        yield "cap       not checked: say which client this is with --client"
    else:
        yield "cap       not checked: no --n-total"


def _bounds_lines(table: Table, bounds: Bounds | None) -> Iterator[str]:
    """Yield how many values each feature has outside its bounds."""
    if bounds is None:
        yield "bounds    not checked: none given; a run needs --bounds LO,HI or a file feature,lo,hi"
        return
    outside = count_outside(table.values, bounds)
    rows = len(table.values)
    clipped = int(outside.sum())
    lie = "lies" if 1 in (clipped, table.values.size) else "lie"
    yield f"bounds    {clipped:,} of {format_count(table.values.size, 'value')} {lie} outside and will be clipped"
    # Of many features, show those with the most values outside.
    shown = range(len(outside))
    if len(outside) > _SHOWN:
        shown = np.argsort(-outside, kind="stable")[:_SHOWN].tolist()
    width = min(max(len(table.names[at]) for at in shown), 30)
    for at in shown:
        share = 100 * outside[at] / rows
        yield (
            f"          {table.names[at]:<{width}}  {bounds.lo[at]:>12g} {bounds.hi[at]:>12g}  "
            f"{outside[at]:>9,} outside ({share:.2f} %)" + ("  check the units" if share > 50 else "")
        )
    rest = np.count_nonzero(outside) - np.count_nonzero(outside[list(shown)])
    if len(outside) > _SHOWN:
        more = format_count(len(outside) - _SHOWN, "more feature")
        yield f"          and {more}, {rest} of them with values outside"


def _doubts(table: Table, bounds: Bounds | None) -> str:
    """Return a remark on features for which the bounds cannot be meant."""
    if bounds is None:
        return ", bounds not checked"
    about = clipping_words(count_outside(table.values, bounds), len(table.values), table.names)
    return f", but {about}" if about else ""


def _not_given(question: _Question, bounds: Bounds | None) -> Iterator[str]:
    """Yield the flags of missing public values that every run needs; the bounds may follow from categories."""
    given = {"--bounds": bounds, "--n-total": question.n_total, "--k": question.k}
    yield from (flag for flag, value in given.items() if value is None)


def _hints(values: NDArray[np.float64], names: tuple[str, ...], k: int | None) -> Iterator[str]:
    """Yield remarks on records that are legal but may not be meant."""
    constant = [name for name, same in zip(names, values.min(axis=0) == values.max(axis=0), strict=True) if same]
    if constant and len(values) > 1:
        yield f"constant  one value only in {format_count(len(constant), 'column')}: {_listed(constant)}"
    twice = len(values) - _count_distinct(values)
    if twice:
        yield f"repeated  {format_count(twice, 'row', 'equal')} an earlier one; fine if records can be equal"
    if k is not None and len(values) < k:
        yield f"few rows  fewer than k = {k}; allowed, because the other clients have records too"


def _outlook(question: _Question, d: int) -> Iterator[str]:
    """Yield what to expect of the result, as `fastlloyd plan` does, if the public numbers of a run are known.

    Only the number of columns comes from the records, and it is the same for all clients.
    """
    clients = question.clients or len(question.client_caps)
    if None in (question.k, question.n_total) or clients < 1:
        return
    if question.vertical and question.d is None:
        yield "expected  not known from this party's columns alone: add --d, the number of all parties' columns"
        return
    config = replace(question.config, k=question.k, n_total=question.n_total)
    words = plan_words(config, clients, question.d if question.vertical else d)
    yield from (f"{name:<8}  {words[name]}" for name in ("assumed", "k", "expected") if name in words)


def _count_distinct(values: NDArray[np.float64]) -> int:
    """Count distinct rows by a 64-bit checksum of each; because two may collide, the count is a hint."""
    sums = np.zeros(len(values), dtype=np.uint64)
    for column in values.T:
        # Adding 0.0 turns -0.0 into 0.0: they are equal, but their bits differ.
        sums ^= (column + 0.0).view(np.uint64)
        sums *= np.uint64(0x9E3779B97F4A7C15)
        sums ^= sums >> np.uint64(29)
    return int(np.unique(sums).size)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
