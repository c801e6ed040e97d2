"""What `import fastlloyd` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import fastlloyd
from fastlloyd.__main__ import main
from fastlloyd.cli import COMMANDS

ROOT = Path(__file__).parents[1]


def test_public_names() -> None:
    assert sorted(fastlloyd.__all__) == ["Budget", "FastLloyd", "__version__"]
    assert fastlloyd.FastLloyd.__name__ == "FastLloyd"


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, fastlloyd, fastlloyd.__main__, fastlloyd.client\n" + (
        "heavy = {'sklearn', 'matplotlib', 'pyarrow', 'scipy', 'dp_accounting', 'mpi4py', 'tenseal', 'mpmath'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_help_of_every_command_answers(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0 and "usage" in capsys.readouterr().out, command
    done = subprocess.run(
        [sys.executable, "-m", "fastlloyd", "run", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and "usage" in done.stdout, done.stderr


def installed(name: str, seen: dict[str, int]) -> None:
    """Add up the bytes of a package's files and of what it needs, without extras."""
    found = distribution(name)
    if found.name in seen:
        return
    files = [Path(str(found.locate_file(file))) for file in found.files or ()]
    seen[found.name] = sum(path.stat().st_size for path in files if path.is_file())
    for line in found.requires or ():
        needed = Requirement(line)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            installed(needed.name, seen)


def test_pip_install_brings_five_packages_and_of_ours_less_than_a_tenth() -> None:
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    names = [Requirement(line).name for line in lines]
    assert names == ["numpy", "cryptography", "mpi4py", "dp-accounting", "tqdm"]
    others: dict[str, int] = {}
    for name in names:
        installed(name, others)
    # So whatever is added without a package of others cannot make the installation a tenth larger.
    ours = sum(
        path.stat().st_size for path in (ROOT / "fastlloyd").rglob("*") if path.suffix != ".pyc" and path.is_file()
    )
    assert 1_000_000 < ours < sum(others.values()) / 10
