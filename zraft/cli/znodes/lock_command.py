"""The command `zraft lock`: a command that runs while it holds a lock, on one machine at a time.

The recipe is `zraft_client.recipes.Lock`. Here is what it takes to run a process under it: signals, exit codes, and when
the lock must be taken for lost although no server could say so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from zraft.cli.client_options import SECONDS, TIMEOUT_S, Access, Identity, connects, shows_identity
from zraft.cli.znodes.znode_access import ROOT, connected_with, require_listener, znode_path
from zraft.program.parent_death import dies_with_parent
from zraft_core.errors import ConfigError

if TYPE_CHECKING:
    from zraft_client.client import Client
    from zraft_client.recipes import Lock

EXIT_NOT_ACQUIRED: Final = 124
"""The lock was not acquired within --timeout, as `timeout` of coreutils has it."""
EXIT_LOST: Final = 125
EXIT_CANNOT_RUN: Final = 126
EXIT_NOT_FOUND: Final = 127
EXIT_SIGNAL: Final = 128
"""Added to the number of the signal that ended the command."""
SESSION_TIMEOUT_S: Final = 10.0
RELEASE_S: Final = 3.0
PATIENCE: Final = 5 / 6
"""The share of the session timeout without a server after which the lock counts as lost.

The rest is for the command to end before others hold the lock.
"""
ONCE_S: Final = 5.0
"""How long `--timeout 0` may take for a lock that was free: a few round trips."""
TOKEN_VARIABLE: Final = "ZRAFT_LOCK_TOKEN"
PATH_VARIABLE: Final = "ZRAFT_LOCK_PATH"


@click.command(
    short_help="Run a command while it holds a lock.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("path")
@click.argument("command", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@connects
@shows_identity
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(0, 31_536_000),
    help="How long to wait for the lock; 0 tries once.  [default: as long as it takes]",
)
@click.option(
    "--session-timeout",
    metavar="SECONDS",
    default=SESSION_TIMEOUT_S,
    show_default=True,
    type=SECONDS,
    help="How long the servers keep the lock for a machine that they do not hear any more.",
)
def lock(
    path: str,
    command: tuple[str, ...],
    connect: str,
    identity: Identity,
    timeout: float | None,
    session_timeout: float,
) -> None:
    """Wait for the lock PATH, run COMMAND while it is held, and give the lock back.

    \b
        zraft lock /locks/backup ./backup.sh
        zraft lock --timeout 0 /locks/nightly make report || echo "it runs elsewhere"

    Options stand before PATH. Whoever comes first holds the lock first. The command finds the lock's fencing token, a number
    that grows with every holder, in ZRAFT_LOCK_TOKEN: whatever the lock protects should refuse lower ones than it has seen.

    If the lock is lost, because the session expired or no server was heard for five sixths of --session-timeout, COMMAND
    gets SIGTERM, and this command ends when it has ended. SIGTERM, SIGINT and SIGHUP to this command are passed on. If this
    command dies, even by SIGKILL, the kernel ends COMMAND by SIGKILL (on Linux only, and without what COMMAND started).

    \b
    Exit code: that of COMMAND, 128 + N if signal N ended it, or
        124  the lock was not free within --timeout
        125  the lock was lost while the command ran
        126  COMMAND cannot be run
        127  there is no such COMMAND
        1    no server could be reached, or it was refused
        2    the command line is wrong
    """
    path = znode_path(path)
    if path == ROOT:
        raise ConfigError(
            "PATH: / cannot be a lock; expected the path of a znode below it, such as /locks/backup"
        )
    access = Access(connect, identity.auth, identity.tls, TIMEOUT_S)
    try:
        require_listener(access)
        sys.exit(asyncio.run(_until_terminated(_lock(access, path, command, timeout, session_timeout))))
    except KeyboardInterrupt:
        sys.exit(EXIT_SIGNAL + signal.SIGINT)


async def _until_terminated(lock: Coroutine[Any, Any, int]) -> int:
    """Return the exit code of the lock. SIGTERM while it waits ends it in good order, so that nobody waits behind it.

    Once there is a command, SIGTERM is the command's.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await lock
    except asyncio.CancelledError:
        if not terminated:
            raise
        return EXIT_SIGNAL + signal.SIGTERM


async def _lock(
    access: Access, path: str, command: Sequence[str], timeout_s: float | None, session_timeout_s: float
) -> int:
    from zraft_client.recipes import Lock

    who = f"{socket.gethostname()} pid {os.getpid()}".encode()
    async with connected_with(access.client(session_timeout_s=session_timeout_s)) as client:
        lock = Lock(client, path, who)
        if not await _acquired(client, lock, path, timeout_s):
            waited = f" after {timeout_s:g} s (--timeout)" if timeout_s else ""
            click.echo(f"{path}: the lock is not free{waited}{await _holder(client, path)}", err=True)
            return EXIT_NOT_ACQUIRED
        with _losses(client) as lost:
            code = await _run(command, path, lock.token, lost)
            if not lost.is_set():
                await _release(lock)
        return code


async def _acquired(client: Client, lock: Lock, path: str, timeout_s: float | None) -> bool:
    """Wait for the lock; return whether it is held. A session that expires meanwhile loses its place, not the patience."""
    from zraft_client.errors import LockLostError, NoNodeError

    if timeout_s == 0:
        with contextlib.suppress(NoNodeError):
            if (await client.children(path)).names:
                return False
        timeout_s = ONCE_S
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                with contextlib.suppress(LockLostError):
                    await lock.acquire()
                    return True
    except TimeoutError:
        return False


async def _holder(client: Client, path: str) -> str:
    """Return who holds the lock, as the end of a sentence; nothing if that cannot be told."""
    from zraft_client.errors import ClientError
    from zraft_client.recipes.contenders import in_order

    with contextlib.suppress(ClientError):
        first = in_order((await client.children(path)).names)[:1]
        for name in first:
            who = (await client.read(f"{path}/{name}")).data.decode(errors="backslashreplace")
            return f"; it is held by {who}" if who.isprintable() else ""
    return ""


@contextlib.contextmanager
def _losses(client: Client) -> Iterator[asyncio.Event]:
    """Give an event that is set when the lock is lost, or must be taken for lost.

    A client that reaches no server is not told that its session expired. The servers wait for a whole session timeout after
    they heard it last, which was not before it heard them last.
    """
    from zraft_client.values import ConnectionState

    loop = asyncio.get_running_loop()
    lost = asyncio.Event()
    timer: asyncio.TimerHandle | None = None

    def heard(state: ConnectionState) -> None:
        nonlocal timer
        if timer is not None:
            timer.cancel()
            timer = None
        if state is ConnectionState.SUSPENDED:
            timer = loop.call_later(max(0.0, patience_s - client.silence_s), lost.set)
        elif state is not ConnectionState.CONNECTED:
            lost.set()

    assert client.session is not None, "the lock is held by a session"
    patience_s = client.session.timeout_s * PATIENCE
    heard(client.state)
    forget = client.add_listener(heard)
    try:
        yield lost
    finally:
        forget()
        if timer is not None:
            timer.cancel()


async def _run(command: Sequence[str], path: str, token: int, lost: asyncio.Event) -> int:
    """Run the command until it ends; return its exit code, or `EXIT_LOST`."""
    environment = os.environ | {TOKEN_VARIABLE: str(token), PATH_VARIABLE: path}
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, preexec_fn=dies_with_parent()
        )
    except FileNotFoundError:
        click.echo(f"{command[0]}: there is no such command", err=True)
        return EXIT_NOT_FOUND
    except OSError as error:
        click.echo(f"{command[0]}: cannot be run: {error.strerror or error}", err=True)
        return EXIT_CANNOT_RUN
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, _interrupt, process)
    loop.add_signal_handler(signal.SIGTERM, _send, process, signal.SIGTERM)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` has it
        loop.add_signal_handler(signal.SIGHUP, _send, process, signal.SIGHUP)
    ended = asyncio.ensure_future(process.wait())
    loss = asyncio.ensure_future(lost.wait())
    try:
        await asyncio.wait((ended, loss), return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            code = ended.result()
            return code if code >= 0 else EXIT_SIGNAL - code
        click.echo(f"{path}: the lock is lost; {command[0]} gets SIGTERM", err=True)
        _send(process, signal.SIGTERM)
        await ended
        return EXIT_LOST
    finally:
        loss.cancel()
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGHUP)


def _interrupt(process: asyncio.subprocess.Process) -> None:
    """Pass SIGINT on, unless Ctrl-C at a terminal reaches the command as well: once is enough."""
    if not _is_in_foreground():
        _send(process, signal.SIGINT)


def _is_in_foreground() -> bool:
    """Return whether this process and its command are what a terminal sends signals of the keyboard to."""
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False  # there is no terminal
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _send(process: asyncio.subprocess.Process, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(what)


async def _release(lock: Lock) -> None:
    """Give the lock back. If that cannot be done now, the end of the session does it."""
    from zraft_client.errors import ClientError

    with contextlib.suppress(ClientError, TimeoutError):
        async with asyncio.timeout(RELEASE_S):
            await lock.release()
