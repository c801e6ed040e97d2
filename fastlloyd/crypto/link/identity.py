"""Who a party is: an Ed25519 key, its self-signed certificate, and signatures under statements about a run.

The certificate is public and is part of the roster; the key never leaves its owner. People compare certificates by
their fingerprint, over the telephone. Each kind of signed statement has its own label, so that a signature of one kind
is never valid for another.

Source: docs/protocol.md, "Links", "Signed record", "Approval" and "Decisions".
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import stat
import sys
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from getpass import getpass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from fastlloyd.crypto.hidden_file import HiddenFile
from fastlloyd.errors import ConfigError, printable
from fastlloyd.randomness import domains
from fastlloyd.wire.decode import show
from fastlloyd.wire.header import MAX_CLIENTS, PartyId
from fastlloyd.wire.regular import open_regular, read_regular_bytes, replace_file

VALID_DAYS = 3652
_NAME_LENGTH = 64
_MAX_PEM_BYTES = 1 << 16
_ENCRYPTED = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
_PASSPHRASE_BYTES = 1000
PASSPHRASE_VARIABLE = "FASTLLOYD_PASSPHRASE_FILE"  # noqa: S105, a name and no password
"""Names the file with the passphrase of a party's own key, where nobody can be asked."""
_KEY_MODE = 0o600
_CERTIFICATE_MODE = 0o644
SIGNATURE_BYTES = 64
"""Of Ed25519."""
NOT_READABLE = (ValueError, TypeError, KeyError, UnsupportedAlgorithm, x509.InvalidVersion)
"""What the library raises on a certificate, or a part of one, that it cannot read."""
# Characters without a picture (Unicode's Default_Ignorable_Code_Point) that count as printable, and blank ones.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_BLANK = re.compile(r"[\s\u2800]+")
# Letters of Latin's other shapes, Greek, Cyrillic and Armenian that look like a Latin letter in usual fonts.
# Source: Unicode Technical Standard 39, confusables.txt; single letters alone.
_LOOK_ALIKES = str.maketrans(
    "\u0131\u0251\u0261\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    "\u03b1\u03b9\u03bd\u03bf\u03c1\u03c5\u0405\u0406\u0408\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420"
    "\u0421\u0422\u0423\u0425\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458\u0475\u04bb\u04cf"
    "\u0501\u050c\u051a\u051b\u051c\u051d\u054f\u0555\u0566\u0570\u0578\u057d\u0581\u0585",
    "iagABEZHIKMNOPTYXaivopuSIJABEKMHOPCTYXaeopcyxsijvhldGQqWwSOqhnugo",
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Identity:
    """A party's name, certificate and private key.

    Attributes
    ----------
    name : str
    certificate_der : bytes
        The public certificate.
    key : Ed25519PrivateKey
        Secret; stays out of `repr`.
    """

    name: str
    certificate_der: bytes
    key: Ed25519PrivateKey

    def __repr__(self) -> str:
        return f"Identity({self.name!r}, fingerprint={fingerprint(self.certificate_der)!r})"

    @property
    def certificate_pem(self) -> str:
        """The certificate as text."""
        return ssl.DER_cert_to_PEM_cert(self.certificate_der)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Load key and certificate into an SSL context.

        Sees: nobody but this process; outside Linux, for a moment, a file of its user alone (`HiddenFile`).
        """
        # `ssl` reads keys from a path only.
        file = HiddenFile()
        try:
            with os.fdopen(os.dup(file.descriptor), "wb") as copy:
                copy.write(_key_pem(self.key) + self.certificate_pem.encode())
            context.load_cert_chain(file.path)
        finally:
            file.close()


def make_identity(name: str, rank: int | None = None) -> Identity:
    """Make a fresh key and its self-signed certificate.

    The subject contains a random number, because two pinned certificates with one subject confuse OpenSSL.
    It is no CA: a pinned CA would admit the certificates that it signs.

    Parameters
    ----------
    name : str
        Printable, at most 64 characters, no slash.
    rank : int, optional
        The party's rank, noted in the certificate; the roster decides.

    Raises
    ------
    ConfigError
        The name or rank is not valid.
    """
    check_name(name)
    if rank is not None and not 0 <= rank <= MAX_CLIENTS:
        raise ConfigError(f"expected the rank 0 (server) or 1 to {MAX_CLIENTS} (clients), got {show(rank)}")
    key = Ed25519PrivateKey.generate()
    number = x509.random_serial_number()
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if rank is not None:
        subject.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, f"rank {rank}"))
    subject.append(x509.NameAttribute(NameOID.SERIAL_NUMBER, f"{number:x}"))
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(x509.Name(subject))
        .public_key(key.public_key())
        .serial_number(number)
        .not_valid_before(now - timedelta(days=1))  # clocks of two sites may differ by hours
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, None)
    )
    return Identity(name, certificate.public_bytes(serialization.Encoding.DER), key)


def check_name(name: str) -> None:
    """Refuse a name that is not valid in a certificate, a roster and a file name.

    Raises
    ------
    ConfigError
        The name is not valid; describes valid names.
    """
    if not (1 <= len(name) <= _NAME_LENGTH and name.isprintable() and name == name.strip() and visible(name)):
        raise ConfigError(f"expected a name of 1 to {_NAME_LENGTH} printable characters, got {show(name)}")
    if "/" in name or name[0] in ".-":
        raise ConfigError(f"a name has no '/' and starts with neither '.' nor '-', got {name!r}")


def visible(name: str) -> str:
    r"""Return what people see of a name: equal for two that differ in invisible characters, spaces or form alone.

    Examples
    --------
    >>> visible("north\ufe0f  clinic") == visible("north clinic"), visible("m\u00fcller") == visible("mu\u0308ller")
    (True, True)
    """
    # Normalization maps some of them to others, so that they are removed before and after.
    shown = _INVISIBLE.sub("", unicodedata.normalize("NFKC", _INVISIBLE.sub("", name)))
    return _BLANK.sub(" ", shown).strip()


def look(name: str) -> str:
    r"""Return how a name looks: equal for two that differ in case, or in look-alike letters of other scripts, alone.

    Not found: letters that are merely similar (l and 1), pairs of letters that look like one (rn and m), other
    scripts than Greek, Cyrillic and Armenian, and their letters that look the same only in the other case.

    Examples
    --------
    >>> look("N\u043erth") == look("north"), look("m\u00fcller") == look("muller")
    (True, False)
    """
    return unicodedata.normalize("NFD", visible(name)).translate(_LOOK_ALIKES).casefold()


def group_hex(digest: bytes) -> str:
    """Format a digest as hex in groups of four, to be read aloud."""
    return digest.hex(" ", 2)


def fingerprint(certificate_der: bytes) -> str:
    """Return the SHA-256 of a certificate in groups of four hex digits."""
    return group_hex(hashlib.sha256(certificate_der).digest())


def refused_certificate(why: str) -> str:
    """Return what OpenSSL refused a certificate for, and what to do: never to trust what came instead.

    Parameters
    ----------
    why : str
        OpenSSL's own words.
    """
    if "expired" in why or "not yet valid" in why:
        clock = f"this machine's clock says {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        return (
            f"({f'{why}; {clock}' if 'expired' in why else f'{clock}; {why}'}): set the clock that is wrong, "
            "here or there; if both are right, its owner makes a new key with `fastlloyd keygen`"
        )
    return (
        f"({why}): it is not the one on the roster. Something on the way may look into TLS, such as an inspecting "
        "proxy: ask for an exception from inspection. Only if its owner confirms a new fingerprint by telephone, "
        "`fastlloyd roster add --replace`"
    )


def named_in(certificate_der: bytes) -> tuple[str | None, int | None]:
    """Return the name and the rank in a certificate; None for what it lacks.

    Raises
    ------
    ConfigError
        These bytes are no certificate.
    """
    try:
        subject = parse_certificate(certificate_der).subject
    except NOT_READABLE as error:
        raise ConfigError(
            "expected a certificate as `fastlloyd keygen` makes it, got one with an unreadable name"
        ) from error
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    units = subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    rank = str(units[0].value).removeprefix("rank ") if units else ""
    known = rank.isascii() and rank.isdigit() and len(rank) <= len(str(MAX_CLIENTS))
    return (str(names[0].value) if names else None), (int(rank) if known else None)


def parse_certificate(certificate_der: bytes) -> x509.Certificate:
    """Parse a certificate.

    Raises
    ------
    ConfigError
        These bytes are no certificate.
    """
    try:
        return x509.load_der_x509_certificate(certificate_der)
    except NOT_READABLE as error:
        raise ConfigError("expected an X.509 certificate as `fastlloyd keygen` makes it") from error


def ed25519_key(certificate: x509.Certificate) -> Ed25519PublicKey | None:
    """Return the key of a certificate, which may be anybody's; None if it has another kind of key, or none at all."""
    try:
        key = certificate.public_key()
    except NOT_READABLE:
        return None
    return key if isinstance(key, Ed25519PublicKey) else None


def certificate_bytes(pem: str, source: str) -> bytes:
    """Turn the PEM text of one certificate into DER bytes.

    Raises
    ------
    ConfigError
        No certificate, or more than one, in `source`.
    """
    try:
        certificates = x509.load_pem_x509_certificates(pem.encode())
    except NOT_READABLE as error:
        raise ConfigError(f"{source} holds no certificate: expected the .pem file of `keygen`") from error
    if len(certificates) != 1:
        raise ConfigError(
            f"{source} holds {len(certificates)} certificates: expected exactly one; give each party its own file"
        )
    return certificates[0].public_bytes(serialization.Encoding.DER)


def save_identity(
    identity: Identity,
    key_path: Path,
    certificate_path: Path,
    *,
    force: bool = False,
    passphrase: bytes | None = None,
) -> None:
    """Write the key (mode 0600), encrypted if there is a passphrase, and the certificate as PEM files.

    Raises
    ------
    ConfigError
        A file is there already and `force` is false, or it cannot be written.
    """
    for path in (key_path, certificate_path):
        if not force and os.path.lexists(path):
            raise ConfigError(f"{path} exists already: choose another name, or --force to replace it")
    write_atomically(key_path, _key_pem(identity.key, passphrase), _KEY_MODE)
    write_atomically(certificate_path, identity.certificate_pem.encode(), _CERTIFICATE_MODE)


def load_key(path: Path, passphrase_file: str | None = None) -> Ed25519PrivateKey:
    """Read a private key file; of an encrypted one the passphrase is in a file, or the person at the terminal is asked.

    Parameters
    ----------
    path : Path
    passphrase_file : str, optional
        By default the file that the environment names, if it names one.

    Raises
    ------
    ConfigError
        The file is missing, open to others, or no Ed25519 key; the passphrase is wrong, or nobody can be asked.
    """
    try:
        with open_regular(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MAX_PEM_BYTES)
            if content.startswith(b"-----BEGIN CERTIFICATE-----"):
                raise ConfigError(
                    f"{path} is a certificate, which everybody may have: expected the .key file of `keygen`"
                )
            if stat.S_IMODE(mode) & 0o077:
                raise ConfigError(f"others may read the key {path}: run `chmod 600 {path}`")
    except OSError as error:
        raise ConfigError(f"cannot read the key {path}: {error.strerror}; see `fastlloyd keygen`") from error
    passphrase = _passphrase_of(path, passphrase_file) if content.startswith(_ENCRYPTED) else None
    try:
        key = serialization.load_pem_private_key(content, password=passphrase)
    except TypeError:
        raise ConfigError(
            f"the key {path} is encrypted in an old form: expected PKCS 8, as `openssl pkey -aes256 -in {path} -out "
            "NEW` writes it (then `chmod 600 NEW`)"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        # Not chained: the parser's message may describe the key.
        if passphrase is not None:
            raise ConfigError(f"the passphrase does not open the key {path}: expected that of `keygen`") from None
        raise ConfigError(f"{path} holds no readable private key: expected the .key file of `keygen`") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"the key {path} is not an Ed25519 key: make one with `fastlloyd keygen`")
    return key


def _passphrase_of(path: Path, passphrase_file: str | None) -> bytes:
    """Return the passphrase of a key, from a file or from the person at the terminal."""
    named = passphrase_file or os.environ.get(PASSPHRASE_VARIABLE)
    if named:
        return read_passphrase(Path(named))
    return ask_passphrase(
        f"Passphrase of {path}: ",
        f"the key {path} is encrypted and nobody can be asked: put its passphrase into a "
        f"file of mode 600 and name it: --passphrase-file FILE, passphrase_file in the site's own file, or "
        f"{PASSPHRASE_VARIABLE}",
    )


def ask_passphrase(prompt: str, nobody: str) -> bytes:
    """Ask the person at the terminal for a passphrase, which is not shown.

    Raises
    ------
    ConfigError
        There is no terminal (`nobody`), or the passphrase is empty or too long.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError(nobody)
    try:
        return _checked_passphrase(getpass(printable(prompt)).encode(errors="surrogateescape"), "the passphrase")
    except EOFError:
        raise ConfigError(nobody) from None


def read_passphrase(path: Path) -> bytes:
    """Read a passphrase: the first line of a file that its owner alone may read.

    Raises
    ------
    ConfigError
        The file is missing or open to others, or the passphrase is empty or too long.
    """
    try:
        with open_regular(path) as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise ConfigError(f"others may read the passphrase in {path}: run `chmod 600 {path}`")
            line = file.read(_MAX_PEM_BYTES).partition(b"\n")[0].removesuffix(b"\r")
    except OSError as error:
        raise ConfigError(
            f"cannot read the passphrase file {path}: {error.strerror}; name the file that holds it"
        ) from error
    return _checked_passphrase(line, f"the passphrase in {path}")


def _checked_passphrase(passphrase: bytes, what: str) -> bytes:
    """Refuse what the library does not take; the passphrase itself is never shown."""
    if not 1 <= len(passphrase) <= _PASSPHRASE_BYTES:
        raise ConfigError(f"{what} has {len(passphrase)} bytes: expected 1 to {_PASSPHRASE_BYTES}")
    return passphrase


def read_text(path: Path, what: str, most_bytes: int = _MAX_PEM_BYTES) -> str:
    """Read a small text file.

    Raises
    ------
    ConfigError
        It is missing, not text, or longer than `most_bytes`.
    """
    try:
        content = read_regular_bytes(path, most_bytes + 1)
        if len(content) > most_bytes:
            raise ConfigError(
                f"the {what} {path} is too long; expected at most {most_bytes} bytes, as fastlloyd wrote it"
            )
        return content.decode()
    except OSError as error:
        raise ConfigError(f"cannot read the {what} {path}: {error.strerror}; check path and rights") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the {what} {path} is no text file; expected it as fastlloyd wrote it") from error


def write_atomically(path: Path, content: bytes, mode: int) -> None:
    """Write a file atomically.

    Raises
    ------
    ConfigError
        The folder is missing or closed.
    """
    try:
        replace_file(path, [content], mode=mode)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; check path, rights and room") from error


def _key_pem(key: Ed25519PrivateKey, passphrase: bytes | None = None) -> bytes:
    """Encode a key as PKCS 8, encrypted if there is a passphrase."""
    how = serialization.NoEncryption() if passphrase is None else serialization.BestAvailableEncryption(passphrase)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)


def sign(identity: Identity, statement: bytes, label: bytes = domains.SIGNED_RECORD) -> bytes:
    """Return the signature of a statement, 64 bytes; `label` is the kind of statement."""
    return sign_with(identity.key, statement, label)


def sign_with(key: Ed25519PrivateKey, statement: bytes, label: bytes) -> bytes:
    """Return the signature of a statement by a bare key, as `sign` does."""
    # TLS 1.3 uses the same key, but what it signs begins with 64 spaces, not with a label.
    return key.sign(label + statement)


def verifies(certificate_der: bytes, statement: bytes, signature: bytes, label: bytes = domains.SIGNED_RECORD) -> bool:
    """Whether the signature is of the certificate's key, under this statement.

    Raises
    ------
    ConfigError
        These bytes are no certificate.
    """
    key = _raw_key(certificate_der)
    return key is not None and verifies_with(key, statement, signature, label)


@lru_cache(maxsize=1024)
def _raw_key(certificate_der: bytes) -> bytes | None:
    """Return a certificate's Ed25519 key; None if it has another. A run checks many signatures of few certificates."""
    key = ed25519_key(parse_certificate(certificate_der))
    return None if key is None else key.public_bytes_raw()


def verifies_with(public_key: bytes, statement: bytes, signature: bytes, label: bytes) -> bool:
    """Whether the signature is of this key, the 32 bytes of an Ed25519 public key, under this statement.

    Raises
    ------
    ValueError
        These bytes are no key.
    """
    key = Ed25519PublicKey.from_public_bytes(public_key)
    try:
        key.verify(signature, label + statement)
    except InvalidSignature:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Credentials:
    """A party's signing key and the certificates of all; without a roster nothing is signed.

    Attributes
    ----------
    identity : Identity or None
        None without a roster.
    certificates : mapping from PartyId to DER bytes
        The roster's.
    """

    identity: Identity | None = None
    certificates: Mapping[PartyId, bytes] = field(default_factory=dict, repr=False)

    @property
    def authentic(self) -> bool:
        """Whether signatures mean anything."""
        return self.identity is not None

    def sign(self, statement: bytes, label: bytes) -> bytes:
        """Return this party's signature, 64 bytes; zeros without a roster."""
        return bytes(SIGNATURE_BYTES) if self.identity is None else sign(self.identity, statement, label)

    def signed(self, party: PartyId, statement: bytes, signature: bytes, label: bytes) -> bool:
        """Whether a party has signed a statement; without a roster everything counts as signed."""
        return not self.authentic or verifies(self.certificates[party], statement, signature, label)
