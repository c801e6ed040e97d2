"""`fastlloyd serve --parent`: flags of the server itself are refused before anything is opened."""

from __future__ import annotations

import pytest

from fastlloyd.cli import serve
from fastlloyd.errors import ConfigError
from fastlloyd.net.tcp.address import parse_address
from fastlloyd.report.lines import Journal
from fastlloyd.run.config import RunConfig
from fastlloyd.run.own_rank import OwnRank
from fastlloyd.wire.header import SERVER

REFUSED = {
    "--require-approvals approvals": "--require-approvals: it is for the server itself, an aggregator (--parent) "
    "decides nothing; leave it out",
    "--offer trial": "--offer: it is for the server itself, an aggregator (--parent) passes on its parent's; "
    "leave it out",
    "--status 127.0.0.1:4401": "--status: it is for the server itself, an aggregator (--parent) knows nothing of the "
    "run; leave it out",
    "--status-remote": "--status-remote: it is for the server itself, an aggregator (--parent) knows nothing of the "
    "run; leave it out",
    "--proxy-protocol 10.0.0.7": "--proxy-protocol: an aggregator (--parent) takes connections from its clients "
    "alone; leave it out",
}


def refusal(*flags: str) -> str:
    """Start an aggregator that has neither roster nor key, and return why it does not begin."""
    arguments = serve.parser().parse_args(["--listen", "127.0.0.1:0", "--parent", "localhost:1", *flags])
    address = parse_address(arguments.listen, "--listen", listening=True)
    with pytest.raises(ConfigError) as caught:
        serve.pass_on(RunConfig(), arguments, address, OwnRank(me=SERVER), journal=Journal.TEXT)
    return str(caught.value)


@pytest.mark.parametrize(("flags", "sentence"), REFUSED.items(), ids=[flags.split()[0] for flags in REFUSED])
def test_flags_of_the_server_itself_are_refused(flags: str, sentence: str) -> None:
    assert refusal(*flags.split()) == sentence


def test_without_these_flags_what_is_missing_is_a_roster_and_a_key() -> None:
    assert refusal().startswith("--parent: an aggregator needs --roster and --key, the server's: ")
