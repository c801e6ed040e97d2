"""What the parties of FedDP-KMeans bring: hold-out, users, the server's file, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastlloyd.errors import ConfigError, DataError
from fastlloyd.protocols.feddp.inputs import FedDPInputs, ServerPoints, UserRecords, gather, load
from fastlloyd.run.config import RunConfig
from fastlloyd.wire.header import SERVER, PartyId

CLIENT = {"feddp": {"privacy_level": "client", "users": "who"}}


def own_files(folder: Path, rows: list[str], **changes) -> tuple[RunConfig, FedDPInputs]:
    for client in (1, 2):
        (folder / f"part_{client}.csv").write_text("\n".join(["who,a,b", *rows]) + "\n")
    config = RunConfig(
        protocol="feddp",
        data=str(folder / "part_{client}.csv"),
        bounds="0,1",
        n_total=100,
        k=2,
        settings=CLIENT,
        **changes,
    )
    return gather(config, 2)


@pytest.mark.parametrize("clients", [2, 5, 30])
def test_rows_of_the_server_come_from_all_clients_alike(clients: int) -> None:
    config, common = gather(RunConfig(protocol="feddp", dataset="iris", k=3), clients)
    assert common.splits is not None and common.server_values is not None
    sizes = [len(part) for part in common.splits]
    assert sum(sizes) + len(common.server_values) == 150 and len(common.server_values) == 8
    assert common.public.n_total == sum(sizes)
    assert min(sizes) >= 150 // clients - 5, "not all from the first clients"
    own = load(config, common, SERVER)
    assert isinstance(own, ServerPoints) and own.points is not None and np.abs(own.points).max() <= 1.0


def test_a_client_without_records_is_refused() -> None:
    config = RunConfig(protocol="feddp", dataset="iris", k=3, settings={"feddp": {"server_share": 0.6}})
    with pytest.raises(ConfigError, match="leaves client"):
        gather(config, 60)


def test_the_column_of_users_is_no_feature_and_numbers_them(tmp_path: Path) -> None:
    config, common = own_files(tmp_path, ["7,0.1,0.2", "9,0.3,0.4", "7,0.5,0.6"])
    own = load(config, common, PartyId(1))
    assert isinstance(own, UserRecords)
    assert own.names == ("a", "b")
    assert own.raw_users.tolist() == [0, 1, 0]
    other = UserRecords(raw_points=own.raw_points, names=own.names, bounds=own.bounds, raw_users=own.raw_users * 0)
    assert own.digest(b"k" * 32) != other.digest(b"k" * 32), "a resume notices other users"


@pytest.mark.parametrize("blank", ["", "NA", "nan"])
def test_a_blank_user_is_refused_with_its_row(tmp_path: Path, blank: str) -> None:
    config, common = own_files(tmp_path, ["x,0.1,0.2", f"{blank},0.3,0.4"])
    with pytest.raises(DataError, match="row 2, column 'who'"):
        load(config, common, PartyId(1))


def test_users_at_record_level_are_a_misunderstanding(tmp_path: Path) -> None:
    config = RunConfig(protocol="feddp", dataset="iris", k=3, settings={"feddp": {"users": "who"}})
    with pytest.raises(ConfigError, match="privacy_level=client"):
        gather(config, 2)


def test_the_servers_file_is_named_in_its_errors(tmp_path: Path) -> None:
    config, common = own_files(tmp_path, ["x,0.1,0.2"], server_data=str(tmp_path / "absent.csv"))
    with pytest.raises(ConfigError, match="--server-data: no file .*; check --server-data$"):
        load(config, common, SERVER)
    (tmp_path / "absent.csv").write_text("who,a,b\n1,0.5,\n2,0.25,0.75\n")
    config, common = own_files(tmp_path, ["x,0.1,0.2"], server_data=str(tmp_path / "absent.csv"), missing="midpoint")
    own = load(config, common, SERVER)
    assert isinstance(own, ServerPoints) and own.names == ("a", "b") and own.points is not None
    assert own.points.tolist() == [[0.0, 0.0], [-0.5, 0.5]]


def test_names_of_rows_are_no_feature_of_the_servers_file_either(tmp_path: Path) -> None:
    (tmp_path / "part_1.csv").write_text("visit,a\n11,0.5\n12,0.25\n")
    (tmp_path / "server.csv").write_text("visit,a\n91,0.5\n92,0.25\n")
    asked = RunConfig(
        protocol="feddp",
        data=str(tmp_path / "part_{client}.csv"),
        server_data=str(tmp_path / "server.csv"),
        bounds="0,1",
        n_total=100,
        k=2,
        id="visit",
    )
    config, common = gather(asked, 2)
    own = load(config, common, SERVER)
    assert isinstance(own, ServerPoints) and own.names == ("a",)
    assert own.names == load(config, common, PartyId(1)).names


def test_the_mixture_brings_server_points_and_users() -> None:
    config = RunConfig(
        protocol="feddp",
        dataset="mixture:clients=6,points=5,d=3,k=2",
        settings={"feddp": {"privacy_level": "client"}},
    )
    config, common = gather(config, 2)
    own = load(config, common, PartyId(2))
    assert isinstance(own, UserRecords) and len(np.unique(own.raw_users)) == 3
    assert common.public.k == 2 and common.public.n_total == 30
