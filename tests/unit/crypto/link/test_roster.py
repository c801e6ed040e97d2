"""Rosters: reading, checking, writing, and the command."""

from __future__ import annotations

import re
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from fastlloyd.cli import keygen
from fastlloyd.cli import roster as command
from fastlloyd.crypto.link.identity import group_hex, make_identity, named_in, verifies
from fastlloyd.crypto.link.own_key import check_links
from fastlloyd.crypto.link.roster import MOST_BYTES, Roster, RosterEntry
from fastlloyd.errors import ConfigError
from fastlloyd.supervise.environment import Finding, check_certificates
from fastlloyd.wire.header import PartyId
from tests.unit.crypto.link.certificates import forge


def entry(rank, name=None, identity=None):
    identity = identity or make_identity(f"site {rank}", rank)
    return RosterEntry(name or f"site {rank}", "server" if rank == 0 else "client", rank, identity.certificate_pem)


@pytest.fixture(scope="module")
def three():
    return Roster(tuple(entry(rank) for rank in (2, 0, 1)))


def test_roster_survives_its_file(three, tmp_path):
    three.save(tmp_path / "roster.toml")
    loaded = Roster.load(tmp_path / "roster.toml")
    assert loaded.digest() == three.digest() and len(three.digest()) == 32
    assert loaded.certificates() == three.certificates()
    assert [each.rank for each in loaded.entries] == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["roster.toml"]


def test_names_with_quotes_and_umlauts_survive(tmp_path):
    roster = Roster((entry(0, 'the "Süd" \\ clinic'),))
    roster.save(tmp_path / "r.toml")
    assert Roster.load(tmp_path / "r.toml").entries[0].name == 'the "Süd" \\ clinic'


def test_digest_depends_on_every_field_and_not_on_the_writing(three):
    spaced = Roster.parse("# a remark\n" + three.text().replace(" = ", "   =  "))
    assert spaced.digest() == three.digest()
    other_name = three.add(entry(2, "else", None), replace=True)
    other_certificate = three.add(entry(2), replace=True)
    fewer = Roster(three.entries[:2])
    digests = {roster.digest() for roster in (three, other_name, other_certificate, fewer)}
    assert len(digests) == 4


def test_complete_means_a_server_and_clients_without_gaps(three):
    three.check_complete()
    three.check_complete(2)
    with pytest.raises(ConfigError, match="lacks client 3"):
        three.check_complete(3)
    with pytest.raises(ConfigError, match="names 2 clients, this run has 1"):
        three.check_complete(1)
    with pytest.raises(ConfigError, match="lacks the server"):
        Roster((entry(1),)).check_complete()
    with pytest.raises(ConfigError, match="lacks client 1"):
        Roster((entry(0), entry(2))).check_complete()
    with pytest.raises(ConfigError, match="the server, client 1"):
        Roster().check_complete()


def test_contradictions_are_named(three):
    shared = make_identity("shared")
    with pytest.raises(ConfigError, match="same rank"):
        three.add(entry(2, "other"))
    with pytest.raises(ConfigError, match="same name"):
        three.add(entry(3, "site 1"))
    with pytest.raises(ConfigError, match=r"rank 1.*rank 2.*same key"):
        Roster((entry(1, identity=shared), entry(2, identity=shared)))
    with pytest.raises(ConfigError, match="rank 0"):
        RosterEntry("x", "client", 0, shared.certificate_pem)
    with pytest.raises(ConfigError, match="rank 0"):
        RosterEntry("x", "server", 1, shared.certificate_pem)
    with pytest.raises(ConfigError, match="role"):
        RosterEntry("x", "boss", 1, shared.certificate_pem)


def test_certificates_that_could_vouch_for_others_are_refused():
    for identity in (forge(authority=True), forge(authority=None)):
        with pytest.raises(ConfigError, match="may sign other certificates"):
            entry(1, identity=identity)
    with pytest.raises(ConfigError, match="not signed by its own key"):
        entry(1, identity=forge(issuer=make_identity("issuer")))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "not TOML"),
        ("party = 1" + "0" * 5000, "not TOML"),
        ("party = " + "[" * 5000 + "]" * 5000, "not TOML"),
        ("[other]\n", r"expected \[\[party\]\]"),
        ("party = 3\n", r"expected \[\[party\]\]"),
        ('[[party]]\nname = "a"\n', "expected the fields"),
        ("party = [1]\n", "party 1: expected an object, got 1"),
        ('[[party]]\nname = "a"\nrole = "client"\nrank = true\ncertificate = "x"\n', "whole number"),
        ('[[party]]\nname = 1\nrole = "client"\nrank = 1\ncertificate = "x"\n', "name: expected text"),
        ('[[party]]\nname = "a"\nrole = "client"\nrank = 1\ncertificate = "x"\n', "no certificate"),
    ],
)
def test_malformed_files_are_sentences(text, words):
    with pytest.raises(ConfigError, match=words):
        Roster.parse(text)


def test_missing_file_is_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the roster"):
        Roster.load(tmp_path / "none.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="no text file"):
        Roster.load(tmp_path / "binary")


def test_identity_joins_key_and_certificate(three):
    mine = make_identity("site 2", 2)
    roster = three.add(entry(2, identity=mine), replace=True)
    joined = roster.identity(PartyId(2), mine.key)
    assert joined.certificate_der == mine.certificate_der and joined.name == "site 2"
    with pytest.raises(ConfigError, match="this process is client 1, but its --key belongs to client 2"):
        roster.identity(PartyId(1), mine.key)
    with pytest.raises(ConfigError, match="not in the roster"):
        roster.identity(PartyId(1), make_identity("stranger").key)


def test_command_adds_shows_and_checks(tmp_path, capsys):
    path = tmp_path / "roster.toml"
    for rank in range(3):
        keygen.main(["--name", f"site {rank}", "--rank", str(rank), "--prefix", str(tmp_path / f"p{rank}")])
        assert command.main(["add", "--roster", str(path), "--cert", str(tmp_path / f"p{rank}.pem")]) == 0
    assert command.main(["check", "--roster", str(path)]) == 0
    assert command.main(["show", "--roster", str(path)]) == 0
    shown = capsys.readouterr().out
    for each in Roster.load(path).entries:
        assert shown.count(each.fingerprint) == 3  # keygen, add, show
    with pytest.raises(ConfigError, match="same rank"):
        command.main(
            ["add", "--roster", str(path), "--cert", str(tmp_path / "p1.pem"), "--name", "x", "--role", "client"]
        )
    keygen.main(["--name", "fresh", "--prefix", str(tmp_path / "fresh")])
    add = ["add", "--roster", str(path), "--cert", str(tmp_path / "fresh.pem")]
    with pytest.raises(ConfigError, match="states no rank"):
        command.main(add)
    before = Roster.load(path).digest()
    assert command.main([*add, "--rank", "1", "--role", "client", "--replace"]) == 0
    assert Roster.load(path).digest() != before and Roster.load(path).entries[1].name == "fresh"


@pytest.mark.parametrize(("rank", "names"), [(1, ["site 0", "site 3", "site 2"]), (3, ["site 0", "site 1", "site 2"])])
def test_a_client_that_leaves_makes_no_gap_and_moves_one_other_at_most(rank, names, tmp_path, capsys):
    before = Roster(tuple(entry(each) for each in range(4)))
    path = tmp_path / "roster.toml"
    before.save(path)
    assert command.main(["remove", "--roster", str(path), "--rank", str(rank)]) == 0
    after, said = Roster.load(path), capsys.readouterr().out
    after.check_complete()
    assert [each.name for each in after.entries] == names and after.digest() != before.digest()
    assert {each.certificate_der for each in after.entries} < {each.certificate_der for each in before.entries}
    assert f"'site {rank}' is no longer a party" in said and group_hex(after.digest()) in said
    moves = "'site 3' was client 3 and is client 1 now: its owner renames its state folder (client-3 to client-1)"
    assert (moves in said) == (rank == 1)


@pytest.mark.parametrize("rank", [0, 3, -1, 10**30])
def test_only_a_client_of_the_roster_can_be_removed(three, rank, tmp_path):
    three.save(tmp_path / "roster.toml")
    with pytest.raises(ConfigError, match="no client of rank .* to remove"):
        command.main(["remove", "--roster", str(tmp_path / "roster.toml"), "--rank", str(rank)])
    assert Roster.load(tmp_path / "roster.toml").digest() == three.digest()


def test_a_private_key_in_the_certificate_file_stays_out_of_the_roster(tmp_path):
    identity = make_identity("careless", 1)
    key = identity.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    (tmp_path / "both.pem").write_text(key + identity.certificate_pem)
    command.main(["add", "--roster", str(tmp_path / "r.toml"), "--cert", str(tmp_path / "both.pem")])
    assert "PRIVATE" not in (tmp_path / "r.toml").read_text()
    Roster.load(tmp_path / "r.toml")


def test_a_rank_that_no_party_has_is_refused_whoever_states_it(three, tmp_path, capsys):
    big = three.text().replace("rank = 2", "rank = 1000000000000")
    with pytest.raises(ConfigError, match="ranks from 1 to 65534, got a client with rank 1000000000000"):
        Roster.parse(big)
    with pytest.raises(ConfigError, match="keys of at most 64 parts"):
        Roster.parse("a." * 20_000 + "a = 1\n")
    for unit in ("rank 1000000000000", "rank " + "9" * 5000, "rank 65535"):
        names = [
            x509.NameAttribute(NameOID.COMMON_NAME, "far"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit, _validate=False),
        ]
        (tmp_path / "far.pem").write_text(forge(subject=x509.Name(names)).certificate_pem)
        add = ["add", "--roster", str(tmp_path / "r.toml"), "--cert", str(tmp_path / "far.pem")]
        with pytest.raises(ConfigError, match=r"states no rank|ranks from 1 to 65534"):
            command.main(add)
        assert command.main([*add, "--rank", "1"]) == 0
        (tmp_path / "r.toml").unlink()
    with pytest.raises(ConfigError, match="1 to 65534"):
        make_identity("far", 10**400)


def test_a_certificate_with_a_key_that_nobody_knows_is_refused(tmp_path):
    made = make_identity("odd", 1).certificate_der
    for kind in (b"\x6f", b"\x6e", b"\x01", b"\x71"):  # X448, X25519, none, Ed448
        pem = ssl.DER_cert_to_PEM_cert(made.replace(b"\x06\x03\x2b\x65\x70", b"\x06\x03\x2b\x65" + kind))
        (tmp_path / "odd.pem").write_text(pem)
        with pytest.raises(ConfigError, match="has no Ed25519 key"):
            command.main(["add", "--roster", str(tmp_path / "r.toml"), "--cert", str(tmp_path / "odd.pem")])
        assert not verifies(ssl.PEM_cert_to_DER_cert(pem), b"", bytes(64))


def test_any_changed_byte_of_a_certificate_is_a_sentence():
    made = make_identity("odd", 1).certificate_der
    for at in range(len(made)):
        changed = made[:at] + bytes([made[at] ^ 0x21]) + made[at + 1 :]
        with pytest.raises(ConfigError):
            named_in(changed)
            RosterEntry("odd", "client", 1, ssl.DER_cert_to_PEM_cert(changed))


@pytest.mark.parametrize(
    "other",
    [
        *("site\u034f 1", "site 1\u3164", "site 1\ufe0f", "site\u28001", "site  1", "site 1\U000e0100", "ſite 1"),
        *("Site 1", "SITE 1", "\uff33ite 1"),  # case, full width
    ],
)
def test_names_that_look_the_same_are_the_same_name(three, other):
    with pytest.raises(ConfigError, match="same name"):
        three.add(entry(3, other))
    cyrillic = "\u0421\u0435\u0432\u0435\u0440"
    with pytest.raises(ConfigError, match="same name"):
        three.add(entry(3, cyrillic)).add(entry(4, cyrillic.upper()))
    three.add(entry(3, "Site 3"))


def test_a_name_that_nobody_sees_is_none():
    with pytest.raises(ConfigError, match="printable characters"):
        make_identity("\u3164\u2800")


def test_a_roster_is_not_read_without_end(tmp_path):
    path = tmp_path / "r.toml"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(ConfigError, match="too long"):
        Roster.load(path)


def dated(days, rank=1):
    """An entry that is valid from and until so many days from now."""
    return entry(rank, identity=forge(f"site {rank}", days=days))


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (
            (-10, -1),
            "client 1 \\(site 1\\) has expired on .*this machine's clock says .*correct the clock if it is wrong",
        ),
        (
            (2, 10),
            "^this machine's clock says .*client 1 \\(site 1\\) is valid from .* on: set the clock",
        ),
    ],
)
def test_a_certificate_that_is_not_valid_is_named_before_a_run(three, tmp_path, capsys, days, said):
    roster = Roster((entry(0), dated(days)))
    with pytest.raises(ConfigError, match=said):
        roster.check_dates()
    roster.save(tmp_path / "roster.toml")
    with pytest.raises(ConfigError, match=said):
        command.main(["check", "--roster", str(tmp_path / "roster.toml")])
    with pytest.raises(ConfigError, match=said):
        check_links(str(tmp_path / "roster.toml"), None, None)
    (found,) = check_certificates_of(tmp_path / "roster.toml")
    assert found.level == "FAIL" and re.search(said, found.text)
    assert three.check_dates() == ()


def test_people_are_warned_before_a_certificate_expires(tmp_path, capsys):
    roster = Roster((entry(0), dated((-1, 29.5))))
    (line,) = roster.check_dates()
    assert "client 1 (site 1) expires on" in line and "in 29 days: make a new key" in line
    assert Roster((entry(0), dated((-1, 31)))).check_dates() == ()
    roster.save(tmp_path / "roster.toml")
    assert command.main(["check", "--roster", str(tmp_path / "roster.toml")]) == 0
    assert f"warning: {line}" in capsys.readouterr().out
    assert f"warning   {line}" in check_links(str(tmp_path / "roster.toml"), None, None).lines
    assert [found.level for found in check_certificates_of(tmp_path / "roster.toml")] == ["warn"]
    assert command.main(["show", "--roster", str(tmp_path / "roster.toml")]) == 0
    assert f"to {roster.entries[1].valid[1]:%Y-%m-%d}" in capsys.readouterr().out


def check_certificates_of(path):
    """What the doctor says of a roster."""
    try:
        return list(check_certificates(path))
    except ConfigError as error:
        return [Finding("FAIL", str(error))]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("clinic", "\u0441linic"),  # Cyrillic es
        ("hospital a", "hospital \u0430"),  # Cyrillic a
        ("\u0441\u043e\u0440", "cop"),  # a whole word of Cyrillic letters
        ("No\u00ebl", "No\u0451l"),  # with two dots: Cyrillic yo
        ("ALPHA", "\u0391LPH\u0391"),  # Greek capitals
        ("\u0440\u043e", "\u03c1\u03bf"),  # Cyrillic and Greek, neither Latin
        ("ho", "\u0570\u0585"),  # Armenian
        ("Hospital A", "hospital \u0430"),  # Cyrillic a, in another case
    ],
)
def test_names_that_differ_in_look_alike_letters_of_other_scripts_are_refused(three, one, other):
    roster = Roster((three.entries[0], entry(1, one)))
    with pytest.raises(ConfigError, match="have the same name by the look of its letters: every party needs its own"):
        roster.add(entry(2, other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("M\u00fcnchen", "Munchen"),
        ("\u0421\u0435\u0432\u0435\u0440", "\u042e\u0433"),  # two words of Cyrillic letters
        ("\u0391\u03b8\u03ae\u03bd\u03b1", "Athina"),
        ("site I", "site J"),
    ],
)
def test_names_that_look_different_stay(three, one, other):
    assert len(Roster((three.entries[0], entry(1, one), entry(2, other))).entries) == 3
