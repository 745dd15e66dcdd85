"""How a program proves who it is to the service that holds the log, and what others may do with the znodes it makes.

Without proof the znodes of a tenancy are open to every client of the service, as ZooKeeper's clients have it; and who
can append to the log can have peers import and call what a job names. With it they are for those with the same ids only.
"""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path
from typing import Any, Final

from attrs import field, frozen

from zraft.shell.secure import client_context, proofs
from zraft_client import AuthFailedError, NoAuthError
from zraft_core.errors import ConfigError

Acl = tuple[tuple[int, str, str], ...]

OPEN_TO_ALL: Final[Acl] = ((31, "world", "anyone"),)
CREATOR_ONLY: Final[Acl] = ((31, "auth", ""),)
"""The service puts the ids of who makes the znode in the place of "auth"."""

REFUSED: Final = (NoAuthError, AuthFailedError)
"""The service's answers to who shows too little: no wait cures them."""

FILE_BYTES_MAX: Final = 64 * 1024


@frozen
class TlsFiles:
    """Certificates as PEM: the authority that signed the servers' (None: this machine's), and a certificate of ours."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@frozen
class Access:
    """`auth`: (scheme, credentials) as addAuth takes them. `tls` None: in the clear."""

    auth: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    tls: TlsFiles | None = None

    @property
    def acl(self) -> Acl | None:
        """Of the znodes that are made; None: the service's default, which is open to all."""
        return CREATOR_ONLY if self.auth else None

    def context(self) -> ssl.SSLContext | None:
        """Raises ConfigError: a file cannot be used."""
        if self.tls is None:
            return None
        return client_context(ca=self.tls.ca, certificate=self.tls.certificate, key=self.tls.key)

    def kazoo_options(self) -> dict[str, Any]:
        """What `KazooClient` takes for the same. Raises ConfigError: TLS without an authority."""
        options: dict[str, Any] = {}
        if self.auth:
            options["auth_data"] = [(scheme, credentials.decode()) for scheme, credentials in self.auth]
        if self.tls is not None:
            if self.tls.ca is None:
                raise ConfigError(
                    "--tls-ca: expected a file, as kazoo does not look for this machine's authorities"
                )
            options |= {"use_ssl": True, "ca": str(self.tls.ca)}
            if self.tls.certificate is not None:
                options["certfile"] = str(self.tls.certificate)
                options["keyfile"] = str(self.tls.key or self.tls.certificate)
        return options


NOBODY: Final = Access()


def read_auth(path: Path) -> tuple[tuple[str, bytes], ...]:
    """A file with a line `scheme:credentials` for each proof, such as `digest:peers:s3cret`.

    Raises:
        ConfigError: it cannot be read, others may read it, or a line is none; never with what it holds.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"--auth-file: {path} cannot be opened: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"--auth-file: expected a regular file, found something else at {path}")
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o077:
            raise ConfigError(
                f"--auth-file: expected {path} to be for its owner only (mode 0600), found mode {mode:04o}; "
                f"run `chmod 600 {path}`"
            )
        text = file.read(FILE_BYTES_MAX + 1)
    found = proofs(text.decode(errors="replace").splitlines(), f"--auth-file: {path}")
    if not found or len(text) > FILE_BYTES_MAX:
        raise ConfigError(
            f"--auth-file: {path}: expected at least one line SCHEME:CREDENTIALS in {FILE_BYTES_MAX} bytes, "
            f"found {len(found)} in {len(text)}"
        )
    return tuple(found)
