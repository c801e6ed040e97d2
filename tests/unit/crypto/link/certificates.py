"""Certificates that `keygen` would never make."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from fastlloyd.crypto.link.identity import Identity


def forge(
    name: str = "forged",
    *,
    authority: bool | None = False,
    issuer: Identity | None = None,
    subject: x509.Name | None = None,
    days: tuple[float, float] = (-1, 10),
) -> Identity:
    """Make a certificate with any of its properties wrong; `authority` None leaves the extension out."""
    key = Ed25519PrivateKey.generate()
    subject = subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else subject_of(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
    )
    if authority is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    certificate = builder.sign(key if issuer is None else issuer.key, None)
    return Identity(name, certificate.public_bytes(Encoding.DER), key)


def subject_of(identity: Identity) -> x509.Name:
    """Return the subject of a certificate."""
    return x509.load_der_x509_certificate(identity.certificate_der).subject
