"""Keys, certificates and their files."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, x25519

from fastlloyd.cli import keygen
from fastlloyd.crypto.link.identity import (
    Identity,
    certificate_bytes,
    check_name,
    ed25519_key,
    fingerprint,
    load_key,
    make_identity,
    named_in,
    parse_certificate,
    read_text,
    save_identity,
    write_atomically,
)
from fastlloyd.errors import ConfigError


def secret_of(identity: Identity) -> bytes:
    return identity.key.private_bytes_raw()


def secret_in(path: Path) -> bytes:
    return load_key(path).private_bytes_raw()


def certificate_in(path: Path) -> bytes:
    return certificate_bytes(read_text(path, "certificate"), str(path))


def saved(folder, name="north", **options):
    identity = make_identity(name, 1)
    save_identity(identity, folder / f"{name}.key", folder / f"{name}.pem", **options)
    return identity


def test_certificate_is_no_authority_unique_and_valid_from_the_day_before():
    first, second = (x509.load_der_x509_certificate(make_identity("north", 1).certificate_der) for _ in range(2))
    assert first.subject != second.subject
    assert first.subject == first.issuer
    basic = first.extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical and not basic.value.ca
    now = datetime.now(UTC)
    assert timedelta(hours=23) < now - first.not_valid_before_utc < timedelta(hours=25)
    assert timedelta(days=3649) < first.not_valid_after_utc - now < timedelta(days=3654)
    first.verify_directly_issued_by(first)


def test_name_and_rank_can_be_read_from_the_certificate():
    assert named_in(make_identity("Klinik Süd", 12).certificate_der) == ("Klinik Süd", 12)
    assert named_in(make_identity("north").certificate_der) == ("north", None)
    with pytest.raises(ConfigError, match=r"X\.509"):
        named_in(b"no certificate")


def test_fingerprint_is_sha256_in_groups_of_four():
    groups = fingerprint(b"").split(" ")
    assert "".join(groups) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert {len(group) for group in groups} == {4}


@pytest.mark.parametrize("name", ["", "a" * 65, "a/b", ".hidden", "-flag", " blank", "line\nbreak", "nul\0"])
def test_names_that_do_not_do_are_refused(name):
    with pytest.raises(ConfigError, match="name"):
        check_name(name)
    check_name("a" * 64)


def test_negative_rank_is_refused():
    with pytest.raises(ConfigError, match="rank"):
        make_identity("north", -1)


def test_key_never_shows_in_repr():
    identity = make_identity("north", 1)
    secret = secret_of(identity)
    shown = repr(identity) + str(identity) + repr([identity])
    assert secret.hex() not in shown.replace(" ", "") and repr(secret) not in shown
    assert "north" in shown


def test_save_and_load_give_the_same_identity(tmp_path):
    identity = saved(tmp_path)
    assert certificate_in(tmp_path / "north.pem") == identity.certificate_der
    assert secret_in(tmp_path / "north.key") == secret_of(identity)
    assert (tmp_path / "north.key").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["north.key", "north.pem"]


def test_key_is_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        saved(tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / "north.key").stat().st_mode & 0o777 == 0o600


def test_existing_files_are_kept_without_force(tmp_path):
    old = saved(tmp_path)
    with pytest.raises(ConfigError, match="--force"):
        saved(tmp_path)
    assert secret_in(tmp_path / "north.key") == secret_of(old)
    new = saved(tmp_path, force=True)
    assert secret_in(tmp_path / "north.key") == secret_of(new) != secret_of(old)
    (tmp_path / "north.key").unlink()
    with pytest.raises(ConfigError, match=r"north\.pem exists"):
        saved(tmp_path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_key_that_others_may_read_is_refused_with_the_mend(tmp_path, mode):
    saved(tmp_path)
    (tmp_path / "north.key").chmod(mode)
    with pytest.raises(ConfigError, match=r"chmod 600 .*north\.key"):
        load_key(tmp_path / "north.key")


def write_private(path, content):
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def locked(folder, passphrase=b"correct horse"):
    """Make a key as `keygen --passphrase-file` does."""
    file = write_private(folder / "phrase", passphrase + b"\nnot this line\n")
    argv = ["--name", "north", "--prefix", str(folder / "north"), "--passphrase-file", str(file)]
    assert keygen.main(argv) == 0
    return folder / "north.key", file


def test_encrypted_key_without_anybody_to_ask_is_a_sentence_and_not_a_prompt(tmp_path, monkeypatch):
    key, _ = locked(tmp_path)
    assert key.read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") and key.stat().st_mode & 0o777 == 0o600
    monkeypatch.delenv("FASTLLOYD_PASSPHRASE_FILE", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
    with pytest.raises(
        ConfigError, match=r"north\.key is encrypted and nobody can be asked: .*PASSPHRASE_FILE"
    ) as caught:
        load_key(key)
    assert caught.value.exit_code == 2
    with pytest.raises(ConfigError, match="nobody to ask"):
        keygen.main(["--name", "x", "--prefix", str(tmp_path / "x"), "--passphrase"])
    assert not (tmp_path / "x.key").exists()


def test_the_passphrase_comes_from_a_private_file_and_is_never_shown(tmp_path, monkeypatch, capsys):
    key, file = locked(tmp_path)
    monkeypatch.setenv("FASTLLOYD_PASSPHRASE_FILE", str(file))
    assert load_key(key).public_key() == ed25519_key(parse_certificate(certificate_in(tmp_path / "north.pem")))
    monkeypatch.setenv("FASTLLOYD_PASSPHRASE_FILE", str(tmp_path / "of another key"))
    assert load_key(key, str(file))  # what a site's own file names goes first
    monkeypatch.setenv("FASTLLOYD_PASSPHRASE_FILE", str(file))
    for content, words in [
        (b"wrong horse", "does not open the key"),
        (b"", "has 0 bytes"),
        (b"x" * 1001, "1001 bytes"),
    ]:
        write_private(file, content)
        with pytest.raises(ConfigError, match=words) as caught:
            load_key(key)
        assert "horse" not in str(caught.value) and caught.value.__cause__ is None
    write_private(file, b"correct horse").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_key(key)
    file.unlink()
    with pytest.raises(ConfigError, match="cannot read the passphrase file"):
        load_key(key)
    assert "horse" not in "".join(capsys.readouterr())


def on_a_terminal(body, lines):
    """Run code in a process with a terminal, type the lines, and return what it showed and how it ended."""
    process, terminal = pty.fork()
    if not process:
        os.environ.pop("FASTLLOYD_PASSPHRASE_FILE", None)
        os.execv(sys.executable, [sys.executable, "-c", body])
    shown = b""
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 4096):
            shown += part
            if lines and shown.endswith(b": "):
                os.write(terminal, lines.pop(0) + b"\n")
    os.close(terminal)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.process
def test_the_passphrase_is_asked_on_the_terminal_twice_and_then_once(tmp_path):
    main = "import sys; from fastlloyd.__main__ import main; sys.exit(main({!r}))"
    make = main.format(["keygen", "--name", "north", "--prefix", str(tmp_path / "north"), "--passphrase"])
    shown, code = on_a_terminal(make, [b"a horse", b"a mule"])
    assert code == 2 and "expected the same passphrase twice" in shown
    shown, code = on_a_terminal(make, [b"a horse", b"a horse"])
    assert code == 0 and "horse" not in shown and shown.count("assphrase of the new key") == 1
    where = str(tmp_path / "north.key")
    read = f"import pathlib; from fastlloyd.crypto.link.identity import load_key; load_key(pathlib.Path({where!r}))"
    shown, code = on_a_terminal(read, [b"a horse"])
    assert code == 0 and "Passphrase of" in shown and "horse" not in shown


def test_files_that_are_no_key_are_refused_without_their_content(tmp_path):
    with pytest.raises(ConfigError, match="no readable private key") as caught:
        load_key(
            write_private(tmp_path / "a.key", b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n")
        )
    assert "c2VjcmV0" not in str(caught.value) and caught.value.__cause__ is None
    other = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(ConfigError, match="Ed25519"):
        load_key(write_private(tmp_path / "b.key", other))
    with pytest.raises(ConfigError, match="cannot read the key"):
        load_key(tmp_path / "missing.key")


def test_closed_folder_is_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match="cannot write"):
        saved(tmp_path / "missing")


def test_keygen_writes_both_files_and_prints_no_secret(tmp_path, capsys):
    assert keygen.main(["--name", "Clinic North", "--rank", "2", "--out", str(tmp_path)]) == 0
    certificate_der = certificate_in(tmp_path / "Clinic North.pem")
    shown = capsys.readouterr().out
    assert named_in(certificate_der) == ("Clinic North", 2)
    assert fingerprint(certificate_der) in shown and "roster add" in shown
    key_text = (tmp_path / "Clinic North.key").read_text().splitlines()[1]
    assert key_text not in shown
    assert keygen.main(["--name", "x", "--prefix", str(tmp_path / "prefix")]) == 0
    assert (tmp_path / "prefix.key").exists() and (tmp_path / "prefix.pem").exists()
    with pytest.raises(ConfigError, match="--force"):
        keygen.main(["--name", "x", "--prefix", str(tmp_path / "prefix")])
    assert keygen.main(["--name", "x", "--prefix", str(tmp_path / "prefix"), "--force"]) == 0


def test_keygen_makes_its_folder_for_the_owner_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert keygen.main(["--name", "hospital-1", "--rank", "1", "--out", "keys"]) == 0  # as README has it
    assert {path.name for path in Path("keys").iterdir()} == {"hospital-1.key", "hospital-1.pem"}
    assert Path("keys").stat().st_mode & 0o777 == 0o700
    with pytest.raises(ConfigError, match=r"--out keys/hospital-1\.pem: cannot be made a folder"):
        keygen.main(["--name", "hospital-2", "--out", "keys/hospital-1.pem"])


def test_a_file_that_cannot_be_put_in_place_is_a_sentence_and_leaves_nothing(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(ConfigError, match="cannot write .*taken"):
        write_atomically(tmp_path / "taken", b"content", 0o600)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@cache
def wrong_keys() -> dict[str, bytes]:
    """Key files of every kind that does not do."""
    encoding, kind, plain = serialization.Encoding, serialization.PrivateFormat, serialization.NoEncryption()
    good = ed25519.Ed25519PrivateKey.generate()
    pem = good.private_bytes(encoding.PEM, kind.PKCS8, plain)
    locked = serialization.BestAvailableEncryption(b"word")
    return {
        "empty": b"",
        "garbage": bytes(range(256)),
        "cut": pem[:60],
        "certificate": make_identity("a", 1).certificate_pem.encode(),
        "public": good.public_key().public_bytes(encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        "encrypted": good.private_bytes(encoding.PEM, kind.PKCS8, locked),
        "openssh": good.private_bytes(encoding.PEM, kind.OpenSSH, plain),
        "der": good.private_bytes(encoding.DER, kind.PKCS8, plain),
        "rsa": rsa.generate_private_key(65537, 2048).private_bytes(encoding.PEM, kind.PKCS8, plain),
        "ec": ec.generate_private_key(ec.SECP256R1()).private_bytes(encoding.PEM, kind.PKCS8, plain),
        "x25519": x25519.X25519PrivateKey.generate().private_bytes(encoding.PEM, kind.PKCS8, plain),
    }


@pytest.mark.parametrize("name", wrong_keys())
def test_a_key_file_of_a_wrong_kind_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "party.key"
    path.write_bytes(wrong_keys()[name])
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"party\.key.*(keygen|openssl|PASSPHRASE_FILE)") as caught:
        load_key(path)
    assert (caught.value.exit_code, str(caught.value).count("\n")) == (2, 0)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["a pipe", "a folder"])
def test_what_is_no_ordinary_file_is_refused_at_once(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "party.key"
    make(path)
    with pytest.raises(ConfigError, match="cannot read the key .*: expected an ordinary file, it is a (pipe|folder)"):
        load_key(path)
    with pytest.raises(ConfigError, match="cannot read the roster .*: expected an ordinary file"):
        read_text(path, "roster")
    with pytest.raises(ConfigError, match="cannot read the key /dev/zero: expected an ordinary file, it is a device"):
        load_key(Path("/dev/zero"))


def test_a_key_is_no_certificate(tmp_path: Path) -> None:
    saved(tmp_path)
    with pytest.raises(ConfigError, match=r"north\.key holds no certificate: expected the \.pem file of `keygen`"):
        certificate_in(tmp_path / "north.key")


def test_two_certificates_in_one_file_are_refused() -> None:
    pem = make_identity("a", 1).certificate_pem
    assert certificate_bytes(pem, "one.pem")
    with pytest.raises(ConfigError, match=r"both\.pem holds 2 certificates: expected exactly one"):
        certificate_bytes(pem + make_identity("b", 2).certificate_pem, "both.pem")
    with pytest.raises(ConfigError, match=r"same\.pem holds 2 certificates: expected exactly one"):
        certificate_bytes(pem + pem, "same.pem")
