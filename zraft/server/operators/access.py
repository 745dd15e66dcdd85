"""Operators' requests about ACLs of topics and consumers: what they are, and changes as commands of the super user."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from zraft.config.features import LEVEL_OF_ACCESS
from zraft.operator.requests import (
    AclDefaults,
    AclLine,
    AclList,
    AclListing,
    AclRemove,
    AclSet,
    AclShow,
    AclShown,
    Done,
    OperatorReply,
    Refused,
)
from zraft.tree.children import names_of
from zraft.tree.commands.multi import MultiFailed
from zraft.tree.machine import Machine
from zraft.tree.node import Znode
from zraft.tree.paths import ROOT
from zraft.tree.topic_acls import default_acl
from zraft_core.errors import Code
from zraft_core.topics.access import Guarded, consumer_of, consumer_path, topic_path
from zraft_core.topics.forms import CONSUMER_BYTES_MAX
from zraft_core.topics.registry_values import Refusal, is_topic_name
from zraft_core.znodes.acl import ALL, Acl
from zraft_core.znodes.txn import CREATE, DELETE, MULTI, SET_ACL, Command

Reply = Callable[[OperatorReply], None]
Submit = Callable[[Command, Callable[[object], None], int], None]
"""Puts a command of so many bytes into the log, with the rights of the super user."""
AclLook = AclList | AclShow
AclChange = AclSet | AclDefaults | AclRemove

PAGE: Final = 200
"""ACLs in one answer."""

_NEEDS_LEVEL: Final = (
    f"ACLs of topics need feature level {LEVEL_OF_ACCESS}, which a cluster reaches by itself about a second after all of "
    "its members can do it: upgrade all servers first, or raise the knob features_max that holds it down"
)
_CHANGED: Final = "its ACL was changed by somebody else meanwhile; look and try again"
_WHY: Final = {
    Code.INVALID_ACL: "expected entries of world:anyone, sasl:USER, x509:SUBJECT, digest:USER:HASH or ip:NETWORK; auth "
    "stands for whoever asks, and operators are no users",
    Code.NODE_EXISTS: _CHANGED,
    Code.NO_NODE: _CHANGED,
    Code.BAD_VERSION: _CHANGED,
    Code.OPERATION_TIMEOUT: "it is unknown whether it was done, for this server was far behind: look and try again",
}
_PASSING: Final = frozenset({Code.NODE_EXISTS, Code.NO_NODE, Code.BAD_VERSION})


def answer(machine: Machine, request: AclLook) -> OperatorReply:
    """Return a page of the names that have an ACL of their own, or the ACL of one name."""
    kind = request.kind
    directory = machine.find(kind.value)
    default = None if directory is None else _told(directory)
    match request:
        case AclList(after=after):
            names = sorted(names_of(kind.value, None if directory is None else directory.children))
            start = bisect_right(names, after)
            lines = []
            for written in names[start : start + PAGE]:
                name = _name_of(kind, written)
                node = machine.find(f"{kind.value}/{written}")
                if name is not None and node is not None:
                    lines.append(AclLine(written, name, _told(node)))
            return AclListing(default, tuple(lines), start + PAGE < len(names))
        case AclShow(name=name):
            node = machine.find(_path(kind, name))
            own = None if node is None else _told(node)
            return AclShown(own, None if node is None else node.aversion, default)


def _told(node: Znode) -> Acl:
    """Return a znode's ACL; ZooKeeper's clients may have set bits that mean nothing."""
    return tuple((bits & ALL, scheme, who) for bits, scheme, who in node.acl)


def change(machine: Machine, request: AclChange, submit: Submit, reply: Reply) -> None:
    """Append a change to the log, and answer when it is applied here."""
    if machine.feature_level < LEVEL_OF_ACCESS:
        reply(Refused(_NEEDS_LEVEL, retriable=True))
        return
    if isinstance(request, AclDefaults):
        shown, text = "the defaults", "the defaults of topics and consumers are changed"
        command: Command = (MULTI, tuple([_default(machine, kind, request.acl) for kind in Guarded]))
        size = len(Guarded) * _size(request.acl)
    else:
        if why := _why_no_name(request):
            reply(Refused(why))
            return
        kind, name = request.kind, request.name
        path, shown = _path(kind, name), _shown(kind, name)
        node = machine.find(path)
        if isinstance(request, AclRemove):
            if node is None:
                reply(Done(f"{shown} has no ACL of its own"))
                return
            command, size = (DELETE, path, -1), 0
            text = f"{shown} has no ACL of its own any more: the default counts"
        else:
            if request.version != (None if node is None else node.aversion):
                reply(Refused(f"{shown}: {_CHANGED}", retriable=True))
                return
            command, size = _written(machine, kind, path, request), _size(request.acl)
            text = f"the ACL of {shown} is changed"

    def done(result: object) -> None:
        code = result.code if isinstance(result, MultiFailed) else result
        if isinstance(code, Code) and code is not Code.OK:
            why = _WHY.get(code, f"the cluster answered {code.name}")
            reply(Refused(f"{shown}: {why}", retriable=code in _PASSING))
        else:
            reply(Done(text))

    submit(command, done, size)


def _size(acl: Acl) -> int:
    return sum(len(scheme) + len(who) for _, scheme, who in acl)


def _default(machine: Machine, kind: Guarded, acl: Acl) -> Command:
    """Return the command that makes this the default, whatever it was."""
    if machine.find(kind.value) is None:
        return _created(kind.value, acl)
    return (SET_ACL, kind.value, acl, -1)


def _written(machine: Machine, kind: Guarded, path: str, request: AclSet) -> Command:
    """Return the command that gives a znode this ACL; it makes the znode, and the directory, if they are missing."""
    if request.version is not None:
        return (SET_ACL, path, request.acl, request.version)
    made = _created(path, request.acl)
    if path == kind.value or machine.find(kind.value) is not None:
        return made
    root = machine.find(ROOT)
    assert root is not None, "the root cannot be deleted"
    return (MULTI, (_created(kind.value, default_acl(kind, root.acl)), made))


def _created(path: str, acl: Acl) -> Command:
    return (CREATE, path, b"", acl, 0, None)


def _why_no_name(request: AclSet | AclRemove) -> str:
    name = request.name
    if not name:
        return "" if isinstance(request, AclSet) else "the default is not removed: `zraft topic acl open`"
    if request.kind is Guarded.CONSUMERS:
        return (
            ""
            if len(name) <= CONSUMER_BYTES_MAX
            else f"a consumer's name has at most {CONSUMER_BYTES_MAX} bytes"
        )
    return (
        ""
        if is_topic_name(name.decode(errors="replace"))
        else f"{_shown(request.kind, name)}: {Refusal.BAD_NAME.value}"
    )


def _path(kind: Guarded, name: bytes) -> str:
    if not name:
        return kind.value
    return topic_path(name.decode(errors="replace")) if kind is Guarded.TOPICS else consumer_path(name)


def _name_of(kind: Guarded, written: str) -> bytes | None:
    return written.encode() if kind is Guarded.TOPICS else consumer_of(written)


def _shown(kind: Guarded, name: bytes) -> str:
    if not name:
        return f"the default of {kind.name.lower()}"
    return f"{kind.name.lower()[:-1]} {name.decode(errors='backslashreplace')}"
