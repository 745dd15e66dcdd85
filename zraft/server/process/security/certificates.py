"""Certificate and key of this server, and the authorities of its clients: from PEM files to a TLS context.

Everything is read and checked before anything is used, so that a file that is broken, or half written, is told of by
name and changes nothing. What parses certificates is imported when there is one: most servers of a cluster under
development have none, and it takes a twentieth of their start.
"""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import field, frozen

from zraft.config.sections import TlsConfig
from zraft.server.process.security.secret_file import read_secret_file
from zraft_core.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

EXPIRY_WARNING: Final = timedelta(days=14)

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "want": ssl.CERT_OPTIONAL, "need": ssl.CERT_REQUIRED}


@frozen
class Certificates:
    """A context to accept TLS with, and what to tell an operator about its certificate."""

    context: ssl.SSLContext = field(repr=False, eq=False)
    serial: int
    not_before: datetime
    not_after: datetime

    def complaint(self, now: datetime) -> str | None:
        """Return a complaint if the certificate has ended, has not begun or will end soon; else None."""
        if now >= self.not_after:
            return f"expired at {self.not_after:%Y-%m-%d %H:%M} UTC"
        if now < self.not_before:
            return f"not valid before {self.not_before:%Y-%m-%d %H:%M} UTC"
        if now >= self.not_after - EXPIRY_WARNING:
            return f"expires at {self.not_after:%Y-%m-%d %H:%M} UTC"
        return None


def certificate_files(config: TlsConfig) -> tuple[Path, ...]:
    """Return the files that `load_certificates` reads."""
    return tuple(path for path in (config.certificate, config.key, config.client_ca) if path is not None)


def load_certificates(config: TlsConfig) -> Certificates:
    """Read and check them all. Blocks; a large file of authorities takes tens of milliseconds.

    Raises:
        ConfigError: a file is missing, open to others, no PEM, or certificate and key do not belong together.
    """
    assert config.certificate is not None, "there is no TLS without a certificate"
    certificate = _read(config.certificate, "tls.certificate")
    key_file = config.key or config.certificate
    key_knob = "tls.certificate" if config.key is None else "tls.key"
    key = read_secret_file(key_file, key_knob)
    if b"PRIVATE KEY-----" not in key:
        raise ConfigError(
            f"{key_knob}: {key_file} holds no private key in PEM"
            + ("; set tls.key, or put the key into this file, too" if config.key is None else "")
        )
    leaf = _leaf(certificate, config.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[config.version_min]
    # A client that could ask for handshakes again and again would get them past the bounds on handshakes.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # TLS 1.3 sessions are not resumed: each connection shows its certificate anew. With TLS 1.2 the client keeps the
    # session (a ticket); were tickets off, OpenSSL would keep twenty thousand of them here.
    context.num_tickets = 0
    if config.ciphers is not None:
        try:
            context.set_ciphers(config.ciphers)
        except ssl.SSLError as error:
            raise ConfigError(
                f"tls.ciphers: OpenSSL knows none of the ciphers in {config.ciphers!r}; see `openssl ciphers -v`"
            ) from error
    try:
        # Without a password given, OpenSSL would ask for one on the terminal, and wait.
        context.load_cert_chain(config.certificate, key_file, password=b"")
    except ssl.SSLError as error:
        raise ConfigError(_pair_complaint(config.certificate, key_file, key_knob, key, error)) from error
    except OSError as error:
        raise ConfigError(
            f"tls.certificate: cannot read {config.certificate}: {error.strerror or error}"
        ) from error
    if config.client_ca is not None:
        authorities = _read(config.client_ca, "tls.client_ca")
        try:
            context.load_verify_locations(cadata=_certificates_only(authorities))
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"tls.client_ca: {config.client_ca} holds no certificate in PEM that can be read: {error}"
            ) from error
    context.verify_mode = _CLIENT_AUTH[config.client_auth]
    return Certificates(
        context,
        leaf.serial_number,
        leaf.not_valid_before_utc,
        leaf.not_valid_after_utc,
    )


def refuse_expired(new: Certificates, now: datetime, file: Path | None) -> None:
    """Refuse a certificate that is over, since it must not replace one that works.

    Raises:
        ConfigError: it is over.
    """
    if now >= new.not_after:
        raise ConfigError(f"tls.certificate: the one in {file} {new.complaint(now)}")


def utc_now() -> datetime:
    """Return the present time."""
    return datetime.now(UTC)


def _read(path: Path, knob: str) -> bytes:
    try:
        # O_NONBLOCK: see secret_file
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{knob}: cannot read {path}: {error.strerror}") from error


def _leaf(pem: bytes, path: Path) -> Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(pem)[0]
    except ValueError as error:
        raise ConfigError(f"tls.certificate: {path} holds no certificate in PEM that can be read") from error


def _certificates_only(pem: bytes) -> str:
    """Return the certificates of a PEM file; text between them, in whatever encoding, is nobody's business."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    found = x509.load_pem_x509_certificates(pem)
    return "".join(one.public_bytes(Encoding.PEM).decode("ascii") for one in found)


def _pair_complaint(certificate: Path, key_file: Path, knob: str, key: bytes, error: ssl.SSLError) -> str:
    if b"ENCRYPTED" in key:
        return (
            f"{knob}: the private key in {key_file} is encrypted; store it without a passphrase, mode 0600 "
            "(`openssl pkey -in OLD -out NEW`)"
        )
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{knob}: the private key in {key_file} does not belong to the certificate in {certificate}"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return f"tls.certificate, tls.key: OpenSSL takes {certificate} and {key_file} not together: {reason}"
