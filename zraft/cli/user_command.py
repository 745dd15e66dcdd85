"""The command `zraft user`: the users of SASL in a server's file, and the id that an ACL has for a password."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE
from typing import Final

import click

from zraft_core.errors import ConfigError

_FILE: Final = click.Path(path_type=Path)


@click.group()
def user() -> None:
    """Make and change the file of SASL users, and print the ids that ACLs have for users.

    \b
        zraft user add users alice             # asks for the password; auth.sasl_users_file names the file
        zraft user list users
        zraft user remove users alice
        zraft user digest alice                # prints digest:alice:HASH, for ACLs of scheme digest

    A running server reads the file again within seconds of a change; give each server the same file. A connection that
    has logged in stays. In ACLs, alice is sasl:alice. Passwords are asked for, or read from the input if that is no
    terminal; they are never arguments. See docs/how-to/security.md.
    """


@user.command("list")
@click.argument("file", type=_FILE)
def list_(file: Path) -> None:
    """Print the names of the users in FILE, as ACLs have them."""
    from zraft.server.process.security.sasl_users import read_users

    for name in sorted(read_users(file)):
        click.echo(f"sasl:{name}")


@user.command()
@click.argument("file", type=_FILE)
@click.argument("name", metavar="NAME")
def add(file: Path, name: str) -> None:
    """Add user NAME to FILE, or give it another password. FILE is created if there is none."""
    if ":" in name or not name.isprintable() or name.strip() != name or not name or name.startswith("#"):
        raise ConfigError(
            f"found user {name!r}, expected a name without colons, and without spaces around it"
        )
    password = _password()
    if password != password.strip():
        raise ConfigError("found a password with spaces around it, which a line of the file cannot hold")
    users = dict(_users(file))
    known = name in users
    users[name] = password
    _write(file, users)
    click.echo(f"{file}: user {name} {'has another password' if known else 'is added'}")


@user.command()
@click.argument("file", type=_FILE)
@click.argument("name", metavar="NAME")
def remove(file: Path, name: str) -> None:
    """Remove user NAME from FILE. ACLs that name the user stay as they are."""
    users = dict(_users(file))
    if name not in users:
        raise ConfigError(f"{file}: found {len(users)} users, expected one of name {name!r}")
    del users[name]
    if not users:
        raise ConfigError(f"{file}: {name} is its last user, and servers need one; add another one first")
    _write(file, users)
    click.echo(f"{file}: user {name} is removed")


@user.command()
@click.argument("name", metavar="NAME")
def digest(name: str) -> None:
    """Print the id of NAME with a password, as ACLs of scheme digest have it."""
    from zraft.server.clients.authentication.proofs import digest_id

    if ":" in name or not name:
        raise ConfigError(f"found user {name!r}, expected a name without colons")
    click.echo(f"digest:{digest_id(f'{name}:{_password()}'.encode())}")


def _password() -> str:
    if sys.stdin.isatty():
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password or not password.isprintable():
        raise ConfigError("found no password, expected a line of printable characters")
    return password


def _users(file: Path) -> Mapping[str, str]:
    """Return the users of a file that this command may write; none if there is no file yet."""
    from zraft.server.process.security.sasl_users import is_jaas, read_users

    if not file.exists():
        return {}
    users = read_users(file)
    if is_jaas(file.read_text()):
        raise ConfigError(
            f"{file}: found a JAAS configuration, expected lines user:password; edit it by hand"
        )
    return users


def _write(file: Path, users: Mapping[str, str]) -> None:
    """Put these users in the place of those in the file: whoever reads meanwhile finds the old or the new ones.

    Owner and mode stay, so that a server still reads what root has changed.
    """
    path = file.resolve()  # a link stays one: what it points to is replaced
    new = path.with_name(f"{path.name}.new")
    try:
        with suppress(FileNotFoundError):
            new.unlink()  # it is left of an attempt that was interrupted
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            with suppress(FileNotFoundError):
                before, mine = path.stat(), os.fstat(descriptor)
                if (before.st_uid, before.st_gid) != (mine.st_uid, mine.st_gid):
                    os.fchown(descriptor, before.st_uid, before.st_gid)
                os.fchmod(descriptor, S_IMODE(before.st_mode))
            out.writelines(f"{name}:{password}\n" for name, password in sorted(users.items()))
            out.flush()
            os.fsync(out.fileno())
        new.rename(path)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from error
