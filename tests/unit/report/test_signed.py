"""The signed record: everything that matters is covered, and every change is found out."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastlloyd.cli.report import main
from fastlloyd.crypto.commitment import commit, derive_opening
from fastlloyd.crypto.link.identity import make_identity, sign, verifies
from fastlloyd.crypto.link.roster import Roster, RosterEntry
from fastlloyd.dossier.verify import verify
from fastlloyd.errors import ConfigError, InternalError
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.release import Release
from fastlloyd.report.announcer import Announcer
from fastlloyd.report.claim import Claim
from fastlloyd.report.document import build_report, encode, load, schema
from fastlloyd.report.files import centroids_csv
from fastlloyd.report.quality import Quality
from fastlloyd.report.signed import SIGNED_ELSE, Covers, SignedRecord, file_digests, sign_report
from fastlloyd.run.config import RunConfig
from fastlloyd.run.execute import execute
from fastlloyd.run.files import privacy_entry
from fastlloyd.run.session import Session
from fastlloyd.wire.header import PartyId
from tests.net.memory import MemoryNetwork
from tests.unit.report.figures import common

RUN, DELTA, AGREED = "00ff", 1e-6, bytes(range(32))
IDENTITIES = [make_identity(f"site {rank}", rank) for rank in range(3)]
ROSTER = Roster(
    tuple(
        RosterEntry(one.name, "client" if rank else "server", rank, one.certificate_pem)
        for rank, one in enumerate(IDENTITIES)
    )
)


def release(t: int, scale: float = 2000.0) -> Release:
    return Release(run=RUN, round=t, name="sums", mechanism="gaussian", sensitivity=256.0, norm="l2", noise_scale=scale)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of a server without the result and two clients, the first of which writes."""
    releases = [release(t) for t in range(2)]
    shared = common(
        run=RUN,
        parties={"clients": 2, "authenticated": True},
        parameters={"k": 2, "rounds": 2, "n_total": 100, "epsilon": 5.0},
    )
    plain = [one.to_dict() for one in releases]
    files = {"centroids.csv": centroids_csv(["a", "b"], np.eye(2))}
    result = SignedRecord(common=shared, releases=plain, features=["a", "b"], noisy_sizes=[3.5, 4.5], files=files)
    digest = ROSTER.digest()
    entries: list[dict[str, Any]] = []
    for rank, one in enumerate(IDENTITIES):
        covers: Covers = "result" if rank else "public"
        opening = bytes([rank]) * 32 if rank else None
        entries.append(
            {
                "rank": rank,
                "name": one.name,
                "covers": covers,
                "opening": None if opening is None else opening.hex(),
                "signature": sign(one, result.statement(digest, AGREED, covers, opening)).hex(),
                "problem": None,
            }
        )
    signatures = {
        "roster": digest.hex(),
        "agreed": AGREED.hex(),
        "files": file_digests(files),
        "parties": entries,
        "writer": {"rank": 1, "signature": None},
    }
    claim = Claim(epsilon=spent(releases, DELTA) * 1.001, delta=DELTA, against="all")
    report = build_report(
        shared,
        claim=claim,
        privacy=privacy_entry(claim, releases),
        result={"features": ["a", "b"], "noisy_sizes": [3.5, 4.5], "movement": None},
        quality=Quality(verdict="good", sentence="good: little noise").to_dict(),
        signatures=signatures,
    )
    report["signatures"]["writer"]["signature"] = sign_report(report, IDENTITIES[1])
    (tmp_path / "report.json").write_text(encode(report))
    (tmp_path / "centroids.csv").write_text(files["centroids.csv"])
    (tmp_path / "ledger.jsonl").write_text("".join(one.to_json() + "\n" for one in releases))
    ROSTER.save(tmp_path / "roster.toml")
    return tmp_path


def edit(folder: Path, change: Callable[[dict[str, Any]], None], *, resign: bool = False) -> None:
    """Change the report; `resign`: its writer signs the changed one, which only the others can notice."""
    report = json.loads((folder / "report.json").read_text())
    change(report)
    if resign:
        report["signatures"]["writer"]["signature"] = sign_report(report, IDENTITIES[1])
    (folder / "report.json").write_text(encode(report))


def test_a_good_record_names_its_signers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), "--verify", "--roster", str(folder / "roster.toml")]) == 0
    said = capsys.readouterr().out
    assert "signed by site 0 (the server), site 1 (client 1), site 2 (client 2)" in said


def test_a_party_that_the_writer_leaves_out_is_named_all_the_same(folder: Path) -> None:
    edit(folder, lambda report: report["signatures"]["parties"].pop(2), resign=True)
    assert "signed by site 0 (the server), site 1 (client 1) under" in (said := verify(folder, folder / "roster.toml"))
    assert said.count("not by client 2") == 1
    edit(folder, lambda report: report["signatures"]["parties"].append(report["signatures"]["parties"][1]), resign=True)
    assert verify(folder, folder / "roster.toml") == said


def put(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(report: dict[str, Any]) -> None:
        place: Any = report
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


CHANGES = [
    put("parameters", "epsilon", value=1.0),
    put("parameters", "n_total", value=99),
    put("rounds", 1, "clients_included", value=[1]),
    put("result", "noisy_sizes", value=[3.5, 4.25]),
    put("result", "features", value=["a", "c"]),
    put("parties", "clients", value=1),
    put("protocol", value="glloyd"),
    put("signatures", "agreed", value="ab" * 32),
    put("signatures", "files", value={}),
    put("signatures", "parties", 1, "opening", value="ab" * 32),
    put("signatures", "parties", 1, "opening", value=None),
    put("signatures", "parties", 1, "covers", value="centroids"),
]


@pytest.mark.parametrize("resign", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_report_is_found_out_even_if_its_writer_signs_it(
    folder: Path, change: Callable[[dict[str, Any]], None], resign: bool
) -> None:
    edit(folder, change, resign=resign)
    with pytest.raises(ConfigError, match="changed|does not say what"):
        verify(folder, folder / "roster.toml")


@pytest.mark.parametrize("change", [put("claim", value="Nothing."), put("timing", "setup_seconds", value=9.0)])
def test_whatever_the_writer_signed_alone_cannot_be_changed_by_others(folder: Path, change: Any) -> None:
    edit(folder, change)
    with pytest.raises(ConfigError, match="differs from what client 1, who wrote it, signed"):
        verify(folder, folder / "roster.toml")


def test_report_and_ledger_changed_alike_verify_no_longer(folder: Path) -> None:
    louder = [release(t, 8000.0) for t in range(2)]
    (folder / "ledger.jsonl").write_text("".join(one.to_json() + "\n" for one in louder))

    def change(report: dict[str, Any]) -> None:
        for entry, one in zip(report["privacy"]["releases"], louder, strict=True):
            entry.update({key: one.to_dict()[key] for key in ("noise_scale", "noise_multiplier")})
        report["privacy"]["spent_epsilon"] = spent(louder, DELTA)

    edit(folder, change, resign=True)
    assert verify(folder).startswith("verified: ")  # consistent, so the accounting alone passes
    with pytest.raises(ConfigError, match="does not say what the server signed"):
        verify(folder, folder / "roster.toml")


def test_a_changed_result_file_is_found_out(folder: Path) -> None:
    path = folder / "centroids.csv"
    path.write_text(path.read_text().replace("1.0", "1.5"))
    with pytest.raises(ConfigError, match="is not what the parties signed"):
        verify(folder, folder / "roster.toml")
    path.unlink()
    with pytest.raises(ConfigError, match="was signed but cannot be read"):
        verify(folder, folder / "roster.toml")
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="cannot be read: expected an ordinary file, it is a pipe"):
        verify(folder, folder / "roster.toml")


@pytest.mark.parametrize("name", ["..", "a\0b"])
def test_a_signed_file_that_cannot_be_one(folder: Path, name: str) -> None:
    edit(folder, lambda report: report["signatures"].update(files={name: "0" * 64}), resign=True)
    with pytest.raises(ConfigError, match="was signed but cannot be read"):
        verify(folder, folder / "roster.toml")


def test_another_roster_and_an_unsigned_report_are_refused(folder: Path) -> None:
    fewer = Roster(ROSTER.entries[:2])
    fewer.save(folder / "fewer.toml")
    with pytest.raises(ConfigError, match="give the roster of that run"):
        verify(folder, folder / "fewer.toml")
    edit(folder, put("signatures", value=None))
    with pytest.raises(ConfigError, match="unsigned"):
        verify(folder, folder / "roster.toml")
    assert "its report is unsigned" in verify(folder)


def test_a_party_that_did_not_sign_is_named(folder: Path) -> None:
    def drop(report: dict[str, Any]) -> None:
        report["signatures"]["parties"][2].update(signature=None, problem="sent no signature")

    edit(folder, drop, resign=True)
    assert verify(folder, folder / "roster.toml").endswith("not by client 2")


def test_a_party_that_signed_something_else_fails_the_check(folder: Path) -> None:
    # Old reports have the same sentence.
    edit(folder, lambda report: report["signatures"]["parties"][2].update(signature=None, problem=SIGNED_ELSE))
    edit(folder, lambda report: None, resign=True)
    with pytest.raises(ConfigError, match="client 2 signed something else than client 1, who wrote"):
        verify(folder, folder / "roster.toml")


def as_schema_4(folder: Path) -> None:
    """Write the report as the program before schema 5 did: the digest of the result signed as it is."""
    report = json.loads((folder / "report.json").read_text())
    report["schema"] = 4
    del report["results_version"]
    public = {
        "protocol": report["protocol"],
        "run": RUN,
        "parties": report["parties"],
        "parameters": report["parameters"],
        "releases": [
            {name: value for name, value in entry.items() if name not in ("seen_by", "run")}
            for entry in report["privacy"]["releases"]
        ],
        "included": [entry["clients_included"] for entry in report["rounds"]],
    }
    result = {"features": ["a", "b"], "files": report["signatures"]["files"], "noisy_sizes": [3.5, 4.5]}
    for rank, (one, entry) in enumerate(zip(IDENTITIES, report["signatures"]["parties"], strict=True)):
        del entry["opening"]
        statement = {
            "run": RUN,
            "roster": ROSTER.digest().hex(),
            "agreed": AGREED.hex(),
            "public": hashlib.sha256(canonical(public)).hexdigest(),
            "result": hashlib.sha256(canonical(result)).hexdigest() if rank else None,
        }
        entry["signature"] = one.key.sign(b"fastlloyd signed record 1\0" + canonical(statement)).hex()
    report["signatures"]["writer"]["signature"] = None
    report["signatures"]["writer"]["signature"] = (
        IDENTITIES[1].key.sign(b"fastlloyd signed record 1\0" + canonical(report)).hex()
    )
    (folder / "report.json").write_text(encode(report))


def canonical(values: Any) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def test_a_report_of_schema_4_verifies_as_it_did(folder: Path) -> None:
    as_schema_4(folder)
    assert "signed by site 0 (the server), site 1 (client 1), site 2 (client 2)" in verify(
        folder, folder / "roster.toml"
    )
    # Nor does it pass as one of schema 5.
    edit(folder, put("schema", value=5), resign=True)
    with pytest.raises(ConfigError, match="opening|results_version"):
        verify(folder, folder / "roster.toml")


def test_a_result_is_never_signed_without_an_opening() -> None:
    record = SignedRecord(common=common(), releases=[], features=["a"])
    with pytest.raises(InternalError, match="without an opening"):
        record.statement(ROSTER.digest(), AGREED, "result", None)
    assert record.statement(ROSTER.digest(), AGREED, "public", None)


def test_what_parties_compare_is_of_all_that_they_sign() -> None:
    record = SignedRecord(common=common(), releases=[], features=["a"], noisy_sizes=[3.5], files={"centroids.csv": "1"})
    others = [
        replace(record, features=["b"]),
        replace(record, noisy_sizes=[4.5]),
        replace(record, files={"centroids.csv": "2"}),
        replace(record, releases=[release(0).to_dict()]),
        replace(record, common={**common(), "protocol": "kfed"}),
    ]
    assert len({one.digest() for one in (record, *others)}) == 6


def test_a_commitment_is_to_its_digest_under_its_opening() -> None:
    one, two = bytes(range(32)), bytes(range(1, 33))
    assert len({commit(digest, opening) for digest in (one, two) for opening in (one, two)}) == 4
    openings = {derive_opening(seed, run, PartyId(i)) for seed in (one, two) for run in (b"a", b"b") for i in (1, 2)}
    assert len(openings) == 8


def test_a_signature_is_of_its_key_and_its_bytes() -> None:
    signature = sign(IDENTITIES[1], b"words")
    certificates = ROSTER.certificates()
    places = {party.rank: der for party, der in certificates.items()}
    assert verifies(places[1], b"words", signature)
    assert not verifies(places[2], b"words", signature)
    assert not verifies(places[1], b"Words", signature)
    assert not verifies(places[1], b"words", signature[:-1])


def test_roster_needs_verify(folder: Path) -> None:
    with pytest.raises(ConfigError, match="add --verify"):
        main([str(folder), "--roster", str(folder / "roster.toml")])


def test_a_new_entry_takes_its_declaration_and_the_line_that_makes_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Declared in the schema and made where the session's entries are: report, server.json, page and verify have it."""
    declared = copy.deepcopy(schema())
    declared["$defs"]["network"]["properties"]["hops"] = {"type": "integer"}
    entries = Session.shared_entries

    def with_hops(session: Session, **given: Any) -> dict[str, Any]:
        made = entries(session, **given)
        return {**made, "network": {**made["network"], "hops": 3}}

    monkeypatch.setattr(Session, "shared_entries", with_hops)
    output = str(tmp_path / "{client}")
    config = RunConfig(protocol="lloyd", dataset="iris", bounds="0,10", k=3, output=output, overwrite=True)
    network = MemoryNetwork(3)

    def one(rank: int) -> int:
        with network.endpoint(PartyId(rank)) as transport:
            return execute(config, transport, Announcer(PartyId(rank), quiet=True)).code

    def ends() -> list[int]:
        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(one, range(3)))

    assert 0 not in ends()  # not declared: no party writes it
    monkeypatch.setattr("fastlloyd.report.document.schema", lambda: declared)
    network = MemoryNetwork(3)
    assert ends() == [0, 0, 0]
    for name, definition in (("1/report.json", "report"), ("2/report.json", "report"), ("0/server.json", "server")):
        assert load(tmp_path / name, definition)["network"]["hops"] == 3
    assert main([str(tmp_path / "1"), "--verify"]) == 0
