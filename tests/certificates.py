"""Certificates for tests, made on the spot: an authority, servers and clients signed by it, and their PEM files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

HOST = "127.0.0.1"


def subject_of(**parts: str) -> x509.Name:
    """`subject_of(O="z", CN="client")`: the certificate's order, which is general to specific."""
    oids = {"C": NameOID.COUNTRY_NAME, "O": NameOID.ORGANIZATION_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME}
    return x509.Name(
        [x509.NameAttribute(oids.get(part, NameOID.COMMON_NAME), value) for part, value in parts.items()]
    )


class Signed:
    """A certificate and its key."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.certificate = certificate
        self.key = key

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def key_pem(self, passphrase: bytes | None = None) -> bytes:
        how = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """`name`.crt and `name`.key (mode 0600) in `directory`."""
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        certificate.write_bytes(self.pem)
        key.touch(mode=0o600)
        key.write_bytes(self.key_pem())
        return certificate, key


class Authority:
    """Signs certificates for as long as a test needs them."""

    def __init__(self, name: str = "test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = subject_of(CN=name)
        self.certificate = self._sign(self._subject, self._key, days=30, authority=True)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def write(self, directory: Path, name: str = "ca") -> Path:
        path = directory / f"{name}.pem"
        path.write_bytes(self.pem)
        return path

    def issue(self, subject: x509.Name | None = None, *, days: float = 30) -> Signed:
        """A certificate for 127.0.0.1 and localhost, good as a client's, too; negative `days`: it is over."""
        key = ec.generate_private_key(ec.SECP256R1())
        return Signed(
            self._sign(
                subject_of(CN="server") if subject is None else subject, key, days=days, authority=False
            ),
            key,
        )

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: float, authority: bool
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=60))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            # Without these three, clients on Python 3.13 or newer trust none.
            .add_extension(_usage(authority=authority), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if not authority:
            names = [x509.IPAddress(ip_address(HOST)), x509.DNSName("localhost")]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _usage(*, authority: bool) -> x509.KeyUsage:
    """Return the key usage of an authority, which signs certificates, or of a party, which proves who speaks."""
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
