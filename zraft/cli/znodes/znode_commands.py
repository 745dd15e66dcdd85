"""The commands `zraft get`, `zraft put`, `zraft ls` and `zraft rm`: one znode, or those below it, per call."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from zraft.cli.client_options import Access, is_client
from zraft.cli.listings.listing_options import lists, output_option, prints_json
from zraft.cli.znodes.znode_access import ROOT, connected, require_listener, stat_value, znode_path
from zraft_core.errors import ConfigError, ZraftError

if TYPE_CHECKING:
    from zraft.cli.listings.listing import Listing
    from zraft.cli.znodes.subtree import Seen
    from zraft_client.client import Client
    from zraft_client.values import Znode

DATA_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes that are read for a znode: above what any server accepts in a request."""
RACES_MAX: Final = 5
"""How often others may create and delete a znode between two steps of `put`, before it gives up."""
INPUT: Final = "-"
VERSION: Final = click.IntRange(0, 2**31 - 1)

T = TypeVar("T")


def run(access: Access, program: Coroutine[Any, Any, T]) -> T:
    """Run a command's program against servers of which one listens. Ctrl-C ends it with exit code 130."""
    import asyncio

    try:
        require_listener(access)
        return asyncio.run(program)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        program.close()


# -- get


@click.command(short_help="Print the data of a znode.")
@click.argument("path")
@click.option(
    "--stat", "with_stat", is_flag=True, help="Print the stat after the data, as `zraft shell` does."
)
@output_option("raw", "json")
@is_client
def get(access: Access, path: str, with_stat: bool, output: str) -> None:
    """Print the data of the znode PATH.

    \b
        zraft get /config > config.toml
        zraft get /config --output json | jq .version

    A pipe or a file gets exactly the bytes of the znode, with nothing added. At a terminal a newline ends them, and what
    would steer the terminal is shown as an escape. In JSON, data that is no text is in `data_base64`.
    """
    path = znode_path(path)
    found = run(access, _get(access, path))
    if output == "json":
        from zraft.shell.render import data_value

        click.echo(json.dumps({"path": path, **data_value(found.data), **stat_value(found.stat)}))
        return
    _print_data(found.data, newline=with_stat)
    if with_stat:
        from zraft.shell.render import show_stat

        click.echo(show_stat(found.stat, None))


def _print_data(data: bytes, *, newline: bool) -> None:
    if sys.stdout.isatty():
        from zraft.shell.render import show_data, visible

        click.echo(visible(show_data(data)))
        return
    binary = sys.stdout.buffer
    binary.write(data)
    if newline and not data.endswith(b"\n"):
        binary.write(b"\n")
    binary.flush()


async def _get(access: Access, path: str) -> Znode:
    async with connected(access) as client:
        return await client.read(path)


# -- put


@click.command(short_help="Create a znode, or set its data.")
@click.argument("path")
@click.argument("data", required=False)
@click.option("--create", "-c", is_flag=True, help="Fail if the znode exists.")
@click.option(
    "--version",
    "-v",
    type=VERSION,
    help="Set it only if its version is this one, as `get --output json` told.",
)
@click.option("--parents", "-p", is_flag=True, help="Make the znodes above it that are missing.")
@click.option(
    "--sequential",
    "-s",
    is_flag=True,
    help="Create a new znode, to whose name the server adds a number; its path is printed.",
)
@output_option("table", "json")
@is_client
def put(
    access: Access,
    path: str,
    data: str | None,
    create: bool,
    version: int | None,
    parents: bool,
    sequential: bool,
    output: str,
) -> None:
    """Set the data of the znode PATH to DATA; create it if there is none.

    \b
        zraft put /greeting hello
        zraft put /config - < config.toml           # the bytes of the standard input
        zraft put /leader me --create               # fails if somebody was faster
        zraft put /greeting hi --version 3          # fails if it was changed meanwhile
        zraft put /tasks/task- "$job" --sequential --parents

    Without DATA, or with -, the standard input is read. Prints whether it was created or set, and its version. A znode that
    goes with a session would go when this command ends: `zraft lock` and `zraft shell` keep one.
    """
    if version is not None and (create or sequential):
        raise ConfigError(
            "--version: a znode that is created has none; expected it without --create and --sequential"
        )
    path = znode_path(path, sequential=sequential)
    content = _input(data)
    done = run(
        access,
        _put(access, path, content, create=create, version=version, parents=parents, sequential=sequential),
    )
    if output == "json":
        click.echo(json.dumps(done))
    else:
        click.echo(f"{'created' if done['created'] else 'set'} {done['path']} (version {done['version']})")


def _input(data: str | None) -> bytes:
    """Return the bytes of the argument, or of the standard input."""
    if data is not None and data != INPUT:
        return data.encode("utf-8", errors="surrogateescape")
    if data is None and sys.stdin.isatty():
        raise ConfigError(
            "DATA: not given; expected it as an argument, or - to type it here and end it with Ctrl-D"
        )
    content = sys.stdin.buffer.read(DATA_BYTES_MAX + 1)
    if len(content) > DATA_BYTES_MAX:
        raise ConfigError(f"DATA: found more than {DATA_BYTES_MAX} bytes, and no server accepts so many")
    return content


async def _put(
    access: Access,
    path: str,
    data: bytes,
    *,
    create: bool,
    version: int | None,
    parents: bool,
    sequential: bool,
) -> dict[str, Any]:
    """Create or set the znode; return what was done, as it is printed in JSON."""
    async with connected(access, session=True) as client:
        if version is not None:
            return await _conditional(client, path, version, _set(client, path, data, version))
        if create or sequential:
            return await _create(client, path, data, parents=parents, sequential=sequential)
        return await _create_or_set(client, path, data, parents=parents)


async def _create_or_set(client: Client, path: str, data: bytes, *, parents: bool) -> dict[str, Any]:
    from zraft_client.errors import NodeExistsError, NoNodeError

    for _ in range(RACES_MAX):
        try:
            return await _set(client, path, data, None)
        except NoNodeError:
            pass
        try:
            return await _create(client, path, data, parents=parents, sequential=False)
        except NodeExistsError:
            pass
    raise ZraftError(
        f"{path}: others created and deleted it {RACES_MAX} times meanwhile; nothing was changed"
    )


async def _set(client: Client, path: str, data: bytes, version: int | None) -> dict[str, Any]:
    receipt = await client.set(path, data, version=version)
    return {"path": path, "created": False, "version": receipt.version, "zxid": receipt.zxid}


async def _create(
    client: Client, path: str, data: bytes, *, parents: bool, sequential: bool
) -> dict[str, Any]:
    """Create the znode, and with `parents` those above it.

    Raises:
        ZraftError: the one above it is missing and was not to be made.
    """
    from zraft.shell.paths import parent_of
    from zraft_client.errors import NodeExistsError, NoNodeError

    try:
        made = await client.create(path, data, sequential=sequential)
    except NoNodeError as error:
        above = parent_of(path)
        if not parents:
            raise ZraftError(
                f"{above}: there is no such znode to create {path} in; --parents makes it"
            ) from error
        names = above.strip("/").split("/")
        for depth in range(1, len(names) + 1):
            try:
                await client.create("/" + "/".join(names[:depth]))
            except NodeExistsError:
                continue
        made = await client.create(path, data, sequential=sequential)
    return {"path": made.path, "created": True, "version": made.stat.version, "zxid": made.zxid}


async def _conditional(client: Client, path: str, version: int, write: Awaitable[T]) -> T:
    """Return what a write on condition of a version returns.

    Raises:
        ZraftError: the znode has another version; the message says which.
    """
    from zraft_client.errors import BadVersionError

    try:
        return await write
    except BadVersionError as error:
        stat = await client.exists(path)
        now = "it does not exist any more" if stat is None else f"it is at {stat.version}"
        raise ZraftError(f"{path}: expected version {version}, {now}; nothing was changed") from error


# -- ls


@click.command(short_help="List znodes below a path.")
@click.argument("path", default=ROOT)
@click.option("--recursive", "-R", is_flag=True, help="List all znodes below PATH, by their whole paths.")
@click.option(
    "--long", "-l", "is_long", is_flag=True, help="Show a table: size, children, version, owner, time."
)
@is_client
@lists
def ls(access: Access, path: str, recursive: bool, is_long: bool) -> Listing:
    """List the znodes below PATH, by name; of the whole tree if PATH is not given.

    \b
        zraft ls /
        zraft ls -R /app --output json | jq -r .path
        zraft ls -l /workers --watch

    Each line is a name, in alphabetical order; one request is enough for these. In JSON each line is an object with `path`,
    `name` and the stat. There, and with --long and --recursive, each znode is asked for, hundreds at a time, and one that
    others delete meanwhile is left out. With --recursive, znodes whose children may not be listed are named at the end, and
    the exit code is 1.
    """
    from zraft.cli.znodes.subtree import listing_of

    path = znode_path(path)
    stats = is_long or prints_json()
    seen, refused = run(access, _list(access, path, recursive=recursive, stats=stats))
    return listing_of(path, seen, refused, recursive=recursive, is_long=is_long)


async def _list(access: Access, path: str, *, recursive: bool, stats: bool) -> tuple[list[Seen], list[str]]:
    from zraft.cli.znodes.subtree import names_in, walk

    async with connected(access) as client:
        if not recursive and not stats:
            return await names_in(client, path), []
        refused: list[str] = []
        seen = [one async for one in walk(client, path, refused, depth=None if recursive else 1)]
    return seen, refused


# -- rm


@click.command(short_help="Delete znodes.")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--recursive", "-r", "-R", is_flag=True, help="Delete all znodes below it as well.")
@click.option("--version", "-v", type=VERSION, help="Delete it only if its version is this one.")
@click.option("--force", "-f", is_flag=True, help="It is no error if there is no such znode.")
@is_client
def rm(access: Access, paths: tuple[str, ...], recursive: bool, version: int | None, force: bool) -> None:
    """Delete the znode PATH, or several, one after the other.

    Says what was deleted, and with --recursive how many znodes. A deletion of many is many steps: others see the tree
    shrink, and if it fails on the way, what was deleted stays deleted.
    """
    wanted = [znode_path(path) for path in paths]
    if ROOT in wanted:
        raise ConfigError("PATH: / cannot be deleted; expected the path of a znode below it")
    if version is not None and (recursive or len(wanted) > 1):
        raise ConfigError("--version: expected one PATH with it, and no --recursive")
    run(access, _rm(access, wanted, recursive=recursive, version=version, force=force))


async def _rm(access: Access, paths: list[str], *, recursive: bool, version: int | None, force: bool) -> None:
    from zraft.cli.znodes.subtree import remove_subtree
    from zraft_client.errors import NoNodeError, NotEmptyError

    async with connected(access, session=True) as client:
        for path in paths:
            try:
                if recursive:
                    count = await remove_subtree(client, path)
                    click.echo(f"deleted {path}" + (f" and {count - 1} below it" if count > 1 else ""))
                elif version is not None:
                    await _conditional(client, path, version, client.remove(path, version=version))
                    click.echo(f"deleted {path}")
                else:
                    await client.remove(path)
                    click.echo(f"deleted {path}")
            except NoNodeError:
                if not force:
                    raise
                click.echo(f"{path}: there is no such znode", err=True)
            except NotEmptyError as error:
                raise ZraftError(f"{error}; --recursive deletes what is below it as well") from error
