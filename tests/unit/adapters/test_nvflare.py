"""What other sites can call at a site, called by whom they may not be; skipped where NVFlare is not installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.net.calls import encode_call
from fastlloyd.run.config import RunConfig

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("nvflare") is None, reason="NVFlare is not installed"),
    pytest.mark.filterwarnings("default"),
]
SITES = ["site-1", "site-2", "site-10"]


@contextmanager
def called_by(caller: str, folder: Path) -> Iterator[Any]:
    """Yield a client's component of site-1, as NVFlare holds it while `caller` calls it."""
    from nvflare.apis.signal import Signal
    from nvflare.apis.workspace import Workspace
    from nvflare.collab.api.app import ClientApp
    from nvflare.collab.api.context import set_call_context
    from nvflare.collab.api.proxy import Proxy

    from fastlloyd.adapters.nvflare import Client

    for kind in ("startup", "local"):
        (folder / kind).mkdir(exist_ok=True)
    party = Client()
    app = ClientApp(party)
    app.name = "site-1"
    server, *clients = [Proxy(app, name, name, None, {}) for name in ["server", *SITES]]
    app.setup(Workspace(str(folder), "site-1"), server, clients, Signal())
    app.new_context(caller, "site-1")
    try:
        yield party
    finally:
        set_call_context(None)


@pytest.mark.parametrize("caller", ["site-2", "stranger", "", "SERVER"])
def test_a_party_is_begun_by_the_server_alone(caller: str, tmp_path: Path) -> None:
    with called_by(caller, tmp_path) as party, pytest.raises(ValueError, match="expected the job's server"):
        party.start(SITES)
    assert not (tmp_path / "local/fastlloyd").exists()


@pytest.mark.parametrize(
    "names", [None, "site-1", [], ["site-1"], [*SITES, "site-1"], ["site-1", "site-2", "../x"], [1, 2, 3], {}, b"\0"]
)
def test_the_sites_are_those_of_the_job(names: object, tmp_path: Path) -> None:
    with called_by("server", tmp_path) as party, pytest.raises(ValueError, match="expected (a list of|the 3) sites"):
        party.start(names)
    assert not (tmp_path / "local/fastlloyd").exists()


@pytest.mark.parametrize("caller", ["server", "site-2", "stranger"])
def test_nothing_is_taken_before_the_party_has_begun(caller: str, tmp_path: Path) -> None:
    with called_by(caller, tmp_path) as party, pytest.raises(ValueError, match="this site takes part in no run"):
        party.take(encode_call(0, [b"x"]))


def test_a_workspace_may_be_named_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastlloyd.adapters import nvflare

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nvflare, "_begin_log", lambda *words: None)
    own = tmp_path / "site" / "local" / "fastlloyd"
    own.mkdir(parents=True)
    (own / "run.toml").write_text('k = 2\nbounds = "-1,1"\nn_total = 9\noutput = "there"\ndata = "own.csv"\n')
    with called_by("server", Path("site")) as party:
        config, _ = party._read(1, lambda config, folder: None)
    assert (config.output, config.data) == (str(own / "there"), str(own / "own.csv"))


@pytest.mark.parametrize("run", ["../run", "/etc/passwd", "a/b", "", "run.toml", "x" * 65, 3, None, ["run"]])
def test_a_job_names_a_run_and_no_file(run: Any, tmp_path: Path) -> None:
    from fastlloyd.adapters.nvflare import Client

    with called_by("server", tmp_path) as party:
        party = Client(run)
        found, approve = party._read(1, lambda config, folder: pytest.fail("it was read"))
    assert isinstance(found, ConfigError)
    assert "the job asks for the run" in str(found)
    assert approve is None


def test_an_unforeseen_error_does_not_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import logging

    from fastlloyd.errors import InternalError

    def breaks(config: RunConfig, folder: Path) -> None:
        raise KeyError("row 17 of the records")

    (tmp_path / "local/fastlloyd").mkdir(parents=True)
    (tmp_path / "local/fastlloyd/run.toml").write_text("k = 3\n")
    root = logging.getLogger("fastlloyd")
    monkeypatch.setattr(root, "propagate", True)
    handlers, level = root.handlers[:], root.level
    try:
        with called_by("server", tmp_path) as party:
            found, _ = party._read(1, breaks)
    finally:
        for handler in set(root.handlers) - set(handlers):
            root.removeHandler(handler)
            handler.close()
        root.setLevel(level)
    assert isinstance(found, InternalError)
    assert "row 17" not in str(found)
    log = tmp_path / "local/fastlloyd/run.log"
    assert "row 17" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_sites_are_counted_by_the_numbers_in_their_names() -> None:
    from fastlloyd.adapters.nvflare import _in_order

    assert _in_order(None, ["site-10", "site-2", "site-1"]) == SITES
