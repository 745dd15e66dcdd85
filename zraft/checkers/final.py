"""Check of the end of a run: all servers have one state, and everything acknowledged is in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from attrs import frozen

from zraft.checkers.history import (
    Kind,
    Operation,
    Outcome,
    Record,
    Violation,
    describe,
    operations,
)


@frozen
class Found:
    """A znode as one server shows it at the end."""

    value: str | None
    version: int
    mzxid: int
    owner: int = 0


def check_final(
    histories: Sequence[Sequence[Record]],
    servers: Mapping[int, Mapping[str, Found]],
    digests: Mapping[int, str],
) -> list[Violation]:
    """Return where servers contradict `final`.

    Trees and digests are equal; the last acknowledged write of each path is there or was replaced.

    Args:
        servers: by server, the znodes under the paths that clients wrote, read after all clients had stopped.
        digests: by server, "INDEX DIGEST" at one moment at which nobody wrote.
    """
    found: list[Violation] = []
    if len(set(digests.values())) > 1:
        found.append(Violation("final", f"digests differ: {dict(digests)}"))
    if not servers:
        return [*found, Violation("final", "no server was read: nothing is known of the end")]
    first, *others = sorted(servers)
    for other in others:
        paths = servers[first].keys() | servers[other].keys()
        wrong = [path for path in sorted(paths) if servers[first].get(path) != servers[other].get(path)]
        found += [
            Violation(
                "final",
                f"{path}: server {first} shows {servers[first].get(path)}, server {other} {servers[other].get(path)}",
            )
            for path in wrong[:5]
        ]
    acked: dict[str, Operation] = {}
    unsure: dict[str, list[Operation]] = defaultdict(list)
    for one in operations(histories):
        if one.kind not in (Kind.CREATE, Kind.SET, Kind.DELETE, Kind.MULTI_SET) or one.ephemeral:
            continue
        for path in (one.created or one.path, *one.further):
            if one.outcome is Outcome.UNKNOWN:
                unsure[path].append(one)
            elif one.outcome is Outcome.OK and (path not in acked or one.zxid > acked[path].zxid):
                acked[path] = one
    for server, tree in servers.items():
        for path, one in sorted(acked.items()):
            shown = tree.get(path)
            if one.kind is Kind.DELETE:
                again = [other for other in unsure[path] if other.kind is Kind.CREATE]
                if shown is not None and not shown.owner and not again:
                    found.append(
                        Violation("final", f"server {server} has what was deleted: {path}, {describe(one)}")
                    )
            elif shown is None:
                if not any(other.kind is Kind.DELETE for other in unsure[path]):
                    found.append(Violation("final", f"server {server} lacks {path}: {describe(one)}"))
            elif shown.mzxid < one.zxid or (shown.mzxid == one.zxid and shown.value != one.value):
                found.append(
                    Violation("final", f"server {server} shows {shown} at {path}, lost: {describe(one)}")
                )
            elif shown.mzxid > one.zxid and shown.value not in {other.value for other in unsure[path]}:
                found.append(
                    Violation(
                        "final",
                        f"server {server} shows {shown} at {path}, which nobody wrote after {describe(one)}",
                    )
                )
    return found
