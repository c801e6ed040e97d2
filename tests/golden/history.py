"""The file of hashes, or figures, by protocol, version of its results, and case. What stands there for a version stays.

`python -m tests.golden.history` adds what is missing for the versions that the rows of the registry state, and refuses
to change a hash: results that differ need another version.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from fastlloyd.protocols.registry import find
from tests.golden.runs import CASES, Found, run_case, same, write_records

PATH = Path(__file__).with_name("results.json")
COMMAND = "python -m tests.golden.history"
WHERE = "fastlloyd/protocols/registry.py"
Hashes = dict[str, dict[str, dict[str, Found]]]


def read(text: str) -> Hashes:
    """Read the file's text."""
    hashes: Hashes = json.loads(text)
    return hashes


def current(name: str) -> dict[str, Found]:
    """Return the hash of each case of a protocol, as this build runs it."""
    with tempfile.TemporaryDirectory() as folder:
        write_records(Path(folder))
        return {case: run_case(name, case, Path(folder)) for case in CASES[name]}


def problem(name: str, number: int, known: Mapping[str, Mapping[str, Found]], found: Mapping[str, Found]) -> str:
    """Say what does not fit; nothing if all does.

    Parameters
    ----------
    name : str
    number : int
        The version that the protocol's row states.
    known : mapping
        From version and case to hash, as the file has them.
    found : mapping
        From case to hash, as this build runs it.
    """
    newest = max(map(int, known), default=0)
    if number < newest:
        return f"{WHERE} states version {number} of the results of {name}, but {PATH.name} has {newest}: state {newest}"
    before = known.get(str(number), {})
    if changed := [case for case, digest in found.items() if not same(before.get(case, digest), digest)]:
        return (
            f"the results of {name} changed ({', '.join(changed)}): raise its number (`results` of its row, now "
            f"{number}) in {WHERE} and write the hashes anew with `{COMMAND}`"
        )
    if missing := [case for case in found if case not in before]:
        return (
            f"{PATH.name} has no hash of version {number} of {name} ({', '.join(missing)}): write it with `{COMMAND}`"
        )
    return ""


def rewritten(before: Hashes, after: Hashes) -> Iterator[str]:
    """Name each hash of `before` that `after` has not, or another one in its place."""
    for name, versions in before.items():
        for number, cases in versions.items():
            for case, digest in cases.items():
                if after.get(name, {}).get(number, {}).get(case) != digest:
                    yield f"version {number} of {name}, {case}"


def committed() -> list[Hashes]:
    """Return the file as each commit left it, oldest first; nothing where there is no history."""
    place = ["git", "-C", str(PATH.parent)]
    log = subprocess.run(
        [*place, "log", "--reverse", "--format=%H", "--", PATH.name], capture_output=True, text=True, check=False
    )
    texts = [
        subprocess.run([*place, "show", f"{commit}:./{PATH.name}"], capture_output=True, text=True, check=False).stdout
        for commit in log.stdout.split()
    ]
    return [read(text) for text in texts if text]


def main() -> int:
    """Add what is missing; refuse to change anything."""
    hashes = read(PATH.read_text()) if PATH.exists() else {}
    for name in CASES:
        number, found = find(name).results, current(name)
        known = hashes.setdefault(name, {})
        problems = problem(name, number, {**known, str(number): {**found, **known.get(str(number), {})}}, found)
        if problems:
            print(problems, file=sys.stderr)
            return 1
        known[str(number)] = {**found, **known.get(str(number), {})}
    PATH.write_text(json.dumps(hashes, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
