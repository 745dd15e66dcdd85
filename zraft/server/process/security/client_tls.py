"""TLS of one server's clients: which certificate is in force, how many handshakes go on, and whom a certificate names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from zraft.config.server import ServerConfig
from zraft.server.process.security.certificates import (
    Certificates,
    certificate_files,
    load_certificates,
    refuse_expired,
    utc_now,
)
from zraft.server.process.security.distinguished_name import subject_name
from zraft.server.process.security.handshakes import Handshakes, Handshaking
from zraft.server.process.security.reloading import Reloading
from zraft.server.process.security.tls import TlsStream

REMIND_EVERY: Final = timedelta(days=1)

Ids = tuple[tuple[str, str], ...]

log = structlog.get_logger()


class ClientTls:
    """State that client connections need for TLS.

    Connections that stand keep the certificate they began with.
    """

    def __init__(self, config: ServerConfig, clock: Callable[[], float]) -> None:
        """Read the files.

        Raises:
            ConfigError: one cannot be used.
        """
        tls = config.tls
        self.handshakes = Handshakes(tls.handshakes_max, clock)
        self.established_total = 0
        self.failed_total = 0
        self._super_user = config.auth.x509_super_user
        self._file = tls.certificate
        self._reminded: datetime | None = None

        def load(before: Certificates | None) -> Certificates:
            found = load_certificates(tls)
            if before is not None:
                refuse_expired(found, utc_now(), tls.certificate)
            return found

        self.certificates: Reloading[Certificates] = Reloading(
            "certificate for clients", certificate_files(tls), load
        )

    def begin(self, one: Handshaking, address: str) -> TlsStream | None:
        """Begin TLS of a new connection, with the certificate of now.

        None if too many handshakes are under way.
        """
        return TlsStream(self.certificates.value.context) if self.handshakes.begin(one, address) else None

    @property
    def metrics(self) -> dict[str, int | float | str]:
        """Metrics for mntr; the first two have ZooKeeper's names."""
        return {
            "outstanding_tls_handshake": len(self.handshakes),
            "tls_handshake_exceeded": self.handshakes.exceeded_total,
            "tls_handshakes_total": self.established_total,
            "tls_handshakes_failed_total": self.failed_total,
            "tls_reloads_failed_total": self.certificates.failures_total,
        }

    @property
    def certificate_ends_s(self) -> float:
        """The end of the certificate in force, in seconds since 1970."""
        return self.certificates.value.not_after.timestamp()

    def remind(self, now: datetime) -> None:
        """Say once a day that the certificate ends soon, or has. Cheap; call it every now and then."""
        complaint = self.certificates.value.complaint(now)
        if complaint is None:
            self._reminded = None
        elif self._reminded is None or now - self._reminded >= REMIND_EVERY:
            self._reminded = now
            log.warning(
                f"certificate for clients {complaint}",
                file=str(self._file),
                serial=f"{self.certificates.value.serial:x}",
                knob="tls.certificate",
            )

    def ids_of(self, certificate: bytes | None) -> Ids:
        """Return the identities that a verified client certificate (DER) gives.

        They are its subject, and perhaps the super user.

        Raises:
            ProtocolError: its subject cannot be written down.
        """
        if certificate is None:
            return ()
        name = subject_name(certificate)
        if not name:
            return ()  # all certificates without a subject would be one user
        ids: Ids = (("x509", name),)
        return (*ids, ("super", "")) if name == self._super_user else ids
