"""Parts of a kind of entry, and the viewer for whom reactions and effects are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from attrs import field, frozen

from onyxlog.ids import GroupId, PeerId
from onyxlog.replica.commands import Command, Entry
from onyxlog.replica.effects import Effect
from onyxlog.replica.replica import Replica

C = TypeVar("C", bound=Command)
D = TypeVar("D")


@frozen
class Viewer:
    """Viewer for whom reactions and effects are computed.

    It is a group in the process that plays the log, with its virtual peers.

    `group` and `peers` are ids in use now, whether or not the log knows them yet. `client` is set instead by
    a program that only submits and reads (its gc entry is its own to carry out). `join_once`: an aborted join
    is not tried again.
    """

    group: GroupId | None = None
    peers: frozenset[PeerId] = field(factory=frozenset)
    client: str | None = None
    join_once: bool = False


@frozen
class Kind(Generic[C, D]):
    """The four functions of a kind of entry. All are pure, total and deterministic.

    `apply(replica, entry, command)`: the next replica; the same one if the entry does nothing. An entry that
    makes no sense (of a group that is gone, of a job that is known) does nothing: it is never an error, as
    all peers must get past it. `diff(old, new, command)`: what it changed, a value of the kind's own, None if
    nothing. `reactions(old, new, entry, diff, viewer)`: commands that this viewer appends because of it, in
    order. `effects(old, new, entry, diff, viewer)`: what this viewer has to do in the world; what follows
    from changed allocations is added for every kind alike.
    """

    apply: Callable[[Replica, Entry, C], Replica]
    diff: Callable[[Replica, Replica, C], D | None]
    reactions: Callable[[Replica, Replica, Entry, D | None, Viewer], tuple[Command, ...]]
    effects: Callable[[Replica, Replica, Entry, D | None, Viewer], tuple[Effect, ...]]


AnyKind = Kind[Any, Any]
