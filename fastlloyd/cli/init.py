"""`fastlloyd init`: write a commented run file and a template of the bounds, and print the next four commands."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import join

from fastlloyd.cli.options import Parser, add_options, read_tables
from fastlloyd.errors import EXIT_OK, ConfigError
from fastlloyd.protocols.registry import find
from fastlloyd.run.config import OPTIONS, RunConfig
from fastlloyd.run.run_file import toml_value, with_values
from fastlloyd.run.session import find_protocol
from fastlloyd.run.vertical import VerticalInputs

_FLAGS = ("protocol", "k", "epsilon", "n_total", "masking", "min_clients", "columns")
_COLUMNS = ("age", "weight")
_EXAMPLES = {"age": "0,120", "weight": "0,300"}
_FILE = "client_{client}.csv"
_THRESHOLD = (
    "the clients add the noise in parts, and some may fail: `fastlloyd plan` says how many (common: the server knows "
    "the noise)"
)


def main(argv: Sequence[str]) -> int:
    """Write the files and print what to do next.

    Raises
    ------
    ConfigError
        A file exists already, the folder cannot be written, or values do not fit together; nothing is written then.
    """
    arguments = parser().parse_args(argv)
    folder, clients = Path(arguments.folder), arguments.clients
    text, owners = _run_file({name: getattr(arguments, name) for name in _FLAGS}, arguments.set_ or (), clients=clients)
    files = {folder / "run.toml": text, **_bounds_files(folder, tuple(arguments.columns or ()), owners)}
    there = [str(path) for path in files if path.exists()]
    if there:
        raise ConfigError(f"{' and '.join(there)} would be overwritten; name another folder")
    _write(folder, files)
    run = str(folder / "run.toml")
    names = [path.name for path in files]
    first = min(owners, default=1)
    print(
        f"wrote {', '.join(names[:-1])} and {names[-1]} in {folder}: fill in what is marked there, the bounds of your"
    )
    print(f"columns first, and put the parties' files beside them ({_FILE.format(client=first)}, ..). Then:")
    together = ["--d", str(len(_COLUMNS) * len(owners))] if owners else []
    for words in (
        ["plan", "-n", str(clients + 1), *together, "--config", run],
        ["check", "--config", run, "--client", str(first), "--clients", str(clients), *together],
        ["init-state", str(folder / "state"), "-n", str(clients + 1)],
        ["run", "-n", str(clients + 1), "--config", run],
    ):
        print("  " + join(["fastlloyd", *words]))
    if owners:
        print("--d is the number of all parties' columns together: correct it when their bounds are filled in.")
    print("The last one runs all parties on this machine; docs/sites.md says how each runs at its own site.")
    return EXIT_OK


def _write(folder: Path, files: Mapping[Path, str]) -> None:
    """Write all files, or none."""
    new, written = not folder.exists(), []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        if new and folder.is_dir():
            folder.rmdir()
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); name another folder") from error


def _bounds_files(folder: Path, columns: tuple[str, ...], owners: Sequence[int]) -> dict[Path, str]:
    """Return a template of the bounds; one for each owner if parties own different columns."""
    if not owners:
        named = {"bounds.csv": columns or _COLUMNS}
    elif columns:
        raise ConfigError("--columns: with tables split by columns each party names its own, in its own bounds file")
    else:
        named = {f"bounds_{rank}.csv": tuple(f"{name}_{rank}" for name in _COLUMNS) for rank in owners}
    return {
        folder / file: "feature,lo,hi\n"
        + "".join(f"{name},{_EXAMPLES.get(name.partition('_')[0], '0,1')}\n" for name in names)
        for file, names in named.items()
    }


def parser() -> Parser:
    """Return the parser of the flags."""
    made = Parser(
        prog="fastlloyd init",
        description="Write a commented run file and a template of the bounds.",
    )
    made.add_argument("folder", metavar="DIR", help="where to write run.toml and bounds.csv")
    made.add_argument("--clients", type=int, default=3, metavar="M", help="clients with records (default 3)")
    add_options(made, *_FLAGS)
    made.add_argument("--set", action="append", dest="set_", metavar="PROTOCOL.KEY=VALUE", help="a protocol's setting")
    return made


def _run_file(given: dict[str, object], pairs: Sequence[str], *, clients: int) -> tuple[str, tuple[int, ...]]:
    """Return the run file, checked by reading it once, and the ranks that own columns (none with tables of rows)."""
    plain = RunConfig()
    given = {name: value for name, value in given.items() if value is not None}
    protocol = str(given.get("protocol", plain.protocol))
    vertical = find(protocol).partition == "vertical"
    tables = read_tables(pairs, protocol)
    of_whom = "that the parties have in common" if vertical else "of all clients together"
    resume = ", and what --resume needs" if find(protocol).resumes else ""
    values: list[tuple[str, object, str]] = [
        ("protocol", protocol, "what is computed, and how: `fastlloyd choose` names one that fits"),
        ("data", _FILE, f"each party's own file; {{client}} becomes its number{', with a column of ids' * vertical}"),
        (
            "bounds",
            "bounds_{client}.csv" if vertical else "bounds.csv",
            "FILL IN: lowest and highest possible value of each feature, never read off the records",
        ),
        (
            "n_total",
            given.get("n_total", 10_000),
            f"{'FILL IN: ' * ('n_total' not in given)}public upper bound on the records {of_whom}",
        ),
        ("k", given.get("k", 3), f"{'FILL IN: ' * ('k' not in given)}number of clusters"),
        ("epsilon", given.get("epsilon", plain.epsilon), "privacy budget of the whole run: smaller is more private"),
        (
            "missing",
            plain.missing,
            f"records that lack a value: refuse,{' drop,' * (not vertical)} or midpoint (of the bounds)",
        ),
        ("state_dir", "state", f"each party's ledger over all runs{resume}; private to the party"),
        ("output", "result", "where the results go"),
    ]
    if find_protocol(protocol).needs_server_data(with_values(plain, {"protocol": protocol, **tables})):
        about = "FILL IN: records that the server may use and the clients may see"
        values.append(("server_data", "server.csv", about))
    masking = find_protocol(protocol).site_masking(clients)
    if masking is not None and "masking" not in given and "min_clients" not in given:
        values.append(("masking", masking, _THRESHOLD))
    values += [(name, given[name], OPTIONS[name].help) for name in ("masking", "min_clients") if name in given]
    lines = ["# A run of fastlloyd; paths begin at the folder of this file. FILL IN: decide."]
    for name, value, about in values:
        if not OPTIONS[name].own:
            lines += ["", f"# {about}", f"{name} = {toml_value(value)}"]
    if not vertical:
        lines += ["", "# Where clients differ much in size, a cap for each; where a person may have several rows,"]
        lines += ["# whose a row is", "# client_caps = [5000, 3000, 2000]", '# unit = "patient_id"']
    lines += ["", "# For sites that prove their names (docs/security.md): fastlloyd keygen, fastlloyd roster"]
    lines += ['# roster = "roster.toml"', ""]
    lines += ["# Everything above, and tables in brackets, is the same for all. What follows is each party's own: at"]
    lines += ["# sites (docs/sites.md) each moves these lines into its own file, which it gives with --site."]
    for name, value, about in values:
        if OPTIONS[name].own:
            lines += ["", f"# {about}", f"{name} = {toml_value(value)}"]
    lines += ["", "# This party's own key", '# key = "keys/own.key"', ""]
    if vertical:
        lines += ["# The column that names the people, the same at all parties; 'intersect' keeps those whom all have"]
        lines += ["# [vertical]", '# id = "id"', '# align = "check"', ""]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in table.items()), ""]
    text = "\n".join(lines)
    config = with_values(plain, tomllib.loads(text))
    inputs = find_protocol(protocol).gather(config, clients)[1] if vertical else None
    return text, tuple(party.rank for party in inputs.owners) if isinstance(inputs, VerticalInputs) else ()
