"""What `import fastlloyd` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import fastlloyd


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


def test_help_of_every_command_answers() -> None:
    from fastlloyd.cli import COMMANDS

    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "fastlloyd", command, "--help"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
        assert "usage" in done.stdout
