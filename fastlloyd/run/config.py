"""The configuration of a run: everything a user may set, checked.

`protocol` settings live with their protocol and arrive here as plain `set` pairs. Secrets never stand in it.
`run/run_file.py` reads it from a run file and from flags, and writes it as one.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from dataclasses import dataclass, field
from typing import Any

from fastlloyd.data.database import RETRY_S, Place, check_question, find_place, names_query_file
from fastlloyd.data.form import Form, names_file
from fastlloyd.errors import ConfigError
from fastlloyd.party.option import option, options_of
from fastlloyd.protocols.registry import DEFAULT, ROWS, Row, find
from fastlloyd.report.citation import STUDY

VERTICAL = "vertical"
"""The table of a run file that the vertical protocols have in common; there is one per protocol besides."""
PAPER_DELTA = "paper"
WIDEST = f"{-(2**40)},{2**40}"
"""Where all values of a column lie unless somebody says more: about 0, up to 1.1 x 10^12."""
PRIVATE = "private"
PRIVATE_SHARE = 0.1
"""The share of a run's 1/sigma^2 that its bounds get where 'private' names none."""
LEAST_SHARE, MOST_SHARE = 0.001, 0.999
READ_AT = 1e-6
"""The delta at which epsilon is read where no budget has one."""
AUTO_K = "auto:"
_PAIR = re.compile("[^,/]+,[^,/]+")
_BYTES = re.compile("([0-9]{1,9}(?:[.][0-9]{1,9})?)([KMGT])i?B?")
_MOST_AUTHORS = 100
# A shorter one is a lost packet, and a longer one helps nobody whose deadline is hours.
_LEAST_SILENCE_S, _MOST_SILENCE_S = 2.0, 60.0
FIGURE_FORMS = ("png", "svg", "pdf")
DATA, TASK, LINKS, OUT = "data", "clustering and privacy", "aggregation and links", "state and output"


def _in_file(text: str) -> bool:
    """Whether the value of `bounds` is a file."""
    return text != "auto-public" and text.partition(":")[0] != PRIVATE and _PAIR.fullmatch(text) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything a user may set for one run: each option with its default, its help and what fits (`Option`).

    Three fields are no options, for other code sets them: `settings` holds the table of each protocol, by its name;
    `choose_k` says that the protocol chooses the number of clusters, at most `k`, as 'auto:KMAX' asks for; `least_k` is
    2 with '2..KMAX', which asks for the silhouettes of these numbers as well, and 0 without.
    """

    protocol: str = option(DEFAULT, "default %(default)s", "", "NAME", public=True, common=True)
    title: str | None = option(
        None, "what the study is called, for people: on report, page, dossier and approval", "", "TEXT", public=True
    )
    authors: tuple[str, ...] = option((), "who answers for the study, shown with its title", "", "A,B,..", public=True)
    institution: str | None = option(None, "where they work, shown with its title", "", "TEXT", public=True)
    purpose: str | None = option(None, "what the study is for, shown with its title", "", "TEXT", public=True)
    data: str | None = option(
        None,
        "this rank's records: '{client}' becomes 1..M; csv, csv.gz, npy, npz, parquet, arrow, xlsx, a database with "
        "--query, or - (join, check, label: standard input)",
        DATA,
        "TEMPLATE",
        common=True,
        path=True,
    )
    query: str | None = option(
        None,
        "what --data gives, where that is a database or a folder of Parquet files",
        DATA,
        "SQL|FILE.sql",
        path=names_query_file,
    )
    table: str | None = option(None, "the same, for all of one table", DATA, "NAME")
    dataset: str | None = option(
        None, "demonstration: one public set, split among the clients", DATA, "NAME|FILE", path=names_file, shared=True
    )
    data_dir: str | None = option(
        None, "where --dataset NAME is looked up (default $FASTLLOYD_DATA)", DATA, "DIR", path=True
    )
    split: str = option(
        "iid", "how --dataset is split (default %(default)s)", DATA, "iid|label|even|CSV", path=names_file, shared=True
    )
    columns: tuple[str, ...] = option(
        (), "feature columns by name (default: all numeric)", DATA, "A,B,..", public=True, common=True
    )
    missing: str = option(
        "refuse",
        "missing values: refuse (default), drop the row, midpoint",
        DATA,
        choices=("refuse", "drop", "midpoint"),
    )
    delimiter: str = option(",", "what stands between the cells of --data: ';' or 'tab', say", DATA, "C")
    decimal: str = option(".", "what stands before a fraction in --data", DATA, choices=(".", ","))
    thousands: str | None = option(
        None, "what stands between the thousands of a number in --data", DATA, choices=("none", ".", ",", "'", "space")
    )
    na: tuple[str, ...] = option(
        (),
        "codes in --data for a missing value, such as -999,9999,?? (empty, NA, NaN, null and ? always are)",
        DATA,
        "A,B,..",
    )
    header: bool | None = option(
        None, "whether row one of --data (text, xlsx) names the columns (default: if one of its cells is text)", DATA
    )
    rename: tuple[str, ...] = option((), "columns of --data under the names that all sites use", DATA, "OLD=NEW,..")
    encoding: str = option("utf-8", "of --data, such as cp1252 or utf-16 (default utf-8)", DATA, "NAME")
    id: str | None = option(
        None, "column that names the rows of this rank's file for its labels; no feature, never sent", DATA, "COLUMN"
    )
    unit: str | None = option(
        None,
        "column that names people: all rows of a person at a client become one record",
        DATA,
        "COLUMN",
        public=True,
    )
    per_unit: str = option(
        "mean",
        "with --unit: mean of a person's rows (default), their first, or error where there are two",
        DATA,
        choices=("mean", "first", "error"),
        public=True,
    )
    categories: str | None = option(
        None,
        "public lists feature,category,weight: columns of categories become features of 0 and 1",
        DATA,
        "FILE",
        path=True,
        shared=True,
    )
    described: str | None = option(
        None,
        "describe: this party's folder of the finished run whose clusters are described; may contain '{client}'",
        DATA,
        "DIR",
        path=True,
    )
    # None only where a default data set brings its own.
    k: int | None = option(
        None,
        f"number of clusters; auto:KMAX lets {', '.join(row.name for row in ROWS if row.chooses_k)} choose, 2..KMAX "
        "shows silhouettes too",
        TASK,
        "K",
        words=("auto:KMAX", "2..KMAX"),
        least=1,
        most=10_000,
        public=True,
        common=True,
    )
    choose_k: bool = False
    least_k: int = 0
    quality: float = option(
        0.0,
        f"{', '.join(row.name for row in ROWS if row.judges)}: share of the budget for how good the clusters are, with "
        "ranges (default none; 0.05 without a number)",
        TASK,
        "SHARE",
        least=0,
        most=0.5,
        public=True,
        bare=0.05,
    )
    server_data: str | None = option(
        None,
        f"{', '.join(row.name for row in ROWS if row.server_data)}: records that the server may use and the clients "
        "may see",
        DATA,
        "FILE",
        path=True,
    )
    epsilon: float = option(
        1.0, "total epsilon of the run (default %(default)g)", TASK, least=1e-3, most=100, public=True, common=True
    )
    delta: float | str | None = option(
        None,
        "default auto: 1 / (100 N); paper: the protocol's paper's",
        TASK,
        "D",
        auto=True,
        words=("paper",),
        least=1e-11,
        most=0.5,
        public=True,
    )
    accept_large_delta: bool = option(False, "allow a delta above 1 / N, which promises little", TASK)
    rounds: int | None = option(
        None, "default auto: the protocol's public formula", TASK, "T", auto=True, least=0, most=1000, public=True
    )
    bounds: str | None = option(
        None,
        "public bounds of the features; private: found with noise first, with a share of the budget (default 0.1)",
        DATA,
        "LO,HI|FILE|auto-public|private:SHARE",
        common=True,
        path=_in_file,
        shared=True,
    )
    n_total: int | None = option(
        None, "public upper bound on all records together", DATA, "N", least=3, most=10**12, public=True, common=True
    )
    client_caps: tuple[int, ...] = option((), "public cap per client (default N // M)", DATA, "N1,N2,..", public=True)
    min_size: int = option(
        0,
        "publish no cluster whose (noisy) size is below N: its records count to the nearest one (default 0: all)",
        TASK,
        "N",
        least=0,
        most=10**12,
        public=True,
    )
    budget: float | None = option(
        None, "lifetime limit on epsilon; needs --state-dir", TASK, "E", least=0, most=1e6, common=True
    )
    budget_delta: float | None = option(
        None, "delta at which --budget is read (default: that of the first run with it)", TASK, "D", above=0, below=1
    )
    seed: int = option(
        0, "public randomness only: start and splits (default %(default)s)", TASK, least=0, most=2**63, public=True
    )
    masking: str = option(
        "common",
        "%(default)s (default); pairwise: the clients add the noise, all must stay; threshold: the same, some may fail",
        LINKS,
        choices=("common", "pairwise", "threshold"),
        public=True,
    )
    known_shares: int = option(
        1,
        "pairwise, threshold: clients whose noise an observer may know (default %(default)s)",
        LINKS,
        "T",
        least=1,
        most=100_000,
        public=True,
    )
    colluding: int | None = option(
        None,
        "threshold: clients that may collude with a lying server (default: 0 up to three clients, else 1)",
        LINKS,
        "C",
        auto=True,
        least=0,
        most=200,
        public=True,
    )
    ring_bits: int = option(32, "default %(default)s", LINKS, choices=(32, 64), public=True)
    min_clients: int | None = option(
        None,
        "go on without slow clients (default: all; threshold masks: as few as may open a round)",
        LINKS,
        "M",
        least=1,
        most=100_000,
        public=True,
    )
    roster: str | None = option(
        None, "TOML of pinned certificates; without it: demonstration", LINKS, "FILE", path=True, shared=True
    )
    key: str | None = option(None, "this party's own key; '{client}' becomes the rank", LINKS, "FILE", path=True)
    passphrase_file: str | None = option(
        None,
        "private file with the passphrase of an encrypted --key (default: $FASTLLOYD_PASSPHRASE_FILE, or asked)",
        LINKS,
        "FILE",
        path=True,
    )
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    workers: int | None = option(
        None,
        f"{', '.join(row.name for row in ROWS if row.workers)}: processes that compute (default: cores)",
        LINKS,
        "W",
        least=1,
        most=256,
    )
    threads: int | None = option(
        None, "a client's passes over its own records (default: its share of the cores)", LINKS, "T", least=1, most=256
    )
    memory: str | None = option(
        None,
        "what a client's own records may take, such as 2G; more are read from disk (default: a quarter of the machine)",
        LINKS,
        "BYTES",
    )
    transport: str = option(
        "tcp", "%(default)s (default), also on one host, or shm: as MPI likes", LINKS, choices=("tcp", "shm")
    )
    network: str | None = option(None, "fastlloyd run: a host per rank, shaped (scripts/netem)", LINKS, "PROFILE")
    shaping: str | None = option(None, "who shapes --network: netem or emulator", LINKS, hidden=True)
    delay: float = option(0.0, "injected per message", LINKS, "SECONDS", least=0, most=60)
    deadline: float = option(
        60.0, "per round (default %(default)g)", LINKS, "SECONDS", least=0.5, most=86_400, shared=True
    )
    setup_deadline: float = option(
        300.0, "before round 0 (default %(default)g)", LINKS, "SECONDS", least=0.5, most=86_400, shared=True
    )
    reconnect: float | None = option(
        None,
        "serve and join: how long a connection that was cut may take to come back (default: half of --deadline)",
        LINKS,
        "SECONDS",
        least=0,
        most=86_400,
    )
    state_dir: str | None = option(
        None, "ledger over runs, and what --resume needs (private to each party)", OUT, "DIR", common=True, path=True
    )
    new_state: bool = option(False, "make --state-dir: this party's first run with it", OUT)
    resume: bool = option(False, "go on with the interrupted run in --state-dir", OUT)
    output: str = option(
        "fastlloyd-run", "default ./%(default)s; may contain '{client}'", OUT, "DIR", common=True, path=True
    )
    overwrite: bool = option(False, "replace the files of another run in --output", OUT, common=True)
    review: bool = option(False, "hold the result in --state-dir until `fastlloyd release` or `fastlloyd discard`", OUT)
    figures: tuple[str, ...] = option(
        ("png",), f"forms of the figures, of {', '.join(FIGURE_FORMS)} (default png)", OUT, "LIST"
    )
    evaluate: bool = option(False, "metrics on the true data (--dataset only)", DATA)
    print_result: bool | None = option(None, "print the table (default: one host)", OUT)
    quiet: bool = option(False, "no progress, no table", OUT)
    log_level: str = option("warning", "default %(default)s", OUT, choices=("debug", "info", "warning", "error"))
    log_format: str = option(
        "text", "of the log: text (default), or json, one object a line", OUT, choices=("text", "json")
    )
    metrics: str | None = option(
        None, "keep Prometheus metrics of the run in this file; '{client}' becomes the rank", OUT, "FILE", path=True
    )
    log_file: str | None = option(None, "'{client}' becomes the rank; default: standard error", OUT, "FILE", path=True)

    def __post_init__(self) -> None:
        chooses = self.row.chooses_k
        for entry in OPTIONS.values():
            if (value := getattr(self, entry.name)) is not None:  # code may leave out what no protocol here needs
                entry.read(value)
                if isinstance(value, str) and entry.names_path(value):
                    _check_name(entry.flag, value)
        _check_study(self)
        _ = self.form, self.bounds_share  # refuse marks that do not go together, and a share that is none
        if self.choose_k and not chooses:
            able = ", ".join(row.name for row in ROWS if row.chooses_k)
            raise ConfigError(
                f"--k {AUTO_K}{self.k}: {self.protocol} does not choose the number of clusters; give --k a number, or "
                f"take a --protocol that does ({able})"
            )
        if (self.quality or self.least_k) and not self.row.judges:
            flag = f"--k {self.least_k}..{self.k}" if self.least_k else "--quality"
            able = ", ".join(row.name for row in ROWS if row.judges)
            raise ConfigError(
                f"{flag}: {self.protocol} has no round for the quality of its clusters; leave it out and describe "
                f"their quality afterwards, or take a --protocol that has one ({able})"
            )
        for unused in self.row.unused:
            if getattr(self, unused) != type(self).__dataclass_fields__[unused].default:
                raise ConfigError(f"{OPTIONS[unused].flag} means nothing in {self.protocol}: leave it out")
        if self.data is not None:
            check_question(self.data, self.query, self.table)
        elif self.query is not None or self.table is not None:
            raise ConfigError(
                f"--{'table' if self.query is None else 'query'} asks the database that --data names: add it"
            )
        if self.data is not None and self.dataset is not None:
            raise ConfigError("--data and --dataset exclude each other: own files, or one public set that is split")
        own = [OPTIONS[name].flag for name in ("id", "unit", "categories") if getattr(self, name) is not None]
        if self.dataset is not None and own:
            raise ConfigError(
                f"{own[0]} is about each party's own file: give --data, for without it, or with --dataset, a public "
                "set is dealt out (a plan opens no file: give it --d)"
            )
        if self.memory is not None:
            read_bytes(self.memory)
            if not self.row.streams:
                able = ", ".join(row.name for row in ROWS if row.streams)
                raise ConfigError(
                    f"--memory: {self.protocol} holds all records in memory; leave it out, or take a --protocol that "
                    f"reads them from disk ({able})"
                )
        if self.min_size:
            self._check_min_size()
        for name in (self.id, self.unit):
            if name is not None and name in self.columns:
                raise ConfigError(
                    f"--columns names {name!r}, which tells rows or people apart and is no feature: remove it"
                )
        if self.data is not None:
            self._check_own_data()
        if self.budget is not None and self.state_dir is None:
            raise ConfigError("--budget is a limit over all runs and needs --state-dir, where the ledger is kept")
        if self.budget_delta is not None and self.budget is None:
            raise ConfigError("--budget-delta needs --budget, the epsilon that it belongs to")
        if self.resume and self.state_dir is None:
            raise ConfigError("--resume needs the --state-dir of the interrupted run")
        if self.new_state and (self.state_dir is None or self.resume):
            raise ConfigError(
                "--new-state makes the --state-dir before a first run: it needs that flag, and excludes --resume"
            )
        if self.review and self.print_result:
            raise ConfigError("--review holds back what --print-result shows: leave one of them out")
        if not self.figures or not {*self.figures} <= {*FIGURE_FORMS}:
            raise OPTIONS["figures"].wrong(
                ",".join(self.figures), f"a list of {', '.join(FIGURE_FORMS)}, such as svg,pdf"
            )
        if any(cap < 0 for cap in self.client_caps):
            raise OPTIONS["client_caps"].wrong(self.client_caps, "numbers of records, 0 or more")

    def check_links(self) -> None:
        """Refuse what only a party that meets others must have: plans, checks and approvals can do without.

        A roster without a key, or a key without a roster, would prove nobody's name; a gate needs a place to hold the
        result.

        Raises
        ------
        ConfigError
            Something is missing.
        """
        if (self.roster is None) != (self.key is None):
            raise ConfigError("--roster and --key belong together: pinned certificates, and this party's own key")
        if self.passphrase_file is not None and self.key is None:
            raise ConfigError("--passphrase-file is for an encrypted --key: add the key, or leave the passphrase out")
        if self.review and self.state_dir is None:
            raise ConfigError("--review holds the result in the state directory and needs --state-dir")

    @property
    def row(self) -> Row:
        """What the registry says of the protocol that runs."""
        return find(self.protocol)

    @property
    def box(self) -> str | None:
        """The bounds as stated; `WIDEST` where they are only the box in which a run looks for bounds."""
        return WIDEST if self.bounds is None and self.row.finds_bounds else self.bounds

    @property
    def bounds_share(self) -> float | None:
        """The share of 1/sigma^2 for a first run that finds the bounds, as 'private:SHARE' says; None: no such run."""
        word, colon, share = (self.bounds or "").strip().partition(":")
        if word != PRIVATE:
            return None
        if not colon:
            return PRIVATE_SHARE
        with contextlib.suppress(ValueError):
            if LEAST_SHARE <= float(share) <= MOST_SHARE:
                return float(share)
        raise OPTIONS["bounds"].wrong(self.bounds, f"a share from {LEAST_SHARE:g} to {MOST_SHARE:g} after 'private:'")

    @property
    def reconnect_s(self) -> float:
        """How long a connection that was cut may take to come back; 0: not at all."""
        return self.deadline / 2 if self.reconnect is None else self.reconnect

    @property
    def silence_s(self) -> float:
        """How long a connection may leave unconfirmed what was sent on it; it is noticed within half the deadline."""
        return min(_MOST_SILENCE_S, max(_LEAST_SILENCE_S, self.deadline / 4))

    @property
    def form(self) -> Form:
        """How the text of the party's own files is written."""
        return Form(
            delimiter=self.delimiter,
            decimal=self.decimal,
            thousands=self.thousands,
            encoding=self.encoding,
            na=self.na,
            header=self.header,
            rename=self.rename,
        )

    def own_file(self, number: int | str, key: str | None = None) -> Place:
        """Return the file of one party, or what it asks a database; '{client}' becomes its number.

        Parameters
        ----------
        number : int or str
        key : str, optional
            The column that names rows in the errors of a database; by default that of --id or --unit.

        Raises
        ------
        ConfigError
            As for `find_place`.
        """
        wanted = {"query": self.query, "table": self.table, "key": key or self.id or self.unit}
        patience_s = min(RETRY_S, self.setup_deadline / 2)  # the others wait for it, and have to hear of it
        return find_place(self.data or "", self.form, number=number, **wanted, patience_s=patience_s)

    @property
    def own_settings(self) -> dict[str, Any]:
        """The settings of the protocol that runs."""
        return self.settings.get(self.protocol, {})

    def _check_min_size(self) -> None:
        """Refuse a threshold that a result without sizes cannot be held to, or that no cluster can reach."""
        if not self.row.sizes:
            able = ", ".join(row.name for row in ROWS if row.sizes)
            raise ConfigError(
                f"--min-size {self.min_size}: the result of {self.protocol} has no sizes of clusters; leave it out, or "
                f"take a --protocol whose result has them ({able})"
            )
        if self.n_total is not None and self.min_size > self.n_total:
            raise ConfigError(
                f"--min-size {self.min_size}: expected at most --n-total, {self.n_total}: no cluster could be published"
            )

    def _check_own_data(self) -> None:
        """Refuse what only fits a public data set."""
        if self.evaluate:
            raise ConfigError("--evaluate compares with the true records and is for a public --dataset only")
        if self.box is None and self.categories is None:
            raise ConfigError("--data needs --bounds: 'LO,HI' for all features, or a CSV file feature,lo,hi")
        if self.bounds == "auto-public":
            raise ConfigError(
                "--bounds auto-public reads the bounds off a public --dataset; with --data that would leak: give "
                "'LO,HI' or a file"
            )
        if self.n_total is None:
            raise ConfigError("--data needs --n-total: a public upper bound on the records of all clients together")
        if self.k is None and not self.row.finds_bounds:
            raise ConfigError("--data needs --k, the number of clusters")


OPTIONS = options_of(RunConfig)


def study(config: RunConfig) -> dict[str, Any]:
    """Return what people say of the study, by name, as plain values: without what is not said."""
    said = {name: getattr(config, name) for name in STUDY}
    return {
        name: list(value) if name == "authors" else value for name, value in said.items() if value not in (None, ())
    }


def _check_study(config: RunConfig) -> None:
    """Refuse texts about the study in which people could not see what stands there; as for names."""
    said = study(config)
    if not said:
        return
    from fastlloyd.crypto.link.identity import visible  # takes long to import, and a help needs none of it

    if len(said.get("authors", ())) > _MOST_AUTHORS:
        raise OPTIONS["authors"].wrong(len(said["authors"]), f"at most {_MOST_AUTHORS} names")
    for name, value in said.items():
        for text in value if name == "authors" else (value,):
            shown = text.isprintable() and text == text.strip() and visible(text)
            if not (shown and len(text) <= STUDY[name]):
                each = " in each name" if name == "authors" else ""
                raise OPTIONS[name].wrong(text, f"1 to {STUDY[name]} printable characters{each}")


def _check_name(flag: str, path: str) -> None:
    """Refuse a path that no file of this process can have: run files are UTF-8, names on a disk follow the locale."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ConfigError(
            f"{flag} {path}: this locale ({sys.getfilesystemencoding()}) has no such letters in the names of files; "
            "start it with LC_ALL=C.UTF-8, or rename the file"
        ) from None


def read_bytes(text: str) -> int:
    """Return the number of bytes that a text such as 512M or 1.5G means; K, M, G and T are powers of 1024.

    Raises
    ------
    ConfigError
        It means none, or less than 1 MiB.
    """
    match = _BYTES.fullmatch(text)
    size = int(float(match[1]) * 1024 ** "KMGT".index(match[2]) * 1024) if match else 0
    if size < 1 << 20:
        raise OPTIONS["memory"].wrong(text, "a number with K, M, G or T, such as 512M or 2G, and at least 1M")
    return size


def public_part(config: RunConfig) -> dict[str, Any]:
    """Return the plain values that must be equal at all parties."""
    public = {name: getattr(config, name) for name, entry in OPTIONS.items() if entry.public}
    return {**public, "choose_k": config.choose_k, "least_k": config.least_k, "settings": config.own_settings}
