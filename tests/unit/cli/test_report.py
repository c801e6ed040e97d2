import json
import os

import numpy as np
import pytest

from fastlloyd.cli.report import main
from fastlloyd.dossier.verify import verify
from fastlloyd.errors import ConfigError
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.release import Release
from fastlloyd.report.claim import Claim
from fastlloyd.report.document import build_report, build_server_report, encode
from fastlloyd.report.files import centroids_csv
from fastlloyd.report.quality import Quality
from fastlloyd.run.files import privacy_entry
from tests.unit.report.figures import common

RUN = "00ff"
ROUND = {"seconds": 1.0, "clients_included": [1], "sent_bytes": 95, "received_bytes": 96}
DELTA = 1e-6


def made_releases(mechanism="gaussian"):
    norm = {"gaussian": "l2", "laplace": "l1", "none": "l2"}[mechanism]
    scale = 0.0 if mechanism == "none" else 2000.0
    return [
        Release(run=RUN, round=t, name=name, mechanism=mechanism, sensitivity=256.0, norm=norm, noise_scale=scale)
        for t in range(2)
        for name in ("sums", "counts")
    ]


@pytest.fixture
def write_run(tmp_path):
    def write(mechanism="gaussian", delta=DELTA, **changes):
        releases = made_releases(mechanism)
        epsilon = spent(releases, delta)
        shared = common(run=RUN, parameters={"k": 2, "rounds": 2, "n_total": 100})
        claim = Claim(epsilon=epsilon * 1.001, delta=delta, against="all")
        document = build_report(
            shared,
            claim=claim,
            privacy=privacy_entry(claim, releases),
            result={"features": ["a", "b"], "noisy_sizes": [1.0, 2.0], "movement": None},
            quality=Quality(verdict="poor", sentence="poor: much noise", warnings=("noise is large",)).to_dict(),
            signatures=None,
        )
        for path, value in changes.items():
            *parents, last = path.split("__")
            place = document
            for key in parents:
                place = place[int(key) if key.isdigit() else key]
            place[last] = value
        (tmp_path / "report.json").write_text(json.dumps(document))
        (tmp_path / "centroids.csv").write_text(centroids_csv(["a", "b"], np.array([[1.0, 2.0], [3.0, 4.5]])))
        (tmp_path / "ledger.jsonl").write_text("".join(release.to_json() + "\n" for release in releases))
        (tmp_path / "server.json").write_text(
            encode(build_server_report(shared, releases=[release.to_dict() for release in releases]))
        )
        return tmp_path

    return write


def test_shows_a_finished_run_again(write_run, capsys):
    assert main([str(write_run())]) == 0
    text = capsys.readouterr().out
    assert "4.5" in text and "epsilon" in text


def test_a_finished_run_says_how_good_it_is_and_one_of_the_schema_before_does_not(write_run, capsys):
    folder = write_run()
    assert main([str(folder)]) == 0
    text = capsys.readouterr().out
    assert "verdict   poor: much noise" in text and "WARNING: noise is large" in text
    path = folder / "report.json"
    document = json.loads(path.read_text())
    del document["quality"]
    path.write_text(json.dumps({**document, "schema": 2}))
    assert main([str(folder)]) == 0 and main(["--verify", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "verified: ledger.jsonl holds the 4 releases" in text
    assert "verdict   " not in text


def test_names_of_a_report_are_shown_without_their_escapes(write_run, capsys):
    name = "a\x1b[2J\nclaim"
    folder = write_run(result__features=[name, "=b"])
    (folder / "centroids.csv").write_text(centroids_csv([name, "=b"], np.array([[1.0, 2.0], [3.0, 4.5]])))
    assert main([str(folder)]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text and "\nclaim\n" not in text and "4.5" in text


def test_writes_the_page_beside_the_report_or_where_it_is_told(write_run, tmp_path, capsys):
    folder = write_run()
    # Nothing but released files is read: a party's own paths and labels stand in others.
    for name in ("config.toml", "labels_1.csv", "sizes.csv"):
        (folder / name).mkdir()
    assert main([str(folder), "--html"]) == 0
    assert main([str(folder), "--html", str(tmp_path / "to show.html")]) == 0
    assert capsys.readouterr().out.splitlines() == [f"wrote {folder}/report.html", f"wrote {tmp_path}/to show.html"]
    text = (folder / "report.html").read_text()
    assert (tmp_path / "to show.html").read_text() == text and "4.5" in text
    assert (folder / "report.html").stat().st_mode & 0o777 == 0o600


def test_a_page_that_cannot_be_made(write_run, tmp_path):
    folder = write_run()
    for arguments, words in (
        (["--html", "--verify"], "--html: expected without --verify"),
        (["--html", str(tmp_path)], "expected a file, got a folder"),
        (["--html", str(tmp_path / "no" / "page.html")], "--html: .* cannot be written"),
    ):
        with pytest.raises(ConfigError, match=words):
            main([str(folder), *arguments])
    (folder / "report.json").unlink()
    for argument in ("--html", "--verify"):
        with pytest.raises(ConfigError, match="has no result, only what the server saw; the clients have it$"):
            main([str(folder), argument])


def test_a_pipe_in_place_of_a_picture_is_not_waited_for(write_run):
    folder = write_run(output=["palette.png", "report.json"])
    os.mkfifo(folder / "palette.png")
    with pytest.raises(ConfigError, match="ordinary file"):
        main([str(folder), "--html"])


def test_shows_what_the_server_has(write_run, capsys):
    folder = write_run()
    (folder / "report.json").unlink()
    assert main([str(folder)]) == 0
    assert "the server sees no centroid" in capsys.readouterr().out


def test_run_that_reveals_no_centroids(write_run, capsys):
    folder = write_run()
    (folder / "centroids.csv").unlink()
    assert main([str(folder)]) == 0
    assert "cluster" not in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", "a,b\n1,x\n", "a,b\n1\n", "b,a\n1,2\n", "a\n1\n"])
def test_damaged_centroids(write_run, content):
    folder = write_run()
    (folder / "centroids.csv").write_text(content)
    with pytest.raises(ConfigError, match=r"centroids\.csv"):
        main([str(folder)])


@pytest.mark.parametrize("value", ["1" + "0" * 400, "1e400", "NaN", '1, "epsilon": 2'])
def test_numbers_that_are_none_of_json_or_of_this_program(write_run, value):
    folder = write_run(privacy__epsilon=987654.5)
    path = folder / "report.json"
    path.write_text(path.read_text().replace("987654.5", value))
    for flags in ([], ["--html"], ["--verify"]):
        with pytest.raises(ConfigError, match=r"report\.json: expected .*; give the folder as"):
            main([str(folder), *flags])


def test_other_sizes_than_there_are_clusters(write_run):
    with pytest.raises(ConfigError, match="a row for each size"):
        main([str(write_run(result__noisy_sizes=[]))])


def test_folder_without_a_run(tmp_path):
    with pytest.raises(ConfigError, match="finished run"):
        main([str(tmp_path)])


@pytest.mark.parametrize(("mechanism", "delta"), [("gaussian", DELTA), ("laplace", 0.0), ("none", DELTA)])
def test_untouched_run_verifies(write_run, capsys, mechanism, delta):
    assert main(["--verify", str(write_run(mechanism, delta))]) == 0
    assert capsys.readouterr().out.startswith("verified: ledger.jsonl holds the 4 releases of report.json")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"privacy__spent_epsilon": 0.5}, "was spent, but the releases"),
        ({"privacy__spent_epsilon": None}, "was spent, but the releases"),
        ({"privacy__epsilon": 0.01}, "more than the 0.01 asked for"),
        ({"privacy__delta": 1e-9}, "was spent, but the releases"),
        ({"privacy__releases__1__noise_scale": 1999.0}, "noise_scale = 1999"),
        ({"privacy__releases__1__name": "other"}, "but not in"),
        ({"privacy__releases": []}, "not in report.json"),
        ({"run": "00aa"}, "not in ledger.jsonl"),
        ({"rounds": [{**ROUND, "round": 7}]}, "round 7 took place"),
        ({"schema": 9}, "a report of schema 9, written by a newer build"),
    ],
)
def test_changed_report_is_found_out(write_run, changes, words):
    with pytest.raises(ConfigError, match=words):
        verify(write_run(**changes))


def test_noise_free_run_that_claims_privacy_is_found_out(write_run):
    folder = write_run("none", not_private=False, not_private_reason=None)
    with pytest.raises(ConfigError, match="carry no noise"):
        verify(folder)


def test_changed_ledger_is_found_out(write_run):
    folder = write_run()
    ledger = folder / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    cases = {
        "is in report.json but not in ledger.jsonl": lines[:-1],
        "occurs twice": [*lines, lines[0]],
        "line 1": ["{}\n", *lines],
    }
    for words, content in cases.items():
        ledger.write_text("".join(content))
        with pytest.raises(ConfigError, match=words):
            verify(folder)
    ledger.unlink()
    with pytest.raises(ConfigError, match="cannot read the ledger"):
        verify(folder)


def test_other_runs_in_the_ledger_do_not_matter(write_run):
    folder = write_run()
    other = Release(run="aa", round=0, name="sums", mechanism="gaussian", sensitivity=1.0, norm="l2", noise_scale=5.0)
    with (folder / "ledger.jsonl").open("a") as file:
        file.write(other.to_json() + "\n")
    assert verify(folder).startswith("verified: ledger.jsonl holds the 4 releases of report.json")


def test_names_stand_in_table_and_page_and_no_file_of_the_run_changes(write_run, capsys):
    folder = write_run()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    names = folder.parent / "names.toml"
    names.write_text('1 = "frail"\n')
    assert main([str(folder), "--names", str(names)]) == 0
    assert "clusters  1 frail" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert main([str(folder), "--names", str(names), "--html", str(folder.parent / "page.html")]) == 0
    text = (folder.parent / "page.html").read_text()
    assert ">frail (1)<" in text and ">frail (cluster 1)<" in text and ">Cluster 0<" in text
    assert main([str(folder), "--names", str(names), "--html"]) == 0
    assert (folder / "report.html").read_text() == text and main([str(folder), "--verify"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--names", "{names}", "--verify"), "--names: expected without --verify"),
        (("--profile", "p.csv"), "--profile: expected with --names"),
        (("--names", "{names}", "--profile", "{folder}/profile.csv"), "expected a file outside of"),
        (("--names", "{names}", "--profile", "{folder}/../p.csv"), "has no profile.csv"),
    ],
)
def test_what_names_do_not_go_with(write_run, words, said):
    folder = write_run()
    names = folder.parent / "names.toml"
    names.write_text('1 = "frail"\n')
    with pytest.raises(ConfigError, match=said):
        main([str(folder), *(word.format(names=names, folder=folder) for word in words)])
