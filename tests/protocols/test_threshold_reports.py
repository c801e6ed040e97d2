"""What a whole run with threshold masks writes about its rounds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.report.document import load
from fastlloyd.report.page.result import result_page
from fastlloyd.run.config import RunConfig
from fastlloyd.run.session import find_protocol
from tests.protocols.whole import done_flags

RUN = ("--dataset", "iris", "--k", 3, "--masking", "threshold", "--rounds", 2, "--output", "out")


@pytest.mark.parametrize("protocol", ["fastlloyd", "fastlloyd-plus"])
def test_a_report_says_who_was_in_a_round_who_was_silent_and_how_much_noise_there_was(
    tmp_path: Path, protocol: str
) -> None:
    done_flags(tmp_path, (*RUN, "--protocol", protocol), n=5)
    report = load(tmp_path / "out" / "report.json")
    server = json.loads((tmp_path / "out" / "server.json").read_text("utf-8"))
    for document in (report, server):
        assert document["parties"]["masking"] == "threshold"
        for entry in document["rounds"]:
            assert entry["clients_included"] == [1, 2, 3, 4] and entry["clients_silent"] == []
            assert entry["noise"] == (4 / 3) ** 0.5
    assert "without a roster not against a server that breaks the rules" in report["claim"]
    assert report["parameters"]["noise_price"] > (4 / 3) ** 0.5


def test_other_masks_write_what_they_wrote(tmp_path: Path) -> None:
    done_flags(tmp_path, (*RUN, "--masking", "pairwise", "--protocol", "fastlloyd"), n=3)
    report = load(tmp_path / "out" / "report.json")
    assert all(not {"clients_silent", "noise"} & entry.keys() for entry in report["rounds"])


def test_the_payload_of_a_plan_is_what_a_run_sends(tmp_path: Path) -> None:
    flags = ["--dataset", "iris", "--k", 3, "--masking", "threshold", "--rounds", 2, "--protocol", "fastlloyd"]
    done_flags(tmp_path, [*flags, "--output", "out"], n=5)
    sent = load(tmp_path / "out" / "report.json")["traffic"]["payload_bytes_per_round"]
    config = RunConfig(protocol="fastlloyd", dataset="iris", k=3, masking="threshold", rounds=2)
    (line,) = (one for one in find_protocol("fastlloyd").plan_lines(config, 4, None) if one.name == "payload")
    assert line.text.startswith(f"{sent:,.0f} bytes a round")


def test_a_page_names_the_clients_that_left_more_of_their_noise_in_a_round(tmp_path: Path) -> None:
    done_flags(tmp_path, (*RUN, "--protocol", "fastlloyd"), n=5)
    report = load(tmp_path / "out" / "report.json")
    names = ("bounds.csv", "centroids.csv")
    files = {name: (tmp_path / "out" / name).read_bytes() for name in names}
    centroids = np.loadtxt(tmp_path / "out" / "centroids.csv", delimiter=",", skiprows=1, ndmin=2)
    assert "All clients were included in every round" in result_page(report, centroids, files)
    report["rounds"][1] |= {"clients_included": [1, 2, 4], "clients_silent": [2]}
    page = result_page(report, centroids, files)
    assert "client 3: round 2; client 2: the end of round 2, whose sum has more of its noise" in page
