"""Commands setquota, listquota and delquota, which write znodes as ZooKeeper's client does."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from attrs import asdict, evolve

from zraft.shell.conversation import Conversation, Step, ask, ask_each, checked, note, plain
from zraft.shell.errors import RefusedError, ShellError, UsageError
from zraft.shell.grammar import Invocation
from zraft.shell.paths import checked_path, parent_of
from zraft.shell.quota import (
    LIMITS,
    NO_LIMIT,
    NOTHING_USED,
    ROOT,
    Quota,
    limits_path,
    parse_quota,
    quota_path,
    stats_path,
)
from zraft.shell.subtree import Walk
from zraft_core.errors import Code
from zraft_core.wire.client import Reply
from zraft_core.wire.client_requests import Create, Delete, Exists, GetChildren, GetData, SetData

FIELDS: Final = {"n": "count", "b": "bytes", "N": "count_hard_limit", "B": "byte_hard_limit"}
"""The field of `Quota` that an option sets."""

_LIMIT_MAX: Final = 2**63 - 1


def setquota(call: Invocation, _: object) -> Conversation:
    """Set limits of a znode.

    Raises:
        UsageError: no limit is given.
        ShellError: the znode does not exist, or another one above or below it has a quota.
    """
    path = _quota_subject(call)
    limits: dict[str, int] = {}
    for option, name in FIELDS.items():
        limit = call.number(option, lowest=1, highest=_LIMIT_MAX)
        if limit is not None:
            limits[name] = limit
    if not limits:
        raise UsageError(f"setquota: expected one of -n, -b, -N, -B\nusage: {call.spec.usage}")
    try:
        yield from ask(Exists(path))
    except RefusedError as error:
        raise (ShellError(f"{path} does not exist.") if error.code == Code.NO_NODE else error) from None
    yield from _no_other_quota(path)
    found = yield from _find(limits_path(path))
    if found is None:
        quota = evolve(Quota(), **limits)
        yield from _make(path, quota)
    else:
        old, version = found
        quota = evolve(old, **limits)
        yield from ask(SetData(limits_path(path), str(quota).encode(), version))
    used = yield from _find(stats_path(path))
    if used is not None:
        for warning in _warnings(quota, used[0]):
            yield note(warning, {"warning": warning})


def _quota_subject(call: Invocation) -> str:
    path = checked_path(call.path)
    if path == ROOT or path.startswith(ROOT + "/"):
        raise UsageError(f"cannot set a quota under the path: {ROOT}")
    if path == "/":
        raise UsageError(f"{call.spec.name}: / has no quota; expected the path of a znode below it")
    return path


def _no_other_quota(path: str) -> Conversation:
    """Check that no znode on the way from the root to a leaf has a quota already; raise ShellError if one has."""
    walk = Walk(quota_path(path))
    try:
        while (visit := (yield from walk.step())) is not None:
            if LIMITS in visit.names and visit.path != quota_path(path):
                raise ShellError(f"{path} has a child {visit.path.removeprefix(ROOT)} which has a quota")
        walk.raise_refusal()
    except RefusedError as error:
        if error.code != Code.NO_NODE:
            raise
    parents: list[str] = []
    while (path_above := parent_of(parents[-1] if parents else path)) != "/":
        parents.append(path_above)
    requests = [Exists(limits_path(parent)) for parent in parents]
    for parent, request, reply in zip(parents, requests, (yield from ask_each(requests)), strict=True):
        if reply.code != Code.NO_NODE:
            checked(request, reply)
            raise ShellError(f"{path} has a parent {parent} which has a quota")


def _make(path: str, quota: Quota) -> Conversation:
    """Make the znodes of a new quota; those above them may exist already."""
    above = [quota_path(path)]
    while (parent := parent_of(above[-1])) != ROOT:
        above.append(parent)
    for one in reversed(above):
        try:
            yield from ask(Create(one))
        except RefusedError as error:
            if error.code != Code.NODE_EXISTS:
                raise
    yield from ask(Create(limits_path(path), str(quota).encode()))
    # The servers count what is used, once the znode for it exists.
    yield from ask(Create(stats_path(path), NOTHING_USED))


def _find(path: str) -> Generator[Step, Sequence[Reply], tuple[Quota, int] | None]:
    """Return (quota, version) of a znode that holds one; None if there is no such znode."""
    try:
        data, stat = yield from ask(GetData(path))
    except RefusedError as error:
        if error.code == Code.NO_NODE:
            return None
        raise
    return parse_quota(data, path), stat.version


def _warnings(quota: Quota, used: Quota) -> list[str]:
    def exceeded(limits: tuple[int, int], now: int) -> bool:
        return any(limit != NO_LIMIT and limit < now for limit in limits)

    warnings = []
    if exceeded((quota.count, quota.count_hard_limit), used.count):
        warnings.append(f"[Warning]: the count quota you create is less than the existing count:{used.count}")
    if exceeded((quota.bytes, quota.byte_hard_limit), used.bytes):
        warnings.append(f"[Warning]: the bytes quota you create is less than the existing bytes:{used.bytes}")
    return warnings


def listquota(call: Invocation, _: object) -> Conversation:
    """Show a znode's limits, and what is used.

    Raises:
        ShellError: the znode has no quota.
    """
    path = _quota_subject(call)
    limits = yield from _find(limits_path(path))
    yield plain(f"absolute path is {limits_path(path)}", None)
    if limits is None:
        raise ShellError(f"quota for {path} does not exist.")
    quota = limits[0]
    lines = [f"Output quota for {path} {quota}"]
    value: dict[str, object] = {"path": path, "limits": asdict(quota), "used": None}
    stats = yield from _find(stats_path(path))
    if stats is not None:
        used = stats[0]
        lines.append(f"Output stat for {path} count={used.count},bytes={used.bytes}")
        value["used"] = {"count": used.count, "bytes": used.bytes}
    yield plain("\n".join(lines), value)


def delquota(call: Invocation, _: object) -> Conversation:
    """Remove limits of a znode.

    Raises:
        ShellError: the znode has no quota.
    """
    path = _quota_subject(call)
    found = yield from _find(limits_path(path))
    if found is None:
        raise ShellError(f"Quota does not exist for {path}")
    old, version = found
    gone = {name: NO_LIMIT for option, name in FIELDS.items() if call.has(option)}
    if gone:
        yield from ask(SetData(limits_path(path), str(evolve(old, **gone)).encode(), version))
        return
    for one in (limits_path(path), stats_path(path)):
        yield from _delete_if_there(one)
    # The znodes that only led to this quota are removed, too.
    above = quota_path(path)
    while above != ROOT and not (yield from ask(GetChildren(above))):
        yield from _delete_if_there(above)
        above = parent_of(above)


def _delete_if_there(path: str) -> Conversation:
    try:
        yield from ask(Delete(path))
    except RefusedError as error:
        if error.code != Code.NO_NODE:
            raise
