"""FedDP-KMeans as whole runs in memory: a demonstration, own files with users, bad input, a resume."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np

from fastlloyd.errors import Interrupted
from fastlloyd.report.document import load
from fastlloyd.wire.header import PartyId
from tests.mpi.support import content, hospitals, read_matrix
from tests.protocols.whole import done_flags as done
from tests.protocols.whole import run_flags as run

OWN = ("--protocol", "feddp", "--data", "hospital_{client}.csv", "--k", "2", "--bounds", "-1,1", "--output", "res")


def server_points(folder: Path, rows: int = 12) -> None:
    """Points around the two blobs of `hospitals`, in clear, for the server."""
    points = np.concatenate([read_matrix(path) for path in sorted(folder.glob("hospital_*.csv"))])[:: 80 // rows]
    header = (folder / "hospital_1.csv").read_text().splitlines()[0]
    np.savetxt(folder / "server.csv", points, delimiter=",", header=header, comments="")


def test_a_demonstration_chooses_k_and_draws_the_elbow(tmp_path: Path) -> None:
    flags = ["--protocol", "feddp", "--dataset", "mixture:clients=20,points=100,d=8,k=4,variance=0.004,uniform=8"]
    done(tmp_path, [*flags, "--k", "auto:8", "--epsilon", "4", "--evaluate", "--output", "res"], n=4, plots=True)
    folder = tmp_path / "res"
    written = load(folder / "report.json")
    assert written["parameters"]["k"] == 4 and written["parameters"]["k_max"] == 8
    assert written["parameters"]["steps"] == ["outer product", "weights", "centres"]
    assert written["evaluation"]["nicv"] < 1.3 * written["evaluation"]["nicv_central"]
    assert 0.995 * 4 <= written["privacy"]["spent_epsilon"] <= 4
    assert read_matrix(folder / "centroids.csv").shape == (4, 8)
    chosen = [line for line in (folder / "elbow.csv").read_text().splitlines() if line.endswith(",1")]
    assert len(chosen) == 1 and chosen[0].startswith("4,")
    assert (folder / "elbow.png").read_bytes().startswith(b"\x89PNG")
    # Each party's vectors: outer product in 64 bits, weights of 88 points, 4 x 9 sums and counts, in 32 bits.
    up = 8 * 36 + 4 * 88 + 4 * 36
    assert written["traffic"]["payload_bytes"] >= 3 * up
    assert not (folder / "server.json").exists(), "the server has the result and writes the report itself"
    assert {f"labels_{i}.csv" for i in (1, 2, 3)} <= {path.name for path in folder.iterdir()}


def test_own_files_with_users_and_server_data_at_client_level(tmp_path: Path) -> None:
    hospitals(tmp_path, clients=2)
    server_points(tmp_path)
    for path in tmp_path.glob("hospital_*.csv"):
        head, *rows = path.read_text().splitlines()
        path.write_text("\n".join([f"patient,{head}", *(f"p{i // 2},{row}" for i, row in enumerate(rows))]) + "\n")
    flags = [*OWN, "--n-total", "80", "--server-data", "server.csv", "--epsilon", "50"]
    level = ["--set", "feddp.privacy_level=client", "--set", "feddp.users=patient"]
    done(tmp_path, [*flags, *level, "--output", "out-{client}"], n=3)
    reports = [load(tmp_path / f"out-{i}" / "report.json") for i in (0, 1, 2)]
    for written in reports:
        assert written["privacy"]["neighbours"] == "add-remove user"
        assert "all rows of one user at one client" in written["claim"]
        assert written["privacy"]["unit"].startswith("all rows of one user at one client")
        assert written["result"]["features"] == ["f1", "f2"]
    assert {(tmp_path / f"out-{i}" / "centroids.csv").read_text() for i in (0, 1, 2)} == {
        (tmp_path / "out-0" / "centroids.csv").read_text()
    }, "folders are not shared: each party writes its own copy of the same result"


def test_without_data_of_the_server_the_start_is_private(tmp_path: Path) -> None:
    hospitals(tmp_path, clients=2)
    flags = [*OWN, "--n-total", "80", "--epsilon", "50"]
    ended = run(tmp_path, flags, n=3)
    assert ended.codes == {2} and "--set feddp.start=private" in ended.said
    private = [*flags, "--set", "feddp.start=private"]
    server_points(tmp_path)
    ended = run(tmp_path, [*private, "--server-data", "server.csv"], n=3)
    assert ended.codes == {2} and "uses no data of the server" in ended.said
    done(tmp_path, private, n=3)
    written = load(tmp_path / "res" / "report.json")
    assert written["parameters"]["steps"] == ["outer product", "weights", "centres"]
    assert written["parameters"]["start"] == "private" and written["parameters"]["n_server"] > 0
    assert "server's own points" not in str(written["claim"]) + str(written.get("sees", ""))
    assert [release["name"] for release in written["privacy"]["releases"]] == [
        "outer product",
        "weights",
        "sums",
        "counts",
    ]


def test_in_a_demonstration_with_the_private_start_the_clients_have_all_rows(tmp_path: Path) -> None:
    flags = ["--protocol", "feddp", "--dataset", "mixture:clients=20,points=100,d=8,k=4,variance=0.004,uniform=8"]
    private = ["--set", "feddp.start=private", "--set", "feddp.privacy_level=client", "--epsilon", "20", "--k", "4"]
    done(tmp_path, [*flags, *private, "--evaluate", "--output", "res"], n=4)
    written = load(tmp_path / "res" / "report.json")
    assert written["privacy"]["neighbours"] == "add-remove user"
    assert written["parameters"]["n_total"] == 2000


def test_other_columns_of_the_server_end_the_run_with_a_sentence(tmp_path: Path) -> None:
    hospitals(tmp_path, clients=2)
    (tmp_path / "server.csv").write_text("a,b,c\n" + "0.1,0.2,0.3\n" * 5)
    ended = run(tmp_path, [*OWN, "--n-total", "80", "--server-data", "server.csv"])
    assert ended.codes == {2}
    assert "--server-data has 3 features, the clients have 2" in ended.said
    assert not (tmp_path / "res" / "report.json").exists()


def test_without_server_data_the_mend_is_named(tmp_path: Path) -> None:
    hospitals(tmp_path, clients=2)
    ended = run(tmp_path, [*OWN, "--n-total", "80"])
    assert ended.codes == {2}
    assert "--server-data" in ended.said


def test_an_interrupted_run_is_resumed_and_pays_for_each_release_once(tmp_path: Path) -> None:
    hospitals(tmp_path)
    server_points(tmp_path)
    state, told = tmp_path / "state", []

    def interrupt(sender: PartyId, receiver: PartyId, frame: bytes) -> bytes:
        if sender == PartyId(2) and not told and (state / "client-2" / "run" / "reply-1").exists():
            told.append("once, as a signal")
            raise Interrupted("told to stop by SIGINT")
        return frame

    flags = [*OWN, "--n-total", "80", "--server-data", "server.csv", "--rounds", "4", "--state-dir", "state"]
    ended = run(tmp_path, [*flags, "--new-state"], tap=interrupt)
    assert ended.codes == {3} and "told to stop by SIGINT" in ended.own(2)[0], ended
    assert list((state / "client-1" / "run").glob("uplink-*"))
    run_id = json.loads(content(state / "client-1" / "run" / "facts.json"))["run_id"]
    done(tmp_path, [*flags, "--resume"])
    written = load(tmp_path / "res" / "report.json")
    assert written["run"] == run_id and len(written["rounds"]) == 7
    for party in ("server", "client-1", "client-2"):
        lines = (state / party / "ledger.jsonl").read_text().splitlines()
        counted = Counter((entry["round"], entry["name"]) for entry in map(json.loads, lines))
        assert set(counted.values()) == {1}, "no release is paid for twice"
        assert not (state / party / "run").is_dir() or not list((state / party / "run").glob("uplink-*"))
