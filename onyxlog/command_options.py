"""Options that the commands of `onyxlog` share: the log, the identity, jobs' modules, the event loop."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from attrs import frozen

from onyxlog.access import REFUSED, Access, TlsFiles, read_auth
from onyxlog.errors import OnyxlogError
from onyxlog.peer.log.opening import SESSION_TIMEOUT_S, Service, opener
from onyxlog.peer.log.port import OpenPort
from zraft.program.reaching import nobody_listens
from zraft_core.address import parse_address

R = TypeVar("R")
CONNECT: Final = "127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183"
"""The servers of `zraft dev`: if one of them is down, the others are asked."""
TENANCY: Final = "default"
Command = Callable[..., Any]


@frozen
class LogService:
    """Address of the log, and the identity with which this program connects to it."""

    hosts: str
    """Addresses as HOST:PORT, separated by commas."""
    tenancy: str
    service: Service
    access: Access
    patient: bool = False
    """True to wait for servers that nobody has started yet."""

    def opener(self, *, session_timeout_s: float = SESSION_TIMEOUT_S) -> OpenPort:
        """Return what opens ports there. Unless `patient`, this blocks while it checks that somebody listens.

        Raises:
            ConfigError: as `onyxlog.peer.log.opening.opener`, or --connect is no address.
            OnyxlogError: nobody listens at any address.
        """
        hosts = tuple(parse_address(part, "--connect") for part in self.hosts.split(","))
        found = opener(
            self.service, hosts, self.tenancy, session_timeout_s=session_timeout_s, access=self.access
        )
        if not self.patient and (reasons := nobody_listens(hosts)) is not None:
            raise OnyxlogError(
                f"{reasons}; --connect names the servers, --wait-for-connection waits until they are there"
            )
        return found


def service_options(command: Command) -> Command:
    """Add the options that say where the log is; the command gets them as `log: LogService`."""

    @functools.wraps(command)
    def with_log(
        connect: str,
        tenancy: str,
        service: str,
        auth_file: Path | None,
        tls: bool,
        tls_ca: Path | None,
        tls_certificate: Path | None,
        tls_key: Path | None,
        wait_for_connection: bool,
        **others: Any,
    ) -> Any:
        files = TlsFiles(tls_ca, tls_certificate, tls_key)
        access = Access(
            auth=() if auth_file is None else read_auth(auth_file),
            tls=files if tls or files != TlsFiles() else None,
        )
        log = LogService(connect, tenancy, Service(service), access, wait_for_connection)
        return command(log=log, **others)

    file = click.Path(dir_okay=False, path_type=Path)
    options = (
        click.option(
            "--connect",
            default=CONNECT,
            show_default=True,
            metavar="HOST:PORT,…",
            envvar="ONYXLOG_CONNECT",
            help="The servers of the service that holds the log; one is enough to begin with.",
        ),
        click.option(
            "--tenancy",
            default=TENANCY,
            show_default=True,
            envvar="ONYXLOG_TENANCY",
            help="The log to use: that of one fleet of peers and its jobs.",
        ),
        click.option(
            "--service",
            default=Service.ZRAFT.value,
            show_default=True,
            type=click.Choice([service.value for service in Service]),
            envvar="ONYXLOG_SERVICE",
            help="The kind of the servers; `zookeeper` also works with zraft.",
        ),
        click.option(
            "--auth-file",
            metavar="FILE",
            type=file,
            envvar="ONYXLOG_AUTH_FILE",
            help="Log in with these lines of SCHEME:CREDENTIALS, such as digest:peers:s3cret. Then only those who show the "
            "same may use what is made; without it, everybody who reaches the service may.",
        ),
        click.option(
            "--tls",
            is_flag=True,
            help="Speak TLS; this machine must trust the authority of the servers' certificates.",
        ),
        click.option(
            "--tls-ca",
            metavar="FILE.pem",
            type=file,
            envvar="ONYXLOG_TLS_CA",
            help="Speak TLS, and trust this authority of the servers' certificates.",
        ),
        click.option(
            "--tls-certificate",
            metavar="FILE.pem",
            type=file,
            envvar="ONYXLOG_TLS_CERTIFICATE",
            help="Speak TLS, and show this certificate to servers.",
        ),
        click.option(
            "--tls-key",
            metavar="FILE.pem",
            type=file,
            envvar="ONYXLOG_TLS_KEY",
            help="The private key of that certificate.  [default: in the same file]",
        ),
        click.option(
            "--wait-for-connection",
            is_flag=True,
            help="Go on trying while nobody listens there, instead of saying so at once: `peer` as long as it takes, "
            "the others for 30 seconds.",
        ),
    )
    for option in reversed(options):
        with_log = option(with_log)
    return with_log


def import_option(command: Command) -> Command:
    """Add the option that says where jobs' modules are, for commands that run, submit or check a job."""
    return click.option(
        "--import-from",
        default=".",
        show_default=True,
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False, resolve_path=True),
        help="Look for modules of jobs here, besides Python's own path.",
    )(command)


def import_from_directory(directory: str) -> None:
    """Put a directory on the import path, as `python -m` does and an installed command does not.

    A job names its functions by import path.
    """
    if directory not in sys.path:
        sys.path.insert(0, directory)


def run_in_loop(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine in an event loop of its own and return its result. What the coroutine raises is raised.

    Raises:
        OnyxlogError: the service refused for want of a proof.
    """
    import uvloop

    try:
        with refusal_explained(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(coroutine)
    except KeyboardInterrupt:
        sys.exit(130)


@contextmanager
def refusal_explained() -> Iterator[None]:
    """Say what to do where the service refuses for want of a proof.

    Raises:
        OnyxlogError: it did.
    """
    try:
        yield
    except REFUSED as error:
        raise OnyxlogError(
            f"{error}; this tenancy is closed: expected --auth-file with a line that its peers show too"
        ) from error
