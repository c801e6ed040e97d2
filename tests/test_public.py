"""What `import fastlloyd` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fastlloyd
from fastlloyd.__main__ import main
from fastlloyd.cli import COMMANDS


def test_public_names() -> None:
    assert sorted(fastlloyd.__all__) == ["FastLloyd", "__version__"]
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
