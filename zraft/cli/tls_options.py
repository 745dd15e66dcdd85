"""Options of the commands that speak TLS to servers: whom to trust, and which certificate to show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


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
