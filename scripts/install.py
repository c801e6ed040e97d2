"""install.py EXTRA,.. [FOLDER ..] [--oldest]: install this folder with these extras into the environment that runs it.

FOLDER is another project in this one.

On a Python newer than those of the classifiers in `pyproject.toml`, extras that have no wheel there are named and left
out. With `--oldest` each requirement of `pyproject.toml` is installed at its lower bound.
"""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Where there is no wheel, a build from source would need compilers and libraries, and minutes until it fails.
WHEELS = ("--only-binary", ":all:")


class NotInstalledError(Exception):
    """What pip wrote when it failed."""


def newest_tried(project: dict[str, Any]) -> tuple[int, int]:
    """Return the newest Python that the classifiers name."""
    named = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["classifiers"]))
    return 3, max(int(minor) for minor in named)


def split(project: dict[str, Any], extras: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each extra, and those that it consists of, with the requirements that each adds."""
    for extra in extras:
        listed = project["optional-dependencies"][extra]
        others = [match[1].split(",") for entry in listed if (match := re.fullmatch(r"fastlloyd\[(.+)\]", entry))]
        own = [entry for entry in listed if not entry.startswith("fastlloyd[")]
        if own:
            yield extra, own
        for names in others:
            yield from split(project, names)


def lower_bounds(content: dict[str, Any]) -> list[str]:
    """Return constraints that hold each requirement at its lower bound.

    Raises
    ------
    ValueError
        A requirement is not of the form NAME>=VERSION.
    """
    project = content["project"]
    listed = project["dependencies"] + content["build-system"]["requires"]
    for _, own in split(project, list(project.get("optional-dependencies", {}))):
        listed += own
    found = set()
    for entry in (entry for entry in listed if not entry.startswith("fastlloyd[")):
        match = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?>=([\d.]+)", entry)
        if match is None:
            raise ValueError(f"pyproject.toml: expected NAME>=VERSION, got {entry!r}")
        found.add(f"{match[1]}=={match[2]}")
    return sorted(found)


def needed_for(extra: str) -> str:
    """Return what an extra is needed for, as the table of docs/operations.md says."""
    rows = re.findall(r"^\| (`.+?) \| .+ \| (.+) \|$", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)
    return next((text for names, text in rows if f"`{extra}`" in names), "development")


def pip(*arguments: str, quiet: bool = False) -> None:
    """Run `pip install`; where it fails with `quiet`, what it wrote is in the error only."""
    command = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)
    done = subprocess.run(command, stderr=subprocess.PIPE if quiet else None, text=True, check=False)
    if done.returncode:
        raise NotInstalledError(done.stderr or "")


def editable(*places: str) -> list[str]:
    """Return pip's flags for folders that stay where they are."""
    return [part for place in places for part in ("-e", place)]


def install_what_there_is(project: dict[str, Any], extras: list[str], folders: list[str]) -> None:
    """Install all, or else this folder alone, then one extra after the other, and other folders with what there is."""
    running = "Python {}.{}".format(*sys.version_info[:2])
    newest = "{}.{}".format(*newest_tried(project))
    print(f"{running} is newer than {newest}, the newest that fastlloyd was tried with; trying it", flush=True)
    try:
        pip(*WHEELS, *editable(f".[{','.join(extras)}]", *folders), quiet=True)
    except NotInstalledError:
        pip("--prefer-binary", "-e", ".")
        for extra, own in split(project, extras):
            try:
                pip(*WHEELS, *own, quiet=True)
            except NotInstalledError:
                packages = ", ".join(re.split(r"[\[>]", entry)[0] for entry in own)
                print(
                    f"left out: {extra} ({packages}), no wheel for {running} was found; needed for {needed_for(extra)}"
                )
        if folders:
            pip("--no-deps", *editable(*folders))


def main(extras: str, *more: str) -> int:
    """Install; 0 if this folder itself is installed."""
    os.chdir(ROOT)
    folders = [f"./{name}" for name in more if name != "--oldest"]
    contents = [tomllib.loads(Path(folder, "pyproject.toml").read_text()) for folder in (".", *folders)]
    project = contents[0]["project"]
    print(f"installing fastlloyd[{extras}] into {sys.prefix}", flush=True)
    try:
        if "--oldest" in more:
            bounds = Path(sys.prefix) / "lower-bounds.txt"
            bounds.write_text("\n".join(line for content in contents for line in lower_bounds(content)) + "\n")
            # For what builds the package, too; pip has two names for that, by its version.
            os.environ |= {"PIP_CONSTRAINT": str(bounds), "PIP_BUILD_CONSTRAINT": str(bounds)}
            pip(*WHEELS, *editable(f".[{extras}]", *folders))
        elif sys.version_info[:2] > newest_tried(project):
            install_what_there_is(project, extras.split(","), folders)
        else:
            pip(*editable(f".[{extras}]", *folders))
    except NotInstalledError:
        newest = "{}.{}".format(*newest_tried(project))
        print(
            f"the installation failed: is a package index reachable? Tried are Python 3.11 to {newest}", file=sys.stderr
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
