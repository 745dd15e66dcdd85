"""Owns what clients were promised about watches: every event is told exactly once, in order, to who may read it.

The events of the history are walked once per connection. Whatever concerns a watch of the connection must be the
next event to arrive, unless the client lacks READ under the ACL of that moment (trap 15); and no reply may show a
state with events that were not told. The rules of which change concerns which watch are ZooKeeper's
(`docs/reference/protocol-zookeeper.md`), written anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from tests.simulation import jute, rights
from tests.simulation.calls import Call, Rearming, Watches
from tests.simulation.clients import SimulatedClient
from tests.simulation.model import Event, History, Version

NO_ZXID: Final = -1
"""What events carry that setWatches makes up for: they are no change of that moment."""

Fail = Callable[[str, str], NoReturn]


class WatchChecks:
    """The watches of all clients. `kinds` counts what was seen, by name."""

    def __init__(self, history: History, fail: Fail, kinds: Counter[str]) -> None:
        self._history = history
        self._fail = fail
        self._kinds = kinds

    # -- events and replies
    def event(self, client: SimulatedClient, zxid: int, kind: int, path: str) -> None:
        """An event arrives: it is the next one that concerns this client, and all before it were told."""
        watches = client.watches
        if watches.rearming is not None:
            watches.rearming.told.append((zxid, kind, path))
            return
        what = f"event {kind} of {path} at {zxid:x}"
        for event, must, may in self._concerning(client, zxid):
            if (event.zxid, event.kind, event.path) == (zxid, kind, path):
                if not may:
                    self._fail(
                        "watch",
                        f"C{client.number}: {what} is told, READ is not granted: {event.acl}, {client.ids}",
                    )
                self._told(client, event)
                watches.ids_before = None
                return
            self._not_told(client, event, must, what)
        self._fail(
            "watch",
            f"C{client.number}: {what} without such a change or watch (armed: data {watches.data.get(path)}, child "
            f"{watches.child.get(path)}, persistent {list(watches.persistent)}, recursive {list(watches.recursive)})",
        )

    def overtaken(self, client: SimulatedClient, zxid: int, what: str) -> None:
        """A reply shows the state at `zxid`: everything up to it must have been told."""
        if client.watches.rearming is not None:
            return
        for event, must, _ in self._concerning(client, zxid):
            self._not_told(client, event, must, what)
        client.watches.ids_before = None

    def _not_told(self, client: SimulatedClient, event: Event, must: bool, what: str) -> None:
        if must:
            self._fail(
                "watch",
                f"C{client.number}: {what} overtakes event {event.kind} of {event.path} at {event.zxid:x}",
            )
        self._kinds["event withheld"] += 1

    def _concerning(self, client: SimulatedClient, upto: int) -> Iterator[tuple[Event, bool, bool]]:
        """Events up to a zxid that concern the client's watches, and whether they must and may be told.

        Those that are told once are spent, whether the client may read the znode or not.
        """
        watches, events = client.watches, self._history.events
        while watches.cursor < len(events) and events[watches.cursor].zxid <= upto:
            event = events[watches.cursor]
            watches.cursor += 1
            if _concerns(watches, event):
                may = rights.grants(event.acl, rights.READ, client.ids)
                before = watches.ids_before
                must = may if before is None else rights.grants(event.acl, rights.READ, before)
                yield event, must, may

    def _told(self, client: SimulatedClient, event: Event) -> None:
        watches = client.watches
        lasting = _lasting_kind(watches, event)
        if lasting:
            self._kinds[lasting] += 1
        _library_is_told(watches.data, watches.child, event.kind, event.path)
        watches.silent_data &= watches.data.keys()
        watches.silent_child &= watches.child.keys()

    # -- registering and removing
    def registered(self, client: SimulatedClient, call: Call, zxid: int, *, child: bool = False) -> None:
        """A read with `watch` set was answered."""
        watches = client.watches
        armed, silent = (
            (watches.child, watches.silent_child) if child else (watches.data, watches.silent_data)
        )
        if call.path in silent:
            silent.remove(call.path)
            armed[call.path] = zxid
        else:
            armed.setdefault(call.path, zxid)

    def added(self, client: SimulatedClient, call: Call) -> None:
        """addWatch was answered."""
        watches = client.watches
        (watches.persistent if call.number == jute.PERSISTENT else watches.recursive)[call.path] = None

    def has(self, client: SimulatedClient, path: str, kind: int) -> bool:
        """What checkWatches and removeWatches must find."""
        watches = client.watches
        child = path in watches.child and path not in watches.silent_child
        data = path in watches.data and path not in watches.silent_data
        lasting = path in watches.persistent, path in watches.recursive
        return {
            jute.OF_CHILDREN: child,
            jute.OF_DATA: data,
            jute.OF_ANY: child or data or any(lasting),
            jute.OF_PERSISTENT: lasting[0],
            jute.OF_RECURSIVE: lasting[1],
        }[kind]

    def removed(self, client: SimulatedClient, path: str, kind: int) -> None:
        watches = client.watches
        tables: dict[int, tuple[dict[str, int] | dict[str, None], ...]] = {
            jute.OF_CHILDREN: (watches.child,),
            jute.OF_DATA: (watches.data,),
            jute.OF_ANY: (watches.child, watches.data, watches.persistent, watches.recursive),
            jute.OF_PERSISTENT: (watches.persistent,),
            jute.OF_RECURSIVE: (watches.recursive,),
        }
        for table in tables[kind]:
            table.pop(path, None)
        watches.silent_child &= watches.child.keys()
        watches.silent_data &= watches.data.keys()

    # -- watches across connections
    def rearming(self, client: SimulatedClient) -> tuple[list[str], list[str], list[str]]:
        """The lists of a setWatches: data watches on nodes that existed, on nodes that did not, on children."""
        watches = client.watches
        asked = Rearming(watches, client.last_zxid)
        watches.forget_all()
        watches.rearming = asked
        data: list[str] = []
        exist: list[str] = []
        for path, since in asked.data.items():
            (exist if self._history.at(path, since) is None else data).append(path)
        return data, exist, list(asked.child)

    def lost(self, client: SimulatedClient) -> None:
        """The connection is gone, and with it its watches at the server."""
        watches = client.watches
        asked = watches.rearming
        if asked is not None:
            for _, kind, path in asked.told:
                _library_is_told(asked.data, asked.child, kind, path)
            watches.data, watches.child = asked.data, asked.child
            watches.persistent, watches.recursive = asked.persistent, asked.recursive
            watches.rearming = None
        watches.silent_data, watches.silent_child, watches.ids_before = set(), set(), None
        if not client.rearms:
            watches.forget_all()

    def rearmed(self, client: SimulatedClient, zxid: int) -> None:
        """What happened while the client was away is told at once, by state; the rest is armed again.

        Lasting watches are told nothing of it (trap 9), nobody is told of what he may not read.
        """
        watches, history = client.watches, self._history
        asked = watches.rearming
        assert asked is not None
        watches.rearming = None
        watches.cursor = history.events_after(zxid)
        watches.persistent, watches.recursive = asked.persistent, asked.recursive
        expected: set[tuple[int, int, str]] = set()

        def expect(kind: int, path: str, node: Version | None) -> bool:
            if node is None or rights.grants(node.acl, rights.READ, client.ids):
                expected.add((NO_ZXID, kind, path))
                return True
            self._kinds["event withheld"] += 1
            return False

        for path, since in asked.data.items():
            node = history.at(path, zxid)
            if history.at(path, since) is None:
                kind = jute.EVENT_CREATED if node is not None else None
            elif node is None:
                kind = jute.EVENT_DELETED
            else:
                kind = jute.EVENT_CHANGED if node.mzxid > asked.relative_zxid else None
            if kind is None:
                watches.data[path] = zxid
            elif not expect(kind, path, node):
                watches.data[path] = since
                watches.silent_data.add(path)
        for path, since in asked.child.items():
            node = history.at(path, zxid)
            if node is not None and node.pzxid <= asked.relative_zxid:
                watches.child[path] = zxid
            elif not expect(jute.EVENT_DELETED if node is None else jute.EVENT_CHILDREN, path, node):
                watches.child[path] = since
                watches.silent_child.add(path)
        if expected != set(asked.told):
            self._fail(
                "watch",
                f"C{client.number}: setWatches relative to {asked.relative_zxid:x} at {zxid:x} tells "
                f"{sorted(asked.told)}, expected {sorted(expected)}",
            )


def _concerns(watches: Watches, event: Event) -> bool:
    """Whether a change concerns any watch of the connection; those that are told once are spent by it."""
    path = event.path
    spent = False
    if event.kind != jute.EVENT_CHILDREN and path in watches.data and path not in watches.silent_data:
        watches.silent_data.add(path)
        spent = True
    if (
        event.kind in (jute.EVENT_CHILDREN, jute.EVENT_DELETED)
        and path in watches.child
        and path not in watches.silent_child
    ):
        watches.silent_child.add(path)
        spent = True
    return spent or bool(_lasting_kind(watches, event))


def _lasting_kind(watches: Watches, event: Event) -> str:
    """Which lasting watch a change concerns, "" if none: recursive ones never hear of lists of children (trap 10)."""
    if event.path in watches.persistent:
        return "persistent event"
    if event.kind == jute.EVENT_CHILDREN or not watches.recursive:
        return ""
    path = event.path
    if path in watches.recursive:
        return "recursive event"
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        if path in watches.recursive:
            return "recursive event"
    return ""


def _library_is_told(data: dict[str, int], child: dict[str, int], kind: int, path: str) -> None:
    """The library drops the one-shot watches that an event answers."""
    if kind == jute.EVENT_CHILDREN:
        child.pop(path, None)
        return
    data.pop(path, None)
    if kind == jute.EVENT_DELETED:
        child.pop(path, None)
