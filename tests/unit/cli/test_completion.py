"""The scripts by which shells complete commands, flags, protocols and file names."""

from __future__ import annotations

import builtins
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.cli import COMMANDS, completion
from fastlloyd.errors import ConfigError


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    def print_script(shell: str) -> str:
        assert completion.main([shell]) == 0
        return capsys.readouterr().out

    return print_script


def complete(script: str, line: list[str], folder: Path) -> set[str]:
    """Return what bash offers for the last word of a line."""
    words = " ".join(f"'{word}'" for word in line)
    code = f"{script}\nCOMP_WORDS=({words}); COMP_CWORD={len(line) - 1}; COMP_TYPE=9\n"
    code += '_shtab_fastlloyd fastlloyd "${COMP_WORDS[COMP_CWORD]}"; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", code], cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_bash_completes_commands_flags_protocols_and_files(script: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "run.toml").touch()
    bash = script("bash")
    assert complete(bash, ["fastlloyd", ""], tmp_path) >= set(COMMANDS)
    assert complete(bash, ["fastlloyd", "run", "--ring"], tmp_path) == {"--ring-bits"}
    assert complete(bash, ["fastlloyd", "run", "--shap"], tmp_path) == set()
    assert complete(bash, ["fastlloyd", "run", "--protocol", "vertical-"], tmp_path) == {
        "vertical-dp",
        "vertical-plain",
        "vertical-he",
    }
    assert complete(bash, ["fastlloyd", "run", "--config", "ru"], tmp_path) == {"run.toml"}
    assert complete(bash, ["fastlloyd", "completion", "z"], tmp_path) == {"zsh"}


@pytest.mark.process
@pytest.mark.parametrize("shell", completion.SHELLS)
def test_each_script_has_every_command_and_is_read_by_its_shell(script: Callable[[str], str], shell: str) -> None:
    text = script(shell)
    assert all(command in text for command in COMMANDS)
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=text, text=True, timeout=60, check=True)


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name == "shtab":
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"pip install 'fastlloyd\[completion\]'"):
        completion.main(["bash"])
