"""Options of the commands that are clients of a cluster: its servers, TLS, and whom they show themselves as."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from attrs import frozen

from zraft.cli.connection_options import connect_option, tls_options
from zraft_core.errors import ConfigError

if TYPE_CHECKING:
    import ssl

    from zraft_client.client import Client

SECONDS: Final = click.FloatRange(0.1, 3600)
TIMEOUT_S: Final = 30.0
"""How long one request may take unless the user says otherwise."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@frozen
class Access:
    """Way of a command to the servers.

    Attributes:
        connect: HOST:PORT,… of the servers.
        auth: (scheme, credentials) pairs to show.
        tls: the context, if they speak TLS.
        timeout_s: how long one request may take.
    """

    connect: str
    auth: tuple[tuple[str, bytes], ...]
    tls: ssl.SSLContext | None
    timeout_s: float

    def client(self, *, session: bool = True, session_timeout_s: float | None = None) -> Client:
        """Return a client that is not connected yet. Without a `session` it can have nothing ephemeral."""
        from zraft_client.client import SESSION_TIMEOUT_S, Client

        return Client(
            self.connect,
            session=session,
            session_timeout_s=SESSION_TIMEOUT_S if session_timeout_s is None else session_timeout_s,
            auth=self.auth,
            tls=self.tls,
            timeout_s=self.timeout_s,
        )


@frozen
class Identity:
    """Whom a command shows itself as to servers, and whether over TLS; the same as in `Access`."""

    auth: tuple[tuple[str, bytes], ...]
    tls: ssl.SSLContext | None


def is_client(command: F) -> F:
    """Give a click command the options of clients, and an `access` made of them."""

    @connects
    @shows_identity
    @click.option(
        "--timeout",
        metavar="SECONDS",
        default=TIMEOUT_S,
        show_default=True,
        type=SECONDS,
        help="How long one request may take.",
    )
    @functools.wraps(command)
    def with_access(connect: str, identity: Identity, timeout: float, **arguments: Any) -> Any:
        access = Access(connect, identity.auth, identity.tls, timeout)
        return command(access=access, **arguments)

    return with_access  # type: ignore[return-value]


def connects(command: F) -> F:
    """Give a click command the option that names the servers, as `connect`."""
    return connect_option("The servers: any that answers is enough.")(command)


def shows_identity(command: F) -> F:
    """Give a click command the options that say whom it shows itself as, as `identity`."""

    @click.option(
        "--auth",
        metavar="SCHEME:CREDENTIALS",
        multiple=True,
        envvar="ZRAFT_AUTH",
        help="Whom to show oneself as, such as digest:anna:secret; may be repeated.  [env: ZRAFT_AUTH]",
    )
    @click.option("--tls", is_flag=True, help="Speak TLS; any of the following options means it, too.")
    @tls_options("The authorities that sign servers' certificates.")
    @functools.wraps(command)
    def with_identity(
        auth: tuple[str, ...],
        tls: bool,
        tls_ca: Path | None,
        tls_certificate: Path | None,
        tls_key: Path | None,
        **arguments: Any,
    ) -> Any:
        context = None
        if tls or tls_ca or tls_certificate or tls_key:
            from zraft.shell.secure import client_context

            context = client_context(ca=tls_ca, certificate=tls_certificate, key=tls_key)
        identity = Identity(tuple(map(_credentials, auth)), context)
        return command(identity=identity, **arguments)

    return with_identity  # type: ignore[return-value]


def _credentials(text: str) -> tuple[str, bytes]:
    scheme, colon, credentials = text.partition(":")
    if not scheme or not colon:
        raise ConfigError("--auth: found no scheme, expected SCHEME:CREDENTIALS such as digest:anna:secret")
    return scheme, credentials.encode()


def run(program: Coroutine[Any, Any, T]) -> T:
    """Run a command's program to its end. Ctrl-C ends it without a traceback, with exit code 130."""
    try:
        return asyncio.run(program)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
