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
    FORM,
    Parser,
    add_options,
    add_site_option,
    number,
)
from fastlloyd.crypto.link.own_key import check_links, own_place
from fastlloyd.data.bounds import Bounds, count_outside, parse_bounds
from fastlloyd.data.categories import Categories
from fastlloyd.data.database import Place, check_question, find_place, names_client
from fastlloyd.data.findings import Findings, find, too_many
from fastlloyd.data.form import Cap
from fastlloyd.data.merge import Unit
from fastlloyd.data.missing import missing_words
from fastlloyd.data.reading import Wanted
from fastlloyd.data.table import Table, read_table
from fastlloyd.data.vertical import read_sorted
from fastlloyd.describe.columns import DescribedColumn
from fastlloyd.errors import EXIT_OK, ConfigError, DataError, name_some, printable
from fastlloyd.protocols.describe.inputs import described_columns
from fastlloyd.protocols.private_bounds.inputs import split_run
from fastlloyd.report.unit import format_count
from fastlloyd.run.config import OPTIONS, RunConfig
from fastlloyd.run.inputs import share_caps
from fastlloyd.run.promise import plan_words, unit_sentence
from fastlloyd.run.run_file import load_config, refuse_own_keys, with_values
from fastlloyd.run.vertical import read_alignment
from fastlloyd.wire.decode import Within

_SHOWN = 20
_COUNTED = 1 << 20
_FEWER = "agree on a larger --n-total or larger --client-caps with the other parties, or bring fewer rows"


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
    config = question.config
    if question.client is None and "{client}" in (config.bounds or ""):
        raise ConfigError(f"--bounds {config.bounds} stands for one file per client: say which with --client")
    found = config.bounds_share is not None or (config.bounds is None and config.row.finds_bounds)
    named = None if config.bounds is None or found else config.bounds.replace("{client}", str(question.client))
    bounds = None if named is None else parse_bounds(named)
    categories = Categories() if config.categories is None else Categories.read(config.categories)
    if bounds is not None or categories.lists:
        bounds = categories.bounds(bounds)
    columns = described_columns(config)
    table = _read(question, bounds, categories, columns)
    matched = None if bounds is None else bounds.match(table.names)
    findings = find([table.values], matched, table.names, table.intake)
    for line in (
        *_summary(table, question),
        f"unit      {unit_sentence(config) or f'none: {config.protocol} promises no differential privacy'}",
        *(["bounds    not checked: a run finds them"] if found else _bounds_lines(table, matched)),
        *_described_lines(question, table, columns),
        *(f"warning   {sentence}" for sentence in findings.warnings),
        *_hints(table.values, table.names, None if question.vertical else config.k),
        *_outlook(question, len(table.names)),
    ):
        print(printable(line))
    _check_cap(len(table.values), question)
    links = check_links(config.roster, config.key, question.client, config.passphrase_file)
    for line in links.lines:
        print(printable(line))
    doubts = "" if found else _doubts(findings, matched)
    # The bounds may follow from categories.
    needed = {"--bounds": found or bounds, "--n-total": config.n_total, "--k": config.row.finds_bounds or config.k}
    missing = [flag for flag, value in needed.items() if value is None]
    missing += [] if links.missing is None else [links.missing]
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
    wanted = ("bounds", "columns", "missing", "id", "unit", "per_unit", "categories")
    add_options(parser, *wanted, "query", "table", *FORM, "client_caps", "epsilon", "roster", "key")
    parser.add_argument("--k", type=number(int, 1), help="clusters")
    parser.add_argument(
        "--n-total", type=number(int, 1), metavar="N", help="public bound on the records of all clients"
    )
    parser.add_argument("--d", type=number(int, 1), help="vertical protocols: columns of all parties together")
    parser.add_argument("--client", type=int, metavar="I", help="which client this is, from 1")
    parser.add_argument("--clients", type=number(int, 1), metavar="M", help="how many clients will take part")
    return parser


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What to check, from the run file and the flags; a run needs more values.

    Attributes
    ----------
    config : RunConfig
        Without the place of the records: so no public value is needed yet.
    """

    config: RunConfig
    data: str | None
    query: str | None
    table: str | None
    client: int | None
    clients: int | None
    d: int | None

    @property
    def vertical(self) -> bool:
        """Whether all parties hold columns of the same people."""
        return self.config.row.partition == "vertical"

    @property
    def record(self) -> str:
        """The noun for a record in the summary."""
        return "row" if self.config.unit is None else "record"


def _question(options: argparse.Namespace) -> _Question:
    """Merge the flags and the run file; flags win."""
    config = load_config(options.config, links=False, site=options.site)
    if options.config is not None and (options.roster or config.roster):
        refuse_own_keys(options.config)
    given = {name: value for name, value in vars(options).items() if name in OPTIONS and value is not None}
    place = {name: given.pop(name, getattr(config, name)) for name in ("data", "query", "table")}
    config = with_values(replace(config, data=None, query=None, table=None, dataset=None), given)
    rank, clients = own_place(config.roster, config.key, config.passphrase_file)
    client = rank if options.client is None else options.client
    if None not in (client, options.clients) and client > options.clients:
        raise ConfigError(f"--client {client}: expected a number up to --clients {options.clients}")
    clients = options.clients or clients
    vertical = config.row.partition == "vertical"
    if options.d is not None and not vertical:
        raise ConfigError(f"--d {options.d}: {config.protocol} counts the columns of this file; leave --d out")
    if options.client is not None:
        Within(0 if vertical else 1).check("--client", options.client)
    if config.n_total is not None and (config.k or 0) > config.n_total:
        raise ConfigError(f"--k {config.k}: more clusters than records (--n-total {config.n_total}); lower --k")
    if config.client_caps and config.n_total is not None:
        share_caps(config, clients or len(config.client_caps), config.n_total)
    return _Question(config=config, **place, client=client, clients=clients, d=options.d)


def _read(
    question: _Question, bounds: Bounds | None, categories: Categories, columns: Sequence[DescribedColumn]
) -> Table:
    """Read this party's file, as the run would."""
    config = question.config
    if question.data is None:
        raise ConfigError("nothing to check: give this party's file with --data")
    no_feature = read_alignment(config).id if question.vertical else config.id
    limit = _cap(question)
    cap = None
    if limit is not None:  # a little more is counted: its owner needs the number
        cap = Cap(max(limit[0], _COUNTED), f"and {limit[0]:,} is {limit[1]}; {_FEWER}")
    file = _place(question, question.data, no_feature or config.unit)
    if question.vertical and no_feature is not None:
        wanted: Wanted = {"columns": config.columns, "missing": config.missing, "bounds": bounds, "cap": cap}
        return read_sorted(file, id_column=no_feature, **wanted)
    return read_table(
        file,
        columns=config.columns,
        ignore=() if no_feature is None else (no_feature,),
        missing=config.missing,
        bounds=bounds,
        unit=None if config.unit is None else Unit(config.unit, config.per_unit),
        categories=categories,
        beside=tuple(column.name for column in columns),
        cap=cap,
    )


def _described_lines(question: _Question, table: Table, columns: Sequence[DescribedColumn]) -> Iterator[str]:
    """Read the columns that would describe clusters, as the run would, and say what is missing or outside."""
    if not columns:
        return
    place = _place(question, question.data or "", question.config.id or question.config.unit)
    for at, column in enumerate(columns):
        texts = table.raw_texts[column.name]
        if column.is_number:
            values = column.read_numbers(texts, source=str(place), form=place.cell_form, row=place.row)
            missing = int(np.isnan(values).sum())
            outside = int(((values < column.bottom) | (values > column.top)).sum())
            found = f"{missing:,} missing, {outside:,} outside {column.bottom:g} to {column.top:g}"
        else:
            bins = column.read_categories(texts, source=str(place), row=place.row)
            found = f"{int((bins == column.width - 1).sum()):,} missing"
        yield f"{'described' if at == 0 else '':<10}{column.name}: {found}, of {format_count(len(texts), 'row')}"


def _place(question: _Question, data: str, key: str | None) -> Place:
    """Return the place of this party's records, with its number filled in; `key` names rows of a database."""
    query, table, form = question.query, question.table, question.config.form
    check_question(data, query, table)
    if question.client is None and names_client(data, query, table):
        raise ConfigError(f"--data {data} stands for one file or query per client: say which with --client")
    return find_place(data, form, number=question.client, query=query, table=table, key=key)


def _cap(question: _Question) -> tuple[int, str] | None:
    """Return the largest number of rows that this client may bring, and the name of that number."""
    caps, n_total = question.config.client_caps, question.config.n_total
    if caps:
        if question.client is None:
            return None
        if question.client > len(caps):
            raise ConfigError(
                f"--client {question.client}: caps are given for {format_count(len(caps), 'client')} only; give one "
                "for each with --client-caps, or correct --client"
            )
        return caps[question.client - 1], f"the cap of client {question.client}"
    if n_total is None:
        return None
    if question.vertical:
        return n_total, "the public N"
    if question.clients is not None:
        each = "the one client" if question.clients == 1 else f"each of {question.clients} clients"
        return n_total // question.clients, f"the cap of {each}"
    return n_total, "the public N of all clients together"


def _check_cap(rows: int, question: _Question) -> None:
    cap = _cap(question)
    if cap is not None and rows > cap[0]:
        raise DataError(f"{format_count(rows, question.record, 'are')} more than {cap[0]:,}, {cap[1]}; {_FEWER}")


def _summary(table: Table, question: _Question) -> Iterator[str]:
    """Yield what was read."""
    config, missing = question.config, question.config.missing
    yield f"file      {table.source}"
    read = table.intake.rows or len(table.values)
    yield f"rows      {read:,}"
    if config.unit is None and len(table.values) < read:
        yield f"records   {len(table.values):,} after {format_count(read - len(table.values), 'row')} were dropped"
    elif config.unit is not None:
        yield f"people    {len(table.values):,} with one record each (--unit {config.unit}, {config.per_unit})"
    yield f"columns   {len(table.names)} used: {name_some(table.names, _SHOWN)}"
    if table.ignored:
        why = [f"{name} ({words})" for name, words in table.intake.left_out]
        yield f"          {len(why)} ignored: {name_some(why, _SHOWN)}"
    outcome = {"refuse": "none", "drop": "dropped", "midpoint": "filled with the middle of the bounds"}
    rows = "" if missing == "refuse" else f"{format_count(table.missing_rows, question.record)} "
    yield f"missing   {rows}{outcome[missing]} (rule: {missing})"
    if table.missing_in:
        yield f"          values: {missing_words(table.missing_in)}"
    cap = _cap(question)
    if cap is not None:
        yield f"cap       {format_count(cap[0], question.record)}, {cap[1]}"
    elif config.client_caps:
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
    cells = [(table.names[at], f"{bounds.lo[at]:g}", f"{bounds.hi[at]:g}", f"{outside[at]:,}") for at in shown]
    widths = [min(max(map(len, column)), 30) for column in zip(*cells, strict=True)]
    for at, (name, *numbers) in zip(shown, cells, strict=True):
        share = 100 * outside[at] / rows
        lo, hi, count = (f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=True))
        units = "  check the units" if too_many(outside[at], rows) else ""
        yield f"          {name:<{widths[0]}}  {lo} {hi}  {count} outside ({share:.2f} %){units}"
    rest = np.count_nonzero(outside) - np.count_nonzero(outside[list(shown)])
    if len(outside) > _SHOWN:
        more = format_count(len(outside) - _SHOWN, "more feature")
        yield f"          and {more}, {rest} of them with values outside"


def _doubts(findings: Findings, bounds: Bounds | None) -> str:
    """Return a remark on features for which the bounds cannot be meant."""
    if bounds is None:
        return ", bounds not checked"
    return f", but {findings.unfit}" if findings.unfit else ""


def _hints(values: NDArray[np.float64], names: tuple[str, ...], k: int | None) -> Iterator[str]:
    """Yield remarks on records that are legal but may not be meant."""
    constant = [name for name, same in zip(names, values.min(axis=0) == values.max(axis=0), strict=True) if same]
    if constant and len(values) > 1:
        yield f"constant  one value only in {format_count(len(constant), 'column')}: {name_some(constant, _SHOWN)}"
    twice = len(values) - _count_distinct(values)
    if twice:
        yield f"repeated  {format_count(twice, 'row', 'equal')} an earlier one; fine if records can be equal"
    if k is not None and len(values) < k:
        yield f"few rows  fewer than k = {k}; allowed, because the other clients have records too"


def _outlook(question: _Question, d: int) -> Iterator[str]:
    """Yield what to expect of the result, as `fastlloyd plan` does, if the public numbers of a run are known.

    Only the number of columns comes from the records, and it is the same for all clients.
    """
    config = question.config
    clients = question.clients or len(config.client_caps)
    if None in (config.k, config.n_total) or clients < 1:
        return
    if question.vertical and question.d is None:
        yield "expected  not known from this party's columns alone: add --d, the number of all parties' columns"
        return
    if config.bounds_share is not None:
        both = split_run(config, clients, d)
        yield f"found     {plan_words(both.bounds, clients, len(both.bounds.columns) or d)['expected']}"
        config = both.run
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
