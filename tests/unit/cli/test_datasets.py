"""`fastlloyd datasets`: one line per set."""

from __future__ import annotations

import gzip

import pytest

from fastlloyd.cli.datasets import main
from fastlloyd.errors import ConfigError


def test_the_embedded_sets_and_how_to_get_more(capsys, monkeypatch):
    monkeypatch.delenv("FASTLLOYD_DATA", raising=False)
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "photo" in out
    assert "273,280" in out
    assert "CC BY 2.0" in out
    assert "set --data-dir or $FASTLLOYD_DATA" in out


def test_a_folder_by_flag_or_environment(tmp_path, capsys, monkeypatch):
    (tmp_path / "toy.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n3,4"))
    main(["--data-dir", str(tmp_path)])
    by_flag = capsys.readouterr().out
    line = next(line for line in by_flag.splitlines() if line.startswith("toy"))
    assert line.split()[:5] == ["toy", "2", "2", "-", "no"]
    monkeypatch.setenv("FASTLLOYD_DATA", str(tmp_path))
    main([])
    assert capsys.readouterr().out == by_flag
    with pytest.raises(ConfigError, match="no folder"):
        main(["--data-dir", str(tmp_path / "gone")])
