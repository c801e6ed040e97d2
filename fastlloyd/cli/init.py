"""`fastlloyd init`: writes a commented run file and a template of the bounds, and prints the next three commands."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from shlex import join

from fastlloyd.cli.options import Parser, add_options, read_tables
from fastlloyd.errors import EXIT_OK, ConfigError
from fastlloyd.protocols.registry import find
from fastlloyd.run.config import OPTIONS, RunConfig, toml_value, with_values

_FLAGS = ("protocol", "k", "epsilon", "n_total", "masking", "min_clients", "columns")
_COLUMNS = ("age", "weight")
_EXAMPLES = {"age": "0,120", "weight": "0,300"}


def main(argv: Sequence[str]) -> int:
    """Write the files and print what to do next.

    Raises
    ------
    ConfigError
        A file is there already, the folder cannot be written, or values do not go together; nothing is written then.
    """
    arguments = parser().parse_args(list(argv))
    folder = Path(arguments.folder)
    columns = tuple(arguments.columns or _COLUMNS)
    files = {
        folder / "run.toml": _run_file({name: getattr(arguments, name) for name in _FLAGS}, arguments.set_ or ()),
        folder / "bounds.csv": "feature,lo,hi\n"
        + "".join(f"{name},{_EXAMPLES.get(name, '0,1')}\n" for name in columns),
    }
    there = [str(path) for path in files if path.exists()]
    if there:
        raise ConfigError(f"{' and '.join(there)}: there already, and nothing is overwritten; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); name another folder") from error
    run, clients = str(folder / "run.toml"), arguments.clients
    print(f"wrote {run} and {folder / 'bounds.csv'}: fill in what is marked there, bounds and columns first, and put")
    print(f"the files of the clients beside them ({folder}/client_1.csv, ..). Then:")
    for words in (
        ["plan", "-n", str(clients + 1), "--config", run],
        ["check", "--config", run, "--client", "1", "--clients", str(clients)],
        ["run", "-n", str(clients + 1), "--config", run],
    ):
        print("  " + join(["fastlloyd", *words]))
    print("The last one runs all parties on this machine; docs/sites.md tells how each runs at its own site.")
    return EXIT_OK


def parser() -> Parser:
    """Return the parser of the flags."""
    made = Parser(
        prog="fastlloyd init",
        description="Write a commented run file and a template of the bounds for tables split by rows.",
    )
    made.add_argument("folder", metavar="DIR", help="where to write run.toml and bounds.csv")
    made.add_argument("--clients", type=int, default=3, metavar="M", help="clients with records (default 3)")
    add_options(made, *_FLAGS)
    made.add_argument("--set", action="append", dest="set_", metavar="PROTOCOL.KEY=VALUE", help="a protocol's setting")
    return made


def _run_file(given: dict[str, object], pairs: Sequence[str]) -> str:
    """Write the run file; it is read once before anybody sees it."""
    plain = RunConfig()
    given = {name: value for name, value in given.items() if value is not None}
    protocol = str(given.get("protocol", plain.protocol))
    if find(protocol).partition != "horizontal":
        raise ConfigError(
            f"--protocol {protocol}: init writes run files for tables that are split by rows; for columns start from "
            'docs/guide.md, "A command for each"'
        )
    tables = read_tables(pairs, protocol)
    values: list[tuple[str, object, str]] = [
        ("protocol", protocol, "what is computed, and how: `fastlloyd choose` names one that fits"),
        ("data", "client_{client}.csv", "each client's own file; {client} becomes its number, from 1 on"),
        (
            "bounds",
            "bounds.csv",
            "FILL IN: lowest and highest possible value of each feature, never read off the records",
        ),
        ("n_total", given.get("n_total", 10_000), "FILL IN: public upper bound on the records of all clients together"),
        ("k", given.get("k", 3), "FILL IN: number of clusters"),
        ("epsilon", given.get("epsilon", plain.epsilon), "privacy budget of the whole run: smaller is more private"),
        ("missing", plain.missing, "records that lack a value: refuse, drop, or midpoint (of the bounds)"),
        ("state_dir", "state", "each party's ledger over all runs, and what --resume needs; private to the party"),
        ("output", "result", "where the results go"),
    ]
    if protocol == "feddp" and tables.get("feddp", {}).get("start") != "sphere-packing":
        about = "FILL IN: records that the server may use and the clients may see"
        values.append(("server_data", "server.csv", about))
    values += [(name, given[name], OPTIONS[name].help) for name in ("masking", "min_clients") if name in given]
    lines = ["# A run of fastlloyd. All parties need this file alike; paths begin at its folder. FILL IN: decide."]
    for name, value, about in values:
        lines += ["", f"# {about}", f"{name} = {toml_value(value)}"]
    lines += [
        "",
        "# Where clients differ much in size, a cap for each; where a person may have several rows, whose a row is",
    ]
    lines += ["# client_caps = [5000, 3000, 2000]", '# unit = "patient_id"']
    lines += ["", "# For sites that prove their names (docs/security.md): fastlloyd keygen, fastlloyd roster"]
    lines += ['# roster = "roster.toml"', '# key = "keys/own.key"', ""]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in table.items()), ""]
    text = "\n".join(lines)
    with_values(plain, tomllib.loads(text))
    return text
