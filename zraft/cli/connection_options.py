"""Options that say which servers a command speaks to, whom it trusts, and which certificate it shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

CONNECT_VARIABLE: Final = "ZRAFT_CONNECT"
SERVERS_OF_DEV: Final = "127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183"
"""The addresses at which `zraft dev` listens unless it is told otherwise."""


def connect_option(
    does: str, *, short: tuple[str, ...] = (), metavar: str = "HOST:PORT,…"
) -> Callable[[F], F]:
    """Return the option `--connect`, whose value is in `connect` as text.

    Args:
        does: what a command does with the servers, for the help text.
        short: further names of the option.
        metavar: the form of its value.
    """
    return click.option(
        "connect",
        "--connect",
        *short,
        metavar=metavar,
        default=SERVERS_OF_DEV,
        show_default=True,
        envvar=CONNECT_VARIABLE,
        help=f"{does}  [env: {CONNECT_VARIABLE}]",
    )


def tls_options(trusts: str) -> Callable[[F], F]:
    """Return a decorator that gives a command `tls_ca`, `tls_certificate` and `tls_key`, each a path or None.

    Args:
        trusts: the help text of `--tls-ca`, which says whether the option turns TLS on.
    """

    def decorate(command: F) -> F:
        for name, text in (
            ("--tls-key", "The private key of that certificate."),
            ("--tls-certificate", "The certificate to show to servers, for tls.client_auth=need."),
            ("--tls-ca", trusts),
        ):
            command = click.option(name, metavar="FILE.pem", type=click.Path(path_type=Path), help=text)(
                command
            )
        return command

    return decorate
