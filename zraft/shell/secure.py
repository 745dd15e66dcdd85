"""Proofs of a client's command and its check of servers: certificates for TLS, and a file of proofs."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from pathlib import Path

from zraft_core.errors import ConfigError


def client_context(
    *, ca: Path | None = None, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """Return a context that verifies servers and their names, against this machine's authorities if no `ca` is given.

    Raises:
        ConfigError: a file cannot be used; the message names the option.
    """
    if key is not None and certificate is None:
        raise ConfigError("--tls-key: given without --tls-certificate, expected both or neither")
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"--tls-ca: {ca} cannot be used, expected certificates in PEM: {error}") from error
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key)
        except OSError as error:
            raise ConfigError(
                f"--tls-certificate: {certificate} with the key in {key or 'the same file'} cannot be used, "
                f"expected PEM: {error}"
            ) from error
    return context


def proofs(lines: Iterable[str], where: str) -> list[tuple[str, bytes]]:
    """Return (scheme, credentials) of each line `scheme:credentials`, such as `digest:peers:s3cret`.

    `#` begins a comment.

    Raises:
        ConfigError: a line is none; it is not quoted, for it may be a password.
    """
    found = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        scheme, colon, credentials = text.partition(":")
        if not colon or not credentials or not (scheme.isalnum() and scheme.isascii()):
            raise ConfigError(
                f"{where}, line {number}: expected SCHEME:CREDENTIALS, such as digest:user:password"
            )
        found.append((scheme, credentials.encode()))
    return found
