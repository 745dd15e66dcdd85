"""Identity of a program towards the service that holds the log, and access to the znodes that it creates.

Without a proof the znodes of a tenancy are open to every client of the service, as they are in ZooKeeper.
Whoever can append to the log can then make peers import and call the functions that a job names. With a proof
the znodes are open only to programs that show the same ids.
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
"""The service replaces "auth" with the ids of the program that creates the znode."""

REFUSED: Final = (NoAuthError, AuthFailedError)
"""Answers of the service to a program that lacks a proof. Waiting does not help."""

FILE_BYTES_MAX: Final = 64 * 1024


@frozen
class TlsFiles:
    """PEM files: the authority that signed the servers' certificates (None: this machine's), and our own certificate."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@frozen
class Access:
    """Credentials of a program.

    `auth` has (scheme, credentials) as addAuth takes them; `tls` None is plain text.
    """

    auth: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    tls: TlsFiles | None = None

    @property
    def acl(self) -> Acl | None:
        """The ACL for znodes that are created; None for the service's default, which is open to all."""
        return CREATOR_ONLY if self.auth else None

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None without TLS.

        Raises:
            ConfigError: a file cannot be used.
        """
        if self.tls is None:
            return None
        return client_context(ca=self.tls.ca, certificate=self.tls.certificate, key=self.tls.key)

    def kazoo_options(self) -> dict[str, Any]:
        """Return the arguments with which `KazooClient` does the same.

        Raises:
            ConfigError: TLS is asked for without an authority.
        """
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
    """Read a file that has one line `scheme:credentials` for each proof, such as `digest:peers:s3cret`.

    Raises:
        ConfigError: the file cannot be read, others may read it, or a line is not a proof. The message
            never shows the file's content.
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
