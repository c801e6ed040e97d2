"""Bytes on the network: added up from the parties' counts, or read from interfaces; a signed report stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastlloyd.client import _transport
from fastlloyd.lifecycle.closing import Account, Sent
from fastlloyd.net.sockets import WireBytes
from fastlloyd.report import document
from fastlloyd.report.document import WIRE_PARTS
from fastlloyd.run.closing import _add_wire, traffic_entry
from fastlloyd.supervise.shaped import note_wire_bytes
from fastlloyd.wire.header import SERVER
from tests.unit.report.figures import common, releases, report

ONE = WireBytes(stream_bytes=500, outer_tls_bytes=0, tcp_ip_bytes=60, launcher_bytes=7)
ALL = WireBytes(stream_bytes=1200, outer_tls_bytes=40, tcp_ip_bytes=90, whole=True)


def test_parties_counts_are_added_up() -> None:
    assert _add_wire([ONE, ONE], 900) == dict(zip(WIRE_PARTS, (100, 0, 120, 14), strict=True))


def test_a_server_that_everything_passes_counts_for_all() -> None:
    wire = dict(zip(WIRE_PARTS, (260, 40, 90, 0), strict=True))
    assert _add_wire([ALL, None, None], 900) == wire
    assert _add_wire([ALL, ONE, None], 900) == wire


@pytest.mark.parametrize("counts", [[None, None], [ONE, None], [ONE, ONE]])
def test_nothing_is_reported_where_a_part_is_missing_or_went_another_way(counts: list[WireBytes | None]) -> None:
    assert _add_wire(counts, 1001) is None


@pytest.mark.parametrize("counted", [True, False])
def test_what_interfaces_counted_takes_the_place_of_sockets(tmp_path: Path, counted: bool) -> None:
    wire = WireBytes(stream_bytes=4070, outer_tls_bytes=0, tcp_ip_bytes=300, launcher_bytes=5) if counted else None
    traffic = traffic_entry(
        {SERVER: Account(sent=Sent(payload_bytes=192, link_bytes=4000, messages=0, setup_bytes=0), wire=wire)},
        common()["rounds"],
    )
    made = document.build_server_report(common(traffic=traffic), releases=[each.to_dict() for each in releases()])
    (tmp_path / "server.json").write_text(document.encode(made))
    note_wire_bytes(tmp_path, 9000)
    noted = document.load(tmp_path / "server.json", "server")["traffic"]
    assert noted["wire_bytes"] == 9000 and noted["wire"]["counted"] == "interfaces"
    # What is left belongs to the launcher: 9000 - 4000 - 70 - 300.
    assert noted["wire"]["launcher_bytes"] == (4630 if counted else None)


@pytest.mark.parametrize("signature", [None, "ab" * 64])
def test_a_report_that_its_writer_has_signed_stays_as_it_is(tmp_path: Path, signature: str | None) -> None:
    writer = {"rank": 1, "signature": signature}
    signatures = {"roster": "0a" * 32, "agreed": "0b" * 32, "files": {}, "parties": [], "writer": writer}
    (tmp_path / "report.json").write_text(document.encode({**report(), "signatures": signatures}))
    before = (tmp_path / "report.json").read_bytes()
    note_wire_bytes(tmp_path, 9000)
    assert ((tmp_path / "report.json").read_bytes() == before) == (signature is not None)


@pytest.mark.parametrize(
    ("words", "transport"),
    [
        ([], "tcp"),
        (["--transport", "shm", "--k", "many"], "shm"),
        (["--transport=shm", "--unknown"], "shm"),
        (["--transport", "shm", "--transport", "tcp"], "tcp"),
        (["--transport", "udp"], "tcp"),
        (["--transport"], "tcp"),
    ],
)
def test_ranks_meet_although_the_flags_of_one_are_wrong(words: list[str], transport: str) -> None:
    assert _transport(words) == transport
