"""Znodes below a path, as `zraft ls` shows them and `zraft rm --recursive` deletes them: many requests at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from attrs import frozen

from zraft.cli.listings.listing import Column, Grid, Listing
from zraft.cli.znodes.znode_access import stat_value
from zraft.shell.paths import child_of
from zraft.shell.render import show_hex, visible
from zraft_client.client import Client
from zraft_client.errors import NoAuthError, NoNodeError, NotEmptyError
from zraft_client.values import Children, Consistency
from zraft_core.wire.stat import Stat

AT_ONCE: Final = 500
"""Requests under way at the same time: they share a round trip, and a server's memory for this client stays small."""
LISTED_AT_ONCE: Final = 16
"""Listings under way at the same time: each answer may be a megabyte."""
PASSES_MAX: Final = 5
"""How often a deletion begins anew because others create znodes where it deletes."""


@frozen
class Seen:
    """A znode that was found; `stat` is None if it may not be read, or was not asked for."""

    path: str
    stat: Stat | None


async def names_in(client: Client, path: str) -> list[Seen]:
    """Return what is in `path` in order, by one request: without stats, and without looking whether it still exists.

    Raises:
        NoNodeError, NoAuthError: `path` does not exist, or may not be listed.
    """
    return [Seen(child_of(path, name), None) for name in (await client.children(path)).names]


async def walk(client: Client, path: str, refused: list[str], *, depth: int | None) -> AsyncIterator[Seen]:
    """Yield what is below `path`, without itself: parents first, siblings in order, at most `depth` levels.

    Paths whose children may not be listed are added to `refused`. Znodes that others delete meanwhile are left out.

    Raises:
        NoNodeError, NoAuthError: `path` itself does not exist, or may not be listed.
    """
    top = await client.children(path)
    # The znodes that come next, the last one first, each with its level.
    coming = [(child_of(path, name), 1) for name in reversed(top.names)]
    known: dict[str, Stat | None] = {}
    listed: dict[str, Children | None] = {}
    while coming:
        one, level = coming[-1]
        if one not in known:
            known |= await _stats(client, [at for at, _ in coming[-AT_ONCE:] if at not in known])
        stat = known[one]
        deeper = depth is None or level < depth
        if deeper and stat is not None and stat.num_children and one not in listed:
            near = [at for at, below in coming[-AT_ONCE:] if below == level and at in known]
            parents = [at for at in near if at not in listed and _has_children(known[at])]
            listed |= await _children(client, parents[-LISTED_AT_ONCE:], refused)
        coming.pop()
        del known[one]
        children = listed.pop(one, None)
        if stat is _GONE:
            continue
        yield Seen(one, stat)
        if children is not None:
            coming += [(child_of(one, name), level + 1) for name in reversed(children.names)]


_GONE: Final = Stat(*[0] * 11)
"""Stands for a znode that others deleted."""


def _has_children(stat: Stat | None) -> bool:
    return stat is not None and stat.num_children > 0


async def _stats(client: Client, paths: Sequence[str]) -> dict[str, Stat | None]:
    async def one(path: str) -> Stat | None:
        try:
            return await client.exists(path, consistency=Consistency.LOCAL) or _GONE
        except NoAuthError:
            return None

    return dict(zip(paths, await asyncio.gather(*map(one, paths)), strict=True))


async def _children(client: Client, paths: Sequence[str], refused: list[str]) -> dict[str, Children | None]:
    async def one(path: str) -> Children | None:
        try:
            return await client.children(path, consistency=Consistency.LOCAL)
        except NoNodeError:
            return None
        except NoAuthError:
            refused.append(path)
            return None

    return dict(zip(paths, await asyncio.gather(*map(one, paths)), strict=True))


async def remove_subtree(client: Client, path: str) -> int:
    """Delete `path` and all below it, the deepest first; return how many znodes that were.

    Raises:
        NoNodeError: there is no such znode.
        NotEmptyError: others go on creating znodes there.
        FailedError: a deletion is not allowed; what was deleted stays deleted.
    """
    deleted = 0
    for attempt in range(PASSES_MAX):
        found = [path]
        refused: list[str] = []
        try:
            found += [seen.path async for seen in walk(client, path, refused, depth=None)]
        except NoNodeError:
            if not deleted:
                raise
            return deleted
        if refused:
            raise NoAuthError(f"{refused[0]}: what is below it may not be listed, so it cannot be deleted")
        try:
            for level in _deepest_first(found):
                deleted += await _remove_all(client, level)
        except NotEmptyError:
            if attempt == PASSES_MAX - 1:
                raise
        else:
            return deleted
    raise AssertionError("the last pass returns or raises")


def _deepest_first(paths: Iterable[str]) -> list[list[str]]:
    """Return paths by level, the deepest level first: those of one level can be deleted together."""
    levels: dict[int, list[str]] = {}
    for path in paths:
        levels.setdefault(path.count("/"), []).append(path)
    return [levels[level] for level in sorted(levels, reverse=True)]


async def _remove_all(client: Client, paths: Sequence[str]) -> int:
    """Delete these; return how many there were. What others deleted meanwhile does not count."""

    async def one(path: str) -> int:
        try:
            await client.remove(path)
        except NoNodeError:
            return 0
        return 1

    count = 0
    for start in range(0, len(paths), AT_ONCE):
        done = await asyncio.gather(*map(one, paths[start : start + AT_ONCE]), return_exceptions=True)
        for result in done:
            if isinstance(result, BaseException):
                raise result
            count += result
    return count


# -- what `ls` prints

COLUMNS: Final = (
    Column("size", right=True),
    Column("children", right=True),
    Column("version", right=True),
    Column("owner", spare=1),
    Column("modified"),
    Column("name", folds=True),
)


def listing_of(
    path: str, seen: Sequence[Seen], refused: Sequence[str], *, recursive: bool, is_long: bool
) -> Listing:
    """Return what is printed: a name (or a path) per line, or a table of the same."""
    names = [one.path if recursive else one.path.rpartition("/")[2] for one in seen]
    values = tuple(map(_value, seen))
    complaint = f"children that may not be listed are left out, of: {', '.join(refused)}" if refused else ""
    if not is_long:
        return Listing(values, tuple(map(visible, names)), complaint)
    rows = tuple(_row(one, name) for one, name in zip(seen, names, strict=True))
    total = (
        f"{len(seen)} znode{'' if len(seen) == 1 else 's'} {'below' if recursive else 'in'} {visible(path)}"
    )
    return Listing(values, (Grid(COLUMNS, rows), total) if rows else (total,), complaint)


def _value(seen: Seen) -> dict[str, Any]:
    value: dict[str, Any] = {"path": seen.path, "name": seen.path.rpartition("/")[2]}
    return value if seen.stat is None else value | stat_value(seen.stat)


def _row(seen: Seen, name: str) -> tuple[str, ...]:
    stat = seen.stat
    if stat is None:
        return ("?", "?", "?", "", "", visible(name))
    owner = show_hex(stat.ephemeral_owner) if stat.ephemeral_owner else ""
    return (
        str(stat.data_length),
        str(stat.num_children),
        str(stat.version),
        owner,
        _time(stat.mtime) if stat.mtime else "",
        visible(name),
    )


def _time(time_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, tz=UTC):%Y-%m-%d %H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
