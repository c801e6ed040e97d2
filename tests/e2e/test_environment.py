"""`make` on a Python that nobody has tried, with real environments and pip; what is installed is small and local."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from packaging.requirements import Requirement

from scripts.install import lower_bounds, needed_for, newest_tried, split

ROOT = Path(__file__).resolve().parents[2]
CONTENT = tomllib.loads((ROOT / "pyproject.toml").read_text())

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

# A package without dependencies whose command only says that it runs: what is tried is the way to it.
BACKEND = """
import zipfile

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    name = "fastlloyd-0.1-py3-none-any.whl"
    with zipfile.ZipFile(f"{wheel_directory}/{name}", "w") as archive:
        for file, text in FILES.items():
            archive.writestr(file, text)
    return name

FILES = {
    "fastlloyd_demo.py": "def main():\\n    print('the demo runs')\\n",
    "fastlloyd-0.1.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    "fastlloyd-0.1.dist-info/METADATA": "Metadata-Version: 2.1\\nName: fastlloyd\\nVersion: 0.1\\n" + "".join(
        f"Provides-Extra: {extra}\\nRequires-Dist: {name}; extra == '{extra}'\\n"
        for extra, name in {"mpich": "mpich", "he": "tenseal", "report": "jinja2", "fast": "numba"}.items()
    ),
    "fastlloyd-0.1.dist-info/entry_points.txt": "[console_scripts]\\nfastlloyd = fastlloyd_demo:main\\n",
    "fastlloyd-0.1.dist-info/RECORD": "",
}
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "fastlloyd"
classifiers = [
    "Programming Language :: Python :: 3.{newest}",
]
dependencies = []
[project.optional-dependencies]
mpich = ["mpich>=1"]
he = ["tenseal>=1"]
report = ["jinja2>=1"]
fast = ["numba>=1"]
"""


def wheel(folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "")
        about = f"{name}-1.0.dist-info"
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{about}/RECORD", "")


def make_demo(place: Path, newest: int, there: tuple[str, ...], pip: Path | None = None) -> CompletedProcess[str]:
    """Run `make demo` where the newest Python that was tried is 3.`newest`, with wheels for some packages only.

    With `pip`, the folder of that package, the environment is there already, which saves most of the time.
    """
    (place / "scripts").mkdir(parents=True)
    (place / "docs").mkdir()
    for name in ("Makefile", "scripts/install.py", "docs/operations.md"):
        shutil.copy(ROOT / name, place / name)
    (place / "backend.py").write_text(BACKEND)
    (place / "pyproject.toml").write_text(PROJECT.replace("{newest}", str(newest)))
    for name in there:
        wheel(place / "wheels", name)
    names = place / "bin"
    names.mkdir()
    (names / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python{}.{}".format(*sys.version_info[:2]))
    for tool in ("bash", "sh", "make", "sed", "sort", "tail", "seq", "rm", "touch", "getconf", "expr"):
        found = shutil.which(tool)
        assert found is not None
        (names / tool).symlink_to(found)
    if pip is not None:
        subprocess.run((names / "python3", "-m", "venv", "--without-pip", place / ".venv"), check=True)
        (packages(place) / "pip").symlink_to(pip)
    local = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": str(place / "wheels")}
    variables = {"PATH": str(names)} | local
    return subprocess.run(
        ("make", "demo"), cwd=place, env=variables, text=True, capture_output=True, check=False, timeout=500
    )


def packages(place: Path) -> Path:
    """Return the folder of the packages of an environment."""
    return next((place / ".venv").glob("lib/python*/site-packages"))


EXTRAS = ("mpich", "tenseal", "jinja2", "numba")
HERE = sys.version_info[1]
NEW = f"Python 3.{HERE} is newer than 3.{HERE - 1}, the newest that fastlloyd was tried with; trying it"


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CompletedProcess[str]]:
    """Run it from a fresh clone, with a Python that was tried and all wheels."""
    place = tmp_path_factory.mktemp("tried")
    return place, make_demo(place, HERE, EXTRAS)


@pytest.fixture
def pip(tried: tuple[Path, CompletedProcess[str]]) -> Path:
    return packages(tried[0]) / "pip"


def test_a_tried_python_is_taken_without_a_word(tried: tuple[Path, CompletedProcess[str]]) -> None:
    place, done = tried
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"making .venv with Python {platform.python_version()}",
        f"installing fastlloyd[mpich,he,report,fast] into {place / '.venv'}",
        "the demo runs",
    ]


def test_a_newer_python_is_tried_and_only_what_has_no_wheel_is_left_out(tmp_path: Path, pip: Path) -> None:
    done = make_demo(tmp_path, HERE - 1, ("mpich", "jinja2", "numba"), pip)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == [
        NEW,
        f"left out: he (tenseal), no wheel for Python 3.{HERE} was found; needed for `vertical-he`",
        "the demo runs",
    ]
    assert {"mpich.py", "jinja2.py", "numba.py"} <= {path.name for path in packages(tmp_path).iterdir()}


def test_a_newer_python_with_all_wheels_has_all_extras(tmp_path: Path, pip: Path) -> None:
    done = make_demo(tmp_path, HERE - 1, EXTRAS, pip)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == [NEW, "the demo runs"]


def test_a_tried_python_without_a_package_ends_with_an_error(tmp_path: Path, pip: Path) -> None:
    done = make_demo(tmp_path, HERE, ("mpich", "jinja2", "numba"), pip)
    assert done.returncode == 2
    assert "No matching distribution found for tenseal" in done.stderr
    assert "the installation failed: is a package index reachable?" in done.stderr
    assert "the demo runs" not in done.stdout


@pytest.mark.parametrize("file", ["pyproject.toml", "papers/pyproject.toml"])
def test_lower_bounds_are_those_of_every_requirement(file: str) -> None:
    content = tomllib.loads((ROOT / file).read_text())
    pinned = {Requirement(line).name: line for line in lower_bounds(content)}
    listed = [*content["project"]["dependencies"], *content["build-system"]["requires"]]
    for own in content["project"].get("optional-dependencies", {}).values():
        listed += own
    named = {Requirement(entry).name: Requirement(entry) for entry in listed}
    assert set(pinned) == set(named) - {"fastlloyd"}
    for name, line in pinned.items():
        version = line.removeprefix(f"{name}==")
        assert str(named[name].specifier) == f">={version}"
    with pytest.raises(ValueError, match="expected NAME>=VERSION, got 'numpy'"):
        lower_bounds(
            {"build-system": {"requires": ["numpy"]}, "project": {"dependencies": [], "optional-dependencies": {}}}
        )


def test_extras_are_split_into_those_that_they_consist_of() -> None:
    project = CONTENT["project"]
    dev = dict(split(project, ["mpich", "he", "dev"]))
    assert list(dev)[:4] == ["mpich", "he", "dev", "test"]
    assert dev["dev"] == ["ruff>=0.6", "mypy>=1.11"]
    assert {"ml", "fast", "plots", "report", "parquet", "sql", "completion"} <= set(dev)
    assert needed_for("mpich") == "runs with several processes"
    assert needed_for("test") == "development"
    assert needed_for("ml") == "the estimator, `--evaluate`"


def test_all_places_name_the_pythons_of_the_classifiers() -> None:
    minor = newest_tried(CONTENT["project"])[1]
    tried = [f"3.{number}" for number in range(11, minor + 1)]
    every = "".join(f'    "Programming Language :: Python :: {name}",\n' for name in tried)
    assert every in (ROOT / "pyproject.toml").read_text()
    span = f"Python 3.11 to 3.{minor}"
    documents = ("README.md", "CONTRIBUTING.md", "docs/operations.md", "docs/releasing.md")
    for name in (*documents, "fastlloyd/protocols/vertical_he/he/seal.py"):
        assert span in (ROOT / name).read_text(), name
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert f"python: {json.dumps(tried)}" in workflow
    assert "".join(f"            {name}\n" for name in tried) in workflow
