"""TLS as a client speaks it: which authority signed the servers' certificates, and which certificate is ours."""

from __future__ import annotations

import ssl
from pathlib import Path

from zraft.errors import ConfigError


def client_context(
    *, ca: Path | None = None, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """Servers are verified, their names too; against this machine's authorities if no `ca` is given.

    Raises:
        ConfigError: a file cannot be used; names the option.
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
