"""Conversations of the commands, except those about the shell itself. Pure: see `conversation`."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Generator, Sequence
from datetime import tzinfo
from typing import Any, Final

from attrs import frozen

from zraft import __version__
from zraft.shell import quotas
from zraft.shell.acls import parse_acl, permissions, show_acl
from zraft.shell.conversation import (
    Conversation,
    ForgetWatches,
    Output,
    Step,
    TextKind,
    ask,
    ask_each,
    note,
    plain,
)
from zraft.shell.errors import NotConnectedError, RefusedError, ShellError, UsageError
from zraft.shell.grammar import Invocation
from zraft.shell.paths import checked_path, child_of, parent_of
from zraft.shell.render import (
    TREE_BRANCH,
    TREE_LAST,
    TREE_NOTHING,
    TREE_THROUGH,
    data_value,
    show_data,
    show_names,
    show_stat,
    stat_value,
)
from zraft.shell.subtree import BATCH, Walk, delete_subtree
from zraft_core.errors import Code
from zraft_core.wire.client import Reply
from zraft_core.wire.client_requests import (
    AddWatch,
    Auth,
    Create,
    Delete,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetChildren2,
    GetData,
    GetEphemerals,
    Reconfig,
    RemoveWatches,
    Request,
    SetAcl,
    SetData,
    Sync,
    WhoAmI,
)
from zraft_core.wire.requests import Acl
from zraft_core.znodes.events import AddWatchMode, WatcherType
from zraft_core.znodes.stat import Stat

CONFIG: Final = "/zookeeper/config"
_HOST: Final = re.compile(r"\[[^\]]*\]|[^:]*")
TTL_MS_MAX: Final = 2**40 - 1
BATCH_MAX: Final = 10_000


@frozen
class Context:
    """Values that commands need of the machine: its time zone, and how to read a file that a user names."""

    zone: tzinfo | None
    read_file: Callable[[str], str]


Command = Callable[[Invocation, Context], Conversation]


def _stat_part(stat: Stat, context: Context) -> tuple[TextKind, str]:
    return TextKind.STAT, show_stat(stat, context.zone)


def _path(call: Invocation) -> str:
    return checked_path(call.path)


def ls(call: Invocation, context: Context) -> Conversation:
    """List the children of a znode, with -R of all znodes below it."""
    path = _path(call)
    if call.has("R"):
        # In ZooKeeper's order: all children of a znode, then what is below each of them.
        walk = Walk(path)
        first = yield from walk.step()
        assert first is not None, "the top of a walk is there or refused"
        yield Output(path, ((TextKind.PLAIN, path),))
        visit: Any = first
        while visit is not None:
            for name in visit.names:
                child = child_of(visit.path, name)
                yield Output(child, ((TextKind.PLAIN, child),))
            visit = yield from walk.step()
        walk.raise_refusal()
        return
    if call.has("s"):
        names, stat = yield from ask(GetChildren2(path, watch=call.has("w")))
        value = {"children": sorted(names), "stat": stat_value(stat)}
        yield Output(value, ((TextKind.NAMES, show_names(names)), _stat_part(stat, context)))
    else:
        names = yield from ask(GetChildren(path, watch=call.has("w")))
        yield Output(sorted(names), ((TextKind.NAMES, show_names(names)),))


def tree(call: Invocation, _: Context) -> Conversation:
    """Draw the tree below a znode."""
    path = checked_path(call.argument(0) or "/")
    walk = Walk(path, depth_max=call.number("d", lowest=0))
    while (visit := (yield from walk.step())) is not None:
        name = visit.path if not visit.depth else visit.path.rpartition("/")[2]
        line = "".join(TREE_NOTHING if last else TREE_THROUGH for last in visit.last[:-1])
        if visit.depth:
            line += TREE_LAST if visit.last[-1] else TREE_BRANCH
        yield plain(line + name, {"path": visit.path, "depth": visit.depth})
    walk.raise_refusal()


def get(call: Invocation, context: Context) -> Conversation:
    """Show a znode's data, with -s its stat."""
    path = _path(call)
    data, stat = yield from ask(GetData(path, watch=call.has("w")))
    value: dict[str, Any] = data_value(data)
    if call.has("b"):
        encoded = base64.b64encode(data or b"").decode("ascii")
        value = {"data_base64": encoded if data is not None else None}
        shown = "null" if data is None else encoded
    else:
        shown = show_data(data)
    parts = [(TextKind.PLAIN, shown)]
    if call.has("s"):
        parts.append(_stat_part(stat, context))
        value["stat"] = stat_value(stat)
    yield Output({"path": path, **value}, tuple(parts))


def stat(call: Invocation, context: Context) -> Conversation:
    """Show a znode's stat."""
    found = yield from ask(Exists(_path(call), watch=call.has("w")))
    yield Output(stat_value(found), (_stat_part(found, context),))


def create(call: Invocation, _: Context) -> Conversation:
    """Create a znode.

    Raises:
        UsageError: options exclude each other.
        RefusedError: the server refused it; the path named is the znode that is in the way.
    """
    if call.has("c") and (call.has("s") or call.has("e")):
        raise UsageError("-c cannot be combined with -s or -e. Containers cannot be ephemeral or sequential.")
    if call.has("t") and (call.has("c") or call.has("e")):
        raise UsageError(
            "-t cannot be combined with -c or -e. A znode with a TTL is neither container nor ephemeral."
        )
    ttl_ms = call.number("t", lowest=1, highest=TTL_MS_MAX)
    path = checked_path(call.path, sequential=call.has("s"))
    data, acl = call.argument(1), call.argument(2)
    request = Create(
        path,
        None if data is None else _bytes(data),
        None if acl is None else parse_acl(acl),
        ephemeral=call.has("e"),
        sequential=call.has("s"),
        container=call.has("c"),
        ttl_ms=ttl_ms,
    )
    try:
        made = yield from ask(request)
    except RefusedError as error:
        raise RefusedError(error.code, path, (yield from _about_parents(error.code, path))) from None
    yield plain(f"Created {made}", {"created": made})


def _about_parents(code: Code, path: str) -> Generator[Step, Sequence[Reply], str]:
    """Return the missing or unfit znode above `path` that keeps it from being made: the server leaves that out."""
    if code == Code.NO_CHILDREN_FOR_EPHEMERALS:
        return f"{parent_of(path)} is ephemeral"
    if code != Code.NO_NODE:
        return ""
    names = path.split("/")[1:-1]
    there, missing = -1, len(names) + 1
    # Below a missing znode all are missing: halving finds the first of however many.
    while missing - there > 1:
        middle = (there + missing) // 2
        (reply,) = yield from ask_each([Exists("/" + "/".join(names[:middle]))])
        if reply.code == Code.NO_NODE:
            missing = middle
        else:
            there = middle
    if missing > len(names):
        return ""  # somebody made it meanwhile
    if not missing:
        return "the path at the end of --connect is missing, create that first, in a shell without it"
    return f"/{'/'.join(names[:missing])} is missing, create that first"


def set_(call: Invocation, context: Context) -> Conversation:
    """Set a znode's data, with -v only at this version."""
    version = call.number("v", lowest=-1)
    request = SetData(_path(call), _bytes(call.arguments[1]), -1 if version is None else version)
    found = yield from _versioned(request, version, lambda stat: stat.version)
    if call.has("s"):
        yield Output(stat_value(found), (_stat_part(found, context),))


def delete(call: Invocation, _: Context) -> Conversation:
    """Delete a znode that has no children, with -v only at this version."""
    version = call.number("v", lowest=-1)
    request = Delete(_path(call), -1 if version is None else version)
    yield from _versioned(request, version, lambda stat: stat.version)


def _versioned(
    request: Request[Any], version: int | None, of_stat: Callable[[Stat], int]
) -> Generator[Step, Sequence[Reply], Any]:
    """Return the answer to `request`; if the version was wrong, the error says which one the znode has."""
    try:
        return (yield from ask(request))
    except RefusedError as error:
        if error.code != Code.BAD_VERSION or error.path is None:
            raise
        try:
            found = yield from ask(Exists(error.path))
        except RefusedError:
            raise error from None
        raise RefusedError(
            error.code, error.path, f"expected version {version}, znode is at {of_stat(found)}"
        ) from None


def deleteall(call: Invocation, _: Context) -> Conversation:
    """Delete a znode and everything below it.

    Raises:
        UsageError: the path is / or below /zookeeper.
        ShellError: some znodes could not be deleted.
    """
    path = _path(call)
    batch = call.number("b", lowest=1, highest=BATCH_MAX)
    if path in ("/", "/zookeeper") or path.startswith("/zookeeper/"):
        raise UsageError(
            f"Arguments are not valid : {path} (znodes under /zookeeper belong to the servers; below /, name each)"
        )
    try:
        deleted = yield from delete_subtree(path, batch or BATCH)
    except RefusedError as error:
        if error.path == path:
            raise
        raise ShellError(f"{error}\nFailed to delete some node(s) in the subtree!") from error
    yield Output({"deleted": deleted}, ())


def get_acl(call: Invocation, context: Context) -> Conversation:
    """Show a znode's ACL, with -s its stat."""
    acl, found = yield from ask(GetAcl(_path(call)))
    value: dict[str, Any] = {"acl": [_acl_value(entry) for entry in acl]}
    parts = [(TextKind.PLAIN, show_acl(acl))]
    if call.has("s"):
        parts.append(_stat_part(found, context))
        value["stat"] = stat_value(found)
    yield Output(value, tuple(parts))


def _acl_value(entry: Acl) -> dict[str, str]:
    bits, scheme, identity = entry
    return {"scheme": scheme, "id": identity, "perms": permissions(bits)}


def set_acl(call: Invocation, context: Context) -> Conversation:
    """Set a znode's ACL, with -R those of all znodes below it."""
    acl = parse_acl(call.arguments[1])
    version = call.number("v", lowest=-1)
    path: str | None = _path(call)
    walk = Walk(call.path) if call.has("R") else None
    if walk is not None:
        yield from walk.step()  # its own path, which comes first
    while path is not None:
        request = SetAcl(path, acl, -1 if version is None else version)
        found = yield from _versioned(request, version, lambda stat: stat.aversion)
        if call.has("s"):
            value = {"path": path, "stat": stat_value(found)}
            yield Output(value, (_stat_part(found, context),))
        visit = (yield from walk.step()) if walk is not None else None
        path = visit.path if visit is not None else None
    if walk is not None:
        walk.raise_refusal()


def addauth(call: Invocation, _: Context) -> Conversation:
    """Add an identity to the session.

    Raises:
        UsageError: the scheme is not a word.
        ShellError: the server does not accept the identity.
    """
    scheme = call.arguments[0]
    if not scheme.isprintable():
        raise UsageError(f"addauth: found the scheme {scheme!r}, expected a word such as digest")
    try:
        yield from ask(Auth(scheme, _bytes(call.argument(1) or "")))
    except RefusedError as error:
        if error.code != Code.AUTH_FAILED:
            raise
        raise ShellError(
            f"Authentication failed: the server does not accept this {scheme!r} identity, or not the scheme; expected, "
            "for example, addauth digest user:password"
        ) from error


def whoami(_: Invocation, __: Context) -> Conversation:
    """Show the ids that this connection has proved."""
    ids = yield from ask(WhoAmI())
    lines = ["Auth scheme: User", *(f"{scheme}: {user}" for scheme, user in ids)]
    yield plain("\n".join(lines), [{"scheme": scheme, "user": user} for scheme, user in ids])


def get_ephemerals(call: Invocation, _: Context) -> Conversation:
    """Show this session's ephemeral znodes below a path."""
    paths = yield from ask(GetEphemerals(checked_path(call.argument(0) or "/")))
    yield Output(sorted(paths), ((TextKind.NAMES, show_names(paths)),))


def get_all_children_number(call: Invocation, _: Context) -> Conversation:
    """Show the number of znodes below a path."""
    count = yield from ask(GetAllChildrenNumber(_path(call)))
    yield plain(str(count), count)


def sync(call: Invocation, _: Context) -> Conversation:
    """Let the server catch up with the leader."""
    path = yield from ask(Sync(_path(call)))
    yield plain("Sync is OK", {"synced": path})


def add_watch(call: Invocation, _: Context) -> Conversation:
    """Add a persistent watch.

    Raises:
        UsageError: there is no such mode.
    """
    mode = call.options.get("m", AddWatchMode.PERSISTENT_RECURSIVE.name)
    if mode not in AddWatchMode.__members__:
        raise UsageError(f"addWatch -m: found {mode!r}, expected PERSISTENT or PERSISTENT_RECURSIVE")
    yield from ask(AddWatch(_path(call), AddWatchMode[mode]))


def remove_watches(call: Invocation, _: Context) -> Conversation:
    """Remove watches of a path.

    Raises:
        UsageError: options exclude each other.
    """
    path = _path(call)
    if sum(map(call.has, "cda")) > 1:
        raise UsageError("removewatches: found more than one of -c, -d and -a, expected at most one")
    type_ = WatcherType.CHILDREN if call.has("c") else WatcherType.DATA if call.has("d") else WatcherType.ANY
    try:
        yield from ask(RemoveWatches(path, type_))
    except NotConnectedError:
        if not call.has("l"):
            raise
        yield ForgetWatches(path, type_)


def config(call: Invocation, context: Context) -> Conversation:
    """Show the cluster's configuration."""
    data, found = yield from ask(GetData(CONFIG, watch=call.has("w")))
    text = show_data(data) if data else ""
    parts = [(TextKind.PLAIN, client_config(text) if call.has("c") else text)]
    value: dict[str, Any] = {"config": parts[0][1]}
    if call.has("s"):
        parts.append(_stat_part(found, context))
        value["stat"] = stat_value(found)
    yield Output(value, tuple(parts))


def client_config(text: str) -> str:
    """Return the configuration as clients name it: its version and `host:port,…`."""
    version, servers = "", []
    for line in text.splitlines():
        name, _, value = line.strip().partition("=")
        if name == "version":
            version = value
        elif name.startswith("server."):
            peer, semicolon, client = value.partition(";")
            if semicolon:
                # A client port alone stands for the host under which the other servers know it.
                servers.append(client if ":" in client else f"{_HOST.findall(peer)[0]}:{client}")
    return f"{version} {','.join(servers)}"


def reconfig(call: Invocation, context: Context) -> Conversation:
    """Change the members of the cluster.

    Raises:
        UsageError: options are missing, or exclude each other.
    """
    whole = [name for name in ("file", "members") if call.has(name)]
    partly = [name for name in ("add", "remove") if call.has(name)]
    if len(whole) > 1 or bool(whole) == bool(partly):
        raise UsageError(
            f"reconfig: expected either -file or -members, or -add and/or -remove\nusage: {call.spec.usage}"
        )
    version = call.options.get("v", "-1")
    try:
        from_config = int(version, 16)
    except ValueError:
        raise UsageError(f"reconfig -v: found {version!r}, expected a hexadecimal number") from None
    members = call.options.get("members")
    if call.has("file"):
        lines = context.read_file(call.options["file"]).splitlines()
        members = ",".join(line.strip() for line in lines if line.strip().startswith("server."))
    data, found = yield from ask(
        Reconfig(call.options.get("add"), call.options.get("remove"), members, from_config)
    )
    parts = [(TextKind.PLAIN, f"Committed new configuration:\n{show_data(data)}")]
    value: dict[str, Any] = {"config": show_data(data)}
    if call.has("s"):
        parts.append(_stat_part(found, context))
        value["stat"] = stat_value(found)
    yield Output(value, tuple(parts))


def version(_: Invocation, __: Context) -> Conversation:
    """Show the shell's version."""
    yield note(f"ZooKeeper CLI version: zraft {__version__}", {"version": __version__})


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogateescape")


COMMANDS: Final[dict[str, Command]] = {
    "addWatch": add_watch,
    "addauth": addauth,
    "config": config,
    "create": create,
    "delete": delete,
    "deleteall": deleteall,
    "delquota": quotas.delquota,
    "get": get,
    "getAcl": get_acl,
    "getAllChildrenNumber": get_all_children_number,
    "getEphemerals": get_ephemerals,
    "listquota": quotas.listquota,
    "ls": ls,
    "reconfig": reconfig,
    "removewatches": remove_watches,
    "set": set_,
    "setAcl": set_acl,
    "setquota": quotas.setquota,
    "stat": stat,
    "sync": sync,
    "tree": tree,
    "version": version,
    "whoami": whoami,
}
"""Commands by name; the rest of `catalogue.SPECS` is about the shell itself and belongs to `session`."""
